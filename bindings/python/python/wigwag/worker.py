"""Workers run the code of workflows, on the event loop on which they are started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from typing import Any, AsyncIterator, Callable, Iterable, Sequence

from . import _native
from ._log import logger
from ._loop import Hub, hub
from ._options import Settings
from ._runner import Registrar, Runner
from .client import Queue, WorkflowClient
from .errors import Forked, InvalidCall, WigwagError
from .workflow import Task, Workflow, WorkflowFunction, with_places

__all__ = ["Worker"]

_BLOCKED_AFTER = 1.0


class Worker:
    """Runs workflows and tasks of a store, on the event loop on which it is started.

    `async with Worker(...)` starts and stops it; `await worker.run()` runs it until a signal such as Ctrl-C;
    `worker.run_forever()` does so for programs without an event loop.
    """

    def __init__(
        self,
        store: Queue | str | os.PathLike[str],
        *,
        workflows: Iterable[Workflow[Any] | WorkflowFunction[Any, Any]] = (),
        tasks: Iterable[Task[Any, Any]] = (),
        queues: Sequence[str] = (),
        concurrency: int = 1_024,
        threads: int = 32,
        settings: Settings | None = None,
    ) -> None:
        self.url = store.url if isinstance(store, Queue) else os.fspath(store)
        self._workflows = list(workflows)
        self._tasks = list(tasks)
        self._queues = list(queues)
        self._concurrency = concurrency
        self._threads = threads
        self._settings = settings or Settings()
        self._engine: _native.Engine | None = None
        self._process = os.getpid()
        self._runner: Runner | None = None
        self._registrar: Registrar | None = None
        self._watch: _Watch | None = None
        check_names(self._workflows, self._tasks)

    @property
    def client(self) -> WorkflowClient:
        """A client of the same store."""
        return WorkflowClient(self.url)

    @property
    def active_runs(self) -> int:
        """How many runs it drives at the moment."""
        return self._engine.active_runs() if self._engine is not None else 0

    @property
    def loop_lag(self) -> float:
        """For how many seconds the event loop has not taken what the engine has for it."""
        return self._watch.lag if self._watch is not None else 0.0

    async def start(self) -> Worker:
        """Starts it. Workflows with mistakes are refused here."""
        self._check_process()
        if self._engine is not None:
            raise InvalidCall("this worker is started already", hint="make another `Worker`")
        current = hub()
        runner = Runner(self._threads)
        runner.url = self.url
        registrar = Registrar(current, runner)
        spec = {
            "workflows": [registrar.workflow(workflow) for workflow in self._workflows],
            "tasks": [registrar.task(task) for task in self._tasks],
            "queues": self._queues,
            "settings": {**self._settings._told(), "concurrency": self._concurrency},
        }
        engine = _native.Engine()
        text = json.dumps(spec)
        try:
            await current.ask(lambda mailbox, future: engine.start(mailbox, future, self.url, text))
        except WigwagError as error:
            registrar.forget()
            raise with_places(error, self._workflows)
        self._engine, self._runner, self._registrar = engine, runner, registrar
        self._watch = _Watch(current)
        return self

    async def stop(self) -> None:
        """Stops it: nothing new begins, running steps may end within the grace time, and all runs are released."""
        self._check_process()
        engine, self._engine = self._engine, None
        if engine is None:
            return
        assert self._runner is not None and self._registrar is not None and self._watch is not None
        try:
            if self._runner.is_dying:
                engine.kill()
            else:
                await hub().ask(engine.stop)
        finally:
            self._watch.stop()
            self._registrar.forget()
            self._runner.close()

    async def __aenter__(self) -> Worker:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def run(self) -> None:
        """Runs it until SIGINT or SIGTERM; a second one stops it at once. The handlers before it are put back."""
        ended = asyncio.Event()
        with _handled(asyncio.get_running_loop(), lambda: self._asked_to_stop(ended)):
            async with self:
                await ended.wait()

    def _asked_to_stop(self, ended: asyncio.Event) -> None:
        if not ended.is_set():
            logger.warning("stopping: %d runs are being driven; again to stop at once", self.active_runs)
            ended.set()
        else:
            logger.warning("stopped at once; runs continue when their worker is seen to be gone")
            os._exit(130)

    def run_forever(self) -> None:
        """Runs it in a program without an event loop, until SIGINT or SIGTERM."""
        asyncio.run(self.run())

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """A lifespan for FastAPI and Starlette: `FastAPI(lifespan=worker.lifespan)`."""
        async with self:
            yield

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise Forked(
                f"this worker was made in process {self._process}, and this is {os.getpid()}",
                hint="make it after the fork: in gunicorn's `post_fork`, uWSGI's `@postfork`, Celery's `worker_process_init`",
            )


def check_names(workflows: Sequence[Any], tasks: Sequence[Any]) -> None:
    """Refuses objects that are not workflows, and duplicate names."""
    for what, kinds, given in (
        ("workflow", (Workflow, WorkflowFunction), workflows),
        ("task", (Task,), tasks),
    ):
        names: dict[str, Any] = {}
        for one in given:
            if not isinstance(one, kinds):
                raise InvalidCall(f"`{one!r}` is no {what}", hint=f"decorate it with `@{what}(\"name\")`")
            if (other := names.setdefault(one.name, one)) is not one:
                raise InvalidCall(
                    f"{what} `{one.name}` is there twice: {other._where} and {one._where}", hint="give one of them another name"
                )


@contextlib.contextmanager
def _handled(loop: asyncio.AbstractEventLoop, handler: Callable[[], None]) -> Any:
    """Handles SIGINT and SIGTERM, in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.getsignal(number)
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(handler))
    try:
        yield
    finally:
        for number, old in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            if old is not None:
                signal.signal(number, old)


class _Watch:
    """Warns when the loop is blocked while runs are being driven: with its stack, once each time."""

    def __init__(self, current: Hub) -> None:
        self.lag = 0.0
        self._hub = weakref.ref(current)
        self._stopped = threading.Event()
        self._asked: float | None = None
        self._warned = False
        threading.Thread(target=self._watch, name="wigwag-watch", daemon=True).start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stopped.set()

    def _answer(self) -> None:
        """Called by the loop as soon as it comes to it."""
        self._asked, self._warned, self.lag = None, False, 0.0

    def _watch(self) -> None:
        while not self._stopped.wait(0.25):
            current = self._hub()
            if current is None:
                return
            asked = self._asked
            if asked is None:
                if current.is_busy():
                    self._asked = time.monotonic()
                    try:
                        current.loop.call_soon_threadsafe(self._answer)
                    except (RuntimeError, AssertionError):  # The loop is closed, or gone.
                        return
                continue
            self.lag = time.monotonic() - asked
            if self.lag >= _BLOCKED_AFTER and not self._warned:
                self._warned = True
                frame = sys._current_frames().get(current.thread)
                stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
                logger.warning(
                    "the event loop has been blocked for %.1f s; its runs keep their lease, but nothing of them continues:\n%s",
                    self.lag,
                    stack,
                )
