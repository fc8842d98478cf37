//! The recorded points of a run: opened, settled, forgotten and renamed.

use super::Here;
use crate::event::Closing;
use crate::{Path, Point, PointKind, PointStatus, Refusal, Run, Time, limits};

impl Run {
    pub(super) fn open_point(&mut self, path: &Path, kind: PointKind, here: Here) -> Result<&mut Point, Refusal> {
        let max = limits::current().points_max;
        if self.points.len() >= max {
            return Err(Refusal::new(format!("a run has at most {max} points")));
        }
        if let Some(point) = self.points.get(path) {
            return Err(Refusal::new(format!("point `{path}` is there already: {} {}", point.kind, point.status)));
        }
        self.open.insert(path.clone());
        let point = Point {
            kind,
            status: PointStatus::Running,
            attempt: 1,
            started_at: Some(here.at),
            ended_at: None,
            result: None,
            error: None,
            closing: None,
            until: None,
            relative: false,
            compensate: false,
            children: None,
            wait: None,
            interrupted: 0,
            seq: here.seq,
            place: here.place,
        };
        Ok(self.points.entry(path.clone()).or_insert(point))
    }

    /// Returns the open point at a path; an error if its kind differs.
    pub(super) fn of_kind(&mut self, path: &Path, kind: PointKind) -> Result<&mut Point, Refusal> {
        match self.points.get_mut(path) {
            Some(point) if point.kind == kind && !point.status.is_settled() => Ok(point),
            Some(point) => {
                Err(Refusal::new(format!("point `{path}` is no open {kind}: {} {}", point.kind, point.status)))
            }
            None => Err(Refusal::new(format!("there is no point `{path}`"))),
        }
    }

    pub(super) fn settle(&mut self, path: &Path, status: PointStatus, at: Time, here: Here) -> Result<(), Refusal> {
        let point = self.points.get_mut(path).filter(|point| !point.status.is_settled());
        let point = point.ok_or_else(|| Refusal::new(format!("there is no open point `{path}`")))?;
        point.status = status;
        point.ended_at = Some(at);
        (point.until, point.relative, point.interrupted) = (None, false, 0);
        (point.seq, point.place) = (here.seq, here.place);
        if status == PointStatus::Completed {
            point.error = None;
        }
        self.open.remove(path);
        self.unrolled.push(path.clone());
        Ok(())
    }

    /// Moves offloaded points back into the snapshot: they may have changed, and they are all in memory here.
    pub(super) fn take_back(&mut self) {
        self.rolled.clear();
        let mut settled: Vec<(&Path, &Point)> =
            self.points.iter().filter(|(_, point)| point.status.is_settled()).collect();
        settled.sort_by_key(|(_, point)| (point.seq, point.place));
        self.unrolled = settled.into_iter().map(|(path, _)| path.clone()).collect();
    }

    /// Returns the recorded points at a path and below it.
    pub(super) fn within(&self, path: &Path) -> Vec<Path> {
        let from = self.points.range(path.clone()..).map(|(point, _)| point);
        let alike = from.take_while(|point| point.as_str().starts_with(path.as_str()));
        alike.filter(|point| point.is_within(path)).cloned().collect()
    }

    /// Removes a record. The caller must call `take_back` for offloaded points.
    pub(super) fn forget(&mut self, path: &Path) {
        if let Some(wait) = self.points.remove(path).and_then(|point| point.wait)
            && let Some(inbox) = self.signals.get_mut(&wait.name)
        {
            inbox.keep_taken(&wait.received);
        }
        self.open.remove(path);
    }

    /// Renames a record. The caller must call `take_back` for offloaded points.
    pub(super) fn rename(&mut self, old: &Path, new: &Path) -> Result<(), Refusal> {
        if self.points.contains_key(new) {
            return Err(Refusal::new(format!("point `{new}` is there already")));
        }
        if let Some(point) = self.points.remove(old) {
            if self.open.remove(old) {
                self.open.insert(new.clone());
            }
            self.points.insert(new.clone(), point);
        }
        Ok(())
    }
}

impl Point {
    /// Closes the point before it has an outcome. The stored error gives the reason.
    pub(super) fn close(&mut self, why: Closing) {
        (self.closing, self.error) = (Some(why), Some(why.fault()));
    }

    /// Whether this is a wait that was closed by the end of its run.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.closing, Some(Closing::Cancelled | Closing::Finished))
    }

    /// Whether the wait was closed because no step needed it any more.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.closing == Some(Closing::Lost)
    }
}
