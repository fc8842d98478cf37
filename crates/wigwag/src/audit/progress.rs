//! Runs that no worker moves on: turns that are rejected or die each time, and wake-ups that no worker follows.

use wigwag_core::audit::{Breach, Promise, Told};
use wigwag_core::{Entry, Event, Time};

use super::{Auditor, Hints, Looked};
use crate::limits::{AUDIT_UNDER_WAY_AGE, CLAIMS_IN_VAIN_MAX};
use crate::turn::UNRECORDABLE;

impl Auditor<'_> {
    /// A wake-up that is due is followed within a lease, if a worker serves its run: the run moves, or the wake-up is
    /// replaced by a later one.
    pub(super) fn wake_ups_move_it(&self, told: &Told, hints: &Hints, looked: &mut Looked) {
        let run = &told.run;
        let patience = self.inner.settings.lease * 2 + AUDIT_UNDER_WAY_AGE;
        let is_over = |at: Time| self.now.since(at) > patience;
        let overdue: Vec<Time> =
            hints.get(&run.run.id).into_iter().flatten().copied().filter(|due| is_over(*due)).collect();
        let (Some(first), true) = (overdue.first(), is_over(moved_at(told))) else { return };
        let (id, status, of) = (&run.run.id, run.status, &run.of);
        if run.status.is_final() {
            let what = format!(
                "run `{id}` has ended ({status}), and its wake-up of {first} is left: no worker serves `{of}`, or each \
                 gives up on it"
            );
            looked.untidy.push(Breach::new(Promise::WokenUp, what));
            return;
        }
        let more = match overdue.len() {
            1 => String::new(),
            count => format!(" ({count} wake-ups are overdue)"),
        };
        let what = format!(
            "run `{id}` ({status}) was due on {first}{more}, and has not moved: no worker serves `{of}`, or each gives up \
             on it (its log says why)"
        );
        looked.stuck.push(Breach::new(Promise::WokenUp, what));
    }
}

/// Names a run whose turns record nothing: the same turn is rejected, or kills its worker, each time.
pub(super) fn turns_in_vain(told: &Told) -> Option<Breach> {
    let run = &told.run;
    let rejected = run.error.as_ref().filter(|error| run.pause.is_some() && error.kind == UNRECORDABLE);
    let claims = claims_in_vain(&told.log);
    let what = match rejected {
        Some(error) => format!("is paused: the same turn would be rejected again: {}", error.message),
        None if claims >= CLAIMS_IN_VAIN_MAX && !run.status.is_final() => format!(
            "was claimed {claims} times in a row, and nothing else was recorded: each turn is rejected, or kills its \
             worker (the log of the worker says why)"
        ),
        None => return None,
    };
    let what = format!("run `{}` ({}) {what}", run.run.id, run.status);
    Some(Breach::new(Promise::WokenUp, what))
}

/// Whether an entry records a claim or a renewal, and nothing else.
fn only_claims(entry: &Entry) -> bool {
    entry.events.iter().all(|event| matches!(event, Event::RunClaimed(_)))
}

/// When the run last recorded more than a claim.
fn moved_at(told: &Told) -> Time {
    told.log.iter().rev().find(|entry| !only_claims(entry)).map_or(told.run.updated_at, |entry| entry.at)
}

/// Number of claims at the end of a log, each of which follows a lease of another worker or an expired lease, without
/// anything else between them. A worker that renews its lease does not count.
fn claims_in_vain(log: &[Entry]) -> usize {
    let (mut lease, mut count) = (None::<(&str, Time)>, 0);
    for entry in log {
        if !only_claims(entry) {
            count = 0;
        }
        for event in &entry.events {
            match event {
                Event::RunClaimed(claim) => {
                    let is_renewal = lease.is_some_and(|(owner, until)| owner == claim.owner && entry.at < until);
                    count += usize::from(only_claims(entry) && !is_renewal);
                    lease = Some((claim.owner.as_str(), claim.until));
                }
                Event::RunParked(_) => lease = None,
                _ => {}
            }
        }
    }
    count
}
