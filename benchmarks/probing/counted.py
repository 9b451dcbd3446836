"""Cycle, history and ablations by work and processor time, without Spark (Figures 3 to 5).

What depends on the order of probes is a small part of what a run takes, and less than one run
differs from the next. So it is counted: rows that probes look up, and those that they find and that
are no results, are the same in every run. Processor time is taken of the whole epochs and repeated.

All runs are in this process, epoch by epoch over the same files, each micro-batch a share of every
table; so there may be a hundred of them in the time of a few on Spark.

Paper: Multi-Way Joins, Section 5.3, Section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import BenchError
from benchmarks.harness.parts import Found
from benchmarks.harness.stepped import cpu_clock, stepped
from benchmarks.probing.runs import ABLATIONS, COMPARED, FIXED, OURS, ProbeBench
from benchmarks.probing.tpcds_streams import (
    TABLES,
    TpcdsTables,
    generated,
    join_query,
    order_name,
    synthetic,
)
from headrace.contestants import empty_folder
from headrace.engine.policy import planner_policy
from headrace.native.compare import Case
from headrace.optimizer import optimize
from headrace.plan.nodes import Source
from headrace.plan.types import BIGINT, TIMESTAMP, Schema, decimal
from headrace.settings import PREFIX, read_settings
from headrace.sql import plan_query

#: The same ablations under the cost model as it was published.
PUBLISHED_MODEL = {
    f"published, {name}": {**settings, "probe.costModel": "paper"}
    for name, settings in {"dp_pick": COMPARED[OURS], **ABLATIONS}.items()
    if name != "published_model"
}
ENGINE_MODEL = {**COMPARED, **{n: s for n, s in ABLATIONS.items() if n != "published_model"}}
FIGURES = ("cycle", "history", "ablations")


@dataclass(frozen=True)
class CountedSize:
    """What is run at a scale: of how many micro-batches, and how often."""

    factor: float | None
    batches: int
    cycles: tuple[int, ...]
    histories: tuple[int, ...]
    orders: int
    repeats: int


SIZES = {
    "tiny": CountedSize(None, 4, (1, 2), (1, 3), 1, 1),
    "small": CountedSize(1, 20, (1, 3, 8), (1, 5, 20), 1, 1),
    "full": CountedSize(4, 100, (1, 2, 3, 5, 8, 13, 20, 33), (1, 2, 5, 10, 20, 60, 100), 2, 3),
}


@dataclass(frozen=True)
class CountedRun:
    """One run: rows that probes looked up and found, and processor time, epoch by epoch."""

    looked_up: int
    found: int
    results: int
    switches: int
    cpu: tuple[float, ...]

    @property
    def work(self) -> int:
        """Rows looked up, and intermediate rows: what depends on the order."""
        return self.looked_up + self.found - self.results

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu)


@dataclass
class TpcdsFiles:
    """The tables cut into micro-batches, as an engine in this process takes them."""

    tables: TpcdsTables
    epochs: Sequence[Mapping[str, list[Path]]]
    work: Path

    @classmethod
    def of(cls, tables: TpcdsTables, batches: int, work: Path) -> TpcdsFiles:
        streams = tables.write_streams(work / "streams", batches)
        parts = {stream.name: sorted(stream.folder.glob("*.parquet")) for stream in streams}
        epochs = [{name: [files[n]] for name, files in parts.items()} for n in range(batches)]
        return cls(tables, epochs, work)

    def run(self, order: Sequence[str], settings: Mapping[str, str]) -> CountedRun:
        """One run from an empty checkpoint."""
        catalog = _catalog()
        policy = planner_policy(read_settings({PREFIX + k: v for k, v in settings.items()}))
        plan = optimize(plan_query(join_query(order), catalog).plan).plan
        cpu = []
        with stepped(plan, catalog, empty_folder(self.work / "counted"), policy) as engine:
            for files in self.epochs:
                began = cpu_clock()
                engine.step(files)
                cpu.append(cpu_clock() - began)
            (probes,) = engine.runner.plan.choices.probes.values()
            run = CountedRun(
                probes.looked_up,
                probes.found,
                engine.rows_out,
                len(probes.switches),
                tuple(cpu),
            )
        if run.results != self.tables.results:
            raise BenchError(f"{run.results} instead of {self.tables.results} results")
        return run


def counted(bench: ProbeBench) -> Found:
    """Figures 4 and 5, and the ablations under both models."""
    size, setup = SIZES[bench.setup.scale], bench.setup
    files = tpcds_files(size, setup.work, setup.say)
    orders = bench.gainers[: size.orders]
    cases = [counted_figure(what, size, files, orders, setup.say) for what in FIGURES]
    return cases, {f"{c.case}, {name}": value for c in cases for name, value in c.ratio.items()}


def tpcds_files(size: CountedSize, work: Path, say: Callable[[str], None]) -> TpcdsFiles:
    if size.factor is None:
        tables = synthetic(work / "tables", 600)
    else:
        tables = generated(size.factor, say)
    return TpcdsFiles.of(tables, size.batches, work)


def counted_figure(
    what: str,
    size: CountedSize,
    files: TpcdsFiles,
    orders: Sequence[Sequence[str]],
    say: Callable[[str], None],
) -> Case:
    """All contestants of a figure from each initial order, turn by turn."""
    contestants = contestants_of(what, size)
    runs: dict[str, list[CountedRun]] = {}
    for turn in range(size.repeats):
        names = list(contestants)
        for order in orders:
            for name in names if turn % 2 == 0 else reversed(names):
                run = files.run(order, contestants[name])
                runs.setdefault(f"{order_name(order)} {name}", []).append(run)
                say(f"{what}: {order_name(order)} {name}: {told(run)}")
    return counted_case(what, size, files.tables, runs)


def contestants_of(what: str, size: CountedSize) -> dict[str, dict[str, str]]:
    """The contestants of a figure with their settings; the fixed order is one of them."""
    ours, fixed = COMPARED[OURS], {FIXED: COMPARED[FIXED]}
    match what:
        case "cycle":
            return fixed | {f"{n} epochs": {**ours, "probe.cycle": str(n)} for n in size.cycles}
        case "history":
            # Of the shortest cycles: only these are as many as a history has room for.
            shortest = {**ours, "probe.cycle": "1"}
            return fixed | {
                f"{n} cycles": {**shortest, "probe.history": str(n)} for n in size.histories
            }
        case _:
            return {**ENGINE_MODEL, **PUBLISHED_MODEL}


def told(run: CountedRun) -> str:
    return (
        f"{run.looked_up:,} rows looked up, {run.found - run.results:,} intermediate, "
        f"{run.switches} switches, {run.cpu_seconds:.2f} s of CPU"
    )


def counted_case(
    what: str, size: CountedSize, tables: TpcdsTables, runs: Mapping[str, Sequence[CountedRun]]
) -> Case:
    factor = "synthetic" if size.factor is None else f"SF{size.factor:g}"
    cpu = {name: mean(run.cpu_seconds for run in some) for name, some in runs.items()}
    ratio = {}
    for name, some in runs.items():
        order, contestant = name.split(" ", 1)
        if contestant != FIXED:
            fixed = runs[f"{order} {FIXED}"][0]
            ratio[f"work, {name}/{FIXED}"] = some[0].work / fixed.work
    # What is counted is the same in every run; if not, something else was counted.
    same = all(len({run.work for run in some}) == 1 for some in runs.values())
    notes: dict[str, Any] = {
        "micro-batches": size.batches,
        "seconds": "of processor time, all epochs, means",
        "results": tables.results,
        "rows looked up": {name: some[0].looked_up for name, some in runs.items()},
        "intermediate rows": {n: some[0].found - some[0].results for n, some in runs.items()},
        "switches": {name: some[0].switches for name, some in runs.items()},
        "CPU of each run": {n: [round(r.cpu_seconds, 2) for r in some] for n, some in runs.items()},
    }
    if not same:
        notes["difference"] = "runs of one contestant counted different rows"
    return Case(f"counted/{what}/{factor}", same, sum(tables.rows.values()), cpu, ratio, notes)


def _catalog() -> dict[str, Source]:
    found = {}
    for stream, table in TABLES.items():
        fields = [*((key, BIGINT) for key in (table.address, *table.keys))]
        if table.amount:
            fields.append((table.amount, decimal(7, 2)))
        found[stream] = Source(stream, Schema.of([*fields, ("ts", TIMESTAMP)]), "ts", 0)
    return found
