//! Incoming frames: greetings, answers, rejections, messages, and notices from the hub.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::calls::{State, Who};
use super::leases::{Lease, State as LeaseState};
use super::seen::Fate;
use super::topics::Item;
use super::{Connected, Gap, Link, Lost, Machine, Now, Output, Phase, Position, Session, Waiting, reason_of};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::frame::Incoming;
use crate::limits::RETRY_REST;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Registered {
    renewal_token: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subscribed {
    #[serde(flatten)]
    at: Position,
    subscription_id: Option<String>,
}

#[derive(Deserialize)]
struct GapTold {
    topic: String,
    epoch: u64,
    from: Option<u64>,
    to: Option<u64>,
}

impl<W> Machine<W> {
    /// Handles an incoming text frame.
    pub(crate) fn frame(&mut self, text: &str, now: Now) {
        self.link.heard_at = now.boot;
        let frame = match Incoming::read(text) {
            Ok(frame) => frame,
            Err(error) => return tracing::warn!(%error, "ignored an invalid frame from the hub"),
        };
        match (&self.phase, frame.kind.as_str()) {
            (Phase::Greeting { .. }, _) => self.greeted(&frame, now),
            (_, "pong") => {}
            (_, kind) if kind.starts_with("hub:") => self.told(frame, now),
            _ => self.delivered(frame),
        }
        self.advance(now);
    }

    /// Handles the answer to `hub:connect`.
    fn greeted(&mut self, frame: &Incoming, now: Now) {
        if frame.kind == "hub:connected" {
            return match frame.payload::<Connected>() {
                Ok(connected) => self.welcome(connected, now),
                Err(error) => self.end(&error),
            };
        }
        match Error::told(&frame.kind, frame.payload.get()) {
            Some(error) if error.kind() == ErrorKind::Unauthorized => {
                self.broke(Lost { code: Some(4001), what: error.to_string() }, now);
            }
            // A hub that cannot resume the session may start a new one.
            Some(error) if error.is_retryable() || (error.kind() == ErrorKind::Invalid && self.session.is_some()) => {
                self.session = self.session.take().filter(|_| error.is_retryable());
                self.broke(Lost { code: None, what: error.to_string() }, now);
            }
            Some(error) => self.end(&error),
            None if frame.kind == "hub:disconnect" => self.link.said = reason_of(frame),
            None => {}
        }
    }

    fn welcome(&mut self, connected: Connected, now: Now) {
        let Connected { session_id, address, resumed, max_message_size, heartbeat_interval } = connected;
        let fresh = Link::new(now);
        self.link = Link {
            up_since: Some(now.boot),
            interval: heartbeat_interval.map_or(fresh.interval, |millis| Duration::from_millis(millis.max(1))),
            size_max: max_message_size.unwrap_or(fresh.size_max),
            ..fresh
        };
        self.session = Some(Session { id: session_id, address: address.clone() });
        (self.was_up, self.refused, self.hold_until) = (true, None, Duration::ZERO);
        self.phase = Phase::Restoring;
        self.outputs.push_back(Output::Event(Event::Connected { address, resumed }));
    }

    /// Handles a frame from the hub itself.
    fn told(&mut self, frame: Incoming, now: Now) {
        match (frame.kind.as_str(), &frame.correlation_id) {
            ("hub:heartbeat_ack", _) => {}
            ("hub:pause", None) => {
                self.link.is_paused = true;
                let address = frame.payload::<Paused>().ok().and_then(|paused| paused.address);
                self.outputs.push_back(Output::Event(Event::Paused { address }));
            }
            ("hub:resume", None) => {
                self.link.is_paused = false;
                self.outputs.push_back(Output::Event(Event::Resumed));
            }
            ("hub:gap", None) => self.gap_told(&frame),
            ("hub:delivery_acks", None) => self.acknowledged(&frame, now),
            ("hub:unsubscribed", None) => self.topic_ended(&frame),
            ("hub:disconnect", _) => self.link.said = reason_of(&frame),
            ("hub:progress", Some(id)) => self.extended(id, now),
            (_, Some(id)) => match self.calls.key_of(id) {
                Some(key) => self.answered(key, frame, now),
                None if frame.kind == "hub:subscribed" => self.subscribed_late(&frame, now),
                None => self.refused_told(&frame, now),
            },
            (_, None) => self.refused_told(&frame, now),
        }
    }

    /// Extends the deadline of a call whose target makes progress.
    fn extended(&mut self, id: &str, now: Now) {
        if let Some(key) = self.calls.key_of(id) {
            let (due, patience) = (self.settings.answer_timeout, self.settings.patience());
            self.calls.extend(key, now.boot + due, now.boot + patience);
        }
    }

    /// Handles a batch of acknowledgements like one `hub:delivery_ack` for each message.
    fn acknowledged(&mut self, frame: &Incoming, now: Now) {
        let Ok(Acks { status, delivered_at, message_ids }) = frame.payload() else { return };
        let one = Incoming { kind: "hub:delivery_ack".to_owned(), ..frame.clone() };
        for id in message_ids {
            let Some(key) = self.calls.key_of(&id) else { continue };
            let payload = json!({"messageId": id, "deliveredAt": delivered_at, "status": status});
            if let Ok(payload) = to_raw_value(&payload) {
                self.answered(key, Incoming { correlation_id: Some(id), payload, ..one.clone() }, now);
            }
        }
    }

    /// Reports an error that belongs to no call: it rejects a message sent with `tell`.
    fn refused_told(&mut self, frame: &Incoming, now: Now) {
        let Some(error) = Error::told(&frame.kind, frame.payload.get()) else { return };
        self.hold(&error, now);
        let id = frame.correlation_id.clone();
        self.outputs.push_back(Output::Event(Event::Refused { id, error }));
    }

    /// Delays all sending after a rate limit error. Returns whether the error was one.
    fn hold(&mut self, error: &Error, now: Now) -> bool {
        let is_too_much = error.kind() == ErrorKind::RateLimited;
        if is_too_much {
            let span = error.retry_after().unwrap_or(RETRY_REST).max(Duration::from_millis(1));
            self.hold_until = self.hold_until.max(now.boot + span);
        }
        is_too_much
    }

    fn answered(&mut self, key: u64, frame: Incoming, now: Now) {
        let Some(pending) = self.calls.get(key) else { return };
        // A repeated `hub:unregister` fails if the first attempt removed the address: that counts as success.
        let is_done = pending.call.kind == "hub:unregister" && pending.sent > 1;
        if let Some(error) = Error::told(&frame.kind, frame.payload.get()).filter(|_| !is_done) {
            return self.refused(key, error, now);
        }
        match &pending.who {
            Who::User(_) if pending.call.reply && frame.kind == "hub:delivery_ack" => {
                self.calls.set(key, State::Accepted, None);
            }
            Who::User(_) => self.answer(key, Ok(frame)),
            Who::Register(address) => {
                let address = address.clone();
                self.calls.remove(key);
                self.registered(&address, frame, now);
            }
            Who::Renew(address) => {
                let address = address.clone();
                if let Some(pending) = self.calls.remove(key) {
                    let token = pending.call.payload.get().to_owned();
                    self.renewed(&address, &token, now);
                }
            }
            Who::Subscribe(topic) => {
                let topic = *topic;
                self.calls.remove(key);
                self.subscribed(topic, frame);
            }
            Who::Unsubscribe => drop(self.calls.remove(key)),
        }
    }

    fn refused(&mut self, key: u64, error: Error, now: Now) {
        if self.hold(&error, now) {
            return self.hold_back(key);
        }
        let Some(pending) = self.calls.get(key) else { return };
        let is_elsewhere = error.kind() == ErrorKind::Elsewhere && pending.call.kind == "hub:send";
        if let Some(url) = error.details().get("url").and_then(|url| url.as_str()).filter(|_| is_elsewhere)
            && self.move_to(url, now)
        {
            return;
        }
        let Some(pending) = self.calls.get(key) else { return };
        match &pending.who {
            Who::User(_) => self.answer(key, Err(error)),
            Who::Register(address) => {
                let address = address.clone();
                self.not_registered(key, &address, error, now);
            }
            Who::Renew(address) => {
                // The lease has expired, or the hub has restarted: the address is registered again.
                let address = address.clone();
                self.calls.remove(key);
                if let Some(lease) = self.lease_mut(&address) {
                    lease.state = LeaseState::Wanted;
                }
            }
            Who::Subscribe(topic) => {
                let topic = *topic;
                self.not_subscribed(key, topic, error, now);
            }
            // The subscription has already ended.
            Who::Unsubscribe => drop(self.calls.remove(key)),
        }
    }

    /// Puts a rate limited call back at the front of its queue.
    fn hold_back(&mut self, key: u64) {
        let Some(pending) = self.calls.get(key) else { return };
        match pending.who {
            Who::User(_) => self.outbox.push_front(Waiting::Ask(key)),
            _ => self.urgent.push_front(key),
        }
        self.calls.set(key, State::Held, None);
    }

    /// Completes a user's call, or a registration that failed, with its outcome.
    pub(super) fn answer(&mut self, key: u64, outcome: Result<Incoming, Error>) {
        match self.calls.remove(key).map(|pending| pending.who) {
            Some(Who::User(waiter)) => self.outputs.push_back(Output::Answer(waiter, outcome)),
            Some(Who::Register(address)) => {
                if let (Some(lease), Err(error)) = (self.lease_mut(&address), outcome) {
                    let waiter = lease.waiter.take();
                    self.leases.retain(|lease| lease.registration.address != address);
                    self.unregistered(address, waiter, error);
                }
            }
            _ => {}
        }
    }

    fn lease_mut(&mut self, address: &str) -> Option<&mut Lease<W>> {
        self.leases.iter_mut().find(|lease| lease.registration.address == address)
    }

    fn registered(&mut self, address: &str, frame: Incoming, now: Now) {
        let renew_at = now.boot + self.settings.lease / 3;
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.registration.address == address) else { return };
        let waiter = lease.waiter.take();
        match frame.payload::<Registered>() {
            Ok(Registered { renewal_token: token, version }) => {
                lease.state = LeaseState::Held { token, renew_at };
                let address = address.to_owned();
                self.outputs.push_back(Output::Event(Event::Registered { address, version }));
                self.outputs.extend(waiter.map(|waiter| Output::Answer(waiter, Ok(frame))));
            }
            Err(error) => {
                self.leases.retain(|lease| lease.registration.address != address);
                self.unregistered(address.to_owned(), waiter, error);
            }
        }
    }

    fn unregistered(&mut self, address: String, waiter: Option<W>, error: Error) {
        self.outputs.push_back(match waiter {
            Some(waiter) => Output::Answer(waiter, Err(error)),
            None => Output::Event(Event::Unregistered { address, error }),
        });
    }

    /// Fails a first registration. Retries an address that was registered before, while the error is retryable.
    fn not_registered(&mut self, key: u64, address: &str, error: Error, now: Now) {
        let is_first = self.lease_mut(address).is_some_and(|lease| lease.waiter.is_some());
        match error.is_retryable() && !is_first {
            true => self.calls.set(key, State::Resting, Some(now.boot + RETRY_REST)),
            false => self.answer(key, Err(error)),
        }
    }

    fn renewed(&mut self, address: &str, payload: &str, now: Now) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Renew {
            renewal_token: String,
        }
        let renew_at = now.boot + self.settings.lease / 3;
        let token = serde_json::from_str::<Renew>(payload).map(|renew| renew.renewal_token).unwrap_or_default();
        if let Some(lease) = self.lease_mut(address) {
            lease.state = LeaseState::Held { token, renew_at };
        }
    }

    fn subscribed(&mut self, key: u64, frame: Incoming) {
        let Some(topic) = self.topics.get_mut(&key) else { return };
        match frame.payload::<Subscribed>() {
            Ok(Subscribed { at, subscription_id }) => {
                topic.subscribed(at);
                topic.id = subscription_id;
                let waiter = topic.waiter.take();
                self.outputs.extend(waiter.map(|waiter| Output::Answer(waiter, Ok(frame))));
            }
            Err(error) => self.end_topic(key, error),
        }
    }

    /// Ends a subscription that was dropped before the hub's answer arrived.
    fn subscribed_late(&mut self, frame: &Incoming, now: Now) {
        if let Ok(Subscribed { subscription_id: Some(id), .. }) = frame.payload() {
            self.let_go(&id, now);
        }
    }

    fn not_subscribed(&mut self, call: u64, key: u64, error: Error, now: Now) {
        let is_first = self.topics.get(&key).is_some_and(|topic| topic.waiter.is_some());
        if error.is_retryable() && !is_first {
            return self.calls.set(call, State::Resting, Some(now.boot + RETRY_REST));
        }
        self.calls.remove(call);
        self.end_topic(key, error);
    }

    fn end_topic(&mut self, key: u64, error: Error) {
        let Some(topic) = self.topics.remove(&key) else { return };
        self.outputs.push_back(match topic.waiter {
            Some(waiter) => Output::Answer(waiter, Err(error)),
            None => Output::Topic { key, item: Item::End(error.to_string()), before: None },
        });
    }

    /// Handles the end of a subscription by the hub.
    fn topic_ended(&mut self, frame: &Incoming) {
        #[derive(Deserialize)]
        struct Ended {
            topic: String,
            reason: Option<String>,
        }
        let Ok(Ended { topic, reason }) = frame.payload() else { return };
        let key = self.topics.iter().find(|(_, known)| known.name == topic).map(|(key, _)| *key);
        if let Some(key) = key {
            self.end_topic(key, Error::new(ErrorKind::Closed, reason.unwrap_or_else(|| "no reason was given".into())));
        }
    }

    fn gap_told(&mut self, frame: &Incoming) {
        let Ok(GapTold { topic: name, epoch, from, to }) = frame.payload() else { return };
        let found = self.topics.iter_mut().find(|(_, topic)| topic.name == name);
        let Some((key, topic)) = found else { return };
        let given = topic.gap(Gap { epoch, from, to: to.unwrap_or(0) });
        let key = *key;
        self.outputs.extend(given.map(|(item, before)| Output::Topic { key, item, before }));
    }

    /// Handles a message from another client.
    fn delivered(&mut self, frame: Incoming) {
        if let Some(name) = frame.to.strip_prefix("@(topic/").and_then(|rest| rest.strip_suffix(')')) {
            let name = name.to_owned();
            return self.published(&name, frame);
        }
        if let Some(id) = &frame.correlation_id {
            // A reply completes its request; without an open request, the reply arrived too late and is ignored.
            let key = self.calls.key_of(id).filter(|key| self.calls.get(*key).is_some_and(|known| known.call.reply));
            return key.into_iter().for_each(|key| self.answer(key, Ok(frame.clone())));
        }
        match self.seen.note(&frame.id) {
            None => self.outputs.push_back(Output::Direct(frame)),
            Some(Fate::Acknowledged) if frame.is_marked("requireAck") => self.acknowledge(frame.id),
            Some(_) => {}
        }
    }

    fn published(&mut self, name: &str, frame: Incoming) {
        let number = |name: &str| frame.metadata.as_ref()?.get(name)?.as_u64();
        let (Some(epoch), Some(seq)) = (number("epoch"), number("seq")) else { return };
        let found = self.topics.iter_mut().find(|(_, topic)| topic.name == name);
        let Some((key, topic)) = found else { return };
        let key = *key;
        let given = topic.message(frame, Position { epoch, seq });
        self.outputs.extend(given.into_iter().map(|(item, before)| Output::Topic { key, item, before }));
    }

    /// Handles a deadline of a call: its attempt timed out, the delay before the next attempt is over, or the
    /// whole call timed out.
    pub(super) fn call_due(&mut self, key: u64, now: Now) {
        let wait = self.settings.attempt_wait;
        let Some(pending) = self.calls.get_mut(key) else { return };
        if pending.give_up_at <= now.boot {
            return self.give_up(key, now);
        }
        match pending.state {
            State::Sent => {
                pending.late += 1;
                let due = now.boot + wait * pending.late;
                self.calls.set(key, State::Resting, Some(due));
            }
            State::Resting => {
                match pending.who {
                    Who::User(_) => self.outbox.push_back(Waiting::Ask(key)),
                    _ => self.urgent.push_back(key),
                }
                self.calls.set(key, State::Held, None);
            }
            // In these states, a call's only deadline is `give_up_at`.
            State::Held | State::Accepted => {}
        }
    }

    fn give_up(&mut self, key: u64, now: Now) {
        let Some(pending) = self.calls.get(key) else { return };
        let kind = pending.call.kind;
        let (what, hint) = match (pending.sent, pending.state) {
            (0, _) => {
                (format!("`{kind}` could not be sent in time"), "the hub is unreachable, or applies backpressure")
            }
            (_, State::Accepted) => {
                ("the target did not reply in time".into(), "the target received the message and did not reply")
            }
            _ => (format!("the hub did not answer `{kind}`, sent {} times", pending.sent), REPEAT),
        };
        let error = Error::new(ErrorKind::Timeout, what).hint(hint);
        let is_first = match &pending.who {
            Who::User(_) => return self.answer(key, Err(error)),
            Who::Register(address) => {
                self.leases.iter().any(|lease| lease.registration.address == *address && lease.waiter.is_some())
            }
            Who::Subscribe(topic) => self.topics.get(topic).is_some_and(|topic| topic.waiter.is_some()),
            Who::Unsubscribe => return drop(self.calls.remove(key)),
            Who::Renew(_) => false,
        };
        match self.calls.remove(key).map(|pending| pending.who) {
            Some(Who::Subscribe(topic)) if is_first => self.end_topic(topic, error),
            Some(Who::Register(address)) if is_first => {
                let waiter = self.lease_mut(&address).and_then(|lease| lease.waiter.take());
                self.leases.retain(|lease| lease.registration.address != address);
                self.unregistered(address, waiter, error);
            }
            // A hub that does not answer the client's own calls counts as disconnected.
            _ => self.broke(Lost { code: None, what: error.to_string() }, now),
        }
    }
}

const REPEAT: &str = "the request may have succeeded; a repeat with the same id takes effect once";

/// Payload of `hub:delivery_acks`, which acknowledges several messages.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Acks {
    status: String,
    delivered_at: u64,
    message_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Paused {
    address: Option<String>,
}
