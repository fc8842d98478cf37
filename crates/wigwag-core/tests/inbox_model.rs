//! Senders against a reader: every interleaving of their actions, and every delay between them, in small worlds.
//!
//! A sender draws a stamp, its object is stored, the response arrives, and the signal is acknowledged: at once within
//! [`PUT_MAX`], else after a late note. A reader begins a scan (it folds late notes), lists the stored signals, and
//! consumes. Each of these is a separate action, and time may pass between any two of them. The future of a world does
//! not depend on its past, so each world is visited once, and the number of scans is unbounded.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use wigwag_core::limits::{LOOK_BACK, PUT_MAX, UNCERTAINTY_MAX};
use wigwag_core::*;

/// What a world begins with.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// How many signals each sender sends, one after the other.
    senders: &'static [u8],
    mode: Mode,
    /// Time passes by one of these at once, in milliseconds.
    gaps: &'static [u64],
    /// And by no more than this in all.
    horizon: u64,
    /// How far the clock of the first sender is behind those of the others.
    skew: Duration,
    /// Time passes between the beginning of a look and its list, too.
    slow_looks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It has its stamp; its object is on the way.
    Drawn,
    /// Its object is there, but its sender does not know.
    Landed,
    /// The answer came so late that the sender has yet to send a late note.
    Slow,
    /// Its sender received the acknowledgement.
    Acknowledged,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    suffix: String,
    drawn: Time,
    stage: Stage,
}

/// A look that has begun and has not listed yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Begun {
    since: Time,
    /// Signals that were acknowledged before the scan began.
    acknowledged: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Draw(usize),
    Land(usize),
    Answer(usize),
    Note(usize),
    Begin,
    /// Lists, and consumes at most this many.
    Take(usize),
    Pass(Duration),
    /// All senders send late notes again, as those do that repeat by key; one more look finds nothing.
    Repeat,
}

#[derive(Clone, Debug)]
struct World {
    setting: Setting,
    now: Time,
    /// What each sender has sent, in order.
    senders: Vec<Vec<Sent>>,
    /// Late notes that were not folded yet.
    notes: Vec<String>,
    begun: Option<Begun>,
    run: Arc<Run>,
    /// Consumed signals, in order.
    taken: Vec<String>,
}

/// Everything that determines the future of a world: the time, each signal with its progress, the scan in progress,
/// cursor and floor.
type Identity = (Time, Vec<(usize, Sent, [bool; 5])>, Option<Time>, String, String);

impl World {
    fn new(setting: Setting) -> Self {
        let mut run = run_with("");
        add(&mut run, vec![Self::wait(setting.mode, 0)]).unwrap();
        let senders = vec![Vec::new(); setting.senders.len()];
        Self { setting, now: at(100), senders, notes: Vec::new(), begun: None, run: Arc::new(run), taken: Vec::new() }
    }

    fn wait(mode: Mode, number: usize) -> Event {
        SignalWaiting { mode, ..wait_at(&format!("w{number}")) }.into()
    }

    fn inbox(&self) -> Inbox {
        self.run.signals.get(&go()).cloned().unwrap_or_default()
    }

    fn identity(&self) -> Identity {
        let Inbox { cursor, floor, taken, late, .. } = self.inbox();
        let marks = |suffix: &String| {
            let before = self.begun.as_ref().is_some_and(|begun| begun.acknowledged.contains(suffix));
            let ever = self.taken.contains(suffix);
            [self.notes.contains(suffix), before, ever, taken.contains(suffix), late.contains(suffix)]
        };
        let senders = self.senders.iter().enumerate();
        let sent = senders.flat_map(|(sender, sent)| sent.iter().map(move |sent| (sender, sent)));
        let sent = sent.map(|(sender, sent)| (sender, sent.clone(), marks(&sent.suffix))).collect();
        (self.now, sent, self.begun.as_ref().map(|begun| begun.since), cursor, floor)
    }

    fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.senders.iter().flatten()
    }

    fn acknowledged(&self) -> Vec<String> {
        self.sent().filter(|sent| sent.stage == Stage::Acknowledged).map(|sent| sent.suffix.clone()).collect()
    }

    /// Whether all signals are sent, acknowledged and consumed: time alone does not change the offers.
    fn is_over(&self) -> bool {
        let all: usize = self.setting.senders.iter().map(|count| usize::from(*count)).sum();
        self.taken.len() == all && self.acknowledged().len() == all && self.notes.is_empty() && self.begun.is_none()
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (sender, sent) in self.senders.iter().enumerate() {
            match sent.last().map(|last| last.stage) {
                Some(Stage::Drawn) => moves.push(Move::Land(sender)),
                Some(Stage::Landed) => moves.push(Move::Answer(sender)),
                Some(Stage::Slow) => moves.push(Move::Note(sender)),
                _ if self.may_draw(sender) => moves.push(Move::Draw(sender)),
                _ => {}
            }
        }
        match self.begun {
            Some(_) => moves.extend([Move::Take(1), Move::Take(usize::MAX)]),
            None => moves.push(Move::Begin),
        }
        if self.sent().next().is_none() || (self.begun.is_some() && !self.setting.slow_looks) {
            // Before anything was sent, and while a look is short, time makes no difference.
            return moves;
        }
        let left = Duration::from_millis(self.setting.horizon).saturating_sub(self.now.since(at(100)));
        let gaps = self.setting.gaps.iter().map(|gap| Duration::from_millis(*gap));
        moves.extend(gaps.filter(|gap| *gap <= left).map(Move::Pass));
        moves
    }

    /// Among identical senders the first one sends first: their identity makes no difference.
    fn may_draw(&self, sender: usize) -> bool {
        let Setting { senders, skew, .. } = self.setting;
        let is_like_the_one_before = sender > usize::from(!skew.is_zero()) && senders[sender] == senders[sender - 1];
        let in_line = !is_like_the_one_before || !self.senders[sender - 1].is_empty();
        in_line && self.senders[sender].len() < senders[sender].into()
    }

    fn make(&mut self, step: Move) {
        match step {
            Move::Draw(sender) => self.draw(sender),
            Move::Land(sender) => self.last_of(sender).stage = Stage::Landed,
            Move::Answer(sender) => {
                let in_time = self.now.since(self.last_of(sender).drawn) <= PUT_MAX;
                self.last_of(sender).stage = if in_time { Stage::Acknowledged } else { Stage::Slow };
            }
            Move::Note(sender) => {
                self.last_of(sender).stage = Stage::Acknowledged;
                let late = self.last_of(sender).suffix.clone();
                self.notes.push(late);
            }
            Move::Begin => self.begin(),
            Move::Take(most) => self.take(most),
            Move::Pass(gap) => self.now = self.now.after(gap),
            Move::Repeat => {
                self.notes = self.acknowledged();
                self.begin();
                self.take(usize::MAX);
            }
        }
    }

    fn last_of(&mut self, sender: usize) -> &mut Sent {
        self.senders[sender].last_mut().unwrap()
    }

    /// The stamp is above the cursor and above this sender's last one, whatever its clock says.
    fn draw(&mut self, sender: usize) {
        let next = |suffix: &str| stamp_of(suffix).map(|stamp| stamp.after(Duration::from_micros(1)));
        let own = self.senders[sender].last().and_then(|last| next(&last.suffix));
        let clock = if sender == 0 { self.now.before(self.setting.skew) } else { self.now };
        let stamp = [own, next(&self.inbox().cursor)].into_iter().flatten().fold(clock, Time::max);
        // Later ones have smaller ids, so that ids do not make up for stamps.
        let id = format!("{}", 9 - self.sent().count());
        self.senders[sender].push(Sent { suffix: suffix(stamp, &id), drawn: self.now, stage: Stage::Drawn });
    }

    fn begin(&mut self) {
        let begun = Begun { since: self.now, acknowledged: self.acknowledged() };
        let definition = Definition::function("order".parse().unwrap(), 1);
        for signal in std::mem::take(&mut self.notes) {
            let order = Order::Late { name: go(), signal };
            let control = Control { id: "c".into(), created_at: self.now, by: None, order };
            let events = self.run.fold_control("c", &control, &definition, self.now);
            add(Arc::make_mut(&mut self.run), events).unwrap();
        }
        self.begun = Some(begun);
    }

    /// Stored signals above the floor, and those named by late notes.
    fn listed(&self, since: Time) -> Inboxes {
        let inbox = self.inbox();
        let landed = self.sent().filter(|sent| sent.stage != Stage::Drawn).map(|sent| &sent.suffix);
        let suffixes: BTreeSet<String> =
            landed.filter(|suffix| **suffix > inbox.floor || inbox.late.contains(*suffix)).cloned().collect();
        let (id, payload, created_at, source) = (String::new(), Payload::null(), at(0), Source::default());
        let signal = Arc::new(Signal { id, name: go(), payload, created_at, source, only: None, point: None });
        let signals = suffixes.iter().map(|suffix| (suffix.clone(), Arc::clone(&signal))).collect();
        Inboxes { since, names: BTreeMap::from([(go(), Seen { suffixes, signals, ..Seen::default() })]) }
    }

    fn take(&mut self, most: usize) {
        let begun = self.begun.take().unwrap();
        let found = self.listed(begun.since);
        for _ in 0..most {
            let Some(Decision::Receive { point, signals }) = self.run.decide(&found, |_| true, |_, _, _| true) else {
                return self.check_end_of_look(&begun);
            };
            let [signal] = &signals[..] else { panic!("{signals:?}") };
            self.check_taken(signal, &begun);
            let wait = self.run.points[&point].wait.clone().unwrap();
            let (cursor, floor) = self.run.read_up_to(&wait, &signals, &found);
            let signals = vec![Taken { signal: signal.clone(), by: None }];
            let (payload, patch) = (data("null"), None);
            let took = SignalReceived { point, name: go(), signals, at: self.now, payload, patch, cursor, floor };
            self.taken.push(signal.clone());
            let next = Self::wait(self.setting.mode, self.taken.len());
            add(Arc::make_mut(&mut self.run), vec![took.into(), next]).unwrap();
        }
    }

    /// Nothing is taken twice, and nothing before what its sender had sent earlier.
    fn check_taken(&self, signal: &String, begun: &Begun) {
        assert!(!self.taken.contains(signal), "`{signal}` is taken twice");
        if self.setting.mode == Mode::Latest {
            assert!(self.taken.iter().all(|taken| taken < signal), "`{signal}` comes after a newer one");
            return;
        }
        let own = self.senders.iter().find(|sent| sent.iter().any(|sent| sent.suffix == *signal)).unwrap();
        let mut earlier = own.iter().map(|sent| &sent.suffix).take_while(|suffix| *suffix != signal);
        let passed = earlier.find(|suffix| begun.acknowledged.contains(*suffix) && !self.taken.contains(*suffix));
        assert_eq!(passed, None, "`{signal}` is consumed before a signal that was acknowledged before it was sent");
    }

    /// Every signal that was acknowledged before a scan began is consumed once that scan finds nothing more.
    fn check_end_of_look(&self, begun: &Begun) {
        let cursor = self.inbox().cursor;
        let superseded = |suffix: &String| self.setting.mode == Mode::Latest && *suffix <= cursor;
        let lost = begun.acknowledged.iter().find(|suffix| !self.taken.contains(*suffix) && !superseded(suffix));
        assert_eq!(lost, None, "it was acknowledged and is lost");
    }
}

/// Goes through all worlds that can come of a setting; gives how many there are.
fn explore(setting: Setting) -> usize {
    let mut known: BTreeSet<Identity> = BTreeSet::new();
    let mut open = vec![(World::new(setting), Vec::new())];
    while let Some((world, way)) = open.pop() {
        let moves = if world.is_over() { vec![Move::Repeat] } else { world.moves() };
        for step in moves {
            let mut next = world.clone();
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| next.make(step)));
            assert!(made.is_ok(), "{setting:?}: after {way:?} comes {step:?}: {world:#?}");
            if known.insert(next.identity()) {
                open.push((next, [&way[..], &[step]].concat()));
            }
        }
    }
    known.len()
}

/// Gaps just below, at and above what makes a sender slow, and such that two or three make more than the look-back.
const PLAIN: Setting = Setting {
    senders: &[1, 1],
    mode: Mode::Queue,
    gaps: &[4_000, 5_000, 6_000, 11_000],
    horizon: 17_000,
    skew: Duration::ZERO,
    slow_looks: false,
};

#[test]
fn signals_of_two_senders_are_each_consumed_once_whenever_they_land() {
    let worlds = explore(PLAIN);
    assert!(worlds > 5_000, "{worlds}");
}

#[test]
fn signals_of_three_senders_are_each_consumed_once_whenever_they_land() {
    let worlds = explore(Setting { senders: &[1, 1, 1], gaps: &[6_000], horizon: 12_000, ..PLAIN });
    assert!(worlds > 5_000, "{worlds}");
}

#[test]
fn signals_of_one_sender_are_consumed_in_order_whatever_another_does() {
    let worlds = explore(Setting { senders: &[2, 1], gaps: &[5_000, 6_000], horizon: 11_000, ..PLAIN });
    assert!(worlds > 5_000, "{worlds}");
    let alone = explore(Setting { senders: &[3], gaps: &[5_000, 6_000], ..PLAIN });
    assert!(alone > 1_000, "{alone}");
}

#[test]
fn signals_of_a_sender_with_the_slowest_allowed_clock_are_consumed() {
    // One clock is ahead by the maximum, another behind by it.
    let skew = 2 * UNCERTAINTY_MAX;
    assert_eq!(PUT_MAX + skew, LOOK_BACK);
    let worlds = explore(Setting { gaps: &[2_500, 5_000], skew, ..PLAIN });
    assert!(worlds > 1_000, "{worlds}");
}

#[test]
fn scans_may_be_slow() {
    let worlds = explore(Setting { gaps: &[5_000, 6_000], horizon: 12_000, slow_looks: true, ..PLAIN });
    assert!(worlds > 5_000, "{worlds}");
}

#[test]
fn in_latest_mode_no_older_value_follows_a_newer_one_and_the_newest_is_consumed() {
    let worlds = explore(Setting { mode: Mode::Latest, gaps: &[5_000, 6_000], ..PLAIN });
    assert!(worlds > 5_000, "{worlds}");
    let worlds = explore(Setting { mode: Mode::Latest, senders: &[2, 1], gaps: &[6_000], horizon: 12_000, ..PLAIN });
    assert!(worlds > 1_000, "{worlds}");
}
