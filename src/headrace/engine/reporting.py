"""What the engine makes of the reports of epochs: progress, health, and warnings for people."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.engine.entries import Entry
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.runner import EpochRunner
from headrace.engine.ingest.registered_stream import RegisteredStream
from headrace.engine.ingest.standstills import Standstills
from headrace.engine.introspection.progress import (
    Progress,
    epoch_progress,
    query_facts,
    waiting_status,
)
from headrace.errors import HeadraceError
from headrace.names import folded

_LOG = logging.getLogger("headrace")
#: How many figures of queries the reports of epochs hold together; the last one stays in any case.
_MOST_FIGURES = 1_000_000
#: An epoch of a runner, and what its queries need: those that run the same share it.
_FactsKey = tuple[int, int, frozenset[str]]


@dataclass(frozen=True)
class Reporting:
    """Tells the queries of one run; called by the coordinator, on its thread."""

    runner: EpochRunner
    #: By folded names; they come and go.
    entries: Mapping[str, Entry]
    streams: Mapping[str, RegisteredStream]
    epochs: deque[Progress]
    standstills: Standstills
    max_rows: int

    def on_report(self, report: EpochReport) -> None:
        """An epoch is over."""
        self._tell_failures(report)
        if not report.is_committed:
            self._tell_waiting()
            return
        self.epochs.append(
            epoch_progress(report, {s: r.source.shown for s, r in self.streams.items()})
        )
        _bound(self.epochs)
        warnings = self._notice_standstills(report)
        facts: dict[_FactsKey, Progress] = {}
        for name in self.runner.queries:
            self._add_progress(name, report, self.runner, facts, warnings.get(name))
        for name, own in report.branches.items():
            if name in self.runner.branches.runners:
                own.seconds["total"] = report.seconds["total"]
                self._add_progress(name, own, self.runner.branches.runners[name], facts)
        self._tell_waiting()

    def on_replay(self, name: str, report: EpochReport) -> None:
        """A query has repeated an epoch that it had missed."""
        self._tell_failures(report)
        if name in self.runner.branches.runners:
            self._add_progress(name, report, self.runner.branches.runners[name], {})
        self._tell_waiting()

    def on_paused(self, paused: Mapping[str, str]) -> None:
        """Tell queries which of their streams wait, because state is full, and for which."""
        for entry in list(self.entries.values()):
            entry.state.paused = {
                s: paused[s] for s in sorted(entry.sink.streams() & paused.keys())
            }
        for stream, behind in paused.items():
            _LOG.warning(
                "stream %r is paused until %r has moved on: the state that waits for it has more "
                "than the %d rows of spark.headrace.state.maxRows",
                stream,
                behind,
                self.max_rows,
            )

    def on_stream_errors(self, errors: Mapping[str, HeadraceError]) -> None:
        """A stream that broke takes its queries with it; their state stays for a restart."""
        for stream, error in errors.items():
            for entry in self.entries.values():
                if entry.state.active and stream in entry.sink.streams():
                    entry.state.fail(error)

    def _tell_failures(self, report: EpochReport) -> None:
        for name, error in report.failures.items():
            self._entry(name).state.fail(error)
            _LOG.error("query %r has failed in epoch %d: %s", name, report.epoch, error)
        for each in (report, *report.branches.values()):
            for error in each.refused.values():
                _LOG.warning("%s", error)

    def _tell_waiting(self) -> None:
        """Tell queries what waits for their sinks."""
        waiting, unpublished = self.runner.waiting(), self.runner.unpublished()
        publishing = self.runner.deliveries.publishing
        for name in (*self.runner.queries, *self.runner.branches.runners):
            state = self._entry(name).state
            state.waiting = waiting_status(waiting.get(name))
            if name in unpublished and publishing is not None:
                state.warning = publishing.error.message

    def _add_progress(
        self,
        name: str,
        report: EpochReport,
        runner: EpochRunner,
        facts: dict[_FactsKey, Progress],
        warning: str | None = None,
    ) -> None:
        """Tell a query of an epoch; queries that run the same have the same ``facts`` to tell."""
        entry = self._entry(name)
        entry.state.warning = warning
        counters, streams = runner.plan.late_counters[name], entry.sink.streams()
        key = id(report), id(counters), streams
        if key not in facts:
            facts[key] = query_facts(report, streams, counters, runner.state)
        entry.state.add(facts[key], report.rows_out.get(name, 0), warning)

    def _notice_standstills(self, report: EpochReport) -> dict[str, str]:
        """By query, what to say of a watermark that stands still while rows come in."""
        clocks, sets = self.runner.state.clocks, self.runner.plan.released_by
        warnings = {}
        for name, standstill in self.standstills.watch(
            time.monotonic(), report, clocks, sets
        ).items():
            warnings[name] = standstill.text
            if standstill.is_news:
                _LOG.warning("query %r: %s", name, standstill.text)
        return warnings

    def _entry(self, name: str) -> Entry:
        return self.entries[folded(name)]


def _bound(epochs: deque[Progress]) -> None:
    """Forget the oldest reports: with thousands of queries each is thousands of figures."""
    figures = sum(len(epoch["rowsOut"]) for epoch in epochs)
    while figures > _MOST_FIGURES and len(epochs) > 1:
        figures -= len(epochs.popleft()["rowsOut"])
