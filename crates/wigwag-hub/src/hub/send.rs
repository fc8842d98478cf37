//! Messages from one actor to another.

use crate::address::{HUB, HUB_ALIAS, check_address, run_of};
use crate::envelope::Text;
use crate::frame::{self, Head, push_field, push_text};
use crate::id::OwnId;
use crate::outbox::{Carried, Out};
use crate::refusal::{self, Refusal};
use crate::seen::{Known, Print, Slot, Tag};
use crate::settings::{Millis, Settings};
use crate::{ActorId, SessionId};

use super::work::Chore;
use super::{Carry, Hub, Request};

/// The message inside a request.
pub(super) struct Body<'a> {
    kind: Text<'a>,
    pub(super) payload: &'a str,
}

impl Body<'_> {
    pub(super) fn kind(&self) -> &str {
        self.kind.as_str()
    }
}

/// Maximum length of a message's type.
const KIND_BYTES_MAX: usize = 128;

/// Parses the inner message, in either form. A `message` without a `type` is the payload itself, with an empty type.
pub(super) fn body<'a>(request: &Request<'a>) -> Result<Body<'a>, Refusal> {
    let payload = &request.envelope.payload;
    let (kind, raw) = match payload.object("message")? {
        Some(inner) => match inner.text("type")? {
            None => (Text::default(), payload.raw("message")),
            Some(kind) => (kind, inner.raw("payload").or(inner.raw("data"))),
        },
        None => {
            let (kind, data) = (payload.text("type")?, payload.raw("data"));
            if kind.is_none() && data.is_none() {
                let what = "there is no message: want `message: {type, payload}`, or `type` and `data`";
                return Err(refusal::invalid(what));
            }
            (kind.unwrap_or_default(), data)
        }
    };
    if kind.as_str().len() > KIND_BYTES_MAX {
        return Err(refusal::invalid(&format!("a message's `type` has at most {KIND_BYTES_MAX} bytes")));
    }
    if kind.as_str().starts_with("hub:") {
        return Err(refusal::invalid("types that start with `hub:` are reserved for the hub"));
    }
    Ok(Body { kind, payload: raw.unwrap_or("null") })
}

/// Longer frames get their own buffer, because trimming an outbox moves the shared one.
const OWN_BYTES_MAX: usize = 4 * 1_024;

impl Hub {
    pub(super) fn send(&mut self, request: &Request<'_>, sender: ActorId) -> Result<(), Refusal> {
        let payload = &request.envelope.payload;
        let target = match payload.text("to")? {
            Some(target) => target,
            None => payload.needed("hub:send", "targetAddress")?,
        };
        let target = target.as_str();
        let body = body(request)?;
        // A known address was validated when its actor was created.
        let known = self.known(request.session, target);
        if known.is_none() {
            check_address(target).map_err(|malformed| refusal::invalid(&malformed.to_string()))?;
            if target == HUB || target == HUB_ALIAS {
                return Err(refusal::invalid("the hub accepts requests, not messages"));
            }
        }
        if let Some(run) = run_of(target) {
            return self.signal(request, sender, target, run, &body);
        }
        if !self.sessions[request.session].access.may_send(target) {
            let what = format!("this token may not send to `{target}`");
            return Err(refusal::unauthorized(&what, "use a token with a scope `hub:send:…` that matches it"));
        }
        let expects_reply = payload.flag("expectReply")?;
        let target_id = known.unwrap_or_else(|| self.actor(target, request.now));
        let tag = self.actors[target_id].tag;
        let Some(slot) = self.admit(request, sender, tag, None)? else { return Ok(()) };
        if expects_reply && let Err(refusal) = self.expect_reply(slot.number, request, sender, target_id) {
            self.actors[sender].seen.fail(slot.mark);
            return Err(refusal);
        }
        let carry = Carry { sender, target: target_id, slot, expects_reply };
        self.forward(request, target, carry, &body);
        Ok(())
    }

    /// Forwards a message to its target.
    fn forward(&mut self, request: &Request<'_>, target: &str, carry: Carry, body: &Body<'_>) {
        let Carry { sender, target: target_id, slot, expects_reply } = carry;
        let id = self.id_of(slot.number);
        let (now, expires) = (request.now, self.expires(request));
        let carried = self.carried(request, carry);
        let from = &*self.actors[sender].address;
        let head = Head { is_ask: expects_reply, ..self.head(request, &id, from, target, body.kind()) };
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        let write = |out: &mut Vec<u8>| frame::write(out, &head, payload, |out| write_metadata(out, request));
        let is_short = body.payload.len() <= OWN_BYTES_MAX;
        let Some(session) = self.reads_now(target_id, &carried).filter(|_| is_short) else {
            let bytes = frame::kept(&mut self.scratch, write);
            return self.route(Out { bytes, expires, carried }, now);
        };
        let at = (now, &self.settings, &mut self.spare);
        self.sessions[session].outbox.write(expires, Some(carried), at, write);
        self.actors[target_id].used_at = now;
        self.wake(session);
        self.pause(session, request.session, target_id, now);
    }

    /// Returns the actor of an address if it is in memory.
    fn known(&mut self, session: SessionId, target: &str) -> Option<ActorId> {
        let session = &mut self.sessions[session];
        let is_same = self.actors.get(session.last_target).is_some_and(|last| &*last.address == target);
        if !is_same {
            session.last_target = self.names.get(target).copied()?;
        }
        Some(session.last_target)
    }

    /// Returns the target's session if the message can go directly into its outbox, which is the usual case.
    fn reads_now(&self, target: ActorId, carried: &Carried) -> Option<SessionId> {
        let actor = self.actors.get(target).filter(|actor| !actor.holds() && actor.delivered_before.is_empty())?;
        let session = self.sessions.get(actor.owner?)?;
        let is_full = session.outbox.is_over(&self.settings, &self.spare) || carried.require_ack;
        actor.owner.filter(|_| !is_full)
    }

    /// Returns the head of a forwarded message, with the fields that its sender chose.
    pub(super) fn head<'a, 'f>(
        &self,
        request: &'a Request<'f>,
        id: &'a OwnId,
        from: &'a str,
        to: &'a str,
        kind: &'a str,
    ) -> Head<'a, 'f> {
        let envelope = request.envelope;
        Head {
            id,
            from,
            to,
            kind,
            is_ask: false,
            correlation: None,
            timestamp: self.sent_at(request),
            ttl: envelope.ttl,
            signature: envelope.signature,
            extra: &envelope.extra,
        }
    }

    /// Admits a new or previously rejected request; `tag` identifies its target. A repeat gets the same
    /// answer as the original, even after its TTL; one id for two messages is a conflict.
    pub(super) fn admit(
        &mut self,
        request: &Request<'_>,
        sender: ActorId,
        tag: Tag,
        topic: Option<&str>,
    ) -> Result<Option<Slot>, Refusal> {
        let Some(print) = request.print else {
            self.check_ttl(request)?;
            return Ok(Some(Slot { mark: crate::seen::Mark::NOWHERE, number: self.next_number() }));
        };
        if deliberate_bug!(TtlBeforeDedup) {
            self.check_ttl(request)?;
        }
        let (id, now) = (request.envelope.id.as_str(), request.now);
        let next = self.number + 1;
        if deliberate_bug!(ForgetAnswers) {
            self.actors[sender].seen.forget_print(print);
        }
        let tag = if deliberate_bug!(NoConflict) { 0 } else { tag };
        let span = seen_span(&self.settings, request.envelope.ttl);
        match self.meet(sender, print, (tag, next), (now, span)) {
            Ok(slot) => return self.admitted(request, sender, slot).map(Some),
            Err(Known::Conflict) => {
                let what = format!("id `{}` was used for a message to another target", refusal::shown(id));
                return Err(refusal::conflict(&what));
            }
            Err(Known::Pending) => {}
            Err(Known::Answered(answer)) => {
                self.say_answer(sender, id, &request.trace, answer, topic, now);
                self.wait_again(answer.number, now);
            }
        }
        self.counts.repeated += 1;
        Ok(None)
    }

    fn admitted(&mut self, request: &Request<'_>, sender: ActorId, mut slot: Slot) -> Result<Slot, Refusal> {
        if slot.number <= self.number && deliberate_bug!(NewIdOnRetry) {
            slot.number = self.next_number();
        }
        self.number = self.number.max(slot.number);
        self.check_ttl(request).inspect_err(|_| self.actors[sender].seen.fail(slot.mark))?;
        Ok(slot)
    }

    /// Hashes a message id.
    pub(super) fn print(&self, id: &str) -> Print {
        Print::of(id, &self.print_key)
    }

    /// Handles an acknowledgement by the target's client, in time or late.
    pub(super) fn acknowledged(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let id = request.envelope.payload.needed("hub:ack", "messageId")?;
        let found = self.sessions[request.session].awaiting.acknowledged(id.as_str());
        if let Some(carried) = found {
            self.arrived(&carried, request.now);
        }
        Ok(())
    }

    /// Extends the deadline for an acknowledgement or a reply, and notifies the sender.
    pub(super) fn progress(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let id = request.envelope.payload.needed("hub:progress", "messageId")?;
        let (id, now) = (id.as_str(), request.now);
        let settings = &self.settings;
        let span = request.envelope.payload.of("extendMs", "a number of milliseconds")?;
        let until = now.saturating_add(span.unwrap_or(settings.answer_within).min(settings.seen_for_max));
        let granted = if deliberate_bug!(ProgressIgnored) { None } else { Some(until) };
        let acknowledges = self.sessions[request.session].awaiting.extend(id, granted);
        let sender = acknowledges.map(|carried| (carried.sender, carried.id.clone(), carried.trace.clone()));
        let asker = self.extend_wait(id, request.session, granted);
        let Some((sender, sender_id, trace)) = sender.or(asker) else { return Err(refusal::nobody_waits(id)) };
        if let Some(session) = self.session_of(sender) {
            let to = self.address(sender);
            let payload = serde_json::json!({"messageId": &*sender_id, "until": until});
            self.say(session, Some(&to), "hub:progress", Some(&sender_id), &payload, &trace, now);
        }
        if request.is_ask() {
            self.respond(request, "hub:progressed", &serde_json::json!({"messageId": id, "until": until}));
        }
        Ok(())
    }

    /// Sends a session `hub:pause` if the outbox of its target is too full.
    pub(super) fn pause(&mut self, target: SessionId, feeder: SessionId, address: ActorId, now: Millis) {
        let is_high = self.sessions.get(target).is_some_and(|found| found.outbox.is_high(&self.settings));
        if !is_high || target == feeder {
            return;
        }
        let Some(session) = self.sessions.get_mut(feeder).filter(|feeder| !feeder.paused_for.contains(&target)) else {
            return;
        };
        session.paused_for.push(target);
        let is_first = session.paused_for.len() == 1;
        self.sessions[target].feeders.push(feeder);
        if is_first {
            self.counts.pauses += 1;
            let address = self.address(address);
            let payload = serde_json::json!({"reason": "outbound_queue_full", "address": &*address});
            self.announce(feeder, "hub:pause", &payload, now);
        }
    }

    /// Resumes the feeders of a session after a write, if its outbox is empty enough.
    pub(super) fn drained(&mut self, id: SessionId, now: Millis) {
        let settings = &self.settings;
        let Some(session) = self.sessions.get_mut(id) else { return };
        if session.outbox.over_since.is_some() && !session.outbox.is_high(settings) {
            session.outbox.over_since = None;
        }
        if session.outbox.is_low(settings) {
            self.release_feeders(id, now);
            self.announce_gaps(id, now);
        }
    }

    /// Resumes the sessions that were paused for this one.
    pub(super) fn release_feeders(&mut self, id: SessionId, now: Millis) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let feeders = std::mem::take(&mut session.feeders);
        if let Some(rest) = self.resume(id, feeders, now) {
            self.chores.push_back(rest);
        }
    }

    /// Resumes a slice of the sessions paused for a slow one. Returns the remaining work.
    pub(super) fn resume(&mut self, slow: SessionId, mut feeders: Vec<SessionId>, now: Millis) -> Option<Chore> {
        let slice = self.settings.work_slice;
        for feeder in feeders.drain(feeders.len().saturating_sub(slice)..) {
            let Some(session) = self.sessions.get_mut(feeder) else { continue };
            session.paused_for.retain(|other| *other != slow);
            if session.paused_for.is_empty() {
                self.announce(feeder, "hub:resume", &serde_json::json!({}), now);
            }
        }
        (!feeders.is_empty()).then_some(Chore::Resume { slow, feeders })
    }
}

/// Returns how long an ask is remembered.
pub(super) fn seen_span(settings: &Settings, ttl: Option<u64>) -> Millis {
    ttl.unwrap_or_default().clamp(settings.seen_for, settings.seen_for_max)
}

/// Writes the sender's metadata and the message's own id.
pub(super) fn write_metadata(out: &mut Vec<u8>, request: &Request<'_>) {
    out.extend_from_slice(b"\"originalMessageId\":");
    push_text(out, request.envelope.id.as_str());
    for (key, raw) in request.envelope.metadata.entries.iter() {
        push_field(out, key, raw);
    }
}
