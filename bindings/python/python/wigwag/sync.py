"""The client for programs without an event loop: Django views, Flask, scripts.

The calls are those of `wigwag.WorkflowClient` and `wigwag.Queue`, without `await`. They run on a loop of the package's own,
in one thread that is started at the first call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import datetime, timedelta
from typing import Any, AsyncIterator, Coroutine, Generic, Iterable, Iterator, List, Mapping, TypeVar, overload

from . import client as _client
from .client import Receipt, Run, StepState, Summary
from .errors import InvalidCall
from .workflow import Task, Workflow, WorkflowFunction

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")

__all__ = ["Client", "Queue", "RunHandle", "TaskHandle", "WorkflowClient", "connect"]

_lock = threading.Lock()
_loop: tuple[int, asyncio.AbstractEventLoop] | None = None


def _own_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None or _loop[0] != os.getpid():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="wigwag-sync", daemon=True).start()
            _loop = (os.getpid(), loop)
        return _loop[1]


def _run(call: Coroutine[Any, Any, T]) -> T:
    loop = _own_loop()
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        call.close()
        raise InvalidCall("a call of `wigwag.sync` on its own loop would wait for itself", hint="use `wigwag.WorkflowClient`")
    future = asyncio.run_coroutine_threadsafe(call, loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise


def _each(items: AsyncIterator[T]) -> Iterator[T]:
    async def following() -> tuple[T] | None:
        try:
            return (await items.__anext__(),)
        except StopAsyncIteration:
            return None

    while (item := _run(following())) is not None:
        yield item[0]


class RunHandle(Generic[Out]):
    """One run, by its id."""

    def __init__(self, inner: _client.RunHandle[Out]) -> None:
        self._inner = inner
        self.id = inner.id
        self.warnings = inner.warnings

    def get(self) -> Run[Out]:
        """The run as it is."""
        return _run(self._inner.get())

    def wait(self, *, timeout: timedelta | float | None = None) -> Run[Out]:
        """Waits until it has ended; gives also a run that failed."""
        return _run(self._inner.wait(timeout=timeout))

    def result(self, *, timeout: timedelta | float | None = None) -> Out:
        """Waits for its result; raises `RunFailed` or `RunCancelled` if it has none."""
        return _run(self._inner.result(timeout=timeout))

    def signal(self, name: str, payload: Any = None, **options: Any) -> Receipt:
        """Sends it a signal; see `WorkflowClient.signal`."""
        return _run(self._inner.signal(name, payload, **options))

    def cancel(self, *, reason: str | None = None) -> str:
        """Asks it to end."""
        return _run(self._inner.cancel(reason=reason))

    def __repr__(self) -> str:
        return repr(self._inner)


class TaskHandle:
    """A task that was submitted."""

    def __init__(self, inner: _client.TaskHandle) -> None:
        self._inner = inner
        self.id = inner.id

    def get(self) -> Run[Any]:
        """The task as it is."""
        return _run(self._inner.get())

    def wait(self, *, timeout: timedelta | float | None = None) -> Run[Any]:
        """Waits until it has ended."""
        return _run(self._inner.wait(timeout=timeout))

    def __repr__(self) -> str:
        return repr(self._inner)


class Queue:
    """A store or a server, and its tasks. `connect` makes one."""

    def __init__(self, inner: _client.Queue) -> None:
        self._inner = inner
        self.url = inner.url

    def submit(self, of: str | Task[Any, Any], input: Any = None, **options: Any) -> TaskHandle:
        """Submits a task; see `wigwag.Queue.submit`."""
        return TaskHandle(_run(self._inner.submit(of, input, **options)))

    def get(self, id: str) -> Run[Any]:
        """A task as it is."""
        return _run(self._inner.get(id))

    def wait(self, id: str, *, timeout: timedelta | float | None = None) -> Run[Any]:
        """Waits until a task has ended."""
        return _run(self._inner.wait(id, timeout=timeout))

    def cancel(self, id: str, *, reason: str | None = None) -> str:
        """Asks a task to end."""
        return _run(self._inner.cancel(id, reason=reason))

    def now(self) -> datetime:
        """The time, by the store's clock."""
        return _run(self._inner.now())


class WorkflowClient:
    """A client of workflow runs, of a store or of a server's HTTP API; see `wigwag.WorkflowClient`."""

    def __init__(
        self, store: Queue | str | os.PathLike[str], *, token: str | None = None, allow_http: bool = False
    ) -> None:
        inner = store._inner if isinstance(store, Queue) else store
        self._inner = _client.WorkflowClient(inner, token=token, allow_http=allow_http)

    @overload
    def start(self, of: WorkflowFunction[In, Out], input: In, *, id: str | None = None, delay: timedelta | float | None = None, at: datetime | None = None, allow_unregistered: bool = False) -> RunHandle[Out]: ...
    @overload
    def start(self, of: WorkflowFunction[None, Out], *, id: str | None = None, delay: timedelta | float | None = None, at: datetime | None = None, allow_unregistered: bool = False) -> RunHandle[Out]: ...
    @overload
    def start(self, of: Workflow[Any] | str, input: Any = None, *, id: str | None = None, delay: timedelta | float | None = None, at: datetime | None = None, allow_unregistered: bool = False) -> RunHandle[Any]: ...
    def start(self, of: Any, input: Any = None, **options: Any) -> RunHandle[Any]:
        """Starts a workflow. Returns when the run is durable; see `wigwag.WorkflowClient.start`."""
        return RunHandle(_run(self._inner.start(of, input, **options)))

    def run(self, id: str) -> RunHandle[Any]:
        """The run of that id, which may not exist."""
        return RunHandle(self._inner.run(id))

    def get(self, id: str) -> Run[Any]:
        """A run as it is. Raises `RunNotFound` if there is none."""
        return _run(self._inner.get(id))

    def wait(self, id: str, *, timeout: timedelta | float | None = None) -> Run[Any]:
        """Waits until a run has ended, and gives it as it ended, also if it failed. Raises `WaitTimeout`."""
        return _run(self._inner.wait(id, timeout=timeout))

    def result(self, id: str, *, timeout: timedelta | float | None = None) -> Any:
        """Waits for a run's result. Raises `RunFailed` or `RunCancelled` if it has none."""
        return _run(self._inner.result(id, timeout=timeout))

    def cancel(self, id: str, *, reason: str | None = None) -> str:
        """Requests cancellation; see `wigwag.WorkflowClient.cancel`."""
        return _run(self._inner.cancel(id, reason=reason))

    def pause(self, id: str) -> str:
        """Asks that no further step begins."""
        return _run(self._inner.pause(id))

    def resume(self, id: str, *, anyway: bool = False) -> str:
        """Lets a paused run continue; `anyway` also if the code may not fit."""
        return _run(self._inner.resume(id, anyway=anyway))

    def restart(self, id: str, *, from_: str | None = None) -> str:
        """Lets a run that has ended, or is paused, begin again: from its top, or from a step."""
        return _run(self._inner.restart(id, from_=from_))

    def migrate(
        self, id: str, *, target_definition_hash: str | None = None, step_mapping: Mapping[str, str | None] | None = None
    ) -> str:
        """Migrates a run that was paused because the code changed. A step that maps to `None` is skipped."""
        return _run(self._inner.migrate(id, target_definition_hash=target_definition_hash, step_mapping=step_mapping))

    def signal(
        self,
        id: str,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
        by: str | None = None,
        only_if_waiting: bool = False,
        point: str | None = None,
        start_if_absent: tuple[Any, Any] | None = None,
        wait: timedelta | float | None = None,
    ) -> Receipt:
        """Sends a signal: it is durable when this returns; see `wigwag.WorkflowClient.signal`."""
        return _run(
            self._inner.signal(
                id, name, payload, key=key, by=by, only_if_waiting=only_if_waiting, point=point,
                start_if_absent=start_if_absent, wait=wait,
            )
        )  # fmt: skip

    def signal_many(self, signals: Iterable[Mapping[str, Any]]) -> List[Receipt | Exception]:
        """Sends signals, each given as the arguments of `signal`; a refused signal does not stop the others."""
        return _run(self._inner.signal_many(signals))

    def list(self, *, type: Any = None, status: str | None = None, page_size: int = 100) -> Iterator[Summary]:
        """Lists runs: unfinished ones first, then finished ones, the newest first."""
        return _each(self._inner.list(type=type, status=status, page_size=page_size))

    def counts(self) -> Any:
        """Counts runs by type and status, without reading them."""
        return _run(self._inner.counts())

    def steps(self, id: str) -> dict[str, StepState]:
        """All steps of a run, by path."""
        return _run(self._inner.steps(id))

    def history(self, id: str, *, from_: int = 1, limit: int = 1_000) -> Any:
        """Entries of a run's log, from a number on."""
        return _run(self._inner.history(id, from_=from_, limit=limit))

    def follow(self, id: str, *, from_: int = 1) -> Iterator[Any]:
        """Entries of a run's log as they are made, until it has ended."""
        return _each(self._inner.follow(id, from_=from_))

    def waiting(self, name: str | None = None, *, page_size: int = 100) -> Iterator[Any]:
        """The runs that wait for a signal of that name, or for any."""
        return _each(self._inner.waiting(name, page_size=page_size))

    def inbox(self, id: str, name: str | None = None) -> Any:
        """The signals that were sent to a run."""
        return _run(self._inner.inbox(id, name))

    def definitions(self, of: Any) -> Any:
        """What workers have known of a type, the newest last."""
        return _run(self._inner.definitions(of))

    def explain(self, id: str) -> Any:
        """Why a run is where it is."""
        return _run(self._inner.explain(id))


#: The same class by its short name.
Client = WorkflowClient


def connect(url: str | os.PathLike[str], *, token: str | None = None, allow_http: bool = False) -> Queue:
    """Opens a store, or a server's HTTP API; see `wigwag.connect`."""
    return Queue(_run(_client.connect(url, token=token, allow_http=allow_http)))
