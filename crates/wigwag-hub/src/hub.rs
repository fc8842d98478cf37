//! The hub's state machine: its inputs, its outputs and the state in between.

mod actor;
mod answer;
mod connect;
mod dedup;
mod effect;
mod fan;
mod leave;
mod look;
mod queue;
mod register;
mod reply;
mod run;
mod send;
mod session;
mod stats;
mod tick;
mod tokens;
mod topics;
mod visits;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use slotmap::SlotMap;

use crate::address::{HUB, HUB_ALIAS};
use crate::envelope::{Envelope, Frame, Pattern, Unreadable};
use crate::id::{self, OwnId};
use crate::outbox::{Carried, Spare};
use crate::refusal::{self, Refusal};
use crate::rights::Access;
use crate::seen::{Print, Slot, Tag};
use crate::settings::{Millis, Settings};
use crate::topic::{Histories, Topic};
use crate::{ActorId, SessionId};

use actor::Actor;
use dedup::SeenTotal;
pub use effect::{Close, Done, Effect, Kept, Op, Place, SignalRefusal, Ticket};
use fan::Fan;
use queue::Job;
use reply::ReplyWait;
use session::{Session, State, hand_out};
use stats::Counts;
use tick::Round;
use tokens::Tokens;
use visits::Visits;
use work::Chore;

/// Input from a connection.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are frames, and a box for each takes longer than a move")]
pub enum Came<'a> {
    /// A frame, and the access that its token grants, if it contains one.
    Frame(Result<Frame<'a>, Unreadable>, Option<Access>),
    /// A frame of this many bytes, which exceeds the limit and was not read.
    TooLarge(usize),
    /// A sign of life, such as a ping.
    Sign,
}

/// Routes messages between actors. See the crate's documentation.
#[derive(Debug)]
pub struct Hub {
    settings: Settings,
    /// Distinguishes the message ids of this hub from those of an earlier one.
    boot: String,
    seed: [u8; 32],
    /// The key for hashing message ids.
    print_key: [u8; 16],
    number: u64,
    /// Epoch of the topic created last.
    epoch: u64,
    /// Distinguishes the epochs of two servers that create a topic at the same time.
    salt: u64,
    tickets: u64,
    /// Boxed, because a slot map never shrinks and the memory of many past sessions must be released.
    sessions: SlotMap<SessionId, Box<Session>>,
    /// All sessions, unordered.
    roster: Vec<SessionId>,
    tokens: Tokens,
    actors: SlotMap<ActorId, Box<Actor>>,
    names: BTreeMap<Arc<str>, ActorId>,
    topics: BTreeMap<Arc<str>, Topic>,
    histories: Histories,
    fans: VecDeque<Fan>,
    /// Bytes of all fan-outs in progress.
    fan_bytes: usize,
    /// Requests that wait for a reply, by message number.
    replies: BTreeMap<u64, ReplyWait>,
    /// Next deadline of each wait.
    reply_times: BTreeSet<(Millis, u64)>,
    /// Waits whose reply is remembered, and the bytes of these replies.
    replies_given: BTreeSet<u64>,
    reply_bytes: usize,
    seen_total: SeenTotal,
    /// Long jobs in progress, worked off in slices.
    chores: VecDeque<Chore>,
    /// Progress of the current tick.
    round: Round,
    jobs: BTreeMap<Ticket, Job>,
    woken: Vec<SessionId>,
    /// Senders with acknowledgements that are not sent yet.
    to_tell: Vec<ActorId>,
    effects: Vec<Effect>,
    counts: Counts,
    visits: Visits,
    spare: Spare,
    /// Buffer for writing frames that are then copied into shared bytes.
    scratch: Vec<u8>,
    /// Ids of rejected requests, for the simulator: a rejection may not reach its sender.
    #[cfg(feature = "testing")]
    refused: Vec<String>,
}

/// Maximum bytes per call of [`Hub::take`]: until they are written, the caller holds a second copy.
const TAKEN_BYTES: usize = 256 * 1_024;

/// A request in progress.
struct Request<'a> {
    session: SessionId,
    envelope: &'a Envelope<'a>,
    /// Hash of its id, if it is an ask.
    print: Option<Print>,
    trace: String,
    now: Millis,
}

impl Request<'_> {
    fn is_ask(&self) -> bool {
        self.envelope.pattern == Pattern::Ask
    }
}

impl Hub {
    /// Creates a hub without sessions. `seed` is random and secret.
    #[must_use]
    pub fn new(settings: Settings, seed: [u8; 32], now: Millis) -> Self {
        Self {
            settings,
            boot: boot(now, &seed),
            seed,
            print_key: print_key(&seed),
            number: 0,
            epoch: 0,
            salt: boot_hash(&seed) & EPOCH_SALT,
            tickets: 0,
            sessions: SlotMap::with_key(),
            roster: Vec::new(),
            tokens: Tokens::default(),
            actors: SlotMap::with_key(),
            names: BTreeMap::new(),
            topics: BTreeMap::new(),
            histories: Histories::default(),
            fans: VecDeque::new(),
            fan_bytes: 0,
            replies: BTreeMap::new(),
            reply_times: BTreeSet::new(),
            replies_given: BTreeSet::new(),
            reply_bytes: 0,
            seen_total: SeenTotal::default(),
            chores: VecDeque::new(),
            round: Round::default(),
            jobs: BTreeMap::new(),
            woken: Vec::new(),
            to_tell: Vec::new(),
            effects: Vec::new(),
            counts: Counts::default(),
            visits: Visits::default(),
            spare: Spare::default(),
            scratch: Vec::new(),
            #[cfg(feature = "testing")]
            refused: Vec::new(),
        }
    }

    /// Returns the ids of requests rejected since the last call.
    #[cfg(feature = "testing")]
    pub fn refused(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the number of sessions, actors and topics visited since the last call, which bounds the time of a call.
    #[cfg(feature = "testing")]
    pub fn visits(&self) -> usize {
        self.visits.take()
    }

    /// Returns the hub's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Opens a session for a new connection. `access` comes from the token of its HTTP upgrade
    /// request; `secret` is random.
    pub fn open(&mut self, access: Access, secret: [u8; 16], now: Millis) -> SessionId {
        let session = Session::new(access, secret, self.settings.rate, self.roster.len(), now);
        let id = self.sessions.insert(Box::new(session));
        self.roster.push(id);
        id
    }

    /// Handles a batch of frames from a connection.
    pub fn receive(&mut self, session: SessionId, mut all: Vec<Came<'_>>, now: Millis) {
        let prints = self.prefetch_dedup(session, &all);
        for (came, print) in all.iter_mut().zip(prints) {
            match came {
                Came::Frame(frame, access) => self.receive_one(session, frame, access.take(), print, now),
                Came::TooLarge(size) => self.oversized(session, *size, now),
                Came::Sign => self.heard(session, now),
            }
        }
        self.tell_arrived(now);
    }

    /// Hashes the ids of all asks of a batch and prefetches their dedup buckets, which are rarely in the cache.
    /// Without the prefetch, cache misses take a tenth of the total time.
    fn prefetch_dedup(&self, session: SessionId, all: &[Came<'_>]) -> Vec<Option<Print>> {
        let print = |came: &Came<'_>| match came {
            Came::Frame(Ok(Frame::Message(envelope)), _) if envelope.pattern == Pattern::Ask => {
                Some(self.print(envelope.id.as_str()))
            }
            _ => None,
        };
        let prints: Vec<Option<Print>> = all.iter().map(print).collect();
        // Skipped for sessions with several addresses, because the sender of each frame would have to be resolved.
        let sender = self.sessions.get(session).and_then(|session| match *session.addresses {
            [] => session.own,
            [only] => Some(only),
            _ => None,
        });
        if let Some(sender) = sender.and_then(|sender| self.actors.get(sender)) {
            let fetched = prints.iter().flatten().fold(0, |sum, print| sum ^ sender.seen.fetch(*print));
            std::hint::black_box(fetched);
        }
        prints
    }

    fn receive_one(
        &mut self,
        session: SessionId,
        frame: &Result<Frame<'_>, Unreadable>,
        access: Option<Access>,
        print: Option<Print>,
        now: Millis,
    ) {
        let Some(from) = self.sessions.get_mut(session).filter(|session| !session.is_closing()) else { return };
        from.heard = now;
        self.counts.received += 1;
        if from.state == State::Fresh && self.charge(session, 1, now).is_err() {
            return self.end(session, Close::Abuse, now);
        }
        match frame {
            Ok(Frame::Ping) => self.push(session, Bytes::from_static(b"{\"type\":\"pong\"}"), Millis::MAX, now),
            Ok(Frame::Message(envelope)) => {
                let request = Request { session, envelope, print, trace: trace_of(envelope), now };
                if let Err(refusal) = self.handle(&request, access) {
                    self.refuse(&request, &refusal);
                }
            }
            Err(unreadable) => {
                let refusal = refusal::invalid(&unreadable.what);
                self.say(session, None, refusal.kind, unreadable.id.as_deref(), &refusal.payload, "", now);
                self.abused(session, now);
            }
        }
    }

    /// Records a sign of life from a connection.
    fn heard(&mut self, session: SessionId, now: Millis) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.heard = now;
        }
    }

    /// Rejects a frame that is too large to be read.
    fn oversized(&mut self, session: SessionId, size: usize, now: Millis) {
        let Some(from) = self.sessions.get_mut(session).filter(|session| !session.is_closing()) else { return };
        from.heard = now;
        let refusal = refusal::too_large(size, self.settings.message_bytes_max);
        self.say(session, None, refusal.kind, None, &refusal.payload, "", now);
    }

    fn handle(&mut self, request: &Request<'_>, access: Option<Access>) -> Result<(), Refusal> {
        let envelope = request.envelope;
        let to = envelope.to.as_str();
        if to != HUB && to != HUB_ALIAS {
            let what =
                format!("a frame is sent to `{HUB}`, not to `{}`; `hub:send` reaches others", refusal::shown(to));
            return Err(refusal::invalid(&what));
        }
        let kind = envelope.kind.as_str();
        if kind == "hub:connect" {
            return self.connect(request, access);
        }
        if !matches!(self.sessions[request.session].state, State::Connected) {
            return Err(refusal::unauthorized("not connected: send `hub:connect` first", "send `hub:connect` first"));
        }
        match kind {
            "hub:heartbeat" => return self.heartbeat(request),
            "hub:disconnect" => return self.disconnect(request),
            "hub:ack" => return self.acknowledged(request),
            "hub:progress" => return self.progress(request),
            _ => self.charge(request.session, 1, request.now)?,
        }
        if kind == "hub:register" {
            return self.register(request);
        }
        let sender = self.sender(request)?;
        if let Some(name) = envelope.metadata.malformed.filter(|_| !deliberate_bug!(LooseFlags)) {
            let what = format!("`metadata.{name}` is true or false, and given once");
            return Err(refusal::invalid(&what));
        }
        match kind {
            // These handlers deduplicate before they check the TTL.
            "hub:send" => return self.send(request, sender),
            "hub:reply" => return self.reply(request, sender),
            "hub:broadcast" => return self.broadcast(request, sender),
            "hub:publish" => return self.publish(request, sender),
            _ => self.check_ttl(request)?,
        }
        match kind {
            "hub:subscribe" => self.subscribe(request),
            "hub:unsubscribe" => self.unsubscribe(request),
            "hub:renew" => self.renew(request),
            "hub:unregister" => self.unregister(request),
            "hub:discover" => self.discover(request),
            "hub:list_actors" => self.list_actors(request),
            "hub:list_topics" => self.list_topics(request),
            "hub:queue_stats" => self.queue_stats(request),
            "hub:metrics" => self.metrics(request),
            other => Err(refusal::invalid(&format!("unknown request type `{}`", refusal::shown(other)))),
        }
    }

    /// Returns the sending actor: its address must belong to the session.
    fn sender(&self, request: &Request<'_>) -> Result<ActorId, Refusal> {
        let from = request.envelope.from.as_str();
        let session = &self.sessions[request.session];
        let found = session.addresses.iter().chain(session.own.iter()).find(|id| &*self.actors[**id].address == from);
        found.copied().ok_or_else(|| {
            let what = format!("`from` is not an address of this session: `{}`", refusal::shown(from));
            refusal::unauthorized(&what, "register it first, or use the address that `hub:connected` gave")
        })
    }

    /// Converts the sender's timestamp to the hub's clock.
    fn sent_at(&self, request: &Request<'_>) -> Millis {
        let offset = self.sessions[request.session].offset;
        request.envelope.timestamp.saturating_add_signed(offset)
    }

    fn expires(&self, request: &Request<'_>) -> Millis {
        let sent_at = self.sent_at(request);
        request.envelope.ttl.map_or(Millis::MAX, |ttl| sent_at.saturating_add(ttl))
    }

    fn check_ttl(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        if self.expires(request) < request.now {
            self.counts.expired += 1;
            return Err(refusal::expired(request.envelope.ttl.unwrap_or_default()));
        }
        Ok(())
    }

    /// Charges the rate limits of a session and of its token.
    fn charge(&mut self, session: SessionId, cost: u64, now: Millis) -> Result<(), Refusal> {
        let (settings, found) = (&self.settings, &mut self.sessions[session]);
        let taken = match (found.bucket.as_mut(), settings.rate) {
            (Some(bucket), Some(rate)) => bucket.take(rate, cost, now),
            _ => Ok(()),
        };
        let taken = match found.token {
            Some(token) => taken.and_then(|()| self.tokens.charge(token, settings, cost, now)),
            None => taken,
        };
        taken.map_err(|wait| {
            self.counts.rate_limited += 1;
            refusal::rate_limited(wait)
        })
    }

    /// Passes up to `max` frames to `put` in order, limited to the bytes that one write is worth, and returns their
    /// number. Report them with [`Hub::written`] once they are written.
    pub fn take(&mut self, session: SessionId, max: usize, now: Millis, mut put: impl FnMut(&[u8])) -> usize {
        let (mut expired, mut count, mut bytes) = (Vec::new(), 0, 0);
        let slice = self.settings.work_slice;
        let Some(found) = self.sessions.get_mut(session) else { return 0 };
        found.is_woken = false;
        let deliver_late = deliberate_bug!(DeliverLate);
        let answer_within = (self.settings.answer_within, self.settings.seen_for_max);
        while count < max && bytes < TAKEN_BYTES && expired.len() < slice {
            match found.outbox.next(|expires| expires < now && !deliver_late, &mut self.spare) {
                None => break,
                Some(Err(carried)) => expired.push(carried),
                Some(Ok(next)) => {
                    put(next.bytes());
                    count += 1;
                    bytes += next.bytes().len();
                    hand_out(next, &mut found.awaiting, &self.boot, answer_within);
                }
            }
        }
        // A full slice means that more frames may have expired.
        let again = expired.len() >= slice;
        for carried in expired {
            self.counts.expired += 1;
            if let Some(carried) = carried {
                self.expired(&carried, now);
            }
        }
        if again {
            self.wake(session);
        }
        count
    }

    /// Handles a message whose TTL passed before it was written.
    fn expired(&mut self, carried: &Carried, now: Millis) {
        match &carried.stored {
            Some(waiting) => {
                self.remove(carried.target, waiting.clone(), None);
                self.expired_in_queue(carried, now);
            }
            None => self.fail(carried, &refusal::expired(carried.ttl.unwrap_or_default()), now),
        }
    }

    /// Reports that `count` of the frames taken are written.
    pub fn written(&mut self, session: SessionId, count: usize, now: Millis) {
        for _ in 0..count {
            let Some(found) = self.sessions.get_mut(session) else { break };
            match found.outbox.written(now, &mut self.spare) {
                None => break,
                Some(None) => {}
                Some(Some(carried)) => {
                    self.arrived(&carried, now);
                    self.spare.keep_carried(carried);
                }
            }
        }
        self.tell_arrived(now);
        self.drained(session, now);
    }

    /// Whether frames are ready for [`Hub::take`].
    #[must_use]
    pub fn has_frames(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|session| session.outbox.has_waiting())
    }

    /// Whether to read frames from this session: `false` while its outbox is so full that its own
    /// answers would pile up.
    #[must_use]
    pub fn may_read(&self, session: SessionId) -> bool {
        let has_room = |session: &Session| !session.outbox.is_high(&self.settings);
        self.sessions
            .get(session)
            .is_some_and(|session| has_room(session) && !session.outbox.is_over(&self.settings, &self.spare))
    }

    /// Returns the name of the token that a session has authenticated with.
    #[must_use]
    pub fn token_name(&self, session: SessionId) -> Option<&str> {
        self.sessions.get(session).and_then(|session| session.access.name())
    }

    /// Whether a session has sent a valid `hub:connect`.
    #[must_use]
    pub fn is_connected(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|session| session.state != State::Fresh)
    }

    /// Returns how to close the connection after its frames are written, or `None` while it stays open.
    #[must_use]
    pub fn closing(&self, session: SessionId) -> Option<Close> {
        self.sessions.get(session).and_then(|session| match session.state {
            State::Closing(close) => Some(close),
            _ => None,
        })
    }

    /// Returns the sessions with new frames or a pending close since the last call, each once.
    pub fn woken(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.woken)
    }

    /// Returns the effects to carry out, in order, since the last call.
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns the number of effects whose outcome is outstanding.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.jobs.len()
    }

    fn wake(&mut self, session: SessionId) {
        if let Some(found) = self.sessions.get_mut(session)
            && !found.is_woken
        {
            found.is_woken = true;
            self.woken.push(session);
        }
    }

    /// Appends a frame to a session's outbox, even if the outbox is full.
    fn push(&mut self, session: SessionId, bytes: Bytes, expires: Millis, now: Millis) {
        let Some(found) = self.sessions.get_mut(session) else { return };
        found.outbox.push(bytes, expires, None, (now, &self.settings, &mut self.spare));
        self.wake(session);
    }

    /// Writes a frame into a session's outbox, even if the outbox is full.
    fn write(&mut self, session: SessionId, now: Millis, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(found) = self.sessions.get_mut(session) else { return };
        found.outbox.write(Millis::MAX, None, (now, &self.settings, &mut self.spare), write);
        self.wake(session);
    }

    /// Returns an epoch that is unique within this hub, and almost certainly among hubs.
    fn next_epoch(&mut self, now: Millis) -> u64 {
        let next = (now << EPOCH_SALT.count_ones()).max((self.epoch | EPOCH_SALT) + 1);
        self.epoch = next | self.salt;
        self.epoch
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Returns the id of the message with this number.
    fn id_of(&self, number: u64) -> OwnId {
        OwnId::new(&self.boot, number)
    }

    /// Returns the number of a message id that this hub generated.
    fn number_of(&self, id: &str) -> Option<u64> {
        let digits = id.strip_prefix("h-")?.strip_prefix(&*self.boot)?.strip_prefix('-')?;
        let number = u64::from_str_radix(digits, 36).ok()?;
        (id::base36(number) == digits).then_some(number)
    }

    /// Hashes the target, topic or request that an ask is about.
    fn tag(&self, about: &str) -> Tag {
        self.print(about).tag()
    }

    fn address(&self, actor: ActorId) -> Arc<str> {
        self.actors.get(actor).map_or_else(|| Arc::from(""), |actor| Arc::clone(&actor.address))
    }

    /// Returns the session that receives an actor's messages.
    fn session_of(&self, actor: ActorId) -> Option<SessionId> {
        self.actors.get(actor).and_then(|actor| actor.owner)
    }

    fn begin(&mut self, job: Job) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.jobs.insert(ticket, job);
        ticket
    }

    fn store(&mut self, job: Job, op: Op) {
        let ticket = self.begin(job);
        self.effects.push(Effect::Store(ticket, op));
    }
}

/// Returns the common prefix of all ids of one hub: its start time, and part of its seed because two servers may
/// start at the same time.
fn boot(now: Millis, seed: &[u8; 32]) -> String {
    format!("{}{}", id::base36(now), id::base36(boot_hash(seed)))
}

/// Returns sixteen bits that differ between hubs.
fn boot_hash(seed: &[u8; 32]) -> u64 {
    let hash = Sha256::new().chain_update(seed).chain_update("boot").finalize();
    u64::from(u16::from_be_bytes([hash[0], hash[1]]))
}

/// Low bits of an epoch, above which is its time in milliseconds: 53 bits in total, the most that
/// a JavaScript number holds exactly.
const EPOCH_SALT: u64 = 0x3FF;

/// Derives the secret key for hashing message ids from the seed.
fn print_key(seed: &[u8; 32]) -> [u8; 16] {
    let hash = Sha256::new().chain_update(seed).chain_update("ids").finalize();
    std::array::from_fn(|at| hash[at])
}

/// Maximum length of a trace entry; longer ones are not repeated, because pending requests keep them in memory. Those of
/// W3C Trace Context have 34 bytes at most.
const TRACE_BYTES_MAX: usize = 256;

/// Returns the trace entries of a request's metadata, which every answer repeats, as JSON.
fn trace_of(envelope: &Envelope<'_>) -> String {
    let mut trace = String::new();
    for name in ["traceId", "spanId"] {
        if let Some(value) =
            envelope.metadata.entries.raw(name).filter(|value| value.len() <= TRACE_BYTES_MAX && is_readable(value))
        {
            let comma = if trace.is_empty() { "" } else { "," };
            trace.push_str(&format!("{comma}\"{name}\":{value}"));
        }
    }
    trace
}

/// Whether every reader of JSON accepts a value. An escape of half a character (`"\\ud800"`) has the form of JSON, and most
/// readers reject it: an answer that repeated it could not be read.
fn is_readable(value: &str) -> bool {
    !value.contains('\\') || serde_json::from_str::<serde_json::Value>(value).is_ok()
}

/// The parts of a [`Carried`] that a handler decides.
#[derive(Clone, Copy)]
struct Carry {
    sender: ActorId,
    target: ActorId,
    slot: Slot,
    expects_reply: bool,
}

impl Hub {
    /// Returns the delivery record of a request.
    fn carried(&mut self, request: &Request<'_>, carry: Carry) -> Box<Carried> {
        let envelope = request.envelope;
        let is_ask = request.is_ask();
        let mut carried = self.spare.carried();
        let (id, trace) = (std::mem::take(&mut carried.id), std::mem::take(&mut carried.trace));
        *carried = Carried {
            sender: carry.sender,
            feeder: request.session,
            target: carry.target,
            id: renewed(id, envelope.id.as_str()),
            mark: carry.slot.mark,
            trace: renewed(trace, &request.trace),
            number: carry.slot.number,
            received: request.now,
            ttl: envelope.ttl,
            is_ask,
            require_ack: is_ask && envelope.metadata.require_ack,
            queue: is_ask || envelope.metadata.queue,
            expects_reply: carry.expects_reply,
            stored: None,
            stored_id: None,
        };
        carried
    }
}

/// Replaces the content of a string and reuses its allocation.
fn renewed(mut old: String, text: &str) -> String {
    old.clear();
    old.push_str(text);
    old
}
