"""The tuning parameters of cost models, measured on this engine.

For early aggregation the paper times the processing of 10,000 tuples; here an epoch is timed over
many rows and over few, and what is between the two is what the rows cost. Phases are told apart: an
epoch first takes its rows in (storing them, or aggregating them), and then joins what closed. Those
of probes are measured in ``calibrate_probes``.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from headrace.bench.calibrate_probes import probe_tuning
from headrace.bench.contestants import FileStream, StandingQuery, run_headrace
from headrace.bench.early_aggregation import SCHEMA, Setting, write_stream
from headrace.bench.harness import Case, Report, Setup, describe_machine
from headrace.cost.early_aggregation import Tuning
from headrace.planner.calibration import machine_name, store_calibration

#: Rows of a stream, of which a twentieth is the smaller of two runs.
ROWS = {"tiny": 4_000, "small": 400_000, "full": 1_000_000}
#: Keys of the large index in which keys are looked up.
PROBED_KEYS = {"tiny": 20_000, "small": 1_000_000, "full": 4_000_000}
REPEATS = {"tiny": 1, "small": 3, "full": 5}
WINDOW = 5_000
#: Few pairs, and many.
SPARSE, DENSE = 1 / 50_000, 1 / 100


@dataclass(frozen=True)
class _Phases:
    """Seconds of a run's epochs: to take rows in, and to join and put out."""

    ingest: float
    emit: float

    def __sub__(self, other: _Phases) -> _Phases:
        return _Phases(max(0.0, self.ingest - other.ingest), max(0.0, self.emit - other.emit))


def run(setup: Setup) -> Report:
    rows, repeats = ROWS[setup.scale], REPEATS[setup.scale]
    sparse = Setting((WINDOW, WINDOW), (1, 1), SPARSE, 1.0)
    stored = _difference(setup, sparse, "/*+ EARLY_AGGREGATION() */", rows, repeats)
    grouped_setting = replace(sparse, selectivity=0.1)
    grouped = _difference(setup, grouped_setting, "/*+ EARLY_AGGREGATION(s1, s2) */", rows, repeats)
    dense = replace(sparse, selectivity=DENSE)
    joined = _difference(setup, dense, "/*+ EARLY_AGGREGATION() */", rows, repeats)
    counted = 2 * rows * 0.95
    pairs = rows * 0.95 * WINDOW * DENSE
    tuning = Tuning(
        update=max(1e-9, stored.ingest / counted),
        probe=max(1e-9, stored.emit / counted),
        group=max(1e-9, grouped.ingest / counted),
        pair=max(1e-10, (joined.emit - stored.emit) / pairs),
    )
    probing = probe_tuning(PROBED_KEYS[setup.scale])
    place = store_calibration(
        tuning, probing, setup.work / "calibration.json" if setup.scale == "tiny" else None
    )
    setup.say(f"wrote {place}")
    seconds = {
        "storing a row": tuning.update,
        "probing a row": tuning.probe,
        "grouping a row": tuning.group,
        "a joined row": tuning.pair,
        "looking a key up": probing.query,
        "a row found by a key": probing.match,
    }
    case = Case(
        f"seconds per row on {machine_name()}",
        True,
        2 * rows,
        seconds,
        {"storing/grouping": tuning.update / tuning.group},
        {"file": str(place)},
    )
    return Report("calibrate", setup.scale, describe_machine(setup.spark), [case], seconds)


def _difference(setup: Setup, setting: Setting, hint: str, rows: int, repeats: int) -> _Phases:
    few = _measured(setup, setting, hint, rows // 20, repeats)
    return _measured(setup, setting, hint, rows, repeats) - few


def _measured(setup: Setup, setting: Setting, hint: str, rows: int, repeats: int) -> _Phases:
    """Medians over runs, the first of which only warms up."""
    folder = setup.work / "streams"
    streams = []
    for number, name in enumerate(setting.names):
        place = folder / f"{name}-{rows}-{setting.selectivity:g}"
        if not place.exists():
            values = round(1 / setting.selectivity)
            write_stream(place, rows, setting.rates[number], 1, values, number)
        streams.append(FileStream(name, place, SCHEMA, delay="0 seconds", files_per_batch=2))
    found: list[_Phases] = []
    for _ in range(repeats + 1):
        run_place = setup.work / "run"
        shutil.rmtree(run_place, ignore_errors=True)
        Path(run_place).mkdir(parents=True)
        standing = [StandingQuery("q", setting.sql(hint))]
        outcome = run_headrace(setup.spark, streams, standing, run_place, read=False)
        epochs = len(outcome.epoch_seconds)
        phases = outcome.phases
        found.append(_Phases(phases.get("ingest", 0.0) * epochs, phases.get("emit", 0.0) * epochs))
    measured = found[1:]
    usual = _Phases(median(p.ingest for p in measured), median(p.emit for p in measured))
    setup.say(
        f"{hint} over {rows:,} rows, selectivity {setting.selectivity:g}: "
        f"{usual.ingest:.3f} s in, {usual.emit:.3f} s out"
    )
    return usual
