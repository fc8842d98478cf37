//! Two servers on one store.

use serde_json::{Value, json};
use wigwag_hub::Settings;
use wigwag_hub::testing::World;

use crate::{note, notes};

/// Two servers, each with a membership record of the other.
struct Two {
    one: World,
    two: World,
}

impl Two {
    fn new(settings: &Settings) -> Self {
        let (mut one, mut two) = (World::new(settings.clone()), World::new(settings.clone()));
        (one.server, two.server) = ("s1".into(), "s2".into());
        one.others.insert("s2".into(), "ws://two/hub".into());
        two.others.insert("s1".into(), "ws://one/hub".into());
        Self { one, two }
    }

    /// Runs `what` at one server; both see the same store afterwards.
    fn at_one<T>(&mut self, what: impl FnOnce(&mut World) -> T) -> T {
        let done = what(&mut self.one);
        self.two.store = self.one.store.clone();
        done
    }

    fn at_two<T>(&mut self, what: impl FnOnce(&mut World) -> T) -> T {
        let done = what(&mut self.two);
        self.one.store = self.two.store.clone();
        done
    }
}

fn assert_elsewhere(answer: &Value, url: &str) {
    assert_eq!(answer["payload"]["code"], "elsewhere", "{answer}");
    assert_eq!(answer["payload"]["details"]["url"], url);
}

#[test]
fn an_actor_of_another_server_is_elsewhere_and_never_queued_for() {
    let mut both = Two::new(&Settings::default());
    both.at_one(|one| one.join_as("a", "@(a)"));
    both.at_two(|two| two.join_as("b", "@(b)"));
    let frame = both.at_one(|one| {
        let frame = one.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
        assert_elsewhere(&one.ask_frame("a", &frame), "ws://two/hub");
        frame
    });
    assert_eq!(both.two.waiting("@(b)"), []);
    // At the other server, the same id is a new message.
    both.at_one(|one| one.close("a"));
    both.at_two(|two| {
        two.join_as("a", "@(a)");
        assert_eq!(two.ask_frame("a", &frame)["payload"]["status"], "delivered");
        assert_eq!(notes(&two.all("b")), [1]);
    });
}

#[test]
fn an_actor_that_moved_is_elsewhere_though_it_was_here_before() {
    let mut both = Two::new(&Settings::default());
    both.at_one(|one| {
        one.join_as("a", "@(a)");
        one.join_as("b", "@(b)");
        one.close("b");
        assert_eq!(one.ask("a", "@(a)", "hub:send", note("@(b)", 1))["payload"]["status"], "queued");
    });
    both.at_two(|two| {
        two.join_as("b", "@(b)");
        assert_eq!(notes(&two.all("b")), [1], "either server finds the queue");
    });
    both.at_one(|one| assert_elsewhere(&one.ask("a", "@(a)", "hub:send", note("@(b)", 2)), "ws://two/hub"));
    // Once its server is gone, the target counts as away.
    both.one.others.clear();
    both.at_one(|one| assert_eq!(one.ask("a", "@(a)", "hub:send", note("@(b)", 3))["payload"]["status"], "queued"));
}

#[test]
fn a_queue_that_another_server_has_emptied_is_not_full() {
    let mut settings = Settings::default();
    settings.queue_max = 3;
    let mut both = Two::new(&settings);
    both.at_one(|one| {
        one.join_as("a", "@(a)");
        one.join_as("b", "@(b)");
        one.close("b");
        for number in 0..3 {
            assert_eq!(one.ask("a", "@(a)", "hub:send", note("@(b)", number))["payload"]["status"], "queued");
        }
    });
    both.at_two(|two| {
        two.join_as("b", "@(b)");
        assert_eq!(notes(&two.all("b")), [0, 1, 2]);
        two.close("b");
    });
    // The other server is stopped.
    both.one.others.clear();
    both.at_one(|one| {
        one.now += 2_000;
        assert_eq!(one.ask("a", "@(a)", "hub:send", note("@(b)", 3))["payload"]["status"], "queued");
        assert_eq!(one.waiting("@(b)").len(), 1);
    });
}

#[test]
fn the_old_owner_of_a_moved_address_learns_the_new_server_and_is_closed() {
    let mut both = Two::new(&Settings::default());
    both.at_one(|one| one.join_as("b", "@(b)"));
    let version = both.at_two(|two| two.join_as("b", "@(b)"))["payload"]["version"].clone();
    assert_eq!(version, 2);
    both.at_one(|one| {
        one.hear_of_others();
        one.settle();
        assert_eq!(one.closed("b"), Some(4000));
        let told = one.all("b").pop().unwrap();
        assert_eq!(told["payload"]["reason"], "duplicate_connection");
        assert_eq!((&told["payload"]["address"], &told["payload"]["url"]), (&json!("@(b)"), &json!("s2")));
    });
    assert!(!both.two.store.keys().any(|key| key.contains("/taken/")), "a notice is delivered once");
    // The server takes the address over again: the earlier notice no longer applies.
    both.at_one(|one| {
        assert_eq!(one.join_as("b2", "@(b)")["payload"]["version"], 3);
        one.hub.taken_over("@(b)", 2, None, one.now);
        one.settle();
        assert_eq!(one.closed("b2"), None);
    });
}

/// The dedup marker is written after the listing.
#[test]
fn a_message_delivered_by_another_server_between_listing_and_reading_is_recognised() {
    let mut both = Two::new(&Settings::default());
    let frame = both.at_one(|one| {
        one.join_as("a", "@(a)");
        one.join_as("b", "@(b)");
        one.close("b");
        let frame = one.envelope("@(a)", "hub:send", "ask", note("@(b)", 1));
        assert_eq!(one.ask_frame("a", &frame)["payload"]["status"], "queued");
        one.close("a");
        frame
    });
    both.at_two(|two| {
        two.join_as("a", "@(a)");
        let own = two.join("b");
        two.hold = true;
        let register = two.envelope(&own, "hub:register", "ask", json!({"actorAddress": "@(b)"}));
        two.send("b", &register);
        two.settle_one();
        assert_eq!(two.waiting("@(b)").len(), 1, "it is listed");
        two.store.retain(|key, _| !key.starts_with("hub/b/") || key.ends_with("actor.json"));
        two.release();
        assert_eq!(two.ask_frame("a", &frame)["payload"]["status"], "queued");
        assert_eq!(notes(&two.all("b")), [] as [Value; 0], "it was delivered by the other server");
    });
}
