//! TTL: no message is delivered after its time. Checked on receipt, before delivery, and before and after queuing.

use serde_json::{Value, json};
use wigwag_hub::testing::World;

use crate::{note, notes, pair};

fn with_ttl(world: &mut World, ttl: u64) -> Value {
    let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    frame["ttl"] = json!(ttl);
    frame
}

fn assert_expired(answer: &Value) {
    assert_eq!(answer["type"], "hub:error");
    assert_eq!(
        (&answer["payload"]["code"], &answer["payload"]["retryable"]),
        (&json!("message_expired"), &json!(false))
    );
}

#[test]
fn on_receipt() {
    let mut world = pair();
    let frame = with_ttl(&mut world, 5_000);
    world.now += 5_001;
    assert_expired(&world.ask_frame("a", &frame));
    assert_eq!(world.next("b"), None);
}

#[test]
fn at_its_very_end_it_is_in_time() {
    let mut world = pair();
    let frame = with_ttl(&mut world, 5_000);
    world.now += 5_000;
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "delivered");
}

#[test]
fn before_delivery() {
    let mut world = pair();
    world.reads("b", false);
    let frame = with_ttl(&mut world, 5_000);
    world.send("a", &frame);
    world.now += 5_001;
    world.reads("b", true);
    assert_expired(&world.answer("a", &frame));
    assert_eq!(notes(&world.all("b")), [] as [Value; 0]);
}

#[test]
fn before_it_is_queued() {
    let mut world = pair();
    world.reads("b", false);
    let frame = with_ttl(&mut world, 5_000);
    world.send("a", &frame);
    world.now += 5_001;
    // The connection breaks, which would queue unwritten messages.
    world.close("b");
    assert_expired(&world.answer("a", &frame));
    assert_eq!(world.waiting("@(b)"), []);
}

#[test]
fn after_it_was_queued() {
    let mut world = pair();
    world.close("b");
    world.hold = true;
    let frame = with_ttl(&mut world, 5_000);
    world.send("a", &frame);
    world.now += 5_001;
    world.release();
    assert_expired(&world.answer("a", &frame));
    assert_eq!(world.waiting("@(b)"), [], "it is removed");
}

#[test]
fn in_the_queue() {
    let mut world = pair();
    world.close("b");
    let frame = with_ttl(&mut world, 5_000);
    assert_eq!(world.ask_frame("a", &frame)["payload"]["status"], "queued");
    world.now += 5_001;
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [] as [Value; 0]);
    assert_expired(&world.answer("a", &frame));
    assert_eq!(world.waiting("@(b)"), []);
}

#[test]
fn without_a_ttl_a_queued_message_waits_for_a_day() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    let (waiting, _) = world.waiting("@(b)").remove(0);
    assert_eq!(waiting.expires, world.now + 24 * 3_600_000);
}

#[test]
fn the_sender_of_an_expired_tell_is_notified_too() {
    let mut world = pair();
    let mut frame = with_ttl(&mut world, 1);
    frame["pattern"] = json!("tell");
    world.now += 2;
    assert_expired(&world.ask_frame("a", &frame));
}

#[test]
fn a_clock_offset_is_corrected_from_the_timestamp_of_hub_connect() {
    let mut world = pair();
    for (name, off) in [("slow", -3_600_000_i64), ("fast", 3_600_000)] {
        world.open(name);
        let theirs = |now: u64| now.saturating_add_signed(off);
        let mut hello = world.envelope("@(x)", "hub:connect", "ask", json!({"protocolVersion": "0.1.0"}));
        hello["timestamp"] = json!(theirs(world.now));
        let own = world.ask_frame(name, &hello)["payload"]["address"].clone();
        let mut frame = world.envelope(own.as_str().unwrap(), "hub:send", "ask", note("@(b)", 1));
        frame["timestamp"] = json!(theirs(world.now));
        frame["ttl"] = json!(5_000);
        assert_eq!(world.ask_frame(name, &frame)["payload"]["status"], "delivered", "{name}");
        let got = world.next("b").unwrap();
        assert_eq!(got["timestamp"], json!(world.now), "its time is converted to the hub's clock");
        frame["id"] = json!("another");
        world.now += 5_001;
        assert_expired(&world.ask_frame(name, &frame));
    }
}
