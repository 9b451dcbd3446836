"""An engine that runs for good: started when there is something to run, and again when it ended.

What fails for all (a source that is away, a full disk) is tried again after a second, then after
twice as long, up to a minute. What fails for one query stays with that query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.settings import FailedQueries
from headrace.state.branches import QueryBranch

if TYPE_CHECKING:
    from headrace.session import Headrace

_LOG = logging.getLogger("headrace")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
#: An engine that ran so long (seconds) was well, whatever ended it.
_WELL = 60.0


@dataclass
class EngineLife:
    """Of one session. Everything is called on the thread of the commands."""

    hr: Headrace
    trigger: str | None = None
    #: Names of queries that somebody wants to run.
    wanted: Callable[[], set[str]] = set
    trouble: HeadraceError | None = None
    starts: int = 0
    #: Queries that were asked to go on while the engine stood still.
    _resumed: set[str] = field(default_factory=set)
    _running: bool = False
    _started: float = 0.0
    _pause: float = _FIRST_PAUSE
    _not_before: float = 0.0

    def __post_init__(self) -> None:
        # What failed, or was paused, waits until somebody says how it goes on.
        self.hr.engine.ask_failed_queries = lambda: FailedQueries(others="wait")

    def tick(self) -> None:
        """See that it runs if there is anything to run."""
        if self.hr.isActive:
            if self._running and time.monotonic() - self._started > _WELL:
                self.trouble, self._pause = None, _FIRST_PAUSE
            return
        if self._running:
            self._note_end()
        if time.monotonic() >= self._not_before and self._has_work():
            self._start()

    def look_at_once(self) -> None:
        """Somebody has changed something: what ended before may go now."""
        self._not_before = 0.0

    def resumed(self, name: str) -> None:
        """A query is to go on; an engine that stands still is started for it."""
        self._resumed.add(name)
        self.look_at_once()

    def restart(self, timeout: float = 30.0) -> None:
        """Stop after the epoch that runs, and go on with everything that has failed."""
        self.hr.stop(timeout)
        self._running = False
        self.look_at_once()

    def stop(self, timeout: float | None) -> bool:
        self._not_before = float("inf")
        return self.hr.stop(timeout)

    def standing_still(self) -> dict[str, QueryBranch]:
        """Queries that were paused or have failed, whose place is kept."""
        branches = dict(self.hr.engine.state().branches)
        return {name: branch for name, branch in branches.items() if branch.failure is not None}

    def _has_work(self) -> bool:
        wanted = self.wanted()
        if not wanted:
            return False
        return bool((wanted - self.standing_still().keys()) | (wanted & self._resumed))

    def _start(self) -> None:
        self.hr.engine.revive()
        self.starts += 1
        try:
            self.hr.start(processingTime=self.trigger)
        except Exception as error:
            self._failed(error)
            return
        self._running, self._started = True, time.monotonic()
        self._resumed.clear()

    def _note_end(self) -> None:
        """It ended: since nobody is left to run, or since something went wrong."""
        self._running = False
        if time.monotonic() - self._started > _WELL:
            self._pause = _FIRST_PAUSE
        error = self.hr.engine.ended_with
        if error is not None:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        self.trouble = error if isinstance(error, HeadraceError) else HeadraceError(first)
        self._not_before = time.monotonic() + self._pause
        _LOG.warning("the engine does not run, and is tried again in %g s: %s", self._pause, error)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
