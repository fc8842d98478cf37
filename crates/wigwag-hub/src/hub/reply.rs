//! Answers from end to end.

use crate::frame::{self, Head};
use crate::outbox::Out;
use crate::refusal::{self, Refusal};
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::{Hub, Request};

/// Somebody waits for a reply.
#[derive(Debug)]
pub(super) struct ReplyWait {
    asker: ActorId,
    /// The asker's id of the request.
    id: Box<str>,
    trace: Box<str>,
    target: ActorId,
    asked_at: Millis,
    deadline: Millis,
    /// The reply, kept in case the asker lost it and asks again.
    given: Option<bytes::Bytes>,
}

impl Hub {
    pub(super) fn expect_reply(&mut self, id: &str, request: &Request<'_>, asker: ActorId, target: ActorId) {
        let settings = &self.settings;
        let span = request.envelope.ttl.unwrap_or(settings.answer_within).min(settings.seen_for_max);
        let wait = ReplyWait {
            asker,
            id: request.envelope.id.as_str().into(),
            trace: request.trace.as_str().into(),
            target,
            asked_at: request.now,
            deadline: request.now.saturating_add(span),
            given: None,
        };
        self.replies.insert(id.into(), wait);
    }

    pub(super) fn reply(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let (payload, now) = (&request.envelope.payload, request.now);
        let to = payload.needed("hub:reply", "inReplyTo")?;
        let to = to.as_str();
        let body = super::send::body(request)?;
        let Some(wait) = self.replies.get(to) else { return Err(refusal::nobody_waits(to)) };
        // Whichever of its addresses it gives: the session that was asked may reply.
        if self.session_of(wait.target) != Some(request.session) {
            let what = format!("`{}` was not asked of this actor", refusal::shown(to));
            return Err(refusal::unauthorized(&what, "only who was asked may reply"));
        }
        let first = wait.given.is_none();
        let (asker, target, id, trace) = (wait.asker, wait.target, wait.id.clone(), wait.trace.clone());
        if first {
            let bytes = self.reply_frame(request, target, asker, &id, &trace, &body);
            if let Some(wait) = self.replies.get_mut(to) {
                wait.given = Some(bytes.clone());
            }
            if let Some(session) = self.session_of(asker) {
                self.push(session, bytes, Millis::MAX, now);
            }
        }
        if request.is_ask() {
            let status = if self.session_of(asker).is_some() { "delivered" } else { "queued" };
            let answer =
                serde_json::json!({"messageId": request.envelope.id.as_str(), "deliveredAt": now, "status": status});
            self.respond(request, "hub:delivery_ack", &answer);
        }
        Ok(())
    }

    fn reply_frame(
        &mut self,
        request: &Request<'_>,
        replier: ActorId,
        asker: ActorId,
        id: &str,
        trace: &str,
        body: &super::send::Body<'_>,
    ) -> bytes::Bytes {
        let number = self.next_number();
        let own_id = self.id_of(number);
        let (from, to) = (self.address(replier), self.address(asker));
        let head = Head { correlation: Some(id), ttl: None, ..self.head(request, &own_id, &from, &to, body.kind()) };
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        let metadata = |out: &mut Vec<u8>| {
            super::send::write_metadata(out, request);
            if !trace.is_empty() && request.trace.is_empty() {
                out.push(b',');
                out.extend_from_slice(trace.as_bytes());
            }
        };
        frame::kept(&mut self.scratch, |out| frame::write(out, &head, payload, metadata))
    }

    /// An asker asked again: it may have lost the reply.
    pub(super) fn reply_again(&mut self, number: u64, now: Millis) {
        let id = self.id_of(number);
        let Some(wait) = self.replies.get(id.as_str()) else { return };
        let (asker, given) = (wait.asker, wait.given.clone());
        if let (Some(bytes), Some(session)) = (given, self.session_of(asker)) {
            self.push(session, bytes, Millis::MAX, now);
        }
    }

    /// Tells askers whose time is over.
    pub(super) fn time_out_replies(&mut self, now: Millis) {
        let over: Vec<Box<str>> =
            self.replies.iter().filter(|(_, wait)| wait.deadline < now).map(|(id, _)| id.clone()).collect();
        for wait in over.iter().filter_map(|id| self.replies.remove(id)).collect::<Vec<_>>() {
            if wait.given.is_some() {
                continue;
            }
            let address = self.address(wait.target);
            let refusal = refusal::timeout(&address, wait.asked_at, "no reply came in time");
            let print = self.print(&wait.id);
            if let Some(actor) = self.actors.get_mut(wait.asker) {
                // A repeat is a new question.
                actor.seen.forget_print(print);
            }
            if let Some(session) = self.session_of(wait.asker) {
                let to = self.address(wait.asker);
                self.say(session, Some(&to), refusal.kind, Some(&wait.id), &refusal.payload, &wait.trace, now);
            }
        }
    }

    /// Tells senders whose messages were not acknowledged in time.
    pub(super) fn time_out_acks(&mut self, id: SessionId, now: Millis) {
        let settings = &self.settings;
        let (within, max) = (settings.answer_within, settings.seen_for_max);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let is_over = |out: &Out| {
            let carried = &out.carried;
            let until = carried.received.saturating_add(carried.ttl.unwrap_or(within).min(max));
            carried.stored.is_none() && until < now
        };
        let over = session.awaiting.remove_if(is_over);
        for Out { carried, .. } in over {
            let address = self.address(carried.target);
            let refusal =
                refusal::timeout(&address, carried.received, "the target's client did not acknowledge it in time");
            self.fail(&carried, &refusal, now);
        }
    }
}
