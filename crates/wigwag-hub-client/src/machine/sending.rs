//! Outgoing frames by priority: heartbeats and acks first, then calls of the client itself, then the users' calls.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::calls::{Call, State, Who};
use super::leases::{Lease, Registration};
use super::topics::Topic;
use super::{Machine, Now, Output, Phase, Position, Waiting, leases, topics};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::frame::{Outgoing, Pattern, null, raw};
use crate::limits::CLOSE_TIMEOUT;

impl<W> Machine<W> {
    /// Queues a user's message that expects an answer.
    pub(crate) fn ask(&mut self, call: Call, waiter: W, now: Now) {
        if self.calls.knows(&call.id) {
            let error = Error::invalid(format!("another call with this id waits for its answer: `{}`", call.id))
                .hint("ids are unique per message; omit it to generate one");
            return self.outputs.push_back(Output::Answer(waiter, Err(error)));
        }
        let patience = self.settings.patience().max(call.patience);
        let key = self.calls.insert(call, Who::User(waiter), now.boot + patience);
        self.outbox.push_back(Waiting::Ask(key));
    }

    /// Queues a user's message without an answer; `waiter` is dropped once the message is sent.
    pub(crate) fn tell(&mut self, call: Call, waiter: W) {
        self.outbox.push_back(Waiting::Tell(call, Some(waiter)));
    }

    /// Registers an address, now and after each reconnect.
    pub(crate) fn register(&mut self, registration: Registration, waiter: W, now: Now) {
        let lease = Lease { registration, state: leases::State::Wanted, waiter: Some(waiter) };
        let is_same = |known: &&mut Lease<W>| known.registration.address == lease.registration.address;
        match self.leases.iter_mut().find(is_same) {
            Some(known) if known.waiter.is_some() => {
                let error = Error::invalid(format!("`{}` is already being registered", lease.registration.address));
                self.outputs.extend(lease.waiter.map(|waiter| Output::Answer(waiter, Err(error))));
            }
            Some(known) => *known = lease,
            None => self.leases.push(lease),
        }
        self.advance(now);
    }

    /// Stops registering and renewing an address, even if the call `hub:unregister` fails.
    pub(crate) fn disown(&mut self, address: &str) {
        self.leases.retain(|lease| lease.registration.address != address);
    }

    pub(crate) fn subscribe(&mut self, key: u64, name: String, after: Option<Position>, waiter: W, now: Now) {
        if self.topics.values().any(|topic| topic.name == name) {
            let error = Error::invalid(format!("this client is subscribed to `{name}` already"))
                .hint("share that subscription, or drop it first");
            return self.outputs.push_back(Output::Answer(waiter, Err(error)));
        }
        self.topics.insert(key, Topic::new(name, after, waiter));
        self.advance(now);
    }

    /// Ends a subscription whose subscriber was dropped.
    pub(crate) fn unsubscribe(&mut self, key: u64, now: Now) {
        let Some(topic) = self.topics.remove(&key) else { return };
        let asked = |pending: &super::calls::Pending<W>| matches!(pending.who, Who::Subscribe(of) if of == key);
        for call in self.calls.keys() {
            if self.calls.get(call).is_some_and(asked) {
                self.calls.remove(call);
            }
        }
        if let Some(id) = topic.id {
            self.let_go(&id, now);
        }
    }

    /// Ends a subscription by its id, because the same topic may already have a newer subscription.
    pub(super) fn let_go(&mut self, subscription: &str, now: Now) {
        if matches!(self.phase, Phase::Up) {
            self.ask_hub("hub:unsubscribe", &json!({"subscriptionId": subscription}), Who::Unsubscribe, now);
        }
    }

    /// Requests a topic again after its slow subscriber has caught up.
    pub(crate) fn caught_up(&mut self, key: u64, now: Now) {
        if let Some(topic) = self.topics.get_mut(&key).filter(|topic| topic.state == topics::State::Behind) {
            topic.state = topics::State::Wanted;
        }
        self.advance(now);
    }

    /// Marks a subscriber as slow: it had no space for the item after the position `before`.
    pub(crate) fn fell_behind(&mut self, key: u64, before: Option<Position>) {
        if let Some(topic) = self.topics.get_mut(&key) {
            topic.behind(before);
        }
    }

    pub(crate) fn is_live(&self, key: u64) -> bool {
        self.topics.get(&key).is_some_and(|topic| topic.state != topics::State::Behind)
    }

    /// Queues the acknowledgement of a message.
    pub(crate) fn acknowledge(&mut self, id: String) {
        self.seen.acknowledge(&id);
        // A full queue drops the acknowledgement; the hub redelivers the message, which is then acknowledged again.
        if self.acks.len() < self.settings.seen {
            self.acks.push_back(("hub:ack", id));
        }
    }

    /// Queues a progress notice for a message.
    pub(crate) fn progress(&mut self, id: String) {
        if self.acks.len() < self.settings.seen {
            self.acks.push_back(("hub:progress", id));
        }
    }

    /// Forgets a message that was not acknowledged, so that a redelivery reaches the application.
    pub(crate) fn forget(&mut self, id: &str) {
        self.seen.forget(id);
    }

    /// Returns the next frame to write, if the phase and the hub's limits allow one.
    pub(crate) fn next_frame(&mut self, now: Now) -> Option<String> {
        let frame = match self.phase {
            Phase::Greeting { .. } => self.greeting.take()?,
            Phase::Restoring | Phase::Up => {
                let vital = self.heartbeat(now).or_else(|| self.next_ack(now));
                vital.or_else(|| self.next_call(now)).or_else(|| self.farewell(now))?
            }
            _ => return None,
        };
        self.link.sent_at = now.boot;
        Some(frame)
    }

    fn heartbeat(&mut self, now: Now) -> Option<String> {
        let is_due = self.link.sent_at + self.link.interval <= now.boot;
        is_due.then(|| self.own_frame("hub:heartbeat", Pattern::Tell, &json!({"timestamp": now.wall}), now))
    }

    fn next_ack(&mut self, now: Now) -> Option<String> {
        let may = matches!(self.phase, Phase::Up);
        let (kind, id) = if may { self.acks.pop_front() } else { None }?;
        Some(self.own_frame(kind, Pattern::Tell, &json!({"messageId": id}), now))
    }

    fn farewell(&mut self, now: Now) -> Option<String> {
        if !self.is_closing {
            return None;
        }
        self.phase = Phase::Closing { until: now.boot + CLOSE_TIMEOUT };
        Some(self.own_frame("hub:disconnect", Pattern::Tell, &json!({"reason": "closed"}), now))
    }

    fn next_call(&mut self, now: Now) -> Option<String> {
        if self.link.is_paused || now.boot < self.hold_until {
            return None;
        }
        while let Some(key) = self.urgent.pop_front() {
            if let Some(frame) = self.send(key, now) {
                return Some(frame);
            }
        }
        while matches!(self.phase, Phase::Up) {
            let frame = match self.outbox.pop_front()? {
                Waiting::Ask(key) => self.send(key, now),
                Waiting::Tell(call, _) => self.send_told(&call),
            };
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    /// Returns the next attempt of a call, unless the call is closed or too large.
    fn send(&mut self, key: u64, now: Now) -> Option<String> {
        let pending = self.calls.get_mut(key).filter(|pending| pending.state == State::Held)?;
        pending.sent += 1;
        let (attempt, late) = (pending.sent, pending.late);
        let frame = self.encode(&self.calls.get(key)?.call, Some(attempt));
        if frame.len() > self.link.size_max {
            self.answer(key, Err(self.too_large(frame.len())));
            return None;
        }
        let is_last = late + 1 >= self.settings.attempts;
        self.calls.set(key, State::Sent, (!is_last).then(|| now.boot + self.settings.answer_timeout));
        Some(frame)
    }

    fn send_told(&mut self, call: &Call) -> Option<String> {
        let frame = self.encode(call, None);
        if frame.len() <= self.link.size_max {
            return Some(frame);
        }
        let (id, error) = (Some(call.id.clone()), self.too_large(frame.len()));
        self.outputs.push_back(Output::Event(Event::Refused { id, error }));
        None
    }

    fn too_large(&self, size: usize) -> Error {
        let what = format!("a message of {size} bytes is too large: the hub accepts {}", self.link.size_max);
        Error::new(ErrorKind::TooLarge, what).hint("store the data elsewhere and send a reference")
    }

    fn encode(&self, call: &Call, attempt: Option<u32>) -> String {
        let mut metadata = call.metadata.clone();
        if let (Pattern::Ask, Some(attempt)) = (call.pattern, attempt) {
            metadata.insert("attemptNumber".into(), attempt.into());
        }
        let from = call.from.as_deref().unwrap_or_else(|| self.main_address());
        outgoing(call, from, &metadata).encode()
    }

    /// Returns the first registered address, or else the session's address.
    fn main_address(&self) -> &str {
        let held = self.leases.iter().find(|lease| lease.is_held());
        held.map_or_else(|| self.session_address(), |lease| lease.registration.address.as_str())
    }

    fn session_address(&self) -> &str {
        self.session.as_ref().map_or("@(session/new)", |session| session.address.as_str())
    }

    /// Encodes a frame of the client itself whose answer is not awaited.
    pub(super) fn own_frame(&mut self, kind: &'static str, pattern: Pattern, payload: &Value, now: Now) -> String {
        let call = self.own_call(kind, pattern, payload, now);
        outgoing(&call, self.session_address(), &call.metadata).encode()
    }

    pub(super) fn own_call(&mut self, kind: &'static str, pattern: Pattern, payload: &Value, now: Now) -> Call {
        Call {
            kind,
            id: self.new_id(),
            pattern,
            from: None,
            timestamp: now.wall,
            payload: raw(payload).unwrap_or_else(|_| null()),
            metadata: Map::new(),
            ttl: None,
            reply: false,
            patience: Duration::ZERO,
        }
    }

    /// Queues a call of the client itself.
    pub(super) fn ask_hub(&mut self, kind: &'static str, payload: &Value, who: Who<W>, now: Now) {
        let call = self.own_call(kind, Pattern::Ask, payload, now);
        let key = self.calls.insert(call, who, now.boot + self.settings.patience());
        self.urgent.push_back(key);
    }

    pub(super) fn ask_for_leases(&mut self, now: Now) {
        let ttl = self.settings.lease.as_secs();
        let mut wanted = Vec::new();
        for lease in self.leases.iter_mut().filter(|lease| lease.state == leases::State::Wanted) {
            lease.state = leases::State::Asked;
            let Registration { address, capabilities, metadata } = &lease.registration;
            let payload = json!({
                "actorAddress": address, "capabilities": capabilities, "metadata": metadata, "ttlSeconds": ttl
            });
            wanted.push((address.clone(), payload));
        }
        for (address, payload) in wanted {
            self.ask_hub("hub:register", &payload, Who::Register(address), now);
        }
    }

    pub(super) fn renew_leases(&mut self, now: Now) {
        let mut due = Vec::new();
        for lease in &mut self.leases {
            if let leases::State::Held { token, renew_at } = &lease.state
                && *renew_at <= now.boot
            {
                due.push((lease.registration.address.clone(), json!({"renewalToken": token})));
                lease.state = leases::State::Renewing;
            }
        }
        for (address, payload) in due {
            self.ask_hub("hub:renew", &payload, Who::Renew(address), now);
        }
    }

    pub(super) fn ask_for_topics(&mut self, now: Now) {
        let mut wanted = Vec::new();
        for (key, topic) in self.topics.iter_mut().filter(|(_, topic)| topic.state == topics::State::Wanted) {
            let mut payload = json!({"topic": topic.name});
            if let Some(after) = topic.ask() {
                payload["after"] = json!(after);
            }
            wanted.push((*key, payload));
        }
        for (key, payload) in wanted {
            self.ask_hub("hub:subscribe", &payload, Who::Subscribe(key), now);
        }
    }
}

fn outgoing<'a>(call: &'a Call, from: &'a str, metadata: &'a Map<String, Value>) -> Outgoing<'a> {
    let payload: &RawValue = &call.payload;
    Outgoing {
        id: &call.id,
        from,
        to: "@(hub)",
        kind: call.kind,
        pattern: call.pattern,
        timestamp: call.timestamp,
        payload,
        metadata,
        ttl: call.ttl,
    }
}
