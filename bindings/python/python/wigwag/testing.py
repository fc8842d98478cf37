"""For tests of workflows: weeks of waiting in milliseconds, failures on request.

    async with Kit(workflows=[reminder]) as kit:
        await kit.fail("mail", RetryableError("the mail server is down"))
        run = await kit.client.start(reminder, "ada")
        await kit.run_until_idle()
        assert await run.result() == "reminded ada"
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Iterable, Sequence

from . import _native
from ._loop import hub
from ._runner import Registrar, Runner
from .client import Queue, WorkflowClient
from .errors import WigwagError, _failure_of, _seconds
from .worker import check_names
from .workflow import Task, Workflow, WorkflowFunction, with_places

__all__ = ["Kit"]


class _KitAsking:
    def __init__(self, kit: _native.Kit) -> None:
        self._kit = kit

    async def ask(self, op: str, **facts: Any) -> Any:
        told = json.dumps({op: {n: v for n, v in facts.items() if v is not None or n in ("input", "payload")}})
        return json.loads(await hub().ask(lambda mailbox, future: self._kit.client(mailbox, future, told)))


class Kit:
    """A worker on a store in memory, with a clock that is moved by hand."""

    def __init__(
        self,
        *,
        workflows: Iterable[Workflow[Any] | WorkflowFunction[Any, Any]] = (),
        tasks: Iterable[Task[Any, Any]] = (),
        queues: Sequence[str] = (),
        threads: int = 8,
    ) -> None:
        self._workflows = list(workflows)
        self._tasks = list(tasks)
        self._queues = list(queues)
        self._threads = threads
        self._kit = _native.Kit()
        self._registrar: Registrar | None = None
        self._runner: Runner | None = None
        #: The store's tasks, as `connect` gives them.
        self.queue = Queue(f"kit:{id(self)}", _KitAsking(self._kit))
        #: A client of its runs.
        self.client = WorkflowClient(self.queue)
        check_names(self._workflows, self._tasks)

    async def __aenter__(self) -> Kit:
        await self._begin("start")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ask("stop")
        if self._registrar is not None and self._runner is not None:
            self._registrar.forget()
            self._runner.close()

    async def _begin(self, op: str) -> None:
        current = hub()
        self._runner = Runner(self._threads)
        self._runner.url = self.queue.url
        self._registrar = Registrar(current, self._runner)
        spec = {
            "workflows": [self._registrar.workflow(workflow) for workflow in self._workflows],
            "tasks": [self._registrar.task(task) for task in self._tasks],
            "queues": self._queues,
        }
        try:
            await self._ask(op, spec=json.dumps(spec))
        except WigwagError as error:
            raise with_places(error, self._workflows)

    async def _ask(self, op: str, **facts: Any) -> Any:
        told = json.dumps({op: facts})
        return json.loads(await hub().ask(lambda mailbox, future: self._kit.ask(mailbox, future, told)))

    async def settle(self) -> None:
        """Lets all pending work finish that needs no time to pass."""
        await self._ask("settle")

    async def advance(self, span: timedelta | float) -> None:
        """Advances the clock, and lets the work finish that becomes due."""
        await self._ask("advance", seconds=_seconds(span))

    async def run_until_idle(self) -> None:
        """Moves from one moment at which something is due to the next, until all runs have ended or wait for a signal."""
        await self._ask("run_until_idle")

    async def fail(self, step: str, *failures: BaseException) -> None:
        """Lets the next attempts of a step fail so, one after the other, instead of running it."""
        await self._ask("fail", step=step, failures=[_failure_of(failure) for failure in failures])

    async def crash(
        self, *, workflows: Iterable[Workflow[Any] | WorkflowFunction[Any, Any]] | None = None
    ) -> None:
        """Ends the worker as `kill -9` would, and starts another on the same store, optionally with other workflows."""
        if workflows is not None:
            self._workflows = list(workflows)
        registrar = self._registrar
        await self._begin("crash")
        if registrar is not None:
            registrar.forget()

    async def elapsed(self) -> timedelta:
        """The time by which the clock was advanced."""
        return timedelta(seconds=await self._ask("elapsed"))
