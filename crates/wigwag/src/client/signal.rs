//! Sending signals: an object in the run's inbox, acknowledged when it is durable and whoever waits for it will look.
//!
//! The order: the run is read; the signal is put; what was added to the run since is read; if a wait for it is open, a
//! hint is put; then the sender is told. Where a batch is atomic the hint of a run that waits goes with the signal; or the
//! run takes it with the commit that brings it ([`at_once`]).
//!
//! What if we die here? Before the signal is put: nothing happened. After it, and before the sender is told: the signal
//! is there, as if it had been acknowledged, and is found when the run is looked at next. With an idempotency key the
//! sender's repeat finds what the first try left, and goes on from there.

mod at_once;
mod senders;
mod stamps;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{
    Bound, Key, Mode, Name, Order, Path, Payload, Point, Refusal, Run, RunId, RunRef, Signal, Source, Time, Wait,
    is_suffix, limits, sha256_hex, stamp_of, suffix,
};
use wigwag_store::{Batch, STAMP};

use self::stamps::{Stamps, least_stamp, newest_stamp};
use super::inbox::{OpenWait, definition_at_hand, newest_definition, open_waits};
use super::{Client, RunHandle, StartCall, control, names};
use crate::error::{Error, ErrorKind, Result};
use crate::inner::{Inner, time};
use crate::log::{self, Loaded};
use crate::spans;

/// So many signals of [`Client::signal_many`] are on their way at once.
const SEND_AT_ONCE: usize = 64;

impl Client {
    /// Sends a signal to a workflow run: a named JSON message that it waits for, or will.
    ///
    /// Awaited, it answers when the signal is durable: from then on it is never lost. The receipt says whether a wait
    /// was open or it is kept for one to come.
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
    pub fn signal<P: Serialize + ?Sized>(&self, run: impl AsRef<str>, name: &str, payload: &P) -> SignalCall {
        let run = RunId::new(run).map(RunRef::workflow);
        SignalCall::new(Arc::clone(&self.inner), run, name, Payload::of(payload))
    }

    /// Sends any number of signals, several at once. There is one answer for each, in order; a bad one stops none.
    pub async fn signal_many(&self, calls: impl IntoIterator<Item = SignalCall>) -> Vec<Result<Receipt>> {
        let calls: Vec<BoxFuture<'static, Result<Receipt>>> = calls.into_iter().map(IntoFuture::into_future).collect();
        stream::iter(calls).buffered(SEND_AT_ONCE).collect().await
    }
}

impl RunHandle {
    /// Sends it a signal; see [`Client::signal`].
    pub fn signal<P: Serialize + ?Sized>(&self, name: &str, payload: &P) -> SignalCall {
        SignalCall::new(Arc::clone(&self.inner), Ok(self.run.clone()), name, Payload::of(payload))
    }
}

/// What became of a signal when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SignalState {
    /// A wait for it is open, or has just taken it.
    Waiting,
    /// It is kept for a wait to come.
    Buffered,
    /// A newer one has been taken meanwhile, and only the newest counts.
    Superseded,
}

/// The proof that a signal is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Receipt {
    /// The signal's id.
    pub id: String,
    /// The last part of its key: its place in the inbox.
    pub suffix: String,
    /// What became of it.
    pub state: SignalState,
    /// It was there already, sent under the same idempotency key.
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

/// A signal about to be sent.
#[derive(Debug)]
#[must_use = "a signal is sent when this is awaited"]
pub struct SignalCall {
    inner: Arc<Inner>,
    run: Result<RunRef, Refusal>,
    name: String,
    payload: Result<Payload, Refusal>,
    key: Option<String>,
    strict: bool,
    point: Option<String>,
    start: Option<(String, Result<Payload, Refusal>)>,
    source: Source,
}

impl SignalCall {
    fn new(inner: Arc<Inner>, run: Result<RunRef, Refusal>, name: &str, payload: Result<Payload, Refusal>) -> Self {
        let (name, source) = (name.to_owned(), Source::new(None, "client"));
        Self { inner, run, name, payload, key: None, strict: false, point: None, start: None, source }
    }

    /// An idempotency key: however often it is repeated, whenever, one signal arrives. Another payload under the same
    /// key is refused. Keys of different senders are different keys.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Refuses to send unless a wait for it is open, and lets no other wait take it.
    pub fn only_if_waiting(mut self) -> Self {
        self.strict = true;
        self
    }

    /// For the wait at this point, where several wait for the same name.
    pub fn point(mut self, point: impl Into<String>) -> Self {
        self.point = Some(point.into());
        self
    }

    /// Starts the run first if there is none.
    pub fn start_if_absent<I: Serialize + ?Sized>(mut self, of: &str, input: &I) -> Self {
        self.start = Some((of.to_owned(), Payload::of(input)));
        self
    }

    /// Who sends it: a person or a system. It is kept and shown, and is what a quorum counts. It is a claim: a wait that
    /// is [`crate::Wait::authenticated`] does not take it.
    pub fn by(mut self, sender: impl Into<String>) -> Self {
        (self.source.by, self.source.authenticated) = (Some(sender.into()), false);
        self
    }

    /// Who sends it, for a program that has verified that.
    pub fn authenticated_as(mut self, sender: impl Into<String>) -> Self {
        (self.source.by, self.source.authenticated) = (Some(sender.into()), true);
        self
    }

    /// By what way it came; `client` unless said otherwise.
    pub fn via(mut self, way: impl Into<String>) -> Self {
        self.source.via = Some(way.into());
        self
    }

    /// Answers only when a wait has taken it, and says which, and what the run waits for next.
    pub fn and_wait(self, timeout: Duration) -> SignalAndWait {
        SignalAndWait { call: self, timeout }
    }

    async fn send(self) -> Result<(Receipt, Sent)> {
        let span = spans::signal(self.run.as_ref().ok(), &self.name);
        spans::watched(span, self.put()).await
    }

    async fn put(self) -> Result<(Receipt, Sent)> {
        let inner = Arc::clone(&self.inner);
        let message = Message::of(self)?;
        let began = inner.clock.boot();
        // The inbox is listed after this call began, so that it shows what was acknowledged before; and beside the run,
        // so that it takes no longer.
        let read = future::try_join(read_or_start(&inner, &message), newest_stamp(&inner, &message));
        let (Loaded { mut run, snapshot }, newest) = read.await?;
        if message.point.is_some() {
            log::make_whole(&*inner.store, &mut run).await?;
        }
        let definition = definition_at_hand(&inner, &run).await?;
        let now = inner.recent_now().await?;
        let only = match message.check(&inner, &run, definition.as_deref(), now) {
            Ok(only) => only,
            // What was taken under this key before is answered as it was then.
            Err(refused) => {
                let receipt = first_receipt(&inner, &message, &mut run).await?.ok_or(refused)?;
                return Ok((receipt, Sent { inner, run, message, definition, only: None }));
            }
        };
        if let Some(suffix) = at_once::take_at_once(&inner, &message, &run, snapshot, only.as_ref()).await? {
            let receipt = Receipt::of_consumed(suffix, false);
            return Ok((receipt, Sent { inner, run, message, definition, only }));
        }
        let warning = match message.sender_warning(&run, definition.as_deref()) {
            None => names::of_signal(&inner, &message.name, &run, definition.as_deref()).await,
            warning => warning,
        };
        let put = put_signal(&inner, &message, &mut run, only, Stamps { read_at: began, newest }).await?;
        let mode = run.mode_of(&message.name, definition.as_deref());
        let state = settle(&inner, &message, &run, mode, &put).await?;
        let receipt = Receipt { id: id_in(&put.suffix), suffix: put.suffix, state, repeated: put.repeated, warning };
        Ok((receipt, Sent { inner, run, message, definition, only: put.only }))
    }
}

impl IntoFuture for SignalCall {
    type Output = Result<Receipt>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { Ok(self.send().await?.0) }.boxed()
    }
}

/// A signal that was sent, and the run as it was then.
struct Sent {
    inner: Arc<Inner>,
    run: Run,
    message: Message,
    definition: Option<Arc<wigwag_core::Definition>>,
    only: Option<Bound>,
}

/// What is sent, checked as far as it can be by itself.
#[derive(Debug)]
struct Message {
    run: RunRef,
    name: Name,
    payload: Payload,
    key: Option<String>,
    strict: bool,
    point: Option<Path>,
    start: Option<(String, Payload)>,
    source: Source,
}

impl Message {
    fn of(call: SignalCall) -> Result<Self> {
        let run = call.run?;
        let name = signal_name(&call.name)?;
        let too_large = |refusal: Refusal| {
            Error::new(ErrorKind::InvalidPayload, refusal.to_string())
                .hint("put the data elsewhere, and send where it is")
        };
        let payload = call.payload.map_err(too_large)?;
        let (by, via) = (&call.source.by, &call.source.via);
        for (what, text) in [("a sender", by), ("a channel", via), ("an idempotency key", &call.key)] {
            let bytes = text.as_ref().map_or(1, String::len);
            if bytes == 0 || bytes > limits::SENDER_BYTES_MAX {
                let max = limits::SENDER_BYTES_MAX;
                return Err(Error::invalid(format!("{what} has 1 to {max} bytes, got: {bytes}")));
            }
        }
        let point = call.point.map(Path::new).transpose()?;
        let start = call.start.map(|(of, input)| Ok::<_, Refusal>((of, input?))).transpose()?;
        Ok(Self { run, name, payload, key: call.key, strict: call.strict, point, start, source: call.source })
    }

    /// The open waits that it may be for, the earliest opened first.
    fn waits<'a>(&self, run: &'a Run) -> Vec<(&'a Path, &'a Point, &'a Wait)> {
        let meant = |path: &Path| self.point.as_ref().is_none_or(|point| point == path);
        run.waits_in_order().into_iter().filter(|(path, _, wait)| wait.name == self.name && meant(path)).collect()
    }

    /// Refuses what must not be sent; gives the wait that it is bound to.
    fn check(
        &self,
        inner: &Inner,
        run: &Run,
        definition: Option<&wigwag_core::Definition>,
        now: Time,
    ) -> Result<Option<Bound>> {
        self.check_running(run)?;
        if self.strict {
            names::check_signal(&self.name, run, definition)?;
        }
        self.check_point(run, definition, now)?;
        self.check_payload(inner, run, definition)?;
        self.check_sender(run, definition)?;
        let fits = |schema: &serde_json::Value| inner.schemas.check(schema, &self.payload).is_ok();
        self.bound(run, now, fits)
    }

    fn check_running(&self, run: &Run) -> Result<()> {
        match run.status.is_final() {
            true => Err(Error::new(
                ErrorKind::NotRunning,
                format!("run `{}` has already finished: `{}`", run.run.id, run.status),
            )
            .hint("a finished run takes no signals; `start` another")),
            false => Ok(()),
        }
    }

    /// A point must be a wait that is open, or one that the graph will come to.
    fn check_point(&self, run: &Run, definition: Option<&wigwag_core::Definition>, now: Time) -> Result<()> {
        let Some(point) = &self.point else { return Ok(()) };
        let to_come = definition.and_then(|definition| definition.step(point)).is_some_and(|node| {
            node.signal.as_ref().is_some_and(|signal| signal.name == self.name) && !run.points.contains_key(point)
        });
        // One whose time is over takes nothing more.
        let open = |(_, point, _): &(&Path, &Point, &Wait)| point.until.is_none_or(|until| until >= now);
        if to_come || self.waits(run).iter().any(open) {
            return Ok(());
        }
        let open = run.waits_in_order().into_iter().filter(|(_, _, wait)| wait.name == self.name);
        let open: Vec<String> = open.map(|(path, ..)| format!("`{path}`")).collect();
        let open = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
        let what = format!("run `{}` does not wait for `{}` at `{point}`; it waits at: {open}", run.run.id, self.name);
        Err(Error::new(ErrorKind::UnknownPoint, what)
            .hint("leave out the point to reach the wait that was opened first"))
    }

    /// The payload must look as the definition says, if it says anything.
    fn check_declared(&self, inner: &Inner, definition: &wigwag_core::Definition) -> Result<()> {
        match definition.signal(&self.name).and_then(|signal| signal.schema.as_ref()) {
            Some(schema) => self.check_schemas(inner, &[schema]),
            None => Ok(()),
        }
    }

    /// The payload must look as one of the open waits wants it; if none is open, as the definition says.
    ///
    /// A wait keeps the schema that it was opened with: whoever waits has recorded it, and workers go by it too.
    fn check_payload(&self, inner: &Inner, run: &Run, definition: Option<&wigwag_core::Definition>) -> Result<()> {
        let declared = definition.and_then(|definition| definition.signal(&self.name)?.schema.as_ref());
        let open = self.waits(run);
        let schemas: Vec<&serde_json::Value> = match open.is_empty() {
            true => declared.into_iter().collect(),
            // One that takes anything takes this.
            false if open.iter().any(|(_, _, wait)| wait.schema.is_none()) => Vec::new(),
            false => open.iter().filter_map(|(_, _, wait)| wait.schema.as_ref()).collect(),
        };
        self.check_schemas(inner, &schemas)
    }

    /// The payload must fit one of these, if there are any.
    fn check_schemas(&self, inner: &Inner, schemas: &[&serde_json::Value]) -> Result<()> {
        let mut misfit = None;
        for schema in schemas {
            match inner.schemas.check(schema, &self.payload) {
                Ok(()) => return Ok(()),
                Err(found) => _ = misfit.get_or_insert((found, schema)),
            }
        }
        let Some((misfit, schema)) = misfit else { return Ok(()) };
        let what = format!("the payload does not fit signal `{}` {misfit}", self.name);
        let schema: String = schema.to_string().chars().take(300).collect();
        Err(Error::new(ErrorKind::InvalidPayload, what).hint(format!("want: {schema}")))
    }

    /// The wait that a strict signal is bound to.
    fn bound(&self, run: &Run, now: Time, fits: impl Fn(&serde_json::Value) -> bool) -> Result<Option<Bound>> {
        if !self.strict {
            return Ok(None);
        }
        // One whose time is over, or that does not take such a payload, will not take it.
        let takes = |(_, point, wait): &&(&Path, &Point, &Wait)| {
            let is_accepted = wait.rejects_sender(&self.source).is_none();
            is_accepted && point.until.is_none_or(|until| until >= now) && wait.schema.as_ref().is_none_or(&fits)
        };
        match self.waits(run).iter().find(takes) {
            Some((path, _, wait)) => Ok(Some(Bound { point: (*path).clone(), seq: wait.seq })),
            None if !self.waits(run).is_empty() => {
                let what = format!("run `{}` will not take this at its wait for `{}`", run.run.id, self.name);
                let hint = "its time is over, or it wants another payload or sender: look at it with `wigwag status`";
                Err(Error::new(ErrorKind::NotWaiting, what).hint(hint))
            }
            None => Err(self.not_waiting(run)),
        }
    }

    fn is_open(&self, run: &Run, only: &Bound) -> bool {
        self.waits(run).iter().any(|(path, _, wait)| **path == only.point && wait.seq == only.seq)
    }

    /// Whether a newer one was taken, where only the newest counts.
    fn is_superseded(&self, run: &Run, mode: Mode, suffix: &str) -> bool {
        let cursor = run.signals.get(&self.name).map(|inbox| inbox.cursor.as_str()).unwrap_or_default();
        mode == Mode::Latest && suffix <= cursor
    }

    fn not_waiting(&self, run: &Run) -> Error {
        let open: Vec<String> = run.waits_in_order().iter().map(|(_, _, wait)| format!("`{}`", wait.name)).collect();
        let open = if open.is_empty() { "nothing".to_owned() } else { open.join(", ") };
        let what = format!("run `{}` does not wait for `{}` now; it waits for: {open}", run.run.id, self.name);
        Error::new(ErrorKind::NotWaiting, what).hint("without `only_if_waiting` the signal is kept until it does")
    }

    fn to_signal(&self, id: String, created_at: Time, only: Option<Bound>) -> Signal {
        let (name, payload) = (self.name.clone(), self.payload.clone());
        Signal { id, name, payload, created_at, source: self.source.clone(), only, point: self.point.clone() }
    }

    fn place_of_key(&self, key: &str) -> String {
        Key::Sent { run: self.run.clone(), name: self.name.clone(), hash: self.hash_of_key(key) }.to_string()
    }

    /// Where a key is noted, and what is noted there of a signal that is sent under it.
    fn key_facts(&self, key: &str, suffix: &str) -> (String, Vec<u8>) {
        let facts = KeyFacts { signal: suffix.into(), payload_sha256: sha256_hex(&[self.payload.text()]) };
        (self.place_of_key(key), serde_json::to_vec(&facts).expect("two texts"))
    }

    fn signal_key(&self, suffix: &str) -> String {
        self.key_in_inbox(&self.name, suffix)
    }

    fn key_in_inbox(&self, name: &Name, suffix: &str) -> String {
        Key::Signal { run: self.run.clone(), name: name.clone(), suffix: suffix.into() }.to_string()
    }
}

/// The name of a signal, or why it is none.
pub(crate) fn signal_name(name: &str) -> Result<Name> {
    Name::new(name).map_err(|refusal| {
        Error::new(ErrorKind::InvalidName, refusal.to_string())
            .hint("a signal's name is part of where it is stored, such as `approval` or `payment.received`")
    })
}

async fn read_or_start(inner: &Arc<Inner>, message: &Message) -> Result<Loaded> {
    let handle = RunHandle::new(inner, message.run.clone());
    match handle.read().await {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        read => return read,
    }
    let Some((of, input)) = &message.start else { return Err(handle.not_found()) };
    if let Some(definition) = newest_definition(inner, &Name::new(of)?.into()).await? {
        message.check_declared(inner, &definition)?;
    }
    let start = StartCall::new(Arc::clone(inner), of, Ok(input.clone())).id(message.run.id.as_str());
    match start.await {
        Ok(_) => {}
        // Somebody else was first, with another input: it is their run.
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        Err(error) => return Err(error),
    }
    handle.read().await
}

/// How often a run is read again that could only be read slowly.
const READ_TRIES_MAX: usize = 3;

/// A signal that is in the inbox.
#[derive(Debug)]
struct Put {
    suffix: String,
    repeated: bool,
    /// The wait it is bound to.
    only: Option<Bound>,
    /// A hint went with it.
    hinted: bool,
}

/// Puts the signal and reads what was added to the run since.
async fn put_signal(
    inner: &Arc<Inner>,
    message: &Message,
    run: &mut Run,
    only: Option<Bound>,
    Stamps { read_at, newest }: Stamps,
) -> Result<Put> {
    let began = inner.clock.boot();
    let now = inner.now().await?;
    if now.uncertainty > limits::UNCERTAINTY_MAX {
        let what = format!("the store's time is known to {:?} only, too little to send signals", now.uncertainty);
        return Err(Error::new(ErrorKind::Unavailable, what).hint("check the clock of this machine, then try again"));
    }
    // The earliest moment that it may be: a stamp that is ahead of the store's time would overtake others.
    let earliest = if inner.store.traits().atomic { now.at } else { now.at.before(now.uncertainty) };
    let least = newest.map_or(earliest, |newest| earliest.max(newest.after(Duration::from_micros(1))));
    let put = match &message.key {
        Some(key) if !is_mutated(Mutation::KeyIgnored) => put_with_key(inner, message, run, only, key, least).await?,
        _ => put_without_key(inner, message, run, only, least).await?,
    };
    if is_mutated(Mutation::SenderReadsOnce) {
        return Ok(put);
    }
    let took = inner.clock.boot().saturating_sub(began);
    // Under a key the stamp may be that of an earlier try; and somebody may have set the clock since it was drawn.
    let passed = match (inner.now().await, stamp_of(&put.suffix)) {
        (Ok(after), Some(stamp)) => after.at.after(after.uncertainty).since(stamp),
        _ => Duration::MAX,
    };
    let took = took.max(passed);
    match inner.clock.boot().saturating_sub(read_at) > limits::PUT_MAX && !is_mutated(Mutation::SlowSenderTrusts) {
        true => *run = read_anew(inner, message).await?,
        false => log::catch_up_run(&*inner.store, run).await?,
    }
    if put.repeated {
        log::make_whole(&*inner.store, run).await?;
    }
    if took > limits::PUT_MAX
        && !is_mutated(Mutation::NoLateNote)
        && run.taker_of(&put.suffix).is_none()
        && !run.status.is_final()
    {
        // Readers look back only so far: this one may have been passed over.
        let order = Order::Late { name: message.name.clone(), signal: put.suffix.clone() };
        control::send(inner, run, order).await?;
        log::catch_up_run(&*inner.store, run).await?;
    }
    Ok(put)
}

/// Reads the run as one who has never seen it: so much time has passed that retention may have taken it, and what was
/// removed cannot be told from what was never there. What was read slowly may be out of date as well.
async fn read_anew(inner: &Arc<Inner>, message: &Message) -> Result<Run> {
    let handle = RunHandle::new(inner, message.run.clone());
    for _ in 0..READ_TRIES_MAX {
        let began = inner.clock.boot();
        let run = handle.read().await?.run;
        if inner.clock.boot().saturating_sub(began) <= limits::RETENTION_RECENT / 2 {
            return Ok(run);
        }
    }
    let what = format!("reading run `{}` takes too long to say what became of the signal", message.run.id);
    Err(Error::new(ErrorKind::Unavailable, what).hint("it may have arrived: send it again with the same key"))
}

async fn put_without_key(
    inner: &Arc<Inner>,
    message: &Message,
    run: &Run,
    only: Option<Bound>,
    now: Time,
) -> Result<Put> {
    let id = new_id();
    let signal = message.to_signal(id.clone(), now, only.clone());
    if !inner.store.traits().atomic {
        let suffix = suffix(least_stamp(inner, message, run, now), &id);
        match inner.store.write(Batch::new().put(message.signal_key(&suffix), signal.to_json())).await {
            Err(error) if is_mutated(Mutation::AckOnUnknown) && error.kind() == wigwag_store::ErrorKind::Unknown => {}
            outcome => _ = outcome?,
        }
        return Ok(Put { suffix, repeated: false, only, hinted: false });
    }
    // The store stamps inside the commit, so that order is the order of acknowledgement.
    let cursor = run.signals.get(&message.name).and_then(|inbox| stamp_of(&inbox.cursor));
    let key = message.signal_key(&format!("{STAMP}_{id}"));
    let mut batch = Batch::new().put(key, signal.to_json());
    if let Some(cursor) = cursor {
        batch = batch.stamp_from(wigwag_store::Stamp::from_micros(cursor.micros() + 1));
    }
    let hinted = !message.waits(run).is_empty() && !is_mutated(Mutation::SignalWithoutHint);
    if hinted {
        let (hint, body) = inner.hint(&run.index_type(), &run.run, now);
        batch = batch.put(Key::Due(hint).to_string(), body);
    }
    let receipt = match inner.store.write(batch).await {
        Err(error) if is_mutated(Mutation::AckOnUnknown) && error.kind() == wigwag_store::ErrorKind::Unknown => {
            wigwag_store::Receipt::default()
        }
        written => written?,
    };
    let stamp = receipt.stamp.map_or(now, time);
    Ok(Put { suffix: suffix(stamp, &id), repeated: false, only, hinted })
}

/// What an idempotency key holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyFacts {
    pub(crate) signal: String,
    payload_sha256: String,
}

/// The signal that was sent under this message's key before, if one was; another payload is refused.
async fn sent_before(inner: &Inner, message: &Message) -> Result<Option<String>> {
    let Some(key) = &message.key else { return Ok(None) };
    let place = message.place_of_key(key);
    let Some(object) = inner.store.get(&place).await? else { return Ok(None) };
    let known: KeyFacts = serde_json::from_slice(&object.body).map_err(|error| Error::unreadable(&place, error))?;
    if !is_suffix(&known.signal) {
        // A signal that was put there would be acknowledged, and never found.
        return Err(Error::unreadable(&place, "it names no place in an inbox"));
    }
    if known.payload_sha256 != sha256_hex(&[message.payload.text()]) {
        let what = format!("idempotency key `{key}` was used for another payload of `{}`", message.name);
        return Err(Error::new(ErrorKind::Conflict, what).hint("a new message needs a new key"));
    }
    Ok(Some(known.signal))
}

/// The receipt of a signal that was sent under this key and taken, whatever has become of the run since.
async fn first_receipt(inner: &Inner, message: &Message, run: &mut Run) -> Result<Option<Receipt>> {
    let Some(suffix) = sent_before(inner, message).await? else { return Ok(None) };
    log::make_whole(&*inner.store, run).await?;
    let taken = run.taker_of(&suffix).is_some()
        || run.restarts > 0 && log::is_taken_in_log(&*inner.store, &run.run, &message.name, &suffix).await?;
    Ok(taken.then(|| Receipt::of_consumed(suffix, true)))
}

async fn put_with_key(
    inner: &Arc<Inner>,
    message: &Message,
    run: &Run,
    only: Option<Bound>,
    key: &str,
    now: Time,
) -> Result<Put> {
    let stamp = least_stamp(inner, message, run, now);
    let id = new_id();
    let own = suffix(stamp, &id);
    let (place, facts) = message.key_facts(key, &own);
    let signal = message.to_signal(id, stamp, only.clone());
    let mut batch = Batch::new().create(&place, facts);
    if inner.store.traits().atomic {
        batch = batch.put(message.signal_key(&own), signal.to_json());
    }
    let refused = match inner.store.write(batch).await {
        Ok(_) if inner.store.traits().atomic => {
            return Ok(Put { suffix: own, repeated: false, only, hinted: false });
        }
        // Elsewhere it is created, as by a repeat: whoever stalls between the two must not change what a repeat put.
        Ok(_) => return put_again(inner, message, own.clone(), &own, only).await,
        Err(error) if error.is_exists() || error.kind() == wigwag_store::ErrorKind::Unknown => error,
        Err(error) => return Err(error.into()),
    };
    let Some(known) = sent_before(inner, message).await? else { return Err(refused.into()) };
    put_again(inner, message, known, &own, only).await
}

/// Creates the signal that a key names. The first try may have died before; if it is there, it stays as it is.
async fn put_again(
    inner: &Arc<Inner>,
    message: &Message,
    known: String,
    own: &str,
    only: Option<Bound>,
) -> Result<Put> {
    let stamp = stamp_of(&known).unwrap_or_default();
    let again = message.to_signal(id_in(&known), stamp, only.clone());
    match inner.store.write(Batch::new().create(message.signal_key(&known), again.to_json())).await {
        Ok(_) => Ok(Put { repeated: false, suffix: known, only, hinted: false }),
        Err(error) if error.is_exists() || error.kind() == wigwag_store::ErrorKind::Unknown => {
            // An answer of our own may be lost; else somebody else has put it.
            let repeated = known != own || error.is_exists();
            let key = message.signal_key(&known);
            let stored = inner.store.get(&key).await?.ok_or(error)?;
            let first = Signal::read(&stored.body).map_err(|refusal| Error::unreadable(&key, refusal))?;
            Ok(Put { repeated, suffix: known, only: first.only, hinted: false })
        }
        Err(error) => Err(error.into()),
    }
}

/// The run was read again: whoever waits for the signal is told to look, and the sender what became of it.
async fn settle(inner: &Arc<Inner>, message: &Message, run: &Run, mode: Mode, put: &Put) -> Result<SignalState> {
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
    if !put.hinted && !is_mutated(Mutation::SignalWithoutHint) {
        let now = inner.recent_now().await?;
        let (hint, body) = inner.hint(&run.index_type(), &run.run, now);
        inner.store.write(Batch::new().put(Key::Due(hint).to_string(), body)).await?;
    }
    if let Some(handle) = inner.active(&run.run) {
        _ = handle.poke(None);
    }
    Ok(SignalState::Waiting)
}

/// The signal's own part of its place in an inbox.
fn id_in(suffix: &str) -> String {
    suffix.split_once('_').map(|(_, id)| id.to_owned()).unwrap_or_default()
}

fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// A signal about to be sent and followed until a wait has taken it.
#[derive(Debug)]
#[must_use = "a signal is sent when this is awaited"]
pub struct SignalAndWait {
    call: SignalCall,
    timeout: Duration,
}

/// A wait has taken the signal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Consumed {
    /// The proof that the signal is durable.
    pub receipt: Receipt,
    /// The wait that took it.
    pub point: Path,
    /// When.
    pub at: Time,
    /// How far the run is now.
    pub status: wigwag_core::Status,
    /// What the run waits for now.
    pub next: Vec<OpenWait>,
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
                    let what = format!("no wait of run `{id}` took signal `{name}` within {timeout:?}");
                    Err(Error::new(ErrorKind::TimedOut, what).hint("the signal is kept: a wait to come takes it"))
                }
            }
        }
        .boxed()
    }
}

async fn follow(sent: Sent, receipt: Receipt) -> Result<Consumed> {
    let Sent { inner, mut run, message, definition, only } = sent;
    let mut changes = inner.store.changes(&format!("{}/log/", run.run));
    let mut pause = Duration::from_millis(50);
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
            let what = format!("a newer signal `{}` was taken by run `{}` instead", message.name, run.run.id);
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        let span = if inner.store.traits().nudges { Duration::from_secs(5) } else { pause };
        pause = (pause * 3 / 2).min(Duration::from_secs(2));
        let clock = Arc::clone(&inner.clock);
        tokio::select! {
            biased;
            _ = changes.next() => {}
            () = clock.sleep(span) => {}
        }
    }
}
