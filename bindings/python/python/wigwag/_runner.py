"""Runs users' code: coroutines on the loop, plain functions in threads of the worker's own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import json
import sys
from typing import Any, Callable, Coroutine

from . import _types
from ._log import logger
from ._loop import Hub
from .context import Context, StepCall, _current
from .errors import PermanentError, _failure_of
from .workflow import GraphSignal, GraphStep, Task, Workflow, WorkflowFunction, _Group

_EAGER = sys.version_info >= (3, 12)


class Runner:
    """Runs the code of one worker."""

    def __init__(self, threads: int) -> None:
        self._context = contextvars.copy_context()
        self._threads = threads
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self.url = ""
        #: The interpreter is to end: nothing more is recorded here.
        self.is_dying = False

    def task(self, hub: Hub, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a separate task, in a copy of the context in which the worker was started."""
        return self._context.copy().run(_spawn, hub.loop, coroutine)

    def close(self) -> None:
        """Ends idle threads at once, and busy ones when their work is done."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, code: Callable[..., Any], body: Callable[[], Any], inside: Context | StepCall) -> Any:
        """Runs code: a coroutine function here, another in a thread."""
        _current.set(inside)
        if inspect.iscoroutinefunction(inspect.unwrap(code)):
            return await body()
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self._threads, thread_name_prefix="wigwag")
        context = contextvars.copy_context()
        future = self._pool.submit(context.run, _called, body)
        try:
            result = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.done():
                logger.warning(
                    "step `%s` of run `%s` was stopped, but its thread continues: a thread cannot be stopped",
                    inside.step_name,
                    inside.workflow_id,
                )
            raise
        return await result if inspect.isawaitable(result) else result

    async def outcome(
        self, code: Callable[..., Any], body: Callable[[], Any], inside: Context | StepCall, codec: _types.Codec, where: str | None
    ) -> tuple[bool, str]:
        """Runs code; returns whether it succeeded, and its result or failure as JSON text."""
        try:
            result = await self.run(code, body, inside)
            return True, codec.dumps(result, "result")
        except _types.Misfit as misfit:
            what = f"step `{inside.step_name}`" if inside.step_name else f"workflow `{inside.workflow}`"
            place = f", {where}" if where else ""
            return False, json.dumps(_failure_of(PermanentError(f"{misfit} ({what}{place})")))
        except (SystemExit, KeyboardInterrupt):
            self.is_dying = True
            raise
        except asyncio.CancelledError:
            return False, json.dumps({"kind": "Cancelled", "message": "the code was cancelled, but not by the engine"})
        except Exception as error:
            return False, json.dumps(_failure_of(error))

    def start_call(
        self,
        hub: Hub,
        call: int,
        body: Callable[[], Any],
        code: Callable[..., Any],
        info: StepCall,
        codec: _types.Codec,
        *,
        where: str | None = None,
        discard: bool = False,
    ) -> asyncio.Task[None]:
        """Runs the code of a function's step, and reports its outcome."""

        async def run() -> None:
            is_ok, text = await self.outcome(code, body, info, _DISCARD if discard else codec, where)
            hub.done(call, is_ok, text)

        return self.task(hub, run())

    def start_scope(
        self, hub: Hub, context: Context, code: Callable[..., Any], body: Callable[[], Any], codec: _types.Codec, where: str | None
    ) -> None:
        """Runs the code of a scope, and reports its outcome."""

        async def run() -> None:
            is_ok, text = await self.outcome(code, body, context, codec, where)
            data = None
            if is_ok and context.step_name is not None:
                try:
                    data = context._changed_data()
                except PermanentError as error:
                    is_ok, text = False, json.dumps(_failure_of(error))
            hub.returned(context._scope, is_ok, text, data)

        context._task = self.task(hub, run())


def _called(body: Callable[[], Any]) -> Any:
    """A frame of this package around code in a thread: arguments that the code does not take are noticed by it."""
    return body()


_DISCARD = _types.Codec(lambda _value, _path: None, lambda value, _path: value, lambda: None)


def _spawn(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    if _EAGER:
        return asyncio.Task(coroutine, loop=loop, eager_start=True)  # type: ignore[call-arg,unused-ignore]
    return asyncio.Task(coroutine, loop=loop)


class _Code:
    """Code of a worker."""

    def __init__(self, runner: Runner, workflow: str, input_codec: _types.Codec) -> None:
        self._runner = runner
        self._workflow = workflow
        self._input_codec = input_codec

    def begin(self, hub: Hub, scope: int, told: dict[str, Any], replaying: bool, now: int) -> Context:
        """The context of a call."""
        step = told["key"].partition(":")[2] if "key" in told else None
        return Context(
            hub, self._runner, scope, told,
            workflow=self._workflow, replaying=replaying, now=now, step=step, input_codec=self._input_codec,
        )  # fmt: skip

    def start(self, hub: Hub, context: Context) -> None:
        """Runs the code."""
        raise NotImplementedError

    def call(self, hub: Hub, call: int, attempt: int, told: Any) -> asyncio.Task[None] | None:
        """Runs code that is no step."""
        raise NotImplementedError


class _FunctionCode(_Code):
    def __init__(self, runner: Runner, function: WorkflowFunction[Any, Any]) -> None:
        super().__init__(runner, function.name, function._input_codec)
        self._function = function

    def start(self, hub: Hub, context: Context) -> None:
        function = self._function

        async def body() -> Any:
            if not function._takes_input:
                return await function._function(context)
            try:
                given = context.input
            except _types.Misfit as misfit:
                raise PermanentError(f"the input of workflow `{function.name}` does not fit: {misfit} ({function._where})") from None
            return await function._function(context, given)

        self._runner.start_scope(hub, context, function._function, body, function._output_codec, function._where)


class _StepCode(_Code):
    def __init__(self, runner: Runner, workflow: Workflow[Any], step: GraphStep[Any]) -> None:
        super().__init__(runner, workflow.name, workflow._input_codec)
        self._step = step

    def start(self, hub: Hub, context: Context) -> None:
        code = self._step._function
        assert code is not None
        self._runner.start_scope(hub, context, code, lambda: code(context), self._step._codec, self._step._where)


class _UndoCode(_StepCode):
    def start(self, hub: Hub, context: Context) -> None:
        code, codec = self._step._undo, self._step._codec
        assert code is not None
        told = context._told.get("result")

        def body() -> Any:
            result = None if told is None else codec.decode(told, "result")
            return code(context, result)

        self._runner.start_scope(hub, context, code, body, _DISCARD, self._step._where)


class _TaskCode(_Code):
    def __init__(self, runner: Runner, task: Task[Any, Any]) -> None:
        super().__init__(runner, task.name, task._input_codec)
        self._task = task

    def start(self, hub: Hub, context: Context) -> None:
        task = self._task

        def body() -> Any:
            if not task._takes_input:
                return task._function()
            try:
                given = context.input
            except _types.Misfit as misfit:
                raise PermanentError(f"the input of task `{task.name}` does not fit: {misfit} ({task._where})") from None
            return task._function(context, given) if task._takes_context else task._function(given)

        self._runner.start_scope(hub, context, task._function, body, task._output_codec, task._where)


class _DataCode(_Code):
    """Code that is called with the run's data: a condition, or the receiver of a signal."""

    def __init__(self, runner: Runner, code: Callable[..., Any], codec: _types.Codec | None, is_condition: bool) -> None:
        super().__init__(runner, "", _types.PLAIN)
        self._called = code
        self._codec = codec
        self._is_condition = is_condition

    def call(self, hub: Hub, call: int, attempt: int, told: Any) -> asyncio.Task[None] | None:
        async def run() -> None:
            data = told["data"]
            try:
                given = [data] if self._codec is None else [data, self._codec.decode(told["signal"], "signal")]
                result = self._called(*given)
                if inspect.isawaitable(result):
                    result = await result
                if self._is_condition:
                    text = json.dumps(bool(result))
                else:
                    text = _types.PLAIN.dumps(data if result is None else result, "data")
                is_ok = True
            except _types.Misfit as misfit:
                is_ok, text = False, json.dumps(_failure_of(PermanentError(str(misfit))))
            except (SystemExit, KeyboardInterrupt):
                self._runner.is_dying = True
                raise
            except Exception as error:
                is_ok, text = False, json.dumps(_failure_of(error))
            hub.done(call, is_ok, text)

        return self._runner.task(hub, run())


class Registrar:
    """Gives numbers to the code of a worker, and describes it to the engine."""

    def __init__(self, hub: Hub, runner: Runner) -> None:
        self._hub = hub
        self._runner = runner
        self.numbers: list[int] = []

    def forget(self) -> None:
        """Takes the code out again."""
        for number in self.numbers:
            self._hub.handlers.pop(number, None)

    def _number(self, code: _Code) -> int:
        number = self._hub.number()
        self._hub.handlers[number] = code
        self.numbers.append(number)
        return number

    def workflow(self, workflow: Workflow[Any] | WorkflowFunction[Any, Any]) -> dict[str, Any]:
        """Describes a workflow to the engine."""
        if isinstance(workflow, WorkflowFunction):
            number = self._number(_FunctionCode(self._runner, workflow))
            return {"name": workflow.name, "version": workflow.version, "code": number}
        return {"name": workflow.name, "steps": [self._node(workflow, node) for node in workflow._nodes]}

    def task(self, task: Task[Any, Any]) -> dict[str, Any]:
        """Describes a task to the engine."""
        return {"name": task.name, "code": self._number(_TaskCode(self._runner, task))}

    def _node(self, workflow: Workflow[Any], node: Any) -> dict[str, Any]:
        if isinstance(node, _Group):
            steps = [self._node(workflow, inner) for inner in node.nodes]
            return {"name": node.name, "after": node.after, "group": steps}
        told: dict[str, Any] = {"name": node.name, **node._facts}
        if "when" in told:
            told["when"] = self._number(_DataCode(self._runner, told["when"], None, True))
        if isinstance(node, GraphSignal):
            signal = dict(node._signal)
            if node._on_receive is not None:
                signal["on_receive"] = self._number(_DataCode(self._runner, node._on_receive, node._codec, False))
            if node._on_timeout is not None:
                signal["on_timeout"] = self._number(_DataCode(self._runner, node._on_timeout, None, False))
            return {**told, "signal": signal}
        if node._function is not None:
            told["code"] = self._number(_StepCode(self._runner, workflow, node))
        if node._undo is not None:
            told["undo"] = self._number(_UndoCode(self._runner, workflow, node))
        return told
