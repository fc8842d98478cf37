//! Panics that somebody caught: a worker survives one in a turn, and a store one in its thread; a fuzz target must not.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn seen() -> Vec<String> {
    std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs it, and fails if anything panicked meanwhile, on whatever thread and whoever caught it.
///
/// # Panics
///
/// If anything did.
pub fn without_panics(run: impl FnOnce()) {
    // There is one hook for all threads: tests that share a process take turns.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    seen();
    let before = take_hook();
    set_hook(Box::new(|info| SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string())));
    let outcome = catch_unwind(AssertUnwindSafe(run));
    set_hook(before);
    let seen = seen();
    assert!(seen.is_empty() && outcome.is_ok(), "{}", seen.join("\n"));
}
