//! The promises, each a function that says how it was broken.

use std::collections::{BTreeMap, BTreeSet};

use wigwag::{Client, Fate, Status};
use wigwag_core::{Entry, Event, Key, Path, PointKind, Run, RunId, RunRef, read_entry};
use wigwag_store::{Memory, Store as _};

use crate::world::{Known, Sent};

/// A run with its log.
struct Told {
    id: String,
    run: Run,
    log: Vec<Entry>,
}

/// Checks every promise; says which were broken and how.
pub async fn all(memory: &Memory, client: &Client, known: &Known) -> Vec<String> {
    let mut broken = known.wrong.clone();
    let runs = match read_all(memory).await {
        Ok(runs) => runs,
        Err(what) => {
            broken.push(what);
            return broken;
        }
    };
    for told in &runs {
        recorded_results_never_change(told, &mut broken);
        only_the_owner_of_the_turn_writes(told, &mut broken);
        every_wait_is_closed_once(told, &mut broken);
        timers_are_never_early(told, &mut broken);
        final_is_final(told, &mut broken);
        undoing_goes_in_reverse(told, &mut broken);
        losers_are_closed_with_their_winner(told, &mut broken);
        a_signal_in_time_beats_the_timeout(told, known, &mut broken);
    }
    acknowledged_signals_are_never_gone(client, &runs, known, &mut broken).await;
    no_signal_is_taken_twice(&runs, &mut broken);
    the_same_key_is_the_same_signal(known, &mut broken);
    senders_are_heard_in_order(&runs, known, &mut broken);
    one_run_per_id(&runs, known, &mut broken);
    indexes_say_what_runs_are(memory, &runs, &mut broken).await;
    whoever_can_go_on_does(client, &runs, &mut broken).await;
    broken
}

async fn keys(memory: &Memory, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut after = String::new();
    loop {
        let page = memory.list(prefix, &after, 1_000).await.expect("memory lists");
        keys.extend(page.entries.iter().map(|listed| listed.key.clone()));
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.key),
            _ => return keys,
        }
    }
}

/// The logs of all runs, to be looked at.
pub async fn logs(memory: &Memory) -> String {
    let mut text = String::new();
    for key in keys(memory, "workflow/").await.into_iter().filter(|key| key.contains("/log/")) {
        if let Ok(Some(object)) = memory.get(&key).await {
            text.push_str(&format!("{key} {}", String::from_utf8_lossy(&object.body)));
        }
    }
    text
}

/// Reads and folds all logs. A wait that is over and takes something, or a signal taken twice, does not fold.
async fn read_all(memory: &Memory) -> Result<Vec<Told>, String> {
    let mut logs: BTreeMap<RunRef, Vec<Entry>> = BTreeMap::new();
    for prefix in ["workflow/", "task/"] {
        for key in keys(memory, prefix).await {
            let Ok(Key::Entry { run, .. }) = key.parse::<Key>() else { continue };
            let object = memory.get(&key).await.ok().flatten().ok_or_else(|| format!("`{key}` vanished"))?;
            let entry = read_entry(&object.body).map_err(|refusal| format!("`{key}`: {refusal}"))?;
            logs.entry(run).or_default().extend(entry.ok());
        }
    }
    let mut runs = Vec::new();
    for (run, log) in logs {
        let mut folded = Run::begin(run.clone(), &log[0]).map_err(|refusal| refusal.to_string())?;
        for entry in &log[1..] {
            folded.apply(entry).map_err(|refusal| format!("the log of `{run}` does not fold: {refusal}"))?;
        }
        runs.push(Told { id: run.id.to_string(), run: folded, log });
    }
    Ok(runs)
}

fn events(told: &Told) -> impl Iterator<Item = (&Entry, &Event)> {
    told.log.iter().flat_map(|entry| entry.events.iter().map(move |event| (entry, event)))
}

fn recorded_results_never_change(told: &Told, broken: &mut Vec<String>) {
    let mut completed = BTreeSet::new();
    for (_, event) in events(told) {
        match event {
            Event::RunRestarted(event) if event.refused.is_none() => completed.clear(),
            Event::StepCompleted(event) if !completed.insert(&event.point) => {
                broken.push(format!("`{}` of `{}` is recorded twice", event.point, told.id));
            }
            _ => {}
        }
    }
}

fn only_the_owner_of_the_turn_writes(told: &Told, broken: &mut Vec<String>) {
    let mut owner: Option<String> = None;
    let mut leased = None;
    for entry in &told.log {
        let claim = entry.events.iter().find_map(|event| match event {
            Event::RunClaimed(event) => Some(event),
            _ => None,
        });
        let claims = claim.map(|claim| claim.owner.clone());
        if let (Some(claim), Some((owner, until))) = (claim, &leased)
            && claim.owner != *owner
            && entry.at < *until
        {
            broken.push(format!("`{}` was claimed by `{}` while the lease of `{owner}` lasted", told.id, claim.owner));
        }
        leased = claim.map(|claim| (claim.owner.clone(), claim.until)).or(leased);
        let writer = claims.clone().or_else(|| owner.clone());
        if let Some(writer) = writer.filter(|_| entry.seq > 1)
            && !entry.by.starts_with(&format!("{writer}."))
        {
            broken.push(format!(
                "entry {} of `{}` is by `{}`, but `{writer}` has the turn",
                entry.seq, told.id, entry.by
            ));
        }
        owner = claims.or(owner);
        if entry.events.iter().any(|event| matches!(event, Event::RunParked(_))) {
            (owner, leased) = (None, None);
        }
    }
}

fn every_wait_is_closed_once(told: &Told, broken: &mut Vec<String>) {
    let mut open: BTreeSet<Path> = BTreeSet::new();
    for (_, event) in events(told) {
        let closed = match event {
            Event::SignalWaiting(event) => {
                open.insert(event.point.clone());
                continue;
            }
            Event::SignalReceived(event) => &event.point,
            Event::SignalTimeout(event) => &event.point,
            Event::SignalClosed(event) => &event.point,
            _ => continue,
        };
        if !open.remove(closed) {
            broken.push(format!("wait `{closed}` of `{}` is closed, but was not open", told.id));
        }
    }
    if told.run.status.is_final() && !open.is_empty() {
        broken.push(format!("waits of `{}` were never closed: {open:?}", told.id));
    }
}

fn timers_are_never_early(told: &Told, broken: &mut Vec<String>) {
    let mut folded = Run::begin(told.run.run.clone(), &told.log[0]).expect("it was folded before");
    let early = |run: &Run, event: &Event| -> Option<String> {
        let (point, at) = match event {
            Event::SleepFired(event) => (&event.point, event.at),
            Event::SignalTimeout(event) => (&event.point, event.at),
            _ => return None,
        };
        let until = run.points.get(point)?.until?;
        (at < until).then(|| format!("`{point}` was over at {at}, before {until}"))
    };
    for entry in &told.log[1..] {
        // What was opened in this entry is not known yet, and is not over in it.
        for event in &entry.events {
            if let Some(what) = early(&folded, event) {
                broken.push(format!("{what} in `{}`", told.id));
            }
        }
        folded.apply(entry).expect("it was folded before");
    }
}

fn final_is_final(told: &Told, broken: &mut Vec<String>) {
    let mut ended = false;
    for (entry, event) in events(told) {
        match event {
            Event::RunRestarted(event) if event.refused.is_none() => ended = false,
            Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCancelled(_) => ended = true,
            _ if ended => broken.push(format!("entry {} of `{}` comes after its end", entry.seq, told.id)),
            _ => {}
        }
    }
}

/// Completed steps are undone in reverse order of completion, each once.
fn undoing_goes_in_reverse(told: &Told, broken: &mut Vec<String>) {
    let (mut completed, mut undone): (Vec<&Path>, Vec<&Path>) = Default::default();
    for (_, event) in events(told) {
        match event {
            Event::RunRestarted(event) if event.refused.is_none() => {
                completed.clear();
                undone.clear();
            }
            Event::StepCompleted(event) => completed.push(&event.point),
            Event::CompensationCompleted(event) => undone.push(&event.point),
            Event::CompensationFailed(event) if event.retry_at.is_none() => undone.push(&event.point),
            _ => {}
        }
    }
    let place = |path: &Path| completed.iter().position(|step| *step == path);
    let places: Vec<usize> = undone.iter().filter_map(|path| place(path)).collect();
    if !places.windows(2).all(|pair| pair[0] > pair[1]) {
        broken.push(format!("`{}` was undone in the order {undone:?}, and done in the order {completed:?}", told.id));
    }
}

/// Waits that race are over together: one that is open after its race was won could swallow a signal.
fn losers_are_closed_with_their_winner(told: &Told, broken: &mut Vec<String>) {
    let mut folded = Run::begin(told.run.run.clone(), &told.log[0]).expect("it was folded before");
    for entry in &told.log[1..] {
        folded.apply(entry).expect("it was folded before");
        for event in &entry.events {
            let Event::SignalReceived(event) = event else { continue };
            let open = folded.losers_to(&event.point);
            if !open.is_empty() {
                broken.push(format!("`{}` of `{}` won, and {open:?} stay open", event.point, told.id));
            }
        }
    }
}

/// A signal that was acknowledged before a wait timed out, and stamped before its deadline, is taken by it.
fn a_signal_in_time_beats_the_timeout(told: &Told, known: &Known, broken: &mut Vec<String>) {
    let mine: Vec<&Sent> = known.sent.iter().filter(|sent| sent.run == told.id && sent.suffix.is_some()).collect();
    let mut folded = Run::begin(told.run.run.clone(), &told.log[0]).expect("it was folded before");
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for entry in &told.log[1..] {
        let before = folded.clone();
        folded.apply(entry).expect("it was folded before");
        for event in &entry.events {
            if let Event::SignalReceived(event) = event {
                taken.extend(event.signals.iter().map(|taken| taken.signal.clone()));
            }
        }
        for event in &entry.events {
            let Event::SignalTimeout(event) = event else { continue };
            let Some((wait, until)) =
                before.points.get(&event.point).and_then(|point| Some((point.wait.as_deref()?, point.until?)))
            else {
                continue;
            };
            let plain = wait.quorum <= 1 && wait.mode == wigwag_core::Mode::Queue;
            let cursor = before.signals.get(&wait.name).map(|inbox| inbox.cursor.clone()).unwrap_or_default();
            let missed = mine.iter().find(|sent| {
                let suffix = sent.suffix.as_deref().unwrap_or_default();
                let in_time = wigwag_core::stamp_of(suffix).is_some_and(|stamp| stamp <= until);
                let known_before = sent.at.is_some_and(|at| at < until);
                sent.name == wait.name.as_str()
                    && in_time
                    && known_before
                    && !taken.contains(suffix)
                    && suffix > cursor.as_str()
            });
            if let Some(missed) = missed.filter(|_| plain) {
                broken
                    .push(format!("`{}` of `{}` timed out although this was there: {missed:?}", event.point, told.id));
            }
        }
    }
}

async fn acknowledged_signals_are_never_gone(client: &Client, runs: &[Told], known: &Known, broken: &mut Vec<String>) {
    for told in runs {
        let Ok(handle) = client.run(&told.id) else { continue };
        if told.run.task.is_some() {
            continue;
        }
        let Ok(signals) = handle.signals(None).await else {
            broken.push(format!("the signals of `{}` cannot be read", told.id));
            continue;
        };
        let acknowledged = known.sent.iter().filter(|sent| sent.run == told.id);
        for (sent, suffix) in acknowledged.filter_map(|sent| Some((sent, sent.suffix.as_ref()?))) {
            match signals.iter().find(|signal| signal.suffix == *suffix).map(|signal| &signal.fate) {
                None => broken.push(format!("acknowledged, and gone: {sent:?}")),
                Some(Fate::Unacknowledged) => broken.push(format!("acknowledged, and never looked at again: {sent:?}")),
                Some(_) => {}
            }
        }
    }
}

fn no_signal_is_taken_twice(runs: &[Told], broken: &mut Vec<String>) {
    for told in runs {
        let mut taken = BTreeSet::new();
        for (_, event) in events(told) {
            let Event::SignalReceived(event) = event else { continue };
            for signal in event.signals.iter().filter(|signal| !taken.insert(signal.signal.clone())) {
                broken.push(format!("signal `{}` of `{}` is taken twice", signal.signal, told.id));
            }
        }
    }
}

fn the_same_key_is_the_same_signal(known: &Known, broken: &mut Vec<String>) {
    let mut seen: BTreeMap<(&str, &str, &str), &str> = BTreeMap::new();
    for sent in &known.sent {
        if let (Some(key), Some(suffix)) = (&sent.key, &sent.suffix) {
            let first = seen.entry((&sent.run, &sent.name, key)).or_insert(suffix);
            if first != suffix {
                broken.push(format!("key `{key}` gave `{first}` and `{suffix}`"));
            }
        }
    }
}

fn senders_are_heard_in_order(runs: &[Told], known: &Known, broken: &mut Vec<String>) {
    for told in runs {
        let mine: BTreeMap<&str, &Sent> = known
            .sent
            .iter()
            .filter(|sent| sent.run == told.id)
            .filter_map(|sent| Some((sent.suffix.as_deref()?, sent)))
            .collect();
        let mut last: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        for (_, event) in events(told) {
            let Event::SignalReceived(event) = event else { continue };
            for sent in event.signals.iter().filter_map(|taken| mine.get(taken.signal.as_str())) {
                let before = last.insert((sent.sender, &sent.name), sent.number);
                if before.is_some_and(|before| before > sent.number) {
                    broken.push(format!("sender {} of `{}` is heard out of order", sent.sender, told.id));
                }
            }
        }
    }
}

fn one_run_per_id(runs: &[Told], known: &Known, broken: &mut Vec<String>) {
    for (id, (of, _)) in &known.started {
        let there = runs.iter().filter(|told| told.id == *id && told.run.task.is_none()).count();
        if there != 1 || !runs.iter().any(|told| told.id == *id && told.run.of.as_str() == of) {
            broken.push(format!("run `{id}` was started as `{of}`, and is there {there} times"));
        }
    }
}

async fn indexes_say_what_runs_are(memory: &Memory, runs: &[Told], broken: &mut Vec<String>) {
    let mut live = BTreeSet::new();
    let mut waiting = BTreeSet::new();
    for told in runs.iter().filter(|told| !told.run.status.is_final()) {
        live.insert(Key::Live { of: told.run.index_type(), run: told.run.run.id.clone() }.to_string());
        for (_, _, wait) in told.run.waits_in_order() {
            let run: RunId = told.run.run.id.clone();
            waiting.insert(Key::Waiting { name: wait.name.clone(), run, seq: wait.seq }.to_string());
        }
    }
    let atomic = memory.traits().atomic;
    for (prefix, wanted) in [("live/", live), ("waiting/", waiting)] {
        let there: BTreeSet<String> = keys(memory, prefix).await.into_iter().collect();
        let missing: Vec<&String> = wanted.difference(&there).collect();
        // Where a batch lands in parts, a crash may leave an entry too many for the sweeper; one too few is a loss.
        let extra: Vec<&String> = there.difference(&wanted).filter(|_| atomic).collect();
        if !missing.is_empty() || !extra.is_empty() {
            broken.push(format!("`{prefix}` misses {missing:?} and has {extra:?} too many"));
        }
    }
}

/// Liveness: after trouble has ended, every run has ended or waits for something that has not come.
async fn whoever_can_go_on_does(client: &Client, runs: &[Told], broken: &mut Vec<String>) {
    for told in runs.iter().filter(|told| !told.run.status.is_final()) {
        let waits = told.run.waits_in_order();
        let children = told.run.open.iter().any(|path| {
            told.run.points.get(path).is_some_and(|point| point.kind == PointKind::Child || point.children.is_some())
        });
        let waits_for_child = children
            && runs.iter().any(|child| {
                !child.run.status.is_final()
                    && child.run.parent.as_ref().is_some_and(|parent| parent.run == told.run.run)
            });
        if told.run.status == Status::Paused || waits_for_child {
            continue;
        }
        if waits.is_empty() {
            broken.push(format!("`{}` is `{}` and nothing happens", told.id, told.run.status));
            continue;
        }
        let signals = match client.run(&told.id) {
            Ok(handle) if told.run.task.is_none() => handle.signals(None).await.unwrap_or_default(),
            _ => Vec::new(),
        };
        for (path, _, wait) in waits {
            let there = signals.iter().filter(|signal| signal.name == wait.name && signal.fate == Fate::Unconsumed);
            let senders: BTreeSet<Option<&String>> = there.map(|signal| signal.source.by.as_ref()).collect();
            if senders.len() >= wait.quorum.max(1) as usize {
                broken.push(format!("`{path}` of `{}` waits for `{}`, which is there", told.id, wait.name));
            }
        }
    }
}
