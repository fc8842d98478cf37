//! Sending a signal and waiting until it is consumed.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use wigwag_core::{Path, Time};

use super::Receipt;
use super::call::{SentSignal, SignalCall};
use crate::client::inbox::{OpenWait, open_waits};
use crate::client::wait::poll_interval;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{CONSUMED_POLL_INTERVAL_MAX, CONSUMED_POLL_INTERVAL_MIN, NOTIFIED_POLL_INTERVAL};
use crate::log;

/// A signal about to be sent, and followed until a wait has consumed it.
#[derive(Debug)]
#[must_use = "a signal is sent when this is awaited"]
pub struct SignalAndWait {
    call: SignalCall,
    timeout: Duration,
}

/// A signal that was consumed, and the run after that.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Consumed {
    /// The proof that the signal is durable.
    pub receipt: Receipt,
    /// The wait that consumed it.
    pub point: Path,
    /// Time of the consumption.
    pub at: Time,
    /// Status of the run now.
    pub status: wigwag_core::Status,
    /// Open waits of the run now.
    pub next: Vec<OpenWait>,
}

impl SignalAndWait {
    pub(super) fn new(call: SignalCall, timeout: Duration) -> Self {
        Self { call, timeout }
    }
}

impl IntoFuture for SignalAndWait {
    type Output = Result<Consumed>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let clock = Arc::clone(&self.call.inner.clock);
            let (receipt, sent) = self.call.send().await?;
            let (id, timeout) = (sent.run.run.id.clone(), self.timeout);
            let name = sent.message.name.clone();
            tokio::select! {
                biased;
                consumed = follow(sent, receipt) => consumed,
                () = clock.sleep(timeout) => {
                    let what = format!("run `{id}` did not consume signal `{name}` within {timeout:?}");
                    Err(Error::new(ErrorKind::TimedOut, what).hint("the signal is buffered until a wait consumes it"))
                }
            }
        }
        .boxed()
    }
}

async fn follow(sent: SentSignal, receipt: Receipt) -> Result<Consumed> {
    let SentSignal { inner, mut run, message, definition, only } = sent;
    let mut changes = inner.store.changes(&format!("{}/log/", run.run));
    let mut pause = CONSUMED_POLL_INTERVAL_MIN;
    loop {
        log::catch_up_run(&*inner.store, &mut run).await?;
        log::make_whole(&*inner.store, &mut run).await?;
        if let Some((point, at)) = run.taker_of(&receipt.suffix).map(|(point, at)| (point.clone(), at)) {
            let next = open_waits(&run);
            return Ok(Consumed { receipt, point, at, status: run.status, next });
        }
        message.check_running(&run)?;
        if only.as_ref().is_some_and(|only| !message.is_open(&run, only)) {
            return Err(message.not_waiting(&run));
        }
        let mode = run.mode_of(&message.name, definition.as_deref());
        if message.is_superseded(&run, mode, &receipt.suffix) {
            let what = format!("a newer signal `{}` was consumed by run `{}` instead", message.name, run.run.id);
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        let span = poll_interval(inner.store.traits().notifications, NOTIFIED_POLL_INTERVAL, pause);
        pause = (pause * 3 / 2).min(CONSUMED_POLL_INTERVAL_MAX);
        let clock = Arc::clone(&inner.clock);
        tokio::select! {
            biased;
            _ = changes.next() => {}
            () = clock.sleep(span) => {}
        }
    }
}
