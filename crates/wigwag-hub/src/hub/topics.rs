//! Topics: subscribing, publishing and gaps.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::address::{check_topic, is_hubs_own, run_of_topic};
use crate::envelope::Text;
use crate::frame::{self, Head, push_number, push_text};
use crate::refusal::{self, Refusal};
use crate::seen::{Answer, Said};
use crate::settings::Millis;
use crate::topic::{After, Gap, Topic};
use crate::{ActorId, SessionId};

use super::fan::Fan;
use super::send::{body, write_metadata};
use super::session::Subscription;
use super::{Effect, Hub, Request};

fn topic_of<'a>(request: &Request<'a>) -> Result<Text<'a>, Refusal> {
    let topic = request.envelope.payload.needed(request.envelope.kind.as_str(), "topic")?;
    check_topic(topic.as_str()).map_err(|malformed| refusal::invalid(&malformed.to_string()))?;
    Ok(topic)
}

impl Hub {
    /// Rejects a new topic while there are too many.
    fn check_topics(&self, name: &str) -> Result<(), Refusal> {
        if self.topics.len() < self.settings.topics_max || self.topics.contains_key(name) {
            return Ok(());
        }
        Err(refusal::queue_full(&format!("@(topic/{name})"), "there are too many topics"))
    }

    /// Returns the topic of a name. A new topic starts a new epoch.
    fn topic(&mut self, name: &str, now: Millis) -> Arc<str> {
        if let Some((name, _)) = self.topics.get_key_value(name) {
            return Arc::clone(name);
        }
        let epoch = self.next_epoch(now);
        let name: Arc<str> = Arc::from(name);
        self.topics.insert(Arc::clone(&name), Topic::new(epoch));
        name
    }

    pub(super) fn subscribe(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let name = topic_of(request)?;
        let name = name.as_str();
        let session = &self.sessions[request.session];
        if !session.access.may_read(name) {
            let what = format!("this token may not read `{name}`");
            return Err(refusal::unauthorized(&what, "use a token with a scope `hub:read:…` that matches it"));
        }
        let known = session.subscriptions.contains_key(name);
        if !known && session.subscriptions.len() >= self.settings.subscriptions_max {
            let what = format!("a session can subscribe to at most {} topics", self.settings.subscriptions_max);
            return Err(refusal::invalid(&what));
        }
        let after = request.envelope.payload.of("after", "`{epoch, seq}`")?;
        match run_of_topic(name) {
            Some(run) => self.follow(request, name, run, after),
            None => {
                self.check_topics(name)?;
                self.hear(request, name, after);
            }
        }
        Ok(())
    }

    fn hear(&mut self, request: &Request<'_>, name: &str, after: Option<After>) {
        let (session, now) = (request.session, request.now);
        let name = self.topic(name, now);
        let id = self.subscription(session, &name, None);
        let topic = &mut self.topics.get_mut(&name).expect("it was just made");
        let first = topic.subscribers.is_empty();
        if !topic.subscribers.contains(&session) {
            Arc::make_mut(&mut topic.subscribers).push(session);
        }
        let (epoch, seq) = (topic.epoch, topic.seq);
        let missing = after.map(|after| topic.since(after));
        let replays = after.is_some() && !deliberate_bug!(ReplayAndCopy);
        if let Some(subscription) = self.sessions[session].subscriptions.get_mut(&name).filter(|_| replays) {
            subscription.replayed = seq;
        }
        if first && is_hubs_own(&name) {
            self.effects.push(Effect::Wanted { topic: Arc::clone(&name), wanted: true });
        }
        let payload = json!({"topic": &*name, "subscriptionId": subscription_id(id), "epoch": epoch, "seq": seq});
        self.respond(request, "hub:subscribed", &payload);
        let Some((gap, later)) = missing else { return };
        if let Some(gap) = gap {
            self.say_gap(session, &name, epoch, gap, now);
        }
        for (_, bytes) in later {
            self.push(session, bytes, Millis::MAX, now);
        }
    }

    /// Adds a session's subscription to a topic; a second one replaces the first.
    fn subscription(&mut self, session: SessionId, name: &Arc<str>, asked: Option<(String, String, String)>) -> u64 {
        let id = self.next_number();
        let subscription = Subscription { id, missed: None, replayed: 0, asked };
        let before = self.sessions[session].subscriptions.insert(Arc::clone(name), subscription);
        self.counts.subscriptions += usize::from(before.is_none());
        id
    }

    fn follow(&mut self, request: &Request<'_>, name: &str, run: &str, after: Option<After>) {
        let session = request.session;
        let name: Arc<str> = Arc::from(name);
        if self.sessions[session].subscriptions.contains_key(&name) {
            self.effects.push(Effect::Unfollow { session, topic: Arc::clone(&name) });
        }
        let envelope = request.envelope;
        let (id, from) = (envelope.id.as_str().to_owned(), envelope.from.as_str().to_owned());
        self.subscription(session, &name, Some((id, from, request.trace.clone())));
        self.effects.push(Effect::Follow { session, topic: name, run: run.to_owned(), after });
    }

    /// Answers a subscription to a run's topic: its epoch and last number, or the error.
    pub fn followed(&mut self, session: SessionId, topic: &str, outcome: Result<After, String>, now: Millis) {
        let Some(found) = self.sessions.get_mut(session) else { return };
        let Some(subscription) = found.subscriptions.get_mut(topic) else { return };
        let (Some((id, from, trace)), number) = (subscription.asked.take(), subscription.id) else { return };
        match outcome {
            Ok(After { epoch, seq }) => {
                let payload =
                    json!({"topic": topic, "subscriptionId": subscription_id(number), "epoch": epoch, "seq": seq});
                self.say(session, Some(&from), "hub:subscribed", Some(&id), &payload, &trace, now);
            }
            Err(why) => {
                found.subscriptions.remove(topic);
                self.counts.subscriptions -= 1;
                let address = format!("@(workflow/{})", run_of_topic(topic).unwrap_or(topic));
                let hint = "list runs with `wigwag list`";
                let refusal = refusal::unknown_actor(&address, &why, hint, false);
                self.say(session, Some(&from), refusal.kind, Some(&id), &refusal.payload, &trace, now);
            }
        }
    }

    /// Sends a run's event to a subscriber. Returns whether its outbox has room for more: if not, wait until the
    /// session has read some.
    pub fn feed(&mut self, session: SessionId, topic: &str, at: After, payload: &str, now: Millis) -> bool {
        let Some(found) = self.sessions.get(session) else { return false };
        let Some(subscription) = found.subscriptions.get(topic) else { return false };
        if subscription.asked.is_some() {
            return false;
        }
        let number = self.next_number();
        let from = format!("@(workflow/{})", run_of_topic(topic).unwrap_or(topic));
        let bytes = self.topic_frame(number, &from, topic, "run:events", payload, at, now);
        self.push(session, bytes, Millis::MAX, now);
        self.has_room(session)
    }

    /// Whether a session's outbox has room for more events.
    #[must_use]
    pub fn has_room(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|session| !session.outbox.is_high(&self.settings))
    }

    /// Ends a session's subscription to a run's topic.
    pub fn unfollowed(&mut self, session: SessionId, topic: &str, reason: &str, now: Millis) {
        let found = self.sessions.get_mut(session).and_then(|session| session.subscriptions.remove(topic));
        if let Some(subscription) = found {
            self.counts.subscriptions -= 1;
            let id = subscription_id(subscription.id);
            let payload = json!({"topic": topic, "subscriptionId": id, "reason": reason});
            self.announce(session, "hub:unsubscribed", &payload, now);
        }
    }

    pub(super) fn unsubscribe(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let payload = &request.envelope.payload;
        let session = &self.sessions[request.session];
        let found = match (&payload.text("topic")?, &payload.text("subscriptionId")?) {
            (Some(topic), _) => session.subscriptions.get_key_value(topic.as_str()),
            (None, Some(id)) => {
                session.subscriptions.iter().find(|(_, subscription)| subscription_id(subscription.id) == id.as_str())
            }
            (None, None) => return Err(refusal::invalid("`hub:unsubscribe` has neither `topic` nor `subscriptionId`")),
        };
        let Some((name, subscription)) = found else {
            return Err(refusal::invalid("this session is not subscribed to that topic"));
        };
        let (name, id) = (Arc::clone(name), subscription_id(subscription.id));
        self.sessions[request.session].subscriptions.remove(&name);
        self.counts.subscriptions -= 1;
        self.stop_hearing(request.session, &name);
        if request.is_ask() {
            self.respond(request, "hub:unsubscribed", &json!({"topic": &*name, "subscriptionId": id}));
        }
        Ok(())
    }

    pub(super) fn publish(&mut self, request: &Request<'_>, sender: ActorId) -> Result<(), Refusal> {
        let (name, now) = (topic_of(request)?, request.now);
        let name = name.as_str();
        let body = body(request)?;
        if is_hubs_own(name) {
            let what = format!("only the hub itself publishes to `{name}`");
            return Err(refusal::unauthorized(&what, "use another topic"));
        }
        if !self.sessions[request.session].access.may_publish(name) {
            let what = format!("this token may not publish to `{name}`");
            return Err(refusal::unauthorized(&what, "use a token with a scope `hub:publish:…` that matches it"));
        }
        let count = self.topics.get(name).map_or(0, |topic| topic.subscribers.len());
        self.charge(request.session, count.saturating_sub(1) as u64, now)?;
        self.check_topics(name)?;
        self.check_fans(name)?;
        let tag = self.tag(name);
        let Some(slot) = self.admit(request, sender, tag, Some(name))? else { return Ok(()) };
        let name = self.topic(name, now);
        let at = self.next_of(&name);
        let number = slot.number;
        let (id, from) = (self.id_of(number), self.address(sender));
        let to = format!("@(topic/{name})");
        let head = self.head(request, &id, &from, &to, body.kind());
        let write_payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        let metadata = |out: &mut Vec<u8>| {
            write_metadata(out, request);
            write_place(out, &name, at);
        };
        let bytes = frame::kept(&mut self.scratch, |out| frame::write(out, &head, write_payload, metadata));
        let subscribers = self.distribute(&name, (bytes, number), self.expires(request), now);
        if request.is_ask() {
            let answer =
                Answer { number, at: now, said: Said::Published { epoch: at.epoch, seq: at.seq, subscribers } };
            let id = request.envelope.id.as_str();
            self.actors[sender].seen.answer(slot.mark, answer);
            self.say_answer(sender, id, &request.trace, answer, Some(&name), now);
        }
        Ok(())
    }

    /// Returns the position of a topic's next message.
    fn next_of(&self, name: &str) -> After {
        self.topics
            .get(name)
            .map_or(After { epoch: 0, seq: 1 }, |topic| After { epoch: topic.epoch, seq: topic.seq + 1 })
    }

    /// Publishes a message that no session sent.
    pub(super) fn publish_as(&mut self, from: &str, topic: &str, kind: &str, payload: &str, now: Millis) {
        let name = self.topic(topic, now);
        let at = self.next_of(&name);
        let number = self.next_number();
        let bytes = self.topic_frame(number, from, &name, kind, payload, at, now);
        self.distribute(&name, (bytes, number), Millis::MAX, now);
    }

    #[expect(clippy::too_many_arguments, reason = "they are the parts of an envelope")]
    fn topic_frame(
        &mut self,
        number: u64,
        from: &str,
        topic: &str,
        kind: &str,
        payload: &str,
        at: After,
        now: Millis,
    ) -> Bytes {
        let id = self.id_of(number);
        let to = format!("@(topic/{topic})");
        let head = Head { from, ..Head::from_hub(&id, &to, kind, now) };
        let write_payload = |out: &mut Vec<u8>| out.extend_from_slice(payload.as_bytes());
        let metadata = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"\"originalMessageId\":");
            push_text(out, id.as_str());
            write_place(out, topic, at);
        };
        frame::kept(&mut self.scratch, |out| frame::write(out, &head, write_payload, metadata))
    }

    /// Adds a message to a topic's history and sends it to all subscribers.
    fn distribute(&mut self, name: &Arc<str>, (bytes, number): (Bytes, u64), expires: Millis, now: Millis) -> u32 {
        let Some(topic) = self.topics.get_mut(name) else { return 0 };
        topic.keep(name, (bytes.clone(), number), now, &self.settings, &mut self.histories);
        let (targets, seq) = (Arc::clone(&topic.subscribers), topic.seq);
        self.histories.shrink(&mut self.topics, self.settings.history_total_bytes_max);
        let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
        self.counts.published += 1;
        let topic = Some((Arc::clone(name), seq));
        self.start_fan(Fan { targets, topic, ..Fan::new(bytes, expires) }, now);
        count
    }

    /// Appends a topic's message to an outbox, after a gap notice if messages were dropped before it.
    pub(super) fn push_topic(
        &mut self,
        target: SessionId,
        name: &Arc<str>,
        seq: u64,
        out: (Bytes, Millis),
        now: Millis,
    ) {
        let Some(session) = self.sessions.get_mut(target) else { return };
        let Some(subscription) = session.subscriptions.get_mut(name) else { return };
        if let Some((from, _)) = subscription.missed.take() {
            let epoch = self.topics.get(name).map_or(0, |topic| topic.epoch);
            self.say_gap(target, name, epoch, Gap { from: Some(from), to: seq - 1 }, now);
        }
        let (bytes, expires) = out;
        self.push(target, bytes, expires, now);
    }

    fn say_gap(&mut self, session: SessionId, name: &str, epoch: u64, gap: Gap, now: Millis) {
        if deliberate_bug!(SilentGap) {
            return;
        }
        self.counts.gaps += 1;
        let payload = json!({"topic": name, "epoch": epoch, "from": gap.from, "to": gap.to});
        self.announce(session, "hub:gap", &payload, now);
    }

    /// Sends the outstanding gap notices to a session that has caught up.
    pub(super) fn announce_gaps(&mut self, id: SessionId, now: Millis) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let mut gaps = Vec::new();
        for (name, subscription) in &mut session.subscriptions {
            if let Some((from, to)) = subscription.missed.take() {
                gaps.push((Arc::clone(name), from, to));
            }
        }
        for (name, from, to) in gaps {
            let epoch = self.topics.get(&name).map_or(0, |topic| topic.epoch);
            self.say_gap(id, &name, epoch, Gap { from: Some(from), to }, now);
        }
    }
}

fn subscription_id(number: u64) -> String {
    format!("s-{}", crate::id::base36(number))
}

fn write_place(out: &mut Vec<u8>, topic: &str, at: After) {
    out.extend_from_slice(b",\"topic\":");
    push_text(out, topic);
    out.extend_from_slice(b",\"epoch\":");
    push_number(out, at.epoch);
    out.extend_from_slice(b",\"seq\":");
    push_number(out, at.seq);
}
