//! Sending signals: a signal is an object in the run's inbox, acknowledged when it is durable and an open wait will find it.
//!
//! The order ([`call`]): the run is read and the signal validated ([`message`]); the signal is put ([`send`]); the entries
//! appended since are read; if a wait for it is open, a wake-up is put; then the signal is acknowledged. Where batches are
//! atomic, the wake-up is put with the signal; or the run consumes the signal by inline delivery ([`inline`]).
//!
//! What if we die here? Before the put nothing happened. Between the put and the acknowledgement the signal is stored as if
//! it had been acknowledged, and is found by the next check of the run. With an idempotency key the sender's repeat finds
//! what the first attempt stored and continues from there.

mod call;
mod consume;
mod idempotency;
mod inline;
mod message;
mod send;

use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use wigwag_core::{Payload, RunId, RunRef};

pub use self::call::SignalCall;
pub use self::consume::{Consumed, SignalAndWait};
pub(crate) use self::idempotency::KeyFacts;
pub(crate) use self::message::signal_name;
use super::{Client, RunHandle};
use crate::error::Result;
use crate::keys::SignalKey;
use crate::limits::SIGNALS_CONCURRENT;

impl Client {
    /// Sends a signal to a workflow run: a named JSON message for a wait that is open, or will be.
    ///
    /// The call resolves when the signal is durable: from then on it is never lost. The receipt says whether a wait
    /// was open, or the signal is kept for a later wait.
    ///
    /// ```
    /// # use wigwag::testing::Kit;
    /// # use wigwag::{Ctx, Failure};
    /// # async fn order(ctx: Ctx, _: ()) -> Result<bool, Failure> { ctx.wait::<bool>("approval").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wigwag::Error> {
    /// # let kit = Kit::start(|engine| engine.function("order", 1, order)).await?;
    /// # let client = kit.client();
    /// let run = client.start("order", &()).id("order-7").await?;
    /// client.signal("order-7", "approval", &true).key("click-1").by("ada").await?;
    /// assert!(run.result::<bool>().await?);
    /// # Ok(()) }
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn signal<P: Serialize + ?Sized>(
        &self,
        run: impl AsRef<str>,
        name: impl SignalKey<P>,
        payload: &P,
    ) -> SignalCall {
        let run = RunId::new(run).map(RunRef::workflow);
        SignalCall::new(Arc::clone(&self.inner), run, name.name(), Payload::of(payload))
    }

    /// Sends any number of signals concurrently. Returns one result for each, in order; an invalid signal stops no other.
    pub async fn signal_many(&self, calls: impl IntoIterator<Item = SignalCall>) -> Vec<Result<Receipt>> {
        let calls: Vec<BoxFuture<'static, Result<Receipt>>> = calls.into_iter().map(IntoFuture::into_future).collect();
        stream::iter(calls).buffered(SIGNALS_CONCURRENT).collect().await
    }
}

impl RunHandle {
    /// Sends the run a signal; see [`Client::signal`].
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn signal<P: Serialize + ?Sized>(&self, name: impl SignalKey<P>, payload: &P) -> SignalCall {
        SignalCall::new(Arc::clone(&self.inner), Ok(self.run.clone()), name.name(), Payload::of(payload))
    }
}

/// State of a signal when it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SignalState {
    /// A wait for it is open, or has just consumed it.
    Waiting,
    /// It is buffered for a later wait.
    Buffered,
    /// A newer signal was consumed in between, and only the newest counts.
    Superseded,
}

/// The proof that a signal is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Receipt {
    /// The signal's id.
    pub id: String,
    /// Last part of its key, which orders the inbox.
    pub suffix: String,
    /// Its state when it was acknowledged.
    pub state: SignalState,
    /// The signal already existed, sent under the same idempotency key.
    pub repeated: bool,
    /// Why the signal is likely to stay unconsumed, with the names that are known: no step of the run's graph waits for a
    /// signal of this name, or no worker has registered the run's workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl Receipt {
    fn of_consumed(suffix: String, repeated: bool) -> Self {
        Self { id: id_in(&suffix), suffix, state: SignalState::Waiting, repeated, warning: None }
    }
}

/// Returns the id of a signal from the last part of its key.
fn id_in(suffix: &str) -> String {
    suffix.split_once('_').map(|(_, id)| id.to_owned()).unwrap_or_default()
}

fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}
