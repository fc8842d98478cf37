"""Durable workflows that wait for signals, on nothing but a directory or a bucket.

A workflow is a set of steps that must all happen, across crashes, deploys and months of waiting: written as a function, or
as a graph of steps. A `Worker` runs it, and a `WorkflowClient` starts it and sends it signals.
"""

from __future__ import annotations

from ._options import Retry, Settings
from .client import Client, Queue, Receipt, Run, RunHandle, StepState, Summary, TaskHandle, WorkflowClient, connect
from .context import Context, Point, Received, StepPoint, TaskEnd, current
from .errors import (
    AccessDenied,
    Conflict,
    Damaged,
    EngineStopped,
    Fault,
    Forked,
    InvalidCall,
    InvalidName,
    InvalidPayload,
    NotRunning,
    NotWaiting,
    PermanentError,
    RejectedSender,
    RetryableError,
    RunCancelled,
    RunFailed,
    RunGone,
    RunNotFound,
    SignalTimeout,
    StepFailed,
    StoreUnavailable,
    UnknownPoint,
    WaitTimeout,
    WigwagError,
)
from .worker import Worker
from .workflow import GraphSignal, GraphStep, Step, Task, Workflow, WorkflowFunction, step, task, workflow

__all__ = [
    "AccessDenied", "Client", "Conflict", "Context", "Damaged", "EngineStopped", "Fault", "Forked", "GraphSignal", "GraphStep", "InvalidCall",
    "InvalidName", "InvalidPayload", "NotRunning", "NotWaiting", "PermanentError", "Point", "Queue", "Receipt", "Received",
    "RejectedSender", "Retry", "RetryableError", "Run", "RunCancelled", "RunFailed", "RunGone", "RunHandle", "RunNotFound",
    "Settings", "SignalTimeout", "Step", "StepFailed", "StepPoint", "StepState", "StoreUnavailable", "Summary", "Task",
    "TaskEnd", "TaskHandle", "UnknownPoint", "WaitTimeout", "WigwagError", "Worker", "Workflow", "WorkflowClient",
    "WorkflowFunction", "connect", "current", "step", "task", "workflow",
]  # fmt: skip


def __getattr__(name: str) -> str:
    if name == "__version__":
        from . import _native

        return _native.version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
