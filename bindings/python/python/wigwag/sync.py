"""The client for programs without an event loop: Django views, Flask, scripts.

The calls are those of `wigwag.WorkflowClient` and `wigwag.Queue`, without `await`. They run on a loop of the package's own,
in one thread that is started at the first call.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from typing import Any, AsyncIterator, Coroutine, Iterator, TypeVar

from . import client as _client
from .errors import InvalidCall

T = TypeVar("T")

__all__ = ["Queue", "RunHandle", "WorkflowClient", "connect"]

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


class _Wrapped:
    """Wraps an object of `wigwag.client`; its calls block."""

    _inner: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if inspect.isasyncgen(result):
                return _each(result)
            return _wrapped(_run(result)) if inspect.iscoroutine(result) else _wrapped(result)

        return call


def _each(items: AsyncIterator[T]) -> Iterator[T]:
    async def following() -> tuple[bool, Any]:
        try:
            return True, await items.__anext__()
        except StopAsyncIteration:
            return False, None

    while True:
        more, item = _run(following())
        if not more:
            return
        yield item


def _wrapped(result: Any) -> Any:
    if isinstance(result, (_client.RunHandle, _client.TaskHandle)):
        return RunHandle(result)
    return result


class RunHandle(_Wrapped):
    """One run or task, by its id."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)


class Queue(_Wrapped):
    """A store, and its tasks."""

    def __init__(self, inner: _client.Queue) -> None:
        self._inner = inner


class WorkflowClient(_Wrapped):
    """A client of workflow runs."""

    def __init__(self, store: Queue | str | os.PathLike[str]) -> None:
        self._inner = _client.WorkflowClient(store._inner if isinstance(store, Queue) else store)


def connect(url: str) -> Queue:
    """Opens a store."""
    return Queue(_run(_client.connect(url)))
