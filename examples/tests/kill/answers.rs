//! Compares the answers that clients got with the final state: starts, signals, cancels.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wigwag::{Client, Fate, SignalView, Status, Time};
use wigwag_core::{Entry, Event};

use super::cases::{Case, Deed, End, Kind};
use super::check::text;
use super::clients::{Note, Word, sender};
use super::fleet::Kill;
use super::waits;

/// Counts of the check.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub(crate) starts: usize,
    pub(crate) signals: usize,
    pub(crate) consumed: usize,
    pub(crate) superseded: usize,
    pub(crate) never_consumed: usize,
    /// Signals that no wait has consumed.
    pub(crate) buffered: usize,
    pub(crate) cancels: usize,
    pub(crate) refused: usize,
    /// Requests that failed temporarily and were retried.
    pub(crate) failed: usize,
    /// Signals that were repeated under their idempotency key.
    pub(crate) repeated: usize,
    /// Requests in progress when their client was killed.
    pub(crate) cut_off: usize,
    /// Signals without an acknowledgement that arrived all the same.
    pub(crate) unasked: usize,
    pub(crate) timeouts: usize,
}

/// Everything known about one run.
struct Facts<'a> {
    case: &'a Case,
    notes: Vec<&'a Note>,
    history: Vec<Entry>,
    views: Vec<SignalView>,
    status: Status,
}

/// Compares the clients' answers with the store. All runs have ended, or wait as expected.
///
/// `slack` bounds the difference between the store's clock and the ledger's.
pub(crate) async fn check(
    client: &Client,
    cases: &[Case],
    notes: &[Note],
    kills: &[Kill],
    slack: Duration,
) -> Answered {
    let mut counted = Answered::default();
    let mut by_run = BTreeMap::<&str, Vec<&Note>>::new();
    for note in notes {
        by_run.entry(note.run.as_str()).or_default().push(note);
    }
    for case in cases {
        let notes = by_run.get(case.id.as_str()).cloned().unwrap_or_default();
        let run = client.run(&case.id).unwrap();
        let status = run.status().await.unwrap_or_else(|error| panic!("{} was acknowledged, but {error}", case.id));
        let input: serde_json::Value = run.input().await.unwrap().read().unwrap();
        assert_eq!(input, case.input, "the input of {} differs from its start request", case.id);
        let history = run.history(1, 10_000).await.unwrap();
        let views = run.signals(None).await.unwrap();
        let facts = Facts { case, notes, history, views, status };
        facts.check(kills, slack, &mut counted);
    }
    counted
}

impl Facts<'_> {
    fn check(&self, kills: &[Kill], slack: Duration, counted: &mut Answered) {
        for deed in 0..self.case.deeds.len() {
            self.check_deed(deed, kills, counted);
        }
        let told = self.notes.iter().filter_map(|note| match &note.word {
            Word::Sent { suffix, .. } => Some(suffix),
            _ => None,
        });
        counted.unasked += self.views.len() - told.collect::<BTreeSet<_>>().len();
        self.check_inbox();
        self.check_taken_once();
        self.check_order();
        self.check_waits(slack, counted);
    }

    fn of_deed(&self, deed: usize) -> impl Iterator<Item = &Note> {
        self.notes.iter().copied().filter(move |note| note.deed == deed)
    }

    fn check_deed(&self, deed: usize, kills: &[Kill], counted: &mut Answered) {
        let notes: Vec<&Note> = self.of_deed(deed).collect();
        let id = &self.case.id;
        assert!(notes.iter().any(|note| note.word.is_final()), "deed {deed} of {id} was left undone: {notes:?}");
        for note in notes.iter().filter(|note| note.word == Word::Try) {
            let is_answer = |other: &&&Note| other.attempt == note.attempt && other.word != Word::Try;
            let killed = kills.iter().any(|(process, _)| *process == note.process);
            match notes.iter().find(is_answer) {
                Some(_) => {}
                None if killed => counted.cut_off += 1,
                None => panic!("{id} was not answered although its client was alive: {note:?}"),
            }
        }
        counted.refused += notes.iter().filter(|note| matches!(note.word, Word::Refused { .. })).count();
        counted.failed += notes.iter().filter(|note| matches!(note.word, Word::Failed { .. })).count();
        let acknowledged = notes.iter().any(|note| note.word.is_acknowledged());
        match &self.case.deeds[deed] {
            Deed::Start => {
                assert!(acknowledged, "{id} could not be started: {notes:?}");
                counted.starts += 1;
            }
            Deed::Cancel => {
                counted.cancels += usize::from(acknowledged);
                assert!(self.status.is_final(), "{id} should be cancelled, got: {}: {}", self.status, self.text());
            }
            Deed::Signal { keyed, .. } => self.check_signal(deed, *keyed, &notes, counted),
        }
    }

    /// Each acknowledged signal is in the inbox exactly once, and its outcome is visible.
    fn check_signal(&self, deed: usize, keyed: bool, notes: &[&Note], counted: &mut Answered) {
        let mut places = BTreeSet::new();
        for note in notes {
            let Word::Sent { id, suffix, repeated } = &note.word else { continue };
            counted.repeated += usize::from(*repeated);
            if !places.insert(suffix) {
                continue;
            }
            counted.signals += 1;
            let there: Vec<&SignalView> = self.views.iter().filter(|view| view.suffix == *suffix).collect();
            let [view] = there[..] else {
                panic!("{suffix} was acknowledged and is there {}×: {note:?}\n{}", there.len(), self.text())
            };
            let by = sender(&self.case.id, deed, note.attempt, keyed);
            assert_eq!((view.id.as_str(), view.source.by.as_deref()), (id.as_str(), Some(by.as_str())), "{note:?}");
            self.check_fate(view, counted);
        }
        assert!(!keyed || places.len() <= 1, "one key, and several signals: {places:?}");
    }

    fn check_fate(&self, view: &SignalView, counted: &mut Answered) {
        let takers = self.takers(&view.suffix);
        match &view.fate {
            Fate::Consumed { point, .. } => {
                counted.consumed += 1;
                assert_eq!(takers, [point.to_string()], "{view:?}\n{}", self.text());
            }
            Fate::Superseded if self.case.kind == Kind::Latest => counted.superseded += 1,
            Fate::Unconsumed if !self.status.is_final() && view.name.as_str() == waits::UNHEARD => {
                counted.buffered += 1;
            }
            Fate::NeverConsumed if self.status.is_final() => counted.never_consumed += 1,
            _ => panic!("{} is {}: {view:?}\n{}", self.case.id, self.status, self.text()),
        }
        assert!(takers.len() <= 1, "{view:?} was taken by {takers:?}");
    }

    /// Returns the steps that consumed a signal, according to the log.
    fn takers(&self, suffix: &str) -> Vec<String> {
        self.received().filter(|(_, signal)| signal == suffix).map(|(point, _)| point).collect()
    }

    /// Returns the signals consumed, in order.
    fn received(&self) -> impl Iterator<Item = (String, String)> {
        self.history.iter().flat_map(|entry| &entry.events).flat_map(|event| match event {
            Event::SignalReceived(event) => {
                event.signals.iter().map(|taken| (event.point.to_string(), taken.signal.clone())).collect()
            }
            _ => Vec::new(),
        })
    }

    /// Every signal in the inbox has a sender among the clients: one signal per attempt, and one per idempotency key.
    fn check_inbox(&self) {
        let mut seen = BTreeMap::<&str, usize>::new();
        for view in &self.views {
            let by = view.source.by.as_deref().unwrap_or_default();
            *seen.entry(by).or_default() += 1;
            let tried = self.notes.iter().find(|note| {
                let Deed::Signal { name, keyed, payload } = &self.case.deeds[note.deed] else { return false };
                let same = serde_json::from_str::<serde_json::Value>(view.payload.text()).unwrap() == *payload;
                same && view.name.as_str() == *name && sender(&note.run, note.deed, note.attempt, *keyed) == by
            });
            assert!(tried.is_some(), "nobody sent {view:?}");
        }
        assert!(seen.values().all(|count| *count == 1), "{} has duplicates in its inbox: {seen:?}", self.case.id);
    }

    fn check_taken_once(&self) {
        let taken: Vec<String> = self.received().map(|(_, signal)| signal).collect();
        let distinct: BTreeSet<&String> = taken.iter().collect();
        assert_eq!(taken.len(), distinct.len(), "{} consumed a signal twice: {}", self.case.id, self.text());
        for signal in taken {
            assert!(
                self.views.iter().any(|view| view.suffix == signal),
                "{signal} was consumed and is not in the inbox"
            );
        }
    }

    /// Signals that one process sent in sequence to one name are consumed in that order.
    fn check_order(&self) {
        let taken: Vec<String> = self.received().map(|(_, signal)| signal).collect();
        let mut sent = BTreeMap::<(u32, &str), Vec<Option<usize>>>::new();
        for note in self.notes.iter().filter(|note| note.attempt == 0 && self.case.kind != Kind::Latest) {
            let (Word::Sent { suffix, .. }, Deed::Signal { name, .. }) = (&note.word, &self.case.deeds[note.deed])
            else {
                continue;
            };
            let place = taken.iter().position(|signal| signal == suffix);
            sent.entry((note.process, name)).or_default().push(place);
        }
        for ((process, name), places) in sent {
            let number = |place: &Option<usize>| place.unwrap_or(usize::MAX);
            let in_order = places.is_sorted_by_key(number);
            assert!(in_order, "{process} sent `{name}` in another order than {places:?}: {}", self.text());
        }
    }

    /// Each wait has at most one closing event, and no wait timed out whose signal arrived in time.
    fn check_waits(&self, slack: Duration, counted: &mut Answered) {
        let mut open = BTreeMap::<String, (String, Option<Time>)>::new();
        for event in self.history.iter().flat_map(|entry| &entry.events) {
            let (point, timed_out) = match event {
                Event::SignalWaiting(event) => {
                    let wait = (event.name.to_string(), event.deadline);
                    let before = open.insert(event.point.to_string(), wait);
                    assert_eq!(before, None, "{} opened twice: {}", event.point, self.text());
                    continue;
                }
                // A buffered signal is consumed without a wait.
                Event::SignalReceived(event) => (event.point.to_string(), false),
                Event::SignalTimeout(event) => (event.point.to_string(), true),
                Event::SignalClosed(event) => (event.point.to_string(), false),
                _ => continue,
            };
            let wait = open.remove(&point);
            if timed_out {
                counted.timeouts += 1;
                let (name, deadline) = wait.unwrap_or_else(|| panic!("{point} was not open: {}", self.text()));
                self.check_nothing_came(&name, deadline.unwrap(), slack);
            }
        }
        let waits = matches!(self.case.end, End::Waits { .. }) && !self.status.is_final();
        assert_eq!(open.len(), usize::from(waits), "{} is {}: {open:?} {}", self.case.id, self.status, self.text());
    }

    /// A wait does not time out if a signal was acknowledged before the deadline, unless another wait consumed it.
    ///
    /// A signal stamped before the deadline may be stored after it and then be too late: under an idempotency key,
    /// and on buckets, the stamp is taken before the put.
    fn check_nothing_came(&self, name: &str, deadline: Time, slack: Duration) {
        let latest = deadline.micros().saturating_sub(u64::try_from(slack.as_micros()).unwrap());
        for note in self.notes.iter().filter(|note| note.at < latest) {
            let Word::Sent { suffix, .. } = &note.word else { continue };
            let view = self.views.iter().find(|view| view.suffix == *suffix && view.name.as_str() == name);
            let idle = self.takers(suffix).is_empty();
            assert!(view.is_none() || !idle, "timed out at {deadline} beside {note:?} {view:?}: {}", self.text());
        }
    }

    fn text(&self) -> String {
        text(&self.history)
    }
}
