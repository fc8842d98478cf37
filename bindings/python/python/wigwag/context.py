"""The context of a run: steps, signals, sleeps, data."""

from __future__ import annotations

import asyncio
import collections.abc
import contextvars
import functools
import inspect
import json
import random
import types
import uuid
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Generator, Generic, Iterable, Sequence, TypeVar, Union, overload

from . import _types
from ._log import RunLogger
from ._loop import ASK, DROP, Hub, Word, error_of
from .errors import InvalidCall, PermanentError, WigwagError, _seconds
from ._options import Retry, TaskOptions

if TYPE_CHECKING:
    from ._runner import Runner
    from .workflow import Task

T = TypeVar("T")
U = TypeVar("U")

__all__ = ["Context", "Point", "Received", "StepPoint", "TaskEnd", "current"]

_current: contextvars.ContextVar[Union["Context", "StepCall", None]] = contextvars.ContextVar("wigwag_current", default=None)


def current() -> Context | StepCall:
    """Returns the context of the run or step that calls this, for code without a `ctx` argument."""
    found = _current.get()
    if found is None:
        raise InvalidCall(
            "no run is under way here",
            hint="call this in the code of a workflow or a step, and not in a thread of your own",
        )
    return found


def text_of_moment(moment: datetime) -> str:
    """A moment as the engine writes it."""
    if moment.tzinfo is None:
        raise InvalidCall(
            f"{moment!r} has no time zone", hint="say which: `datetime.now(timezone.utc)`, or `moment.astimezone()`"
        )
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Point(collections.abc.Coroutine[Any, Any, T], Generic[T]):
    """An operation whose outcome is recorded. It was counted when it was called; await it to get the outcome.

    It may be awaited once: directly, or by `asyncio.gather`, `asyncio.create_task`, a `TaskGroup` or `asyncio.timeout`.
    """

    def __init__(self, context: Context, op: str, facts: dict[str, Any], decode: Callable[[str], T]) -> None:
        context._check(facts.get("name") or op)
        self._context = context
        self._op = op
        self._facts = facts
        self._decode = decode
        self._number = context._hub.number()
        self._future: asyncio.Future[str] = context._hub.loop.create_future()
        self._future.add_done_callback(self._settled)
        self._iterator: Generator[Any, Any, T] | None = None
        context._open[self._number] = self._future
        context._hub.say(self)

    def _word(self) -> Word:
        return (ASK, self._context._scope, self._number, json.dumps({self._op: self._facts}), None)

    def _settled(self, future: asyncio.Future[str]) -> None:
        if self._context._open.pop(self._number, None) is not None and future.cancelled():
            self._context._hub.say((DROP, self._context._scope, self._number, None, None))
        elif not future.cancelled():
            future.exception()  # Whoever awaits it gets it; nobody else needs to be told.

    def __await__(self) -> Generator[Any, Any, T]:
        text = yield from self._future.__await__()
        return self._decode(text)

    def _running(self) -> Generator[Any, Any, T]:
        if self._iterator is None:
            self._iterator = self.__await__()
        return self._iterator

    def send(self, value: Any) -> Any:
        """Resumes, as a coroutine does."""
        return self._running().send(value)

    def throw(self, *args: Any) -> Any:
        """Raises in it, as in a coroutine."""
        return self._running().throw(*args)

    def close(self) -> None:
        """Abandons it, if it is not done."""
        if self._iterator is not None:
            self._iterator.close()
        if not self._future.done() and not self._future.get_loop().is_closed():
            self._future.cancel()


class StepPoint(Point[T]):
    """A step about to be awaited."""

    def retries(self, retries: int) -> StepPoint[T]:
        """How often it is tried again."""
        self._facts["retry"] = {**self._facts.get("retry", {}), "retries": retries}
        return self

    def retry(self, retry: Retry) -> StepPoint[T]:
        """How it is tried again."""
        self._facts["retry"] = retry._told()
        return self

    def timeout(self, span: timedelta | float) -> StepPoint[T]:
        """How long one attempt may take."""
        self._facts["timeout"] = _seconds(span)
        return self

    def compensate(self, undo: Callable[[Any], Any]) -> StepPoint[T]:
        """Sets the compensation, run if the run fails or is cancelled later; it receives the step's result, or `None`."""
        hub, runner = self._context._hub, self._context._runner
        number = hub.number()
        codec = self._context_codec
        name = str(self._facts["name"])
        check_code(undo, (None,), {}, f"the compensation of step `{name}`")

        def call(hub: Hub, call: int, attempt: int, told: Any) -> asyncio.Task[None]:
            key, result = told

            def body() -> Any:
                return undo(None if result is None else codec.decode(result, "result"))

            call_info = StepCall(self._context, call, attempt, str(key), name)
            return runner.start_call(hub, call, body, undo, call_info, _types.PLAIN, discard=True)

        hub.functions[number] = call
        self._facts["undo"] = number
        return self

    _context_codec: _types.Codec = _types.PLAIN


class Received(Generic[T]):
    """A signal with who sent it and when."""

    def __init__(self, payload: T, by: str | None, id: str, sent_at: datetime) -> None:
        self.payload = payload
        self.by = by
        self.id = id
        self.sent_at = sent_at

    def __repr__(self) -> str:
        return f"Received(payload={self.payload!r}, by={self.by!r}, id={self.id!r}, sent_at={self.sent_at!r})"


class TaskEnd:
    """The end of a task: `status` is `completed`, `failed` or `missing`, which means that it did not end in time."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.status: str = told["status"]
        self.result: Any = told.get("result")
        error = told.get("error")
        self.error: WigwagError | None = error_of(json.dumps({"code": "Failure", "fault": error})) if error else None
        self.id: str | None = told.get("id")

    def __repr__(self) -> str:
        return f"TaskEnd(status={self.status!r}, result={self.result!r}, error={self.error!r})"


class StepCall:
    """The context of a function's step, returned by `wigwag.current()`."""

    def __init__(self, context: Context, call: int, attempt: int, key: str, name: str) -> None:
        self._context = context
        self._call = call
        self.attempt = attempt
        self.idempotency_key = key
        self.step_name = name
        self.log = RunLogger(self)

    @property
    def workflow_id(self) -> str:
        """The run's id."""
        return self._context.workflow_id

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self._context.workflow

    @property
    def cancelled(self) -> bool:
        """Whether cancellation of the run was requested."""
        return self._context.cancelled

    async def is_cancellation_requested(self) -> bool:
        """The same, for code that awaits it."""
        return self.cancelled

    async def wait_cancelled(self) -> None:
        """Returns when cancellation of the run is requested."""
        await self._context.wait_cancelled()

    async def submit(self, of: str | Task[Any, Any], input: Any = None, **options: Any) -> str:
        """Submits a task as a child of the run, and gives its id."""
        name, text = _submission(of, input, options)
        return str(json.loads(await self._context._hub.submit_below(self._call, text)))


def _submission(of: Any, input: Any, options: dict[str, Any]) -> tuple[str, str]:
    name, encoded = encoded_input(of, input)
    told = TaskOptions(**options)._told()
    return name, json.dumps({"of": name, "input": encoded, "options": told})


def encoded_input(of: Any, input: Any) -> tuple[str, Any]:
    """Returns the name and the encoded input of a workflow or task."""
    from .workflow import Task, Workflow, WorkflowFunction

    name = of if isinstance(of, str) else getattr(of, "name", None)
    if not isinstance(name, str):
        raise InvalidCall(f"want a workflow, a task or its name, got: {of!r}")
    codec, where = _types.PLAIN, None
    if isinstance(of, (Workflow, WorkflowFunction, Task)):
        codec, where = of._input_codec, of._where
    try:
        return name, codec.encode(input, "input")
    except _types.Misfit as misfit:
        raise _types.refused(misfit, f"the input of `{name}` does not fit", where) from None


class Context:
    """The context of a run.

    Every call that takes a name is a *point*: its outcome is recorded, and when a function is replayed,
    in another process or a month later, the recorded outcome is returned. Points are counted when they are called.
    """

    def __init__(
        self,
        hub: Hub,
        runner: Runner,
        scope: int,
        told: dict[str, Any],
        *,
        workflow: str,
        replaying: bool,
        now: int,
        step: str | None,
        input_codec: _types.Codec,
    ) -> None:
        self._hub = hub
        self._runner = runner
        self._scope = scope
        self._told = told
        self._heard = 1
        self._replaying = replaying
        self._now = now
        self._open: dict[int, asyncio.Future[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_gone = False
        self._randoms = 0
        self._cancelled = False
        self._cancel_waiters: list[asyncio.Future[None]] = []
        self._data: dict[str, Any] | None = None
        self._input_codec = input_codec
        self.workflow = workflow
        self.workflow_id: str = told["run"]
        self.step_name = step
        self.attempt: int = told.get("attempt", 1)
        self.idempotency_key: str = told.get("key", told["run"])
        self.log = RunLogger(self)

    # State

    @property
    def input(self) -> Any:
        """The input of the run."""
        return self._input_codec.decode(self._told.get("input"), "input")

    @property
    def data(self) -> Any:
        """The run's data: its input, with the changes of steps. Change it in a step; it is recorded with the step's result."""
        if self._data is None:
            found = self._told.get("data") or self._told.get("input")
            if not isinstance(found, dict):
                return found
            self._data = json.loads(json.dumps(found))
        return self._data

    @property
    def cancelled(self) -> bool:
        """Whether cancellation of the run was requested."""
        return self._cancelled

    @property
    def is_replaying(self) -> bool:
        """Whether the run has been here before: points ahead are recorded already."""
        return self._replaying

    async def is_cancellation_requested(self) -> bool:
        """Whether cancellation of the run was requested."""
        return self._cancelled

    async def wait_cancelled(self) -> None:
        """Returns when cancellation of the run is requested. Code that continues after that is dropped after a grace time."""
        if not self._cancelled:
            waiter: asyncio.Future[None] = self._hub.loop.create_future()
            self._cancel_waiters.append(waiter)
            await waiter

    def now(self) -> datetime:
        """The recorded time: the same on every replay."""
        return datetime.fromtimestamp(self._now / 1e6, timezone.utc)

    def random(self) -> random.Random:
        """A random generator that gives the same values on every replay."""
        self._randoms += 1
        return random.Random(f"{self.workflow_id}:{self.step_name}:{self._randoms}")

    def uuid(self) -> uuid.UUID:
        """A random UUID, the same on every replay."""
        return uuid.UUID(int=self.random().getrandbits(128), version=4)

    # Points

    @overload
    def step(self, name: str, code: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> StepPoint[T]: ...
    @overload
    def step(self, name: str, code: Callable[..., T], *args: Any, **kwargs: Any) -> StepPoint[T]: ...
    def step(self, name: str, code: Callable[..., Any], *args: Any, **kwargs: Any) -> StepPoint[Any]:
        """Runs code whose result is recorded: a recorded step never runs again. Until then it may run more than once."""
        from .workflow import Step

        plain = code._function if isinstance(code, Step) else code
        return self._step(name, plain, args, kwargs, code if isinstance(code, Step) else None)

    def _step(self, name: str, code: Callable[..., Any], args: Any, kwargs: Any, defined: Any) -> StepPoint[Any]:
        if self.step_name is not None:
            raise InvalidCall(f"`{name}` is a step, and cannot be inside the step `{self.step_name}`")
        check_code(code, args, kwargs, f"step `{name}`")
        codec, where = result_codec(code), place_of(code)
        self._check(name)
        hub, runner = self._hub, self._runner
        number = hub.number()

        def call(hub: Hub, call: int, attempt: int, told: Any) -> asyncio.Task[None]:
            info = StepCall(self, call, attempt, str(told), name)
            return runner.start_call(hub, call, functools.partial(code, *args, **kwargs), code, info, codec, where=where)

        hub.functions[number] = call
        facts: dict[str, Any] = {"name": name, "code": number}
        if defined is not None:
            facts.update(defined._facts())
        point: StepPoint[Any] = StepPoint(self, "step", facts, lambda text: codec.loads(text, "result"))
        point._context_codec = codec
        if defined is not None and defined._undo is not None:
            point.compensate(defined._undo)
        return point

    @overload
    def map(
        self, name: str, items: Iterable[U], code: Callable[[U], Awaitable[T]], *, concurrency: int = 16,
        retries: int | None = None, retry: Retry | None = None, timeout: timedelta | float | None = None,
    ) -> Point[list[T]]: ...
    @overload
    def map(
        self, name: str, items: Iterable[U], code: Callable[[U], T], *, concurrency: int = 16,
        retries: int | None = None, retry: Retry | None = None, timeout: timedelta | float | None = None,
    ) -> Point[list[T]]: ...
    def map(
        self,
        name: str,
        items: Iterable[Any],
        code: Callable[[Any], Any],
        *,
        concurrency: int = 16,
        retries: int | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
    ) -> Point[list[Any]]:
        """Runs code for each item, several at once, and gives the results in the order of the items."""
        check_code(code, (None,), {}, f"step `{name}`")
        wanted, codec, where = list(items), result_codec(code), place_of(code)
        self._check(name)
        number = self._hub.number()

        def call(hub: Hub, call: int, attempt: int, told: Any) -> asyncio.Task[None]:
            place, key = told
            info = StepCall(self, call, attempt, key, f"{name}/{place}")
            body = functools.partial(code, wanted[place])
            return self._runner.start_call(hub, call, body, code, info, codec, where=where)

        self._hub.functions[number] = call
        facts: dict[str, Any] = {"name": name, "code": number, "count": len(wanted), "concurrency": concurrency}
        facts.update(_policy(retries, retry, timeout))
        return Point(self, "map", facts, lambda text: [codec.decode(item, f"result[{n}]") for n, item in enumerate(json.loads(text))])

    def sleep(self, name: str, span: timedelta | float) -> Point[None]:
        """Waits for a span, across crashes and deploys."""
        return Point(self, "sleep", {"name": name, "seconds": _seconds(span)}, _nothing)

    def sleep_until(self, name: str, moment: datetime) -> Point[None]:
        """Waits for a moment."""
        return Point(self, "sleep_until", {"name": name, "at": text_of_moment(moment)}, _nothing)

    def child(self, name: str, of: Any, input: Any = None) -> Point[Any]:
        """Starts another workflow and waits for its result. Cancelling this run cancels it too."""
        type_name, encoded = encoded_input(of, input)
        codec = getattr(of, "_output_codec", _types.PLAIN)
        facts = {"name": name, "of": type_name, "input": encoded}
        return Point(self, "child", facts, lambda text: codec.loads(text, "result"))

    @overload
    def wait_for_signal(self, name: str, *, timeout: timedelta | float, until: None = None, latest: bool = False, authenticated: bool = False, about: str | None = None, schema: dict[str, Any] | None = None) -> Point[Any]: ...
    @overload
    def wait_for_signal(self, name: str, type: type[T], *, latest: bool = False, authenticated: bool = False, about: str | None = None) -> Point[T]: ...
    @overload
    def wait_for_signal(self, name: str, type: type[T], *, timeout: timedelta | float, latest: bool = False, authenticated: bool = False, about: str | None = None) -> Point[T | None]: ...
    @overload
    def wait_for_signal(self, name: str, type: type[T], *, until: datetime, latest: bool = False, authenticated: bool = False, about: str | None = None) -> Point[T | None]: ...
    @overload
    def wait_for_signal(self, name: str, type: Any = None, *, timeout: timedelta | float | None = None, until: datetime | None = None, latest: bool = False, quorum: int | None = None, authenticated: bool = False, about: str | None = None, details: bool = False, schema: dict[str, Any] | None = None) -> Point[Any]: ...
    def wait_for_signal(
        self,
        name: str,
        type: Any = None,
        *,
        timeout: timedelta | float | None = None,
        until: datetime | None = None,
        latest: bool = False,
        quorum: int | None = None,
        authenticated: bool = False,
        about: str | None = None,
        details: bool = False,
        schema: dict[str, Any] | None = None,
    ) -> Point[Any]:
        """Waits for a signal: parked, without memory or thread. `None` if it did not come before `timeout` or `until`.

        With a `type`, its JSON Schema guards the sender: a payload that does not fit is refused to them. `about` is one line
        for the person who answers, which inboxes show.
        """
        codec = _types.codec_for(type if type is not None else Any)
        facts: dict[str, Any] = {"name": name, "latest": latest, "authenticated": authenticated, "details": details}
        if timeout is not None:
            facts["timeout"] = _seconds(timeout)
        if until is not None:
            facts["until"] = text_of_moment(until)
        if quorum is not None:
            facts["quorum"] = quorum
        if about is not None:
            facts["about"] = about
        wanted = schema if schema is not None else codec.schema()
        if wanted is not None:
            facts["schema"] = wanted

        def decode(text: str) -> Any:
            heard = json.loads(text)
            if not heard:
                return None
            if quorum is not None:
                return [codec.decode(item, f"signal[{place}]") for place, item in enumerate(heard[0])]
            if details:
                told = heard[0]
                sent_at = _types.codec_for(datetime).decode(told["sent_at"], "sent_at")
                return Received(codec.decode(told["payload"], "signal"), told["by"], told["id"], sent_at)
            return codec.decode(heard[0], "signal")

        return Point(self, "wait", facts, decode)

    def wait_any(
        self, names: Sequence[str], *, timeout: timedelta | float | None = None, until: datetime | None = None
    ) -> Point[tuple[str, Any] | None]:
        """Waits for the first of several signals; returns its name and payload, or `None` on timeout."""
        return Point(self, "wait_any", _several(names, timeout, until), _pair)

    def wait_all(
        self, names: Sequence[str], *, timeout: timedelta | float | None = None, until: datetime | None = None
    ) -> Point[dict[str, Any]]:
        """Waits for all of several signals; returns the received payloads by name."""
        return Point(self, "wait_all", _several(names, timeout, until), json.loads)

    def submit(self, of: str | Task[Any, Any], input: Any = None, **options: Any) -> Point[str]:
        """Submits a task as a child of this run, and gives its id. Options are those of `Queue.submit`."""
        _, text = _submission(of, input, options)
        return Point(self, "submit", json.loads(text), json.loads)

    def wait_for_tasks(self, ids: Iterable[Any], *, timeout: timedelta | float | None = None) -> Point[list[TaskEnd]]:
        """Waits until these tasks of this run have ended, or the time is over."""
        facts: dict[str, Any] = {"ids": [getattr(task, "id", task) for task in ids]}
        if timeout is not None:
            facts["timeout"] = _seconds(timeout)
        return Point(self, "tasks", facts, lambda text: [TaskEnd(end) for end in json.loads(text)])

    def fan_out(
        self, name: str, of: str | Task[Any, Any], inputs: Iterable[Any], *, wait: timedelta | float | None = None, **options: Any
    ) -> Point[list[TaskEnd]]:
        """Submits a task for each input and waits for them: on as many machines as there are workers."""
        encoded = [encoded_input(of, input) for input in inputs]
        type_name = of if isinstance(of, str) else of.name
        facts: dict[str, Any] = {"name": name, "of": type_name, "inputs": [value for _, value in encoded]}
        facts["options"] = TaskOptions(**options)._told()
        if wait is not None:
            facts["wait"] = _seconds(wait)
        return Point(self, "fan_out", facts, lambda text: [TaskEnd(end) for end in json.loads(text)])

    def patched(self, name: str) -> Point[bool]:
        """Whether this run follows changed code: true for runs that had not come here when the code was changed."""
        return Point(self, "patched", {"name": name}, json.loads)

    def output(self, step: str) -> Point[Any]:
        """The result of an earlier step of a graph."""
        return Point(self, "output", {"step": step}, json.loads)

    # Calls of the hub

    def _check(self, name: str) -> None:
        if self._is_gone:
            raise asyncio.CancelledError(f"the run no longer continues here: `{name}` is not asked for")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._hub.loop:
            raise InvalidCall(
                f"`{name}` was called outside of the event loop of its run",
                hint="a `def` step runs in a thread: make it `async def` to use points of its context",
            )
        inside = _current.get()
        if isinstance(inside, StepCall) and inside._context is self:
            raise InvalidCall(f"`{name}` cannot be inside the step `{inside.step_name}`", hint="call it in the function itself")

    def _replied(self, number: int, is_ok: bool, replaying: bool, now: int, text: str) -> None:
        self._heard += 1
        self._replaying, self._now = replaying, now
        future = self._open.pop(number, None)
        if future is None or future.done():
            return
        if is_ok:
            future.set_result(text)
        else:
            future.set_exception(error_of(text))

    def _cancel_asked(self) -> None:
        self._heard += 1
        self._cancelled = True
        for waiter in self._cancel_waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _gone(self) -> None:
        self._is_gone = True
        opened, self._open = self._open, {}
        for future in opened.values():
            future.cancel()
        if self._task is not None:
            self._task.cancel()

    def _changed_data(self) -> str | None:
        """The data as JSON text, if the code changed it."""
        before = self._told.get("data") or self._told.get("input")
        if self._data is None or self._data == before:
            return None
        try:
            return _types.PLAIN.dumps(self._data, "data")
        except _types.Misfit as misfit:
            raise PermanentError(f"{misfit}") from None


def _nothing(_: str) -> None:
    return None


def _pair(text: str) -> tuple[str, Any] | None:
    heard = json.loads(text)
    return None if heard is None else (heard[0], heard[1])


def _several(names: Sequence[str], timeout: timedelta | float | None, until: datetime | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"names": list(names)}
    if timeout is not None:
        facts["timeout"] = _seconds(timeout)
    if until is not None:
        facts["until"] = text_of_moment(until)
    return facts


def _policy(retries: int | None, retry: Retry | None, timeout: timedelta | float | None) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if retry is not None:
        facts["retry"] = retry._told()
    if retries is not None:
        facts["retry"] = {**facts.get("retry", {}), "retries": retries}
    if timeout is not None:
        facts["timeout"] = _seconds(timeout)
    return facts


def result_codec(code: Callable[..., Any]) -> _types.Codec:
    """The codec of what a function gives."""
    return _types.codec_for(_types.hints_of(code).get("return", inspect.Parameter.empty))


def check_code(code: Any, args: Sequence[Any], kwargs: dict[str, Any], what: str) -> None:
    """Refuses objects that are not functions, and arguments that a function does not take."""
    if inspect.iscoroutine(code) or isinstance(code, Point):
        code.close()
        raise InvalidCall(
            f"{what} got a coroutine, want a function", hint="pass the function and its arguments: `ctx.step(name, f, 1)`, not `f(1)`"
        )
    if not callable(code):
        raise InvalidCall(f"{what} got {code!r}, want a function")
    try:
        inspect.signature(code, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError as error:
        place = place_of(code)
        raise InvalidCall(f"{what} cannot be called so: {error}" + (f" ({place})" if place else "")) from None
    except ValueError:  # It has no signature that could be read.
        pass


def place_of(code: Any) -> str | None:
    """The file and line of a function."""
    code = inspect.unwrap(code) if callable(code) else code
    found = getattr(code, "__code__", None)
    if not isinstance(found, types.CodeType):
        return None
    return f"{found.co_filename}:{found.co_firstlineno}"


