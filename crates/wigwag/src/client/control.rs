//! Cancel, pause, resume, restart, migrate: an object beside the log, acknowledged when it and its hint are durable.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use wigwag_core::{Control, Definition, Key, Order, Path, PauseCause, Run, RunRef, Status, TypeName, limits, version};
use wigwag_store::{Batch, Listed, STAMP};

use super::RunHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::inner::Inner;
use crate::log;
use crate::pages::Pages;

/// What became of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// It is recorded and will be done.
    Now,
    /// Somebody had asked before.
    Before,
    /// The run failed and is being compensated: it ends without a cancel, and this one is not recorded.
    Compensating,
}

impl RunHandle {
    /// Asks the run to end: what was done is undone, in reverse order.
    pub fn cancel(&self) -> Cancel {
        Cancel { run: self.clone(), reason: None }
    }

    /// Asks that no further step begins. A step that runs is not interrupted.
    pub async fn pause(&self) -> Result<Asked> {
        let run = self.unfinished().await?;
        match run.status {
            Status::Paused => return Ok(Asked::Before),
            Status::Compensating => return Err(self.not_now(&run, "is being undone and cannot be paused")),
            _ if run.cancel.is_some() => return Err(self.not_now(&run, "is being cancelled and cannot be paused")),
            _ => {}
        }
        send_as(self, &run, Order::Pause { reason: None }).await?;
        Ok(Asked::Now)
    }

    /// Lets a paused run go on.
    pub fn resume(&self) -> Resume {
        Resume { run: self.clone(), anyway: false }
    }

    /// Lets a run that has ended, or is paused, begin again.
    pub fn restart(&self) -> Restart {
        Restart { run: self.clone(), from: None }
    }

    /// Brings a run that was paused for changed code to that code.
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
    /// Why; it is kept and shown.
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
        return Err(Error::invalid(what).hint("shorten it, or put the details elsewhere and name the place"));
    }
    Ok(())
}

/// Cancels a child with its parent. One that has ended, or never was, is no trouble.
pub(crate) async fn cancel_child(inner: &Arc<Inner>, child: &RunRef, reason: Option<String>) -> Result<()> {
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
    /// Leaves it to the workers whether the code fits, for instance after it was put back to what it was.
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

/// Says exactly what of a run still does not fit the newest code.
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
    let what = format!("run `{}` does not fit the code at {named}", handle.run.id);
    Err(Error::new(ErrorKind::Conflict, what).hint(format!(
        "migrate it: `wigwag migrate {}{mapping}`; or put the old code back and resume with `--anyway`",
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
    /// Goes back to this step: its record and all after it are dropped. Else all is.
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
                return Err(handle.not_now(&run, "is restarted when it has ended or is paused, but it is").hint(hint));
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
    /// A step has another name now.
    pub fn rename(mut self, old: &str, new: &str) -> Self {
        match (Path::new(old), Path::new(new)) {
            (Ok(old), Ok(new)) => _ = self.mapping.insert(old, Some(new)),
            (Err(refusal), _) | (_, Err(refusal)) => self.mistake = Some(refusal.into()),
        }
        self
    }

    /// A step is passed over.
    pub fn skip(mut self, step: &str) -> Self {
        match Path::new(step) {
            Ok(step) => _ = self.mapping.insert(step, None),
            Err(refusal) => self.mistake = Some(refusal.into()),
        }
        self
    }

    /// To the definition of this hash; else to that of this engine, or the newest.
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
                return Err(handle.not_now(&run, "is migrated while it is paused, but it is not"));
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

/// Definitions of a type that workers have stored, the newest last.
pub(super) async fn definitions(inner: &Inner, of: &TypeName) -> Result<Vec<Definition>> {
    let mut listed = definition_keys(inner, of).await?;
    listed.sort_by_key(|listed| listed.modified);
    let read = listed.into_iter().map(|listed| async move { read_definition(inner, &listed.key).await });
    let found: Vec<_> = stream::iter(read).buffered(16).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// The definition of a type that was stored last, if it can be read.
async fn newest_definition(inner: &Inner, of: &TypeName) -> Result<Option<Definition>> {
    let mut listed = definition_keys(inner, of).await?;
    listed.sort_by_key(|listed| listed.modified);
    for listed in listed.into_iter().rev() {
        if let Some(definition) = read_definition(inner, &listed.key).await? {
            return Ok(Some(definition));
        }
    }
    Ok(None)
}

async fn definition_keys(inner: &Inner, of: &TypeName) -> Result<Vec<Listed>> {
    let prefix = format!("definition/{of}/");
    let mut listed = Vec::new();
    let mut pages = Pages::new(&*inner.store, &prefix);
    while let Some(page) = pages.next().await? {
        listed.extend(page);
    }
    Ok(listed)
}

async fn read_definition(inner: &Inner, key: &str) -> Result<Option<Definition>> {
    let object = inner.store.get(key).await?;
    Ok(object.and_then(|object| serde_json::from_slice(&object.body).ok()))
}

/// The stored definition of that hash, if any worker stored it.
pub(super) async fn definition_by_hash(inner: &Inner, of: &TypeName, hash: &str) -> Result<Option<Definition>> {
    let key = Key::Definition { of: of.clone(), hash: hash.into() }.to_string();
    let object = log::get_named(&*inner.store, &key).await?;
    Ok(object.and_then(|object| serde_json::from_slice(&object.body).ok()))
}

/// The definition that new runs follow: that of this engine, or the newest that workers have stored.
pub(super) async fn current_definition(inner: &Inner, of: &TypeName) -> Result<Option<Definition>> {
    match inner.registry.workflow(of) {
        Some(workflow) => Ok(Some(workflow.definition.clone())),
        None => newest_definition(inner, of).await,
    }
}

/// The definition that a run follows.
async fn definition_of(inner: &Inner, run: &Run) -> Result<Definition> {
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

/// Sends an order that no caller asked for.
pub(super) async fn send(inner: &Arc<Inner>, run: &Run, order: Order) -> Result<()> {
    send_by(inner, run, order, None).await
}

/// Puts the control object, then a hint due now; then it is acknowledged.
///
/// What if we die here? Without the hint the object is found when the run is looked at next; nobody was told yes.
async fn send_by(inner: &Arc<Inner>, run: &Run, order: Order, caller: Option<&str>) -> Result<()> {
    let now = inner.now().await?;
    let id = format!("{:016x}", fastrand::u64(..));
    let control = Control { id: id.clone(), created_at: now.at, by: caller.map(str::to_owned), order };
    let key = format!("{}/signals/.control/{STAMP}_{id}.json", run.run);
    let (hint, body) = inner.hint(&run.index_type(), &run.run, now.at);
    let hint = Batch::new().put(Key::Due(hint).to_string(), body);
    if let Err(error) = inner.store.write(Batch::new().put(key, control.to_json())).await {
        // It may be there: then it takes effect now, not at some later time when a worker finds it by chance.
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
