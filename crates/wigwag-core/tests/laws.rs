//! What holds for every log, every stored form and every interleaving of workers.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use proptest::sample::select;
use wigwag_core::*;

/// Checks the invariants of a run after each entry, when all its steps are in memory.
fn holds(run: &Run) {
    let settled = |path: &Path| run.points[path].status.is_settled();
    let open: BTreeSet<Path> = run.points.keys().filter(|path| !settled(path)).cloned().collect();
    assert_eq!(run.open, open, "open points and unsettled points are the same");
    let last = run.rolled.last().map_or(0, |rolled| rolled.to);
    let mut unrolled: Vec<&Path> =
        run.points.iter().filter(|(path, point)| settled(path) && point.seq > last).map(|(path, _)| path).collect();
    unrolled.sort_by_key(|path| (run.points[*path].seq, run.points[*path].place));
    assert_eq!(run.unrolled.iter().collect::<Vec<_>>(), unrolled, "settled points are unrolled or rolled, in order");
    let rolled: usize = run.rolled.iter().map(|rolled| rolled.points).sum();
    assert_eq!(rolled + unrolled.len() + open.len(), run.points.len(), "each point is in one place");
    assert!(run.is_whole());
    let mut next = 1;
    for rolled in &run.rolled {
        assert!(rolled.from == next && rolled.from <= rolled.to && rolled.to <= run.seq, "{:?}", run.rolled);
        next = rolled.to + 1;
    }
    assert!(!(run.parked && run.lease.is_some()), "a parked run has no owner");
    if run.status.is_final() {
        assert!(run.lease.is_none() && !run.parked && run.next_at.is_none(), "an ended run has no driver");
    }
    assert_eq!(run.pause.is_some(), run.status == Status::Paused);
    assert_eq!(run.result.is_some(), run.status == Status::Completed);
    assert!(run.status != Status::Failed || run.error.is_some(), "a failure has a reason");
    if run.status == Status::WaitingSignal {
        assert!(run.parked && run.waits().next().is_some(), "a wait is open and nothing runs");
    }
    assert!(run.status != Status::Compensating || run.chain.is_some());
    assert!(run.chain.is_none() || run.status == Status::Compensating || run.status.is_final());
    if let Some(chain) = &run.chain {
        let order = run.undo_order();
        assert!(chain.behind <= order.len() && run.compensation_errors.len() <= chain.behind);
        assert!(
            chain.current.is_none() || chain.current.as_ref().map(|current| &current.point) == order.get(chain.behind)
        );
    }
    run.points.values().for_each(|point| holds_of_point(run, point));
    for inbox in run.signals.values() {
        assert!(inbox.taken.iter().all(|signal| *signal > inbox.floor), "signals below the floor are forgotten");
        assert!(inbox.taken.is_disjoint(&inbox.late), "a consumed signal is not offered");
    }
}

fn holds_of_point(run: &Run, point: &Point) {
    assert!(point.seq <= run.seq && point.started_at.is_some());
    assert_eq!(point.ended_at.is_some(), point.status.is_settled());
    match point.status {
        PointStatus::Completed => assert!(point.error.is_none()),
        PointStatus::Retrying => assert!(point.error.is_some() && point.kind == PointKind::Step),
        PointStatus::Running | PointStatus::Failed | PointStatus::Skipped => {}
    }
    if point.status.is_settled() {
        assert!(point.until.is_none() && !point.relative && point.interrupted == 0);
    }
    assert_eq!(point.wait.is_some(), point.kind == PointKind::Wait);
    if let Some(wait) = &point.wait {
        assert!(wait.seq <= point.seq, "a wait is opened before it ends");
        assert_eq!(!wait.received.is_empty(), point.result.is_some(), "the consumed signal is the result");
        assert!(wait.received.is_empty() || point.status == PointStatus::Completed);
        assert_eq!(point.is_timed_out(), point.status == PointStatus::Completed && wait.received.is_empty());
    }
}

/// One thing that may happen next, if it can.
#[derive(Clone, Copy, Debug)]
enum What {
    Claim,
    Park,
    Pause,
    Resume,
    Cancel,
    Restart,
    RestartFrom,
    Migrate,
    Late,
    Begin,
    Done,
    Fail,
    Skip,
    Sleep,
    Wait,
    Child,
    Settle,
    Close,
    Undo,
    Undone,
    End,
    Roll,
}

const WHATS: [What; 22] = [
    What::Claim,
    What::Park,
    What::Pause,
    What::Resume,
    What::Cancel,
    What::Restart,
    What::RestartFrom,
    What::Migrate,
    What::Late,
    What::Begin,
    What::Done,
    What::Fail,
    What::Skip,
    What::Sleep,
    What::Wait,
    What::Child,
    What::Settle,
    What::Close,
    What::Undo,
    What::Undone,
    What::End,
    What::Roll,
];

const POINTS: &str = "a b c d a/x b/y s";

#[derive(Clone, Copy, Debug)]
struct Op {
    what: What,
    point: usize,
    flag: bool,
}

fn ops(length: usize) -> impl Strategy<Value = Vec<Op>> {
    // Progress is likelier than all else, so that runs get somewhere.
    let what = prop_oneof![select(&WHATS[..]), select(&[What::Begin, What::Done, What::Fail, What::Claim][..])];
    let op = (what, 0..7_usize, any::<bool>()).prop_map(|(what, point, flag)| Op { what, point, flag });
    prop::collection::vec(op, 1..length)
}

/// The events by which `op` happens to `run`; none if it cannot happen now.
fn events_of(op: Op, run: &Run, definition: &Definition) -> Vec<Event> {
    let point = &paths(POINTS)[op.point];
    let now = at(run.seq + 1);
    match op.what {
        What::Pause | What::Resume | What::Cancel | What::Restart | What::RestartFrom | What::Migrate | What::Late => {
            ordered(op, run, definition, point)
        }
        What::Claim if !run.status.is_final() => vec![claimed(if op.flag { "w1" } else { "w2" }, now)],
        What::Park if run.lease.is_some() => vec![RunParked { next_at: op.flag.then_some(now), hints: vec![] }.into()],
        What::Undo if run.lease.is_some() => {
            let behind = run.chain.as_ref().map_or(0, |chain| chain.behind);
            let cancelled = run.chain.is_none() && op.flag;
            let cause = if cancelled { Ending::Cancelled(None) } else { Ending::Failed(fault("why")) };
            let next = run.undo_order().into_iter().nth(behind);
            next.map(|point| CompensationStarted { point, attempt: 1, cause: Some(cause) }.into()).into_iter().collect()
        }
        What::Undone => {
            let current = run.chain.as_ref().and_then(|chain| chain.current.as_ref());
            let event = |point: &Path| if op.flag { undone(point.as_str()) } else { not_undone(point.as_str(), None) };
            current.filter(|_| !run.status.is_final()).map(|current| event(&current.point)).into_iter().collect()
        }
        What::End => ended(op, run),
        _ if run.lease.is_some() && matches!(run.status, Status::Running | Status::Paused) => stepped(op, run, point),
        _ => Vec::new(),
    }
}

/// What a control object becomes, with the claim of the owner that folds it.
fn ordered(op: Op, run: &Run, definition: &Definition, point: &Path) -> Vec<Event> {
    let (reason, expected_seq) = (None, run.seq);
    let mapping = BTreeMap::from([(point.clone(), op.flag.then(|| path("d")))]);
    let order = match op.what {
        What::Pause => Order::Pause { reason },
        What::Resume => Order::Resume,
        What::Cancel => Order::Cancel { reason },
        What::Restart => Order::Restart { from: None, expected_seq },
        What::RestartFrom => Order::Restart { from: Some(point.clone()), expected_seq },
        What::Late => Order::Late { name: go(), signal: sent_before(run, op.point as u64) },
        _ => Order::Migrate { definition_hash: definition.hash.clone(), mapping, expected_seq },
    };
    let control = Control { id: "c".into(), created_at: at(0), by: None, order };
    let mut events = run.fold_control(&format!("c{}", run.seq), &control, definition, at(run.seq + 1));
    let refused = matches!(&events[0], Event::RunRestarted(event) if event.refused.is_some());
    let claim = claimed("w1", at(run.seq + 9));
    match run.status.is_final() {
        true if !matches!(op.what, What::Restart | What::RestartFrom) || refused => {}
        true => events.push(claim),
        false => events.insert(0, claim),
    }
    events
}

/// The signal that came that many entries ago: one comes with each.
fn sent_before(run: &Run, entries: u64) -> String {
    suffix(at(run.seq.saturating_sub(entries)), "0")
}

/// The event that a scan of the inbox yields now for the wait at that path.
fn looked(run: &Run, point: &Path) -> Option<Event> {
    let signal = |name| {
        let (id, payload, created_at, source) = ("0".into(), Payload::null(), at(0), Source::default());
        Signal { id, name, payload, created_at, source, only: None, point: None }
    };
    let read = (0..=run.seq).map(|entries| (sent_before(run, entries), Arc::new(signal(go())))).collect();
    let mut seen = Seen { signals: read, ..Seen::default() };
    seen.suffixes = seen.signals.keys().cloned().collect();
    let found = Inboxes { since: at(run.seq), names: BTreeMap::from([(go(), seen)]) };
    let now = at(run.seq + 1);
    match run.decide(&found, |asked| asked == point, |_, _, _| true)? {
        Decision::TimeOut { point } => Some(SignalTimeout { point, at: now, error: None, patch: None }.into()),
        Decision::Receive { point, signals } => {
            let wait = run.points[&point].wait.as_ref().unwrap();
            let (cursor, floor) = run.read_up_to(wait, &signals, &found);
            let signals = signals.into_iter().map(|signal| Taken { signal, by: None }).collect();
            let (payload, patch) = (data("null"), None);
            Some(SignalReceived { point, name: go(), signals, at: now, payload, patch, cursor, floor }.into())
        }
    }
}

fn ended(op: Op, run: &Run) -> Vec<Event> {
    match (run.status, &run.chain) {
        (Status::Running, _) if op.flag => vec![completed()],
        (Status::Running, _) => vec![failed("no")],
        (Status::Compensating, Some(chain)) if chain.behind == run.undo_order().len() => match &chain.cause {
            Ending::Failed(error) => vec![RunFailed { error: error.clone() }.into()],
            Ending::Cancelled(_) => vec![cancelled()],
        },
        (Status::Pending | Status::Paused | Status::WaitingSignal, _) => vec![cancelled()],
        _ => Vec::new(),
    }
}

fn stepped(op: Op, run: &Run, point: &Path) -> Vec<Event> {
    let now = at(run.seq + 1);
    let found = run.points.get(point);
    let is_open = |kind| found.is_some_and(|point| point.kind == kind && !point.status.is_settled());
    let text = point.as_str();
    match op.what {
        What::Begin if found.is_none() && op.flag => vec![begun_undoable(text)],
        What::Begin if found.is_none() => vec![begun(text)],
        What::Begin if found.is_some_and(|point| point.status == PointStatus::Retrying) => vec![begun(text)],
        What::Done if is_open(PointKind::Step) => {
            let patch = serde_json::json!({"last": text, "item": null}).as_object().filter(|_| op.flag).cloned();
            vec![StepCompleted { point: point.clone(), at: now, result: data("null"), patch, mark: false }.into()]
        }
        What::Fail if is_open(PointKind::Step) => vec![broken(text, op.flag.then_some(now))],
        What::Skip if found.is_none() => vec![skipped(text)],
        What::Sleep if found.is_none() => vec![asleep(text, now, op.flag)],
        What::Wait if found.is_none() => {
            let mode = if run.seq.is_multiple_of(2) { Mode::Latest } else { Mode::Queue };
            let deadline = op.flag.then_some(now);
            vec![SignalWaiting { mode, deadline, relative: op.flag, ..wait_at(text) }.into()]
        }
        What::Close if is_open(PointKind::Wait) => vec![closed(text, Closing::Lost)],
        What::Child if found.is_none() => {
            vec![
                ChildStarted {
                    point: point.clone(),
                    children: Children::Numbered { count: 2, restarts: 0 },
                    deadline: None,
                }
                .into(),
            ]
        }
        What::Settle => {
            let point = point.clone();
            match found.map(|point| point.kind).filter(|kind| is_open(*kind)) {
                Some(PointKind::Sleep) => vec![SleepFired { point, at: now }.into()],
                Some(PointKind::Wait) if op.flag => looked(run, &point).into_iter().collect(),
                Some(PointKind::Wait) => vec![timed_out(text, run.seq.is_multiple_of(2).then(|| fault("late")))],
                Some(PointKind::Child) if op.flag => vec![ChildFailed { point, at: now, error: fault("no") }.into()],
                Some(PointKind::Child) => vec![ChildCompleted { point, at: now, result: data("null") }.into()],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// Objects beside the log: chunks by their range, created once.
type Chunks = BTreeMap<(u64, u64), Vec<u8>>;

fn read_back(run: &Run, chunks: &Chunks) -> Run {
    let mut read = read_state(the_run(), &state_to_json(run, "by")).unwrap();
    for rolled in read.rolled.clone() {
        read.unroll(read_chunk(&chunks[&(rolled.from, rolled.to)]).unwrap());
    }
    read
}

/// Rolls finished points out, in memory and in a worker that knows the run from its snapshot alone.
fn roll(run: &mut Run, chunks: &mut Chunks) {
    let mut other = read_back(run, chunks);
    let rolled = run.roll();
    assert_eq!(other.roll(), rolled);
    for chunk in rolled {
        let before = chunks.insert((chunk.range.from, chunk.range.to), chunk_to_json(&chunk));
        assert_eq!(before, None, "a chunk is created once");
    }
}

/// Applies an entry, and checks that all ways to do so agree.
fn apply_in_all_ways(run: &mut Run, entry: &Entry, log: &[Entry]) {
    let mut staged = run.clone();
    run.apply(entry).unwrap();
    let once = run.clone();
    for known in log.iter().chain([entry]) {
        run.apply(known).unwrap();
    }
    assert_eq!(*run, once, "an entry that was folded before changes nothing");
    let mut made = Entry { events: Vec::new(), requests: Requests::default(), ..entry.clone() };
    for event in &entry.events {
        staged.stage(&mut made, event.clone()).unwrap();
    }
    staged.stage_requests(&mut made, entry.requests);
    assert_eq!((&staged, &made), (&once, entry), "staging is applying");
    assert_eq!(read_entry(&entry.to_json()), Ok(Ok(entry.clone())));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_may_happen_a_run_holds_together(ops in ops(80)) {
        let definition = graph("d<a, b, c, a, ?s");
        let mut log = vec![entry(1, vec![run_started()])];
        let mut run = Run::begin(the_run(), &log[0]).unwrap();
        let mut chunks = Chunks::new();
        for op in ops {
            if matches!(op.what, What::Roll) {
                roll(&mut run, &mut chunks);
                holds(&run);
            }
            let events = events_of(op, &run, &definition);
            if events.is_empty() {
                continue;
            }
            let requests = Requests { puts: run.seq, gets: events.len() as u64, ..Requests::default() };
            let next = Entry { requests, ..entry(run.seq + 1, events) };
            apply_in_all_ways(&mut run, &next, &log);
            log.push(next);
            holds(&run);
            prop_assert_eq!(&read_back(&run, &chunks), &run, "a snapshot and its chunks are the run");
        }
        let mut again = Run::begin(the_run(), &log[0]).unwrap();
        log.iter().for_each(|entry| again.apply(entry).unwrap());
        (again.rolled, again.unrolled) = (run.rolled.clone(), run.unrolled.clone());
        prop_assert_eq!(again, run, "the log alone gives the run");
    }
}

/// A graph of up to six steps, each after some of those before it, written in any order.
fn graphs() -> impl Strategy<Value = Definition> {
    let after = prop::collection::vec(any::<u8>(), 1..6);
    let nodes = after.prop_map(|after| {
        let name = |place: usize| path(&format!("s{place}"));
        let node = |(place, bits): (usize, &u8)| {
            let mut node = Node::step(name(place));
            node.after = (0..place).filter(|earlier| bits >> earlier & 1 == 1).map(name).collect();
            node
        };
        after.iter().enumerate().map(node).collect::<Vec<_>>()
    });
    nodes.prop_shuffle().prop_map(|nodes| Definition::graph("order".parse().unwrap(), nodes).unwrap())
}

/// What one of two workers does next.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Reads this many more entries.
    Read(usize),
    /// Decides from the entries read so far; it may be late.
    Decide,
    /// Writes the decided entry, if it is still the next one.
    Commit,
    /// Does nothing for this many seconds.
    Stall(u64),
}

#[derive(Clone, Debug, Default)]
struct Worker {
    name: String,
    /// How far its clock is ahead.
    ahead: Duration,
    run: Option<Run>,
    decided: Option<Entry>,
    writes: u64,
}

/// How far two clocks may differ.
const UNCERTAINTY: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(10);

impl Worker {
    fn read(&mut self, log: &[Entry], count: usize) {
        for entry in log.iter().skip(self.run.as_ref().map_or(0, |run| run.seq as usize)).take(count) {
            match &mut self.run {
                Some(run) => run.apply(entry).unwrap(),
                None => self.run = Some(Run::begin(the_run(), entry).unwrap()),
            }
        }
    }

    fn decide(&mut self, definition: &Definition, now: Time) {
        let now = now.after(self.ahead);
        let Some(run) = &self.run else { return };
        let mine = run.lease.as_ref().is_some_and(|lease| lease.owner == self.name && now < lease.until);
        let id = run.id().clone();
        let hint = Hint { shard: 0, due: at(0), kind: "k".into(), run: id, nonce: "n".into() };
        let events = match look(Some(run), &hint, now, UNCERTAINTY, |_| None) {
            Look::Ended => Vec::new(),
            _ if mine => progress(definition, run),
            Look::Free => vec![claimed(&self.name, now.after(LEASE))],
            _ => Vec::new(),
        };
        self.writes += 1;
        let by = format!("{}-{}", self.name, self.writes);
        self.decided = (!events.is_empty()).then(|| Entry {
            seq: run.seq + 1,
            by,
            at: now,
            events,
            requests: Requests::default(),
        });
    }

    fn commit(&mut self, log: &mut Vec<Entry>) {
        if let Some(entry) = self.decided.take().filter(|entry| entry.seq == log.len() as u64 + 1) {
            log.push(entry);
        }
    }

    fn act(&mut self, act: Act, definition: &Definition, log: &mut Vec<Entry>, now: &mut Time) {
        match act {
            Act::Read(count) => self.read(log, count),
            Act::Decide => self.decide(definition, *now),
            Act::Commit => self.commit(log),
            Act::Stall(seconds) => *now = now.after(Duration::from_secs(seconds)),
        }
    }
}

/// One step ends, and all that is ready then begins.
fn progress(definition: &Definition, run: &Run) -> Vec<Event> {
    let mut frontier = Frontier::new(definition, run);
    let is_running = |node: &&Node| run.points.get(&node.name).is_some_and(|point| !point.status.is_settled());
    let ending = frontier.ready(definition).find(is_running).map(|node| node.name.clone());
    let mut events = Vec::new();
    if let Some(point) = ending {
        events.push(done(point.as_str()));
        frontier.passed(&point);
    }
    let fresh = frontier.ready(definition).filter(|node| !run.open.contains(&node.name));
    events.extend(fresh.map(|node| begun(node.name.as_str())));
    if frontier.is_done() {
        events.push(completed());
    }
    events
}

/// Each entry is of who has the turn, or takes it.
fn check_turns(log: &[Entry]) {
    let mut run = Run::begin(the_run(), &log[0]).unwrap();
    for entry in &log[1..] {
        let writer = entry.by.split('-').next().unwrap();
        let owner = match &entry.events[0] {
            Event::RunClaimed(claim) => claim.owner.clone(),
            _ => run.lease.as_ref().map(|lease| lease.owner.clone()).unwrap_or_default(),
        };
        assert_eq!(writer, owner, "entry {} is of one who has no turn: {log:#?}", entry.seq);
        run.apply(entry).unwrap();
    }
}

fn check_order(definition: &Definition, log: &[Entry]) {
    let mut passed: Vec<&Path> = Vec::new();
    for event in log.iter().flat_map(|entry| &entry.events) {
        match event {
            Event::StepStarted(event) => {
                let node = definition.step(&event.point).unwrap();
                assert!(node.after.iter().all(|name| passed.contains(&name)), "{} began too early", event.point);
            }
            Event::StepCompleted(event) => passed.push(&event.point),
            _ => {}
        }
    }
    let mut names: Vec<&Path> = definition.steps.iter().map(|node| &node.name).collect();
    passed.sort();
    names.sort();
    assert_eq!(passed, names, "each step is completed once");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_workers_drive_a_run_to_its_end_as_one_would(
        definition in graphs(),
        ahead in 0..=1_000_u64,
        acts in prop::collection::vec((0..2_usize, prop_oneof![
            3 => (1..4_usize).prop_map(Act::Read),
            3 => Just(Act::Decide),
            3 => Just(Act::Commit),
            1 => (1..8_u64).prop_map(Act::Stall),
        ]), 0..120),
    ) {
        let mut log = vec![entry(1, vec![run_started()])];
        let mut workers = ["w1", "w2"].map(|name| Worker { name: name.into(), ..Worker::default() });
        workers[1].ahead = Duration::from_millis(ahead);
        let mut now = at(1);
        for (who, act) in acts {
            workers[who].act(act, &definition, &mut log, &mut now);
        }
        // Then both continue, one after the other, until the run is done.
        for turn in 0..200 {
            for act in [Act::Read(usize::MAX), Act::Decide, Act::Commit, Act::Stall(1)] {
                workers[turn % 2].act(act, &definition, &mut log, &mut now);
            }
        }
        check_turns(&log);
        check_order(&definition, &log);
        workers.iter_mut().for_each(|worker| worker.read(&log, usize::MAX));
        let [one, two] = workers.map(|worker| worker.run.unwrap());
        prop_assert_eq!(one.status, Status::Completed);
        prop_assert_eq!(one, two);
    }
}
