//! From one to many: the body is written once, and no more than a batch of it goes out before others have a turn.
//!
//! Holds: fan-outs are carried out one after the other, so that whoever hears two messages of a topic hears them in order.

use std::sync::Arc;

use bytes::Bytes;

use crate::address::BROADCAST;
use crate::envelope::Text;
use crate::frame;
use crate::outbox::Carried;
use crate::refusal::Refusal;
use crate::seen::Said;
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::send::{Body, body, write_metadata};
use super::{Carry, Hub, Request};

/// So many messages of one topic go out together.
const TOGETHER: usize = 16;

/// A message on its way to many.
#[derive(Debug)]
pub(super) struct Fan {
    pub(super) targets: Vec<SessionId>,
    pub(super) next: usize,
    pub(super) bytes: Bytes,
    pub(super) expires: Millis,
    /// The topic and the message's number; `None`: a broadcast.
    pub(super) topic: Option<(Arc<str>, u64)>,
    /// Who is told the counts.
    pub(super) asked: Option<Box<Carried>>,
    pub(super) delivered: u32,
    pub(super) queued: u32,
    pub(super) failed: u32,
}

impl Hub {
    pub(super) fn broadcast(&mut self, request: &Request<'_>, sender: ActorId) -> Result<(), Refusal> {
        let payload = &request.envelope.payload;
        let body = body(request)?;
        let capability = payload.text("capability")?;
        let capability = capability.as_ref().map(Text::as_str);
        let without = payload.of("excludeSelf", "true or false")?.unwrap_or(false).then_some(request.session);
        let targets = self.registered_sessions(request.session, capability, without);
        let cost = targets.len().saturating_sub(1) as u64;
        self.charge(request.session, cost, request.now)?;
        let Some(mark) = self.first_time(request, sender, None) else { return Ok(()) };
        let number = self.next_number();
        let bytes = self.broadcast_frame(request, number, sender, &body);
        let expires = self.expires(request);
        let carry = Carry { sender, target: sender, number, mark };
        let asked = request.is_ask().then(|| self.carried(request, carry));
        self.counts.broadcasts += 1;
        let fan = Fan { targets, next: 0, bytes, expires, topic: None, asked, delivered: 0, queued: 0, failed: 0 };
        self.start_fan(fan, request.now);
        Ok(())
    }

    fn broadcast_frame(&mut self, request: &Request<'_>, number: u64, sender: ActorId, body: &Body<'_>) -> Bytes {
        let (id, from) = (self.id_of(number), self.address(sender));
        let head = self.head(request, &id, &from, BROADCAST, body.kind());
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        frame::kept(&mut self.scratch, |out| frame::write(out, &head, payload, |out| write_metadata(out, request)))
    }

    /// Sessions of all actors that a session may send to, each once, in the order of their addresses.
    fn registered_sessions(
        &self,
        sender: SessionId,
        capability: Option<&str>,
        without: Option<SessionId>,
    ) -> Vec<SessionId> {
        let access = &self.sessions[sender].access;
        let mut found = std::collections::BTreeSet::new();
        let mut targets = Vec::new();
        for (address, id) in &self.names {
            let actor = &self.actors[*id];
            let (Some(session), Some(registration)) = (actor.owner, &actor.registration) else { continue };
            let able = capability.is_none_or(|wanted| registration.capabilities.iter().any(|one| &**one == wanted));
            let meant = Some(session) != without && able && access.may_send(address);
            if meant && found.insert(session) {
                targets.push(session);
            }
        }
        targets
    }

    /// Begins a fan-out; one that fits into a batch and need not wait for another is done at once.
    pub(super) fn start_fan(&mut self, fan: Fan, now: Millis) {
        self.fans.push_back(fan);
        if self.fans.len() == 1 {
            self.advance(now);
        }
    }

    /// Brings the next batch of a message for many to its targets. Says whether there is more to do: others may have a turn first.
    pub fn advance(&mut self, now: Millis) -> bool {
        let mut together: Vec<Fan> = self.fans.drain(..self.alike()).collect();
        let Some(first) = together.first() else { return false };
        let (begin, end) = (first.next, first.targets.len().min(first.next + self.settings.fan_out));
        for place in begin..end {
            for fan in &mut together {
                self.copy(fan, place, now);
            }
        }
        together.iter_mut().for_each(|fan| fan.next = end);
        if together.first().is_some_and(|first| end < first.targets.len()) {
            together.into_iter().rev().for_each(|fan| self.fans.push_front(fan));
            return true;
        }
        for fan in together {
            if let Some(asked) = fan.asked {
                let (delivered, queued, failed) = (fan.delivered, fan.queued, fan.failed);
                self.answer(&asked, Said::Broadcast { delivered, queued, failed }, now, now);
            }
        }
        !self.fans.is_empty()
    }

    /// How many of the first ones are for the same and have come equally far: whoever gets several gets them at once.
    fn alike(&self) -> usize {
        let Some(first) = self.fans.front() else { return 0 };
        let topic = |fan: &Fan| fan.topic.as_ref().map(|(topic, _)| Arc::clone(topic));
        let is_alike =
            |fan: &&Fan| fan.next == first.next && topic(fan) == topic(first) && fan.targets == first.targets;
        self.fans.iter().take(TOGETHER).take_while(is_alike).count()
    }

    /// Whether a message for many is still under way.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.fans.is_empty()
    }

    fn copy(&mut self, fan: &mut Fan, place: usize, now: Millis) {
        let target = fan.targets[place];
        let settings = &self.settings;
        let Some(session) = self.sessions.get_mut(target).filter(|session| !session.is_closing()) else {
            fan.failed += 1;
            return;
        };
        let late = fan.expires < now;
        if late || session.outbox.is_over(settings) {
            fan.failed += 1;
            self.counts.dropped += 1;
            return self.missed(target, fan);
        }
        if session.outbox.is_high(settings) {
            fan.queued += 1;
        }
        fan.delivered += 1;
        let bytes = fan.bytes.clone();
        match &fan.topic {
            None => self.push(target, bytes, fan.expires, now),
            Some((topic, seq)) => self.push_topic(target, topic, *seq, (bytes, fan.expires), now),
        }
    }

    /// A subscriber does not get a message of its topic.
    fn missed(&mut self, target: SessionId, fan: &Fan) {
        let Some((topic, seq)) = &fan.topic else { return };
        let Some(session) = self.sessions.get_mut(target) else { return };
        if let Some(subscription) = session.subscriptions.get_mut(topic) {
            let from = subscription.missed.map_or(*seq, |(from, _)| from);
            subscription.missed = Some((from, *seq));
        }
    }
}
