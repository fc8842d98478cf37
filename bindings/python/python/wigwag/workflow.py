"""Workflows as graphs of steps, as functions, and tasks."""

from __future__ import annotations

import contextlib
import functools
import inspect
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    Coroutine,
    Generic,
    Iterator,
    Literal,
    ParamSpec,
    Sequence,
    TypeVar,
    Union,
    cast,
    overload,
)

from . import _types
from ._options import Retry
from .context import Context, _current, _policy, check_code, place_of, result_codec
from .errors import InvalidCall, WigwagError, _seconds

if TYPE_CHECKING:
    Span = Union[timedelta, float]

P = ParamSpec("P")
T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")
N = TypeVar("N", bound="GraphStep[Any] | GraphSignal | _Group")

__all__ = ["GraphSignal", "GraphStep", "Step", "Task", "Workflow", "WorkflowFunction", "step", "task", "workflow"]

OnFailure = Literal["fail", "pause", "continue"]


class Step(Generic[P, T]):
    """A function that is a durable step where a workflow function calls it, and itself everywhere else."""

    def __init__(self, function: Callable[P, Awaitable[T]], name: str, policy: dict[str, Any]) -> None:
        self._function = function
        self._policy = policy
        self._undo: Callable[..., Any] | None = None
        self.name = name
        functools.update_wrapper(self, function)

    def _facts(self) -> dict[str, Any]:
        return dict(self._policy)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        context = _current.get()
        if isinstance(context, Context) and context.step_name is None:
            return context._step(self.name, self._function, args, kwargs, self)
        return self._function(*args, **kwargs)

    def on_compensate(self, undo: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Sets the compensation, run if the run fails or is cancelled later; it receives the step's result, or `None`."""
        check_code(undo, (None,), {}, f"the compensation of step `{self.name}`")
        self._undo = undo
        return undo


@overload
def step(function: Callable[P, Awaitable[T]], /) -> Step[P, T]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int | None = None,
    retry: Retry | None = None,
    timeout: timedelta | float | None = None,
) -> Callable[[Callable[P, Awaitable[T]]], Step[P, T]]: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int | None = None,
    retry: Retry | None = None,
    timeout: timedelta | float | None = None,
) -> Any:
    """Makes a function a step: called in a workflow function, its result is recorded; called elsewhere, it is itself."""

    def made(function: Callable[..., Any]) -> Step[Any, Any]:
        return Step(function, name or function.__name__, _policy(retries, retry, timeout))

    return made if function is None else made(function)


class WorkflowFunction(Generic[In, Out]):
    """A workflow that is written as a function: it is replayed, and recorded outcomes are returned."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]], name: str, version: int) -> None:
        if not inspect.iscoroutinefunction(function):
            raise InvalidCall(f"workflow `{name}` must be an `async def` ({place_of(function)})")
        parameters = list(inspect.signature(function).parameters.values())
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if not 1 <= len(positional) <= 2 or any(p.kind == p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
            raise InvalidCall(
                f"workflow `{name}` takes the context and at most one input ({place_of(function)})",
                hint="several inputs are one dataclass, TypedDict or dict",
            )
        hints = _types.hints_of(function)
        self.name = name
        self.version = version
        self._function = function
        self._takes_input = len(positional) == 2
        self._where = place_of(function)
        self._input_codec = _types.codec_for(hints.get(positional[1].name, Any)) if self._takes_input else _types.PLAIN
        self._output_codec = result_codec(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return self._function(*args, **kwargs)


class _Decorator:
    """Types what `@workflow` makes of functions with an input, and of those without."""

    def __init__(self, name: str, version: int) -> None:
        self._name = name
        self._version = version

    @overload
    def __call__(self, function: Callable[[Context, In], Coroutine[Any, Any, Out]]) -> WorkflowFunction[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[Context], Coroutine[Any, Any, Out]]) -> WorkflowFunction[None, Out]: ...
    def __call__(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> WorkflowFunction[Any, Any]:
        return WorkflowFunction(function, self._name, self._version)


def workflow(name: str, *, version: int = 1) -> _Decorator:
    """Makes an async function a workflow. It gets the context, and the input if it takes one."""
    return _Decorator(name, version)


class Task(Generic[In, Out]):
    """The code of a task: one step that any worker of its queue may run."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        parameters = list(inspect.signature(function).parameters)
        hints = _types.hints_of(function)
        self.name = name
        self._function = function
        self._takes_context = len(parameters) >= 2
        self._takes_input = bool(parameters)
        last = parameters[1] if self._takes_context else parameters[0] if parameters else None
        self._input_codec = _types.codec_for(hints.get(last, Any)) if last is not None else _types.PLAIN
        self._output_codec = result_codec(function)
        self._where = place_of(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def task(name: str) -> Callable[[Callable[..., Any]], Task[Any, Any]]:
    """Makes a function the code of a task. It gets the input, or the context and the input."""
    return lambda function: Task(function, name)


class GraphStep(Generic[T]):
    """A step of a graph. Called, it is its function."""

    def __init__(self, workflow: Workflow[Any], name: str, function: Callable[..., T] | None, facts: dict[str, Any]) -> None:
        self.name = name
        self._workflow = workflow
        self._function = function
        self._facts = facts
        self._undo: Callable[..., Any] | None = None
        self._where = place_of(function) if function is not None else None
        self._codec = result_codec(function) if function is not None else _types.PLAIN
        if function is not None:
            functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        if self._function is None:
            raise InvalidCall(f"the code of step `{self.name}` is with other workers")
        return self._function(*args, **kwargs)

    def on_compensate(self, undo: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the compensation: it receives the context and the step's result, or `None` if the step itself failed."""
        check_code(undo, (None, None), {}, f"the compensation of step `{self.name}`")
        self._undo = undo
        return undo


class GraphSignal:
    """A wait for a signal as a step of a graph."""

    def __init__(self, step: str, name: str, facts: dict[str, Any], signal: dict[str, Any], codec: _types.Codec) -> None:
        self.name = step
        self.signal = name
        self._facts = facts
        self._signal = signal
        self._codec = codec
        self._on_receive: Callable[..., Any] | None = None
        self._on_timeout: Callable[..., Any] | None = None
        self._where: str | None = None

    def __call__(self, on_receive: Callable[..., Any]) -> GraphSignal:
        check_code(on_receive, (None, None), {}, f"the receiver of signal `{self.signal}`")
        self._on_receive = on_receive
        self._where = place_of(on_receive)
        return self

    def on_timeout(self, code: Callable[..., Any]) -> GraphSignal:
        """Decorates code that changes the run's data when no signal arrived in time; then the run continues."""
        check_code(code, (None,), {}, f"the timeout of signal `{self.signal}`")
        self._on_timeout = code
        return self


class Workflow(Generic[In]):
    """A workflow as steps with dependencies. Steps that can run in parallel do."""

    def __init__(self, name: str, *, input: type[In] | None = None) -> None:
        self.name = name
        self._input_codec = _types.codec_for(input) if input is not None else _types.PLAIN
        self._output_codec = _types.PLAIN
        self._nodes: list[Any] = []
        self._into = self._nodes
        self._names: dict[str, str] = {}
        self._prefix = ""
        self._where = _caller()

    def step(
        self,
        name: str | None = None,
        *,
        depends_on: str | Sequence[str] = (),
        retries: int | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        delay: timedelta | float | None = None,
        when: Callable[[Any], Any] | None = None,
        queue: str | None = None,
        on_failure: OnFailure = "fail",
    ) -> Callable[[Callable[..., T]], GraphStep[T]]:
        """Adds a step. Its code gets the context; a plain `def` runs in a thread.

        `delay` is how long it waits once it could begin; `when` is asked of the run's data once, on entry.
        """
        where = _caller()

        def made(function: Callable[..., T]) -> GraphStep[T]:
            own = name or function.__name__
            check_code(function, (None,), {}, f"step `{own}`")
            facts = self._common(depends_on, delay, when, on_failure)
            facts.update(_policy(retries, retry, timeout))
            if queue is not None:
                facts["queue"] = queue
            return self._add(GraphStep(self, own, function, facts), place_of(function) or where)

        return made

    def remote_step(
        self,
        name: str,
        *,
        queue: str | None = None,
        depends_on: str | Sequence[str] = (),
        retries: int | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | None = None,
        delay: timedelta | float | None = None,
        when: Callable[[Any], Any] | None = None,
        on_failure: OnFailure = "fail",
    ) -> GraphStep[Any]:
        """Adds a step whose code is with other workers, which may be written in another language."""
        facts = self._common(depends_on, delay, when, on_failure)
        facts.update(_policy(retries, retry, timeout))
        if queue is not None:
            facts["queue"] = queue
        return self._add(GraphStep(self, name, None, facts), _caller())

    def signal(
        self,
        name: str,
        *,
        step: str | None = None,
        depends_on: str | Sequence[str] = (),
        timeout: timedelta | float | None = None,
        type: Any = None,
        quorum: int | None = None,
        latest: bool = False,
        authenticated: bool = False,
        about: str | None = None,
        delay: timedelta | float | None = None,
        when: Callable[[Any], Any] | None = None,
        on_failure: OnFailure = "fail",
    ) -> GraphSignal:
        """Adds a wait for a signal, as a step whose result is the payload. Decorates `on_receive(data, payload)`, which may
        change the run's data: in place, or by returning the whole of it. `about` is one line for the person who answers,
        which inboxes show."""
        facts = self._common(depends_on, delay, when, on_failure)
        if timeout is not None:
            facts["timeout"] = _seconds(timeout)
        codec = _types.codec_for(type if type is not None else Any)
        signal: dict[str, Any] = {"name": name, "latest": latest, "authenticated": authenticated}
        if quorum is not None:
            signal["quorum"] = quorum
        if about is not None:
            signal["about"] = about
        if (schema := codec.schema()) is not None:
            signal["schema"] = schema
        return self._add(GraphSignal(step or name, name, facts, signal, codec), _caller())

    @contextlib.contextmanager
    def group(self, name: str, *, depends_on: str | Sequence[str] = ()) -> Iterator[None]:
        """A named sequence: each step in it comes after the one before, and is recorded as `group/step`."""
        group = self._add(_Group(name, _names(depends_on)), _caller())
        outer, prefix = self._into, self._prefix
        self._into, self._prefix = group.nodes, f"{prefix}{name}/"
        try:
            yield
        finally:
            self._into, self._prefix = outer, prefix

    def _common(self, after: Any, delay: Any, when: Any, on_failure: OnFailure) -> dict[str, Any]:
        if on_failure not in ("fail", "pause", "continue"):
            raise InvalidCall(f"`on_failure` is 'fail', 'pause' or 'continue', got: {on_failure!r}")
        facts: dict[str, Any] = {"after": _names(after), "on_failure": on_failure}
        if delay is not None:
            facts["delay"] = _seconds(delay)
        if when is not None:
            facts["when"] = when
        return facts

    def _add(self, node: N, where: str | None) -> N:
        path = self._prefix + node.name
        if (first := self._names.get(path)) is not None:
            raise InvalidCall(
                f"step `{path}` of workflow `{self.name}` is defined twice: {first} and {where}",
                hint="give one of them another name, or make another `Workflow`",
            )
        self._names[path] = where or "?"
        self._into.append(node)
        return node


class _Group:
    def __init__(self, name: str, after: list[str]) -> None:
        self.name = name
        self.after = after
        self.nodes: list[Any] = []


def with_places(error: WigwagError, workflows: Sequence[Any]) -> WigwagError:
    """Adds where the workflow that an error names is defined."""
    for workflow in workflows:
        if f"`{workflow.name}`" in error.message and workflow._where and workflow._where not in error.message:
            error.message = f"{error.message} (defined at {workflow._where})"
            error.args = (error.message,)
            break
    return error


def _names(names: str | Sequence[str]) -> list[str]:
    if isinstance(names, str):
        return [names]
    found = [getattr(name, "name", name) for name in names]
    for name in found:
        if not isinstance(name, str):
            raise InvalidCall(f"`depends_on` takes names of steps, got: {name!r}")
    return cast("list[str]", found)


def _caller() -> str | None:
    frame = inspect.currentframe()
    own = __file__
    while frame is not None and (frame.f_code.co_filename == own or frame.f_code.co_filename.endswith("contextlib.py")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else None
