//! Ownership of addresses: registration, expiry, versions.

use serde_json::json;

use crate::{note, notes, pair, types};

#[test]
fn versions_grow_across_takeovers_and_restarts() {
    let mut world = pair();
    let mut last = 1;
    for name in ["c", "d", "e"] {
        let version = world.join_as(name, "@(a)")["payload"]["version"].as_u64().unwrap();
        assert!(version > last, "{version} after {last}");
        last = version;
    }
    world.restart();
    assert!(world.join_as("f", "@(a)")["payload"]["version"].as_u64().unwrap() > last);
}

#[test]
fn the_newest_registration_wins_and_the_old_session_is_notified_and_closed() {
    let mut world = pair();
    world.join_as("a2", "@(a)");
    let told = world.all("a");
    assert_eq!(told.last().unwrap()["payload"], json!({"reason": "duplicate_connection"}));
    assert_eq!(world.closed("a"), Some(4000));
    world.tell("b", "@(b)", "hub:send", note("@(a)", 1));
    assert_eq!(notes(&world.all("a2")), [1]);
}

#[test]
fn undelivered_messages_of_the_old_session_go_to_the_new_one_in_order() {
    let mut world = pair();
    world.reads("b", false);
    for number in 0..5 {
        let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", number));
        world.send("a", &frame);
    }
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [0, 1, 2, 3, 4]);
    assert_eq!(types(&world.all("a")), ["hub:delivery_ack"; 5]);
}

#[test]
fn a_rejected_registration_changes_nothing() {
    let mut world = pair();
    let own = world.join("c");
    for payload in [
        json!({"actorAddress": "@(a)", "ttlSeconds": 5}),
        json!({"actorAddress": "@(a)", "ttlSeconds": 3_601}),
        json!({"actorAddress": "@(a)", "capabilities": [""]}),
        json!({"actorAddress": "@(a)", "metadata": []}),
        json!({"actorAddress": "a"}),
        json!({}),
    ] {
        let refused = world.ask("c", &own, "hub:register", payload);
        assert_eq!(refused["payload"]["code"], "invalid_message");
    }
    assert_eq!(world.closed("a"), None);
    world.tell("b", "@(b)", "hub:send", note("@(a)", 1));
    assert_eq!(notes(&world.all("a")), [1]);
}

#[test]
fn registering_an_own_address_again_renews_the_same_version() {
    let mut world = pair();
    let first = world.ask("a", "@(a)", "hub:register", json!({"actorAddress": "@(a)", "capabilities": ["x"]}));
    world.now += 1_000;
    let again = world.ask("a", "@(a)", "hub:register", json!({"actorAddress": "@(a)", "capabilities": ["y"]}));
    assert_eq!(again["payload"]["version"], first["payload"]["version"]);
    assert!(again["payload"]["expiresAt"].as_u64() > first["payload"]["expiresAt"].as_u64());
    let found = world.ask("b", "@(b)", "hub:discover", json!({"pattern": "@(a)"}));
    assert_eq!(found["payload"]["actors"][0]["capabilities"], json!(["y"]));
}

#[test]
fn two_concurrent_registrations_of_one_session_do_not_close_it() {
    let mut world = pair();
    let own = world.join("c");
    world.hold = true;
    world.tell("c", &own, "hub:register", json!({"actorAddress": "@(c)"}));
    world.tell("c", &own, "hub:register", json!({"actorAddress": "@(c)"}));
    world.release();
    assert_eq!(types(&world.all("c")), ["hub:registered", "hub:registered"]);
    assert_eq!(world.closed("c"), None);
}

#[test]
fn a_lease_ends_unless_it_is_renewed() {
    let mut world = pair();
    let own = world.join("c");
    let got = world.ask("c", &own, "hub:register", json!({"actorAddress": "@(c)", "ttlSeconds": 10}));
    let token = got["payload"]["renewalToken"].clone();
    world.pass(9_000);
    let renewed = world.ask("c", &own, "hub:renew", json!({"renewalToken": token}));
    assert_eq!(renewed["type"], "hub:renewed");
    assert_eq!(renewed["payload"]["expiresAt"], json!(world.now + 10_000));
    world.pass(9_000);
    assert_eq!(world.ask("b", "@(b)", "hub:send", note("@(c)", 1))["payload"]["status"], "delivered");
    world.pass(2_000);
    assert_eq!(world.ask("b", "@(b)", "hub:send", note("@(c)", 2))["payload"]["status"], "queued");
    assert_eq!(world.closed("c"), None, "the session stays");
}

#[test]
fn only_the_owner_renews_or_unregisters_an_address() {
    let mut world = pair();
    let token =
        world.ask("a", "@(a)", "hub:register", json!({"actorAddress": "@(a)"}))["payload"]["renewalToken"].clone();
    for (kind, payload) in [
        ("hub:renew", json!({"renewalToken": token})),
        ("hub:renew", json!({"renewalToken": "guessed"})),
        ("hub:unregister", json!({"actorAddress": "@(a)"})),
    ] {
        assert_eq!(world.ask("b", "@(b)", kind, payload)["type"], "hub:unauthorized");
    }
    world.tell("b", "@(b)", "hub:send", note("@(a)", 1));
    assert_eq!(notes(&world.all("a")), [1]);
}

#[test]
fn an_unregistered_actor_is_away() {
    let mut world = pair();
    assert_eq!(world.ask("b", "@(b)", "hub:unregister", json!({"actorAddress": "@(b)"}))["type"], "hub:unregistered");
    assert_eq!(world.ask("a", "@(a)", "hub:send", note("@(b)", 1))["payload"]["status"], "queued");
}

#[test]
fn silence_for_three_heartbeats_ends_a_session() {
    let mut world = pair();
    world.pass(60_000);
    world.tell("a", "@(a)", "hub:heartbeat", json!({"timestamp": 5}));
    assert_eq!(world.next("a").unwrap()["payload"], json!({"timestamp": 5, "serverTime": world.now}));
    world.pass(30_001);
    assert_eq!((world.closed("a"), world.closed("b")), (None, Some(4003)));
    assert_eq!(world.all("b").last().unwrap()["payload"]["reason"], "idle");
}

#[test]
fn a_connection_without_hub_connect_is_closed_after_ten_seconds() {
    let mut world = pair();
    world.open("c");
    world.text("c", "{\"type\":\"ping\"}");
    world.pass(10_001);
    assert_eq!(world.closed("c"), Some(4003));
}

#[test]
fn a_resumed_session_keeps_its_address_and_its_dedup_window() {
    let mut world = pair();
    world.open("c");
    let hello = world.ask("c", "@(x)", "hub:connect", json!({"protocolVersion": "0.1.0"}));
    let (own, secret) = (hello["payload"]["address"].clone(), hello["payload"]["sessionId"].clone());
    let frame = world.envelope(own.as_str().unwrap(), "hub:send", "ask", note("@(b)", 1));
    let first = world.ask_frame("c", &frame);
    world.open("c2");
    let again =
        world.ask("c2", "@(x)", "hub:connect", json!({"protocolVersion": "0.1.0", "resume": {"sessionId": secret}}));
    assert_eq!((&again["payload"]["address"], &again["payload"]["resumed"]), (&own, &json!(true)));
    assert_eq!(world.closed("c"), Some(4000));
    assert_eq!(world.ask_frame("c2", &frame), first);
    assert_eq!(notes(&world.all("b")), [1]);
    assert!(!own.as_str().unwrap().contains(secret.as_str().unwrap()), "others do not see the secret");
}

#[test]
fn discover_lists_matching_actors_in_pages_without_tokens() {
    let mut world = pair();
    for number in 0..5 {
        let own = world.join(&format!("w{number}"));
        let capabilities = if number % 2 == 0 { json!(["even"]) } else { json!([]) };
        let payload = json!({"actorAddress": format!("@(worker/{number})"), "capabilities": capabilities, "metadata": {"n": number}});
        world.ask(&format!("w{number}"), &own, "hub:register", payload);
    }
    let page = world.ask("a", "@(a)", "hub:discover", json!({"pattern": "@(worker/*)", "limit": 3}))["payload"].clone();
    let addresses = |page: &serde_json::Value| -> Vec<String> {
        page["actors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|actor| actor["actorAddress"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(addresses(&page), ["@(worker/0)", "@(worker/1)", "@(worker/2)"]);
    assert_eq!(page["hasMore"], true);
    assert!(!page.to_string().contains("renewalToken"));
    let rest =
        world.ask("a", "@(a)", "hub:discover", json!({"pattern": "@(worker/*)", "limit": 3, "after": page["next"]}));
    assert_eq!(addresses(&rest["payload"]), ["@(worker/3)", "@(worker/4)"]);
    assert_eq!((&rest["payload"]["hasMore"], &rest["payload"]["next"]), (&json!(false), &json!(null)));
    let even = world.ask("a", "@(a)", "hub:discover", json!({"pattern": "*", "capability": "even"}));
    assert_eq!(addresses(&even["payload"]).len(), 3);
    let all = world.ask("a", "@(a)", "hub:list_actors", json!({}));
    assert_eq!(addresses(&all["payload"]).len(), 7);
}

#[test]
fn a_server_that_stops_notifies_all_sessions_and_keeps_unwritten_messages() {
    let mut world = pair();
    world.reads("b", false);
    let frame = world.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
    world.send("a", &frame);
    let now = world.now;
    world.hub.shutdown(now);
    world.settle();
    world.reads("b", true);
    assert_eq!((world.closed("a"), world.closed("b")), (Some(1001), Some(1001)));
    assert_eq!(world.all("a").last().unwrap()["payload"]["reason"], "server_shutdown");
    assert_eq!(world.waiting("@(b)").len(), 1);
    world.restart();
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [1]);
}

#[test]
fn unused_actors_are_forgotten() {
    let mut world = pair();
    world.close("b");
    world.ask("a", "@(a)", "hub:send", note("@(b)", 1));
    for round in 0..400 {
        if round % 100 == 0 {
            world.ask("a", "@(a)", "hub:register", json!({"actorAddress": "@(a)"}));
        }
        world.tell("a", "@(a)", "hub:heartbeat", json!(null));
        world.pass(1_000);
    }
    world.all("a");
    assert_eq!(world.hub.remembered(), 2, "`a` and its session; `b` is in the store");
    world.join_as("b2", "@(b)");
    assert_eq!(notes(&world.all("b2")), [1]);
}
