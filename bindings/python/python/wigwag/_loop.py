"""The hub of one event loop: the link between the engine and the code on that loop.

The engine's threads never take the GIL. They put items into a mailbox and wake the loop, which takes all of them with one
call; requests of the code are passed to the engine with one call for each round of the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Protocol

from . import _native
from ._log import logger
from .errors import WigwagError, _error_of

if TYPE_CHECKING:
    from .context import Context, Point

# On a bucket, notifications to other processes are sent in the background: a script that ends at once delivers them first.
atexit.register(_native.flush)

BEGIN, CALL, REPLY, GONE, DROPPED, ANSWER, FORGET, CANCELLED, LOG = range(1, 10)
ASK, DROP, ACK, RETURN, DONE, BELOW = range(1, 7)

# `asyncio.wait` needs three rounds of the loop to cancel what lost a race; code that has been quiet for five waits.
_QUIET_ROUNDS = 5

Word = tuple[int, int, int, "str | None", "str | None"]


class Handler(Protocol):
    """Code of a worker, by its number."""

    def begin(self, hub: Hub, scope: int, told: dict[str, Any], replaying: bool, now: int) -> Context: ...

    def start(self, hub: Hub, context: Context) -> None: ...

    def call(self, hub: Hub, call: int, attempt: int, told: Any) -> asyncio.Task[None] | None: ...


class Hub:
    """The link between one event loop and the engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._mailbox = _native.Mailbox()
        self._words: list[Word | Point[Any]] = []
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._quiet: dict[int, int] = {}
        self._number = 0
        self.thread = threading.get_ident()
        self.handlers: dict[int, Handler] = {}
        self.functions: dict[int, Callable[[Hub, int, int, Any], asyncio.Task[None] | None]] = {}
        self.scopes: dict[int, Context] = {}
        self.calls: dict[int, asyncio.Task[None] | None] = {}
        try:
            loop.add_reader(self._mailbox.fileno(), self._drain)
        except NotImplementedError:
            threading.Thread(target=_watch, args=(weakref.ref(self),), name="wigwag-mailbox", daemon=True).start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""
        loop = self._loop()
        assert loop is not None, "the event loop is gone"
        return loop

    @property
    def mailbox(self) -> _native.Mailbox:
        """The mailbox of the loop."""
        return self._mailbox

    def number(self) -> int:
        """Returns a number that is unique on this loop."""
        self._number += 1
        return self._number

    def ask(self, put: Callable[[_native.Mailbox, int], None]) -> asyncio.Future[str]:
        """Sends a request from outside of a run; the future gets the answer, as JSON text."""
        number = self.number()
        future: asyncio.Future[str] = self.loop.create_future()
        self._answers[number] = future
        put(self._mailbox, number)
        return future

    def say(self, word: Word | Point[Any]) -> None:
        """Sends a request to the engine at the end of this round of the loop."""
        if not self._words:
            self.loop.call_soon(self._flush)
        self._words.append(word)

    def submit_below(self, call: int, text: str) -> asyncio.Future[str]:
        """Submits a task from the code of a function's step."""
        number = self.number()
        future: asyncio.Future[str] = self.loop.create_future()
        self._answers[number] = future
        self.say((BELOW, call, number, text, None))
        return future

    def is_busy(self) -> bool:
        """Whether the engine waits for the loop, or code of a run is under way on it. Asked from other threads."""
        return bool(self._mailbox.untaken() or self.scopes or self.calls)

    def _flush(self) -> None:
        words, self._words = self._words, []
        self._mailbox.say([word if isinstance(word, tuple) else word._word() for word in words])

    def _drain(self) -> None:
        for kind, first, second, number, now, text in self._mailbox.take():
            if kind == ANSWER:
                self._answered(first, second == 1, text or "null")
            elif kind == REPLY:
                if (scope := self.scopes.get(first)) is not None:
                    self._told(first)
                    scope._replied(second, bool(number & 1), bool(number & 2), now, text or "null")
            elif kind == BEGIN:
                if (handler := self.handlers.get(second)) is not None:
                    self._told(first)
                    context = handler.begin(self, first, json.loads(text or "null"), bool(number), now)
                    self.scopes[first] = context
                    handler.start(self, context)
            elif kind == CALL:
                self._call(first, second, number, text or "null")
            elif kind == GONE:
                self._quiet.pop(first, None)
                if (scope := self.scopes.pop(first, None)) is not None:
                    scope._gone()
            elif kind == DROPPED:
                if (task := self.calls.pop(first, None)) is not None:
                    task.cancel()
            elif kind == FORGET:
                self.functions.pop(first, None)
            elif kind == LOG:
                logger.log(logging.ERROR if first else logging.WARNING, "%s", text)
            elif kind == CANCELLED and (scope := self.scopes.get(first)) is not None:
                self._told(first)
                scope._cancel_asked()

    def _answered(self, number: int, is_ok: bool, text: str) -> None:
        future = self._answers.pop(number, None)
        if future is None or future.done():
            return
        if is_ok:
            future.set_result(text)
        else:
            future.set_exception(error_of(text))

    def _call(self, call: int, function: int, attempt: int, text: str) -> None:
        code = self.functions.get(function)
        if code is None and (handler := self.handlers.get(function)) is not None:
            code = handler.call
        if code is not None:
            # Begun at once, the code may be done before its task is known.
            self.calls[call] = None
            task = code(self, call, attempt, json.loads(text))
            if call in self.calls:
                self.calls[call] = task

    def done(self, call: int, is_ok: bool, text: str) -> None:
        """Reports the outcome of a call."""
        if call in self.calls:
            del self.calls[call]
            self.say((DONE, call, int(is_ok), text, None))

    def returned(self, scope: int, is_ok: bool, text: str, data: str | None) -> None:
        """Reports the outcome of a scope."""
        if self.scopes.pop(scope, None) is not None:
            self._quiet.pop(scope, None)
            self.say((RETURN, scope, int(is_ok), text, data))

    def _told(self, scope: int) -> None:
        """Records that a scope received something: it counts as quiet only after several rounds of the loop."""
        if not self._quiet:
            self.loop.call_soon(self._breathe)
        self._quiet[scope] = _QUIET_ROUNDS

    def _breathe(self) -> None:
        for scope, rounds in list(self._quiet.items()):
            if rounds > 0:
                self._quiet[scope] = rounds - 1
                continue
            del self._quiet[scope]
            if (context := self.scopes.get(scope)) is not None:
                self.say((ACK, scope, context._heard, None, None))
        if self._quiet:
            self.loop.call_soon(self._breathe)


def error_of(text: str) -> WigwagError:
    """Returns the exception for an error of the engine, given as JSON text."""
    return _error_of(json.loads(text))


def _watch(hub: weakref.ref[Hub]) -> None:
    """Watches the mailbox for a loop that can watch no descriptor."""
    while (owner := hub()) is not None:
        loop = owner._loop()
        if loop is None or loop.is_closed():
            return
        mailbox = owner._mailbox
        drain = owner._drain
        del owner
        if mailbox.wait(0.2):
            taken = threading.Event()

            def take(drain: Callable[[], None] = drain, taken: threading.Event = taken) -> None:
                drain()
                taken.set()

            try:
                loop.call_soon_threadsafe(take)
            except RuntimeError:  # The loop has just been closed.
                return
            taken.wait(1)
        del drain


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()
_registered = False


def hub() -> Hub:
    """The hub of the running loop."""
    global _registered
    loop = asyncio.get_running_loop()
    known = _hubs.get(loop)
    if known is None:
        if not _registered:
            _registered = True
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_forked)
        known = _hubs[loop] = Hub(loop)
    return known


def _forked() -> None:
    """In a forked child: nothing of the parent's is used, and its locks are let go of.

    An OS lock belongs to the open file, which the child shares: with it open, nobody would notice that the parent died.
    """
    _hubs.clear()
    descriptors = _native.lock_descriptors()
    if descriptors:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in descriptors:
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)
