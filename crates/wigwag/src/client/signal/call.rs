//! A signal call: the builder that clients use, and the order in which a signal is sent.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, BoxFuture, FutureExt as _};
use serde::Serialize;
use wigwag_core::{Bound, Payload, Refusal, Run, RunRef, Source};

use super::consume::SignalAndWait;
use super::idempotency::first_receipt;
use super::message::Message;
use super::send::{Stamps, newest_stamp};
use super::send::{put_signal, read_or_start, settle};
use super::{Receipt, id_in, inline};
use crate::client::inbox::definition_at_hand;
use crate::client::names;
use crate::engine_core::EngineCore;
use crate::error::Result;
use crate::log::{self, Loaded};
use crate::spans;

/// A signal about to be sent.
#[derive(Debug)]
#[must_use = "a signal is sent when this is awaited"]
pub struct SignalCall {
    pub(super) inner: Arc<EngineCore>,
    pub(super) run: Result<RunRef, Refusal>,
    pub(super) name: String,
    pub(super) payload: Result<Payload, Refusal>,
    pub(super) key: Option<String>,
    pub(super) strict: bool,
    pub(super) point: Option<String>,
    pub(super) start: Option<(String, Result<Payload, Refusal>)>,
    pub(super) source: Source,
}

impl SignalCall {
    pub(super) fn new(
        inner: Arc<EngineCore>,
        run: Result<RunRef, Refusal>,
        name: &str,
        payload: Result<Payload, Refusal>,
    ) -> Self {
        let (name, source) = (name.to_owned(), Source::new(None, "client"));
        Self { inner, run, name, payload, key: None, strict: false, point: None, start: None, source }
    }

    /// Sets an idempotency key: however often the call is repeated, one signal arrives. Another payload under the same
    /// key is rejected. Keys of different senders are different keys.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Rejects the signal unless a wait for it is open, and lets no other wait consume it.
    pub fn only_if_waiting(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Addresses the wait at this point, where several wait for the same name.
    pub fn point(mut self, point: impl Into<String>) -> Self {
        self.point = Some(point.into());
        self
    }

    /// Starts the run first if it does not exist.
    pub fn start_if_absent<I: Serialize + ?Sized>(mut self, of: &str, input: &I) -> Self {
        self.start = Some((of.to_owned(), Payload::of(input)));
        self
    }

    /// Names the sender: a person or a system. The name is recorded and shown, and a quorum counts it. It is a claim: a wait
    /// that is [`crate::Wait::authenticated`] does not consume such a signal.
    pub fn by(mut self, sender: impl Into<String>) -> Self {
        (self.source.by, self.source.authenticated) = (Some(sender.into()), false);
        self
    }

    /// Names a sender whom the calling program has authenticated.
    pub fn authenticated_as(mut self, sender: impl Into<String>) -> Self {
        (self.source.by, self.source.authenticated) = (Some(sender.into()), true);
        self
    }

    /// Sets the channel of the signal; `client` by default.
    pub fn via(mut self, way: impl Into<String>) -> Self {
        self.source.via = Some(way.into());
        self
    }

    /// Resolves when a wait has consumed the signal, with that wait and the waits that are open then.
    pub fn and_wait(self, timeout: Duration) -> SignalAndWait {
        SignalAndWait::new(self, timeout)
    }

    pub(super) async fn send(self) -> Result<(Receipt, SentSignal)> {
        let span = spans::signal(self.run.as_ref().ok(), &self.name);
        spans::watched(span, self.put()).await
    }

    async fn put(self) -> Result<(Receipt, SentSignal)> {
        let inner = Arc::clone(&self.inner);
        let message = Message::of(self)?;
        let began = inner.clock.boot();
        // The inbox is listed after this call began, so that it shows every signal acknowledged before; and concurrently
        // with reading the run, so that it adds no delay.
        let read = future::try_join(read_or_start(&inner, &message), newest_stamp(&inner, &message));
        let (Loaded { mut run, snapshot, .. }, newest) = read.await?;
        if message.point.is_some() {
            log::make_whole(&*inner.store, &mut run).await?;
        }
        let definition = definition_at_hand(&inner, &run).await?;
        let now = inner.recent_now().await?;
        let only = match message.check(&inner, &run, definition.as_deref(), now) {
            Ok(only) => only,
            // A signal that was consumed under this key is acknowledged again.
            Err(rejected) => {
                let receipt = first_receipt(&inner, &message, &mut run).await?.ok_or(rejected)?;
                return Ok((receipt, SentSignal { inner, run, message, definition, only: None }));
            }
        };
        if let Some(suffix) = inline::deliver_inline(&inner, &message, &run, snapshot, only.as_ref()).await? {
            let receipt = Receipt::of_consumed(suffix, false);
            return Ok((receipt, SentSignal { inner, run, message, definition, only }));
        }
        let warning = match message.sender_warning(&run, definition.as_deref()) {
            None => names::of_signal(&inner, &message.name, &run, definition.as_deref()).await,
            warning => warning,
        };
        let put = put_signal(&inner, &message, &mut run, only, Stamps { read_at: began, newest }).await?;
        let mode = run.mode_of(&message.name, definition.as_deref());
        let state = settle(&inner, &message, &run, mode, &put).await?;
        let receipt = Receipt { id: id_in(&put.suffix), suffix: put.suffix, state, repeated: put.repeated, warning };
        Ok((receipt, SentSignal { inner, run, message, definition, only: put.only }))
    }
}

impl IntoFuture for SignalCall {
    type Output = Result<Receipt>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { Ok(self.send().await?.0) }.boxed()
    }
}

/// A signal that was sent, and the run as it was read then.
pub(super) struct SentSignal {
    pub(super) inner: Arc<EngineCore>,
    pub(super) run: Run,
    pub(super) message: Message,
    pub(super) definition: Option<Arc<wigwag_core::Definition>>,
    pub(super) only: Option<Bound>,
}
