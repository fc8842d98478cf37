//! Acknowledged messages are never lost silently, and no answer promises more than the hub keeps.

use serde_json::{Value, json};
use wigwag_hub::testing::World;
use wigwag_hub::{Waiting, key};

use crate::{note, notes, pair, pair_with, types, unlimited};

/// Returns the payload of a request to an address.
fn question(to: &str, data: i64) -> Value {
    let mut payload = note(to, data);
    payload["expectReply"] = json!(true);
    payload
}

fn acked(world: &mut World, from: &str, to: &str, data: i64) -> Value {
    let mut frame = world.envelope(from, "hub:send", "ask", note(to, data));
    frame["metadata"] = json!({"requireAck": true});
    frame
}

fn reply(world: &mut World, to: &Value, data: i64) -> Value {
    world.envelope("@(b)", "hub:reply", "ask", json!({"inReplyTo": to, "type": "answer", "data": data}))
}

#[test]
fn a_reply_to_an_asker_that_is_away_is_stored_and_delivered_when_it_is_back() {
    let mut world = pair();
    let frame = world.envelope("@(a)", "hub:send", "ask", question("@(b)", 1));
    world.ask_frame("a", &frame);
    let asked = world.next("b").unwrap();
    world.close("a");
    let answer = reply(&mut world, &asked["id"], 2);
    assert_eq!(world.ask_frame("b", &answer)["payload"]["status"], "queued");
    assert_eq!(world.waiting("@(a)").len(), 1, "`queued` means stored");
    world.restart();
    world.join_as("a2", "@(a)");
    let got = world.answer("a2", &frame);
    assert_eq!((&got["type"], &got["payload"], &got["from"]), (&json!("answer"), &json!(2), &json!("@(b)")));
    assert_eq!(world.waiting("@(a)"), []);
}

#[test]
fn a_reply_to_a_closed_session_is_rejected_and_may_be_repeated() {
    let mut world = pair();
    let own = world.join("c");
    let frame = world.envelope(&own, "hub:send", "ask", question("@(b)", 1));
    world.ask_frame("c", &frame);
    let asked = world.next("b").unwrap();
    world.close("c");
    let answer = reply(&mut world, &asked["id"], 2);
    let refused = world.ask_frame("b", &answer);
    assert_eq!((&refused["type"], &refused["payload"]["retryable"]), (&json!("hub:unknown_actor"), &json!(true)));
}

#[test]
fn a_reply_is_answered_delivered_once_it_is_written_and_a_second_one_is_a_conflict() {
    let mut world = pair();
    let frame = world.envelope("@(a)", "hub:send", "ask", question("@(b)", 1));
    world.ask_frame("a", &frame);
    let asked = world.next("b").unwrap();
    world.reads("a", false);
    let answer = reply(&mut world, &asked["id"], 2);
    world.send("b", &answer);
    assert_eq!(world.next("b"), None, "it is not written yet");
    world.reads("a", true);
    let first = world.answer("b", &answer);
    assert_eq!(first["payload"]["status"], "delivered");
    assert_eq!(world.ask_frame("b", &answer), first, "a repeat gets the same answer");
    let other = reply(&mut world, &asked["id"], 3);
    assert_eq!(world.ask_frame("b", &other)["payload"]["code"], "conflict");
    assert_eq!(world.answer("a", &frame)["payload"], 2);
    assert_eq!(world.answer("a", &frame), Value::Null, "one reply");
}

#[test]
fn a_rejected_request_has_no_timeout_and_its_repeat_is_delivered_once() {
    let mut settings = unlimited();
    settings.queue_max = 1;
    let mut world = pair_with(settings);
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 0));
    let frame = world.envelope("@(a)", "hub:send", "ask", question("@(b)", 1));
    assert_eq!(world.ask_frame("a", &frame)["payload"]["code"], "queue_full");
    world.join_as("b2", "@(b)");
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "delivered");
    let asked = world.all("b2");
    assert_eq!(notes(&asked), [0, 1]);
    // The deadline of the rejected attempt passes; the delivered attempt has a later one.
    world.now += 15_000;
    let nobody = world.envelope("@(a)", "hub:send", "ask", question("@(nobody)", 2));
    assert_eq!(world.ask_frame("a", &nobody)["type"], "hub:unknown_actor");
    world.pass(10_000);
    assert_eq!(world.all("a"), [] as [Value; 0], "the rejected attempt has no timeout");
    world.pass(25_000);
    assert_eq!(types(&world.all("a")), ["hub:error"], "the delivered request got no reply");
    // The dedup entry still exists: a repeat restarts the wait and is not delivered again.
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "delivered");
    assert_eq!(notes(&world.all("b2")), [] as [Value; 0]);
    let late = world.envelope("@(b)", "hub:reply", "ask", json!({"inReplyTo": asked[1]["id"], "type": "answer"}));
    assert_eq!(world.ask_frame("b2", &late)["payload"]["status"], "delivered");
    assert_eq!(world.answer("a", &frame)["type"], "answer");
}

#[test]
fn a_repeat_of_a_message_that_expired_in_the_queue_gets_an_expiry_error() {
    for restarts in [false, true] {
        let mut world = pair();
        world.close("b");
        let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
        frame["ttl"] = json!(5_000);
        assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "queued");
        let mut name = "a";
        if restarts {
            world.restart();
            world.join_as("a2", "@(a)");
            name = "a2";
            // Makes the hub read the store.
            assert_eq!(world.ask_frame(name, &frame)["payload"]["status"], "queued");
        }
        world.pass(5_001);
        let told = world.answer(name, &frame);
        assert_eq!(told["payload"]["code"], "message_expired", "restarts: {restarts}");
        assert_eq!(world.waiting("@(b)"), []);
        for _ in 0..2 {
            assert_eq!(world.ask_frame(name, &frame)["payload"]["code"], "message_expired", "restarts: {restarts}");
        }
        world.join_as("b2", "@(b)");
        assert_eq!(world.all("b2"), [] as [Value; 0]);
    }
}

#[test]
fn the_sender_is_notified_when_a_message_of_an_earlier_hub_expires() {
    let mut world = pair();
    world.close("b");
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    frame["ttl"] = json!(5_000);
    world.ask_frame("a", &frame);
    world.restart();
    world.join_as("a2", "@(a)");
    world.now += 5_001;
    world.sweep();
    world.settle();
    world.pass(1_000);
    assert_eq!(world.answer("a2", &frame)["payload"]["code"], "message_expired");
    assert_eq!(world.waiting("@(b)"), []);
}

#[test]
fn a_retried_message_keeps_its_id_and_a_late_acknowledgement_counts() {
    let mut world = pair();
    let frame = acked(&mut world, "@(a)", "@(b)", 1);
    world.send("a", &frame);
    let first = world.next("b").unwrap();
    world.pass(30_001);
    assert_eq!(world.answer("a", &frame)["payload"]["code"], "timeout");
    world.send("a", &frame);
    let again = world.next("b").unwrap();
    assert_eq!(again["id"], first["id"], "one id per message and process of the server");
    world.pass(30_001);
    assert_eq!(world.answer("a", &frame)["payload"]["code"], "timeout");
    world.tell("b", "@(b)", "hub:ack", json!({"messageId": first["id"]}));
    let answer = world.answer("a", &frame);
    assert_eq!(answer["payload"]["status"], "delivered", "it was acknowledged, if late");
    assert_eq!(world.ask_frame("a", &frame), answer);
    assert_eq!(world.all("b"), [] as [Value; 0]);
}

#[test]
fn a_target_that_makes_progress_has_more_time() {
    let mut world = pair();
    let frame = acked(&mut world, "@(a)", "@(b)", 1);
    world.send("a", &frame);
    let got = world.next("b").unwrap();
    for _ in 0..5 {
        world.pass(25_000);
        world.tell("b", "@(b)", "hub:progress", json!({"messageId": got["id"]}));
        let told = world.answer("a", &frame);
        assert_eq!(told["type"], "hub:progress");
        assert_eq!(told["payload"], json!({"messageId": frame["id"], "until": world.now + 30_000}));
        world.tell("a", "@(a)", "hub:heartbeat", json!(null));
        world.all("a");
    }
    world.tell("b", "@(b)", "hub:ack", json!({"messageId": got["id"]}));
    assert_eq!(world.answer("a", &frame)["payload"]["status"], "delivered");
    let refused = world.ask("b", "@(b)", "hub:progress", json!({"messageId": got["id"]}));
    assert_eq!(refused["payload"]["code"], "timeout", "the request no longer waits");
}

#[test]
fn a_request_waits_while_its_target_makes_progress_and_no_other() {
    let mut world = pair();
    world.join_as("c", "@(c)");
    let frame = world.envelope("@(a)", "hub:send", "ask", question("@(b)", 1));
    world.ask_frame("a", &frame);
    let asked = world.next("b").unwrap();
    let progress = json!({"messageId": asked["id"], "extendMs": 60_000});
    assert_eq!(world.ask("c", "@(c)", "hub:progress", progress.clone())["payload"]["code"], "timeout");
    let extended = world.ask("b", "@(b)", "hub:progress", progress);
    assert_eq!(extended["payload"], json!({"messageId": asked["id"], "until": world.now + 60_000}));
    world.all("a");
    world.pass(59_000);
    assert_eq!(world.all("a"), [] as [Value; 0]);
    world.pass(2_000);
    assert_eq!(world.answer("a", &frame)["payload"]["code"], "timeout");
}

#[test]
fn a_flag_that_is_not_a_boolean_is_rejected() {
    let mut world = pair();
    world.close("b");
    for flag in ["null", "1", "\"true\"", "[]"] {
        for name in ["requireAck", "queue"] {
            let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
            frame["metadata"] = json!({name: "FLAG"});
            world.text("a", &frame.to_string().replace("\"FLAG\"", flag));
            let refused = world.answer("a", &frame);
            assert_eq!(refused["payload"]["code"], "invalid_message", "{name}: {flag}");
            assert!(refused["payload"]["message"].as_str().unwrap().contains(name), "{refused}");
        }
    }
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    let twice =
        frame.to_string().replace("{\"from\"", "{\"metadata\":{\"requireAck\":true,\"requireAck\":false},\"from\"");
    world.text("a", &twice);
    assert_eq!(world.answer("a", &frame)["payload"]["code"], "invalid_message");
    assert_eq!(world.waiting("@(b)"), [], "an unreadable message is not stored");
    let refused = world.ask("a", "@(a)", "hub:send", json!({"to": "@(b)", "type": "x", "expectReply": 1}));
    assert_eq!(refused["payload"]["code"], "invalid_message");
}

#[test]
fn a_repeat_is_answered_as_before_though_its_time_is_over() {
    let mut world = pair();
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    frame["ttl"] = json!(5_000);
    world.send("a", &frame);
    let first = world.next_text("a").unwrap();
    world.now += 60_000;
    world.send("a", &frame);
    assert_eq!(world.next_text("a").unwrap(), first, "byte for byte");
    assert_eq!(notes(&world.all("b")), [1]);
}

#[test]
fn one_id_for_two_targets_is_a_conflict() {
    let mut world = pair();
    world.join_as("c", "@(c)");
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    let first = world.ask_frame("a", &frame);
    frame["payload"]["to"] = json!("@(c)");
    let refused = world.ask_frame("a", &frame);
    assert_eq!((&refused["payload"]["code"], &refused["payload"]["retryable"]), (&json!("conflict"), &json!(false)));
    assert_eq!(world.all("c"), [] as [Value; 0]);
    frame["payload"]["to"] = json!("@(b)");
    assert_eq!(world.ask_frame("a", &frame), first, "the first is unaffected");
    frame["type"] = json!("hub:publish");
    frame["payload"] = json!({"topic": "t", "type": "x"});
    assert_eq!(world.ask_frame("a", &frame)["payload"]["code"], "conflict");
}

#[test]
fn repeats_of_delivered_queued_messages_are_recognised_after_a_restart() {
    let mut world = pair();
    world.close("b");
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    let first = world.ask_frame("a", &frame);
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [1]);
    assert_eq!(world.waiting("@(b)"), []);
    world.restart();
    world.join_as("b3", "@(b)");
    world.join_as("a2", "@(a)");
    assert_eq!(world.ask_frame("a2", &frame)["payload"], first["payload"], "the same answer");
    assert_eq!(notes(&world.all("b3")), [] as [Value; 0], "and no second delivery");
    // The repeat is also recognised while its target is away; the store forgets it after the window.
    world.restart();
    world.join_as("a3", "@(a)");
    assert_eq!(world.ask_frame("a3", &frame)["payload"], first["payload"]);
    for _ in 0..130 {
        world.pass(1_000);
    }
    assert_eq!(world.store.keys().filter(|key| key.contains("/seen/")).count(), 0);
}

/// After a restart the message is unknown until the hub has read the queue.
#[test]
fn a_repeat_received_while_the_queue_is_read_is_not_delivered_under_another_id() {
    for others in [0, 200] {
        let mut world = pair_with(unlimited());
        world.close("b");
        let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
        let first = world.ask_frame("a", &frame);
        world.restart();
        world.join_as("a2", "@(a)");
        let own = world.join("b2");
        world.hold = true;
        let register = world.envelope(&own, "hub:register", "ask", json!({"actorAddress": "@(b)"}));
        world.send("b2", &register);
        // More held messages than a slice.
        for number in 0..others {
            world.tell("a2", "@(a)", "hub:send", note("@(b)", number + 100));
        }
        world.send("a2", &frame);
        world.release();
        assert_eq!(world.answer("a2", &frame)["payload"], first["payload"], "the first answer");
        let ones = world.all("b2").into_iter().filter(|got| got["payload"] == json!(1)).count();
        assert_eq!(ones, 1, "with {others} others");
    }
}

/// A retry uses the key of the failed put, and with it the expiry time by the other connection's clock.
#[test]
fn a_stored_message_expires_by_its_own_time_even_if_its_key_says_later() {
    let mut world = pair();
    world.close("b");
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    frame["ttl"] = json!(10_000);
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "queued");
    let (waiting, _) = world.waiting("@(b)").remove(0);
    let body = world.store.remove(&key::waiting("@(b)", &waiting)).unwrap();
    let later = Waiting { expires: waiting.expires + 60_000, ..waiting };
    world.store.insert(key::waiting("@(b)", &later), body);
    world.restart();
    world.join_as("a2", "@(a)");
    world.now += 11_000;
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [] as [Value; 0]);
    assert_eq!(world.answer("a2", &frame)["payload"]["code"], "message_expired");
    assert_eq!(world.waiting("@(b)"), []);
}

#[test]
fn expired_messages_do_not_count_as_full() {
    let mut settings = unlimited();
    settings.queue_max = 2;
    let mut world = pair_with(settings);
    world.close("b");
    for number in 0..2 {
        let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", number));
        frame["ttl"] = json!(1_000);
        assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "queued");
    }
    world.now += 1_001;
    assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", 2))["payload"]["status"], "queued");
}

#[test]
fn a_sweep_removes_unused_state_and_versions_keep_growing() {
    let mut world = pair();
    let day = 24 * 3_600_000;
    world.join_as("c", "@(c)");
    for name in ["b", "c"] {
        world.close(name);
    }
    assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", 1))["payload"]["status"], "queued");
    world.now += 2 * day;
    world.restart();
    world.sweep();
    world.settle();
    world.pass(1_000);
    assert_eq!(world.waiting("@(b)"), [], "expired");
    world.now += 31 * day;
    world.sweep();
    let left: Vec<&String> = world.store.keys().collect();
    assert_eq!(left, ["hub/~floor.json"], "these addresses are unused");
    let version = world.join_as("c2", "@(c)")["payload"]["version"].as_u64().unwrap();
    assert!(version > 1, "a version never goes back: {version}");
    world.sweep();
    assert!(world.store.contains_key("hub/c/actor.json"), "the address is in use");
}

#[test]
fn a_message_without_a_type_is_delivered_with_an_empty_one() {
    let mut world = pair();
    for (payload, got) in [
        (json!({"to": "@(b)", "message": {"seq": 1}}), json!({"seq": 1})),
        (json!({"targetAddress": "@(b)", "message": {"data": "test"}}), json!({"data": "test"})),
        (json!({"to": "@(b)", "data": 7}), json!(7)),
    ] {
        assert_eq!(world.ask("a", "@(a)", "hub:send", payload)["payload"]["status"], "delivered");
        let frame = world.next("b").unwrap();
        assert_eq!((&frame["type"], &frame["payload"]), (&json!(""), &got));
    }
    assert_eq!(world.ask("a", "@(a)", "hub:send", json!({"to": "@(b)"}))["payload"]["code"], "invalid_message");
}

#[test]
fn a_tell_that_expects_a_reply_gets_an_error_if_its_target_is_away() {
    let mut world = pair();
    world.close("b");
    for to in ["@(b)", "@(nobody)"] {
        let id = world.tell("a", "@(a)", "hub:send", question(to, 1));
        let refused = world.next("a").unwrap();
        assert_eq!((&refused["type"], &refused["correlationId"]), (&json!("hub:unknown_actor"), &json!(id)), "{to}");
    }
    world.pass(60_000);
    assert!(!types(&world.all("a")).contains(&"hub:error"), "nothing follows");
}

#[test]
fn a_clock_that_is_set_later_is_corrected_by_the_next_heartbeat() {
    let mut world = pair();
    let mut beat = world.envelope("@(a)", "hub:heartbeat", "tell", json!(null));
    let hour = 3_600_000;
    beat["timestamp"] = json!(world.now - hour);
    world.send("a", &beat);
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    (frame["timestamp"], frame["ttl"]) = (json!(world.now - hour), json!(5_000));
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "delivered");
    assert_eq!(world.next("b").unwrap()["timestamp"], json!(world.now));
}

#[test]
fn a_session_is_resumed_only_with_its_own_token() {
    use std::sync::Arc;
    use wigwag_hub::{Access, Rights};
    let mut world = pair();
    let named = |name: &str| Access::Known(Arc::new(Rights { name: name.into(), all: true, ..Rights::default() }));
    world.open_as("alice", named("alice"));
    let first = world.ask("alice", "@(x)", "hub:connect", json!({}));
    let (id, address) = (&first["payload"]["sessionId"], &first["payload"]["address"]);
    world.open_as("eve", named("eve"));
    let refused = world.ask("eve", "@(x)", "hub:connect", json!({"resume": {"sessionId": id}}));
    assert!(refused["payload"]["message"].as_str().unwrap().contains("another token"), "{refused}");
    assert_eq!(world.closed("alice"), None);
    world.open_as("alice again", named("alice"));
    let again = world.ask("alice again", "@(x)", "hub:connect", json!({"resume": {"sessionId": id}}));
    assert_eq!((&again["payload"]["address"], &again["payload"]["resumed"]), (address, &json!(true)));
}

#[test]
fn a_token_has_so_many_sessions_and_a_session_that_ends_makes_room() {
    use std::sync::Arc;
    use wigwag_hub::{Access, Rights};
    let mut settings = unlimited();
    settings.sessions_per_token_max = 2;
    let mut world = World::new(settings);
    let rights = Arc::new(Rights { name: "alice".into(), all: true, ..Rights::default() });
    for name in ["one", "two", "three"] {
        world.open_as(name, Access::Known(Arc::clone(&rights)));
    }
    let mut connect = |name: &str| world.ask(name, "@(x)", "hub:connect", json!({}))["type"].clone();
    assert_eq!(
        [connect("one"), connect("two"), connect("three")],
        ["hub:connected", "hub:connected", "hub:rate_limited"]
    );
    world.close("one");
    assert_eq!(world.ask("three", "@(x)", "hub:connect", json!({}))["type"], "hub:connected");
}

#[test]
fn kept_replies_are_bounded_in_total() {
    let mut settings = unlimited();
    settings.replies_bytes_max = 5_000;
    let mut world = pair_with(settings);
    let mut frames = Vec::new();
    for number in 0..10 {
        let frame = world.envelope("@(a)", "hub:send", "ask", question("@(b)", number));
        world.ask_frame("a", &frame);
        let asked = world.next("b").unwrap();
        let data = "x".repeat(1_000);
        world.ask("b", "@(b)", "hub:reply", json!({"inReplyTo": asked["id"], "type": "answer", "data": data}));
        frames.push(frame);
        world.all("a");
    }
    let bytes = world.hub.figures()["replyBytes"].as_u64().unwrap();
    assert!((3_000..=5_000).contains(&bytes), "{bytes}");
    world.send("a", &frames[9]);
    assert_eq!(types(&world.all("a")), ["hub:delivery_ack", "answer"], "the newest are remembered");
    world.send("a", &frames[0]);
    assert_eq!(types(&world.all("a")), ["hub:delivery_ack"], "the oldest are not");
    world.pass_alive(121_000);
    let figures = world.hub.figures();
    assert_eq!((&figures["replyBytes"], &figures["replyWaits"]), (&json!(0), &json!(0)), "all bytes are released");
}

#[test]
fn waiting_requests_are_bounded() {
    let mut settings = unlimited();
    settings.reply_waits_max = 3;
    let mut world = pair_with(settings);
    for number in 0..3 {
        assert_eq!(world.ask("a", "@(a)", "hub:send", question("@(b)", number))["payload"]["status"], "delivered");
    }
    let frame = world.envelope("@(a)", "hub:send", "ask", question("@(b)", 3));
    let refused = world.ask_frame("a", &frame);
    assert_eq!((&refused["payload"]["code"], &refused["payload"]["retryable"]), (&json!("queue_full"), &json!(true)));
    world.pass_alive(121_000);
    world.all("a");
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "delivered");
}

#[test]
fn the_history_of_all_topics_is_bounded_together_and_so_is_their_number() {
    let mut settings = unlimited();
    (settings.history_total_bytes_max, settings.topics_max) = (20_000, 30);
    let mut world = pair_with(settings);
    for number in 0..60 {
        let payload = json!({"topic": format!("t{}", number % 30), "type": "x", "data": "y".repeat(1_000)});
        assert_eq!(world.ask("a", "@(a)", "hub:publish", payload)["type"], "hub:published");
    }
    let bytes = world.hub.figures()["historyBytes"].as_u64().unwrap();
    assert!((15_000..=20_000).contains(&bytes), "{bytes}");
    let refused = world.ask("a", "@(a)", "hub:publish", json!({"topic": "one more", "type": "x"}));
    assert_eq!(refused["payload"]["code"], "invalid_message");
    let refused = world.ask("a", "@(a)", "hub:publish", json!({"topic": "more", "type": "x"}));
    assert_eq!(refused["payload"]["code"], "queue_full");
    world.pass_alive(600_001);
    assert_eq!(world.hub.figures()["historyBytes"], 0, "all bytes are released");
    let own = world.join("c");
    assert_eq!(world.ask("c", &own, "hub:publish", json!({"topic": "more", "type": "x"}))["type"], "hub:published");
}

#[test]
fn a_page_of_actors_is_bounded_in_bytes_and_all_pages_together_show_all() {
    let mut world = pair_with(unlimited());
    let own = world.join("c");
    for number in 0..60 {
        let metadata = json!({"text": "x".repeat(4_000)});
        let payload = json!({"actorAddress": format!("@(w/{number:03})"), "metadata": metadata});
        assert_eq!(world.ask("c", &own, "hub:register", payload)["type"], "hub:registered");
    }
    let (mut found, mut after, mut pages) = (0, Value::Null, 0);
    loop {
        let page = world.ask("a", "@(a)", "hub:discover", json!({"pattern": "@(w/*)", "limit": 1_000, "after": after}));
        assert!(page.to_string().len() < 80_000, "{}", page.to_string().len());
        found += page["payload"]["actors"].as_array().unwrap().len();
        pages += 1;
        after = page["payload"]["next"].clone();
        if page["payload"]["hasMore"] == json!(false) {
            break;
        }
    }
    assert_eq!((found, pages), (60, 4));
}

/// Long jobs are done in slices without changing the order.
#[test]
fn undelivered_messages_of_a_session_are_rerouted_in_slices_and_in_order() {
    let mut settings = unlimited();
    settings.queue_max = 1_000;
    let mut world = pair_with(settings);
    world.reads("b", false);
    let frames: Vec<Value> = (0..500).map(|n| world.envelope("@(a)", "hub:send", "ask", note("@(b)", n))).collect();
    frames.iter().for_each(|frame| world.send("a", frame));
    let (session, now) = (world.session("b"), world.now);
    world.hub.close(session, now);
    assert!(world.hub.has_more(), "it takes more than one slice");
    // Messages received during the job queue up behind it.
    world.hold = true;
    let last = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 500));
    world.send("a", &last);
    world.release();
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), (0..=500).collect::<Vec<_>>());
}

#[test]
fn many_asks_to_an_unknown_address_are_all_rejected_after_one_read() {
    let mut settings = unlimited();
    settings.work_slice = 4;
    let mut world = pair_with(settings);
    world.hold = true;
    let frames: Vec<Value> = (0..50).map(|n| world.envelope("@(a)", "hub:send", "ask", note("@(nobody)", n))).collect();
    frames.iter().for_each(|frame| world.send("a", frame));
    world.release();
    for frame in &frames {
        assert_eq!(world.answer("a", frame)["type"], "hub:unknown_actor");
    }
}

#[test]
fn memory_is_released_after_many_sessions() {
    let mut world = World::new(unlimited());
    for number in 0..500 {
        world.join_as(&format!("w{number}"), &format!("@(w/{number})"));
    }
    assert_eq!(world.hub.figures()["sessions"], 500);
    for number in 0..500 {
        world.close(&format!("w{number}"));
    }
    for _ in 0..3 {
        world.pass(61_000);
    }
    let figures = world.hub.figures();
    assert_eq!((&figures["sessions"], &figures["actors"], world.hub.remembered()), (&json!(0), &json!(0), 0));
}
