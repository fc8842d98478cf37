//! Broadcasts and publishes to many targets.

use serde_json::json;
use wigwag_hub::Came;
use wigwag_hub::testing::World;

use crate::{note, notes, unlimited};

fn crowd(count: usize) -> World {
    let mut world = World::new(unlimited());
    world.join_as("a", "@(a)");
    for number in 0..count {
        world.join_as(&format!("w{number}"), &format!("@(w/{number:04})"));
    }
    world
}

fn broadcast(world: &mut World) -> serde_json::Value {
    let payload = json!({"message": {"type": "note", "payload": 1}, "excludeSelf": true});
    world.envelope("@(a)", "hub:broadcast", "ask", payload)
}

fn heard(world: &mut World, count: usize) -> usize {
    (0..count).map(|number| notes(&world.all(&format!("w{number}"))).len()).sum()
}

#[test]
fn a_hundred_targets_get_a_message_in_one_batch() {
    let mut world = crowd(100);
    let frame = broadcast(&mut world);
    let (session, now) = (world.session("a"), world.now);
    world.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&frame.to_string()), None)], now);
    assert!(!world.hub.has_more());
    world.settle();
    assert_eq!(heard(&mut world, 100), 100);
    let answer = world.answer("a", &frame);
    assert_eq!(
        answer["payload"],
        json!({"messageId": frame["id"], "deliveredCount": 100, "queuedCount": 0, "failedCount": 0})
    );
}

#[test]
fn a_hundred_and_one_targets_take_two_batches_with_other_work_between_them() {
    let mut world = crowd(101);
    let frame = broadcast(&mut world);
    let (session, now) = (world.session("a"), world.now);
    world.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&frame.to_string()), None)], now);
    assert!(world.hub.has_more(), "the first hundred only");
    // A message of another sender overtakes the second batch.
    let other = world.envelope("@(a)", "hub:send", "tell", note("@(w/0100)", "before"));
    world.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&other.to_string()), None)], now);
    assert!(!world.hub.advance(now));
    world.settle();
    assert_eq!(notes(&world.all("w100")), [json!("before"), json!(1)]);
    assert_eq!(world.answer("a", &frame)["payload"]["deliveredCount"], 101);
}

#[test]
fn a_thousand_targets_take_batches_of_a_hundred() {
    let mut world = crowd(1_000);
    let frame = broadcast(&mut world);
    let (session, now) = (world.session("a"), world.now);
    world.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&frame.to_string()), None)], now);
    let mut batches = 1;
    while world.hub.has_more() {
        world.hub.advance(now);
        batches += 1;
    }
    // 2,002 addresses are filtered in slices of 640.
    assert_eq!(batches, 3 + 10);
    world.settle();
    assert_eq!(heard(&mut world, 1_000), 1_000);
    assert_eq!(world.answer("a", &frame)["payload"]["deliveredCount"], 1_000);
}

#[test]
fn copies_answer_nothing_and_the_body_is_written_once() {
    let mut world = crowd(2);
    let frame = broadcast(&mut world);
    world.send("a", &frame);
    let (one, other) = (world.next_text("w0").unwrap(), world.next_text("w1").unwrap());
    assert_eq!(one, other);
    let copy: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!(
        (&copy["correlationId"], &copy["to"], &copy["from"]),
        (&json!(null), &json!("@(broadcast)"), &json!("@(a)"))
    );
}

#[test]
fn the_sender_gets_a_copy_unless_it_is_excluded() {
    let mut world = crowd(1);
    world.tell("a", "@(a)", "hub:broadcast", json!({"message": {"type": "note", "payload": 1}}));
    assert_eq!(notes(&world.all("a")), [1]);
    world.tell("a", "@(a)", "hub:broadcast", json!({"message": {"type": "note", "payload": 1}, "excludeSelf": true}));
    assert_eq!(notes(&world.all("a")).len(), 0);
}

#[test]
fn a_broadcast_with_a_capability_reaches_only_actors_that_have_it() {
    let mut world = crowd(2);
    world.ask("w1", "@(w/0001)", "hub:register", json!({"actorAddress": "@(w/0001)", "capabilities": ["print"]}));
    world.tell("a", "@(a)", "hub:broadcast", json!({"message": {"type": "note", "payload": 1}, "capability": "print"}));
    assert_eq!((notes(&world.all("w0")).len(), notes(&world.all("w1")).len()), (0, 1));
}

#[test]
fn a_slow_consumer_counts_as_failed_and_paused_feeders_are_counted() {
    let mut world = crowd(3);
    for (name, frames) in [("w0", 2_001), ("w1", 1_001)] {
        world.reads(name, false);
        let to = format!("@(w/000{})", &name[1..]);
        for number in 0..frames {
            world.tell("a", "@(a)", "hub:send", note(&to, number));
        }
    }
    let frame = broadcast(&mut world);
    let answer = world.ask_frame("a", &frame);
    assert_eq!(
        answer["payload"],
        json!({"messageId": frame["id"], "deliveredCount": 2, "queuedCount": 1, "failedCount": 1})
    );
}

/// The history has the message as soon as it is published, and the fan-out reaches later subscribers a batch at a time.
#[test]
fn a_subscriber_that_subscribes_again_during_a_fan_out_gets_the_message_once() {
    let mut world = crowd(150);
    let mut at = json!(null);
    for number in 0..150 {
        let (client, address) = (format!("w{number}"), format!("@(w/{number:04})"));
        at = world.ask(&client, &address, "hub:subscribe", json!({"topic": "t"}))["payload"].clone();
    }
    let after = json!({"epoch": at["epoch"], "seq": at["seq"]});
    let publish = world.envelope("@(a)", "hub:publish", "ask", json!({"topic": "t", "type": "note", "data": 1}));
    let again = |world: &mut World, number: usize, after: &serde_json::Value| {
        let payload = json!({"topic": "t", "after": after});
        let frame = world.envelope(&format!("@(w/{number:04})"), "hub:subscribe", "ask", payload);
        let session = world.session(&format!("w{number}"));
        world.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&frame.to_string()), None)], world.now);
    };
    let (session, now) = (world.session("a"), world.now);
    world.hub.receive(session, vec![Came::Frame(wigwag_hub::read(&publish.to_string()), None)], now);
    assert!(world.hub.has_more(), "the first hundred only");
    again(&mut world, 149, &after);
    again(&mut world, 148, &json!(null));
    world.settle();
    assert_eq!(notes(&world.all("w149")), [1], "from the history");
    assert_eq!(notes(&world.all("w148")), [1], "from the fan-out: the subscription named no position");
    let next = world.envelope("@(a)", "hub:publish", "ask", json!({"topic": "t", "type": "note", "data": 2}));
    world.ask_frame("a", &next);
    assert_eq!(notes(&world.all("w149")), [2]);
}
