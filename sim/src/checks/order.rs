//! The order in which signals are consumed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wigwag_core::audit::Told;
use wigwag_core::{Event, Mode, SignalWaiting, stamp_of};

use super::events;
use crate::clock::BEGINNING;
use crate::world::{Known, Sent};

/// Signals of a run that any wait may consume, in the order in which they were consumed.
fn consumed<'a>(told: &Told, known: &'a Known) -> Vec<&'a Sent> {
    let id = told.run.run.id.as_str();
    let chosen = names_chosen_from(told);
    let mine = known.sent.iter().filter(|sent| sent.run == id && !sent.strict && !sent.addressed);
    let mine = mine.filter(|sent| !chosen.contains(sent.name.as_str()));
    let mine: BTreeMap<&str, &Sent> = mine.filter_map(|sent| Some((sent.suffix.as_deref()?, sent))).collect();
    let received = events(told).filter_map(|(_, event)| match event {
        Event::SignalReceived(event) => Some(&event.signals),
        _ => None,
    });
    received.flatten().filter_map(|taken| mine.get(taken.signal.as_str()).copied()).collect()
}

/// Names for which some wait consumes another signal than the next one, because of a schema, a sender, or a rejection by code.
fn names_chosen_from(told: &Told) -> BTreeSet<&str> {
    let mut chosen = BTreeSet::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (_, event) in events(told) {
        match event {
            Event::SignalWaiting(event) => {
                names.insert(event.point.as_str(), event.name.as_str());
                // The schemas of a graph are in its definition: all matching payloads have one field.
                if event.schema.is_some() || event.quorum > 1 || event.mode == Mode::Latest {
                    chosen.insert(event.name.as_str());
                }
            }
            Event::SignalRefused(event) => chosen.extend(names.get(event.point.as_str())),
            _ => {}
        }
    }
    chosen
}

/// One sender's signals to one name of one run are consumed in order.
pub(super) fn senders_are_heard_in_order(runs: &[Told], known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| is_plain(told)) {
        let mut last: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        for sent in consumed(told, known) {
            let before = last.insert((sent.sender, &sent.name), sent.number);
            if before.is_some_and(|before| before > sent.number) {
                wrong.push(format!("sender {} of `{}` is consumed out of order", sent.sender, told.run.run.id));
            }
        }
    }
    wrong
}

/// A signal that is sent after another one was acknowledged, by any sender, is consumed after it.
pub(super) fn senders_that_wait_for_each_other_are_heard_in_order(runs: &[Told], known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| is_plain(told)) {
        // Iterates backwards: the earliest acknowledgement of the signals consumed later, by name.
        let mut earliest: BTreeMap<&str, (Duration, &Sent)> = BTreeMap::new();
        for sent in consumed(told, known).into_iter().rev() {
            let Some(acknowledged) = sent.acknowledged else { continue };
            if let Some((at, later)) = earliest.get(sent.name.as_str()).filter(|(at, _)| *at < sent.began) {
                wrong.push(format!(
                    "`{}` consumed {:?} after {:?}, which was sent at {:?}, after the first was acknowledged at {at:?}",
                    told.run.run.id, later.suffix, sent.suffix, sent.began
                ));
            }
            let entry = earliest.entry(&sent.name).or_insert((acknowledged, sent));
            if acknowledged < entry.0 {
                *entry = (acknowledged, sent);
            }
        }
    }
    wrong
}

/// Time after its acknowledgement in which a worker may not see a signal yet: it lists an inbox, and then reads the signals
/// with several requests, each of which may take eight seconds.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// A wait consumes the oldest matching signal that is stored, and a `latest` wait the newest.
pub(super) fn waits_take_the_right_signal(runs: &[Told], known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| told.run.version.is_some()) {
        let id = told.run.run.id.as_str();
        let mine = known.sent.iter().filter(|sent| sent.run == id && !sent.strict && !sent.addressed);
        let mine: Vec<(&str, &Sent)> = mine.filter_map(|sent| Some((sent.suffix.as_deref()?, sent))).collect();
        let mut waits: BTreeMap<&str, &SignalWaiting> = BTreeMap::new();
        // Consumed signals, and those superseded by a `latest` wait.
        let mut gone = BTreeSet::<&str>::new();
        for (entry, event) in events(told) {
            match event {
                Event::SignalWaiting(event) => _ = waits.insert(event.point.as_str(), event),
                Event::SignalReceived(event) => {
                    let Some(wait) = waits.get(event.point.as_str()) else { continue };
                    if let (0 | 1, [got]) = (wait.quorum, &event.signals[..]) {
                        let at = known.entries.get(&(told.run.run.clone(), entry.seq)).copied().unwrap_or_default();
                        // A bucket may store an entry long after its worker scanned the inbox.
                        let made = Duration::from_micros(entry.at.micros().saturating_sub(BEGINNING.micros()));
                        let at = at.min(made);
                        let better = mine.iter().find(|(suffix, sent)| {
                            let is_better = match wait.mode {
                                Mode::Queue => **suffix < *got.signal,
                                Mode::Latest => **suffix > *got.signal,
                            };
                            let is_there =
                                sent.acknowledged.is_some_and(|then| then + SEEN_WITHIN < at) && !gone.contains(suffix);
                            // Signals stamped after the deadline are too late for this wait.
                            let in_time =
                                wait.deadline.is_none_or(|until| stamp_of(suffix).is_some_and(|at| at <= until));
                            let fits = sent.name == event.name.as_str() && (sent.fits || wait.schema.is_none());
                            is_better && is_there && in_time && fits
                        });
                        wrong.extend(better.map(|(better, _)| {
                            format!(
                                "`{}` of `{id}` ({:?}) took `{}`, and `{better}` was there",
                                event.point, wait.mode, got.signal
                            )
                        }));
                    }
                    gone.extend(event.signals.iter().map(|taken| taken.signal.as_str()));
                    if let (Mode::Latest, Some(newest)) = (wait.mode, event.signals.last()) {
                        let older = mine
                            .iter()
                            .filter(|(suffix, sent)| **suffix < *newest.signal && sent.name == event.name.as_str());
                        gone.extend(older.map(|(suffix, _)| suffix));
                    }
                }
                _ => {}
            }
        }
    }
    wrong
}

/// Whether the waits of a run consume any next signal. A graph may have schemas, which its log does not show.
fn is_plain(told: &Told) -> bool {
    told.run.version.is_some() || told.run.of.as_str() == crate::code::EVOLVING
}
