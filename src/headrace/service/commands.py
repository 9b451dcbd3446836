"""The one thread on which a session is used: requests hand it work and wait for the outcome.

The engine has its own threads and looks after itself; planning, registering and starting are not
made for many threads at once. Work is done in the order in which it comes. Long work (a batch of
texts to check) comes in pieces, so that others get their turn in between.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from headrace.errors import HeadraceError
from headrace.service.limits import TooMuch

T = TypeVar("T")

_TICK = 0.25


class Commands:
    """A thread that works, and that looks after the engine now and then."""

    def __init__(self, most_waiting: int, tick: Callable[[], None]) -> None:
        self._work: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None]
        self._work = queue.Queue(most_waiting)
        self._tick = tick
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="headrace-commands", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        return self._work.qsize()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have something done; raises where too much waits already."""
        future: Future[T] = Future()
        if self._ended:
            raise HeadraceError("the service ends", condition="SERVICE_ENDS")
        try:
            self._work.put_nowait((work, future))
        except queue.Full:
            raise TooMuch("too many requests wait", hint="try again in a moment") from None
        return future

    def do(self, work: Callable[[], T]) -> T:
        """The same, and wait for it."""
        return self.submit(work).result()

    def end(self) -> None:
        """Do what waits, and no more."""
        self._ended = True
        with suppress(queue.Full):
            self._work.put_nowait(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        ticked = 0.0
        while True:
            with suppress(queue.Empty):
                entry = self._work.get(timeout=_TICK)
                if entry is None:
                    return
                work, future = entry
                # One who waits no longer wants no answer either.
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(work())
                    except BaseException as error:
                        future.set_exception(error)
            if self._ended and self._work.empty():
                return
            if time.monotonic() - ticked >= _TICK:
                self._tick()
                ticked = time.monotonic()
