//! Delivery rules: tell and ask to a target that is connected, away or unknown.

use serde_json::{Value, json};

use crate::{note, notes, pair, types};

#[test]
fn a_tell_to_a_connected_target_arrives_and_has_no_answer() {
    let mut world = pair();
    world.tell("a", "@(a)", "hub:send", note("@(b)", 1));
    assert_eq!(notes(&world.all("b")), [1]);
    assert_eq!(world.next("a"), None);
}

#[test]
fn a_tell_to_a_target_that_is_away_is_dropped_silently() {
    let mut world = pair();
    world.close("b");
    world.tell("a", "@(a)", "hub:send", note("@(b)", 1));
    assert_eq!(world.next("a"), None);
    world.join_as("b2", "@(b)");
    assert_eq!(world.all("b2"), [] as [Value; 0]);
}

#[test]
fn a_tell_with_the_queue_flag_is_queued() {
    let mut world = pair();
    world.close("b");
    let mut frame = world.envelope("@(a)", "hub:send", "tell", note("@(b)", 1));
    frame["metadata"] = json!({"queue": true});
    world.send("a", &frame);
    assert_eq!(world.next("a"), None);
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [1]);
}

#[test]
fn an_ask_to_somebody_here_is_answered_delivered_once_it_is_written() {
    let mut world = pair();
    world.reads("b", false);
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    assert_eq!(world.next("a"), None, "it is not written yet");
    world.reads("b", true);
    let answer = world.answer("a", &frame);
    assert_eq!(answer["type"], "hub:delivery_ack");
    assert_eq!(answer["payload"], json!({"messageId": frame["id"], "deliveredAt": world.now, "status": "delivered"}));
}

#[test]
fn an_ask_to_somebody_away_is_answered_queued_once_it_is_stored() {
    let mut world = pair();
    world.close("b");
    world.hold = true;
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    assert_eq!(world.next("a"), None, "it is not stored yet");
    world.release();
    assert_eq!(world.waiting("@(b)").len(), 1);
    assert_eq!(world.answer("a", &frame)["payload"]["status"], "queued");
}

#[test]
fn an_ask_to_an_unregistered_address_is_an_unknown_actor() {
    let mut world = pair();
    let answer = world.ask("a", "@(a)", "hub:send", note("@(nobody)", 1));
    assert_eq!(answer["type"], "hub:unknown_actor");
    assert_eq!(answer["payload"]["actorAddress"], "@(nobody)");
    assert_eq!(answer["payload"]["retryable"], false);
    assert!(answer["payload"]["hint"].is_string());
}

#[test]
fn a_tell_to_an_unregistered_address_is_dropped_silently() {
    let mut world = pair();
    world.tell("a", "@(a)", "hub:send", note("@(nobody)", 1));
    assert_eq!(world.next("a"), None);
}

#[test]
fn a_failed_tell_is_reported_unless_its_target_is_away() {
    let mut world = pair();
    let id = world.tell("a", "@(a)", "hub:send", json!({"to": "not an address", "type": "note"}));
    let error = world.next("a").unwrap();
    assert_eq!((&error["correlationId"], &error["payload"]["code"]), (&json!(id), &json!("invalid_message")));
}

#[test]
fn with_require_ack_delivered_means_acknowledged_by_the_client() {
    let mut world = pair();
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    frame["metadata"] = json!({"requireAck": true});
    world.send("a", &frame);
    let got = world.next("b").unwrap();
    assert_eq!(got["metadata"]["requireAck"], true);
    assert_eq!(world.next("a"), None, "written is not enough");
    world.tell("b", "@(b)", "hub:ack", json!({"messageId": got["id"]}));
    assert_eq!(world.answer("a", &frame)["payload"]["status"], "delivered");
}

#[test]
fn a_missing_acknowledgement_is_a_timeout_and_the_ask_may_be_repeated() {
    let mut world = pair();
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    frame["metadata"] = json!({"requireAck": true});
    let sent_at = world.now;
    world.send("a", &frame);
    world.next("b").unwrap();
    world.pass(30_001);
    let answer = world.answer("a", &frame);
    assert_eq!((&answer["payload"]["code"], &answer["payload"]["retryable"]), (&json!("timeout"), &json!(true)));
    assert_eq!(answer["payload"]["details"], json!({"targetAddress": "@(b)", "attemptedAt": sent_at}));
    frame["timestamp"] = json!(world.now);
    world.send("a", &frame);
    assert_eq!(notes(&world.all("b")), [1], "it is delivered again");
}

#[test]
fn unacknowledged_messages_are_queued_for_the_next_registration() {
    let mut world = pair();
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    frame["metadata"] = json!({"requireAck": true});
    world.send("a", &frame);
    let first = world.next("b").unwrap();
    world.close("b");
    assert_eq!(world.answer("a", &frame)["payload"]["status"], "queued");
    world.join_as("b2", "@(b)");
    let again = world.next("b2").unwrap();
    assert_eq!(again["id"], first["id"], "the same id, so that the target recognises the repeat");
    assert_eq!(world.waiting("@(b)").len(), 1, "it is kept until it is acknowledged");
    world.tell("b2", "@(b)", "hub:ack", json!({"messageId": again["id"]}));
    assert_eq!(world.waiting("@(b)"), []);
}

#[test]
fn unwritten_messages_of_a_broken_connection_are_queued() {
    let mut world = pair();
    world.reads("b", false);
    let frames: Vec<Value> = (0..3).map(|n| world.envelope("@(a)", "hub:send", "ask", note("@(b)", n))).collect();
    frames.iter().for_each(|frame| world.send("a", frame));
    world.close("b");
    for frame in &frames {
        assert_eq!(world.answer("a", frame)["payload"]["status"], "queued");
    }
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [0, 1, 2]);
}

#[test]
fn a_tell_that_may_have_been_written_is_not_sent_again() {
    let mut world = pair();
    world.tell("a", "@(a)", "hub:send", note("@(b)", 1));
    let (session, now) = (world.session("b"), world.now);
    world.reads("b", false);
    world.tell("a", "@(a)", "hub:send", note("@(b)", 2));
    // The connection has the frame, and breaks before it reports the write.
    world.hub.take(session, 10, now, |_| ());
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [] as [Value; 0]);
}

#[test]
fn one_senders_messages_keep_their_order_through_the_queue() {
    let mut world = pair();
    world.close("b");
    world.hold = true;
    for number in 0..5 {
        let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", number));
        world.send("a", &frame);
    }
    world.join("b2");
    world.tell("b2", "@(x)", "hub:register", json!({"actorAddress": "@(b)"}));
    for number in 5..10 {
        // During the registration.
        world.tell("a", "@(a)", "hub:send", note("@(b)", number));
    }
    world.release();
    for number in 10..12 {
        world.tell("a", "@(a)", "hub:send", note("@(b)", number));
    }
    let got = world.all("b2");
    assert_eq!(types(&got)[..2], ["hub:registered", "note"]);
    assert_eq!(notes(&got), (0..12).collect::<Vec<_>>());
    assert_eq!(world.waiting("@(b)"), [], "a written message is removed");
}

#[test]
fn a_reply_reaches_the_asker() {
    let mut world = pair();
    let mut payload = note("@(b)", 1);
    payload["expectReply"] = json!(true);
    let mut frame = world.envelope("@(a)", "hub:send", "ask", payload);
    frame["metadata"] = json!({"traceId": "t", "spanId": "s"});
    world.send("a", &frame);
    assert_eq!(world.answer("a", &frame)["type"], "hub:delivery_ack");
    let question = world.next("b").unwrap();
    assert_eq!(question["pattern"], "ask");
    world.tell("b", "@(b)", "hub:reply", json!({"inReplyTo": question["id"], "type": "answer", "data": 2}));
    let reply = world.answer("a", &frame);
    assert_eq!((&reply["type"], &reply["payload"], &reply["from"]), (&json!("answer"), &json!(2), &json!("@(b)")));
    assert_eq!((&reply["metadata"]["traceId"], &reply["metadata"]["spanId"]), (&json!("t"), &json!("s")));
    // A repeat gets the acknowledgement and the reply again.
    world.send("a", &frame);
    assert_eq!(world.answer("a", &frame)["type"], "hub:delivery_ack");
    assert_eq!(world.answer("a", &frame), reply);
    assert_eq!(world.next("b"), None);
}

#[test]
fn a_reply_that_does_not_come_is_a_timeout() {
    let mut world = pair();
    let mut payload = note("@(b)", 1);
    payload["expectReply"] = json!(true);
    let frame = world.envelope("@(a)", "hub:send", "ask", payload);
    let sent_at = world.now;
    world.send("a", &frame);
    world.answer("a", &frame);
    let question = world.next("b").unwrap();
    world.pass(30_001);
    let answer = world.answer("a", &frame);
    assert_eq!(answer["payload"]["code"], "timeout");
    assert_eq!(answer["payload"]["details"], json!({"targetAddress": "@(b)", "attemptedAt": sent_at}));
    // A late reply counts while a repeat of the request is recognised.
    let late = world.ask("b", "@(b)", "hub:reply", json!({"inReplyTo": question["id"], "type": "answer"}));
    assert_eq!(late["payload"]["status"], "delivered");
    assert_eq!(world.answer("a", &frame)["type"], "answer");
    world.pass_alive(120_000);
    let too_late = world.ask("b", "@(b)", "hub:reply", json!({"inReplyTo": question["id"], "type": "answer"}));
    assert_eq!(too_late["payload"]["code"], "timeout");
}

#[test]
fn only_the_recipient_of_a_request_may_reply() {
    let mut world = pair();
    world.join_as("c", "@(c)");
    let mut payload = note("@(b)", 1);
    payload["expectReply"] = json!(true);
    world.ask("a", "@(a)", "hub:send", payload);
    let question = world.next("b").unwrap();
    let refused = world.ask("c", "@(c)", "hub:reply", json!({"inReplyTo": question["id"], "type": "answer"}));
    assert_eq!(refused["type"], "hub:unauthorized");
    assert_eq!(world.next("a"), None);
}

#[test]
fn a_message_to_a_run_is_a_signal() {
    let mut world = pair();
    world.runs.insert("order-17".into(), true);
    world.runs.insert("order-18".into(), false);
    let frame = world.envelope(
        "@(a)",
        "hub:send",
        "ask",
        json!({"to": "@(workflow/order-17)", "type": "approve", "data": {"ok": true}}),
    );
    let answer = world.ask_frame("a", &frame);
    assert_eq!(answer["payload"]["status"], "delivered", "a wait was open");
    let key = frame["id"].as_str().unwrap().to_owned();
    let sent = ("order-17".into(), "approve".into(), "{\"ok\":true}".into(), key, "@(a)".into());
    assert_eq!(world.signals, [sent]);
    let again = world.ask_frame("a", &frame);
    assert_eq!((again, world.signals.len()), (answer, 1));
    let other = world.ask("a", "@(a)", "hub:send", json!({"to": "@(workflow/order-18)", "type": "approve"}));
    assert_eq!(other["payload"]["status"], "queued", "no wait was open");
    let none = world.ask("a", "@(a)", "hub:send", json!({"to": "@(workflow/order-19)", "type": "approve"}));
    assert_eq!(none["type"], "hub:unknown_actor");
}

/// A hub in which `a` gets combined acknowledgements.
fn together() -> wigwag_hub::testing::World {
    let mut world = pair();
    world.close("a");
    world.open("a");
    let connected = world.ask("a", "@(x)", "hub:connect", json!({"protocolVersion": "0.1.0", "acks": "together"}));
    assert_eq!(connected["payload"]["acks"], "together");
    world.ask("a", "@(x)", "hub:register", json!({"actorAddress": "@(a)"}));
    world
}

#[test]
fn acknowledgements_of_one_batch_are_combined_in_one_frame_on_request() {
    let mut world = together();
    world.reads("b", false);
    let asks: Vec<Value> = (1..=3).map(|n| world.envelope("@(a)", "hub:send", "ask", note("@(b)", n))).collect();
    asks.iter().for_each(|ask| world.send("a", ask));
    assert_eq!(world.next("a"), None, "none is written yet");
    world.reads("b", true);
    let told = world.next("a").unwrap();
    assert_eq!(
        (&told["type"], &told["to"], &told["correlationId"]),
        (&json!("hub:delivery_acks"), &json!("@(a)"), &Value::Null)
    );
    let ids: Vec<&Value> = asks.iter().map(|ask| &ask["id"]).collect();
    assert_eq!(told["payload"], json!({"status": "delivered", "deliveredAt": world.now, "messageIds": ids}));
    assert_eq!(world.next("a"), None);
    // A repeat gets a separate acknowledgement with the same content.
    world.send("a", &asks[1]);
    let again = world.answer("a", &asks[1]);
    assert_eq!(again["type"], "hub:delivery_ack");
    let at = &told["payload"]["deliveredAt"];
    assert_eq!(again["payload"], json!({"messageId": asks[1]["id"], "deliveredAt": at, "status": "delivered"}));
}

#[test]
fn each_address_of_a_session_gets_its_own_acknowledgements() {
    let mut world = together();
    world.ask("a", "@(x)", "hub:register", json!({"actorAddress": "@(a2)"}));
    world.reads("b", false);
    for from in ["@(a)", "@(a2)"] {
        let mut ask = world.envelope(from, "hub:send", "ask", note("@(b)", 1));
        ask["id"] = json!("the same");
        world.send("a", &ask);
    }
    world.reads("b", true);
    let mut told: Vec<Value> = world.all("a");
    told.sort_by_key(|frame| frame["to"].to_string());
    let shown: Vec<_> = told.iter().map(|frame| (&frame["to"], &frame["payload"]["messageIds"])).collect();
    let ids = json!(["the same"]);
    assert_eq!(shown, [(&json!("@(a)"), &ids), (&json!("@(a2)"), &ids)]);
}

#[test]
fn an_answer_with_more_than_a_receipt_is_not_combined() {
    let mut world = together();
    let mut traced = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    traced["metadata"] = json!({"traceId": "t"});
    world.send("a", &traced);
    let answer = world.answer("a", &traced);
    assert_eq!((&answer["type"], &answer["metadata"]["traceId"]), (&json!("hub:delivery_ack"), &json!("t")));
    world.close("b");
    let queued = world.ask("a", "@(a)", "hub:send", note("@(b)", 2));
    assert_eq!((&queued["type"], &queued["payload"]["status"]), (&json!("hub:delivery_ack"), &json!("queued")));
    let refused = world.ask("a", "@(a)", "hub:send", note("@(nobody)", 3));
    assert_eq!(refused["type"], "hub:unknown_actor");
}

#[test]
fn the_acknowledgement_mode_is_validated() {
    let mut world = pair();
    world.open("c");
    let refused = world.ask("c", "@(x)", "hub:connect", json!({"acks": "sometimes"}));
    assert!(refused["payload"]["message"].as_str().unwrap().contains("`acks` is `single` or `together`"), "{refused}");
    let connected = world.ask("c", "@(x)", "hub:connect", json!({"acks": "single"}));
    assert_eq!(connected["payload"]["acks"], "single");
}
