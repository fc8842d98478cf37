//! A store that the command opens itself, with the engine's client.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use wigwag::{
    Asked, Client, Consumed, Counts, Filter, Follow, OpenWait, Payload, PruneOptions, Pruned, Receipt, Retry,
    RunHandle, SignalCall, SignalView, Swept, WaitingRuns,
};
use wigwag_core::{Data, Definition, Entry, Explanation, Family, Name, Path, Point, Run, RunRef, TypeName};
use wigwag_server::Code;

use super::{
    Ask, Link, Listing, Log, MadeLink, Message, NewLink, NewRun, NewTask, Progress, Result, Taken, Target, Which,
};
use crate::error::Failed;

/// Channel of the signals sent by this command.
const VIA: &str = "cli";

/// A store accessed directly.
#[derive(Debug)]
pub(crate) struct Local(pub(crate) Client);

impl Local {
    fn handle(&self, run: &RunRef) -> Result<RunHandle> {
        Ok(match run.family {
            Family::Workflow => self.0.run(&run.id),
            Family::Task => self.0.task(&run.id),
        }?)
    }

    fn call(&self, run: &RunRef, message: &Message) -> Result<SignalCall> {
        let mut call = self.handle(run)?.signal(&message.name, &message.payload).via(VIA);
        if let Some(key) = &message.key {
            call = call.key(key);
        }
        if let Some(by) = &message.by {
            call = call.by(by);
        }
        if message.only_if_waiting {
            call = call.only_if_waiting();
        }
        if let Some(point) = &message.point {
            call = call.point(point);
        }
        if let Some((of, input)) = &message.start {
            call = call.start_if_absent(of, input);
        }
        Ok(call)
    }
}

/// Returns the type under which the store lists a run; for a task, it includes the queue.
fn type_in_lists(which: &Which) -> std::result::Result<Option<String>, wigwag_core::Refusal> {
    let Some(name) = &which.of else { return Ok(None) };
    let mut of = TypeName::new(name)?;
    if which.tasks {
        of = TypeName::of_task(&Name::new(&which.queue)?, &of)?;
    }
    Ok(Some(of.to_string()))
}

fn taken(consumed: Consumed) -> Taken {
    let Consumed { receipt, point, at, status, next, .. } = consumed;
    Taken { receipt, point, at, status, next }
}

fn facts(link: &wigwag::Link) -> Link {
    let (run, name) = (link.run.to_string(), link.name.to_string());
    Link { run, name, expires: link.expires, once: link.once }
}

#[async_trait(?Send)]
impl Target for Local {
    async fn start(&self, new: NewRun) -> Result<(RunRef, Vec<String>)> {
        let mut call = self.0.start(&new.of, &new.input);
        if let Some(id) = new.id {
            call = call.id(id);
        }
        if let Some(at) = new.at {
            call = call.at(at);
        }
        if let Some(delay) = new.delay {
            call = call.delay(delay);
        }
        let handle = call.await?;
        Ok((RunRef::workflow(handle.id().clone()), handle.warnings().to_vec()))
    }

    async fn submit(&self, new: NewTask) -> Result<RunRef> {
        let mut call = self.0.submit(&new.of, &new.input).queue(new.queue);
        if let Some(key) = new.key {
            call = call.key(key);
        }
        if let Some(retries) = new.retries {
            call = call.retry(Retry::times(retries));
        }
        if let Some(timeout) = new.timeout {
            call = call.timeout(timeout);
        }
        if let Some(at) = new.at {
            call = call.at(at);
        }
        if let Some(delay) = new.delay {
            call = call.delay(delay);
        }
        if let Some(expires) = new.expires {
            call = call.expires_in(expires);
        }
        Ok(RunRef::task(call.await?.id().clone()))
    }

    async fn get(&self, run: &RunRef) -> Result<Run> {
        Ok(self.handle(run)?.get().await?.run().clone())
    }

    async fn diagnose(&self, run: &Run) -> Result<Vec<String>> {
        Ok(self.0.diagnose(run).await?)
    }

    async fn whole(&self, mut run: Run, input: bool) -> Result<Run> {
        let handle = self.handle(&run.run)?;
        if let Some(Data::Blob(_)) = run.result {
            run.result = handle.output_payload().await?.map(Data::Inline);
        }
        if input && let Data::Blob(_) = run.input {
            run.input = Data::Inline(handle.input().await?);
        }
        Ok(run)
    }

    async fn steps(&self, run: &RunRef, whole: bool) -> Result<Vec<(Path, Point)>> {
        let handle = self.handle(run)?;
        let mut points: Vec<(Path, Point)> = handle.steps().await?.into_iter().collect();
        for (path, point) in points.iter_mut().filter(|_| whole) {
            if let Some(Data::Blob(_)) = point.result {
                let text: Box<RawValue> = handle.output(path.as_str()).await?;
                point.result = Payload::parse(text.get()).ok().map(Data::Inline);
            }
        }
        Ok(points)
    }

    async fn history(&self, run: &RunRef, from: u64, limit: u64) -> Result<Vec<Entry>> {
        Ok(self.handle(run)?.history(from, limit).await?)
    }

    async fn follow(&self, run: &RunRef, from: u64) -> Result<Box<dyn Log>> {
        Ok(Box::new(LocalLog(self.handle(run)?.follow(from))))
    }

    async fn list(&self, which: &Which) -> Result<Listing> {
        let mut filter = Filter::default();
        filter.of = type_in_lists(which).map_err(wigwag::Error::from)?;
        filter.statuses = which.status.into_iter().collect();
        filter.tasks = which.tasks;
        filter.limit = which.limit.into();
        filter.after.clone_from(&which.after);
        let listing = self.0.list(&filter).await?;
        let unreadable = listing.unreadable.iter().map(ToString::to_string).collect();
        Ok(Listing { runs: listing.runs, next: listing.next, unreadable })
    }

    async fn counts(&self) -> Result<Counts> {
        Ok(self.0.counts().await?)
    }

    async fn waiting(&self, name: Option<&Name>, limit: usize, after: Option<&str>) -> Result<WaitingRuns> {
        Ok(match name {
            Some(name) => self.0.runs_waiting_for(name.as_str(), limit, after).await?,
            None => self.0.waiting_runs(limit, after).await?,
        })
    }

    async fn open_waits(&self, run: &RunRef) -> Result<Vec<OpenWait>> {
        Ok(self.handle(run)?.waiting().await?)
    }

    async fn explain(&self, run: &RunRef) -> Result<Explanation> {
        Ok(self.handle(run)?.explain().await?)
    }

    async fn signals(&self, run: &RunRef, name: Option<&Name>) -> Result<Vec<SignalView>> {
        Ok(self.handle(run)?.signals(name.map(Name::as_str)).await?)
    }

    async fn signal(&self, run: &RunRef, message: &Message) -> Result<Receipt> {
        Ok(self.call(run, message)?.await?)
    }

    async fn signal_and_wait(&self, run: &RunRef, message: &Message, span: Duration) -> Result<Taken> {
        Ok(taken(self.call(run, message)?.and_wait(span).await?))
    }

    async fn signal_many(&self, runs: &[RunRef], message: &Message) -> Vec<Result<Receipt>> {
        let mut calls = Vec::with_capacity(runs.len());
        for run in runs {
            match self.call(run, message) {
                Ok(call) => calls.push(call),
                Err(failed) => return runs.iter().map(|_| Err(failed.clone())).collect(),
            }
        }
        self.0.signal_many(calls).await.into_iter().map(|outcome| outcome.map_err(Failed::from)).collect()
    }

    async fn make_link(&self, new: &NewLink) -> Result<MadeLink> {
        // A link cannot start a run: one for a missing or finished run would be useless.
        let (id, status) = (&new.run, self.0.run(&new.run)?.status().await?);
        if status.is_final() {
            return Err(Failed::of(Code::NotRunning, format!("run `{id}` has already finished: `{status}`")));
        }
        let call = self.0.link(id, &new.name, new.expires);
        let call = if new.once { call.once() } else { call };
        let call = if let Some(sender) = &new.sender { call.sender(sender) } else { call };
        let token = call.token().await?;
        let link = facts(&self.0.read_link(&token).await?);
        Ok(MadeLink { token, url: None, link })
    }

    async fn read_link(&self, token: &str) -> Result<Link> {
        Ok(facts(&self.0.read_link(token).await?))
    }

    async fn revoke_link(&self, token: &str) -> Result<bool> {
        let link = self.0.verify_link(token)?;
        Ok(self.0.revoke_link(link.run.as_str(), &link.id).await?)
    }

    async fn ask(&self, run: &RunRef, ask: &Ask) -> Result<Asked> {
        let handle = self.handle(run)?;
        Ok(match ask {
            Ask::Cancel { reason: Some(reason) } => handle.cancel().reason(reason).await?,
            Ask::Cancel { reason: None } => handle.cancel().await?,
            Ask::Pause => handle.pause().await?,
            Ask::Resume { anyway: true } => handle.resume().anyway().await?,
            Ask::Resume { anyway: false } => handle.resume().await?,
            Ask::Restart { from: Some(step) } => handle.restart().from(step).await?,
            Ask::Restart { from: None } => handle.restart().await?,
            Ask::Migrate { rename, skip, to } => {
                let call = rename.iter().fold(handle.migrate(), |call, (old, new)| call.rename(old, new));
                let call = skip.iter().fold(call, |call, step| call.skip(step));
                let call = if let Some(hash) = to { call.to(hash) } else { call };
                call.await?
            }
        })
    }

    async fn definitions(&self, of: &str) -> Result<Vec<Definition>> {
        Ok(self.0.definitions(of).await?)
    }

    async fn result(&self, run: &RunRef, timeout: Option<Duration>) -> Result<Payload> {
        let handle = self.handle(run)?;
        handle.wait_for(timeout).await?;
        Ok(handle.result_payload().await?)
    }

    async fn sweep(&self, dry_run: bool) -> Result<Swept> {
        Ok(self.0.sweep(dry_run).await?)
    }

    async fn prunable(&self, options: &PruneOptions) -> Result<Option<usize>> {
        Ok(Some(self.0.prunable(options).await?))
    }

    async fn prune(&self, options: &PruneOptions, progress: Progress<'_>) -> Result<Pruned> {
        Ok(self.0.prune_with(options, progress).await?)
    }
}

struct LocalLog(Follow);

#[async_trait(?Send)]
impl Log for LocalLog {
    async fn next(&mut self) -> Result<Option<Vec<Entry>>> {
        Ok(self.0.next().await?)
    }
}
