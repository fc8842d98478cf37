//! The native half of the Python package `wigwag`.
//!
//! Holds: no thread of the engine ever takes the GIL. What Python is to know lies in a mailbox that its event loop empties;
//! what Python says comes in batches from the thread of that loop. Rust holds numbers, and Python the objects behind them.

mod client;
mod engine;
mod failures;
mod handlers;
mod kit;
mod logs;
mod mailbox;
mod ops;
mod points;
mod scope;
mod server;
mod spec;
mod stores;

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tokio::runtime::Runtime;
use wigwag_store::limits::NOTIFY_FLUSH_MAX;

/// A guard of shared state. A thread that panicked left it as it was between two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runtime of a process. A forked child has none of its parent's threads, and starts another.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// Returns the runtime of this process, and starts it at the first use.
pub(crate) fn runtime() -> std::io::Result<&'static Runtime> {
    let mut runtime = lock(&RUNTIME);
    let own = std::process::id();
    if let Some((process, runtime)) = *runtime
        && process == own
    {
        return Ok(runtime);
    }
    let threads = std::env::var("WIGWAG_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_usize);
    let made = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.clamp(1, 64))
        .thread_name("wigwag")
        .enable_all()
        .build()?;
    // It lives as long as the process: threads that end while an interpreter ends are none of ours.
    let made: &'static Runtime = Box::leak(Box::new(made));
    *runtime = Some((own, made));
    Ok(made)
}

/// Delivers the pending notifications of this process, for at most a second. A forked child that used no store has none.
fn flush() {
    let runtime = *lock(&RUNTIME);
    if let Some((process, runtime)) = runtime
        && process == std::process::id()
    {
        runtime.block_on(wigwag_store::flush_notifications(&wigwag_store::System, NOTIFY_FLUSH_MAX));
    }
}

/// The functions of this module are called by the Python package alone.
#[pymodule(gil_used = false)]
mod _native {
    use std::ffi::OsString;

    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::kit::Kit;
    #[pymodule_export]
    use crate::mailbox::Mailbox;

    /// Runs the command `wigwag` with these arguments, of which the first is its name; returns the exit code.
    #[pyfunction]
    fn main(py: Python<'_>, args: Vec<OsString>) -> u8 {
        py.detach(|| wigwag_cli::run(args))
    }

    /// Delivers pending notifications: called before the interpreter ends.
    #[pyfunction]
    fn flush(py: Python<'_>) {
        py.detach(crate::flush);
    }

    /// Returns the version of the engine.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Returns the names of all kinds of errors.
    #[pyfunction]
    fn error_kinds() -> Vec<String> {
        wigwag::ErrorKind::ALL.iter().map(|kind| format!("{kind:?}")).collect()
    }

    /// Returns all error codes of servers, each with the kind of error that it is here.
    #[pyfunction]
    fn server_codes() -> Vec<(String, &'static str)> {
        let codes = wigwag_server::Code::ALL.iter();
        codes.map(|code| (code.name().to_owned(), crate::failures::kind_of(*code))).collect()
    }

    /// Returns descriptors of locked files that a forked child must replace.
    #[pyfunction]
    fn lock_descriptors() -> Vec<i32> {
        wigwag_store::lock_descriptors()
    }
}
