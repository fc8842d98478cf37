//! Folds the events of waits: they open, consume signals, time out and close.

use super::{Here, merge};
use crate::event::*;
use crate::{Event, Mode, PointKind, PointStatus, Refusal, Run, Wait};

impl Run {
    pub(super) fn fold_signal(&mut self, event: &Event, here: Here) -> Result<(), Refusal> {
        match event {
            Event::SignalWaiting(event) => {
                let SignalWaiting { point, name, deadline, relative, mode, quorum, authenticated, race, schema, about } =
                    event.clone();
                let wait = Wait {
                    name,
                    seq: here.seq,
                    place: here.place,
                    mode,
                    quorum,
                    authenticated,
                    race,
                    schema,
                    about,
                    again: None,
                    received: Vec::new(),
                };
                let open = self.open_point(&point, PointKind::Wait, here)?;
                (open.wait, open.until, open.relative) = (Some(Box::new(wait)), deadline, relative);
            }
            Event::SignalReceived(event) => self.fold_received(event, here)?,
            Event::SignalRefused(SignalRefused { point, attempt, error, retry_at, .. }) => {
                let open = self.of_kind(point, PointKind::Wait)?;
                (open.attempt, open.error) = (*attempt, Some(error.clone()));
                if let Some(wait) = &mut open.wait {
                    wait.again = Some(*retry_at);
                }
            }
            Event::SignalTimeout(SignalTimeout { point, at, error, patch }) => {
                self.of_kind(point, PointKind::Wait)?.error.clone_from(error);
                merge(&mut self.data, patch.as_ref());
                let status = if error.is_some() { PointStatus::Failed } else { PointStatus::Completed };
                self.settle(point, status, *at, here)?;
            }
            Event::SignalClosed(SignalClosed { point, why, at }) => {
                self.of_kind(point, PointKind::Wait)?.close(*why);
                self.settle(point, PointStatus::Skipped, *at, here)?;
            }
            Event::SignalLate(SignalLate { name, signal, control, refused }) => {
                self.remember(Some(control), here);
                if refused.is_none() {
                    self.signals.entry(name.clone()).or_default().late.insert(signal.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn fold_received(&mut self, event: &SignalReceived, here: Here) -> Result<(), Refusal> {
        let SignalReceived { point, name, signals, at, payload, patch, cursor, floor } = event;
        let open = self.of_kind(point, PointKind::Wait)?;
        let wait = open.wait.as_deref().filter(|wait| wait.name == *name && !signals.is_empty());
        let mode = wait.ok_or_else(|| Refusal::new(format!("`{point}` does not wait for `{name}`")))?.mode;
        let inbox = self.signals.entry(name.clone()).or_default();
        let forgotten = deliberate_bug!(DedupForgotten);
        if let Some(twice) = signals.iter().find(|taken| inbox.taken.contains(&taken.signal)).filter(|_| !forgotten) {
            return Err(Refusal::new(format!("signal `{}` was taken before", twice.signal)));
        }
        inbox.take(signals, cursor, floor);
        if mode == Mode::Latest {
            inbox.late.retain(|late| *late > inbox.cursor);
        }
        let open = self.of_kind(point, PointKind::Wait)?;
        open.result = Some(payload.clone());
        if let Some(wait) = &mut open.wait {
            wait.received.clone_from(signals);
        }
        merge(&mut self.data, patch.as_ref());
        self.settle(point, PointStatus::Completed, *at, here)
    }
}
