"""Clients: start, inspect, wait for, signal and cancel runs."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from typing import Any, AsyncIterator, Generic, Iterable, Mapping, TypeVar, overload

from . import _native, _types
from ._log import logger
from ._loop import error_of, hub
from ._options import TaskOptions
from .context import Context, _current, encoded_input, text_of_moment
from .errors import Fault, InvalidCall, RunCancelled, RunFailed, _error_of, _seconds
from .workflow import Task, Workflow, WorkflowFunction, with_places

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")

__all__ = ["Client", "Queue", "Receipt", "Run", "RunHandle", "StepState", "Summary", "TaskHandle", "WorkflowClient", "connect"]

# Fields that are sent as `null`; other fields are omitted when they are `None`.
_NULLABLE = ("input", "payload")

_DATETIME = _types.codec_for(datetime)


def _moment(text: str | None) -> datetime | None:
    found: datetime | None = _DATETIME.decode(text, "time") if text else None
    return found


class StepState:
    """A step as it is recorded."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.kind: str = told.get("kind", "call")
        self.status: str = told["status"]
        self.attempt: int = told.get("attempt", 0)
        self.started_at = _moment(told.get("started_at"))
        self.ended_at = _moment(told.get("ended_at"))
        self.result: Any = told.get("result")
        self.error = Fault._of(told["error"]) if told.get("error") else None
        self.raw = told

    def __repr__(self) -> str:
        return f"StepState(status={self.status!r}, attempt={self.attempt}, result={self.result!r})"


class Run(Generic[Out]):
    """The state of a run when it was read."""

    def __init__(self, told: Mapping[str, Any], codec: _types.Codec = _types.PLAIN) -> None:
        state = told["state"]
        self._codec = codec
        self.id: str = state["id"]
        self.type: str = state["type"]
        #: `pending`, `running`, `waiting_signal`, `paused`, `compensating`, `completed`, `failed` or `cancelled`.
        self.status: str = state["status"]
        #: The steps that are under way.
        self.current_steps: list[str] = state.get("current_steps", [])
        self.input: Any = told["input"]
        #: The run's data: its input, with the changes of steps.
        self.data: Any = state.get("data") or told["input"]
        self.definition_hash: str = state.get("definition_hash", "")
        self.version: int | None = state.get("version")
        self.created_at = _moment(state["created_at"])
        self.updated_at = _moment(state["updated_at"])
        #: When something is due next, if it is parked and anything is.
        self.next_at = _moment(state.get("next_at"))
        #: What failed, if anything did.
        self.error = Fault._of(told["error"]) if told.get("error") else None
        self.compensation_errors: list[Any] = state.get("compensation_errors", [])
        self.steps = {path: StepState(step) for path, step in told.get("steps", {}).items()}
        self._result = told.get("result")
        self.raw: Mapping[str, Any] = state

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.status in ("completed", "failed", "cancelled")

    @property
    def output(self) -> Out | None:
        """The result, if the run completed."""
        if self.status != "completed":
            return None
        found: Out = self._codec.decode(self._result, "result")
        return found

    def result(self) -> Out:
        """Returns the result. Raises `RunFailed` or `RunCancelled` if the run did not complete."""
        if self.status == "cancelled":
            raise RunCancelled(f"run `{self.id}` was cancelled")
        if self.status != "completed":
            why = f": {self.error.message}" if self.error else ""
            what = "failed" if self.status == "failed" else f"is not finished, it is `{self.status}`"
            raise RunFailed(f"run `{self.id}` {what}{why}", fault=self.error)
        return self._codec.decode(self._result, "result")  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Run(id={self.id!r}, type={self.type!r}, status={self.status!r})"


class Summary:
    """A run in a list."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.id: str = told["id"]
        self.type: str = told["type"]
        self.status: str = told["status"]
        self.current_steps: list[str] = told.get("current_steps", [])
        self.created_at = _moment(told.get("created_at"))
        self.updated_at = _moment(told.get("updated_at"))
        self.next_at = _moment(told.get("next_at"))
        self.error: str | None = told.get("error")

    def __repr__(self) -> str:
        return f"Summary(id={self.id!r}, type={self.type!r}, status={self.status!r})"


class Receipt:
    """The proof that a signal is durable. `state` says whether a wait was open: `waiting`, `buffered` or `superseded`."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.id: str = told["id"]
        self.state: str = told["state"]
        self.repeated: bool = told.get("repeated", False)
        self.warning: str | None = told.get("warning")
        #: The status of the run, and the step that consumed the signal, if that was waited for.
        self.status: str | None = told.get("status")
        self.point: str | None = told.get("point")

    def __repr__(self) -> str:
        return f"Receipt(id={self.id!r}, state={self.state!r})"


class _Asking:
    """Asks a store or a server by its URL. The same object may be used from any thread, loop and forked process."""

    def __init__(self, url: str, token: str | None = None, allow_http: bool = False) -> None:
        self.url = url
        self._token = token
        self._allow_http = allow_http
        self._open()

    def _open(self) -> None:
        self._process = os.getpid()
        try:
            self._client = _native.Client(self.url, self._token, self._allow_http)
        except ValueError as error:
            raise error_of(str(error)) from None

    async def ask(self, op: str, **facts: Any) -> Any:
        """Asks something; answers with what JSON holds."""
        if self._process != os.getpid():
            # What the parent opened is the parent's.
            self._open()
        told = json.dumps({op: {name: value for name, value in facts.items() if value is not None or name in _NULLABLE}})
        return json.loads(await hub().ask(lambda mailbox, future: self._client.ask(mailbox, future, told)))


class Queue:
    """A store, and its tasks. `connect` makes one."""

    def __init__(self, url: str, asking: Any = None) -> None:
        self.url = url
        self._asking = asking if asking is not None else _Asking(url)

    async def submit(self, of: str | Task[Any, Any], input: Any = None, **options: Any) -> TaskHandle:
        """Submits a task; inside of a step, as a child of the run.

        Options: `idempotency_key`, `queue`, `retries`, `retry`, `timeout`, `delay`, `schedule_at`, `expires_at`, `expires_in`.
        """
        inside = _current.get()
        if inside is not None and (inside if isinstance(inside, Context) else inside._context)._runner.url == self.url:
            return TaskHandle(self, await inside.submit(of, input, **options))
        name, encoded = encoded_input(of, input)
        told = TaskOptions(**options)._told()
        answer = await self._asking.ask("submit", of=name, input=encoded, **told)
        return TaskHandle(self, answer["id"])

    async def get(self, id: str) -> Run[Any]:
        """A task as it is."""
        return Run(await self._asking.ask("get", id=str(id), task=True))

    async def wait(self, id: str, *, timeout: timedelta | float | None = None) -> Run[Any]:
        """Waits until a task has ended."""
        return Run(await self._asking.ask("wait", id=str(id), task=True, timeout=_span(timeout)))

    async def cancel(self, id: str, *, reason: str | None = None) -> str:
        """Asks a task to end."""
        return str(await self._asking.ask("cancel", id=str(id), task=True, reason=reason))

    async def now(self) -> datetime:
        """The time, by the store's clock."""
        found = _moment(await self._asking.ask("now"))
        assert found is not None
        return found


class TaskHandle:
    """A task that was submitted."""

    def __init__(self, queue: Queue, id: str) -> None:
        self._queue = queue
        self.id = id

    async def get(self) -> Run[Any]:
        """The task as it is."""
        return await self._queue.get(self.id)

    async def wait(self, *, timeout: timedelta | float | None = None) -> Run[Any]:
        """Waits until it has ended."""
        return await self._queue.wait(self.id, timeout=timeout)

    def __repr__(self) -> str:
        return f"TaskHandle(id={self.id!r})"


async def connect(url: str | os.PathLike[str], *, token: str | None = None, allow_http: bool = False) -> Queue:
    """Opens a store: a directory, `s3://…`, a server's `http://host:port/s3`, or `memory:`.

    Without `/s3`, `http://host:port` is the server's HTTP API: clients need only a token, and workers cannot use it.
    """
    url = os.fspath(url)
    queue = Queue(url, _Asking(url, token, allow_http))
    await queue._asking.ask("check")
    return queue


def _span(span: timedelta | float | None) -> float | None:
    return None if span is None else _seconds(span)


class RunHandle(Generic[Out]):
    """One run, by its id."""

    def __init__(self, client: WorkflowClient, id: str, codec: _types.Codec = _types.PLAIN, warnings: Iterable[str] = ()) -> None:
        self._client = client
        self._codec = codec
        self.id = id
        self.warnings = list(warnings)

    async def get(self) -> Run[Out]:
        """The run as it is."""
        return Run(await self._client._asking.ask("get", id=self.id), self._codec)

    async def wait(self, *, timeout: timedelta | float | None = None) -> Run[Out]:
        """Waits until it has ended; gives also a run that failed."""
        return Run(await self._client._asking.ask("wait", id=self.id, timeout=_span(timeout)), self._codec)

    async def result(self, *, timeout: timedelta | float | None = None) -> Out:
        """Waits for its result; raises `RunFailed` or `RunCancelled` if it has none."""
        return (await self.wait(timeout=timeout)).result()

    async def signal(self, name: str, payload: Any = None, **options: Any) -> Receipt:
        """Sends it a signal; see `WorkflowClient.signal`."""
        return await self._client.signal(self.id, name, payload, **options)

    async def cancel(self, *, reason: str | None = None) -> str:
        """Asks it to end."""
        return await self._client.cancel(self.id, reason=reason)

    def __repr__(self) -> str:
        return f"RunHandle(id={self.id!r})"


class WorkflowClient:
    """A client of workflow runs: of a store, or of a server's HTTP API.

    A server's URL has no path, as `https://wigwag.example.com`. Its `token` is sent over plain `http://` only to this
    machine, unless `allow_http` says that the network is trusted.
    """

    def __init__(
        self, store: Queue | str | os.PathLike[str], *, token: str | None = None, allow_http: bool = False
    ) -> None:
        if isinstance(store, Queue):
            if token is not None:
                raise InvalidCall("this queue was opened already", hint="give the token to `connect`")
            self._asking = store._asking
        else:
            self._asking = _Asking(os.fspath(store), token, allow_http)

    @overload
    async def start(self, of: WorkflowFunction[In, Out], input: In, *, id: str | None = None, delay: timedelta | float | None = None, at: datetime | None = None, allow_unregistered: bool = False) -> RunHandle[Out]: ...
    @overload
    async def start(self, of: WorkflowFunction[None, Out], *, id: str | None = None, delay: timedelta | float | None = None, at: datetime | None = None, allow_unregistered: bool = False) -> RunHandle[Out]: ...
    @overload
    async def start(self, of: Workflow[Any] | str, input: Any = None, *, id: str | None = None, delay: timedelta | float | None = None, at: datetime | None = None, allow_unregistered: bool = False) -> RunHandle[Any]: ...
    async def start(self, of: Any, input: Any = None, *, id: str | None = None, delay: timedelta | float | None = None, at: datetime | None = None, allow_unregistered: bool = False) -> RunHandle[Any]:
        """Starts a workflow. Returns when the run is durable. The same id with the same input is the same run.

        A workflow that no worker has registered is refused, unless no worker has registered any: with `allow_unregistered`, the
        run waits for a worker that has it.
        """
        name, encoded = encoded_input(of, input)
        told = {"id": id, "delay": _span(delay), "at": None if at is None else text_of_moment(at)}
        try:
            answer = await self._asking.ask("start", of=name, input=encoded, registered_only=not allow_unregistered, **told)
        except InvalidCall as error:
            raise with_places(error, [] if isinstance(of, str) else [of]) from None
        for warning in answer["warnings"]:
            logger.warning("run `%s`: %s", answer["id"], warning)
        codec = getattr(of, "_output_codec", _types.PLAIN)
        return RunHandle(self, answer["id"], codec, answer["warnings"])

    def run(self, id: str) -> RunHandle[Any]:
        """The run of that id, which may not exist."""
        return RunHandle(self, id)

    async def get(self, id: str) -> Run[Any]:
        """A run as it is. Raises `RunNotFound` if there is none."""
        return Run(await self._asking.ask("get", id=_id(id)))

    async def wait(self, id: str, *, timeout: timedelta | float | None = None) -> Run[Any]:
        """Waits until a run has ended, and gives it as it ended, also if it failed. Raises `WaitTimeout`."""
        return Run(await self._asking.ask("wait", id=_id(id), timeout=_span(timeout)))

    async def result(self, id: str, *, timeout: timedelta | float | None = None) -> Any:
        """Waits for a run's result. Raises `RunFailed` or `RunCancelled` if it has none."""
        return (await self.wait(id, timeout=timeout)).result()

    async def cancel(self, id: str, *, reason: str | None = None) -> str:
        """Requests cancellation: completed steps are compensated in reverse order. Returns `now`, or `before` if it was requested already."""
        return str(await self._asking.ask("cancel", id=_id(id), reason=reason))

    async def pause(self, id: str) -> str:
        """Asks that no further step begins."""
        return str(await self._asking.ask("pause", id=_id(id)))

    async def resume(self, id: str, *, anyway: bool = False) -> str:
        """Lets a paused run continue; `anyway` also if the code may not fit."""
        return str(await self._asking.ask("resume", id=_id(id), anyway=anyway))

    async def restart(self, id: str, *, from_: str | None = None) -> str:
        """Lets a run that has ended, or is paused, begin again: from its top, or from a step."""
        return str(await self._asking.ask("restart", id=_id(id), **{"from": from_}))

    async def migrate(
        self, id: str, *, target_definition_hash: str | None = None, step_mapping: Mapping[str, str | None] | None = None
    ) -> str:
        """Migrates a run that was paused because the code changed. A step that maps to `None` is skipped."""
        mapping = dict(step_mapping or {})
        return str(await self._asking.ask("migrate", id=_id(id), to=target_definition_hash, mapping=mapping))

    async def signal(
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
        """Sends a signal: it is durable when this returns, and never lost after that.

        `key` is an idempotency key; `by` names the sender; `start_if_absent` is a workflow and its input, started if there is
        no run; with `wait`, this returns when a wait has consumed the signal.
        """
        told = _signal(id, name, payload, key, by, only_if_waiting, point, start_if_absent)
        return Receipt(await self._asking.ask("signal", **told, wait=_span(wait)))

    async def signal_many(self, signals: Iterable[Mapping[str, Any]]) -> list[Receipt | Exception]:
        """Sends signals, each given as the arguments of `signal`; a refused signal does not stop the others."""
        told = [{n: v for n, v in _signal(**signal).items() if v is not None or n in _NULLABLE} for signal in signals]
        answers = await self._asking.ask("signal_many", signals=told)
        return [Receipt(a["receipt"]) if "receipt" in a else _error_of(a["error"]) for a in answers]

    async def list(
        self, *, type: Any = None, status: str | None = None, page_size: int = 100
    ) -> AsyncIterator[Summary]:
        """Lists runs: unfinished ones first, then finished ones, the newest first."""
        of = type if type is None or isinstance(type, str) else type.name
        after: str | None = None
        while True:
            page = await self._asking.ask("list", of=of, status=status, limit=page_size, after=after)
            for run in page["runs"]:
                yield Summary(run)
            after = page["next"]
            if after is None:
                return

    async def counts(self) -> Any:
        """Counts runs by type and status, without reading them."""
        return await self._asking.ask("counts")

    async def steps(self, id: str) -> dict[str, StepState]:
        """All steps of a run, by path."""
        told = await self._asking.ask("steps", id=_id(id))
        return {path: StepState(step) for path, step in told.items()}

    async def history(self, id: str, *, from_: int = 1, limit: int = 1_000) -> Any:
        """Entries of a run's log, from a number on."""
        return await self._asking.ask("history", id=_id(id), **{"from": from_}, limit=limit)

    async def follow(self, id: str, *, from_: int = 1) -> AsyncIterator[Any]:
        """Entries of a run's log as they are made, until it has ended."""
        while True:
            entries = await self._asking.ask("follow", id=_id(id), **{"from": from_})
            if entries is None:
                return
            for entry in entries:
                from_ = entry["seq"] + 1
                yield entry

    async def waiting(self, name: str | None = None, *, page_size: int = 100) -> AsyncIterator[Any]:
        """The runs that wait for a signal of that name, or for any."""
        after: str | None = None
        while True:
            page = await self._asking.ask("waiting", name=name, limit=page_size, after=after)
            for run in page["runs"]:
                yield run
            after = page.get("next")
            if after is None:
                return

    async def inbox(self, id: str, name: str | None = None) -> Any:
        """The signals that were sent to a run."""
        return await self._asking.ask("inbox", id=_id(id), name=name)

    async def definitions(self, of: Any) -> Any:
        """What workers have known of a type, the newest last."""
        return await self._asking.ask("definitions", of=of if isinstance(of, str) else of.name)

    async def explain(self, id: str) -> Any:
        """Why a run is where it is."""
        return await self._asking.ask("explain", id=_id(id))


#: The same class by its short name.
Client = WorkflowClient


def _id(id: Any) -> str:
    found = getattr(id, "id", id)
    if not isinstance(found, str):
        raise InvalidCall(f"want the id of a run, got: {id!r}")
    return found


def _signal(
    id: Any,
    name: str,
    payload: Any = None,
    key: str | None = None,
    by: str | None = None,
    only_if_waiting: bool = False,
    point: str | None = None,
    start_if_absent: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    codec = _types.codec_for(type(payload)) if hasattr(type(payload), "__annotations__") else _types.PLAIN
    try:
        encoded = codec.encode(payload, "payload")
    except _types.Misfit as misfit:
        raise _types.refused(misfit, f"the payload of signal `{name}` does not fit", None) from None
    return {
        "id": _id(id),
        "name": name,
        "payload": encoded,
        "key": key,
        "by": by,
        "only_if_waiting": only_if_waiting,
        "point": point,
        "start": None if start_if_absent is None else list(encoded_input(*start_if_absent)),
    }

