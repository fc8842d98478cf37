//! Signals: what an inbox holds, which wait takes which of them, and how far an inbox was read.
//!
//! Holds: a signal that was acknowledged is offered until a wait has taken it, however late its object appeared; one
//! that was taken is never offered again. A reader that listed at some moment saw everything stamped [`LOOK_BACK`]
//! before it, because whoever took longer says so by a late note.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{LOOK_BACK, SUFFIX_BYTES_MAX};
use crate::mutation::{Mutation, is_mutated};
use crate::{Name, Path, Payload, Point, PointStatus, Refusal, Run, Time};

/// A message to a run, as it lies in the inbox. Never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// Unique to this one.
    pub id: String,
    /// Its name.
    pub name: Name,
    /// What it carries.
    pub payload: Payload,
    /// When it was sent.
    pub created_at: Time,
    /// Who sent it.
    #[serde(default)]
    pub source: Source,
    /// Meant for this wait alone: no later one takes it if that one ends first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Bound>,
    /// Meant for the wait at this point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Path>,
}

/// Who sent a signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Source {
    /// A person or system; what a quorum counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The way it came: `http`, `cli`, `hub`, `client`, `link`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// A server verified that the sender is who `by` says: by a token, or by a signed link. Otherwise `by` is a claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
}

impl Source {
    /// Somebody, by some way.
    #[must_use]
    pub fn new(by: Option<String>, via: impl Into<String>) -> Self {
        Self { by, via: Some(via.into()), authenticated: false }
    }
}

/// One wait of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Where.
    pub point: Path,
    /// The entry that opened it.
    pub seq: u64,
}

impl Signal {
    /// Its bytes.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("a signal has text keys and no failing parts");
        bytes.push(b'\n');
        bytes
    }

    /// Reads one.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(body).map_err(|error| Refusal::new(format!("not a signal: {error}")))
    }
}

/// The last part of a signal's key: its stamp and its id, so that text order is the order of the inbox.
#[must_use]
pub fn suffix(stamp: Time, id: &str) -> String {
    format!("{stamp}_{id}")
}

/// The stamp in the last part of a signal's key.
#[must_use]
pub fn stamp_of(suffix: &str) -> Option<Time> {
    suffix.split_once('_').and_then(|(stamp, _)| stamp.parse().ok())
}

/// Whether a text can be the last part of a signal's key: what is stored under another is never found.
#[must_use]
pub fn is_suffix(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    text.len() <= SUFFIX_BYTES_MAX && text.bytes().all(plain) && stamp_of(text).is_some()
}

/// Which signals of a name a wait takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The oldest; the rest stays for the next wait.
    #[default]
    Queue,
    /// The newest; older ones are superseded.
    Latest,
}

impl Mode {
    /// Returns signals in the order in which a wait of this mode considers them.
    fn in_order<'a>(self, suffixes: &'a BTreeSet<String>) -> Box<dyn Iterator<Item = &'a String> + 'a> {
        match self {
            Self::Queue => Box::new(suffixes.iter()),
            Self::Latest => Box::new(suffixes.iter().rev()),
        }
    }

    /// Whether it is the one that need not be said.
    #[must_use]
    pub fn is_queue(&self) -> bool {
        *self == Self::Queue
    }
}

/// What a point that waits for a signal has beyond other points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// Of which name.
    pub name: Name,
    /// The entry that opened it.
    pub seq: u64,
    /// Which event of that entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub place: u32,
    /// Which signals it takes.
    #[serde(default, skip_serializing_if = "Mode::is_queue")]
    pub mode: Mode,
    /// From how many senders it wants one each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// It takes signals of authenticated senders only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// The first point of those it races with: when one has its signal the others are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub race: Option<Path>,
    /// What payloads must look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Users' code failed on its signal, and is asked again then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Time>,
    /// What it took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<Taken>,
}

impl Wait {
    /// Whether a signal at this place in the inbox may be taken: it was not, and it was sent in time. What it carries is
    /// not known yet.
    #[must_use]
    pub fn is_offered(&self, point: &Point, inbox: &Inbox, suffix: &str) -> bool {
        let in_time = match (point.until, stamp_of(suffix)) {
            (Some(until), Some(stamp)) => stamp <= until,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        in_time && inbox.offers(suffix, self.mode)
    }

    /// Why it takes no signals of this sender, if it takes none.
    #[must_use]
    pub fn rejects_sender(&self, source: &Source) -> Option<SenderMisfit> {
        SenderMisfit::of(self.quorum, self.authenticated, source)
    }
}

/// Why a wait takes no signals of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SenderMisfit {
    /// A quorum counts senders by name, and this one has none.
    Nameless,
    /// The wait takes signals of authenticated senders only.
    Unauthenticated,
}

impl SenderMisfit {
    /// Judges a sender by what a wait demands: a signal without a sender never counts towards a quorum.
    #[must_use]
    pub fn of(quorum: u32, authenticated: bool, source: &Source) -> Option<Self> {
        match source {
            source if authenticated && !(source.authenticated && source.by.is_some()) => Some(Self::Unauthenticated),
            source if quorum > 1 && source.by.is_none() => Some(Self::Nameless),
            _ => None,
        }
    }
}

impl fmt::Display for SenderMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nameless => "a quorum counts senders by name, and this signal has no sender",
            Self::Unauthenticated => "the wait takes signals of authenticated senders only",
        })
    }
}

impl Signal {
    /// Whether it may be taken by the wait at this path: it is for any, or for this one.
    #[must_use]
    pub fn is_meant_for(&self, path: &Path, wait: &Wait) -> bool {
        let only = self.only.as_ref().is_none_or(|only| only.point == *path && only.seq == wait.seq);
        only && self.point.as_ref().is_none_or(|point| point == path)
    }
}

/// A signal that a wait took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Which: the last part of its key.
    pub signal: String,
    /// Who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
fn one() -> u32 {
    1
}
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// How far the inbox of one name was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inbox {
    /// No signal up to here that was seen is waiting to be taken.
    pub cursor: String,
    /// Nothing up to here is looked at any more, unless a late note names it. Never goes back.
    #[serde(default)]
    pub floor: String,
    /// Signals above the floor that were taken. Not stored: the points that took them say so ([`Run::unroll`]).
    #[serde(skip)]
    pub taken: BTreeSet<String>,
    /// Those of them whose points were dropped, by a restart for example.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_by_dropped: BTreeSet<String>,
    /// Signals that slow senders named: offered wherever they lie.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub late: BTreeSet<String>,
}

impl Inbox {
    /// Whether a signal there may still be taken by a wait of that mode.
    #[must_use]
    pub fn offers(&self, signal: &str, mode: Mode) -> bool {
        let above = match mode {
            Mode::Queue => signal > self.floor.as_str() || self.late.contains(signal),
            Mode::Latest => signal > self.cursor.as_str() && signal > self.floor.as_str(),
        };
        above && (!self.taken.contains(signal) || is_mutated(Mutation::DedupForgotten))
    }

    /// Takes note of what a wait took.
    pub(crate) fn take(&mut self, took: &[Taken], cursor: &str, floor: &str) {
        for taken in took {
            self.late.remove(&taken.signal);
            self.taken.insert(taken.signal.clone());
        }
        if *cursor > *self.cursor {
            self.cursor = cursor.into();
        }
        if *floor > *self.floor || is_mutated(Mutation::FloorGoesBack) {
            self.floor = floor.into();
        }
        forget_up_to(&mut self.taken, &self.floor);
        forget_up_to(&mut self.taken_by_dropped, &self.floor);
    }

    /// Returns the moment of the floor, which is a moment or the place of a signal.
    pub(crate) fn floor_at(&self) -> Time {
        self.floor.split('_').next().and_then(|stamp| stamp.parse().ok()).unwrap_or_default()
    }

    /// Notes a signal that a recorded point took, when the run is read from its snapshot and chunks.
    pub(crate) fn restore(&mut self, taken: &Taken) {
        if taken.signal > self.floor {
            self.taken.insert(taken.signal.clone());
        }
    }

    /// Keeps in mind what a point took whose record is dropped.
    pub(crate) fn keep_taken(&mut self, received: &[Taken]) {
        let above = received.iter().filter(|taken| taken.signal > self.floor);
        self.taken_by_dropped.extend(above.map(|taken| taken.signal.clone()));
    }
}

/// Drops what a floor that only rises has passed.
fn forget_up_to(signals: &mut BTreeSet<String>, floor: &String) {
    while signals.first().is_some_and(|first| first <= floor) {
        signals.pop_first();
    }
}

/// What was found in a run's inboxes by one look.
#[derive(Clone, Debug, Default)]
pub struct Inboxes {
    /// The look began at this moment or later, by the store's clock.
    pub since: Time,
    /// What lies in those that were looked into.
    pub names: BTreeMap<Name, Seen>,
}

/// What was found in one inbox.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// All that is there above the floor and was not taken, and what late notes named.
    pub suffixes: BTreeSet<String>,
    /// Those that were read: of a queue the first ones, else the last.
    pub signals: BTreeMap<String, Arc<Signal>>,
    /// Those that need not be read, because it is known that no open wait takes them.
    pub misfits: BTreeSet<String>,
}

impl Seen {
    /// Removes a signal that a wait took.
    pub fn remove(&mut self, suffix: &str) {
        self.suffixes.remove(suffix);
        self.signals.remove(suffix);
    }
}

/// What a wait can take of the signals that were found.
enum Takes {
    /// These signals.
    Signals(Vec<String>),
    /// It depends on a signal that was not read yet.
    Unread,
    /// Nothing.
    Nothing,
}

/// What a look at the inboxes leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A wait takes these.
    Receive {
        /// Which wait.
        point: Path,
        /// Which signals, in order: one, or as many as the quorum.
        signals: Vec<String>,
    },
    /// Nothing came in time.
    TimeOut {
        /// Which wait.
        point: Path,
    },
}

/// A wait and what it can take.
type Offer<'a> = (&'a Path, &'a Wait, Vec<String>);

/// Which of these waits, in the order they were opened, takes what it can: the first, or of those it races with the
/// one with the oldest signal. What one outside the race that was opened before that one can take is not the race's.
fn served_first<'a, 'b>(offers: &'b [Offer<'a>]) -> Option<&'b Offer<'a>> {
    let race = |one: &Wait, other: &Wait| one.race.is_some() && one.race == other.race;
    let first = offers.first()?;
    let rivals = offers.iter().filter(|(_, wait, _)| race(first.1, wait));
    let winner = rivals.min_by(|one, other| one.2[0].cmp(&other.2[0])).unwrap_or(first);
    let earlier = offers.iter().take_while(|(path, ..)| *path != winner.0);
    let mut outside = earlier.filter(|(_, wait, _)| wait.name == winner.1.name && !race(winner.1, wait));
    outside.find(|(_, _, signals)| signals.iter().any(|signal| winner.2.contains(signal))).or(Some(winner))
}

impl Decision {
    /// Which wait.
    #[must_use]
    pub fn point(&self) -> &Path {
        match self {
            Self::Receive { point, .. } | Self::TimeOut { point } => point,
        }
    }
}

impl Run {
    /// The waits that are open, in the order they were opened.
    #[must_use]
    pub fn waits_in_order(&self) -> Vec<(&Path, &Point, &Wait)> {
        let open = self.waits().filter_map(|(path, point)| Some((path, point, point.wait.as_deref()?)));
        let mut waits: Vec<_> = open.collect();
        waits.sort_by_key(|(_, _, wait)| (wait.seq, wait.place));
        waits
    }

    /// The next thing that follows from what was found: the earliest opened wait that can take something takes it. Of
    /// waits that race, the one with the oldest signal does. A wait whose time was over when the look began is timed
    /// out if nothing stamped in time is there.
    ///
    /// `asked` says which waits somebody still waits at; `fits` whether a payload looks as that wait wants it.
    ///
    /// Nothing follows while it depends on a signal that was not read yet: a wait that was opened later, or one that
    /// takes the newest, must not overtake.
    pub fn decide(
        &self,
        found: &Inboxes,
        asked: impl Fn(&Path) -> bool,
        fits: impl Fn(&Path, &Wait, &Signal) -> bool,
    ) -> Option<Decision> {
        // One on whose signal users' code failed waits until the code is asked again.
        let ripe = |wait: &Wait| wait.again.is_none_or(|again| again <= found.since);
        let waits = self.waits_in_order().into_iter().filter(|(path, _, wait)| asked(path) && ripe(wait));
        let waits: Vec<_> = waits.collect();
        if is_mutated(Mutation::TimeoutBeforeSignal)
            && let Some((path, ..)) = waits.iter().find(|(_, point, _)| point.until.is_some_and(|at| at <= found.since))
        {
            return Some(Decision::TimeOut { point: (*path).clone() });
        }
        let mut offers: Vec<Offer<'_>> = Vec::new();
        for &(path, point, wait) in &waits {
            let Some(seen) = found.names.get(&wait.name) else { continue };
            match self.takes(path, point, wait, seen, &fits) {
                Takes::Signals(signals) => offers.push((path, wait, signals)),
                Takes::Unread => return None,
                Takes::Nothing => {}
            }
        }
        if let Some((point, _, signals)) = served_first(&offers) {
            return Some(Decision::Receive { point: (*point).clone(), signals: signals.clone() });
        }
        let over = |point: &Point| point.until.is_some_and(|until| until <= found.since);
        // Waits that race are over together: all their inboxes must have been looked into.
        let looked = |wait: &Wait| {
            let rivals = waits.iter().filter(|(_, _, other)| wait.race.is_some() && other.race == wait.race);
            found.names.contains_key(&wait.name)
                && rivals.into_iter().all(|(_, _, other)| found.names.contains_key(&other.name))
        };
        let late = waits.iter().find(|(_, point, wait)| over(point) && looked(wait));
        late.map(|(path, ..)| Decision::TimeOut { point: (*path).clone() })
    }

    /// What a wait takes of what is there.
    fn takes(
        &self,
        path: &Path,
        point: &Point,
        wait: &Wait,
        seen: &Seen,
        fits: &impl Fn(&Path, &Wait, &Signal) -> bool,
    ) -> Takes {
        let empty = Inbox::default();
        let inbox = self.signals.get(&wait.name).unwrap_or(&empty);
        let wanted = wait.quorum.max(1) as usize;
        let (mut senders, mut signals) = (BTreeSet::new(), Vec::new());
        for suffix in wait.mode.in_order(&seen.suffixes).filter(|suffix| wait.is_offered(point, inbox, suffix)) {
            let Some(signal) = seen.signals.get(suffix) else {
                if seen.misfits.contains(suffix) {
                    continue;
                }
                return Takes::Unread;
            };
            let is_accepted = wait.rejects_sender(&signal.source).is_none();
            let is_for_it = is_accepted && signal.is_meant_for(path, wait) && fits(path, wait, signal);
            if is_for_it && senders.insert(&signal.source.by) {
                signals.push(suffix.clone());
            }
            if signals.len() == wanted {
                signals.sort();
                return Takes::Signals(signals);
            }
        }
        Takes::Nothing
    }

    /// How far an inbox is read once a wait took these: the new cursor and the new floor.
    #[must_use]
    pub fn read_up_to(&self, wait: &Wait, took: &[String], found: &Inboxes) -> (String, String) {
        let empty = Inbox::default();
        let inbox = self.signals.get(&wait.name).unwrap_or(&empty);
        if wait.mode == Mode::Latest {
            let cursor = took.iter().max().unwrap_or(&inbox.cursor).max(&inbox.cursor);
            return (cursor.clone(), cursor.max(&inbox.floor).clone());
        }
        // Nobody knows what else is there.
        let Some(seen) = found.names.get(&wait.name) else { return (inbox.cursor.clone(), inbox.floor.clone()) };
        let is_left = |suffix: &&String| {
            let void = seen.signals.get(*suffix).is_some_and(|signal| self.is_void(signal));
            suffix.as_str() > inbox.floor.as_str() && !inbox.taken.contains(*suffix) && !took.contains(suffix) && !void
        };
        let first_left = seen.suffixes.iter().find(is_left).filter(|_| !is_mutated(Mutation::CursorPassesUnconsumed));
        let is_behind = |suffix: &&String| first_left.is_none_or(|left| *suffix < left);
        let last_behind = |set: &'_ BTreeSet<String>| match first_left {
            Some(left) => set.range::<String, _>(..left).next_back().cloned(),
            None => set.last().cloned(),
        };
        let taken = took.iter().chain([&inbox.cursor]).filter(is_behind).max().cloned();
        let cursor = last_behind(&seen.suffixes).max(last_behind(&inbox.taken)).max(taken).unwrap_or_default();
        let back = if is_mutated(Mutation::LookBackOff) { Duration::ZERO } else { LOOK_BACK };
        let reached = stamp_of(&cursor).unwrap_or_default().min(found.since).before(back);
        let floor = reached.to_string();
        let floor = if is_mutated(Mutation::FloorGoesBack) { floor } else { floor.max(inbox.floor.clone()) };
        (cursor, floor)
    }

    /// Whether a signal is bound to a wait that is over: no other takes it.
    #[must_use]
    pub fn is_void(&self, signal: &Signal) -> bool {
        let over = |point: &Path| self.points.get(point).is_some_and(|point| point.status.is_settled());
        let only = signal.only.as_ref().is_some_and(|only| {
            let open = self.points.get(&only.point).filter(|point| !point.status.is_settled());
            open.and_then(|point| point.wait.as_ref()).is_none_or(|wait| wait.seq != only.seq)
        });
        only || signal.point.as_ref().is_some_and(over)
    }

    /// The point that took a signal, as far as points are at hand, and when.
    #[must_use]
    pub fn taker_of(&self, suffix: &str) -> Option<(&Path, Time)> {
        let took = |point: &Point| {
            point.wait.as_ref().is_some_and(|wait| wait.received.iter().any(|taken| taken.signal == suffix))
        };
        let (path, point) = self.points.iter().find(|(_, point)| took(point))?;
        Some((path, point.ended_at.unwrap_or(self.updated_at)))
    }

    /// The waits that end with this one because it has its signal.
    #[must_use]
    pub fn losers_to(&self, winner: &Path) -> Vec<Path> {
        let race = self.points.get(winner).and_then(|point| point.wait.as_ref()?.race.clone());
        let Some(race) = race else { return Vec::new() };
        let same = |point: &Point| point.wait.as_ref().is_some_and(|wait| wait.race.as_ref() == Some(&race));
        self.waits().filter(|(path, point)| *path != winner && same(point)).map(|(path, _)| path.clone()).collect()
    }
}

impl Point {
    /// Whether it is a wait for which nothing came in time, and the run went on.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.status == PointStatus::Completed && self.wait.as_ref().is_some_and(|wait| wait.received.is_empty())
    }
}

/// What became of a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fate {
    /// No wait has taken it yet.
    Unconsumed,
    /// A wait took it.
    Consumed {
        /// Which.
        point: Path,
        /// When.
        at: Time,
    },
    /// A newer one was taken in its place.
    Superseded,
    /// It was meant for one wait alone, which ended first.
    Void,
    /// The run ended without it.
    NeverConsumed,
    /// Its sender gave up before it was told that it had arrived, and it came too late to be seen.
    Unacknowledged,
}

impl Run {
    /// Whether a wait that takes the newest took a newer one; a function may wait for a name in both modes.
    fn is_superseded(&self, suffix: &str, name: &Name) -> bool {
        let waits = self.points.values().filter_map(|point| point.wait.as_deref());
        let mut latest = waits.filter(|wait| wait.name == *name && wait.mode == Mode::Latest);
        latest.any(|wait| wait.received.iter().any(|taken| taken.signal.as_str() > suffix))
    }

    /// What became of a signal in this run. All points must be at hand.
    #[must_use]
    pub fn fate_of(&self, suffix: &str, signal: &Signal, mode: Mode) -> Fate {
        if let Some((point, at)) = self.taker_of(suffix) {
            return Fate::Consumed { point: point.clone(), at };
        }
        let empty = Inbox::default();
        let inbox = self.signals.get(&signal.name).unwrap_or(&empty);
        match mode {
            _ if self.is_void(signal) => Fate::Void,
            Mode::Latest if suffix <= inbox.cursor.as_str() => Fate::Superseded,
            _ if self.status.is_final() => Fate::NeverConsumed,
            mode if inbox.offers(suffix, mode) => Fate::Unconsumed,
            _ if self.is_superseded(suffix, &signal.name) => Fate::Superseded,
            // The point was over when the inbox was read past the signal, and a restart came to it again.
            _ if self.restarts > 0 && signal.point.is_some() => Fate::Void,
            _ => Fate::Unacknowledged,
        }
    }
}
