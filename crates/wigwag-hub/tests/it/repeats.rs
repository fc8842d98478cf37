//! Repeated asks: the same answer, and a single effect.

use serde_json::{Value, json};

use crate::{note, notes, pair, pair_with, unlimited};

#[test]
fn a_repeat_gets_the_identical_answer_and_is_not_delivered_again() {
    let mut world = pair();
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    let first = world.next_text("a").unwrap();
    world.now += 20_000;
    world.send("a", &frame);
    assert_eq!(world.next_text("a").unwrap(), first, "to the letter");
    assert_eq!(notes(&world.all("b")), [1]);
}

#[test]
fn a_repeat_of_a_queued_ask_gets_the_identical_answer() {
    let mut world = pair();
    world.close("b");
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    let first = world.next_text("a").unwrap();
    world.now += 1_000;
    world.send("a", &frame);
    assert_eq!(world.next_text("a").unwrap(), first);
    assert_eq!(world.waiting("@(b)").len(), 1);
}

#[test]
fn a_repeat_while_the_first_is_in_progress_is_answered_once() {
    let mut world = pair();
    world.reads("b", false);
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    world.send("a", &frame);
    world.reads("b", true);
    assert_eq!(world.all("a").len(), 1);
    assert_eq!(notes(&world.all("b")), [1]);
}

#[test]
fn a_repeat_over_another_connection_gets_the_answer_there() {
    let mut world = pair();
    world.reads("b", false);
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    world.close("a");
    world.join_as("a2", "@(a)");
    world.send("a2", &frame);
    world.reads("b", true);
    assert_eq!(world.answer("a2", &frame)["payload"]["status"], "delivered");
    assert_eq!(notes(&world.all("b")), [1]);
}

#[test]
fn tells_are_not_recognised() {
    let mut world = pair();
    let frame = world.envelope("@(a)", "hub:send", "tell", note("@(b)", 1));
    world.send("a", &frame);
    world.send("a", &frame);
    assert_eq!(notes(&world.all("b")), [1, 1]);
}

#[test]
fn the_same_id_of_another_sender_is_another_message() {
    let mut world = pair();
    world.join_as("c", "@(c)");
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.ask_frame("a", &frame);
    frame["from"] = json!("@(c)");
    world.ask_frame("c", &frame);
    assert_eq!(notes(&world.all("b")), [1, 1]);
}

#[test]
fn an_ask_is_remembered_for_120_seconds_or_its_ttl_but_not_longer_than_300() {
    for (ttl, span) in
        [(Value::Null, 120_000), (json!(5_000), 120_000), (json!(200_000), 200_000), (json!(900_000), 300_000)]
    {
        let mut world = pair();
        let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
        frame["ttl"] = ttl.clone();
        world.ask_frame("a", &frame);
        world.now += span;
        // A repeat has a new timestamp.
        frame["timestamp"] = json!(world.now);
        world.ask_frame("a", &frame);
        assert_eq!(notes(&world.all("b")), [1], "ttl {ttl}");
        world.now += 1;
        world.ask_frame("a", &frame);
        assert_eq!(notes(&world.all("b")), [1], "ttl {ttl}");
    }
}

#[test]
fn ten_thousand_are_remembered_for_each_sender_and_the_oldest_go_first() {
    let mut world = pair_with(unlimited());
    let frames: Vec<Value> = (0..10_001).map(|n| world.envelope("@(a)", "hub:send", "ask", note("@(b)", n))).collect();
    for frame in &frames[..10_000] {
        world.send("a", frame);
    }
    world.all("b");
    world.send("a", &frames[0]);
    assert_eq!(world.next("b"), None, "all of them are recognised");
    world.send("a", &frames[10_000]);
    assert_eq!(notes(&world.all("b")), [10_000]);
    world.send("a", &frames[1]);
    assert_eq!(world.next("b"), None);
    world.send("a", &frames[0]);
    assert_eq!(notes(&world.all("b")), [0], "the oldest is forgotten");
}

#[test]
fn a_failed_ask_is_retried() {
    let mut world = pair();
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(late)", 1));
    assert_eq!(world.ask_frame("a", &frame)["type"], "hub:unknown_actor");
    world.join_as("l", "@(late)");
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "delivered");
}

#[test]
fn queued_messages_are_recognised_after_a_restart() {
    let mut world = pair();
    world.close("b");
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    let first = world.ask_frame("a", &frame);
    world.restart();
    world.join_as("a2", "@(a)");
    let again = world.ask_frame("a2", &frame);
    assert_eq!(again["payload"], first["payload"]);
    assert_eq!(world.waiting("@(b)").len(), 1);
}

#[test]
fn a_put_with_an_unknown_outcome_is_retried_under_the_same_key() {
    let mut world = pair();
    world.close("b");
    world.hold = true;
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    world.broken = true;
    world.release();
    let refused = world.answer("a", &frame);
    assert_eq!(
        (&refused["payload"]["code"], &refused["payload"]["retryable"]),
        (&json!("internal_error"), &json!(true))
    );
    world.broken = false;
    let asked_at = world.now;
    world.now += 3_000;
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "queued");
    let (waiting, _) = world.waiting("@(b)").remove(0);
    assert_eq!(
        waiting.received, asked_at,
        "the key of the first attempt, so that a put that took effect stays the only one"
    );
}

#[test]
fn a_broadcast_and_a_publish_are_recognised_too() {
    let mut world = pair();
    let own = |topic: &str| json!({"topic": topic});
    world.ask("b", "@(b)", "hub:subscribe", own("news"));
    let message = json!({"message": {"type": "news", "payload": 1}});
    let broadcast = world.envelope("@(a)", "hub:broadcast", "ask", message.clone());
    let mut publish = world.envelope("@(a)", "hub:publish", "ask", message);
    publish["payload"]["topic"] = json!("news");
    for frame in [broadcast, publish] {
        let first = world.ask_frame("a", &frame);
        let count = world.all("b").len();
        assert_eq!(count, 1);
        world.now += 1_000;
        world.all("a");
        assert_eq!(world.ask_frame("a", &frame), first);
        assert_eq!(world.all("b").len(), 0);
    }
}
