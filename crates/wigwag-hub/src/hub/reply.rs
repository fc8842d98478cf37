//! Request and reply.
//!
//! Holds: a rejected request has no wait, so no reply or timeout follows its rejection. A reply is a message like any
//! other: it is written to the asker's connection, stored in its queue, or rejected, and its sender gets the
//! corresponding answer. A late reply counts while a repeat of the request is recognised.

use std::sync::Arc;

use bytes::Bytes;

use crate::frame::{self, Head, push_field, push_text};
use crate::outbox::Out;
use crate::refusal::{self, Refusal};
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::send::{Body, body, seen_span};
use super::{Carry, Hub, Request};

/// A reply that was received.
#[derive(Debug)]
struct Given {
    /// The replier's id of the reply.
    id: Box<str>,
    /// The frame, to resend for a repeated request.
    bytes: Option<Bytes>,
}

/// A request that waits for its reply.
#[derive(Debug)]
pub(super) struct ReplyWait {
    asker: ActorId,
    asker_address: Arc<str>,
    /// The asking session; the number of its waits is limited.
    session: SessionId,
    /// The asker's id of the request.
    id: Box<str>,
    trace: Box<str>,
    target: ActorId,
    asked_at: Millis,
    span: Millis,
    deadline: Millis,
    /// End of the dedup window of the request.
    until: Millis,
    /// The asker was sent a timeout.
    is_late: bool,
    given: Option<Given>,
    /// Its time in `reply_times`.
    next: Millis,
}

impl ReplyWait {
    fn time(&self) -> Millis {
        if self.is_late || self.given.is_some() { self.until } else { self.deadline }
    }
}

impl Hub {
    /// Starts waiting for the reply to a request.
    pub(super) fn expect_reply(
        &mut self,
        number: u64,
        request: &Request<'_>,
        asker: ActorId,
        target: ActorId,
    ) -> Result<(), Refusal> {
        let (settings, now) = (&self.settings, request.now);
        let max = settings.reply_waits_max;
        if self.sessions[request.session].reply_waits >= max || self.replies.len() >= 10 * max {
            let address = self.address(target);
            return Err(refusal::queue_full(&address, "too many requests are waiting for replies"));
        }
        let ttl = request.envelope.ttl;
        let span = ttl.unwrap_or(settings.answer_within).min(settings.seen_for_max);
        let deadline = now.saturating_add(span);
        let wait = ReplyWait {
            asker,
            asker_address: self.address(asker),
            session: request.session,
            id: request.envelope.id.as_str().into(),
            trace: request.trace.as_str().into(),
            target,
            asked_at: now,
            span,
            deadline,
            until: deadline.max(now.saturating_add(seen_span(settings, ttl))),
            is_late: false,
            given: None,
            next: deadline,
        };
        self.drop_wait(number);
        self.sessions[request.session].reply_waits += 1;
        self.reply_times.insert((deadline, number));
        self.replies.insert(number, wait);
        Ok(())
    }

    /// Removes a reply wait.
    pub(super) fn drop_wait(&mut self, number: u64) {
        let Some(wait) = self.replies.remove(&number) else { return };
        self.reply_times.remove(&(wait.next, number));
        if self.replies_given.remove(&number) {
            self.reply_bytes -= wait.given.and_then(|given| given.bytes).map_or(0, |bytes| bytes.len());
        }
        if let Some(session) = self.sessions.get_mut(wait.session) {
            session.reply_waits = session.reply_waits.saturating_sub(1);
        }
    }

    fn reschedule(&mut self, number: u64) {
        let Some(wait) = self.replies.get_mut(&number) else { return };
        self.reply_times.remove(&(wait.next, number));
        wait.next = wait.time();
        self.reply_times.insert((wait.next, number));
    }

    pub(super) fn reply(&mut self, request: &Request<'_>, sender: ActorId) -> Result<(), Refusal> {
        let to = request.envelope.payload.needed("hub:reply", "inReplyTo")?;
        let to = to.as_str();
        let body = body(request)?;
        let tag = self.tag(to);
        let Some(slot) = self.admit(request, sender, tag, None)? else { return Ok(()) };
        let outcome = self.check_reply(request, to);
        let number = outcome.inspect_err(|_| self.actors[sender].seen.fail(slot.mark))?;
        let wait = &self.replies[&number];
        let (asker_address, replier) = (Arc::clone(&wait.asker_address), wait.target);
        let (id, trace) = (wait.id.clone(), wait.trace.clone());
        // Actors that are away may be evicted from memory.
        let asker = self.actor(&asker_address, request.now);
        let addresses = (&*self.address(replier), &*asker_address);
        let bytes = self.reply_frame(request, slot.number, addresses, (&id, &trace), &body);
        self.remember_reply(number, request.envelope.id.as_str(), &bytes);
        let (now, expires) = (request.now, self.expires(request));
        let mut carried = self.carried(request, Carry { sender, target: asker, slot, expects_reply: false });
        // Replies are not acknowledged by the asker, and are queued for it.
        (carried.require_ack, carried.queue) = (false, true);
        if deliberate_bug!(ReplyNotKept) && self.session_of(asker).is_none() {
            self.answer(&carried, crate::seen::Said::Queued, now, now);
            return Ok(());
        }
        self.route(Out { bytes, expires, carried }, now);
        Ok(())
    }

    /// Finds the request that a reply answers, if this session may reply to it.
    fn check_reply(&self, request: &Request<'_>, to: &str) -> Result<u64, Refusal> {
        let number = self.number_of(to).filter(|number| self.replies.contains_key(number));
        let Some(number) = number else { return Err(refusal::nobody_waits(to)) };
        let wait = &self.replies[&number];
        // The session that received the request may reply from any of its addresses.
        if self.session_of(wait.target) != Some(request.session) {
            let what = format!("`{}` was not sent to this actor", refusal::shown(to));
            return Err(refusal::unauthorized(&what, "only the recipient can reply"));
        }
        let is_same = |given: &Given| &*given.id == request.envelope.id.as_str();
        match wait.given.as_ref().is_none_or(is_same) {
            true => Ok(number),
            false => Err(refusal::conflict(&format!("`{}` already has a reply", refusal::shown(to)))),
        }
    }

    /// Keeps a reply in case the asker loses it, and evicts the oldest replies beyond the byte limit.
    fn remember_reply(&mut self, number: u64, id: &str, bytes: &Bytes) {
        let Some(wait) = self.replies.get_mut(&number) else { return };
        let given = Given { id: id.into(), bytes: Some(bytes.clone()) };
        let before = wait.given.replace(given).and_then(|given| given.bytes).map_or(0, |bytes| bytes.len());
        self.reply_bytes = self.reply_bytes + bytes.len() - before;
        self.replies_given.insert(number);
        self.reschedule(number);
        while self.reply_bytes > self.settings.replies_bytes_max {
            let Some(oldest) = self.replies_given.pop_first() else { break };
            let given = self.replies.get_mut(&oldest).and_then(|wait| wait.given.as_mut());
            let forgotten = given.and_then(|given| given.bytes.take());
            self.reply_bytes -= forgotten.map_or(0, |bytes| bytes.len());
        }
    }

    fn reply_frame(
        &mut self,
        request: &Request<'_>,
        number: u64,
        (from, to): (&str, &str),
        (id, trace): (&str, &str),
        body: &Body<'_>,
    ) -> Bytes {
        let own_id = self.id_of(number);
        let head = Head { correlation: Some(id), ..self.head(request, &own_id, from, to, body.kind()) };
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        let metadata = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"\"originalMessageId\":");
            push_text(out, request.envelope.id.as_str());
            let entries = request.envelope.metadata.entries.iter();
            // These flags control delivery and do not apply to replies.
            entries
                .filter(|(key, _)| !matches!(*key, "requireAck" | "queue"))
                .for_each(|(key, raw)| push_field(out, key, raw));
            if !trace.is_empty() && request.trace.is_empty() {
                out.push(b',');
                out.extend_from_slice(trace.as_bytes());
            }
        };
        frame::kept(&mut self.scratch, |out| frame::write(out, &head, payload, metadata))
    }

    /// Handles a repeated request: resends the reply, or restarts the timeout.
    pub(super) fn wait_again(&mut self, number: u64, now: Millis) {
        let Some(wait) = self.replies.get_mut(&number) else { return };
        let reply = wait.given.as_ref().and_then(|given| given.bytes.clone());
        if wait.is_late && wait.given.is_none() {
            wait.is_late = false;
            wait.deadline = now.saturating_add(wait.span);
            wait.until = wait.until.max(wait.deadline);
        }
        let asker = wait.asker;
        self.reschedule(number);
        if let (Some(bytes), Some(session)) = (reply, self.session_of(asker)) {
            self.push(session, bytes, Millis::MAX, now);
        }
    }

    /// Extends the deadline of a reply on behalf of the target. Returns the asker, its id of the
    /// request and its trace.
    pub(super) fn extend_wait(
        &mut self,
        id: &str,
        session: SessionId,
        until: Option<Millis>,
    ) -> Option<(ActorId, String, String)> {
        let number = self.number_of(id)?;
        let target = self.replies.get(&number).filter(|wait| wait.given.is_none())?.target;
        self.session_of(target).filter(|owner| *owner == session)?;
        let wait = self.replies.get_mut(&number)?;
        if let Some(until) = until {
            (wait.deadline, wait.is_late) = (until, false);
            wait.until = wait.until.max(until);
        }
        let asker = (wait.asker, wait.id.to_string(), wait.trace.to_string());
        self.reschedule(number);
        Some(asker)
    }

    /// Sends timeouts to a slice of the overdue askers. Returns true if there are more.
    pub(super) fn time_out_replies(&mut self, now: Millis) -> bool {
        for _ in 0..self.settings.work_slice {
            let next = self.reply_times.first().filter(|(time, _)| *time < now);
            let Some((_, number)) = next.copied() else { return false };
            let Some(wait) = self.replies.get_mut(&number) else { continue };
            if wait.until < now && (wait.is_late || wait.given.is_some()) {
                self.drop_wait(number);
                continue;
            }
            wait.is_late = true;
            let (asker, target, asked_at) = (wait.asker, wait.target, wait.asked_at);
            let (id, trace) = (wait.id.clone(), wait.trace.clone());
            self.reschedule(number);
            if deliberate_bug!(WaitOutlivesRefusal) {
                let print = self.print(&id);
                if let Some(actor) = self.actors.get_mut(asker) {
                    actor.seen.forget_print(print);
                }
            }
            if let Some(session) = self.session_of(asker) {
                let refusal = refusal::no_reply(&self.address(target), asked_at);
                let to = self.address(asker);
                self.say(session, Some(&to), refusal.kind, Some(&id), &refusal.payload, &trace, now);
            }
        }
        true
    }

    /// Sends timeouts to a slice of the senders without an acknowledgement. Returns true if there may be more.
    pub(super) fn time_out_acks(&mut self, id: SessionId, now: Millis) -> bool {
        let max = self.settings.work_slice;
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let over = session.awaiting.overdue(now, max);
        for carried in &over {
            let address = self.address(carried.target);
            let refusal =
                refusal::timeout(&address, carried.received, "the target did not acknowledge the message in time");
            self.fail(carried, &refusal, now);
        }
        over.len() == max
    }
}
