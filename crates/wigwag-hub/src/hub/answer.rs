//! What the hub says: answers, acknowledgements, refusals.

use serde_json::{Value, json};

use crate::address::HUB;
use crate::frame::{self, Head};
use crate::outbox::{Carried, Out};
use crate::refusal::Refusal;
use crate::seen::{Answer, Said};
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::{Hub, Request};

impl Hub {
    /// Says something to a session; `to` is its own address if it is not given.
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
        let bytes = self.press.brief(|out| frame::said(out, &id, to, kind, correlation, now, payload, trace));
        self.push(session, Out::plain(bytes), now);
    }

    /// Says something that nobody asked for.
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

    /// A message could not be delivered: its sender is told, and may try again.
    pub(super) fn fail(&mut self, carried: &Carried, refusal: &Refusal, now: Millis) {
        self.counts.refused += 1;
        #[cfg(feature = "testing")]
        self.refused.push(carried.id.clone().into());
        let Some(sender) = self.actors.get_mut(carried.sender) else { return };
        if carried.is_ask {
            sender.seen.forget(carried.print);
        }
        let (address, owner) = (std::sync::Arc::clone(&sender.address), sender.owner);
        if let Some(session) = owner {
            self.say(session, Some(&address), refusal.kind, Some(&carried.id), &refusal.payload, &carried.trace, now);
        }
    }

    /// A message has arrived, or is kept: its sender is told so, now and whenever it asks again.
    pub(super) fn answer(&mut self, carried: &Carried, said: Said, at: Millis, now: Millis) {
        if !carried.is_ask {
            return;
        }
        let answer = Answer { number: carried.number, at, said };
        let Some(sender) = self.actors.get_mut(carried.sender) else { return };
        sender.seen.answer(carried.print, answer);
        self.say_answer(carried.sender, &carried.id, &carried.trace, answer, None, now);
    }

    /// Says an answer in the words it is always said in.
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
        let mut own_id = self.id_of(answer.number);
        own_id.push('a');
        let to = self.address(sender);
        let head = Head {
            id: &own_id,
            from: HUB,
            to: &to,
            kind: kind_of(answer.said),
            is_ask: false,
            correlation: Some(id),
            timestamp: answer.at,
            ttl: None,
            signature: None,
            extra: None,
        };
        let payload = |out: &mut Vec<u8>| write_payload(out, id, answer, topic);
        let metadata = |out: &mut Vec<u8>| out.extend_from_slice(trace.as_bytes());
        let bytes = self.press.brief(|out| frame::write(out, &head, payload, metadata));
        self.push(session, Out::plain(bytes), now);
    }
}

fn kind_of(said: Said) -> &'static str {
    match said {
        Said::Delivered | Said::Queued => "hub:delivery_ack",
        Said::Broadcast { .. } => "hub:broadcast_ack",
        Said::Published { .. } => "hub:published",
    }
}

fn write_payload(out: &mut Vec<u8>, id: &str, answer: Answer, topic: Option<&str>) {
    let status = match answer.said {
        Said::Delivered => "delivered",
        Said::Queued => "queued",
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
    // The one that is said for every message that is asked: without a tree.
    out.extend_from_slice(b"{\"messageId\":");
    frame::push_text(out, id);
    out.extend_from_slice(b",\"deliveredAt\":");
    frame::push_number(out, answer.at);
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(status.as_bytes());
    out.extend_from_slice(b"\"}");
}
