"""What is kept of progress: each query's own figures, and the facts of an epoch once."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from headrace.engine import reporting
from headrace.engine.epochs.report import EpochReport
from headrace.engine.introspection.progress import QueryState, epoch_progress, query_facts
from headrace.state.committed import Committed


def test_queries_share_the_facts_and_not_the_figures() -> None:
    report = EpochReport(7, rows_in={"s": 12, "other": 5}, rows_out={"a": 3, "b": 4})
    report.late[("panes", "late")] = 2
    facts = query_facts(report, frozenset({"s"}), {"panes": ["late"]}, Committed())
    a, b = QueryState("a", 2), QueryState("b", 2)
    for rows in (3, 5, 6):
        a.add(facts, rows, None)
    b.add(facts, 4, "it stands still")
    assert a.reports[0].facts is b.reports[0].facts
    told = a.last_progress, b.last_progress
    assert all(each is not None for each in told)
    mine, other = told
    assert mine is not None
    assert other is not None
    assert (mine["name"], mine["numOutputRows"], mine["totalOutputRows"]) == ("a", 6, 14)
    assert [report["numOutputRows"] for report in a.recent_progress] == [5, 6]
    assert (other["name"], other["numOutputRows"], other["warning"]) == ("b", 4, "it stands still")
    assert (mine["epoch"], mine["numInputRows"], mine["lateRows"]) == (7, 12, 2)
    # Whoever gets a report may change it.
    mine["durationMs"]["triggerExecution"] = -1
    assert other["durationMs"] == b.recent_progress[0]["durationMs"] != mine["durationMs"]


def test_reports_of_thousands_of_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_MOST_FIGURES", 1_000)
    epochs: deque[dict[str, Any]] = deque(maxlen=10_000)
    for number in range(1, 50):
        rows_out = dict.fromkeys(map(str, range(300)), 1)
        epochs.append(epoch_progress(EpochReport(number, rows_out=rows_out), {}))
        reporting._bound(epochs)
    assert [epoch["epoch"] for epoch in epochs] == [47, 48, 49]
    epochs.append(
        epoch_progress(EpochReport(50, rows_out=dict.fromkeys(map(str, range(2_000)), 1)), {})
    )
    reporting._bound(epochs)
    assert [epoch["epoch"] for epoch in epochs] == [50]
