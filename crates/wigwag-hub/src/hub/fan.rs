//! Fan-out: a message for many is serialised once, and sent in batches so that other work gets a turn.
//!
//! Holds: fan-outs run in order, so that every subscriber gets the messages of a topic in order. The targets of a
//! broadcast are collected in slices, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::address::BROADCAST;
use crate::frame;
use crate::outbox::Carried;
use crate::refusal::{self, Refusal};
use crate::rights::Access;
use crate::seen::Said;
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::send::{Body, body, write_metadata};
use super::{Carry, Hub, Request};

/// Maximum number of messages of one topic that are sent together.
const TOGETHER: usize = 16;

/// Limits on fan-outs in progress; more are rejected with `queue_full`.
const FANS_MAX: usize = 4_096;
const FAN_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Filtering an actor costs a fraction of copying a frame.
const LOOKS_PER_COPY: usize = 10;

/// A message in delivery to many targets.
#[derive(Debug)]
pub(super) struct Fan {
    pub(super) targets: Arc<Vec<SessionId>>,
    pub(super) next: usize,
    pub(super) bytes: Bytes,
    pub(super) expires: Millis,
    /// The topic and the message's number; `None`: a broadcast.
    pub(super) topic: Option<(Arc<str>, u64)>,
    /// The broadcast or publish request, whose sender gets the counts.
    pub(super) asked: Option<Box<Carried>>,
    pub(super) delivered: u32,
    pub(super) queued: u32,
    pub(super) failed: u32,
    /// Set while the targets of a broadcast are being collected.
    pub(super) gathering: Option<Box<Gathering>>,
}

/// The targets of a broadcast while they are being collected.
#[derive(Debug)]
pub(super) struct Gathering {
    access: Access,
    capability: Option<Box<str>>,
    without: Option<SessionId>,
    /// The last address that was filtered.
    after: Option<Arc<str>>,
    found: BTreeSet<SessionId>,
    targets: Vec<SessionId>,
    carried: Box<Carried>,
}

impl Fan {
    /// Creates a fan-out without targets.
    pub(super) fn new(bytes: Bytes, expires: Millis) -> Self {
        let targets = Arc::default();
        let (topic, asked, gathering) = (None, None, None);
        Self { targets, next: 0, bytes, expires, topic, asked, delivered: 0, queued: 0, failed: 0, gathering }
    }
}

impl Hub {
    /// Rejects another fan-out while too many are in progress.
    pub(super) fn check_fans(&self, to: &str) -> Result<(), Refusal> {
        if self.fans.len() < FANS_MAX && self.fan_bytes < FAN_BYTES_MAX {
            return Ok(());
        }
        Err(refusal::queue_full(to, "too many broadcasts and publishes are in progress"))
    }

    pub(super) fn broadcast(&mut self, request: &Request<'_>, sender: ActorId) -> Result<(), Refusal> {
        let payload = &request.envelope.payload;
        let body = body(request)?;
        let capability = payload.text("capability")?;
        let without = payload.flag("excludeSelf")?.then_some(request.session);
        self.check_fans(BROADCAST)?;
        let tag = self.tag(BROADCAST);
        let Some(slot) = self.admit(request, sender, tag, None)? else { return Ok(()) };
        let bytes = self.broadcast_frame(request, slot.number, sender, &body);
        let expires = self.expires(request);
        let carried = self.carried(request, Carry { sender, target: sender, slot, expects_reply: false });
        let gathering = Gathering {
            access: self.sessions[request.session].access.clone(),
            capability: capability.as_ref().map(|text| text.as_str().into()),
            without,
            after: None,
            found: BTreeSet::new(),
            targets: Vec::new(),
            carried,
        };
        self.start_fan(Fan { gathering: Some(Box::new(gathering)), ..Fan::new(bytes, expires) }, request.now);
        Ok(())
    }

    fn broadcast_frame(&mut self, request: &Request<'_>, number: u64, sender: ActorId, body: &Body<'_>) -> Bytes {
        let (id, from) = (self.id_of(number), self.address(sender));
        let head = self.head(request, &id, &from, BROADCAST, body.kind());
        let payload = |out: &mut Vec<u8>| out.extend_from_slice(body.payload.as_bytes());
        frame::kept(&mut self.scratch, |out| frame::write(out, &head, payload, |out| write_metadata(out, request)))
    }

    /// Collects the targets of a broadcast from the next slice of actors. Returns true after the last slice.
    fn gather(&self, gathering: &mut Gathering) -> bool {
        let slice = LOOKS_PER_COPY * self.settings.work_slice;
        let some = self.names_after(gathering.after.as_deref(), slice);
        for (address, id) in &some {
            let actor = &self.actors[*id];
            let (Some(session), Some(registration)) = (actor.owner, &actor.registration) else { continue };
            let has = |wanted: &str| registration.capabilities.iter().any(|one| &**one == wanted);
            let able = gathering.capability.as_deref().is_none_or(has);
            let meant = Some(session) != gathering.without && able && gathering.access.may_send(address);
            if meant && gathering.found.insert(session) {
                gathering.targets.push(session);
            }
        }
        let is_last = some.len() < slice;
        gathering.after = some.into_iter().next_back().map(|(address, _)| address);
        is_last
    }

    /// Charges the sender for all targets and starts the broadcast. Returns false if the rate limit refuses it.
    fn gathered(&mut self, fan: &mut Fan, gathering: Gathering, now: Millis) -> bool {
        let Gathering { targets, carried, .. } = gathering;
        let cost = targets.len().saturating_sub(1) as u64;
        let is_there = self.sessions.contains_key(carried.feeder);
        if let Err(refusal) = if is_there { self.charge(carried.feeder, cost, now) } else { Ok(()) } {
            self.fail(&carried, &refusal, now);
            return false;
        }
        self.counts.broadcasts += 1;
        fan.targets = Arc::new(targets);
        fan.asked = carried.is_ask.then_some(carried);
        true
    }

    /// Starts a fan-out. If it fits into one batch and no other is in progress, it completes immediately.
    pub(super) fn start_fan(&mut self, fan: Fan, now: Millis) {
        self.fan_bytes += fan.bytes.len();
        self.fans.push_back(fan);
        if self.fans.len() == 1 {
            self.advance_fans(now);
        }
    }

    fn end_fan(&mut self, fan: &Fan) {
        self.fan_bytes -= fan.bytes.len();
    }

    /// Sends the next batch of a fan-out to its targets.
    pub(super) fn advance_fans(&mut self, now: Millis) {
        let Some(mut first) = self.fans.pop_front() else { return };
        if let Some(mut gathering) = first.gathering.take() {
            if !self.gather(&mut gathering) {
                first.gathering = Some(gathering);
                return self.fans.push_front(first);
            }
            if !self.gathered(&mut first, *gathering, now) {
                return self.end_fan(&first);
            }
        }
        self.fans.push_front(first);
        self.send_batch(now);
    }

    fn send_batch(&mut self, now: Millis) {
        let mut together: Vec<Fan> = self.fans.drain(..self.alike()).collect();
        let Some(first) = together.first() else { return };
        // Several messages of one topic share the batch size.
        let batch = (self.settings.fan_out / together.len()).max(1);
        let (begin, end) = (first.next, first.targets.len().min(first.next + batch));
        for place in begin..end {
            for fan in &mut together {
                self.copy(fan, place, now);
            }
        }
        together.iter_mut().for_each(|fan| fan.next = end);
        if together.first().is_some_and(|first| end < first.targets.len()) {
            return together.into_iter().rev().for_each(|fan| self.fans.push_front(fan));
        }
        for mut fan in together {
            self.end_fan(&fan);
            if let Some(asked) = fan.asked.take() {
                let (delivered, queued, failed) = (fan.delivered, fan.queued, fan.failed);
                self.answer(&asked, Said::Broadcast { delivered, queued, failed }, now, now);
            }
        }
    }

    /// Returns how many fan-outs at the front have the same targets and progress, so that each
    /// target gets them together.
    fn alike(&self) -> usize {
        let Some(first) = self.fans.front() else { return 0 };
        let is_alike =
            |fan: &&Fan| fan.next == first.next && Arc::ptr_eq(&fan.targets, &first.targets) && fan.gathering.is_none();
        self.fans.iter().take(TOGETHER).take_while(is_alike).count().max(1)
    }

    fn copy(&mut self, fan: &mut Fan, place: usize, now: Millis) {
        let target = fan.targets[place];
        let settings = &self.settings;
        let Some(session) = self.sessions.get_mut(target).filter(|session| !session.is_closing()) else {
            fan.failed += 1;
            return;
        };
        // A session that subscribed after the fan-out started got the message from the history.
        let is_replayed = fan.topic.as_ref().is_some_and(|(topic, seq)| {
            session.subscriptions.get(topic).is_some_and(|subscription| *seq <= subscription.replayed)
        });
        if is_replayed {
            fan.delivered += 1;
            return;
        }
        let late = fan.expires < now;
        if late || session.outbox.is_over(settings, &self.spare) {
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

    /// Records that a subscriber misses a message of its topic.
    fn missed(&mut self, target: SessionId, fan: &Fan) {
        let Some((topic, seq)) = &fan.topic else { return };
        let Some(session) = self.sessions.get_mut(target) else { return };
        if let Some(subscription) = session.subscriptions.get_mut(topic) {
            let from = subscription.missed.map_or(*seq, |(from, _)| from);
            subscription.missed = Some((from, *seq));
        }
    }
}
