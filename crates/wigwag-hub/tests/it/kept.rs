//! Durable queues of actors that are away.

use bytes::Bytes;
use serde_json::{Value, json};
use wigwag_hub::key::{self, message_hash};
use wigwag_hub::testing::World;
use wigwag_hub::{Settings, Waiting};

use crate::{note, notes, pair, pair_with, types};

#[test]
fn a_queue_holds_a_hundred_messages_and_rejects_the_next() {
    let mut world = pair();
    world.close("b");
    for number in 0..100 {
        assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", number))["payload"]["status"], "queued");
    }
    let refused = world.ask("a", "@(a)", "hub:send", note("@(b)", 100));
    assert_eq!((&refused["payload"]["code"], &refused["payload"]["retryable"]), (&json!("queue_full"), &json!(true)));
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), (0..100).collect::<Vec<_>>());
    assert_eq!(world.waiting("@(b)"), []);
}

#[test]
fn the_queue_limit_counts_puts_in_progress_and_messages_of_an_earlier_hub() {
    let mut settings = Settings::default();
    settings.queue_max = 3;
    let mut world = pair_with(settings);
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 0));
    world.restart();
    world.join_as("a2", "@(a)");
    // The first message makes the hub read the store.
    world.ask("a2", "@(a)", "hub:send", note("@(b)", 1));
    world.hold = true;
    world.tell("a2", "@(a)", "hub:heartbeat", json!(null));
    let third = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 2));
    let fourth = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 3));
    world.send("a2", &third);
    world.send("a2", &fourth);
    assert_eq!(world.answer("a2", &fourth)["payload"]["code"], "queue_full");
    world.release();
    assert_eq!(world.answer("a2", &third)["payload"]["status"], "queued");
}

#[test]
fn bytes_are_bounded_too() {
    let mut settings = Settings::default();
    settings.queue_bytes_max = 2_000;
    let mut world = pair_with(settings);
    world.close("b");
    let big = "x".repeat(1_000);
    assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", big.clone()))["payload"]["status"], "queued");
    assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", big))["payload"]["code"], "queue_full");
}

#[test]
fn queued_messages_survive_a_crash_of_the_hub() {
    let mut world = pair();
    world.close("b");
    for number in 0..100 {
        world.ask("a", "@(a)", "hub:send", note("@(b)", number));
    }
    world.restart();
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_message_delivered_but_not_removed_is_delivered_again_under_the_same_id() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    world.join_as("b2", "@(b)");
    let first = world.next("b2").unwrap();
    // Simulates a crash before the removal.
    world.restart();
    let waiting = Waiting { received: world.now, expires: world.now + 1_000, hash: message_hash("@(a)", "m") };
    world.store.insert(key::waiting("@(b)", &waiting), first.to_string().into());
    world.join_as("b3", "@(b)");
    let again = world.next("b3").unwrap();
    assert_eq!(again["id"], first["id"]);
    assert_eq!(world.waiting("@(b)"), []);
}

#[test]
fn a_store_that_does_not_answer_loses_nothing_that_was_acknowledged() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    world.broken = true;
    let refused = world.ask("a", "@(a)", "hub:send", note("@(b)", 2));
    assert_eq!(refused["payload"]["code"], "internal_error");
    let own = world.join("b2");
    let refused = world.ask("b2", &own, "hub:register", json!({"actorAddress": "@(b)"}));
    assert_eq!(
        (&refused["payload"]["code"], &refused["payload"]["retryable"]),
        (&json!("internal_error"), &json!(true))
    );
    world.broken = false;
    world.join_as("b3", "@(b)");
    assert_eq!(notes(&world.all("b3")), [1]);
}

#[test]
fn a_queue_that_cannot_be_read_ends_the_session_so_that_nothing_overtakes_it() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    let own = world.join("b2");
    world.hold = true;
    world.tell("b2", &own, "hub:register", json!({"actorAddress": "@(b)"}));
    // The version is incremented; the queue is being read.
    world.hold = false;
    world.settle_one();
    world.broken = true;
    world.settle();
    assert_eq!(world.closed("b2"), Some(1001));
    world.broken = false;
    world.ask("a", "@(a)", "hub:send", note("@(b)", 2));
    world.join_as("b3", "@(b)");
    assert_eq!(notes(&world.all("b3")), [1, 2]);
}

/// Replaces the first queued message of `@(b)` in the store and returns its key.
fn damage(world: &mut World, body: impl Into<Bytes>) -> Waiting {
    let (waiting, _) = world.waiting("@(b)").remove(0);
    world.store.insert(key::waiting("@(b)", &waiting), body.into());
    waiting
}

#[test]
fn an_unreadable_stored_message_is_set_aside_and_blocks_no_other() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    world.ask("a", "@(a)", "hub:send", note("@(b)", 2));
    let damaged = damage(&mut world, "not a frame");
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [2]);
    assert_eq!(world.waiting("@(b)"), []);
    assert_eq!(world.store[&key::unreadable("@(b)", &damaged)], "not a frame");
    assert_eq!(world.hub.figures()["unreadable"], 1);
    world.join_as("b3", "@(b)");
    assert_eq!(world.hub.figures()["unreadable"], 1, "it is set aside once");
}

#[test]
fn an_unreadable_message_that_expires_is_set_aside_too() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    let damaged = damage(&mut world, "not a frame");
    world.restart();
    world.pass_alive(25 * 3_600_000);
    world.sweep();
    world.settle();
    world.pass(1_000);
    assert_eq!(world.waiting("@(b)"), []);
    assert_eq!(world.store[&key::unreadable("@(b)", &damaged)], "not a frame");
}

#[test]
fn an_unreadable_message_stays_in_its_queue_while_the_store_fails() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    let damaged = damage(&mut world, "not a frame");
    let own = world.join("b2");
    world.hold = true;
    world.tell("b2", &own, "hub:register", json!({"actorAddress": "@(b)"}));
    world.hold = false;
    // The registration, and the reading of the queue.
    world.settle_one();
    world.settle_one();
    world.broken = true;
    world.settle();
    assert_eq!(world.waiting("@(b)").len(), 1);
    world.broken = false;
    world.join_as("b3", "@(b)");
    assert_eq!(world.waiting("@(b)"), []);
    assert_eq!(world.store[&key::unreadable("@(b)", &damaged)], "not a frame");
}

#[test]
fn a_stored_message_with_a_flag_that_is_not_a_boolean_is_delivered() {
    for flag in [json!(1), json!("true"), json!(null), json!({})] {
        let mut world = pair();
        world.close("b");
        world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
        let (waiting, _) = world.waiting("@(b)").remove(0);
        let mut stored: Value = serde_json::from_slice(&world.store[&key::waiting("@(b)", &waiting)]).unwrap();
        stored["metadata"]["requireAck"] = flag.clone();
        damage(&mut world, stored.to_string());
        world.join_as("b2", "@(b)");
        assert_eq!(notes(&world.all("b2")), [1], "{flag}");
        assert_eq!(world.waiting("@(b)"), [], "without a flag it needs no acknowledgement");
    }
}

#[test]
fn a_session_address_has_no_queue() {
    let mut world = pair();
    let own = world.join("c");
    assert_eq!(world.ask("a", "@(a)", "hub:send", note(&own, 1))["payload"]["status"], "delivered");
    world.close("c");
    assert_eq!(world.ask("a", "@(a)", "hub:send", note(&own, 2))["type"], "hub:unknown_actor");
    assert_eq!(world.store.keys().filter(|key| key.contains("session")).count(), 0);
}

#[test]
fn registered_precedes_queued_messages_and_these_precede_new_ones() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    world.join("b2");
    world.tell("b2", "@(x)", "hub:register", json!({"actorAddress": "@(b)"}));
    world.tell("a", "@(a)", "hub:send", note("@(b)", 2));
    let got = world.all("b2");
    assert_eq!(types(&got), ["hub:registered", "note", "note"]);
    assert_eq!(notes(&got), [1, 2]);
    assert_eq!(got[1]["metadata"]["originalMessageId"].as_str().map(str::is_empty), Some(false));
    assert_eq!(world.all("b2"), [] as [Value; 0]);
}
