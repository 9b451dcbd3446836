"""What it costs this engine to store a row, to probe it, to group it, and to join a pair.

For early aggregation the paper times the processing of 10,000 tuples; here an epoch is timed over
many rows and over few, and what is between the two is what the rows cost. Phases are told apart: an
epoch first takes its rows in (storing them, or aggregating them), and then joins what closed.

Paper: Early Aggregation, Section 7.1.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from headrace.calibration.join_setting import SCHEMA, JoinSetting, write_stream
from headrace.contestants import StandingQuery, StreamFolder, empty_folder, run_headrace
from headrace.cost.early_aggregation import Tuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 5_000
#: Few pairs, and many.
SPARSE, DENSE = 1 / 50_000, 1 / 100


@dataclass(frozen=True)
class RowRuns:
    """How many ``rows`` of each stream are run, how often and where.

    A twentieth of the rows is the smaller of the two runs.
    """

    spark: SparkSession
    work: Path
    rows: int
    repeats: int
    say: Callable[[str], None]


@dataclass(frozen=True)
class _Phases:
    """Seconds of a run's epochs: to take rows in, and to join and put out."""

    ingest: float
    emit: float

    def __sub__(self, other: _Phases) -> _Phases:
        return _Phases(max(0.0, self.ingest - other.ingest), max(0.0, self.emit - other.emit))


def row_tuning(runs: RowRuns) -> Tuning:
    """The parameters of this machine."""
    sparse = JoinSetting((WINDOW, WINDOW), (1, 1), SPARSE, 1.0)
    stored = _difference(runs, sparse, "/*+ EARLY_AGGREGATION() */")
    grouped_setting = replace(sparse, selectivity=0.1)
    grouped = _difference(runs, grouped_setting, "/*+ EARLY_AGGREGATION(s1, s2) */")
    dense = replace(sparse, selectivity=DENSE)
    joined = _difference(runs, dense, "/*+ EARLY_AGGREGATION() */")
    counted = 2 * runs.rows * 0.95
    pairs = runs.rows * 0.95 * WINDOW * DENSE
    return Tuning(
        update=max(1e-9, stored.ingest / counted),
        probe=max(1e-9, stored.emit / counted),
        group=max(1e-9, grouped.ingest / counted),
        pair=max(1e-10, (joined.emit - stored.emit) / pairs),
    )


def _difference(runs: RowRuns, setting: JoinSetting, hint: str) -> _Phases:
    few = _measured(runs, setting, hint, runs.rows // 20)
    return _measured(runs, setting, hint, runs.rows) - few


def _measured(runs: RowRuns, setting: JoinSetting, hint: str, rows: int) -> _Phases:
    """Medians over runs, the first of which only warms up."""
    folder = runs.work / "streams"
    streams = []
    for number, name in enumerate(setting.names):
        place = folder / f"{name}-{rows}-{setting.selectivity:g}"
        if not place.exists():
            values = round(1 / setting.selectivity)
            write_stream(place, rows, setting.rates[number], 1, values, number)
        streams.append(StreamFolder(name, place, SCHEMA, delay="0 seconds", files_per_batch=2))
    phases_of_runs: list[_Phases] = []
    for _ in range(runs.repeats + 1):
        standing = [StandingQuery("q", setting.sql(hint))]
        place = empty_folder(runs.work / "run")
        outcome = run_headrace(runs.spark, streams, standing, place, read=False)
        epochs = len(outcome.epoch_seconds)
        phases = outcome.phases
        phases_of_runs.append(
            _Phases(phases.get("ingest", 0.0) * epochs, phases.get("emit", 0.0) * epochs)
        )
    measured = phases_of_runs[1:]
    usual = _Phases(median(p.ingest for p in measured), median(p.emit for p in measured))
    runs.say(
        f"{hint} over {rows:,} rows, selectivity {setting.selectivity:g}: "
        f"{usual.ingest:.3f} s in, {usual.emit:.3f} s out"
    )
    return usual
