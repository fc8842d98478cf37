//! Inline delivery: a signal that is consumed by the very commit that stores it.
//!
//! Where the store is atomic, this engine may drive the run, and the run waits for nothing but signals, its next turn
//! begins before the signal is stored: the run is claimed, its code consumes the signal, and one commit holds the signal, the
//! claim and everything that followed, up to the first step. Otherwise that takes two commits and a wake-up between them.
//!
//! Holds: it is the signal that the run would have consumed next. The commit is rejected if an entry was appended since the
//! run was read, if another signal is in the inbox of an open wait, if the idempotency key is known, or if a control object
//! exists. Then nothing of it is stored, and the signal is sent in the normal way.
//!
//! What if we die here? Before the commit nothing happened: code may have seen a signal that was never stored, but neither
//! step nor child starts before the commit. After it the signal is stored and consumed, and the wake-up at the end of
//! the lease guards the run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};
use wigwag_core::deliberate_bug;
use wigwag_core::{Bound, Inboxes, Key, Name, Run, Seen, Signal, Style, Time, limits, prefix, suffix};
use wigwag_store::{Clear, Version};

use super::message::Message;
use super::new_id;
use super::send::least_stamp;
use crate::engine_core::{EngineCore, Now, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{INLINE_BACKOFF, INLINE_POINTS_MAX, INLINE_RECENT_SIGNALS_MAX};
use crate::log::{CommitError, Loaded, Log};
use crate::tally::counted;
use crate::turn::{Brought, Found, Turn, names_waited_for};
use crate::workflow::Workflow;

/// Delivers the signal inline if the run can consume it now; returns the last part of its key then.
pub(super) async fn deliver_inline(
    inner: &Arc<EngineCore>,
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
    let (engine, loaded) = (Arc::clone(inner), Loaded { run: run.clone(), snapshot, snapshot_seq: 0 });
    // A separate task: dropping the call does not end the turn of the run.
    let turn = tokio::spawn(counted(async move {
        let log = Log::new(Arc::clone(&engine), loaded);
        let mut turn = Turn::claim(engine, workflow, log, permit, None, None).await?;
        turn.bring(brought)?;
        begins.store(true, Ordering::Release);
        turn.take_found(found).await?;
        turn.launch().await
    }));
    if has_landed(lands).await {
        return Ok(Some(suffix));
    }
    let outcome = turn.await;
    // A caller that waits for the end of the run may rely on this turn.
    inner.tell_end(&run.run, || None);
    if !tried.load(Ordering::Acquire) {
        // A failed inline delivery does not prevent sending.
        let by_code = begun.load(Ordering::Acquire)
            && !matches!(outcome, Ok(Err(CommitError::Store(_) | CommitError::Unrecordable(_))));
        if by_code {
            lock(&inner.senders.inline_backoff).insert(run.of.clone(), inner.clock.boot() + INLINE_BACKOFF);
        }
        return Ok(None);
    }
    match outcome {
        Ok(Ok(()) | Err(CommitError::Taken)) => Ok(None),
        // Nothing was stored: the signal is sent in the normal way.
        Ok(Err(CommitError::Unrecordable(_))) => Ok(None),
        Ok(Err(CommitError::Store(error))) => Err(error),
        Ok(Err(CommitError::Lease)) | Err(_) => {
            let what = format!("timed out delivering signal `{}` to run `{}`", message.name, run.run.id);
            Err(Error::new(ErrorKind::Unavailable, what).hint("it may have arrived: send it again with the same key"))
        }
    }
}

async fn has_landed(mut lands: watch::Receiver<bool>) -> bool {
    lands.wait_for(|landed| *landed).await.is_ok()
}

/// Returns the code of the run and a permit, if this engine may drive the run now and the run waits for nothing but signals.
fn may_drive(
    inner: &EngineCore,
    message: &Message,
    run: &Run,
    now: &Now,
) -> Option<(Arc<Workflow>, OwnedSemaphorePermit)> {
    let sees_time = now.uncertainty <= limits::UNCERTAINTY_MAX;
    let is_short = run.points.len() <= INLINE_POINTS_MAX
        && run.signals.values().all(|inbox| inbox.taken.len() <= INLINE_RECENT_SIGNALS_MAX);
    let takes_one = message.waits(run).iter().any(|(_, _, wait)| wait.quorum <= 1);
    let waits = takes_one && run.waits_only(now.at.after(now.uncertainty));
    let may_try = || lock(&inner.senders.inline_backoff).get(&run.of).is_none_or(|until| *until <= inner.clock.boot());
    if !sees_time || !is_short || !waits || inner.active(&run.run).is_some() || !may_try() {
        return None;
    }
    let (workflow, permit) = inner.can_drive(&run.of, run.task.as_ref())?;
    // Inline delivery needs code that fits the run.
    let same = run.definition_hash == workflow.definition.hash;
    // User code that changes the run's data is called only by the owner of the run, after a durable claim.
    if run.waits().any(|(path, _)| workflow.calls_code_at(path)) {
        return None;
    }
    let fits = same || workflow.definition.style == Style::Function && !run.definition_hash.is_empty();
    fits.then_some((workflow, permit))
}

/// Returns the objects to put with the entry, and the key ranges that must be clear.
fn bring(message: &Message, run: &Run, suffix: &str, signal: &Signal) -> (Vec<(String, Bytes)>, Vec<Clear>) {
    let nothing = |prefix: String, after: String| Clear { prefix, after, known: BTreeSet::new() };
    let mut puts = vec![(message.signal_key(suffix), signal.to_json().into())];
    let mut clear: Vec<Clear> = names_waited_for(run).iter().map(|name| inbox(message, run, name)).collect();
    clear.push(nothing(prefix::controls(&run.run), String::new()));
    // Retention leaves only the last entry of a run that ended long ago: the entry after the one read may be absent.
    let read = Key::Entry { run: run.run.clone(), seq: run.seq }.to_string();
    clear.push(nothing(prefix::log(&run.run), read));
    if let Some(key) = message.key.as_ref().filter(|_| !deliberate_bug!(KeyIgnored)) {
        let (place, facts) = message.key_facts(key, suffix);
        clear.push(nothing(place.clone(), String::new()));
        puts.push((place, facts.into()));
    }
    (puts, clear)
}

/// Returns the part of an inbox that waits consume from, which must hold consumed signals only.
fn inbox(message: &Message, run: &Run, name: &Name) -> Clear {
    let prefix = prefix::inbox(&run.run, name);
    let inbox = run.signals.get(name);
    let after = format!("{prefix}{}", inbox.map(|inbox| inbox.floor.as_str()).unwrap_or_default());
    // The floor may itself be a signal, whose key is longer.
    let known = inbox.into_iter().flat_map(|inbox| inbox.taken.iter().chain([&inbox.floor]));
    let known = known.filter(|suffix| !suffix.is_empty()).map(|suffix| message.key_in_inbox(name, suffix));
    Clear { prefix, after, known: known.collect() }
}

/// Returns what a scan of the inboxes would find once the signal is stored.
fn found(run: &Run, suffix: &str, signal: Signal, since: Time) -> Found {
    let names = names_waited_for(run).into_iter().map(|name| (name, Seen::default())).collect();
    let mut inboxes = Inboxes { since, names };
    if let Some(seen) = inboxes.names.get_mut(&signal.name) {
        seen.suffixes.insert(suffix.into());
        seen.signals.insert(suffix.into(), Arc::new(signal));
    }
    Found { inboxes, ..Found::default() }
}
