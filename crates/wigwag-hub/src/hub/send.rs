//! From one to one.

use crate::address::{HUB, HUB_ALIAS, check_address, run_of};
use crate::envelope::Text;
use crate::frame::{self, Head, push_field, push_text};
use crate::id::OwnId;
use crate::outbox::{Carried, Out};
use crate::refusal::{self, Refusal};
use crate::seen::{Known, Mark, Print};
use crate::settings::Millis;
use crate::{ActorId, Mutation, SessionId};

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

/// The longest type of a message.
const KIND_BYTES_MAX: usize = 128;

/// Reads the message inside, in either form.
pub(super) fn body<'a>(request: &Request<'a>) -> Result<Body<'a>, Refusal> {
    let payload = &request.envelope.payload;
    let inner = payload.object("message")?;
    let fields = inner.as_ref().unwrap_or(payload);
    let raw = if inner.is_some() { fields.raw("payload").or(fields.raw("data")) } else { fields.raw("data") };
    let Some(kind) = fields.text("type")? else {
        let what = "there is no message: want `message: {type, payload}`, or `type` and `data`";
        return Err(refusal::invalid(what));
    };
    if kind.as_str().is_empty() || kind.as_str().len() > KIND_BYTES_MAX {
        return Err(refusal::invalid(&format!("a message's `type` has 1 to {KIND_BYTES_MAX} bytes")));
    }
    if kind.as_str().starts_with("hub:") {
        return Err(refusal::invalid("only the hub itself sends what begins with `hub:`"));
    }
    Ok(Body { kind, payload: raw.unwrap_or("null") })
}

impl Hub {
    pub(super) fn send(&mut self, request: &Request<'_>, sender: ActorId) -> Result<(), Refusal> {
        let payload = &request.envelope.payload;
        let target = match payload.text("to")? {
            Some(target) => target,
            None => payload.needed("hub:send", "targetAddress")?,
        };
        let target = target.as_str();
        let body = body(request)?;
        // What is known was checked when it became known.
        let known = self.known(request.session, target);
        if known.is_none() {
            check_address(target).map_err(|malformed| refusal::invalid(&malformed.to_string()))?;
            if target == HUB || target == HUB_ALIAS {
                return Err(refusal::invalid("the hub itself takes requests, not messages"));
            }
        }
        if let Some(run) = run_of(target) {
            return self.signal(request, sender, target, run, &body);
        }
        if !self.sessions[request.session].access.may_send(target) {
            let what = format!("this token may not send to `{target}`");
            return Err(refusal::unauthorized(&what, "use a token with a scope `hub:send:…` that matches it"));
        }
        let Some(mark) = self.first_time(request, sender, None) else { return Ok(()) };
        let target_id = known.unwrap_or_else(|| self.actor(target, request.now));
        self.forward(request, sender, (target_id, target), &body, mark);
        Ok(())
    }

    /// Brings a message on its way, as its target sees it.
    fn forward(
        &mut self,
        request: &Request<'_>,
        sender: ActorId,
        (target_id, target): (ActorId, &str),
        body: &Body<'_>,
        mark: Mark,
    ) {
        let number = self.next_number();
        let expects_reply = request.envelope.payload.raw("expectReply") == Some("true");
        let id = self.id_of(number);
        if expects_reply {
            self.expect_reply(id.as_str(), request, sender, target_id);
        }
        let (now, expires) = (request.now, self.expires(request));
        let carried = self.carried(request, Carry { sender, target: target_id, number, mark });
        let from = &*self.actors[sender].address;
        let head = Head { is_ask: expects_reply, ..self.head(request, &id, from, target, body.kind()) };
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        let write = |out: &mut Vec<u8>| frame::write(out, &head, payload, |out| write_metadata(out, request));
        let Some(session) = self.reads_now(target_id, &carried) else {
            let bytes = frame::kept(&mut self.scratch, write);
            return self.route(Out { bytes, expires, carried }, now);
        };
        let at = (now, &self.settings, &mut self.spare);
        self.sessions[session].outbox.write(expires, Some(carried), at, write);
        self.actors[target_id].used_at = now;
        self.wake(session);
        self.pause(session, request.session, target_id, now);
    }

    /// The actor of an address, if there is one.
    fn known(&mut self, session: SessionId, target: &str) -> Option<ActorId> {
        let session = &mut self.sessions[session];
        let is_same = self.actors.get(session.last_target).is_some_and(|last| &*last.address == target);
        if !is_same {
            session.last_target = self.names.get(target).copied()?;
        }
        Some(session.last_target)
    }

    /// The session that a message can be put before at once, as nearly always.
    fn reads_now(&self, target: ActorId, carried: &Carried) -> Option<SessionId> {
        let actor = self.actors.get(target).filter(|actor| !actor.holds())?;
        let session = self.sessions.get(actor.owner?)?;
        let is_full = session.outbox.is_over(&self.settings) || carried.require_ack;
        actor.owner.filter(|_| !is_full)
    }

    /// What a message that is passed on says of itself, as its sender said it.
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

    /// Where a request is remembered if it was not made before. If it was answered, it is answered the same.
    pub(super) fn first_time(&mut self, request: &Request<'_>, sender: ActorId, topic: Option<&str>) -> Option<Mark> {
        let Some(print) = request.print else { return Some(Mark::NOWHERE) };
        let envelope = request.envelope;
        let (id, now) = (envelope.id.as_str(), request.now);
        let settings = &self.settings;
        let seen = &mut self.actors[sender].seen;
        if settings.has(Mutation::ForgetAnswers) {
            seen.forget_print(print);
        }
        let span = envelope.ttl.unwrap_or_default().clamp(settings.seen_for, settings.seen_for_max);
        match seen.meet(print, now, span, settings.seen_max) {
            Ok(mark) => return Some(mark),
            Err(Known::Pending) => {}
            Err(Known::Answered(answer)) => {
                self.say_answer(sender, id, &request.trace, answer, topic, now);
                self.reply_again(answer.number, now);
            }
        }
        self.counts.repeated += 1;
        None
    }

    /// What stands for an id.
    pub(super) fn print(&self, id: &str) -> Print {
        Print::of(id, &self.print_key)
    }

    /// A message was acknowledged by its target's client.
    pub(super) fn acknowledged(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let id = request.envelope.payload.needed("hub:ack", "messageId")?;
        let found = self.sessions[request.session].awaiting.remove(id.as_str());
        if let Some(out) = found {
            self.arrived(&out.carried, request.now);
        }
        Ok(())
    }

    /// Asks a session to send nothing for a while, if what it feeds is too full.
    pub(super) fn pause(&mut self, target: SessionId, feeder: SessionId, address: ActorId, now: Millis) {
        let settings = &self.settings;
        let Some(found) = self.sessions.get_mut(target) else { return };
        if !found.outbox.is_high(settings) || target == feeder || found.feeders.contains(&feeder) {
            return;
        }
        found.feeders.push(feeder);
        let Some(session) = self.sessions.get_mut(feeder) else { return };
        session.pauses += 1;
        if session.pauses == 1 {
            self.counts.pauses += 1;
            let address = self.address(address);
            let payload = serde_json::json!({"reason": "outbound_queue_full", "address": &*address});
            self.announce(feeder, "hub:pause", &payload, now);
        }
    }

    /// Something was written: perhaps those who feed the session may go on.
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

    /// Those who were paused for a session may go on.
    pub(super) fn release_feeders(&mut self, id: SessionId, now: Millis) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        for feeder in std::mem::take(&mut session.feeders) {
            let Some(session) = self.sessions.get_mut(feeder) else { continue };
            session.pauses = session.pauses.saturating_sub(1);
            if session.pauses == 0 {
                self.announce(feeder, "hub:resume", &serde_json::json!({}), now);
            }
        }
    }
}

/// The sender's metadata and the message's own id.
pub(super) fn write_metadata(out: &mut Vec<u8>, request: &Request<'_>) {
    out.extend_from_slice(b"\"originalMessageId\":");
    push_text(out, request.envelope.id.as_str());
    for (key, raw) in request.envelope.metadata.entries.iter() {
        push_field(out, key, raw);
    }
}
