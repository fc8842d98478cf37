"""Errors that users' code raises, and errors of calls.

Every class of a call has `code`, the name of its kind; `hint`, what helps; and `fault`, what is recorded of a run that
failed. `str(error)` has the hint on a second line.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Mapping

__all__ = [
    "AccessDenied",
    "Conflict",
    "Damaged",
    "EngineStopped",
    "Fault",
    "Forked",
    "InvalidCall",
    "InvalidName",
    "InvalidPayload",
    "NotRunning",
    "NotWaiting",
    "PermanentError",
    "RejectedSender",
    "RetryableError",
    "RunCancelled",
    "RunFailed",
    "RunGone",
    "RunNotFound",
    "SignalTimeout",
    "StepFailed",
    "StoreUnavailable",
    "UnknownPoint",
    "WaitTimeout",
    "WigwagError",
]

_DETAIL_BYTES = 8 * 1024


@dataclass(frozen=True)
class Fault:
    """The recorded facts of a failure."""

    kind: str
    message: str
    detail: str | None = None
    step: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def traceback(self) -> str | None:
        """The traceback, cut to 8 KiB, if it was a Python exception."""
        return self.detail

    @classmethod
    def _of(cls, raw: Mapping[str, Any]) -> Fault:
        return cls(str(raw.get("type", "")), str(raw.get("message", "")), raw.get("detail"), raw.get("point"), raw)


class RetryableError(Exception):
    """Raised in a step: another attempt may help. `after` says when it begins, instead of the step's retry policy."""

    def __init__(self, message: object = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = after


class PermanentError(Exception):
    """Raised in a step: no other attempt helps. The step fails, and completed steps are compensated."""


class WigwagError(Exception):
    """A call that did not succeed."""

    code = "Error"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        fault: Fault | None = None,
        fields: list[dict[str, str]] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fault = fault
        self.fields = fields or []

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class RunNotFound(WigwagError, LookupError):
    """There is no such run. Check the id."""

    code = "NotFound"


class RunGone(WigwagError, LookupError):
    """There was such a run, and retention removed it."""

    code = "Gone"


class Conflict(WigwagError):
    """The id or key is taken by something else."""

    code = "Conflict"


class NotRunning(WigwagError):
    """The run is not in a state in which this can be done."""

    code = "NotRunning"


class InvalidCall(WigwagError, ValueError):
    """The call cannot succeed as it is written."""

    code = "Invalid"


class InvalidName(InvalidCall):
    """That is no name for a signal."""

    code = "InvalidName"


class InvalidPayload(InvalidCall):
    """The payload is too large, or does not look as its receiver wants it."""

    code = "InvalidPayload"

    @property
    def path(self) -> str:
        """The part that does not fit: a JSON pointer; empty for the payload itself."""
        return self.fields[0]["path"] if self.fields else ""


class RejectedSender(WigwagError):
    """The run takes that signal of authenticated senders only."""

    code = "RejectedSender"


class NotWaiting(WigwagError):
    """The run does not wait for that signal now, and it was to be sent only if it does."""

    code = "NotWaiting"


class UnknownPoint(WigwagError):
    """The run does not wait at that step."""

    code = "UnknownPoint"


class RunFailed(WigwagError):
    """The run failed; `fault` says why, and `step` where."""

    code = "RunFailed"

    @property
    def step(self) -> str | None:
        """The step that failed."""
        return self.fault.step if self.fault else None

    @property
    def traceback(self) -> str | None:
        """The traceback of what failed, if it was a Python exception."""
        return self.fault.traceback if self.fault else None


class RunCancelled(WigwagError):
    """The run was cancelled."""

    code = "RunCancelled"


class WaitTimeout(WigwagError, TimeoutError):
    """It did not happen in the time given."""

    code = "TimedOut"


class EngineStopped(WigwagError):
    """The engine is stopping."""

    code = "Stopped"


class StoreUnavailable(WigwagError, ConnectionError):
    """The store did not answer, or is full. Try again later."""

    code = "Unavailable"


class AccessDenied(WigwagError, PermissionError):
    """The server did not accept the token, or the token lacks the scope."""

    code = "Denied"


class Damaged(WigwagError):
    """Stored data that this version cannot read."""

    code = "Damaged"


class StepFailed(WigwagError):
    """Raised in a function that awaits a step without attempts left. `fault` is the recorded error."""

    code = "Failure"

    @property
    def step(self) -> str | None:
        """The step that failed."""
        return self.fault.step if self.fault else None


class SignalTimeout(StepFailed, TimeoutError):
    """No signal came in the time given, where the wait was not asked to answer `None`."""


class Forked(WigwagError):
    """A worker was used in a forked child process."""

    code = "Forked"


_CLASSES: dict[str, type[WigwagError]] = {
    error.code: error
    for error in (
        RunNotFound, RunGone, Conflict, NotRunning, InvalidCall, InvalidName, InvalidPayload, RejectedSender, NotWaiting,
        UnknownPoint, RunFailed, RunCancelled, WaitTimeout, EngineStopped, StoreUnavailable, Damaged, AccessDenied, StepFailed,
    )
} | {"Internal": WigwagError}  # fmt: skip


def _error_of(told: Mapping[str, Any]) -> WigwagError:
    """Returns the exception for an error of the engine."""
    raw = told.get("fault")
    fault = Fault._of(raw) if raw else None
    kind = _CLASSES.get(str(told.get("code")), WigwagError)
    if kind is StepFailed and fault is not None:
        if fault.kind == "SignalTimeout":
            kind = SignalTimeout
        where = f"step `{fault.step}`: " if fault.step else ""
        return kind(f"{where}{fault.message}", fault=fault)
    return kind(str(told.get("message", "")), hint=told.get("hint"), fault=fault, fields=told.get("fields"))


def _seconds(span: timedelta | float | int) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InvalidCall(f"want a `timedelta` or a number of seconds, got: {span!r}")
    return float(seconds)


def _failure_of(error: BaseException) -> dict[str, Any]:
    """Returns the failure to record for an exception."""
    if isinstance(error, StepFailed) and error.fault is not None:
        return {"kind": error.fault.kind, "message": error.fault.message, "fault": dict(error.fault.raw), "permanent": True}
    told: dict[str, Any] = {"message": str(error), "detail": _traceback_of(error), "permanent": False}
    if isinstance(error, PermanentError):
        told["kind"], told["permanent"] = "Permanent", True
    elif isinstance(error, RetryableError):
        told["kind"] = "Retryable"
        if error.after is not None:
            told["after"] = _seconds(error.after)
    elif isinstance(error, InvalidCall):
        told["kind"], told["permanent"] = type(error).__name__, True
    else:
        told["kind"] = type(error).__name__
        told["message"] = told["message"] or repr(error)
        told["permanent"] = _is_wrong_call(error)
    return told


_PACKAGE = __file__.rsplit("errors.py", 1)[0]

# As Python words the arguments that a method of this package does not take.
_WRONG_ARGUMENTS = re.compile(r"(Context|StepCall|StepPoint|Queue|WorkflowClient|RunHandle)\.\w+\(\) (missing|takes|got) ")


def _is_wrong_call(error: BaseException) -> bool:
    """Whether arguments do not fit: another attempt would make the same call.

    Code that does not take the arguments of this package fails before it has a frame of its own.
    """
    if not isinstance(error, TypeError):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_filename.startswith(_PACKAGE) or bool(_WRONG_ARGUMENTS.match(str(error)))


def _traceback_of(error: BaseException) -> str:
    """The traceback without the package's own frames, the last part of it if it is long."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=False)
    shown.stack = traceback.StackSummary.from_list(
        [frame for frame in shown.stack if not frame.filename.startswith(_PACKAGE)]
    )
    text = "".join(shown.format())
    data = text.encode()
    return text if len(data) <= _DETAIL_BYTES else "…" + data[-_DETAIL_BYTES:].decode(errors="ignore")
