//! Descriptors of the files that this process has locked.
//!
//! An OS lock belongs to the open file, which a forked child shares: while a child lives that never opened the store, the
//! lock of its dead parent stays. So the child must give the descriptors up.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Mutex;

static LOCKED: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Entry of one file in the list, for as long as this lives.
#[derive(Debug)]
pub(super) struct Listed(RawFd);

impl Listed {
    pub(super) fn new(file: &File) -> Self {
        let descriptor = file.as_raw_fd();
        if let Ok(mut locked) = LOCKED.lock() {
            locked.insert(descriptor);
        }
        Self(descriptor)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Ok(mut locked) = LOCKED.lock() {
            locked.remove(&self.0);
        }
    }
}

/// Returns the descriptors of files that this process has locked for embedded stores.
///
/// For programs that fork without replacing themselves, such as those in Python: the child replaces each by one of
/// `/dev/null` (`dup2`), uses no inherited handle, and opens the store again. Until it does so the death of the parent
/// is noticed only when its leases run out.
#[must_use]
pub fn lock_descriptors() -> Vec<RawFd> {
    // Another thread of the parent may have held the list at the fork; in the child no thread would release it.
    LOCKED.try_lock().map(|locked| locked.iter().copied().collect()).unwrap_or_default()
}
