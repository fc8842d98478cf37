//! Detects caught panics: a worker catches those in a turn, and a store those in its thread; a fuzz target
//! must fail on either.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn seen() -> Vec<String> {
    std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a closure, and panics if any thread panicked during the call, even if the panic was caught.
///
/// # Panics
///
/// If any thread panicked.
pub fn without_panics(run: impl FnOnce()) {
    // The panic hook is global, so tests that share a process take turns.
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
