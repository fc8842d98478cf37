//! Sending: stamps the signal (the stamp is its place in the inbox, and so the order of consumption), writes it into the inbox,
//! rereads the run, and wakes the run if a wait for it is open.
//!
//! On a bucket the wake-up of a wait that was open before the signal was written is put concurrently with the second read: both follow the
//! signal, and neither depends on the other. What if we die here? A wake-up leads to a run whose inbox holds the signal;
//! without one the signal was not acknowledged.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future;
use wigwag_core::{
    Bound, Key, Mode, Name, Order, Run, RunRef, Time, TypeName, deliberate_bug, limits, prefix, stamp_of, suffix,
};
use wigwag_store::{Batch, STAMP};

use super::idempotency::put_with_key;
use super::message::Message;
use super::{SignalState, new_id};
use crate::client::inbox::newest_definition;
use crate::client::{RunHandle, StartCall, control};
use crate::engine_core::{EngineCore, lock, time};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{SLOW_READ_TRIES_MAX, STAMP_AHEAD_MAX};
use crate::log::{self, Loaded};
use crate::pages::Pages;

pub(super) async fn read_or_start(inner: &Arc<EngineCore>, message: &Message) -> Result<Loaded> {
    let handle = RunHandle::new(inner, message.run.clone());
    match handle.read().await {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        read => return read,
    }
    let Some((of, input)) = &message.start else { return Err(handle.not_found()) };
    if let Some(definition) = newest_definition(inner, &Name::new(of)?.into()).await? {
        message.check_declared(inner, &definition)?;
    }
    let start: StartCall = StartCall::new(Arc::clone(inner), of, Ok(input.clone())).id(message.run.id.as_str());
    match start.await {
        Ok(_) => {}
        // Another caller started the run first, with another input: that run is used.
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        Err(error) => return Err(error),
    }
    handle.read().await
}

/// A signal that is stored in the inbox.
#[derive(Debug)]
pub(super) struct StoredSignal {
    /// Last part of its key.
    pub(super) suffix: String,
    pub(super) repeated: bool,
    /// The wait that the signal is bound to.
    pub(super) only: Option<Bound>,
    /// A wake-up was put with it.
    pub(super) hinted: bool,
}

/// Puts the signal, then reads the entries that were appended to the run since.
pub(super) async fn put_signal(
    inner: &Arc<EngineCore>,
    message: &Message,
    run: &mut Run,
    only: Option<Bound>,
    Stamps { read_at, newest }: Stamps,
) -> Result<StoredSignal> {
    let began = inner.clock.boot();
    let now = inner.now().await?;
    if now.uncertainty > limits::UNCERTAINTY_MAX {
        let what = format!("the store's clock is uncertain by {:?}, too much to send signals", now.uncertainty);
        return Err(Error::new(ErrorKind::Unavailable, what).hint("check the clock of this machine, then try again"));
    }
    // The earliest time it can be: a stamp ahead of the store's time would overtake other signals.
    let earliest = if inner.store.traits().atomic { now.at } else { now.at.before(now.uncertainty) };
    let least = newest.map_or(earliest, |newest| earliest.max(newest.after(Duration::from_micros(1))));
    let mut put = match &message.key {
        Some(key) if !deliberate_bug!(KeyIgnored) => put_with_key(inner, message, run, only, key, least).await?,
        _ => put_without_key(inner, message, run, only, least).await?,
    };
    if deliberate_bug!(SenderReadsOnce) {
        return Ok(put);
    }
    let took = inner.clock.boot().saturating_sub(began);
    // With an idempotency key the stamp may come from an earlier attempt; and the clock may have been set since.
    let passed = match (inner.now().await, stamp_of(&put.suffix)) {
        (Ok(after), Some(stamp)) => after.at.after(after.uncertainty).since(stamp),
        _ => Duration::MAX,
    };
    let took = took.max(passed);
    match inner.clock.boot().saturating_sub(read_at) > limits::PUT_MAX && !deliberate_bug!(SlowSenderTrusts) {
        true => *run = read_anew(inner, message).await?,
        false => {
            // A wait was open at the first read, so the run most likely needs a wake-up, which is put during the second read.
            // The signal is already stored, so a worker that follows the wake-up finds it.
            let is_awaited = !message.waits(run).is_empty() && !run.status.is_final() && !put.hinted;
            match is_awaited && !inner.store.traits().atomic && !deliberate_bug!(SignalWithoutHint) {
                true => {
                    let (of, id) = (run.index_type(), run.run.clone());
                    future::try_join(log::catch_up_run(&*inner.store, run), wake(inner, &of, &id)).await?;
                    put.hinted = true;
                }
                false => log::catch_up_run(&*inner.store, run).await?,
            }
        }
    }
    if put.repeated {
        log::make_whole(&*inner.store, run).await?;
    }
    if took > limits::PUT_MAX
        && !deliberate_bug!(NoLateNote)
        && run.taker_of(&put.suffix).is_none()
        && !run.status.is_final()
    {
        // Scans overlap by a limited time: they may have skipped this signal.
        let order = Order::Late { name: message.name.clone(), signal: put.suffix.clone() };
        control::send(inner, run, order).await?;
        log::catch_up_run(&*inner.store, run).await?;
    }
    Ok(put)
}

/// Reads the run from scratch: after that much time, retention may have removed it, and a removed entry looks like a
/// missing one. A slow read may be out of date as well, and is repeated.
async fn read_anew(inner: &Arc<EngineCore>, message: &Message) -> Result<Run> {
    let handle = RunHandle::new(inner, message.run.clone());
    for _ in 0..SLOW_READ_TRIES_MAX {
        let began = inner.clock.boot();
        let run = handle.read().await?.run;
        if inner.clock.boot().saturating_sub(began) <= limits::RETENTION_RECENT / 2 {
            return Ok(run);
        }
    }
    let what = format!("timed out reading run `{}`: the outcome of the signal is unknown", message.run.id);
    Err(Error::new(ErrorKind::Unavailable, what).hint("it may have arrived: send it again with the same key"))
}

async fn put_without_key(
    inner: &Arc<EngineCore>,
    message: &Message,
    run: &Run,
    only: Option<Bound>,
    now: Time,
) -> Result<StoredSignal> {
    let id = new_id();
    let signal = message.to_signal(id.clone(), now, only.clone());
    if !inner.store.traits().atomic {
        let suffix = suffix(least_stamp(inner, message, run, now), &id);
        match inner.store.write(Batch::new().put(message.signal_key(&suffix), signal.to_json())).await {
            Err(error) if deliberate_bug!(AckOnUnknown) && error.kind() == wigwag_store::ErrorKind::Unknown => {}
            outcome => _ = outcome?,
        }
        return Ok(StoredSignal { suffix, repeated: false, only, hinted: false });
    }
    // The store stamps inside the commit, so that signals are ordered by acknowledgement.
    let cursor = run.signals.get(&message.name).and_then(|inbox| stamp_of(&inbox.cursor));
    let key = message.signal_key(&format!("{STAMP}_{id}"));
    let mut batch = Batch::new().put(key, signal.to_json());
    if let Some(cursor) = cursor {
        batch = batch.stamp_from(wigwag_store::Stamp::from_micros(cursor.micros() + 1));
    }
    let hinted = !message.waits(run).is_empty() && !deliberate_bug!(SignalWithoutHint);
    if hinted {
        let (hint, body) = inner.hint(&run.index_type(), &run.run, now);
        batch = batch.put(Key::Due(hint).to_string(), body);
    }
    let receipt = match inner.store.write(batch).await {
        Err(error) if deliberate_bug!(AckOnUnknown) && error.kind() == wigwag_store::ErrorKind::Unknown => {
            wigwag_store::Receipt::default()
        }
        written => written?,
    };
    let stamp = receipt.stamp.map_or(now, time);
    Ok(StoredSignal { suffix: suffix(stamp, &id), repeated: false, only, hinted })
}

/// Puts a wake-up due now.
async fn wake(inner: &EngineCore, of: &TypeName, run: &RunRef) -> Result<()> {
    let now = inner.recent_now().await?;
    let (hint, body) = inner.hint(of, run, now);
    inner.store.write(Batch::new().put(Key::Due(hint).to_string(), body)).await?;
    Ok(())
}

/// Wakes the run if a wait for the signal is open, and returns the state of the signal, by the run as read after the put.
pub(super) async fn settle(
    inner: &Arc<EngineCore>,
    message: &Message,
    run: &Run,
    mode: Mode,
    put: &StoredSignal,
) -> Result<SignalState> {
    if run.taker_of(&put.suffix).is_some() {
        return Ok(SignalState::Waiting);
    }
    if run.status.is_final() {
        return message.check_running(run).map(|()| SignalState::Buffered);
    }
    if put.only.as_ref().is_some_and(|only| !message.is_open(run, only)) {
        return Err(message.not_waiting(run));
    }
    if message.is_superseded(run, mode, &put.suffix) {
        return Ok(SignalState::Superseded);
    }
    if message.waits(run).is_empty() {
        return Ok(SignalState::Buffered);
    }
    if !put.hinted && !deliberate_bug!(SignalWithoutHint) {
        wake(inner, &run.index_type(), &run.run).await?;
    }
    if let Some(handle) = inner.active(&run.run) {
        _ = handle.poke(None);
    }
    Ok(SignalState::Waiting)
}

/// State of the run and clock before a signal is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    /// The run was read at this moment or later, by the clock that counts suspended time.
    pub(super) read_at: Duration,
    /// The newest stamp in the inbox, if it is near the store's time or ahead of it; at least the start of the listing.
    pub(super) newest: Option<Time>,
}

/// The newest stamp in the inbox, where the sender knows the store's time by an estimate only.
///
/// Signals of senders that wait for each other must be consumed in the order of acknowledgement. Each sender stamps by the
/// earliest time it can be, so no stamp is ahead of the store's time; but an estimate may be behind by twice its
/// uncertainty. Every signal acknowledged before is in the inbox, and the next stamp is later than theirs. It is also later
/// than the place where the listing began: the next estimate may be less certain, and earlier signals were not listed.
pub(super) async fn newest_stamp(inner: &EngineCore, message: &Message) -> Result<Option<Time>> {
    if inner.store.traits().atomic {
        return Ok(None);
    }
    let now = inner.now().await?;
    if now.uncertainty.is_zero() {
        return Ok(None);
    }
    let prefix = prefix::inbox(&message.run, &message.name);
    let from = now.at.before(now.uncertainty * 2);
    let mut pages = Pages::after(&*inner.store, &prefix, &format!("{prefix}{from}"));
    let mut newest = None;
    while let Some(entries) = pages.next().await? {
        let stamps = entries.iter().filter_map(|listed| stamp_of(listed.key.rsplit('/').next()?));
        newest = stamps.max().max(newest);
    }
    // A stamp that is further ahead than clocks may differ is ignored.
    let ahead = now.at.after(limits::UNCERTAINTY_MAX * 2);
    Ok(newest.filter(|newest| *newest <= ahead).max(Some(from)))
}

/// Returns the minimum stamp of a new signal: after the run's cursor, and after the last stamp that this process sent.
pub(super) fn least_stamp(inner: &EngineCore, message: &Message, run: &Run, now: Time) -> Time {
    let micro = Duration::from_micros(1);
    let cursor = run.signals.get(&message.name).and_then(|inbox| stamp_of(&inbox.cursor));
    let mut last = lock(&inner.senders.last_stamp);
    let mut stamp = now.max(cursor.map_or(now, |cursor| cursor.after(micro)));
    // A stamp that a cursor far ahead caused, further than clocks differ, does not bind signals to other runs.
    if *last <= now.after(STAMP_AHEAD_MAX) {
        stamp = stamp.max(last.after(micro));
    }
    *last = stamp;
    stamp
}
