//! Scenarios: incoming frames and elapsed time, and the frames and outputs that result.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::*;
use crate::frame::raw;
use crate::limits::CLOSE_TIMEOUT;

/// A machine with its simulated time and the outputs so far.
struct Scene {
    machine: Machine<&'static str>,
    now: Now,
    said: Vec<String>,
}

fn settings() -> Settings {
    Settings::default()
}

impl Scene {
    fn new(settings: Settings) -> Self {
        let now = Now { boot: Duration::from_secs(1_000), wall: 1_763_251_200_000 };
        let machine = Machine::new(settings, fastrand::Rng::with_seed(7), now);
        Self { machine, now, said: Vec::new() }
    }

    /// Returns a connected machine without registrations.
    fn up() -> Self {
        let mut scene = Self::new(settings());
        scene.connect("s-1", false);
        scene
    }

    fn connect(&mut self, session: &str, resumed: bool) -> Value {
        self.machine.dial(None);
        self.machine.opened(self.now);
        let greeting = self.sent().remove(0);
        let payload = json!({"sessionId": session, "address": format!("@(session/{session})"), "resumed": resumed,
            "maxMessageSize": 1_000, "heartbeatInterval": 30_000});
        self.answer(&greeting, "hub:connected", &payload);
        greeting
    }

    /// Advances the time in one step, past any deadlines in between.
    fn wait(&mut self, span: Duration) {
        self.now.boot += span;
        self.now.wall += u64::try_from(span.as_millis()).unwrap();
        self.machine.tick(self.now);
        self.listen();
    }

    /// Advances the time to the next deadline, and returns the elapsed time.
    fn wait_until_due(&mut self) -> Duration {
        let due = self.machine.deadline(self.now).unwrap();
        let span = due.saturating_sub(self.now.boot);
        self.wait(span);
        span
    }

    fn come(&mut self, frame: &Value) {
        self.machine.frame(&frame.to_string(), self.now);
        self.listen();
    }

    fn answer(&mut self, to: &Value, kind: &str, payload: &Value) {
        self.come(&json!({"id": "x", "from": "@(hub)", "type": kind, "correlationId": to["id"], "payload": payload}));
    }

    fn lose(&mut self, code: Option<u16>) {
        self.machine.broke(Lost { code, what: "gone".into() }, self.now);
        self.listen();
    }

    fn sent(&mut self) -> Vec<Value> {
        let mut sent = Vec::new();
        while let Some(frame) = self.machine.next_frame(self.now) {
            let frame = serde_json::from_str(&frame).unwrap();
            assert_described(&frame);
            sent.push(frame);
        }
        self.listen();
        sent
    }

    /// Returns the types of the frames to send.
    fn sent_types(&mut self) -> Vec<String> {
        self.sent().iter().map(|frame| frame["type"].as_str().unwrap().to_owned()).collect()
    }

    fn listen(&mut self) {
        while let Some(output) = self.machine.next_output() {
            self.said.push(match output {
                Output::Answer(who, Ok(frame)) => format!("{who}: {} {}", frame.kind, frame.payload),
                Output::Answer(who, Err(error)) => format!("{who}: {:?} {error}", error.kind()),
                Output::Direct(frame) => format!("direct {}", frame.id),
                Output::Topic { item: Item::Message(_, at), .. } => format!("topic {}:{}", at.epoch, at.seq),
                Output::Topic { item: Item::Gap(gap), .. } => format!("gap {:?}..{}", gap.from, gap.to),
                Output::Topic { item: Item::End(why), .. } => format!("end {why}"),
                Output::Event(Event::Disconnected { retry_in, .. }) => format!("disconnected {}", retry_in.as_millis()),
                Output::Move(url) => format!("move {url}"),
                Output::Event(event) => format!("{event:?}").split(' ').next().unwrap_or_default().to_owned(),
            });
        }
    }

    fn said(&mut self) -> Vec<String> {
        self.listen();
        std::mem::take(&mut self.said)
    }

    fn call(&mut self, id: &str) -> Call {
        let mut call =
            self.machine.own_call("hub:send", Pattern::Ask, &json!({"to": "@(b)", "type": "job", "data": 1}), self.now);
        call.id = id.to_owned();
        call
    }

    fn ask(&mut self, id: &'static str) {
        let call = self.call(id);
        self.machine.ask(call, id, self.now);
    }

    fn tell(&mut self, id: &'static str) {
        let mut call = self.call(id);
        call.pattern = Pattern::Tell;
        self.machine.tell(call, id);
    }

    fn register(&mut self, address: &str) -> Value {
        let registration =
            Registration { address: address.into(), capabilities: vec!["a".into()], metadata: serde_json::Map::new() };
        self.machine.register(registration, "register", self.now);
        self.sent().remove(0)
    }

    fn registered(&mut self, to: &Value, version: u64) {
        let payload = json!({"actorAddress": "@(a)", "expiresAt": 1, "renewalToken": "t", "version": version});
        self.answer(to, "hub:registered", &payload);
    }

    /// Waits for the reconnect delay, then connects.
    fn reconnect(&mut self, session: &str, resumed: bool) -> Value {
        while matches!(self.machine.phase(), Phase::Down { .. }) {
            self.wait_until_due();
        }
        self.connect(session, resumed)
    }
}

/// Asserts that a frame matches the protocol's JSON schema.
fn assert_described(frame: &Value) {
    static TO_HUB: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
        let page = include_str!("../../../../docs/reference/hub.schema.json");
        let mut schema: Value = serde_json::from_str(page).unwrap();
        let whole = schema.as_object_mut().unwrap();
        whole.remove("anyOf");
        whole.insert("$ref".into(), json!("#/$defs/toHub"));
        jsonschema::validator_for(&schema).unwrap()
    });
    let wrong: Vec<String> = TO_HUB.iter_errors(frame).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{frame}: {wrong:?}");
}

fn ids(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["id"].as_str().unwrap()).collect()
}

#[test]
fn the_first_frame_says_which_protocol_and_later_ones_which_session() {
    let mut scene = Scene::new(settings());
    let greeting = scene.connect("s-1", false);
    assert_eq!(
        (&greeting["type"], &greeting["payload"]),
        (&json!("hub:connect"), &json!({"protocolVersion": "0.1.0", "acks": "together"}))
    );
    scene.lose(None);
    let greeting = scene.reconnect("s-1", true);
    assert_eq!(greeting["payload"]["resume"], json!({"sessionId": "s-1"}));
}

#[test]
fn a_session_that_the_hub_cannot_go_on_with_is_left() {
    let mut scene = Scene::up();
    scene.lose(None);
    scene.wait_until_due();
    scene.machine.dial(None);
    scene.machine.opened(scene.now);
    scene.sent();
    scene.come(&json!({"type": "hub:error", "payload": {"code": "invalid_message", "message": "no such session"}}));
    let greeting = scene.reconnect("s-2", false);
    assert_eq!(greeting["payload"], json!({"protocolVersion": "0.1.0", "acks": "together"}));
}

#[test]
fn an_ask_is_repeated_with_the_same_id_and_then_given_up() {
    let mut scene = Scene::up();
    scene.said();
    scene.ask("q");
    let mut attempts = Vec::new();
    let start = scene.now.boot;
    while scene.said.is_empty() {
        for frame in scene.sent().iter().filter(|frame| frame["type"] == "hub:send") {
            assert_eq!((&frame["id"], &frame["pattern"]), (&json!("q"), &json!("ask")));
            attempts.push((frame["metadata"]["attemptNumber"].clone(), (scene.now.boot - start).as_secs()));
        }
        scene.wait_until_due();
        // Heartbeats are answered, so that the connection stays open.
        scene.come(&json!({"type": "hub:heartbeat_ack"}));
    }
    assert_eq!(attempts, [(json!(1), 0), (json!(2), 31), (json!(3), 63)]);
    assert_eq!((scene.now.boot - start).as_secs(), 93);
    assert_eq!(scene.said(), ["q: Timeout the hub did not answer `hub:send`, sent 3 times"]);
    assert!(!scene.machine.is_asked());
}

#[test]
fn after_a_reconnect_asks_are_repeated_at_once_in_their_order_before_what_waits() {
    let mut scene = Scene::up();
    let registered = scene.register("@(a)");
    scene.registered(&registered, 1);
    for id in ["q-1", "q-2"] {
        scene.ask(id);
    }
    assert_eq!(ids(&scene.sent()), ["q-1", "q-2"]);
    scene.lose(None);
    scene.tell("t-1");
    scene.ask("q-3");
    scene.reconnect("s-1", true);
    let first = scene.sent();
    assert_eq!(
        (first.len(), &first[0]["type"]),
        (1, &json!("hub:register")),
        "nothing else is sent before the addresses are registered"
    );
    scene.registered(&first[0], 2);
    let sent = scene.sent();
    assert_eq!(ids(&sent), ["q-1", "q-2", "t-1", "q-3"]);
    assert_eq!(sent[0]["metadata"]["attemptNumber"], 2);
    assert_eq!(sent[2]["metadata"], json!({}), "a tell has no attempt number");
    assert!(sent.iter().all(|frame| frame["from"] == "@(a)"));
    scene.said();
    scene.answer(&sent[0], "hub:delivery_ack", &json!({"status": "delivered"}));
    scene.answer(&sent[0], "hub:delivery_ack", &json!({"status": "delivered"}));
    assert_eq!(scene.said(), [r#"q-1: hub:delivery_ack {"status":"delivered"}"#], "a second answer is ignored");
}

#[test]
fn several_answers_at_once_are_each_what_one_alone_would_be() {
    let mut scene = Scene::up();
    scene.said();
    for name in ["q-1", "q-2", "q-3"] {
        scene.ask(name);
    }
    let sent = scene.sent();
    let ids = [&sent[0]["id"], &sent[2]["id"], &json!("another's")];
    let payload = json!({"status": "delivered", "deliveredAt": 5, "messageIds": ids});
    scene.come(&json!({"type": "hub:delivery_acks", "payload": payload}));
    let answer =
        |id: &str| format!(r#"{id}: hub:delivery_ack {{"deliveredAt":5,"messageId":"{id}","status":"delivered"}}"#);
    assert_eq!(scene.said(), [answer("q-1"), answer("q-3")]);
    scene.come(&json!({"type": "hub:delivery_acks", "payload": {"messageIds": "q-2"}}));
    assert_eq!(scene.said(), [] as [String; 0], "an invalid frame answers no call");
    scene.answer(&sent[1], "hub:delivery_ack", &json!({"status": "queued"}));
    assert_eq!(scene.said(), [r#"q-2: hub:delivery_ack {"status":"queued"}"#]);
}

#[test]
fn a_pause_holds_everything_but_heartbeats_acks_and_the_farewell() {
    let mut scene = Scene::up();
    scene.come(&json!({"type": "hub:pause", "payload": {"reason": "outbound_queue_full", "address": "@(b)"}}));
    scene.ask("q");
    scene.tell("t");
    scene.machine.acknowledge("m".into());
    assert_eq!(scene.sent_types(), ["hub:ack"]);
    // Nothing is due before the next heartbeat: a pause is not polled.
    assert_eq!(scene.wait_until_due(), Duration::from_secs(30));
    assert_eq!(scene.sent_types(), ["hub:heartbeat"]);
    scene.come(&json!({"type": "hub:resume", "payload": {}}));
    assert_eq!(ids(&scene.sent()), ["q", "t"]);
    scene.come(&json!({"type": "hub:pause", "payload": {}}));
    scene.machine.close();
    assert_eq!(scene.sent_types(), ["hub:disconnect"]);
}

#[test]
fn a_pause_ends_with_its_connection() {
    let mut scene = Scene::up();
    scene.come(&json!({"type": "hub:pause", "payload": {}}));
    scene.tell("t");
    scene.lose(None);
    scene.reconnect("s-1", true);
    assert_eq!(ids(&scene.sent()), ["t"]);
}

#[test]
fn too_much_is_sent_again_when_the_hub_says_so() {
    let mut scene = Scene::up();
    scene.ask("q-1");
    let sent = scene.sent();
    scene.said();
    scene.answer(&sent[0], "hub:rate_limited", &json!({"retryAfter": 250, "message": "m"}));
    scene.ask("q-2");
    assert!(scene.sent().is_empty());
    assert_eq!(scene.wait_until_due(), Duration::from_millis(250));
    assert_eq!(ids(&scene.sent()), ["q-1", "q-2"]);
    assert!(scene.said().is_empty(), "a retried ask causes no event");
    scene.answer(&json!({"id": "t"}), "hub:rate_limited", &json!({"retryAfter": 250, "message": "m"}));
    assert_eq!(scene.said(), ["Refused"], "a lost tell is reported");
}

#[test]
fn a_request_waits_for_the_reply_and_not_only_for_the_delivery() {
    let mut scene = Scene::up();
    let mut call = scene.call("q");
    (call.reply, call.patience) = (true, Duration::from_secs(300));
    scene.machine.ask(call, "q", scene.now);
    let sent = scene.sent();
    scene.said();
    scene.answer(&sent[0], "hub:delivery_ack", &json!({"status": "queued"}));
    assert!(scene.said().is_empty());
    scene.wait(Duration::from_secs(80));
    assert_eq!(scene.sent_types(), ["hub:heartbeat"], "an accepted message is not repeated");
    scene.come(&json!({"id": "h", "type": "done", "correlationId": "q", "payload": 7, "from": "@(b)", "to": "@(a)"}));
    scene.come(&json!({"id": "h", "type": "done", "correlationId": "q", "payload": 7, "from": "@(b)", "to": "@(a)"}));
    assert_eq!(scene.said(), ["q: done 7"]);
}

#[test]
fn heartbeats_are_sent_into_silence_and_silence_is_a_broken_connection() {
    let mut scene = Scene::up();
    for _ in 0..2 {
        scene.wait_until_due();
        assert_eq!(scene.sent_types(), ["hub:heartbeat"]);
    }
    scene.wait(Duration::from_secs(30));
    assert!(matches!(scene.machine.phase(), Phase::Down { .. }));
}

#[test]
fn leases_are_renewed_at_a_third_and_asked_for_again_if_that_fails() {
    let mut scene = Scene::up();
    let register = scene.register("@(a)");
    assert_eq!(
        register["payload"],
        json!({"actorAddress": "@(a)", "capabilities": ["a"], "metadata": {}, "ttlSeconds": 300})
    );
    scene.registered(&register, 1);
    let start = scene.now.boot;
    let mut renewals = Vec::new();
    while renewals.len() < 2 {
        scene.wait_until_due();
        scene.come(&json!({"type": "hub:heartbeat_ack"}));
        for frame in scene.sent().into_iter().filter(|frame| frame["type"] == "hub:renew") {
            assert_eq!(frame["payload"], json!({"renewalToken": "t"}));
            scene.answer(&frame, "hub:renewed", &json!({}));
            renewals.push((scene.now.boot - start).as_secs());
        }
    }
    assert_eq!(renewals, [100, 200]);
    let renew = loop {
        scene.wait_until_due();
        scene.come(&json!({"type": "hub:heartbeat_ack"}));
        if let Some(frame) = scene.sent().into_iter().find(|frame| frame["type"] == "hub:renew") {
            break frame;
        }
    };
    scene.answer(&renew, "hub:error", &json!({"code": "invalid_message", "message": "no such lease"}));
    assert_eq!(scene.sent_types(), ["hub:register"]);
}

#[test]
fn an_address_that_is_refused_for_good_is_told_and_the_rest_goes_on() {
    let mut scene = Scene::up();
    let register = scene.register("@(a)");
    scene.registered(&register, 1);
    scene.lose(Some(4002));
    scene.reconnect("s-1", true);
    scene.tell("t");
    let register = scene.sent().remove(0);
    scene.said();
    scene.answer(&register, "hub:unauthorized", &json!({"message": "m"}));
    assert_eq!(scene.said(), ["Unregistered"]);
    let sent = scene.sent();
    assert_eq!((ids(&sent), &sent[0]["from"]), (vec!["t"], &json!("@(session/s-1)")));
}

#[test]
fn what_a_close_code_says_is_done() {
    let table: [(Option<u16>, Option<ErrorKind>); 9] = [
        (Some(1000), Some(ErrorKind::Closed)),
        (Some(1009), Some(ErrorKind::TooLarge)),
        (Some(4000), Some(ErrorKind::TakenOver)),
        (Some(4004), Some(ErrorKind::Invalid)),
        (Some(1001), None),
        (Some(4001), None),
        (Some(4002), None),
        (Some(4003), None),
        (None, None),
    ];
    for (code, ends) in table {
        let mut scene = Scene::up();
        scene.ask("q");
        scene.sent();
        scene.lose(code);
        match (ends, scene.machine.phase().clone()) {
            (Some(kind), Phase::Ended(error)) => {
                assert_eq!(error.kind(), kind);
                assert!(
                    scene.said().last().unwrap().starts_with(&format!("q: {kind:?} ")),
                    "the open call fails with the reason"
                );
            }
            (None, Phase::Down { retry_at }) => assert_eq!(retry_at == scene.now.boot, code == Some(1001), "{code:?}"),
            (_, phase) => panic!("{code:?}: {phase:?}"),
        }
    }
}

#[test]
fn waits_between_tries_grow_until_a_connection_has_lasted() {
    let mut scene = Scene::up();
    let mut lengths = Vec::new();
    for _ in 0..4 {
        scene.said();
        scene.lose(None);
        lengths.push(scene.said().remove(0).trim_start_matches("disconnected ").parse::<u64>().unwrap());
        scene.wait_until_due();
        assert!(matches!(scene.machine.phase(), Phase::Dialing));
    }
    assert!((50..=100).contains(&lengths[0]) && (400..=800).contains(&lengths[3]), "{lengths:?}");
    scene.connect("s-1", true);
    scene.wait(SETTLED_AFTER);
    scene.said();
    scene.lose(Some(1001));
    assert_eq!(scene.said(), ["disconnected 0"]);
    scene.wait_until_due();
    scene.connect("s-1", true);
    scene.said();
    scene.lose(Some(1001));
    assert_ne!(scene.said(), ["disconnected 0"], "only the first reconnect has no delay");
}

#[test]
fn a_first_connection_that_fails_is_told_and_not_tried_again() {
    let mut scene = Scene::new(settings());
    scene.lose(None);
    assert!(matches!(scene.machine.phase(), Phase::Ended(error) if error.kind() == ErrorKind::Unreachable));
    let mut scene = Scene::new(settings());
    scene.machine.opened(scene.now);
    scene.sent();
    scene.wait_until_due();
    assert!(matches!(scene.machine.phase(), Phase::Ended(_)), "a server without a greeting is not a hub");
    let mut scene = Scene::new(settings());
    scene.machine.opened(scene.now);
    scene.come(&json!({"type": "hub:error", "payload": {"code": "version_mismatch", "message": "m"}}));
    assert!(matches!(scene.machine.phase(), Phase::Ended(error) if error.kind() == ErrorKind::VersionMismatch));
}

#[test]
fn a_refused_token_is_not_tried_twice_and_another_is() {
    let mut scene = Scene::up();
    scene.lose(Some(4001));
    scene.wait_until_due();
    scene.machine.dial(Some("new".into()));
    assert!(matches!(scene.machine.phase(), Phase::Dialing));
    scene.machine.opened(scene.now);
    scene.come(&json!({"type": "hub:unauthorized", "payload": {"message": "m"}}));
    scene.wait_until_due();
    scene.machine.dial(Some("new".into()));
    assert!(matches!(scene.machine.phase(), Phase::Ended(error) if error.kind() == ErrorKind::Unauthorized));
}

#[test]
fn a_message_is_given_once_and_acknowledged_as_often_as_it_comes() {
    let mut scene = Scene::up();
    scene.said();
    let message = json!({"id": "h-1", "from": "@(b)", "to": "@(a)", "type": "job", "pattern": "tell",
        "metadata": {"requireAck": true}});
    scene.come(&message);
    scene.come(&message);
    assert_eq!(scene.said(), ["direct h-1"]);
    assert!(scene.sent().is_empty(), "the application has not acknowledged it");
    scene.machine.acknowledge("h-1".into());
    assert_eq!(scene.sent()[0]["payload"], json!({"messageId": "h-1"}));
    scene.come(&message);
    assert_eq!(scene.sent_types(), ["hub:ack"], "the first acknowledgement may have been lost");
    scene.come(&json!({"id": "h-2", "type": "job", "to": "@(a)"}));
    scene.machine.forget("h-2");
    scene.come(&json!({"id": "h-2", "type": "job", "to": "@(a)"}));
    assert_eq!(scene.said(), ["direct h-2", "direct h-2"]);
}

#[test]
fn acks_wait_for_the_connection() {
    let mut scene = Scene::up();
    scene.lose(None);
    scene.machine.acknowledge("h-1".into());
    assert!(scene.sent().is_empty());
    scene.reconnect("s-1", true);
    assert_eq!(scene.sent_types(), ["hub:ack"]);
}

#[test]
fn a_subscription_goes_on_after_the_last_that_was_given() {
    let mut scene = Scene::up();
    scene.machine.subscribe(1, "orders".into(), None, "sub", scene.now);
    let sent = scene.sent();
    assert_eq!(sent[0]["payload"], json!({"topic": "orders"}));
    scene.said();
    scene.answer(&sent[0], "hub:subscribed", &json!({"topic": "orders", "subscriptionId": "x", "epoch": 4, "seq": 9}));
    assert!(scene.said().remove(0).starts_with("sub: hub:subscribed"));
    let message = |seq: u64| json!({"id": "h", "type": "new", "to": "@(topic/orders)", "metadata": {"topic": "orders", "epoch": 4, "seq": seq}});
    scene.come(&message(10));
    scene.come(&message(11));
    scene.lose(None);
    scene.reconnect("s-1", true);
    let sent = scene.sent();
    assert_eq!(sent[0]["payload"], json!({"topic": "orders", "after": {"epoch": 4, "seq": 11}}));
    scene.answer(&sent[0], "hub:subscribed", &json!({"epoch": 4, "seq": 20, "subscriptionId": "y"}));
    scene.said();
    scene.come(&json!({"type": "hub:gap", "payload": {"topic": "orders", "epoch": 4, "from": 12, "to": 14}}));
    scene.come(&message(15));
    assert_eq!(scene.said(), ["gap Some(12)..14", "topic 4:15"]);
    scene.machine.fell_behind(1, Some(Position { epoch: 4, seq: 14 }));
    scene.come(&message(16));
    assert!(scene.said().is_empty() && scene.sent().is_empty());
    scene.machine.caught_up(1, scene.now);
    assert_eq!(scene.sent()[0]["payload"]["after"], json!({"epoch": 4, "seq": 14}));
    scene.machine.unsubscribe(1, scene.now);
    let sent = scene.sent();
    assert_eq!((&sent[0]["type"], &sent[0]["payload"]), (&json!("hub:unsubscribe"), &json!({"subscriptionId": "y"})));
    scene.come(&message(15));
    assert!(scene.said().is_empty());
    scene.answer(&sent[0], "hub:error", &json!({"code": "invalid_message", "message": "no such subscription"}));
    assert!(scene.said().is_empty(), "the answer to an unsubscribe is ignored");
}

#[test]
fn a_subscription_that_is_dropped_before_it_is_there_is_ended_then() {
    let mut scene = Scene::up();
    scene.machine.subscribe(1, "orders".into(), None, "first", scene.now);
    let first = scene.sent().remove(0);
    scene.machine.unsubscribe(1, scene.now);
    scene.machine.subscribe(2, "orders".into(), None, "second", scene.now);
    let second = scene.sent().remove(0);
    scene.said();
    scene.answer(&first, "hub:subscribed", &json!({"epoch": 4, "seq": 9, "subscriptionId": "x"}));
    assert_eq!(scene.sent()[0]["payload"], json!({"subscriptionId": "x"}), "the newer subscription stays");
    scene.answer(&second, "hub:subscribed", &json!({"epoch": 4, "seq": 9, "subscriptionId": "y"}));
    assert!(scene.said().remove(0).starts_with("second: hub:subscribed"));
}

#[test]
fn a_subscription_that_the_hub_ends_or_refuses_is_told() {
    let mut scene = Scene::up();
    for (key, waiter) in [(1, "first"), (2, "second")] {
        scene.machine.subscribe(key, "orders".into(), None, waiter, scene.now);
    }
    assert_eq!(scene.said().pop().unwrap(), "second: Invalid this client is subscribed to `orders` already");
    let sent = scene.sent();
    scene.answer(&sent[0], "hub:subscribed", &json!({"epoch": 4, "seq": 9}));
    scene.said();
    scene.come(&json!({"type": "hub:unsubscribed", "payload": {"topic": "orders", "reason": "why"}}));
    assert_eq!(scene.said(), ["end why"]);
    scene.machine.subscribe(3, "secret".into(), None, "third", scene.now);
    let sent = scene.sent();
    scene.answer(&sent[0], "hub:unauthorized", &json!({"message": "not yours"}));
    assert_eq!(scene.said(), ["third: Unauthorized not yours"]);
}

#[test]
fn what_is_too_large_never_leaves() {
    let mut scene = Scene::up();
    scene.said();
    for pattern in [Pattern::Ask, Pattern::Tell] {
        let mut call = scene.call("large");
        (call.pattern, call.payload) = (pattern, raw(&"x".repeat(2_000)).unwrap());
        match pattern {
            Pattern::Ask => scene.machine.ask(call, "large", scene.now),
            Pattern::Tell => scene.machine.tell(call, "large"),
        }
    }
    scene.ask("small");
    assert_eq!(ids(&scene.sent()), ["small"]);
    let said = scene.said();
    assert!(said[0].starts_with("large: TooLarge a message of 2") && said[1] == "Refused", "{said:?}");
}

#[test]
fn closing_sends_what_waits_and_then_says_good_bye() {
    let mut scene = Scene::up();
    scene.ask("q");
    scene.tell("t");
    scene.machine.close();
    assert_eq!(scene.sent_types(), ["hub:send", "hub:send", "hub:disconnect"]);
    scene.said();
    scene.come(&json!({"type": "hub:disconnect", "payload": {"acknowledged": true}}));
    scene.lose(Some(1000));
    assert_eq!(scene.said(), ["q: Closed the client is closed"]);
    let mut scene = Scene::up();
    scene.machine.close();
    scene.sent();
    assert_eq!(scene.wait_until_due(), CLOSE_TIMEOUT);
    assert!(matches!(scene.machine.phase(), Phase::Ended(_)), "the client ends without the hub's answer");
}

#[test]
fn an_id_stands_for_one_message() {
    let mut scene = Scene::up();
    scene.ask("q");
    scene.ask("q");
    assert!(scene.said().pop().unwrap().starts_with("q: Invalid another call with this id"));
}

#[test]
fn an_ask_for_an_actor_of_another_server_is_repeated_there() {
    let mut scene = Scene::up();
    let register = scene.register("@(a)");
    scene.registered(&register, 1);
    scene.ask("one");
    scene.ask("two");
    let sent = scene.sent();
    scene.said();
    let elsewhere = json!({"code": "elsewhere", "message": "m", "retryable": false,
        "details": {"targetAddress": "@(b)", "url": "ws://two/hub"}});
    scene.answer(&sent[0], "hub:error", &elsewhere);
    assert_eq!(scene.said(), ["move ws://two/hub", "Moved"]);
    let greeting = scene.reconnect("s-1", true);
    assert_eq!(greeting["payload"]["resume"]["sessionId"], "s-1", "the session resumes on the other server");
    let register = scene.sent().remove(0);
    assert_eq!(register["type"], "hub:register", "the addresses are registered again");
    scene.registered(&register, 2);
    assert_eq!(ids(&scene.sent()), ["one", "two"]);
}

#[test]
fn a_client_that_is_sent_to_and_fro_gives_up() {
    let mut scene = Scene::up();
    scene.ask("one");
    let elsewhere = json!({"code": "elsewhere", "message": "m", "details": {"url": "ws://two/hub"}});
    for _ in 0..3 {
        let sent = scene.sent().remove(0);
        scene.answer(&sent, "hub:error", &elsewhere);
        scene.said();
        scene.reconnect("s-1", true);
        scene.said();
    }
    let sent = scene.sent().remove(0);
    scene.answer(&sent, "hub:error", &elsewhere);
    assert_eq!(scene.said(), ["one: Elsewhere m"]);
    // After the time window of the limit, the client moves again.
    scene.wait(Duration::from_secs(11));
    scene.ask("two");
    let sent = scene.sent();
    let ask = sent.iter().find(|frame| frame["id"] == "two").unwrap().clone();
    scene.answer(&ask, "hub:error", &elsewhere);
    assert_eq!(scene.said(), ["move ws://two/hub", "Moved"]);
}

#[test]
fn a_call_waits_for_as_long_as_its_target_makes_progress() {
    let mut scene = Scene::up();
    scene.said();
    scene.ask("one");
    let sent = scene.sent().remove(0);
    for _ in 0..10 {
        scene.wait(Duration::from_secs(25));
        scene.sent();
        scene.answer(&sent, "hub:progress", &json!({"messageId": "one", "until": 1}));
        assert_eq!(scene.said(), [] as [&str; 0], "neither repeated nor given up");
    }
    scene.answer(&sent, "hub:delivery_ack", &json!({"messageId": "one", "status": "delivered"}));
    assert_eq!(scene.said().len(), 1);
    scene.machine.progress("h-1".into());
    assert_eq!(scene.sent_types(), ["hub:progress"]);
}
