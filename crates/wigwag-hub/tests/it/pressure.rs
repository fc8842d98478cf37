//! Backpressure and rate limits: senders and readers of different speed.

use serde_json::{Value, json};
use wigwag_hub::testing::World;
use wigwag_hub::{Rate, Settings};

use crate::{note, pair, pair_with, types, unlimited};

/// Returns a hub in which `a` has sent `count` messages to `b`, which does not read.
fn piled_up(count: usize) -> World {
    let mut world = pair_with(unlimited());
    world.reads("b", false);
    for number in 0..count {
        world.tell("a", "@(a)", "hub:send", note("@(b)", number));
    }
    world
}

#[test]
fn above_a_thousand_frames_the_feeder_is_paused_and_below_five_hundred_it_resumes() {
    let mut world = piled_up(1_000);
    assert_eq!(world.next("a"), None);
    world.tell("a", "@(a)", "hub:send", note("@(b)", 1_000));
    let pause = world.next("a").unwrap();
    assert_eq!(pause["type"], "hub:pause");
    assert_eq!(pause["payload"], json!({"reason": "outbound_queue_full", "address": "@(b)"}));
    world.tell("a", "@(a)", "hub:send", note("@(b)", 1_001));
    assert_eq!(world.next("a"), None, "a single hub:pause");
    let (session, now) = (world.session("b"), world.now);
    world.hub.take(session, 502, now, |_| ());
    world.hub.written(session, 502, now);
    world.settle();
    assert_eq!(world.next("a"), None, "500 are left");
    world.hub.take(session, 1, now, |_| ());
    world.hub.written(session, 1, now);
    world.settle();
    assert_eq!(types(&world.all("a")), ["hub:resume"]);
}

#[test]
fn a_feeder_of_two_slow_targets_resumes_when_both_have_read() {
    let mut world = pair_with(unlimited());
    world.join_as("c", "@(c)");
    for name in ["b", "c"] {
        world.reads(name, false);
        for number in 0..1_001 {
            world.tell("a", "@(a)", "hub:send", note(&format!("@({name})"), number));
        }
    }
    assert_eq!(types(&world.all("a")), ["hub:pause"]);
    world.reads("b", true);
    assert_eq!(world.next("a"), None);
    world.close("c");
    assert_eq!(types(&world.all("a")), ["hub:resume"], "a closed target resumes its feeders");
}

#[test]
fn above_two_thousand_frames_tells_are_dropped_and_asks_rejected() {
    let mut world = piled_up(2_001);
    world.all("a");
    world.tell("a", "@(a)", "hub:send", note("@(b)", "dropped"));
    assert_eq!(world.next("a"), None);
    let refused = world.ask("a", "@(a)", "hub:send", note("@(b)", "refused"));
    assert_eq!((&refused["payload"]["code"], &refused["payload"]["retryable"]), (&json!("queue_full"), &json!(true)));
    let figures = world.ask("a", "@(a)", "hub:metrics", json!({}))["payload"].clone();
    assert_eq!(figures["drops"]["slowConsumer"], 2);
    let stats = world.ask("a", "@(a)", "hub:queue_stats", json!({}))["payload"].clone();
    assert_eq!((&stats["outboxes"]["deepest"], &stats["thresholds"]["dropAbove"]), (&json!(2_001), &json!(2_000)));
}

#[test]
fn bytes_count_as_well_as_frames() {
    let mut settings = unlimited();
    settings.drop_bytes_above = 10_000;
    let mut world = pair_with(settings);
    world.reads("b", false);
    for _ in 0..20 {
        world.tell("a", "@(a)", "hub:send", note("@(b)", "x".repeat(1_000)));
    }
    assert_eq!(types(&world.all("a")), ["hub:pause"]);
    assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", 1))["payload"]["code"], "queue_full");
}

#[test]
fn a_slow_consumer_is_closed_after_thirty_seconds() {
    let mut world = piled_up(2_001);
    for _ in 0..30 {
        world.pass(1_000);
    }
    assert!(world.hub.closing(world.session("b")).is_none());
    world.pass(1_000);
    assert_eq!(world.hub.closing(world.session("b")).map(wigwag_hub::Close::code), Some(4002));
    // Its address is free, and the senders paused for it resume.
    assert!(types(&world.all("a")).ends_with(&["hub:resume"]));
    let answer = world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    assert_eq!(answer["payload"]["status"], "queued");
}

#[test]
fn a_session_that_drains_in_time_stays_open() {
    let mut world = piled_up(2_001);
    world.pass(29_000);
    world.reads("b", true);
    world.tell("b", "@(b)", "hub:heartbeat", json!(null));
    world.pass(5_000);
    assert_eq!(world.closed("b"), None);
}

#[test]
fn a_session_whose_answers_pile_up_is_not_read_any_further() {
    let mut world = pair_with(unlimited());
    world.reads("a", false);
    let session = world.session("a");
    for _ in 0..1_001 {
        assert!(world.hub.may_read(session));
        world.tell("a", "@(a)", "hub:heartbeat", json!(null));
    }
    assert!(!world.hub.may_read(session));
    world.reads("a", true);
    assert!(world.hub.may_read(session));
}

#[test]
fn a_rate_limited_session_learns_when_to_retry() {
    let mut settings = Settings::default();
    settings.rate = Some(Rate { per_second: 10, burst: 20 });
    let mut world = pair_with(settings);
    world.now += 10_000;
    for number in 0..20 {
        world.tell("a", "@(a)", "hub:send", note("@(b)", number));
    }
    let refused = world.ask("a", "@(a)", "hub:send", note("@(b)", 20));
    assert_eq!((&refused["type"], &refused["payload"]["retryAfter"]), (&json!("hub:rate_limited"), &json!(100)));
    assert_eq!(refused["payload"]["retryable"], true);
    // Pings are not charged.
    world.text("a", "{\"type\":\"ping\"}");
    world.tell("a", "@(a)", "hub:heartbeat", json!(null));
    world.tell("a", "@(a)", "hub:ack", json!({"messageId": "x"}));
    assert_eq!(types(&world.all("a")), ["pong", "hub:heartbeat_ack"]);
    world.now += 100;
    assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", 21))["payload"]["status"], "delivered");
}

#[test]
fn a_broadcast_and_a_publish_are_charged_per_recipient() {
    let mut settings = Settings::default();
    settings.rate = Some(Rate { per_second: 10, burst: 20 });
    for kind in ["hub:broadcast", "hub:publish"] {
        let mut world = World::new(settings.clone());
        for number in 0..9 {
            let name = format!("w{number}");
            world.join_as(&name, &format!("@(w/{number})"));
            world.ask(&name, &format!("@(w/{number})"), "hub:subscribe", json!({"topic": "t"}));
        }
        world.join_as("a", "@(a)");
        world.now += 10_000;
        let payload = json!({"topic": "t", "message": {"type": "note"}, "excludeSelf": true});
        for _ in 0..2 {
            assert_ne!(world.ask("a", "@(a)", kind, payload.clone())["type"], "hub:rate_limited", "{kind}");
        }
        assert_eq!(world.ask("a", "@(a)", kind, payload)["type"], "hub:rate_limited", "{kind}");
    }
}

#[test]
fn rates_are_of_the_last_second() {
    let mut world = pair();
    world.pass(1_000);
    for number in 0..100 {
        world.tell("a", "@(a)", "hub:send", note("@(b)", number));
    }
    world.pass(1_000);
    let figures: Value = world.hub.figures();
    assert_eq!((&figures["rates"]["deliveredPerSecond"], &figures["sessions"]), (&json!(100), &json!(2)));
}

#[test]
fn no_more_is_handed_over_at_once_than_is_worth_a_write() {
    let mut world = pair();
    world.reads("b", false);
    let text = "x".repeat(100_000);
    for _ in 0..5 {
        world.tell("a", "@(a)", "hub:send", json!({"to": "@(b)", "type": "note", "data": text}));
    }
    let (session, now) = (world.session("b"), world.now);
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(world.hub.take(session, 64, now, |_| ()));
    }
    assert_eq!(taken, [3, 2, 0], "256 KiB, exceeded by at most one frame");
}
