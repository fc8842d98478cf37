//! Locations of panics: kept by a hook for the thread that catches the panic, because a caught panic does
//! not contain it.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `poll` so that the location of a panic in it is kept instead of printed.
pub(crate) fn catch<T>(poll: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CATCHING.get() {
                return before(info);
            }
            let place = info.location().map(|place| format!("at {place}\n")).unwrap_or_default();
            let trace = Backtrace::capture();
            let trace = matches!(trace.status(), std::backtrace::BacktraceStatus::Captured).then(|| trace.to_string());
            LAST.set(Some(format!("{place}{}", trace.unwrap_or_default())));
        }));
    });
    let outer = CATCHING.replace(true);
    let outcome = panic::catch_unwind(panic::AssertUnwindSafe(poll));
    CATCHING.set(outer);
    outcome
}

/// Location and backtrace of the last caught panic of this thread.
pub(crate) fn take_backtrace() -> Option<String> {
    LAST.take().map(|text| text.trim_end().to_owned()).filter(|text| !text.is_empty())
}
