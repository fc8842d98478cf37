//! Envelopes, malformed and oversized frames, and the schema of the hub's own frames.

use std::path::Path;

use serde_json::{Value, json};
use wigwag_hub::testing::World;
use wigwag_hub::{Glob, Settings};

use crate::{note, pair, types};

#[test]
fn unknown_keys_are_forwarded() {
    let mut world = pair();
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", json!({"x": 1})));
    frame["metadata"] = json!({"mine": [1], "traceId": "t", "originalMessageId": "forged"});
    frame["signature"] = json!("signed");
    frame["another"] = json!({"key": true});
    let answer = world.ask_frame("a", &frame);
    let got = world.next("b").unwrap();
    assert_eq!(
        (&got["another"], &got["signature"], &got["payload"]),
        (&json!({"key": true}), &json!("signed"), &json!({"x": 1}))
    );
    assert_eq!(got["metadata"], json!({"originalMessageId": frame["id"], "mine": [1], "traceId": "t"}));
    assert_eq!(answer["metadata"], json!({"traceId": "t"}));
}

#[test]
fn numbers_are_forwarded_as_they_were_written() {
    let mut world = pair();
    let now = world.now;
    let text = format!(
        r#"{{"id":"1","from":"@(a)","to":"@(hub)","type":"hub:send","pattern":"tell","timestamp":{now},"payload":{{"to":"@(b)","type":"n","data":{{"x": 1.0e3,"big":123456789012345678901234567890}}}}}}"#
    );
    world.text("a", &text);
    assert!(world.next_text("b").unwrap().contains(r#"{"x": 1.0e3,"big":123456789012345678901234567890}"#));
}

#[test]
fn a_malformed_frame_is_answered_and_the_connection_stays() {
    let mut world = pair();
    world.text("a", "{\"id\": nonsense");
    let error = world.next("a").unwrap();
    assert_eq!((&error["type"], &error["payload"]["code"]), (&json!("hub:error"), &json!("invalid_message")));
    assert_eq!(error["correlationId"], Value::Null);
    assert!(error["payload"]["message"].as_str().unwrap().contains("column"), "it says where");
    assert_eq!(world.closed("a"), None);
    let error = world.ask("a", "@(a)", "hub:nonsense", json!({}));
    assert_eq!(error["payload"]["code"], "invalid_message");
}

#[test]
fn sixteen_malformed_frames_within_ten_seconds_close_it() {
    let mut world = pair();
    (0..15).for_each(|_| world.text("a", "x"));
    world.now += 10_001;
    (0..15).for_each(|_| world.text("a", "x"));
    assert_eq!(world.closed("a"), None, "the earlier frames are outside the window");
    world.text("a", "x");
    assert_eq!(world.closed("a"), Some(4004));
}

#[test]
fn an_oversized_frame_is_not_read() {
    let mut world = pair();
    let size = 1024 * 1024 + 1;
    world.text("a", &"x".repeat(size));
    let error = world.next("a").unwrap();
    assert_eq!(error["type"], "hub:message_too_large");
    assert_eq!(error["correlationId"], Value::Null);
    assert_eq!((&error["payload"]["messageSize"], &error["payload"]["maxSize"]), (&json!(size), &json!(1024 * 1024)));
}

#[test]
fn another_major_version_is_rejected_and_another_minor_is_accepted() {
    for (version, answer) in
        [("1.0.0", "hub:error"), ("nonsense", "hub:error"), ("0.2.0", "hub:connected"), ("0.1.0", "hub:connected")]
    {
        let mut world = World::new(Settings::default());
        world.open("a");
        let got = world.ask("a", "@(x)", "hub:connect", json!({"protocolVersion": version}));
        assert_eq!(got["type"], answer, "{version}");
        if answer == "hub:error" {
            assert_eq!(got["payload"]["code"], "version_mismatch");
        }
    }
}

#[test]
fn a_pattern_that_would_explode_a_regex_is_answered_in_linear_time() {
    let mut world = pair();
    let long = format!("@({})", "a".repeat(250));
    world.ask("a", "@(a)", "hub:register", json!({"actorAddress": long}));
    let pattern = format!("@({}b)", "a*".repeat(100));
    let found = world.ask("a", "@(a)", "hub:discover", json!({"pattern": pattern}));
    assert_eq!(found["payload"]["actors"], json!([]));
    let comparisons = Glob::new(&pattern).unwrap().comparisons(&long);
    assert!(comparisons <= 2 * (pattern.len() + long.len()), "{comparisons}");
}

#[test]
fn disconnect_is_acknowledged_then_closed() {
    let mut world = pair();
    world.tell("a", "@(a)", "hub:disconnect", json!({"reason": "done"}));
    let got = world.all("a");
    assert_eq!((types(&got), &got[0]["payload"]), (vec!["hub:disconnect"], &json!({"acknowledged": true})));
    assert_eq!(world.closed("a"), Some(1000));
}

#[test]
fn every_frame_of_the_hub_fits_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/hub.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut world = pair();
    let mut frames = vec![world.join_as("c", "@(c)")];
    let sends = [
        ("hub:send", note("@(b)", 1)),
        ("hub:send", note("@(nobody)", 1)),
        ("hub:send", json!({})),
        ("hub:register", json!({"actorAddress": "@(hub)"})),
        ("hub:register", json!({"actorAddress": "@(a)"})),
        ("hub:broadcast", json!({"message": {"type": "x"}})),
        ("hub:subscribe", json!({"topic": "t"})),
        ("hub:publish", json!({"topic": "t", "type": "x", "data": null})),
        ("hub:subscribe", json!({"topic": "t", "after": {"epoch": 1, "seq": 1}})),
        ("hub:unsubscribe", json!({"topic": "t"})),
        ("hub:discover", json!({"pattern": "*"})),
        ("hub:list_actors", json!({})),
        ("hub:list_topics", json!({})),
        ("hub:queue_stats", json!({})),
        ("hub:metrics", json!({})),
        ("hub:heartbeat", json!(null)),
        ("hub:unregister", json!({"actorAddress": "@(c)"})),
        ("hub:disconnect", json!({})),
    ];
    for (kind, payload) in sends {
        let frame = world.envelope("@(a)", kind, "ask", payload);
        if kind != "hub:send" || frame["payload"]["to"].is_string() {
            assert!(validator.is_valid(&frame), "{frame}");
        }
        world.send("a", &frame);
    }
    world.text("b", "x");
    world.text("b", &"x".repeat(2_000_000));
    for name in ["a", "b", "c"] {
        frames.extend(world.all(name));
    }
    assert!(frames.len() > 20);
    for frame in &frames {
        let errors: Vec<String> = validator.iter_errors(frame).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{frame}\n{}", errors.join("\n"));
    }
}
