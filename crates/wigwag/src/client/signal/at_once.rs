//! A signal that is taken by the commit that brings it.
//!
//! Where the store is atomic, this engine may drive the run, and the run waits for nothing but signals, its next turn is
//! made before the signal is there: the run is claimed, its code hears the signal, and one commit holds the signal, the
//! claim and all that followed, up to the first step. Otherwise it takes two commits and a hint between them.
//!
//! Holds: it is the signal that the run would have taken next. The commit is refused if anything was added to the run
//! since it was read, if another signal lies in the inbox of an open wait, if the key of this one is known, or if
//! anything was asked of the run. Then nothing of it is there, and the signal is sent as any other.
//!
//! What if we die here? Before the commit nothing happened: code may have heard of a signal that never was, but neither
//! step nor child begins before the commit. After it the signal is there and was taken, and the hint at the end of the
//! lease stands for the run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};
use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{Bound, Inboxes, Key, Name, Run, Seen, Signal, Style, Time, limits, prefix, suffix};
use wigwag_store::{Clear, Version};

use super::stamps::least_stamp;
use super::{Message, new_id};
use crate::error::{Error, ErrorKind, Result};
use crate::inner::{Inner, Now, lock};
use crate::log::{Loaded, Log, Lost};
use crate::tally::counted;
use crate::turn::{Brought, Found, Turn, names_waited_for};
use crate::workflow::Workflow;

/// The code of a run with more points than this takes long to come to its wait again: its sender is answered before.
const POINTS_MAX: usize = 256;

/// With more signals than this taken within the last seconds, to look for others among them takes long.
const KNOWN_MAX: usize = 64;

/// So long it is not tried again with runs of a type whose code did not take its signal: it takes long, or waits elsewhere.
const NOT_AGAIN: Duration = Duration::from_secs(60);

/// Lets the run take the signal with the commit that brings it, if it can; says where it lies then.
pub(super) async fn take_at_once(
    inner: &Arc<Inner>,
    message: &Message,
    run: &Run,
    snapshot: Option<Version>,
    only: Option<&Bound>,
) -> Result<Option<String>> {
    if !inner.store.traits().atomic {
        return Ok(None);
    }
    let now = inner.now().await?;
    let Some((workflow, permit)) = may_drive(inner, message, run, &now) else { return Ok(None) };
    let id = new_id();
    let stamp = least_stamp(inner, message, run, now.at);
    let suffix = suffix(stamp, &id);
    let signal = message.to_signal(id, stamp, only.cloned());
    let (tried, (landed, lands)) = (Arc::<AtomicBool>::default(), watch::channel(false));
    let found = found(run, &suffix, signal.clone(), now.at.before(now.uncertainty));
    let (puts, clear) = bring(message, run, &suffix, &signal);
    let brought =
        Brought { suffix: suffix.clone(), stamp, puts, clear, refused: false, tried: Arc::clone(&tried), landed };
    let begun = Arc::<AtomicBool>::default();
    let begins = Arc::clone(&begun);
    let (engine, loaded) = (Arc::clone(inner), Loaded { run: run.clone(), snapshot });
    // In a task of its own: a sender that goes away does not take the turn of the run with it.
    let turn = tokio::spawn(counted(async move {
        let log = Log::new(Arc::clone(&engine), loaded);
        let mut turn = Turn::claim(engine, workflow, log, permit, None).await?;
        turn.bring(brought)?;
        begins.store(true, Ordering::Release);
        turn.take_found(found).await?;
        turn.launch().await
    }));
    if has_landed(lands).await {
        return Ok(Some(suffix));
    }
    let outcome = turn.await;
    // Somebody who waits for the end of the run may rely on this turn.
    inner.tell_end(&run.run, || None);
    if !tried.load(Ordering::Acquire) {
        // Whatever kept the run from taking it keeps nobody from sending.
        let by_code =
            begun.load(Ordering::Acquire) && !matches!(outcome, Ok(Err(Lost::Store(_) | Lost::Unrecordable(_))));
        if by_code {
            lock(&inner.not_at_once).insert(run.of.clone(), inner.clock.boot() + NOT_AGAIN);
        }
        return Ok(None);
    }
    match outcome {
        Ok(Ok(()) | Err(Lost::Taken)) => Ok(None),
        // Nothing of it is there: the signal is sent as any other.
        Ok(Err(Lost::Unrecordable(_))) => Ok(None),
        Ok(Err(Lost::Store(error))) => Err(error),
        Ok(Err(Lost::Lease)) | Err(_) => {
            let what = format!("it took too long to bring signal `{}` to run `{}`", message.name, run.run.id);
            Err(Error::new(ErrorKind::Unavailable, what).hint("it may have arrived: send it again with the same key"))
        }
    }
}

async fn has_landed(mut lands: watch::Receiver<bool>) -> bool {
    lands.wait_for(|landed| *landed).await.is_ok()
}

/// The code of a run that this engine may drive at once and that needs nothing but its signal, with the room for it.
fn may_drive(inner: &Inner, message: &Message, run: &Run, now: &Now) -> Option<(Arc<Workflow>, OwnedSemaphorePermit)> {
    let sees_time = now.uncertainty <= limits::UNCERTAINTY_MAX;
    let is_short = run.points.len() <= POINTS_MAX && run.signals.values().all(|inbox| inbox.taken.len() <= KNOWN_MAX);
    let takes_one = message.waits(run).iter().any(|(_, _, wait)| wait.quorum <= 1);
    let waits = takes_one && run.waits_only(now.at.after(now.uncertainty));
    let may_try = || lock(&inner.not_at_once).get(&run.of).is_none_or(|until| *until <= inner.clock.boot());
    if !sees_time || !is_short || !waits || inner.active(&run.run).is_some() || !may_try() {
        return None;
    }
    let (workflow, permit) = inner.can_drive(&run.of, run.task.as_ref())?;
    // What does not fit the code is looked at with more care.
    let same = run.definition_hash == workflow.definition.hash;
    // Users' code that changes the run's data is called by the owner of the run alone: after a claim of its own.
    if run.waits().any(|(path, _)| workflow.calls_code_at(path)) {
        return None;
    }
    let fits = same || workflow.definition.style == Style::Function && !run.definition_hash.is_empty();
    fits.then_some((workflow, permit))
}

/// What is put with the entry, and where nothing may lie.
fn bring(message: &Message, run: &Run, suffix: &str, signal: &Signal) -> (Vec<(String, Bytes)>, Vec<Clear>) {
    let nothing = |prefix: String, after: String| Clear { prefix, after, known: BTreeSet::new() };
    let mut puts = vec![(message.signal_key(suffix), signal.to_json().into())];
    let mut clear: Vec<Clear> = names_waited_for(run).iter().map(|name| inbox(message, run, name)).collect();
    clear.push(nothing(prefix::controls(&run.run), String::new()));
    // Of a run that ended long ago retention leaves but the last entry: the next after the one that was read may be absent.
    let read = Key::Entry { run: run.run.clone(), seq: run.seq }.to_string();
    clear.push(nothing(prefix::log(&run.run), read));
    if let Some(key) = message.key.as_ref().filter(|_| !is_mutated(Mutation::KeyIgnored)) {
        let (place, facts) = message.key_facts(key, suffix);
        clear.push(nothing(place.clone(), String::new()));
        puts.push((place, facts.into()));
    }
    (puts, clear)
}

/// The part of an inbox that a wait may take from, which must hold nothing but what was taken.
fn inbox(message: &Message, run: &Run, name: &Name) -> Clear {
    let prefix = prefix::inbox(&run.run, name);
    let inbox = run.signals.get(name);
    let after = format!("{prefix}{}", inbox.map(|inbox| inbox.floor.as_str()).unwrap_or_default());
    // The floor may be a signal itself, whose key is longer.
    let known = inbox.into_iter().flat_map(|inbox| inbox.taken.iter().chain([&inbox.floor]));
    let known = known.filter(|suffix| !suffix.is_empty()).map(|suffix| message.key_in_inbox(name, suffix));
    Clear { prefix, after, known: known.collect() }
}

/// What a look into the inboxes would find once the signal is there.
fn found(run: &Run, suffix: &str, signal: Signal, since: Time) -> Found {
    let names = names_waited_for(run).into_iter().map(|name| (name, Seen::default())).collect();
    let mut inboxes = Inboxes { since, names };
    if let Some(seen) = inboxes.names.get_mut(&signal.name) {
        seen.suffixes.insert(suffix.into());
        seen.signals.insert(suffix.into(), Arc::new(signal));
    }
    Found { inboxes, ..Found::default() }
}
