//! A signal that is about to be sent: validation against the run, its open waits and its definition.
//!
//! Holds: a sender cannot use up the idempotency key of another. Keys of authenticated senders are separate from keys of
//! senders that only claim the name.

use wigwag_core::{
    Bound, Definition, Key, Mode, Name, Path, Payload, Point, Refusal, Run, RunRef, SenderMisfit, Signal, Source, Time,
    Wait, limits, sha256_hex,
};

use super::call::SignalCall;
use super::idempotency::KeyFacts;
use crate::client::names;
use crate::engine_core::EngineCore;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::SHOWN_SCHEMA_CHARS_MAX;

/// A signal to send, validated as far as it can be without the run.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) run: RunRef,
    pub(super) name: Name,
    pub(super) payload: Payload,
    pub(super) key: Option<String>,
    strict: bool,
    pub(super) point: Option<Path>,
    pub(super) start: Option<(String, Payload)>,
    pub(super) source: Source,
}

impl Message {
    pub(super) fn of(call: SignalCall) -> Result<Self> {
        let run = call.run?;
        let name = signal_name(&call.name)?;
        let too_large = |refusal: Refusal| {
            Error::new(ErrorKind::InvalidPayload, refusal.to_string())
                .hint("store the data elsewhere and send a reference")
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

    /// Returns the open waits that may consume it, the earliest opened first.
    pub(super) fn waits<'a>(&self, run: &'a Run) -> Vec<(&'a Path, &'a Point, &'a Wait)> {
        let meant = |path: &Path| self.point.as_ref().is_none_or(|point| point == path);
        run.waits_in_order().into_iter().filter(|(path, _, wait)| wait.name == self.name && meant(path)).collect()
    }

    /// Validates the signal against the run; returns the wait that it is bound to.
    pub(super) fn check(
        &self,
        inner: &EngineCore,
        run: &Run,
        definition: Option<&Definition>,
        now: Time,
    ) -> Result<Option<Bound>> {
        self.check_running(run)?;
        if self.strict {
            names::check_signal(&self.name, run, definition)?;
        }
        self.check_point(run, definition, now)?;
        self.check_payload(inner, run, definition)?;
        self.check_sender(run, definition)?;
        let fits = |schema: &serde_json::Value| inner.caches.schemas.check(schema, &self.payload).is_ok();
        self.bound(run, now, fits)
    }

    pub(super) fn check_running(&self, run: &Run) -> Result<()> {
        match run.status.is_final() {
            true => Err(Error::new(
                ErrorKind::NotRunning,
                format!("run `{}` has already finished: `{}`", run.run.id, run.status),
            )
            .hint("a finished run accepts no signals; start another")),
            false => Ok(()),
        }
    }

    /// Checks that the addressed step is an open wait, or a step that the graph has not reached yet.
    fn check_point(&self, run: &Run, definition: Option<&Definition>, now: Time) -> Result<()> {
        let Some(point) = &self.point else { return Ok(()) };
        let to_come = definition.and_then(|definition| definition.step(point)).is_some_and(|node| {
            node.signal.as_ref().is_some_and(|signal| signal.name == self.name) && !run.points.contains_key(point)
        });
        // A wait past its deadline consumes nothing more.
        let open = |(_, point, _): &(&Path, &Point, &Wait)| point.until.is_none_or(|until| until >= now);
        if to_come || self.waits(run).iter().any(open) {
            return Ok(());
        }
        let open = run.waits_in_order().into_iter().filter(|(_, _, wait)| wait.name == self.name);
        let open: Vec<String> = open.map(|(path, ..)| format!("`{path}`")).collect();
        let open = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
        let what = format!("run `{}` does not wait for `{}` at `{point}`; it waits at: {open}", run.run.id, self.name);
        Err(Error::new(ErrorKind::UnknownPoint, what).hint("omit the step to address the oldest wait"))
    }

    /// Checks the payload against the schema in the definition, if there is one.
    pub(super) fn check_declared(&self, inner: &EngineCore, definition: &Definition) -> Result<()> {
        match definition.signal(&self.name).and_then(|signal| signal.schema.as_ref()) {
            Some(schema) => self.check_schemas(inner, &[schema]),
            None => Ok(()),
        }
    }

    /// Checks the payload against the schemas of the open waits, of which one must accept it; if none is open, against the
    /// schema in the definition.
    ///
    /// A wait keeps the schema of its opening: it is recorded, and workers use it too.
    fn check_payload(&self, inner: &EngineCore, run: &Run, definition: Option<&Definition>) -> Result<()> {
        let declared = definition.and_then(|definition| definition.signal(&self.name)?.schema.as_ref());
        let open = self.waits(run);
        let schemas: Vec<&serde_json::Value> = match open.is_empty() {
            true => declared.into_iter().collect(),
            // A wait without a schema accepts any payload.
            false if open.iter().any(|(_, _, wait)| wait.schema.is_none()) => Vec::new(),
            false => open.iter().filter_map(|(_, _, wait)| wait.schema.as_ref()).collect(),
        };
        self.check_schemas(inner, &schemas)
    }

    /// Checks that the payload fits one of the schemas, if there are any.
    fn check_schemas(&self, inner: &EngineCore, schemas: &[&serde_json::Value]) -> Result<()> {
        let mut misfit = None;
        for schema in schemas {
            match inner.caches.schemas.check(schema, &self.payload) {
                Ok(()) => return Ok(()),
                Err(found) => _ = misfit.get_or_insert((found, schema)),
            }
        }
        let Some((misfit, schema)) = misfit else { return Ok(()) };
        let what = format!("the payload does not match signal `{}` {misfit}", self.name);
        let fields = inner.caches.schemas.misfits(schema, &self.payload);
        let schema: String = schema.to_string().chars().take(SHOWN_SCHEMA_CHARS_MAX).collect();
        Err(Error::new(ErrorKind::InvalidPayload, what).hint(format!("want: {schema}")).with_fields(fields))
    }

    /// Returns the wait that a strict signal is bound to.
    fn bound(&self, run: &Run, now: Time, fits: impl Fn(&serde_json::Value) -> bool) -> Result<Option<Bound>> {
        if !self.strict {
            return Ok(None);
        }
        // A wait past its deadline, or with another schema or sender, will not consume it.
        let takes = |(_, point, wait): &&(&Path, &Point, &Wait)| {
            let is_accepted = wait.rejects_sender(&self.source).is_none();
            is_accepted && point.until.is_none_or(|until| until >= now) && wait.schema.as_ref().is_none_or(&fits)
        };
        match self.waits(run).iter().find(takes) {
            Some((path, _, wait)) => Ok(Some(Bound { point: (*path).clone(), seq: wait.seq })),
            None if !self.waits(run).is_empty() => {
                let what = format!("run `{}` rejects this signal at its wait for `{}`", run.run.id, self.name);
                let hint =
                    "the deadline has passed, or the payload or sender does not match: check it with `wigwag status`";
                Err(Error::new(ErrorKind::NotWaiting, what).hint(hint))
            }
            None => Err(self.not_waiting(run)),
        }
    }

    pub(super) fn is_open(&self, run: &Run, only: &Bound) -> bool {
        self.waits(run).iter().any(|(path, _, wait)| **path == only.point && wait.seq == only.seq)
    }

    /// Returns whether a newer signal was consumed, where only the newest counts.
    pub(super) fn is_superseded(&self, run: &Run, mode: Mode, suffix: &str) -> bool {
        let cursor = run.signals.get(&self.name).map(|inbox| inbox.cursor.as_str()).unwrap_or_default();
        mode == Mode::Latest && suffix <= cursor
    }

    pub(super) fn not_waiting(&self, run: &Run) -> Error {
        let open: Vec<String> = run.waits_in_order().iter().map(|(_, _, wait)| format!("`{}`", wait.name)).collect();
        let open = if open.is_empty() { "nothing".to_owned() } else { open.join(", ") };
        let what = format!("run `{}` does not wait for `{}` now; it waits for: {open}", run.run.id, self.name);
        Error::new(ErrorKind::NotWaiting, what).hint("without `only_if_waiting` the signal is buffered until it does")
    }

    pub(super) fn to_signal(&self, id: String, created_at: Time, only: Option<Bound>) -> Signal {
        let (name, payload) = (self.name.clone(), self.payload.clone());
        Signal { id, name, payload, created_at, source: self.source.clone(), only, point: self.point.clone() }
    }

    pub(super) fn place_of_key(&self, key: &str) -> String {
        Key::Sent { run: self.run.clone(), name: self.name.clone(), hash: self.hash_of_key(key) }.to_string()
    }

    /// Returns the object that records an idempotency key and its signal: its key and its body.
    pub(super) fn key_facts(&self, key: &str, suffix: &str) -> (String, Vec<u8>) {
        let facts = KeyFacts { signal: suffix.into(), payload_sha256: sha256_hex(&[self.payload.text()]) };
        (self.place_of_key(key), serde_json::to_vec(&facts).expect("two texts"))
    }

    pub(super) fn signal_key(&self, suffix: &str) -> String {
        self.key_in_inbox(&self.name, suffix)
    }

    pub(super) fn key_in_inbox(&self, name: &Name, suffix: &str) -> String {
        Key::Signal { run: self.run.clone(), name: name.clone(), suffix: suffix.into() }.to_string()
    }

    /// Why no open wait takes signals of this sender, if none does; while none is open the definition counts.
    fn sender_misfit(&self, run: &Run, definition: Option<&Definition>) -> Option<SenderMisfit> {
        let open = self.waits(run);
        if !open.is_empty() {
            // `None` is the minimum: one accepting wait is enough.
            return open.iter().map(|(_, _, wait)| wait.rejects_sender(&self.source)).min().flatten();
        }
        let declared =
            definition.into_iter().flat_map(|definition| &definition.steps).filter_map(|node| node.signal.as_ref());
        let declared = declared.filter(|signal| signal.name == self.name);
        declared.map(|signal| SenderMisfit::of(signal.quorum, signal.authenticated, &self.source)).min().flatten()
    }

    /// Rejects an unauthenticated sender if a wait demands an authenticated one.
    pub(super) fn check_sender(&self, run: &Run, definition: Option<&Definition>) -> Result<()> {
        match self.sender_misfit(run, definition) {
            Some(misfit @ SenderMisfit::Unauthenticated) => {
                let what =
                    format!("run `{}` rejects this signal at its wait for `{}`: {misfit}", run.run.id, self.name);
                Err(Error::new(ErrorKind::RejectedSender, what)
                    .hint("send it over HTTP or the hub with a token, or use a signed link"))
            }
            Some(SenderMisfit::Nameless) | None => Ok(()),
        }
    }

    /// Warns that a signal without a sender does not count towards a quorum. It is kept: a plain wait may
    /// consume it later.
    pub(super) fn sender_warning(&self, run: &Run, definition: Option<&Definition>) -> Option<String> {
        let misfit = self.sender_misfit(run, definition).filter(|misfit| *misfit == SenderMisfit::Nameless)?;
        Some(format!("{misfit}; name it with `by`, or use a token"))
    }

    /// Hash of an idempotency key of this sender.
    pub(super) fn hash_of_key(&self, key: &str) -> String {
        match (&self.source.by, self.source.authenticated) {
            (None, _) => sha256_hex(&[key]),
            (Some(by), false) => sha256_hex(&[key, by]),
            (Some(by), true) => sha256_hex(&[key, by, "authenticated"]),
        }
    }
}

/// Parses the name of a signal.
pub(crate) fn signal_name(name: &str) -> Result<Name> {
    Name::new(name).map_err(|refusal| {
        Error::new(ErrorKind::InvalidName, refusal.to_string())
            .hint("use a name such as `approval` or `payment.received`")
    })
}
