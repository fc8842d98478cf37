//! Cache of signals that no open wait of their run accepts, so that they are not read again at every wake-up.
//!
//! Whether a wait accepts a signal depends on the signal and on the settings of the wait, and neither ever changes. So
//! a cached result for one set of open waits stays valid until another wait of that name is opened.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use wigwag_core::{Inboxes, Name, Path, Run, RunRef};

use crate::engine_core::lock;
use crate::limits::MISFITS_CACHED_MAX;

/// The signals of one inbox that none of these waits accepts.
#[derive(Debug, Default)]
struct Misfits {
    waits: BTreeSet<(Path, u64)>,
    signals: BTreeSet<String>,
}

/// Signals that no open wait of their run accepts.
#[derive(Debug, Default)]
pub(crate) struct MisfitCache {
    inboxes: Mutex<HashMap<(RunRef, Name), Misfits>>,
}

/// The open waits for a name, each by its path and the entry that opened it.
fn waits_for(run: &Run, name: &Name) -> BTreeSet<(Path, u64)> {
    let waits = run.waits().filter_map(|(path, point)| Some((path, point.wait.as_deref()?)));
    waits.filter(|(_, wait)| wait.name == *name).map(|(path, wait)| (path.clone(), wait.seq)).collect()
}

impl MisfitCache {
    /// Marks the signals of a scan that need no read.
    pub(crate) fn mark(&self, run: &Run, found: &mut Inboxes) {
        let inboxes = lock(&self.inboxes);
        for (name, seen) in &mut found.names {
            if let Some(known) = inboxes.get(&(run.run.clone(), name.clone()))
                && waits_for(run, name).is_subset(&known.waits)
            {
                seen.misfits = known.signals.intersection(&seen.suffixes).cloned().collect();
            }
        }
    }

    /// Caches the signals that were read and that no open wait accepts, according to `fits`.
    pub(crate) fn remember(
        &self,
        run: &Run,
        found: &Inboxes,
        fits: impl Fn(&Path, &wigwag_core::Wait, &wigwag_core::Signal) -> bool,
    ) {
        for (name, seen) in found.names.iter().filter(|(_, seen)| !seen.signals.is_empty()) {
            let waits = run.waits_in_order().into_iter().filter(|(_, _, wait)| wait.name == *name);
            let waits: Vec<_> = waits.collect();
            // A signal for a single wait must be read again, to check whether that wait has ended.
            let is_misfit = |signal: &wigwag_core::Signal| {
                let is_for_any = signal.only.is_none() && signal.point.is_none();
                is_for_any && waits.iter().all(|(path, _, wait)| !fits(path, wait, signal))
            };
            let unread = seen.signals.iter().filter(|(suffix, _)| !seen.misfits.contains(*suffix));
            let misfits: BTreeSet<String> =
                unread.filter(|(_, signal)| is_misfit(signal)).map(|(suffix, _)| suffix.clone()).collect();
            if misfits.is_empty() || waits.is_empty() {
                continue;
            }
            let mut inboxes = lock(&self.inboxes);
            if inboxes.values().map(|known| known.signals.len()).sum::<usize>() + misfits.len() > MISFITS_CACHED_MAX {
                inboxes.clear();
            }
            let known = inboxes.entry((run.run.clone(), name.clone())).or_default();
            let open = waits_for(run, name);
            if !open.is_subset(&known.waits) {
                *known = Misfits { waits: open, signals: BTreeSet::new() };
            }
            known.signals.extend(misfits);
        }
    }

    /// Forgets a run that ended.
    pub(crate) fn forget(&self, run: &RunRef) {
        lock(&self.inboxes).retain(|(of, _), _| of != run);
    }
}
