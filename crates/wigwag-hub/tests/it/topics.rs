//! Topics: numbers, replay, gaps.

use serde_json::{Value, json};
use wigwag_hub::testing::World;
use wigwag_hub::{After, Effect, Settings};

use crate::{notes, pair, pair_with, types, unlimited};

fn publish(world: &mut World, data: impl Into<Value>) -> Value {
    world.ask("a", "@(a)", "hub:publish", json!({"topic": "t", "type": "note", "data": data.into()}))
}

fn subscribe(world: &mut World, name: &str, after: Option<(u64, u64)>) -> Value {
    let from = format!("@({name})");
    let after = after.map(|(epoch, seq)| json!({"epoch": epoch, "seq": seq}));
    world.ask(name, &from, "hub:subscribe", json!({"topic": "t", "after": after}))
}

#[test]
fn messages_are_numbered_and_reach_all_subscribers() {
    let mut world = pair();
    let epoch = subscribe(&mut world, "b", None)["payload"]["epoch"].clone();
    for seq in 1..=3 {
        let answer = publish(&mut world, seq)["payload"].clone();
        assert_eq!(answer, json!({"topic": "t", "epoch": epoch, "seq": seq, "subscriberCount": 1}));
    }
    for (place, got) in world.all("b").iter().enumerate() {
        assert_eq!((&got["payload"], &got["to"]), (&json!(place + 1), &json!("@(topic/t)")));
        let metadata = &got["metadata"];
        assert_eq!(
            (&metadata["topic"], &metadata["epoch"], &metadata["seq"]),
            (&json!("t"), &epoch, &json!(place + 1))
        );
    }
    assert_eq!(world.next("a"), None, "a publisher gets a copy only if it is a subscriber");
}

#[test]
fn a_returning_subscriber_gets_the_messages_it_missed() {
    let mut world = pair();
    let epoch = subscribe(&mut world, "b", None)["payload"]["epoch"].as_u64().unwrap();
    (1..=5).for_each(|n| _ = publish(&mut world, n));
    world.close("b");
    (6..=8).for_each(|n| _ = publish(&mut world, n));
    world.join_as("b", "@(b)");
    let back = subscribe(&mut world, "b", Some((epoch, 5)));
    assert_eq!(back["payload"]["seq"], 8);
    publish(&mut world, 9);
    assert_eq!(notes(&world.all("b")), [6, 7, 8, 9]);
}

#[test]
fn messages_dropped_from_history_are_announced_as_a_gap() {
    let mut settings = unlimited();
    settings.history_max = 10;
    let mut world = pair_with(settings);
    let epoch = subscribe(&mut world, "b", None)["payload"]["epoch"].as_u64().unwrap();
    world.close("b");
    (1..=30).for_each(|n| _ = publish(&mut world, n));
    world.join_as("b", "@(b)");
    subscribe(&mut world, "b", Some((epoch, 5)));
    let got = world.all("b");
    assert_eq!(got[0]["payload"], json!({"topic": "t", "epoch": epoch, "from": 6, "to": 20}));
    assert_eq!(notes(&got), (21..=30).collect::<Vec<_>>());
}

#[test]
fn history_lasts_ten_minutes() {
    let mut world = pair();
    let epoch = subscribe(&mut world, "b", None)["payload"]["epoch"].as_u64().unwrap();
    publish(&mut world, 1);
    world.all("b");
    world.now += 600_001;
    subscribe(&mut world, "b", Some((epoch, 0)));
    let got = world.all("b");
    assert_eq!(types(&got), ["note"], "age is checked on request, not on a timer");
    publish(&mut world, 2);
    world.all("b");
    subscribe(&mut world, "b", Some((epoch, 0)));
    let got = world.all("b");
    assert_eq!(got[0]["payload"], json!({"topic": "t", "epoch": epoch, "from": 1, "to": 1}));
    assert_eq!(notes(&got), [2]);
}

#[test]
fn a_new_epoch_of_a_topic_is_announced_as_a_gap() {
    let mut world = pair();
    let epoch = subscribe(&mut world, "b", None)["payload"]["epoch"].as_u64().unwrap();
    publish(&mut world, 1);
    world.restart();
    world.join_as("a", "@(a)");
    world.join_as("b", "@(b)");
    publish(&mut world, 2);
    let back = subscribe(&mut world, "b", Some((epoch, 1)));
    assert_ne!(back["payload"]["epoch"], json!(epoch));
    let got = world.all("b");
    assert_eq!((&got[0]["type"], &got[0]["payload"]["from"]), (&json!("hub:gap"), &Value::Null));
    assert_eq!(notes(&got), [2]);
}

#[test]
fn a_slow_subscriber_gets_its_gap_before_later_messages() {
    let mut world = pair_with(unlimited());
    let epoch = subscribe(&mut world, "b", None)["payload"]["epoch"].as_u64().unwrap();
    world.reads("b", false);
    (1..=2_101).for_each(|n| _ = publish(&mut world, n));
    let (session, now) = (world.session("b"), world.now);
    // The client reads some frames, which makes room for the next.
    let mut taken = 0;
    while taken < 1_000 {
        taken += world.hub.take(session, 1_000 - taken, now, |_| ());
    }
    world.hub.written(session, taken, now);
    publish(&mut world, 2_102);
    world.reads("b", true);
    let got = world.all("b");
    let gap = got.iter().position(|frame| frame["type"] == "hub:gap").unwrap();
    assert_eq!(got[gap]["payload"], json!({"topic": "t", "epoch": epoch, "from": 2_002, "to": 2_101}));
    assert_eq!(notes(&got[gap..]), [2_102]);
    assert_eq!(notes(&got[..gap]).len(), 1_001);
}

#[test]
fn a_slow_subscriber_gets_its_gap_even_if_no_message_follows() {
    let mut world = pair_with(unlimited());
    subscribe(&mut world, "b", None);
    world.reads("b", false);
    (1..=2_050).for_each(|n| _ = publish(&mut world, n));
    world.reads("b", true);
    let got = world.all("b");
    let last = got.last().unwrap();
    assert_eq!((&last["payload"]["from"], &last["payload"]["to"]), (&json!(2_002), &json!(2_050)));
}

#[test]
fn a_thousand_subscribers_get_two_messages_in_order() {
    let mut world = World::new(unlimited());
    world.join_as("a", "@(a)");
    for number in 0..1_000 {
        let name = format!("s{number}");
        let own = world.join(&name);
        world.ask(&name, &own, "hub:subscribe", json!({"topic": "t"}));
    }
    let (session, now) = (world.session("a"), world.now);
    for data in [1, 2] {
        let frame = world.envelope("@(a)", "hub:publish", "tell", json!({"topic": "t", "type": "note", "data": data}));
        world.hub.receive(session, vec![wigwag_hub::Came::Frame(wigwag_hub::read(&frame.to_string()), None)], now);
    }
    world.settle();
    for number in 0..1_000 {
        assert_eq!(notes(&world.all(&format!("s{number}"))), [1, 2]);
    }
}

#[test]
fn an_unsubscribed_session_gets_no_more_messages() {
    let mut world = pair();
    let id = subscribe(&mut world, "b", None)["payload"]["subscriptionId"].clone();
    let answer = world.ask("b", "@(b)", "hub:unsubscribe", json!({"subscriptionId": id}));
    assert_eq!(answer["payload"], json!({"topic": "t", "subscriptionId": id}));
    assert_eq!(publish(&mut world, 1)["payload"]["subscriberCount"], 0);
    assert_eq!(world.next("b"), None);
}

#[test]
fn a_topic_without_subscribers_and_history_is_forgotten() {
    let mut settings = Settings::default();
    settings.heartbeat = 1_000_000;
    let mut world = pair_with(settings);
    publish(&mut world, 1);
    assert_eq!(world.hub.figures()["topics"], 1);
    world.pass(600_001);
    assert_eq!(world.hub.figures()["topics"], 0);
}

#[test]
fn a_runs_topic_is_followed_and_fed_from_its_log() {
    let mut world = pair();
    let asked = world.envelope(
        "@(b)",
        "hub:subscribe",
        "ask",
        json!({"topic": "run/order-17", "after": {"epoch": 5, "seq": 2}}),
    );
    world.send("b", &asked);
    let (session, now) = (world.session("b"), world.now);
    let Some(Effect::Follow { topic, run, after, .. }) = world.effects.pop() else { panic!("nobody follows") };
    assert_eq!((&*run, after), ("order-17", Some(After { epoch: 5, seq: 2 })));
    assert!(
        !world.hub.feed(session, &topic, After { epoch: 5, seq: 3 }, "{}", now),
        "not before the subscription is answered"
    );
    world.hub.followed(session, &topic, Ok(After { epoch: 5, seq: 9 }), now);
    assert!(world.hub.feed(session, &topic, After { epoch: 5, seq: 3 }, "{\"seq\":3}", now));
    world.settle();
    assert_eq!(world.answer("b", &asked)["payload"]["seq"], 9);
    let got = world.next("b").unwrap();
    assert_eq!((&got["type"], &got["from"]), (&json!("run:events"), &json!("@(workflow/order-17)")));
    assert_eq!(
        (&got["metadata"]["epoch"], &got["metadata"]["seq"], &got["payload"]["seq"]),
        (&json!(5), &json!(3), &json!(3))
    );
    world.close("b");
    assert!(matches!(world.effects.pop(), Some(Effect::Unfollow { .. })));
}

#[test]
fn a_missing_run_is_an_unknown_actor() {
    let mut world = pair();
    let asked = world.envelope("@(b)", "hub:subscribe", "ask", json!({"topic": "run/none"}));
    world.send("b", &asked);
    let (session, now) = (world.session("b"), world.now);
    world.hub.followed(session, "run/none", Err("run not found: `none`".into()), now);
    world.settle();
    let answer = world.answer("b", &asked);
    assert_eq!(
        (&answer["type"], &answer["payload"]["actorAddress"]),
        (&json!("hub:unknown_actor"), &json!("@(workflow/none)"))
    );
}

#[test]
fn the_hubs_own_topics_are_fed_only_while_they_have_subscribers() {
    let mut world = pair();
    world.ask("b", "@(b)", "hub:subscribe", json!({"topic": "runs"}));
    assert!(matches!(&world.effects[..], [Effect::Wanted { wanted: true, .. }]));
    let now = world.now;
    world.hub.tell_topic("runs", "run:started", "{\"id\":\"order-17\"}", now);
    world.settle();
    let got = world.next("b").unwrap();
    assert_eq!(
        (&got["from"], &got["type"], &got["payload"]["id"]),
        (&json!("@(hub)"), &json!("run:started"), &json!("order-17"))
    );
    world.close("b");
    assert!(matches!(&world.effects[1..], [Effect::Wanted { wanted: false, .. }]));
}

#[test]
fn topics_are_listed_page_by_page_with_their_subscribers_and_last_number() {
    let mut world = pair();
    for topic in ["news/a", "news/b", "sport"] {
        world.ask("a", "@(a)", "hub:subscribe", json!({"topic": topic}));
    }
    world.ask("b", "@(b)", "hub:subscribe", json!({"topic": "news/b"}));
    for number in 0..3 {
        let payload = json!({"topic": "news/b", "message": {"type": "note", "payload": number}});
        world.ask("a", "@(a)", "hub:publish", payload);
    }
    let page = world.ask("a", "@(a)", "hub:list_topics", json!({"limit": 2}))["payload"].clone();
    let listed = |page: &Value| -> Vec<(String, u64, u64)> {
        let topics = page["topics"].as_array().unwrap().iter();
        let number = |value: &Value| value.as_u64().unwrap();
        topics
            .map(|one| (one["topic"].as_str().unwrap().into(), number(&one["subscribers"]), number(&one["seq"])))
            .collect()
    };
    assert_eq!(listed(&page), [("news/a".into(), 1, 0), ("news/b".into(), 2, 3)]);
    assert_eq!((&page["hasMore"], &page["next"]), (&json!(true), &json!("news/b")));
    let rest = world.ask("a", "@(a)", "hub:list_topics", json!({"limit": 2, "after": page["next"]}))["payload"].clone();
    assert_eq!(listed(&rest), [("sport".into(), 1, 0)]);
    assert_eq!((&rest["hasMore"], &rest["next"]), (&json!(false), &json!(null)));
}

#[test]
fn a_page_of_topics_has_a_size_between_1_and_1000() {
    let mut world = pair();
    for wrong in [json!(0), json!(1_001), json!("many")] {
        let answer = world.ask("a", "@(a)", "hub:list_topics", json!({"limit": wrong}));
        assert_eq!(answer["payload"]["code"], "invalid_message", "{answer}");
        assert!(answer["payload"]["message"].as_str().unwrap().contains("limit"), "{answer}");
    }
}
