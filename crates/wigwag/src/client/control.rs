//! Cancel, pause, resume, restart, migrate: an object beside the log, acknowledged when it and its
//! wake-up are durable.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use wigwag_core::{Control, Definition, Key, Order, Path, PauseCause, Run, RunRef, Status, TypeName, limits, version};
use wigwag_store::{Batch, Listed, STAMP};

use super::RunHandle;
use crate::engine_core::EngineCore;
use crate::error::{Error, ErrorKind, Result};
use crate::log;
use crate::pages::Pages;

/// Answer to a control request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// The request is recorded and will take effect.
    Now,
    /// The same request was made before.
    Before,
    /// The run failed and is being compensated: it ends without a cancel, and this one is not recorded.
    Compensating,
}

impl RunHandle {
    /// Cancels the run: completed steps are compensated in reverse order.
    pub fn cancel(&self) -> Cancel {
        Cancel { run: self.clone(), reason: None }
    }

    /// Pauses the run: no further step starts. A running step is not interrupted.
    pub async fn pause(&self) -> Result<Asked> {
        let run = self.unfinished().await?;
        match run.status {
            Status::Paused => return Ok(Asked::Before),
            Status::Compensating => return Err(self.not_now(&run, "is being compensated and cannot be paused")),
            _ if run.cancel.is_some() => return Err(self.not_now(&run, "is being cancelled and cannot be paused")),
            _ => {}
        }
        send_as(self, &run, Order::Pause { reason: None }).await?;
        Ok(Asked::Now)
    }

    /// Resumes a paused run.
    pub fn resume(&self) -> Resume {
        Resume { run: self.clone(), anyway: false }
    }

    /// Restarts a run that has ended or is paused.
    pub fn restart(&self) -> Restart {
        Restart { run: self.clone(), from: None }
    }

    /// Migrates a run that is paused for changed code to that code.
    pub fn migrate(&self) -> Migrate {
        Migrate { run: self.clone(), mapping: BTreeMap::new(), mistake: None, hash: None }
    }

    async fn unfinished(&self) -> Result<Run> {
        let run = self.read().await?.run;
        match run.status.is_final() {
            true => Err(Error::new(
                ErrorKind::NotRunning,
                format!("run `{}` has already finished: `{}`", self.run.id, run.status),
            )
            .hint(format!("start another, or run it again with `wigwag restart {}`", self.run.id))),
            false => Ok(run),
        }
    }

    fn not_now(&self, run: &Run, why: &str) -> Error {
        Error::new(ErrorKind::NotRunning, format!("run `{}` {why}: `{}`", self.run.id, run.status))
    }
}

/// A cancel about to be sent.
#[derive(Debug)]
#[must_use = "it is sent when this is awaited"]
pub struct Cancel {
    run: RunHandle,
    reason: Option<String>,
}

impl Cancel {
    /// Sets the reason; it is recorded and displayed.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

impl IntoFuture for Cancel {
    type Output = Result<Asked>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            check_reason(self.reason.as_deref())?;
            let run = self.run.unfinished().await?;
            if run.cancel.is_some() {
                return Ok(Asked::Before);
            }
            if run.status == Status::Compensating {
                return Ok(Asked::Compensating);
            }
            send_as(&self.run, &run, Order::Cancel { reason: self.reason }).await?;
            Ok(Asked::Now)
        }
        .boxed()
    }
}

fn check_reason(reason: Option<&str>) -> Result<()> {
    let bytes = reason.map_or(0, str::len);
    if bytes > limits::REASON_BYTES_MAX {
        let what = format!("a reason has at most {} bytes, got: {bytes}", limits::REASON_BYTES_MAX);
        return Err(Error::invalid(what).hint("shorten it, or store the details elsewhere and reference them"));
    }
    Ok(())
}

/// Cancels a child with its parent. A child that has ended or never existed is no error.
pub(crate) async fn cancel_child(inner: &Arc<EngineCore>, child: &RunRef, reason: Option<String>) -> Result<()> {
    let Some(loaded) = log::read(&*inner.store, child).await? else { return Ok(()) };
    if loaded.run.status.is_final() || loaded.run.cancel.is_some() {
        return Ok(());
    }
    send(inner, &loaded.run, Order::Cancel { reason }).await
}

/// A resume about to be sent.
#[derive(Debug)]
#[must_use = "it is sent when this is awaited"]
pub struct Resume {
    run: RunHandle,
    anyway: bool,
}

impl Resume {
    /// Skips the check that the code matches, for instance after the old code was restored. Workers check it anyway.
    pub fn anyway(mut self) -> Self {
        self.anyway = true;
        self
    }
}

impl IntoFuture for Resume {
    type Output = Result<Asked>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let mut run = self.run.unfinished().await?;
            let Some(pause) = &run.pause else { return Err(self.run.not_now(&run, "is not paused")) };
            if pause.why == PauseCause::Version && !self.anyway {
                check_fits(&self.run, &mut run).await?;
            }
            send_as(&self.run, &run, Order::Resume).await?;
            Ok(Asked::Now)
        }
        .boxed()
    }
}

/// Rejects a resume if the run does not match the newest code; the error lists the steps.
async fn check_fits(handle: &RunHandle, run: &mut Run) -> Result<()> {
    let newest = current_definition(&handle.inner, &run.of).await?;
    let is_function = |definition: &Definition| definition.style == wigwag_core::Style::Function;
    if newest.as_ref().is_some_and(|newest| newest.hash == run.definition_hash || is_function(newest)) {
        return Ok(());
    }
    log::make_whole(&*handle.inner.store, run).await?;
    let fits_plainly = newest.is_some_and(|newest| version::migrate(run, &newest, &BTreeMap::new()).is_ok());
    let mapping = if fits_plainly { "" } else { " --rename OLD=NEW --skip STEP" };
    let steps = run.error.as_ref().map(|error| error.incompatible_steps.clone()).unwrap_or_default();
    let named = steps.iter().map(|step| format!("`{step}`")).collect::<Vec<_>>().join(", ");
    let what = format!("run `{}` is incompatible with the worker's code at {named}", handle.run.id);
    Err(Error::new(ErrorKind::Conflict, what).hint(format!(
        "migrate it: `wigwag migrate {}{mapping}`; or roll back the code and resume with `--anyway`",
        handle.run.id
    )))
}

/// A restart about to be sent.
#[derive(Debug)]
#[must_use = "it is sent when this is awaited"]
pub struct Restart {
    run: RunHandle,
    from: Option<String>,
}

impl Restart {
    /// Restarts from this step: its record and those of all later steps are dropped. By default all are.
    pub fn from(mut self, step: impl Into<String>) -> Self {
        self.from = Some(step.into());
        self
    }
}

impl IntoFuture for Restart {
    type Output = Result<Asked>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let handle = self.run;
            let from = self.from.map(Path::new).transpose()?;
            let mut run = handle.read().await?.run;
            if !run.status.is_final() && run.status != Status::Paused {
                let hint = format!("pause it first: `wigwag pause {}`", handle.run.id);
                return Err(handle
                    .not_now(&run, "can be restarted only when it has finished or is paused, but it is")
                    .hint(hint));
            }
            if let Some(from) = &from {
                log::make_whole(&*handle.inner.store, &mut run).await?;
                let definition = definition_of(&handle.inner, &run).await?;
                run.steps_to_restart(from, &definition)?;
            }
            let expected_seq = run.seq;
            send_as(&handle, &run, Order::Restart { from, expected_seq }).await?;
            Ok(Asked::Now)
        }
        .boxed()
    }
}

/// A migration about to be sent.
#[derive(Debug)]
#[must_use = "it is sent when this is awaited"]
pub struct Migrate {
    run: RunHandle,
    mapping: BTreeMap<Path, Option<Path>>,
    mistake: Option<Error>,
    hash: Option<String>,
}

impl Migrate {
    /// Maps a renamed step from its old name to its new one.
    pub fn rename(mut self, old: &str, new: &str) -> Self {
        match (Path::new(old), Path::new(new)) {
            (Ok(old), Ok(new)) => _ = self.mapping.insert(old, Some(new)),
            (Err(refusal), _) | (_, Err(refusal)) => self.mistake = Some(refusal.into()),
        }
        self
    }

    /// Skips a step.
    pub fn skip(mut self, step: &str) -> Self {
        match Path::new(step) {
            Ok(step) => _ = self.mapping.insert(step, None),
            Err(refusal) => self.mistake = Some(refusal.into()),
        }
        self
    }

    /// Sets the target definition by its hash; by default the definition of this engine, or the newest stored one.
    pub fn to(mut self, hash: impl Into<String>) -> Self {
        self.hash = Some(hash.into());
        self
    }
}

impl IntoFuture for Migrate {
    type Output = Result<Asked>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            if let Some(mistake) = self.mistake {
                return Err(mistake);
            }
            if self.mapping.len() > limits::MAPPING_MAX {
                let (max, got) = (limits::MAPPING_MAX, self.mapping.len());
                let what = format!("a migration renames or skips at most {max} steps, got: {got}");
                return Err(Error::invalid(what).hint("migrate to a definition that is closer to the run, then again"));
            }
            if let Some(hash) = self.hash.as_ref().filter(|hash| !is_hash(hash)) {
                let what = "not the hash of a definition (want `sha256:` and 64 hexadecimal digits)";
                let shown: String = hash.chars().take(80).collect();
                return Err(Error::invalid(format!("{what}: `{}`", shown.escape_debug())));
            }
            let handle = self.run;
            let mut run = handle.unfinished().await?;
            if run.status != Status::Paused {
                return Err(handle.not_now(&run, "can be migrated only while it is paused"));
            }
            log::make_whole(&*handle.inner.store, &mut run).await?;
            let target = match &self.hash {
                Some(hash) => definition_by_hash(&handle.inner, &run.of, hash).await?,
                None => current_definition(&handle.inner, &run.of).await?,
            };
            let target = target.ok_or_else(|| {
                let hash = self.hash.map(|hash| format!(" with the hash `{hash}`")).unwrap_or_default();
                Error::new(ErrorKind::NotFound, format!("no worker has stored a definition of `{}`{hash}", run.of))
            })?;
            version::migrate(&run, &target, &self.mapping)?;
            let (definition_hash, mapping, expected_seq) = (target.hash, self.mapping, run.seq);
            send_as(&handle, &run, Order::Migrate { definition_hash, mapping, expected_seq }).await?;
            Ok(Asked::Now)
        }
        .boxed()
    }
}

fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the definitions of a type that workers have stored, the newest last.
pub(super) async fn definitions(inner: &EngineCore, of: &TypeName) -> Result<Vec<Definition>> {
    let mut listed = definition_keys(inner, of).await?;
    listed.sort_by_key(|listed| listed.modified);
    let read = listed.into_iter().map(|listed| async move { read_definition(inner, &listed.key).await });
    let found: Vec<_> = stream::iter(read).buffered(16).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Returns the definition of a type that was stored last, if it can be read.
async fn newest_definition(inner: &EngineCore, of: &TypeName) -> Result<Option<Definition>> {
    let mut listed = definition_keys(inner, of).await?;
    listed.sort_by_key(|listed| listed.modified);
    for listed in listed.into_iter().rev() {
        if let Some(definition) = read_definition(inner, &listed.key).await? {
            return Ok(Some(definition));
        }
    }
    Ok(None)
}

async fn definition_keys(inner: &EngineCore, of: &TypeName) -> Result<Vec<Listed>> {
    let prefix = format!("definition/{of}/");
    let mut listed = Vec::new();
    let mut pages = Pages::new(&*inner.store, &prefix);
    while let Some(page) = pages.next().await? {
        listed.extend(page);
    }
    Ok(listed)
}

async fn read_definition(inner: &EngineCore, key: &str) -> Result<Option<Definition>> {
    let object = inner.store.get(key).await?;
    Ok(object.and_then(|object| serde_json::from_slice(&object.body).ok()))
}

/// Returns the stored definition of that hash, if any worker stored it.
pub(super) async fn definition_by_hash(inner: &EngineCore, of: &TypeName, hash: &str) -> Result<Option<Definition>> {
    let key = Key::Definition { of: of.clone(), hash: hash.into() }.to_string();
    let object = log::get_named(&*inner.store, &key).await?;
    Ok(object.and_then(|object| serde_json::from_slice(&object.body).ok()))
}

/// Returns the definition for new runs: the one of this engine, or the newest that workers have stored.
pub(super) async fn current_definition(inner: &EngineCore, of: &TypeName) -> Result<Option<Definition>> {
    match inner.registry.workflow(of) {
        Some(workflow) => Ok(Some(workflow.definition.clone())),
        None => newest_definition(inner, of).await,
    }
}

/// Returns the definition that a run follows.
async fn definition_of(inner: &EngineCore, run: &Run) -> Result<Definition> {
    if let Some(workflow) = inner.registry.workflow(&run.of) {
        return Ok(workflow.definition.clone());
    }
    if run.task.is_some() {
        return Ok(Definition::task(run.of.clone()));
    }
    let own = definition_by_hash(inner, &run.of, &run.definition_hash).await?;
    own.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no worker has stored the definition of `{}`", run.of)))
}

/// Sends an order in the name of the handle's caller.
async fn send_as(handle: &RunHandle, run: &Run, order: Order) -> Result<()> {
    send_by(&handle.inner, run, order, handle.caller.as_deref()).await
}

/// Sends a control request of the engine itself.
pub(super) async fn send(inner: &Arc<EngineCore>, run: &Run, order: Order) -> Result<()> {
    send_by(inner, run, order, None).await
}

/// Writes the control object and then a wake-up due now; then the request is acknowledged.
///
/// What if we die here? Without the wake-up the object is found at the next check of the run; the caller
/// got no confirmation.
async fn send_by(inner: &Arc<EngineCore>, run: &Run, order: Order, caller: Option<&str>) -> Result<()> {
    let now = inner.now().await?;
    let id = format!("{:016x}", fastrand::u64(..));
    let control = Control { id: id.clone(), created_at: now.at, by: caller.map(str::to_owned), order };
    let key = format!("{}/signals/.control/{STAMP}_{id}.json", run.run);
    let (hint, body) = inner.hint(&run.index_type(), &run.run, now.at);
    let hint = Batch::new().put(Key::Due(hint).to_string(), body);
    if let Err(error) = inner.store.write(Batch::new().put(key, control.to_json())).await {
        // The object may be stored: wake the run, so that it takes effect now, and not when a worker finds it later.
        if error.kind() == wigwag_store::ErrorKind::Unknown {
            _ = inner.store.write(hint).await;
        }
        return Err(error.into());
    }
    inner.store.write(hint).await?;
    if let Some(handle) = inner.active(&run.run) {
        _ = handle.poke(None);
    }
    Ok(())
}
