//! Bounds of memory, rate and work, in total and not only for each session.

use std::sync::Arc;

use serde_json::json;
use wigwag_hub::testing::World;
use wigwag_hub::{Access, Came, Rate, Rights};

use crate::{note, pair_with, unlimited};

fn named(name: &str) -> Access {
    Access::Known(Arc::new(Rights { name: name.into(), all: true, ..Rights::default() }))
}

#[test]
fn all_sessions_of_a_token_share_one_rate() {
    let mut settings = unlimited();
    settings.token_rate = Some(Rate { per_second: 10, burst: 20 });
    let mut world = World::new(settings);
    for (name, token) in [("one", "ada"), ("two", "ada"), ("three", "bob")] {
        world.open_as(name, named(token));
        world.ask(name, "@(x)", "hub:connect", json!({}));
        world.ask(name, "@(x)", "hub:register", json!({"actorAddress": format!("@({name})")}));
    }
    // Two registrations are paid for.
    for number in 0..18 {
        let (name, from) = if number % 2 == 0 { ("one", "@(one)") } else { ("two", "@(two)") };
        assert_eq!(world.ask(name, from, "hub:list_topics", json!({}))["type"], "hub:topic_list", "{number}");
    }
    let refused = world.ask("two", "@(two)", "hub:list_topics", json!({}));
    assert_eq!((&refused["type"], &refused["payload"]["retryAfter"]), (&json!("hub:rate_limited"), &json!(100)));
    assert_eq!(world.ask("three", "@(three)", "hub:list_topics", json!({}))["type"], "hub:topic_list");
    // Reconnecting gives no new rate.
    world.close("one");
    world.close("two");
    world.open_as("again", named("ada"));
    let own = world.ask("again", "@(x)", "hub:connect", json!({}))["payload"]["address"].as_str().unwrap().to_owned();
    assert_eq!(world.ask("again", &own, "hub:list_topics", json!({}))["type"], "hub:rate_limited");
    world.pass(100);
    assert_eq!(world.ask("again", &own, "hub:list_topics", json!({}))["type"], "hub:topic_list");
}

#[test]
fn dedup_entries_are_bounded_in_total_and_a_busy_sender_shortens_only_its_own_window() {
    let mut settings = unlimited();
    settings.seen_total_max = 200;
    let mut world = pair_with(settings);
    world.join_as("c", "@(c)");
    let quiet = world.envelope("@(c)", "hub:send", "ask", note("@(b)", "quiet"));
    world.ask_frame("c", &quiet);
    let first = world.envelope("@(a)", "hub:send", "ask", note("@(b)", "first"));
    world.ask_frame("a", &first);
    for number in 0..1_000 {
        world.ask("a", "@(a)", "hub:send", note("@(b)", number));
        assert!(world.hub.figures()["dedupEntries"].as_u64().unwrap() <= 201);
    }
    world.all("b");
    world.ask_frame("c", &quiet);
    assert_eq!(world.all("b"), [] as [serde_json::Value; 0], "the quiet sender keeps its window");
    world.ask_frame("a", &first);
    assert_eq!(world.all("b").len(), 1, "the busy one has lost its oldest entry");
}

#[test]
fn dedup_entries_of_actors_that_are_gone_are_released() {
    let mut world = pair_with(unlimited());
    for number in 0..100 {
        world.ask("a", "@(a)", "hub:send", note("@(b)", number));
    }
    assert_eq!(world.hub.figures()["dedupEntries"], 100);
    world.close("a");
    world.pass_alive(400_000);
    assert_eq!(world.hub.figures()["dedupEntries"], 0);
}

#[test]
fn a_long_trace_is_not_repeated_nor_kept() {
    let mut world = pair_with(unlimited());
    for (length, is_repeated) in [(254, true), (255, false)] {
        let mut frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
        frame["metadata"] = json!({"traceId": "x".repeat(length)});
        let answer = world.ask_frame("a", &frame);
        assert_eq!(answer["metadata"]["traceId"].is_string(), is_repeated, "{length} and two quotes");
        let got = world.all("b").pop().unwrap();
        assert!(got["metadata"]["traceId"].is_string(), "the target gets it");
    }
}

/// Maximum number of sessions, actors and topics that one call visits: a page, or a slice of a job.
const VISITS_MAX: usize = 640;

/// More actors, sessions and topics than one call may visit.
const CROWD: usize = 700;

#[test]
fn no_call_visits_more_than_a_bounded_number_of_sessions_actors_and_topics() {
    let mut settings = unlimited();
    settings.history_for = 1_000_000;
    let mut world = pair_with(settings);
    for number in 0..CROWD {
        world.join_as(&format!("s{number}"), &format!("@(crowd/{number})"));
        world.tell("a", "@(a)", "hub:publish", json!({"topic": format!("t/{number}"), "type": "n", "data": 1}));
    }
    let session = world.session("a");
    let requests = [
        ("hub:list_actors", json!({"limit": 1_000})),
        ("hub:discover", json!({"pattern": "@(*9999)", "limit": 1_000})),
        ("hub:list_topics", json!({"limit": 1_000})),
        ("hub:queue_stats", json!({})),
        ("hub:broadcast", json!({"message": {"type": "n", "payload": 1}})),
    ];
    world.hub.visits();
    for (kind, payload) in requests {
        let frame = world.envelope("@(a)", kind, "ask", payload).to_string();
        let (mut most, now) = (0, world.now);
        world.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&frame), None)], now);
        loop {
            let visits = world.hub.visits();
            assert!(visits <= VISITS_MAX, "{kind}: {visits}");
            most = most.max(visits);
            if !world.hub.advance(now) {
                break;
            }
        }
        assert!(most > 0, "{kind} visits something");
        world.settle();
        world.all("a");
    }
    type Call = fn(&mut World) -> bool;
    let calls: [(&str, Call); 2] =
        [("tick", |world| world.hub.tick(world.now)), ("shutdown", |world| world.hub.advance(world.now))];
    for (name, call) in calls {
        if name == "shutdown" {
            world.hub.shutdown(world.now);
        }
        while call(&mut world) {
            let visits = world.hub.visits();
            assert!(visits <= VISITS_MAX, "{name}: {visits}");
        }
    }
    world.settle();
    assert_eq!(world.closed("s0"), Some(1001));
    assert_eq!(world.closed(&format!("s{}", CROWD - 1)), Some(1001));
}
