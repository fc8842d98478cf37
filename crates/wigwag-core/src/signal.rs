//! Signals: what an inbox holds, which wait takes which of them, and how far an inbox was read.
//!
//! Holds: an acknowledged signal is offered until a wait consumes it, however late its object appeared; a consumed
//! signal is never offered again. A scan at some moment finds everything stamped [`LOOK_BACK`] before it, because a
//! slower sender adds a late note.

mod fate;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::fate::Fate;
use crate::limits::{self, LOOK_BACK, SUFFIX_BYTES_MAX};
use crate::{Name, Path, Payload, Point, PointStatus, Refusal, Run, Time};

/// A message to a run, as stored in the inbox. Never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// Unique to this one.
    pub id: String,
    /// Name of the signal.
    pub name: Name,
    /// Payload of the signal.
    pub payload: Payload,
    /// Time of the signal.
    pub created_at: Time,
    /// Sender and channel.
    #[serde(default)]
    pub source: Source,
    /// Meant for this wait alone: no later one takes it if that one ends first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Bound>,
    /// Meant for the wait at this point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Path>,
}

/// Sender and channel of a signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Source {
    /// Name of a person or system; a quorum counts different names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Channel: `http`, `cli`, `hub`, `client`, `link`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Whether a server verified the name in `by`: by a token, or by a signed link. Otherwise `by` is a claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
}

impl Source {
    /// A source with an optional sender name and a channel.
    #[must_use]
    pub fn new(by: Option<String>, via: impl Into<String>) -> Self {
        Self { by, via: Some(via.into()), authenticated: false }
    }
}

/// The wait that a signal is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Path of the wait.
    pub point: Path,
    /// The entry that opened it.
    pub seq: u64,
}

impl Signal {
    /// Encodes the signal as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("a signal has text keys and no failing parts");
        bytes.push(b'\n');
        bytes
    }

    /// Decodes a signal.
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

/// Whether a text can be the last part of a signal's key: a signal stored under any other text is never found.
#[must_use]
pub fn is_suffix(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    text.len() <= SUFFIX_BYTES_MAX && text.bytes().all(plain) && stamp_of(text).is_some()
}

/// Order in which waits consume the signals of a name.
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

    /// Whether this is the default mode, which the stored form omits.
    #[must_use]
    pub fn is_queue(&self) -> bool {
        *self == Self::Queue
    }
}

/// State of a wait for a signal, in addition to that of other steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// Name of the signal.
    pub name: Name,
    /// The entry that opened it.
    pub seq: u64,
    /// Index of the event in that entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub place: u32,
    /// Consumption mode of the wait.
    #[serde(default, skip_serializing_if = "Mode::is_queue")]
    pub mode: Mode,
    /// From how many senders it wants one each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// Whether only signals of authenticated senders count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// First step of the race that the wait belongs to: when one wait has its signal the others are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub race: Option<Path>,
    /// JSON Schema of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// One line for the person who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Time at which the handler is retried after it failed on a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Time>,
    /// The consumed signals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<Taken>,
}

/// Returns one line that describes a wait: at most [`limits::ABOUT_BYTES_MAX`] bytes, without control characters. `None` if it is blank.
#[must_use]
pub fn about_line(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split(|letter: char| letter.is_whitespace() || letter.is_control()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| crate::failure::cut_to(words.join(" "), limits::ABOUT_BYTES_MAX))
}

impl Wait {
    /// Whether the signal at this position of the inbox may be consumed: it was not consumed before and was sent in
    /// time. Its payload is not known yet.
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
    /// Whether the wait at this path may consume the signal: it is addressed to any wait, or to this one.
    #[must_use]
    pub fn is_meant_for(&self, path: &Path, wait: &Wait) -> bool {
        let only = self.only.as_ref().is_none_or(|only| only.point == *path && only.seq == wait.seq);
        only && self.point.as_ref().is_none_or(|point| point == path)
    }
}

/// A consumed signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Last part of the signal's key.
    pub signal: String,
    /// Name of the sender.
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

/// Read position of the inbox of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inbox {
    /// Position in the inbox: no scanned signal up to here is still to be consumed.
    pub cursor: String,
    /// Scans skip everything up to here, unless a late note names it. The floor never decreases.
    #[serde(default)]
    pub floor: String,
    /// Consumed signals above the floor. Not stored: they follow from the recorded waits ([`Run::unroll`]).
    #[serde(skip)]
    pub taken: BTreeSet<String>,
    /// Consumed signals whose waits were dropped, for example by a restart.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_by_dropped: BTreeSet<String>,
    /// Signals named by late notes: offered at any position.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub late: BTreeSet<String>,
}

impl Inbox {
    /// Whether a wait of that mode may still consume the signal.
    #[must_use]
    pub fn offers(&self, signal: &str, mode: Mode) -> bool {
        let above = match mode {
            Mode::Queue => signal > self.floor.as_str() || self.late.contains(signal),
            Mode::Latest => signal > self.cursor.as_str() && signal > self.floor.as_str(),
        };
        above && (!self.taken.contains(signal) || deliberate_bug!(DedupForgotten))
    }

    /// Records the consumed signals.
    pub(crate) fn take(&mut self, took: &[Taken], cursor: &str, floor: &str) {
        for taken in took {
            self.late.remove(&taken.signal);
            self.taken.insert(taken.signal.clone());
        }
        if *cursor > *self.cursor {
            self.cursor = cursor.into();
        }
        if *floor > *self.floor || deliberate_bug!(FloorGoesBack) {
            self.floor = floor.into();
        }
        forget_up_to(&mut self.taken, &self.floor);
        forget_up_to(&mut self.taken_by_dropped, &self.floor);
    }

    /// Returns the moment of the floor, which is a moment or the place of a signal.
    pub(crate) fn floor_at(&self) -> Time {
        self.floor.split('_').next().and_then(|stamp| stamp.parse().ok()).unwrap_or_default()
    }

    /// Records a consumed signal of a wait, when the run is read from its snapshot and chunks.
    pub(crate) fn restore(&mut self, taken: &Taken) {
        if taken.signal > self.floor {
            self.taken.insert(taken.signal.clone());
        }
    }

    /// Keeps the consumed signals of a wait whose record is dropped.
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

/// Result of one scan of a run's inboxes.
#[derive(Clone, Debug, Default)]
pub struct Inboxes {
    /// The scan began at this moment or later, by the store's clock.
    pub since: Time,
    /// Content of the scanned inboxes, by signal name.
    pub names: BTreeMap<Name, Seen>,
}

/// Result of the scan of one inbox.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// All unconsumed signals above the floor, and those named by late notes.
    pub suffixes: BTreeSet<String>,
    /// The signals that were read: the first ones for a queue, else the last one.
    pub signals: BTreeMap<String, Arc<Signal>>,
    /// Signals that need no read, because no open wait accepts them.
    pub misfits: BTreeSet<String>,
}

impl Seen {
    /// Removes a consumed signal.
    pub fn remove(&mut self, suffix: &str) {
        self.suffixes.remove(suffix);
        self.signals.remove(suffix);
    }
}

/// Result of offering the scanned signals to a wait.
enum Takes {
    /// The wait consumes these signals.
    Signals(Vec<String>),
    /// The result depends on a signal that was not read yet.
    Unread,
    /// The wait consumes nothing.
    Nothing,
}

/// Decision derived from a scan of the inboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A wait takes these.
    Receive {
        /// Path of the wait.
        point: Path,
        /// The consumed signals, in order: one, or as many as the quorum.
        signals: Vec<String>,
    },
    /// The wait times out.
    TimeOut {
        /// Path of the wait.
        point: Path,
    },
}

/// A wait and the signals that it can consume.
type Offer<'a> = (&'a Path, &'a Wait, Vec<String>);

/// The wait that is served next. Waits are given in the order in which they were opened. The first one is served, or
/// among the waits of its race the one with the oldest signal. Signals that an earlier wait outside the race can consume
/// are not available to the race.
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
    /// Path of the wait.
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

    /// Decides the next event: the earliest opened wait that can consume a signal consumes it; in a race, the wait with
    /// the oldest signal does. A wait whose deadline had passed when the scan began times out unless a signal stamped in
    /// time is present.
    ///
    /// `asked` returns whether code still waits at a wait; `fits` returns whether that wait accepts a payload.
    ///
    /// Decides nothing while the result depends on an unread signal: a wait that was opened later, or one in `latest`
    /// mode, must not overtake.
    pub fn decide(
        &self,
        found: &Inboxes,
        asked: impl Fn(&Path) -> bool,
        fits: impl Fn(&Path, &Wait, &Signal) -> bool,
    ) -> Option<Decision> {
        // After a failed handler the wait consumes nothing until the handler's retry.
        let ripe = |wait: &Wait| wait.again.is_none_or(|again| again <= found.since);
        let waits = self.waits_in_order().into_iter().filter(|(path, _, wait)| asked(path) && ripe(wait));
        let waits: Vec<_> = waits.collect();
        if deliberate_bug!(TimeoutBeforeSignal)
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
        // The waits of a race end together, so all their inboxes must have been scanned.
        let looked = |wait: &Wait| {
            let rivals = waits.iter().filter(|(_, _, other)| wait.race.is_some() && other.race == wait.race);
            found.names.contains_key(&wait.name)
                && rivals.into_iter().all(|(_, _, other)| found.names.contains_key(&other.name))
        };
        let late = waits.iter().find(|(_, point, wait)| over(point) && looked(wait));
        late.map(|(path, ..)| Decision::TimeOut { point: (*path).clone() })
    }

    /// The signals that a wait consumes from the scanned ones.
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

    /// Position of an inbox once a wait has consumed these signals: the new cursor and the new floor.
    #[must_use]
    pub fn read_up_to(&self, wait: &Wait, took: &[String], found: &Inboxes) -> (String, String) {
        let empty = Inbox::default();
        let inbox = self.signals.get(&wait.name).unwrap_or(&empty);
        if wait.mode == Mode::Latest {
            let cursor = took.iter().max().unwrap_or(&inbox.cursor).max(&inbox.cursor);
            return (cursor.clone(), cursor.max(&inbox.floor).clone());
        }
        // The other signals in the inbox are unknown.
        let Some(seen) = found.names.get(&wait.name) else { return (inbox.cursor.clone(), inbox.floor.clone()) };
        let is_left = |suffix: &&String| {
            let void = seen.signals.get(*suffix).is_some_and(|signal| self.is_void(signal));
            suffix.as_str() > inbox.floor.as_str() && !inbox.taken.contains(*suffix) && !took.contains(suffix) && !void
        };
        let first_left = seen.suffixes.iter().find(is_left).filter(|_| !deliberate_bug!(CursorPassesUnconsumed));
        let is_behind = |suffix: &&String| first_left.is_none_or(|left| *suffix < left);
        let last_behind = |set: &'_ BTreeSet<String>| match first_left {
            Some(left) => set.range::<String, _>(..left).next_back().cloned(),
            None => set.last().cloned(),
        };
        let taken = took.iter().chain([&inbox.cursor]).filter(is_behind).max().cloned();
        let cursor = last_behind(&seen.suffixes).max(last_behind(&inbox.taken)).max(taken).unwrap_or_default();
        let back = if deliberate_bug!(LookBackOff) { Duration::ZERO } else { LOOK_BACK };
        let reached = stamp_of(&cursor).unwrap_or_default().min(found.since).before(back);
        let floor = reached.to_string();
        let floor = if deliberate_bug!(FloorGoesBack) { floor } else { floor.max(inbox.floor.clone()) };
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

    /// The step that consumed a signal, as far as steps are in memory, and the time.
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
    /// Whether this is a wait that timed out and let the run continue.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.status == PointStatus::Completed && self.wait.as_ref().is_some_and(|wait| wait.received.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_a_wait_is_one_short_line() {
        assert_eq!(about_line("a lamp\n\tfor  ada\u{7}").as_deref(), Some("a lamp for ada"));
        assert_eq!((about_line(""), about_line(" \n")), (None, None));
        let long = about_line(&"é".repeat(150)).unwrap();
        assert!(long.len() <= limits::ABOUT_BYTES_MAX + 3 && long.ends_with('…'), "{}", long.len());
    }
}
