//! Folds the events of steps: their attempts, results and compensations.

use super::{Here, merge};
use crate::event::*;
use crate::{
    Chain, Children, CompensationError, Ending, Path, PointKind, PointStatus, Refusal, Run, RunRef, Status, Undoing,
    limits,
};

impl Run {
    pub(super) fn fold_step_started(&mut self, event: &StepStarted, here: Here) -> Result<(), Refusal> {
        self.forget_dropped_below(event);
        if let Some(point) = self.points.get_mut(&event.point).filter(|point| point.status == PointStatus::Retrying) {
            point.status = PointStatus::Running;
            (point.until, point.relative) = (event.deadline, false);
            point.attempt = event.attempt;
        } else {
            let point = self.open_point(&event.point, PointKind::Step, here)?;
            (point.attempt, point.compensate, point.until) = (event.attempt, event.compensate, event.deadline);
        }
        let children = event.task.clone().map(|id| Children::One(RunRef::task(id)));
        if let Some(point) = self.points.get_mut(&event.point) {
            point.children = children;
        }
        Ok(())
    }

    /// Forgets the waits that an earlier attempt of a step dropped: the next attempt may open them again.
    pub(super) fn forget_dropped_below(&mut self, event: &StepStarted) {
        if event.attempt < 2 {
            return;
        }
        let below = |path: &Path| *path != event.point && path.is_within(&event.point);
        let dropped: Vec<Path> = self
            .points
            .iter()
            .filter(|(path, point)| below(path) && point.is_dropped())
            .map(|(path, _)| path.clone())
            .collect();
        if !dropped.is_empty() {
            dropped.iter().for_each(|path| self.forget(path));
            self.take_back();
        }
    }

    pub(super) fn fold_step_completed(&mut self, event: &StepCompleted, here: Here) -> Result<(), Refusal> {
        let kind = if event.mark { PointKind::Mark } else { PointKind::Step };
        if event.mark {
            self.open_point(&event.point, kind, here)?;
        }
        self.of_kind(&event.point, kind)?.result = Some(event.result.clone());
        merge(&mut self.data, event.patch.as_ref());
        self.settle(&event.point, PointStatus::Completed, event.at, here)
    }

    pub(super) fn fold_step_failed(&mut self, event: &StepFailed, here: Here) -> Result<(), Refusal> {
        let point = self.of_kind(&event.point, PointKind::Step)?;
        point.error = Some(event.error.clone());
        point.attempt = event.attempt;
        point.interrupted = 0;
        if event.retry_at.is_none() && !event.held {
            return self.settle(&event.point, PointStatus::Failed, event.at, here);
        }
        point.status = PointStatus::Retrying;
        (point.until, point.relative) = (event.retry_at, true);
        Ok(())
    }

    pub(super) fn fold_compensation_started(&mut self, event: &CompensationStarted) -> Result<(), Refusal> {
        self.become_status(Status::Compensating)?;
        if self.chain.is_none() {
            let cause = event.cause.clone().ok_or_else(|| Refusal::new("the first says why"))?;
            if let Ending::Failed(error) = &cause {
                self.error = Some(error.clone());
            }
            self.chain = Some(Chain { cause, behind: 0, current: None });
            (self.pause, self.parked) = (None, false);
        }
        if !self.points.get(&event.point).is_some_and(|point| point.compensate) {
            return Err(Refusal::new(format!("`{}` cannot be undone", event.point)));
        }
        if let Some(chain) = &mut self.chain {
            chain.current = Some(Undoing { point: event.point.clone(), attempt: event.attempt, retry_at: None });
        }
        Ok(())
    }

    pub(super) fn fold_compensation_failed(&mut self, event: &CompensationFailed) -> Result<(), Refusal> {
        if let Some(at) = event.retry_at {
            let current = self.chain.as_mut().and_then(|chain| chain.current.as_mut());
            let current = current.filter(|current| current.point == event.point);
            let current = current.ok_or_else(|| Refusal::new(format!("`{}` is not being undone", event.point)))?;
            current.retry_at = Some(at);
            return Ok(());
        }
        self.undone(&event.point)?;
        if self.compensation_errors.len() < limits::current().compensation_errors_max {
            let error = event.error.clone().at(&event.point);
            self.compensation_errors.push(CompensationError { point: event.point.clone(), error });
        }
        Ok(())
    }

    /// Records that a step was compensated.
    pub(super) fn undone(&mut self, point: &Path) -> Result<(), Refusal> {
        match &mut self.chain {
            Some(chain) if chain.current.as_ref().is_some_and(|current| current.point == *point) => {
                chain.behind = chain.behind.saturating_add(1);
                chain.current = None;
                Ok(())
            }
            _ => Err(Refusal::new(format!("`{point}` is not being undone"))),
        }
    }
}
