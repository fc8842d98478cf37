//! Stamps: the place of a signal in its inbox, and so the order in which signals are consumed.

use std::time::Duration;

use wigwag_core::{Run, Time, limits, prefix, stamp_of};

use super::message::Message;
use crate::engine_core::{EngineCore, lock};
use crate::error::Result;
use crate::limits::STAMP_AHEAD_MAX;
use crate::pages::Pages;

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
