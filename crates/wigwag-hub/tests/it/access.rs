//! Access rights: which operations a token allows.

use std::sync::Arc;

use serde_json::json;
use wigwag_hub::testing::World;
use wigwag_hub::{Access, Glob, Rights};

use crate::{note, notes, pair, types};

fn globs(all: &[&str]) -> Vec<Glob> {
    all.iter().map(|text| Glob::new(text).unwrap()).collect()
}

/// Opens a session whose token has these rights.
fn join(world: &mut World, name: &str, rights: Rights) -> String {
    world.open_as(name, Access::Known(Arc::new(rights)));
    let hello = world.ask(name, "@(x)", "hub:connect", json!({"protocolVersion": "0.1.0"}));
    hello["payload"]["address"].as_str().unwrap().to_owned()
}

#[test]
fn a_forged_from_is_rejected() {
    let mut world = pair();
    let own = world.join("c");
    for (kind, payload) in [
        ("hub:send", note("@(b)", 1)),
        ("hub:broadcast", json!({"message": {"type": "x"}})),
        ("hub:publish", json!({"topic": "t", "message": {"type": "x"}})),
        ("hub:subscribe", json!({"topic": "t"})),
        ("hub:discover", json!({"pattern": "*"})),
    ] {
        assert_eq!(world.ask("c", "@(a)", kind, payload)["type"], "hub:unauthorized", "{kind}");
    }
    assert_eq!(world.next("b"), None);
    world.tell("c", &own, "hub:send", note("@(b)", 1));
    assert_eq!(world.next("b").unwrap()["from"], json!(own));
}

#[test]
fn an_address_outside_the_scope_is_rejected_without_a_change() {
    let mut world = pair();
    let own = join(&mut world, "c", Rights { own: globs(&["@(browser/*)"]), ..Rights::default() });
    assert_eq!(world.ask("c", &own, "hub:register", json!({"actorAddress": "@(a)"}))["type"], "hub:unauthorized");
    assert_eq!(world.closed("a"), None);
    let found = world.ask("a", "@(a)", "hub:discover", json!({"pattern": "@(a)"}));
    assert_eq!(found["payload"]["actors"][0]["version"], 1, "its version is unchanged");
    assert_eq!(world.ask("c", &own, "hub:register", json!({"actorAddress": "@(browser/1)"}))["type"], "hub:registered");
}

#[test]
fn reserved_addresses_cannot_be_registered() {
    let mut world = pair();
    for address in [
        "@(hub)",
        "@(hub/x)",
        "@(cloudflare/signal-hub)",
        "@(session/x)",
        "@(workflow/x)",
        "@(topic/x)",
        "@(broadcast)",
    ] {
        let refused = world.ask("a", "@(a)", "hub:register", json!({"actorAddress": address}));
        assert_eq!(refused["type"], "hub:unauthorized", "{address}");
    }
}

#[test]
fn a_token_sends_publishes_and_reads_by_its_scopes() {
    let mut world = pair();
    let rights = Rights {
        send: globs(&["@(b)"]),
        publish: globs(&["news/*"]),
        read: globs(&["run/order-17"]),
        ..Rights::default()
    };
    let own = join(&mut world, "c", rights);
    let publish = |topic: &str| json!({"topic": topic, "message": {"type": "x"}});
    for (kind, payload, answer) in [
        ("hub:send", note("@(b)", 1), "hub:delivery_ack"),
        ("hub:send", note("@(a)", 1), "hub:unauthorized"),
        ("hub:publish", publish("news/today"), "hub:published"),
        ("hub:publish", publish("other"), "hub:unauthorized"),
        ("hub:subscribe", json!({"topic": "news/today"}), "hub:unauthorized"),
        ("hub:subscribe", json!({"topic": "run/order-18"}), "hub:unauthorized"),
    ] {
        assert_eq!(world.ask("c", &own, kind, payload.clone())["type"], answer, "{kind} {payload}");
    }
    assert_eq!(world.next("a"), None);
}

#[test]
fn a_signal_needs_its_name_or_its_run() {
    let mut world = pair();
    world.runs.insert("order-17".into(), true);
    let by_name = Rights { name: "alice".into(), signals: vec!["approve".into()], ..Rights::default() };
    let by_run = Rights { name: "bob".into(), send: globs(&["@(workflow/order-17)"]), ..Rights::default() };
    let none = Rights { name: "eve".into(), send: globs(&["@(b)"]), ..Rights::default() };
    let signal = |name: &str| json!({"to": "@(workflow/order-17)", "type": name});
    for (socket, rights, allowed, refused) in [
        ("n", by_name, Some("approve"), Some("cancel")),
        ("r", by_run, Some("cancel"), None),
        ("e", none, None, Some("approve")),
    ] {
        let own = join(&mut world, socket, rights);
        if let Some(name) = allowed {
            assert_eq!(world.ask(socket, &own, "hub:send", signal(name))["payload"]["status"], "delivered");
        }
        if let Some(name) = refused {
            assert_eq!(world.ask(socket, &own, "hub:send", signal(name))["type"], "hub:unauthorized");
        }
    }
    let by: Vec<&str> = world.signals.iter().map(|(.., by)| by.as_str()).collect();
    assert_eq!(by, ["alice", "bob"], "the sender is the name of the token, for all of its addresses");
}

#[test]
fn only_the_hub_publishes_to_its_own_topics() {
    let mut world = pair();
    for topic in ["run/order-17", "runs", "tasks", "nudges"] {
        let refused = world.ask("a", "@(a)", "hub:publish", json!({"topic": topic, "message": {"type": "x"}}));
        assert_eq!(refused["type"], "hub:unauthorized", "{topic}");
    }
    let refused = world.ask("a", "@(a)", "hub:send", json!({"to": "@(b)", "type": "hub:connected"}));
    assert_eq!(refused["payload"]["code"], "invalid_message");
}

#[test]
fn a_missing_token_is_reported_and_the_connection_closed() {
    let mut world = World::new(wigwag_hub::Settings::default());
    world.open_as("a", Access::Nobody);
    let refused = world.ask("a", "@(x)", "hub:connect", json!({"protocolVersion": "0.1.0"}));
    assert_eq!(refused["type"], "hub:unauthorized");
    assert_eq!(world.closed("a"), Some(4001));
}

#[test]
fn a_session_ends_with_its_token() {
    let mut world = pair();
    let until = Some(world.now + 5_000);
    join(&mut world, "c", Rights { until, all: true, ..Rights::default() });
    world.pass(5_000);
    assert_eq!(world.closed("c"), None);
    world.pass(1);
    assert_eq!(world.closed("c"), Some(4001));
    assert_eq!(world.all("c").last().unwrap()["payload"]["reason"], "token_expired");
}

#[test]
fn sessions_of_a_revoked_token_are_found_in_slices_and_ended() {
    let mut world = pair();
    let slice = world.hub.settings().work_slice;
    let of = |credential: u8| Rights { credential: [credential; 32], all: true, ..Rights::default() };
    for number in 0..2 * slice {
        join(&mut world, &format!("old-{number}"), of(1));
        join(&mut world, &format!("new-{number}"), of(2));
    }
    let (mut before, mut slices) = (None, 0);
    loop {
        let (found, next) = world.hub.credentials(before);
        assert!(found.len() <= slice);
        for (session, access) in found {
            if matches!(access, Access::Known(rights) if rights.credential == [1; 32]) {
                world.hub.revoke(session, world.now);
            }
        }
        // A session that ends moves the last one of the roster into its place.
        world.pass(1);
        slices += 1;
        match next {
            Some(_) => before = next,
            None => break,
        }
    }
    assert!(slices > 4, "{slices}");
    for number in 0..2 * slice {
        assert_eq!(world.closed(&format!("old-{number}")), Some(4001), "{number}");
        assert_eq!(world.closed(&format!("new-{number}")), None, "{number}");
    }
    assert_eq!(world.closed("a"), None);
}

#[test]
fn an_actor_is_listed_only_for_sessions_that_may_send_to_it() {
    let mut world = pair();
    let own = join(&mut world, "c", Rights { send: globs(&["@(b)"]), own: globs(&["@(c)"]), ..Rights::default() });
    world.ask("c", &own, "hub:register", json!({"actorAddress": "@(c)"}));
    let found = world.ask("c", &own, "hub:discover", json!({"pattern": "*"}))["payload"]["actors"].clone();
    let addresses: Vec<&str> =
        found.as_array().unwrap().iter().filter_map(|actor| actor["actorAddress"].as_str()).collect();
    assert_eq!(addresses, ["@(b)", "@(c)"]);
    world.tell("c", &own, "hub:broadcast", json!({"message": {"type": "note", "payload": 1}, "excludeSelf": true}));
    assert_eq!((notes(&world.all("a")).len(), notes(&world.all("b")).len()), (0, 1));
}

#[test]
fn the_recipient_of_a_request_may_reply_without_a_scope() {
    let mut world = pair();
    let own = join(&mut world, "c", Rights { own: globs(&["@(c)"]), ..Rights::default() });
    world.ask("c", &own, "hub:register", json!({"actorAddress": "@(c)"}));
    let mut payload = note("@(c)", 1);
    payload["expectReply"] = json!(true);
    world.tell("a", "@(a)", "hub:send", payload);
    let question = world.next("c").unwrap();
    world.tell("c", "@(c)", "hub:reply", json!({"inReplyTo": question["id"], "type": "answer"}));
    assert_eq!(types(&world.all("a")), ["answer"]);
}

#[test]
fn topics_that_a_token_may_not_read_are_not_listed() {
    let mut world = pair();
    for topic in ["open/1", "secret/1"] {
        world.ask("a", "@(a)", "hub:subscribe", json!({"topic": topic}));
    }
    let own = join(&mut world, "c", Rights { read: globs(&["open/*"]), ..Rights::default() });
    let found = world.ask("c", &own, "hub:list_topics", json!({}))["payload"]["topics"].clone();
    let names: Vec<&str> = found.as_array().unwrap().iter().filter_map(|one| one["topic"].as_str()).collect();
    assert_eq!(names, ["open/1"]);
}
