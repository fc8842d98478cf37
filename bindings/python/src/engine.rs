//! Workers: an engine that runs the code of one event loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::failures::Outcome;
use crate::mailbox::{Mailbox, Post};
use crate::spec::WorkerSpec;
use crate::stores::StoreHandle;
use crate::{lock, runtime};

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// An engine that runs the code of one event loop.
#[pyclass(frozen, module = "wigwag._native")]
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    number: u64,
    process: u32,
    running: Mutex<Option<(Arc<StoreHandle>, wigwag::Engine)>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(lock(&self.running).take());
        } else if let Some((store, engine)) = lock(&self.running).take() {
            store.ended(self.number);
            // Dropping an engine ends its tasks, which belong to the runtime.
            if let Ok(runtime) = runtime() {
                let _entered = runtime.enter();
                drop(engine);
            }
        }
    }
}

#[pymethods]
impl Engine {
    #[new]
    fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::new(Shared { number, process: std::process::id(), running: Mutex::new(None) }) }
    }

    /// Starts it, and answers when it runs.
    fn start(&self, mailbox: &Mailbox, future: u64, url: String, spec: String) -> PyResult<()> {
        let (shared, post) = (Arc::clone(&self.shared), Arc::clone(&mailbox.post));
        runtime()?.spawn(async move {
            let outcome = match WorkerSpec::read(&spec) {
                Ok(spec) => Outcome::of_call(start(&shared, &post, url, spec).await),
                Err(refused) => Outcome::refused(&refused),
            };
            post.answer(future, outcome);
        });
        Ok(())
    }

    /// Stops it: running steps may end within the grace time. Answers when all runs are released.
    fn stop(&self, mailbox: &Mailbox, future: u64) -> PyResult<()> {
        let (shared, post) = (Arc::clone(&self.shared), Arc::clone(&mailbox.post));
        let running = lock(&shared.running).take();
        runtime()?.spawn(async move {
            if let Some((store, engine)) = running {
                store.ended(shared.number);
                engine.stop().await;
            }
            post.answer(future, Outcome::Ok("null".into()));
        });
        Ok(())
    }

    /// Stops it as a crash would.
    fn kill(&self) -> PyResult<()> {
        if let Some((store, engine)) = lock(&self.shared.running).take() {
            store.ended(self.shared.number);
            let _entered = runtime()?.enter();
            drop(engine);
        }
        Ok(())
    }

    /// How many runs it drives at the moment.
    fn active_runs(&self) -> usize {
        lock(&self.shared.running).as_ref().map_or(0, |(_, engine)| engine.active_runs())
    }
}

async fn start(shared: &Shared, post: &Arc<Post>, url: String, spec: WorkerSpec) -> wigwag::Result<Value> {
    crate::logs::follow(post);
    let store = crate::client::open(url).await?;
    let settings = spec.settings.settings()?;
    let builder = wigwag::Engine::on(store.opened()?).settings(settings);
    let engine = spec.add_to(builder, post).start().await?;
    store.began(shared.number, engine.client());
    *lock(&shared.running) = Some((store, engine));
    Ok(json!(null))
}
