//! Frames from the hub: answers, acknowledgements, errors.

use serde_json::{Value, json};

use crate::frame::{self, Head};
use crate::outbox::Carried;
use crate::refusal::{self, Refusal};
use crate::seen::{Answer, Recorded, Said};
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::{Hub, Request};

impl Hub {
    /// Sends a frame to a session; `to` defaults to the session's own address.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of an envelope")]
    pub(super) fn say(
        &mut self,
        session: SessionId,
        to: Option<&str>,
        kind: &str,
        correlation: Option<&str>,
        payload: &Value,
        trace: &str,
        now: Millis,
    ) {
        let Some(found) = self.sessions.get(session) else { return };
        let own = found.own.map(|own| self.address(own));
        let to = to.unwrap_or_else(|| own.as_deref().unwrap_or("@(session)"));
        let number = self.next_number();
        let id = self.id_of(number);
        self.write(session, now, |out| frame::said(out, &id, to, kind, correlation, now, payload, trace));
    }

    /// Sends a frame that answers no request.
    pub(super) fn announce(&mut self, session: SessionId, kind: &str, payload: &Value, now: Millis) {
        self.say(session, None, kind, None, payload, "", now);
    }

    /// Answers a request.
    pub(super) fn respond(&mut self, request: &Request<'_>, kind: &str, payload: &Value) {
        let envelope = request.envelope;
        let (to, id) = (envelope.from.as_str(), envelope.id.as_str());
        self.say(request.session, Some(to), kind, Some(id), payload, &request.trace, request.now);
    }

    pub(super) fn refuse(&mut self, request: &Request<'_>, refusal: &Refusal) {
        self.counts.refused += 1;
        #[cfg(feature = "testing")]
        self.refused.push(request.envelope.id.as_str().to_owned());
        self.respond(request, refusal.kind, &refusal.payload);
    }

    /// Notifies the sender that a message could not be delivered. The sender may retry.
    pub(super) fn fail(&mut self, carried: &Carried, refusal: &Refusal, now: Millis) {
        self.counts.refused += 1;
        #[cfg(feature = "testing")]
        self.refused.push(carried.id.clone());
        if carried.expects_reply && !deliberate_bug!(WaitOutlivesRefusal) {
            self.drop_wait(carried.number);
        }
        let Some(sender) = self.actors.get_mut(carried.sender) else { return };
        sender.seen.fail(carried.mark);
        let (address, owner) = (std::sync::Arc::clone(&sender.address), sender.owner);
        if let Some(session) = owner {
            self.say(session, Some(&address), refusal.kind, Some(&carried.id), &refusal.payload, &carried.trace, now);
        }
    }

    /// Records a delivery or storage receipt and sends it; a repeat of the ask gets the same one.
    pub(super) fn answer(&mut self, carried: &Carried, said: Said, at: Millis, now: Millis) {
        if !carried.is_ask {
            return;
        }
        let answer = Answer { number: carried.number, at, said };
        let Some(sender) = self.actors.get_mut(carried.sender) else { return };
        // A late acknowledgement may follow that of a retry.
        if sender.seen.answer(carried.mark, answer) == Recorded::Again {
            return;
        }
        let together = sender.owner.and_then(|owner| self.sessions.get(owner)).is_some_and(|owner| owner.acks_together);
        if together && said == Said::Delivered && at == now && carried.trace.is_empty() {
            if sender.arrived.is_empty() {
                self.to_tell.push(carried.sender);
            } else {
                sender.arrived.push(b',');
            }
            return frame::push_text(&mut sender.arrived, &carried.id);
        }
        self.say_answer(carried.sender, &carried.id, &carried.trace, answer, None, now);
    }

    /// Sends the combined acknowledgements that have accumulated, at the end of each batch of work.
    pub(super) fn tell_arrived(&mut self, now: Millis) {
        while let Some(sender) = self.to_tell.pop() {
            let number = self.next_number();
            let id = self.id_of(number);
            let Some(actor) = self.actors.get_mut(sender) else { continue };
            let (arrived, to) = (std::mem::take(&mut actor.arrived), std::sync::Arc::clone(&actor.address));
            let Some(session) = actor.owner else { continue };
            let head = Head::from_hub(&id, &to, "hub:delivery_acks", now);
            let payload = |out: &mut Vec<u8>| {
                out.extend_from_slice(b"{\"status\":\"delivered\",\"deliveredAt\":");
                frame::push_number(out, now);
                out.extend_from_slice(b",\"messageIds\":[");
                out.extend_from_slice(&arrived);
                out.extend_from_slice(b"]}");
            };
            self.write(session, now, |out| frame::write(out, &head, payload, |_| ()));
        }
    }

    /// Sends the fixed frame of an answer.
    pub(super) fn say_answer(
        &mut self,
        sender: ActorId,
        id: &str,
        trace: &str,
        answer: Answer,
        topic: Option<&str>,
        now: Millis,
    ) {
        let Some(session) = self.session_of(sender) else { return };
        if answer.said == Said::Expired {
            let (refusal, to) = (refusal::expired_in_queue(), self.address(sender));
            return self.say(session, Some(&to), refusal.kind, Some(id), &refusal.payload, trace, now);
        }
        let own_id = self.id_of(answer.number).of_answer();
        let Some(to) = self.actors.get(sender).map(|sender| &*sender.address) else { return };
        let head = Head { correlation: Some(id), ..Head::from_hub(&own_id, to, kind_of(answer.said), answer.at) };
        let payload = |out: &mut Vec<u8>| write_payload(out, id, answer, topic);
        let metadata = |out: &mut Vec<u8>| out.extend_from_slice(trace.as_bytes());
        let Some(found) = self.sessions.get_mut(session) else { return };
        let at = (now, &self.settings, &mut self.spare);
        found.outbox.write(Millis::MAX, None, at, |out| frame::write(out, &head, payload, metadata));
        self.wake(session);
    }
}

fn kind_of(said: Said) -> &'static str {
    match said {
        Said::Delivered | Said::Queued | Said::Expired => "hub:delivery_ack",
        Said::Broadcast { .. } => "hub:broadcast_ack",
        Said::Published { .. } => "hub:published",
    }
}

fn write_payload(out: &mut Vec<u8>, id: &str, answer: Answer, topic: Option<&str>) {
    let status = match answer.said {
        Said::Delivered => "delivered",
        Said::Queued => "queued",
        Said::Expired => "expired",
        Said::Broadcast { delivered, queued, failed } => {
            let payload =
                json!({"messageId": id, "deliveredCount": delivered, "queuedCount": queued, "failedCount": failed});
            let _ = serde_json::to_writer(out, &payload);
            return;
        }
        Said::Published { epoch, seq, subscribers } => {
            let payload = json!({"topic": topic, "epoch": epoch, "seq": seq, "subscriberCount": subscribers});
            let _ = serde_json::to_writer(out, &payload);
            return;
        }
    };
    // The most frequent answer is written directly, without a JSON tree.
    out.extend_from_slice(b"{\"messageId\":");
    frame::push_text(out, id);
    out.extend_from_slice(b",\"deliveredAt\":");
    frame::push_number(out, answer.at);
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(status.as_bytes());
    out.extend_from_slice(b"\"}");
}
