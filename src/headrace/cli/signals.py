"""What a command does when it is asked to end: by Ctrl-C, or SIGTERM from a service manager.

A signal may come at any moment, and an exception that is raised wherever the program happens to be
breaks what goes on there: a call into Java loses its connection, a callback of Spark's dies and
takes the epoch with it. So the work has a thread of its own, and the main thread, in which Python
handles signals, does nothing but wait. A signal is noted; the work looks whether there was one.

(Spark is started by the work, too: in the main thread PySpark would handle Ctrl-C itself, cancel
all jobs, and raise.)
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from headrace.cli.spark import with_active_session

T = TypeVar("T")

_LOOK = 0.1
# How long (seconds) the work may take to end after it was asked for the second time.
_PATIENCE = 20.0


class Unended(Exception):
    """The work was asked to end at once, and did not."""


class Asked(Exception):
    """The work was asked to end, and has come to a place where it can."""


class Signals:
    """Asks to end, as they come."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    @property
    def asked(self) -> bool:
        """Whether to end in good order."""
        return bool(self._numbers)

    def check(self) -> None:
        """End here if that was asked for."""
        if self.asked:
            raise Asked

    @property
    def asked_again(self) -> bool:
        """Whether to end at once."""
        return len(self._numbers) > 1

    @property
    def exit_code(self) -> int:
        """What a shell says of a process that the first signal has ended."""
        return 128 + self._numbers[0]

    def while_working(
        self,
        work: Callable[[], T],
        on_first: Callable[[], None] = lambda: None,
        on_second: Callable[[], None] = lambda: None,
    ) -> T:
        """Do the work on another thread, and say meanwhile what was asked for."""
        if threading.current_thread() is not threading.main_thread():
            # Python lets only its main thread say what signals do.
            return work()
        job = _Job(with_active_session(work))
        before = {
            number: signal.signal(number, self._note)
            for number in (signal.SIGINT, signal.SIGTERM)
            # Who was started to ignore them goes on to.
            if signal.getsignal(number) != signal.SIG_IGN
        }
        try:
            job.start()
            self._wait(job, [on_first, on_second])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return job.result()

    def _wait(self, job: _Job[T], reactions: list[Callable[[], None]]) -> None:
        given_up = None
        while job.is_alive():
            job.join(_LOOK)
            if self._numbers and len(reactions) == 2:
                reactions.pop(0)()
            if self.asked_again and reactions:
                reactions.pop()()
                given_up = time.monotonic() + _PATIENCE
            if given_up is not None and time.monotonic() > given_up:
                raise Unended

    def _note(self, number: int, frame: object) -> None:
        self._numbers.append(number)


class _Job(threading.Thread, Generic[T]):
    """Work with a result, on a thread that no exit waits for."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(name="headrace-command", daemon=True)
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]
