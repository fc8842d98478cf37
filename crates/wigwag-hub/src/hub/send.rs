//! From one to one.

use crate::address::{HUB, HUB_ALIAS, check_address, run_of};
use crate::envelope::Text;
use crate::frame::{self, Head, push_field, push_text};
use crate::outbox::Out;
use crate::refusal::{self, Refusal};
use crate::seen::{Known, Print};
use crate::settings::Millis;
use crate::{ActorId, Mutation, SessionId};

use super::{Hub, Request, carried};

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
        let known = self.names.get(target).copied();
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
        if self.is_repeat(request, sender, None) {
            return Ok(());
        }
        let target_id = known.unwrap_or_else(|| self.actor(target, request.now));
        let number = self.next_number();
        let expects_reply = payload.raw("expectReply") == Some("true");
        let id = self.id_of(number);
        let bytes = self.forward(request, &id, sender, target, &body, expects_reply);
        if expects_reply {
            self.expect_reply(id, request, sender, target_id);
        }
        let carried = carried(request, sender, target_id, number);
        let out = Out { bytes, expires: self.expires(request), carried: Some(Box::new(carried)) };
        self.route(out, request.now);
        Ok(())
    }

    /// The message as its target sees it.
    fn forward(
        &mut self,
        request: &Request<'_>,
        id: &str,
        sender: ActorId,
        target: &str,
        body: &Body<'_>,
        is_ask: bool,
    ) -> bytes::Bytes {
        let from = self.address(sender);
        let head = Head { is_ask, ..self.head(request, id, &from, target, body.kind()) };
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        self.press.brief(|out| frame::write(out, &head, payload, |out| write_metadata(out, request)))
    }

    /// What a message that is passed on says of itself, as its sender said it.
    pub(super) fn head<'a, 'f>(
        &self,
        request: &'a Request<'f>,
        id: &'a str,
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
            extra: Some(&envelope.extra),
        }
    }

    /// Whether a request was made before. If it was answered, it is answered the same.
    pub(super) fn is_repeat(&mut self, request: &Request<'_>, sender: ActorId, topic: Option<&str>) -> bool {
        if !request.is_ask() {
            return false;
        }
        let envelope = request.envelope;
        let (id, now) = (envelope.id.as_str(), request.now);
        let print = Print::of(id);
        let settings = &self.settings;
        let seen = &mut self.actors[sender].seen;
        match seen.get(print, now).filter(|_| !settings.has(Mutation::ForgetAnswers)) {
            Some(Known::Pending) => {
                self.counts.repeated += 1;
                true
            }
            Some(Known::Answered(answer)) => {
                self.counts.repeated += 1;
                self.say_answer(sender, id, &request.trace, answer, topic, now);
                self.reply_again(answer.number, now);
                true
            }
            None => {
                let span = envelope.ttl.unwrap_or_default().clamp(settings.seen_for, settings.seen_for_max);
                seen.begin(print, now, span, settings.seen_max);
                false
            }
        }
    }

    /// A message was acknowledged by its target's client.
    pub(super) fn acknowledged(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let id = request.envelope.payload.needed("hub:ack", "messageId")?;
        let found = self.sessions[request.session].awaiting.remove(id.as_str());
        if let Some(carried) = found.and_then(|out| out.carried) {
            self.arrived(&carried, request.now);
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
