//! Cancel, pause, resume, restart, migrate: an object beside the log, acknowledged when it and its hint are durable.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use wigwag_core::{Control, Definition, Key, Order, Path, PauseCause, Run, RunRef, Status, TypeName, version};
use wigwag_store::{Batch, STAMP, limits::LIST_PAGE};

use super::RunHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::inner::Inner;
use crate::log;

/// What became of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// It is recorded and will be done.
    Now,
    /// Somebody had asked before.
    Before,
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
        send(&self.inner, &run, Order::Pause { reason: None }).await?;
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
            let run = self.run.unfinished().await?;
            if run.cancel.is_some() || matches!(run.status, Status::Compensating) {
                return Ok(Asked::Before);
            }
            send(&self.run.inner, &run, Order::Cancel { reason: self.reason }).await?;
            Ok(Asked::Now)
        }
        .boxed()
    }
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
            let run = self.run.unfinished().await?;
            let Some(pause) = &run.pause else { return Err(self.run.not_now(&run, "is not paused")) };
            if pause.why == PauseCause::Version && !self.anyway {
                check_fits(&self.run, &run).await?;
            }
            send(&self.run.inner, &run, Order::Resume).await?;
            Ok(Asked::Now)
        }
        .boxed()
    }
}

/// Says exactly what of a run still does not fit the newest code.
async fn check_fits(handle: &RunHandle, run: &Run) -> Result<()> {
    let known = definitions(&handle.inner, &run.of).await?;
    let own = handle.inner.registry.workflow(&run.of).map(|workflow| workflow.definition.clone());
    let newest = own.or_else(|| known.last().cloned());
    let is_function = |definition: &Definition| definition.style == wigwag_core::Style::Function;
    if newest.as_ref().is_some_and(|newest| newest.hash == run.definition_hash || is_function(newest)) {
        return Ok(());
    }
    let steps = run.error.as_ref().map(|error| error.incompatible_steps.clone()).unwrap_or_default();
    let named = steps.iter().map(|step| format!("`{step}`")).collect::<Vec<_>>().join(", ");
    let what = format!("run `{}` does not fit the code at {named}", handle.run.id);
    Err(Error::new(ErrorKind::Conflict, what).hint(format!(
        "migrate it: `wigwag migrate {} --rename OLD=NEW --skip STEP`; or put the old code back and resume with `--anyway`",
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
            send(&handle.inner, &run, Order::Restart { from, expected_seq }).await?;
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
            let handle = self.run;
            let mut run = handle.unfinished().await?;
            if run.status != Status::Paused {
                return Err(handle.not_now(&run, "is migrated while it is paused, but it is not"));
            }
            log::make_whole(&*handle.inner.store, &mut run).await?;
            let known = definitions(&handle.inner, &run.of).await?;
            let own = handle.inner.registry.workflow(&run.of).map(|workflow| workflow.definition.clone());
            let target = match &self.hash {
                Some(hash) => known.into_iter().find(|known| known.hash == *hash),
                None => own.or_else(|| known.into_iter().next_back()),
            };
            let target = target.ok_or_else(|| {
                let hash = self.hash.map(|hash| format!(" with the hash `{hash}`")).unwrap_or_default();
                Error::new(ErrorKind::NotFound, format!("no worker has stored a definition of `{}`{hash}", run.of))
            })?;
            version::migrate(&run, &target, &self.mapping)?;
            let (definition_hash, mapping, expected_seq) = (target.hash, self.mapping, run.seq);
            send(&handle.inner, &run, Order::Migrate { definition_hash, mapping, expected_seq }).await?;
            Ok(Asked::Now)
        }
        .boxed()
    }
}

/// What workers have known of a type, the newest last.
pub(super) async fn definitions(inner: &Inner, of: &TypeName) -> Result<Vec<Definition>> {
    let page = inner.store.list(&format!("definition/{of}/"), "", LIST_PAGE).await?;
    let mut listed = page.entries;
    listed.sort_by_key(|listed| listed.modified);
    let mut definitions = Vec::new();
    for listed in listed {
        if let Some(object) = inner.store.get(&listed.key).await?
            && let Ok(definition) = serde_json::from_slice::<Definition>(&object.body)
        {
            definitions.push(definition);
        }
    }
    Ok(definitions)
}

/// The stored definition of that hash, if any worker stored it.
pub(super) async fn definition_by_hash(inner: &Inner, of: &TypeName, hash: &str) -> Result<Option<Definition>> {
    let key = Key::Definition { of: of.clone(), hash: hash.into() }.to_string();
    let object = log::get_named(&*inner.store, &key).await?;
    Ok(object.and_then(|object| serde_json::from_slice(&object.body).ok()))
}

/// The definition that a run follows.
async fn definition_of(inner: &Inner, run: &Run) -> Result<Definition> {
    if let Some(workflow) = inner.registry.workflow(&run.of) {
        return Ok(workflow.definition.clone());
    }
    if run.task.is_some() {
        return Ok(Definition::task(run.of.clone()));
    }
    let known = definitions(inner, &run.of).await?;
    let own = known.into_iter().find(|known| known.hash == run.definition_hash);
    own.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no worker has stored the definition of `{}`", run.of)))
}

/// Puts the control object, then a hint due now; then it is acknowledged.
///
/// What if we die here? Without the hint the object is found when the run is looked at next; nobody was told yes.
pub(super) async fn send(inner: &Arc<Inner>, run: &Run, order: Order) -> Result<()> {
    let now = inner.now().await?;
    let id = format!("{:016x}", fastrand::u64(..));
    let control = Control { id: id.clone(), created_at: now.at, order };
    let key = format!("{}/signals/.control/{STAMP}_{id}.json", run.run);
    inner.store.write(Batch::new().put(key, control.to_json())).await?;
    let (hint, body) = inner.hint(&run.index_type(), &run.run, now.at);
    inner.store.write(Batch::new().put(Key::Due(hint).to_string(), body)).await?;
    if let Some(handle) = inner.active(&run.run) {
        _ = handle.poke(None);
    }
    Ok(())
}
