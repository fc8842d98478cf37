//! A lease that is prepared before the claim it belongs to, where a batch lands in parts: its wake-up is put while the
//! check reads the data for the claim, and is in the store when the entry follows.
//!
//! What if we die here? The wake-up of a lease that was never claimed leads to one more check of the run.

use std::time::Duration;

use bytes::Bytes;
use wigwag_core::{Key, Run, Time, deliberate_bug};

use crate::engine_core::EngineCore;
use crate::error::Result;

/// A lease about to be taken.
#[derive(Debug)]
pub(crate) struct NewLease {
    /// Key of the wake-up at its end.
    pub(super) hint: String,
    pub(super) body: Bytes,
    pub(super) until: Time,
    /// When it begins, by the clock that counts suspended time.
    pub(super) boot: Duration,
    /// Possible error of the store's time by which the lease ends.
    pub(super) uncertainty: Duration,
    pub(super) is_put: bool,
}

impl NewLease {
    pub(super) async fn new(inner: &EngineCore, run: &Run) -> Result<Self> {
        let boot = inner.clock.boot();
        let now = inner.now().await?;
        let until = now.at.after(inner.settings.lease);
        let (hint, body) = inner.lease_hint(&run.index_type(), &run.run, until);
        let hint = Key::Due(hint).to_string();
        Ok(Self { hint, body, until, boot, uncertainty: now.uncertainty, is_put: false })
    }

    /// Prepares a lease and puts its wake-up. Returns `None` where the wake-up lands with the entry.
    pub(crate) async fn prepare(inner: &EngineCore, run: &Run) -> Result<Option<Self>> {
        if inner.store.traits().atomic {
            return Ok(None);
        }
        let mut lease = Self::new(inner, run).await?;
        if !deliberate_bug!(ClaimWithoutHint) {
            inner.put_all([(lease.hint.clone(), lease.body.clone())]).await?;
        }
        lease.is_put = true;
        Ok(Some(lease))
    }

    /// The run is not claimed: the wake-up goes.
    pub(crate) async fn abandon(inner: &EngineCore, lease: Option<Self>) -> Result<()> {
        inner.delete_all(lease.map(|lease| lease.hint)).await
    }
}
