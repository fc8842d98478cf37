"""Settings as plain data."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

from .errors import _seconds

__all__ = ["Retry", "Settings"]


@dataclasses.dataclass(frozen=True)
class Retry:
    """How a step is tried again: the first delay, its growth, the longest, and by which share each may differ."""

    retries: int = 3
    first: timedelta | float = 1.0
    factor: float = 2.0
    cap: timedelta | float = 60.0
    jitter: float = 0.25

    def _told(self) -> dict[str, Any]:
        return {
            "retries": self.retries,
            "first": _seconds(self.first),
            "factor": self.factor,
            "cap": _seconds(self.cap),
            "jitter": self.jitter,
        }


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a worker behaves. The defaults are right for most. Spans are `timedelta` or seconds."""

    #: How long a worker may be silent before another takes its runs; on one machine its end is noticed at once.
    lease: timedelta | float = 30.0
    #: A run whose next moment is nearer than this stays in memory instead of being parked.
    linger: timedelta | float = 0.1
    #: How long running steps may continue after a cancel, or when the worker stops.
    grace: timedelta | float = 10.0
    #: The shortest and longest interval between two scans of the store for work.
    look_min: timedelta | float = 0.1
    look_max: timedelta | float = 10.0
    #: How often the sweeper looks for what should not be there.
    sweep_every: timedelta | float = 300.0
    #: How long finished runs are kept; without limit if `None`.
    keep: timedelta | float | None = None
    #: What signs resume links; none can be made or used without it.
    link_secret: str | None = dataclasses.field(default=None, repr=False)

    def _told(self) -> dict[str, Any]:
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {n: v if n == "link_secret" or v is None else _seconds(v) for n, v in told.items()}


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """How a task is run."""

    queue: str | None = None
    idempotency_key: str | None = None
    retries: int | None = None
    retry: Retry | None = None
    timeout: timedelta | float | None = None
    delay: timedelta | float | None = None
    schedule_at: datetime | None = None
    expires_at: datetime | None = None
    expires_in: timedelta | float | None = None

    def _told(self) -> dict[str, Any]:
        from .context import text_of_moment

        told: dict[str, Any] = {"queue": self.queue, "key": self.idempotency_key}
        if self.retry is not None or self.retries is not None:
            told["retry"] = dict(self.retry._told() if self.retry else {})
            if self.retries is not None:
                told["retry"]["retries"] = self.retries
        for name in ("timeout", "delay", "expires_in"):
            if (span := getattr(self, name)) is not None:
                told[name] = _seconds(span)
        if self.schedule_at is not None:
            told["at"] = text_of_moment(self.schedule_at)
        if self.expires_at is not None:
            told["expires_at"] = text_of_moment(self.expires_at)
        return {name: value for name, value in told.items() if value is not None}
