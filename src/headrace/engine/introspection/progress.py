"""What users see of a running query: progress reports, status and error."""

from __future__ import annotations

import copy
import datetime
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.engine.epochs.deliveries import Waiting
from headrace.engine.epochs.report import EpochReport
from headrace.errors import HeadraceError, QueryError
from headrace.state.committed import Committed

Progress = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OwnProgress:
    """One query's report of an epoch: what is its own, beside the facts that others share."""

    facts: Progress
    rows: int
    total: int
    warning: str | None

    def to_json(self, name: str) -> Progress:
        own = {"numOutputRows": self.rows, "warning": self.warning, "totalOutputRows": self.total}
        # Whoever gets it may change it.
        return {**copy.deepcopy(self.facts), "name": name, **own}


@dataclass
class QueryState:
    """The health of one query, updated by the engine and read by its handle."""

    name: str
    retained: int
    message: str = "waiting to start"
    active: bool = True
    starts_at: int | None = None
    warning: str | None = None
    #: Streams of the query that wait for another because state is full.
    paused: dict[str, str] = field(default_factory=dict)
    #: What waits for the query's sink, which did not take it.
    waiting: dict[str, Any] | None = None
    error: HeadraceError | None = None
    total_rows: int = 0
    reports: deque[OwnProgress] = field(default_factory=deque)

    def begin(self) -> None:
        """It runs from now on; what troubled an earlier run is no more."""
        self.message, self.warning, self.paused = "running", None, {}
        self.waiting = self.error = None

    def add(self, facts: Progress, rows: int, warning: str | None) -> None:
        """An epoch is over, of which others have the same facts to tell."""
        self.total_rows += rows
        self.reports.append(OwnProgress(facts, rows, self.total_rows, warning))
        while len(self.reports) > self.retained:
            self.reports.popleft()

    @property
    def last_progress(self) -> Progress | None:
        return self.reports[-1].to_json(self.name) if self.reports else None

    @property
    def recent_progress(self) -> list[Progress]:
        return [report.to_json(self.name) for report in list(self.reports)]

    def fail(self, error: HeadraceError) -> None:
        self.error, self.active, self.message = error, False, "failed"

    def finish(self, message: str) -> None:
        if self.active:
            self.active, self.message = False, message

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {"message": self.message, "isActive": self.active}
        if self.starts_at is not None:
            status["from"] = timestamp(self.starts_at)
        warning = self.warning
        if warning is None and self.waiting is not None:
            warning = f"{self.waiting['rows']} rows wait for its sink"
        if self.active and warning is not None:
            status["warning"] = warning
        if self.active and self.paused:
            status["paused"] = dict(self.paused)
        if self.waiting is not None:
            status["waitingForSink"] = dict(self.waiting)
        return status


def epoch_progress(report: EpochReport, spellings: Mapping[str, str]) -> Progress:
    """The progress of the engine as a whole, with the names of its streams as people see them."""
    seconds = report.seconds.get("total", 0.0)
    rows = sum(report.rows_in.values())
    return {
        "epoch": report.epoch,
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "numInputRows": rows,
        "processedRowsPerSecond": rows / seconds if seconds else 0.0,
        "seconds": seconds,
        "durationMs": {name: round(value * 1_000) for name, value in report.seconds.items()},
        "jobs": report.jobs,
        "watermarks": {spellings.get(s, s): timestamp(w) for s, w in report.watermarks.items()},
        "idleStreams": sorted(spellings.get(s, s) for s in report.idle),
        "pausedStreams": {
            spellings.get(s, s): spellings.get(b, b) for s, b in report.paused.items()
        },
        "nullTimes": {spellings.get(s, s): n for s, n in report.null_times.items()},
        "rowsOut": dict(report.rows_out),
        "planChanges": list(report.changes),
    }


def query_facts(
    report: EpochReport,
    streams: frozenset[str],
    stores: Mapping[str, Iterable[str]],
    state: Committed,
) -> Progress:
    """What an epoch was to all queries of these streams and stores. ``stores`` gives arrangements,
    and the counters of what is late in them."""
    seconds = report.seconds.get("total", 0.0)
    rows = sum(report.rows_in.get(stream, 0) for stream in streams)
    watermark = state.clocks.at(streams)
    arranged = [state.arrangements[s] for s in stores if s in state.arrangements]
    return {
        # Each query's own, and here for their places.
        "name": "",
        "epoch": report.epoch,
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "numInputRows": rows,
        "processedRowsPerSecond": rows / seconds if seconds else 0.0,
        "numOutputRows": 0,
        "watermark": None if watermark is None else timestamp(watermark),
        "idleStreams": sorted(report.idle & streams),
        "warning": None,
        "lateRows": sum(
            report.late.get((store, counter), 0)
            for store, counters in stores.items()
            for counter in counters
        ),
        "nullTimes": sum(report.null_times.get(stream, 0) for stream in streams),
        "stateRows": sum(a.rows for a in arranged),
        "stateBytes": sum(a.size for a in arranged),
        "durationMs": {
            "triggerExecution": round(seconds * 1_000),
            "output": 0,
        },
    }


def timestamp(milliseconds: int) -> str:
    """A time as text, in UTC."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    moment += datetime.timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def waiting_status(waiting: Waiting | None) -> dict[str, Any] | None:
    """What waits for a sink, as status tells it."""
    if waiting is None:
        return None
    epochs = sorted({file.epoch for file in waiting.outbox.files})
    status: dict[str, Any] = {"rows": waiting.outbox.rows, "sinceEpoch": epochs[0]}
    if waiting.delivery is not None:
        status |= {"tries": waiting.delivery.tries, "error": waiting.delivery.error.message}
    return status


def told_together(failed: Mapping[str, HeadraceError]) -> HeadraceError:
    """One error for all queries that failed."""
    name, first = next(iter(failed.items()))
    others = [other for other in failed if other != name]
    if not others:
        return first
    error = QueryError(
        f"{first.message} (failed, too: {', '.join(others)})",
        hint=first.hint,
        condition=first.condition,
    )
    error.__cause__ = first
    return error
