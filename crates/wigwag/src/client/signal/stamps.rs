//! Stamps: the place of a signal in its inbox, and so the order in which signals are consumed.

use std::time::Duration;

use wigwag_core::{Run, Time, limits, prefix, stamp_of};

use super::Message;
use crate::error::Result;
use crate::inner::{Inner, lock};
use crate::pages::Pages;

/// What was known before a signal is put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    /// The run was read at this moment or later, by the clock that counts suspended time.
    pub(super) read_at: Duration,
    /// The newest stamp in the inbox, if it is near the store's time or ahead of it.
    pub(super) newest: Option<Time>,
}

/// The newest stamp in the inbox, where the sender knows the store's time by an estimate only.
///
/// Senders that wait for each other must be heard in the order in which they were acknowledged. Each stamps by the
/// earliest time that it may be, so no stamp is ahead of the store's time; but an estimate may be behind by twice its
/// uncertainty. What was acknowledged before lies in the inbox, and the next stamp goes behind it.
pub(super) async fn newest_stamp(inner: &Inner, message: &Message) -> Result<Option<Time>> {
    if inner.store.traits().atomic {
        return Ok(None);
    }
    let now = inner.now().await?;
    if now.uncertainty.is_zero() {
        return Ok(None);
    }
    let prefix = prefix::inbox(&message.run, &message.name);
    let mut pages = Pages::after(&*inner.store, &prefix, &format!("{prefix}{}", now.at.before(now.uncertainty * 2)));
    let mut newest = None;
    while let Some(entries) = pages.next().await? {
        let stamps = entries.iter().filter_map(|listed| stamp_of(listed.key.rsplit('/').next()?));
        newest = stamps.max().max(newest);
    }
    // One that is further ahead than clocks may be apart is no measure.
    let ahead = now.at.after(limits::UNCERTAINTY_MAX * 2);
    Ok(newest.filter(|newest| *newest <= ahead))
}

/// The least stamp that a new signal may have: behind what was read, and behind what this process sent.
pub(super) fn least_stamp(inner: &Inner, message: &Message, run: &Run, now: Time) -> Time {
    let micro = Duration::from_micros(1);
    let cursor = run.signals.get(&message.name).and_then(|inbox| stamp_of(&inbox.cursor));
    let mut last = lock(&inner.last_sent);
    let mut stamp = now.max(cursor.map_or(now, |cursor| cursor.after(micro)));
    // One that a cursor far ahead led to, further than clocks are apart, is no measure for other runs.
    if *last <= now.after(Duration::from_secs(60)) {
        stamp = stamp.max(last.after(micro));
    }
    *last = stamp;
    stamp
}
