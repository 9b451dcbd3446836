"""Probe orders of a multi-way join: do they follow the data, and what is that worth?

After Section 5 of the paper on run-time optimized multi-way joins. Each part has its cases, and can
be run alone by naming it in the environment variable ``HEADRACE_BENCH_CASES``:

- *tpcds*: the paper's query from all 24 initial orders, by every strategy (Figures 2 and 3).
- *sweeps*: the length of a cycle and that of the history (Figures 4 and 5).
- *drift*: data that change, against every fixed order, and against one that knows the changes.
- *native*: a cascade of plain Spark's joins, and the rows that it keeps.
- *state*: whether an epoch takes longer when much more is kept.
- *search*: how long it takes to choose orders.

Two clocks run. The *run* is all from start to end; most of it is what any streaming query does for
its micro-batches. The *join phase* is the part of the epochs that computes results.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from typing import Any

from headrace.bench import BenchError
from headrace.bench.contestants import FileStream, open_race
from headrace.bench.data import EVENTS_SCHEMA, EventFiles
from headrace.bench.drifting import GROWTH_QUERY, Drift, Growth, drift_figures
from headrace.bench.drifting import ORDERS as DRIFT_ORDERS
from headrace.bench.fingerprints import fingerprint
from headrace.bench.harness import Case, Report, Setup, describe_machine
from headrace.bench.tpcds import (
    ORDERS,
    TpcdsTables,
    generated,
    join_query,
    order_name,
    synthetic,
)

#: Which parts to run, separated by commas; all if it is not set.
CASES_VARIABLE = "HEADRACE_BENCH_CASES"
#: The parts, in the order they run, and about which share of the time each takes.
PARTS = {"tpcds": 0.6, "sweeps": 0.12, "drift": 0.15, "native": 0.08, "state": 0.04, "search": 0.01}

OURS, FIXED = "dp_pick", "fixed_order"
COMPARED = {
    FIXED: {"probe.strategy": FIXED},
    "selectivity_first": {"probe.strategy": "selectivity_first"},
    "cost_greedy": {"probe.strategy": "cost_greedy"},
    OURS: {"probe.strategy": OURS},
}
ABLATIONS = {
    "query_cost_only": {"probe.strategy": "query_cost_only"},
    "match_cost_only": {"probe.strategy": "match_cost_only"},
    "no_smoothing": {"probe.strategy": OURS, "probe.smoothing": "false"},
    "published_model": {"probe.strategy": OURS, "probe.costModel": "paper"},
}
CONTESTANTS = {**COMPARED, **ABLATIONS}
#: Mean reductions of the run by dpPick, in percent, on 96 cores and Flink (Sections 5.2 and 5.3).
PUBLISHED = {
    FIXED: 31.2,
    "cost_greedy": 20.4,
    "selectivity_first": 56.1,
    "query_cost_only": 19.5,
    "match_cost_only": 6.3,
}
#: Where dpPick gained most in the paper; swept if this machine was not asked which these are.
PUBLISHED_GAINERS = (("cr", "wr", "sr", "cu"), ("wr", "cu", "cr", "sr"))
MOST_STATISTICS = 0.03


@dataclass(frozen=True)
class Size:
    """What is run at a scale. Without a scale factor the tables are not those of TPC-DS."""

    factor: float | None
    orders: tuple[tuple[str, ...], ...]
    batches: int
    swept_batches: int
    swept_orders: int
    cycles: tuple[int, ...]
    histories: tuple[int, ...]
    drift: Drift
    drift_repeats: int
    native_rows: int
    growth: Growth
    ratios: tuple[int, int]


SIZES = {
    "tiny": Size(
        factor=None,
        orders=ORDERS[:1],
        batches=2,
        swept_batches=3,
        swept_orders=1,
        cycles=(1, 2),
        histories=(1,),
        drift=Drift(200, 1, keys=20, matches=3),
        drift_repeats=1,
        native_rows=400,
        growth=Growth(50, 7),
        ratios=(2, 5),
    ),
    "small": Size(
        factor=1,
        orders=ORDERS[::12],
        batches=4,
        swept_batches=8,
        swept_orders=1,
        cycles=(1, 3),
        histories=(1, 5),
        drift=Drift(10_000, 5),
        drift_repeats=1,
        native_rows=40_000,
        growth=Growth(2_000, 26),
        ratios=(5, 22),
    ),
    "full": Size(
        factor=2,
        orders=ORDERS,
        batches=8,
        swept_batches=20,
        swept_orders=2,
        cycles=(1, 2, 3, 5, 8, 12),
        histories=(1, 2, 5, 10, 20),
        drift=Drift(20_000, 12),
        drift_repeats=1,
        native_rows=1_000_000,
        growth=Growth(10_000, 106),
        ratios=(10, 100),
    ),
}


@dataclass(frozen=True)
class Run:
    """One run of Headrace; seconds of its epochs, whole and in the join phase alone."""

    seconds: float
    epochs: tuple[float, ...]
    joining: tuple[float, ...]
    results: int
    state_rows: int
    switches: int
    statistics_share: float

    @property
    def join_seconds(self) -> float:
        return sum(self.joining)


def run(setup: Setup) -> Report:
    bench = _Bench(setup, SIZES[setup.scale])
    parts = chosen_parts(os.environ.get(CASES_VARIABLE, ""))
    shares = sum(PARTS[part] for part in parts)
    cases: list[Case] = []
    summary: dict[str, float] = {}
    for part in parts:
        found, figures = getattr(bench, part)()
        cases += found
        summary |= figures
        setup.advance(PARTS[part] / shares)
    return Report("probe-order", setup.scale, describe_machine(setup.spark), cases, summary)


def chosen_parts(text: str) -> list[str]:
    """The parts that are named, in the order they run; all if none is.

    >>> chosen_parts("drift, tpcds")
    ['tpcds', 'drift']
    """
    named = {name.strip() for name in text.split(",") if name.strip()}
    unknown = sorted(named - set(PARTS))
    if unknown:
        raise BenchError(
            f"probe-order has no part {unknown[0]!r}", hint=f"there are {', '.join(PARTS)}"
        )
    return [part for part in PARTS if part in named or not named]


Found = tuple[list[Case], dict[str, float]]
#: By initial order and contestant.
Runs = Mapping[tuple[str, ...], Mapping[str, Run]]


class _Bench:
    def __init__(self, setup: Setup, size: Size) -> None:
        self.setup = setup
        self.size = size
        self.gainers: Sequence[tuple[str, ...]] = PUBLISHED_GAINERS

    # The paper's query

    def tables(self) -> TpcdsTables:
        if self.size.factor is None:
            return synthetic(self.setup.work / "tables", 600)
        return generated(self.size.factor, self.setup.say)

    def tpcds(self) -> Found:
        tables = self.tables()
        streams = tables.write_streams(self.setup.work / "streams", self.size.batches)
        # Runs that write what they find come first: they warm up, too.
        difference = self._differences(tables, streams)
        runs: dict[tuple[str, ...], dict[str, Run]] = {}
        for number, order in enumerate(self.size.orders):
            names = list(CONTESTANTS)
            turned = number % len(names)
            # Each order has all contestants in a row, and each time another one begins, so that
            # whatever changes on the machine meanwhile hurts all alike.
            for name in names[turned:] + names[:turned]:
                one = self.headrace(streams, join_query(order), CONTESTANTS[name])
                runs.setdefault(order, {})[name] = one
                self.setup.say(
                    f"{order_name(order)}: {name} took {one.seconds:.2f} s, "
                    f"{one.join_seconds:.2f} s of them joining"
                )
                if one.results != tables.results:
                    difference = difference or (
                        f"{name} from {order_name(order)}: {one.results} instead of "
                        f"{tables.results} results"
                    )
        self.gainers = sorted(
            runs, key=lambda order: _reduction(runs[order], FIXED, joining=True), reverse=True
        )[:2]
        case = self._tpcds_case(tables, runs, difference)
        return [case], _tpcds_summary(runs)

    def _differences(self, tables: TpcdsTables, streams: list[FileStream]) -> str | None:
        """Whether some strategy finds other rows than DuckDB does of the whole tables."""
        whole = _empty(self.setup.work / "expected")
        expected = fingerprint(tables.write_join(whole))
        shutil.rmtree(whole)
        difference = None
        for number, (name, settings) in enumerate(CONTESTANTS.items()):
            order = ORDERS[number * 5 % len(ORDERS)]
            out = _empty(self.setup.work / "out")
            self.headrace(streams, join_query(order), settings, out)
            found = fingerprint(out)
            shutil.rmtree(out)
            self.setup.say(f"{name} from {order_name(order)}: {found[0]:,} rows, compared")
            if found != expected:
                difference = f"{name} from {order_name(order)}: {found} instead of {expected}"
        return difference

    def _tpcds_case(
        self,
        tables: TpcdsTables,
        runs: Runs,
        difference: str | None,
    ) -> Case:
        seconds = {n: mean(of[n].seconds for of in runs.values()) for n in CONTESTANTS}
        joining = {n: mean(of[n].join_seconds for of in runs.values()) for n in CONTESTANTS}
        share = max(one.statistics_share for of in runs.values() for one in of.values())
        factor = "synthetic" if self.size.factor is None else f"SF{self.size.factor:g}"
        notes: dict[str, Any] = {
            "target": f"statistics take at most {MOST_STATISTICS:.0%} of the time of tasks",
            "results": tables.results,
            "micro-batches": self.size.batches,
            "published mean reductions, percent": PUBLISHED,
            "mean join phase seconds": {n: round(s, 3) for n, s in joining.items()},
            "run seconds": _by_order(runs, lambda one: round(one.seconds, 3)),
            "join phase seconds": _by_order(runs, lambda one: round(one.join_seconds, 3)),
            "switches": _by_order(runs, lambda one: one.switches),
            "greatest share of statistics": round(share, 4),
            "orders with the greatest gain": [order_name(order) for order in self.gainers],
            "bars": {
                f"{title}, {clock}": _bars(runs, names, clock)
                for clock in ("run", "join phase")
                for title, names in (
                    ("strategies", tuple(COMPARED)),
                    ("ablations", (FIXED, OURS, *ABLATIONS)),
                )
            },
        }
        if difference is not None:
            notes["difference"] = difference
        return Case(
            f"TPC-DS {factor}/{len(runs)} initial orders",
            difference is None,
            sum(tables.rows.values()),
            seconds,
            {
                f"{name}/{OURS} ({clock})": of[name] / of[OURS]
                for clock, of in (("run", seconds), ("join phase", joining))
                for name in CONTESTANTS
                if name != OURS
            },
            notes,
        )

    # Cycles and histories

    def sweeps(self) -> Found:
        tables = self.tables()
        streams = tables.write_streams(self.setup.work / "streams", self.size.swept_batches)
        orders = self.gainers[: self.size.swept_orders]
        self._swept(streams, orders[0], COMPARED[OURS])  # Only to warm up.
        fixed = {order: self._swept(streams, order, COMPARED[FIXED]) for order in orders}
        cases = []
        summary: dict[str, float] = {}
        swept: tuple[tuple[str, str, tuple[int, ...], dict[str, str]], ...] = (
            ("epochs of a cycle", "probe.cycle", self.size.cycles, {}),
            # Of the shortest cycles, because only these are as many as a history has room for.
            ("cycles of the history", "probe.history", self.size.histories, {"probe.cycle": "1"}),
        )
        for what, setting, values, others in swept:
            runs: dict[tuple[str, ...], list[Run]] = {order: [] for order in orders}
            for value in values:
                for order in orders:
                    settings = {**COMPARED[OURS], **others, setting: str(value)}
                    runs[order].append(self._swept(streams, order, settings))
            cases.append(self._sweep_case(what, values, tables, fixed, runs))
            # One run of each, so the spread is told, and no value is called the best.
            summary |= {f"{what}, {name}": value for name, value in cases[-1].ratio.items()}
        return cases, summary

    def _sweep_case(
        self,
        what: str,
        values: tuple[int, ...],
        tables: TpcdsTables,
        fixed: Mapping[tuple[str, ...], Run],
        runs: Mapping[tuple[str, ...], Sequence[Run]],
    ) -> Case:
        all_runs = [*fixed.values(), *(one for ones in runs.values() for one in ones)]
        seconds = {f"{order_name(order)} {FIXED}": one.seconds for order, one in fixed.items()}
        for order, ones in runs.items():
            for value, one in zip(values, ones, strict=True):
                seconds[f"{order_name(order)} {value}"] = one.seconds
        notes = {
            "series": {
                "x": what,
                "y": "seconds of the join phase",
                "at": list(values),
                "lines": _lines(fixed, runs, "join phase"),
            },
            "run seconds": _lines(fixed, runs, "run"),
            "switches": {order_name(o): [one.switches for one in runs[o]] for o in runs},
            "micro-batches": self.size.swept_batches,
        }
        ratio = {
            f"{order_name(order)} longest/shortest": max(one.join_seconds for one in ones)
            / min(one.join_seconds for one in ones)
            for order, ones in runs.items()
        }
        equal = all(one.results == tables.results for one in all_runs)
        return Case(f"sweep/{what}", equal, sum(tables.rows.values()), seconds, ratio, notes)

    def _swept(
        self, streams: list[FileStream], order: tuple[str, ...], settings: Mapping[str, str]
    ) -> Run:
        one = self.headrace(streams, join_query(order), settings)
        told = ", ".join(f"{key}={value}" for key, value in settings.items())
        self.setup.say(
            f"{order_name(order)}: {told}: {one.seconds:.2f} s, joining {one.join_seconds:.2f} s"
        )
        return one

    # Data that change

    def drift(self) -> Found:
        drift = self.size.drift
        folder = self.setup.work / "drift"
        streams = drift.write(folder)
        expected = drift.results(folder)
        contestants: dict[str, tuple[str, dict[str, str]]] = {
            f"fixed {' '.join(order)}": (drift.query(order), COMPARED[FIXED])
            for order in DRIFT_ORDERS
        }
        first = drift.query(DRIFT_ORDERS[0])
        contestants[OURS] = first, COMPARED[OURS]
        contestants[f"{OURS}, cycle 1"] = first, {**COMPARED[OURS], "probe.cycle": "1"}
        found: dict[str, list[Run]] = {name: [] for name in contestants}
        few = replace(drift, batches_per_phase=max(1, drift.batches_per_phase // 6))
        self.headrace(few.write(self.setup.work / "drift-warm"), first, COMPARED[OURS])
        for turn in range(self.size.drift_repeats):
            names = list(contestants)
            for name in names if turn % 2 == 0 else reversed(names):
                one = self.headrace(streams, *contestants[name])
                if len(one.joining) != drift.batches:
                    raise BenchError(
                        f"{drift.batches} micro-batches made {len(one.joining)} epochs, so phases "
                        "cannot be told apart",
                        hint="run it again on a machine that does less besides",
                    )
                found[name].append(one)
                self.setup.say(
                    f"drift: {name} took {one.seconds:.2f} s, joining {one.join_seconds:.2f} s"
                )
        wrong = [name for name, ones in found.items() if any(o.results != expected for o in ones)]
        case = self._drift_case(found, wrong, expected)
        return [case], {f"drift, {name}": value for name, value in case.ratio.items()}

    def _drift_case(
        self, found: Mapping[str, Sequence[Run]], wrong: Sequence[str], expected: int
    ) -> Case:
        drift = self.size.drift
        # Means over the runs, epoch by epoch.
        joining = {
            name: [mean(batch) for batch in zip(*(one.joining for one in ones), strict=True)]
            for name, ones in found.items()
        }
        runs = {name: mean(one.seconds for one in ones) for name, ones in found.items()}
        fixed = [name for name in found if name.startswith("fixed")]
        ratio, notes = drift_figures(drift, joining, runs, fixed)
        notes |= {
            "target": f"{OURS}/oracle <= 1.15, of the best single order saved >= 0.3",
            "results": expected,
            "switches": {name: ones[-1].switches for name, ones in found.items()},
        }
        if wrong:
            notes["difference"] = f"{wrong[0]} does not have the {expected} results of DuckDB"
        return Case("drift/four phases", not wrong, drift.total_rows, runs, ratio, notes)

    # Against a cascade of joins

    def native(self) -> Found:
        cases = [self._native(*shape) for shape in _shapes(self.size.native_rows // 4)]
        return cases, {f"{c.case}: {name}": v for c in cases for name, v in c.ratio.items()}

    def _native(self, shape: str, keys: Mapping[str, int], orders: Sequence[str]) -> Case:
        rows = self.size.native_rows // 4
        batches = self.size.batches
        streams = []
        for salt, (name, count) in enumerate(keys.items()):
            folder = self.setup.work / "native" / f"{shape}-{name}"
            if not folder.exists():
                events = EventFiles(
                    rows, batches, keys=count, step=3_600_000 / rows, salt=1_000_003 * (salt + 1)
                )
                events.write(folder)
            streams.append(FileStream(name, folder, EVENTS_SCHEMA, files_per_batch=1))
        out = self.setup.work / "out"
        prints: dict[str, tuple[int, int]] = {}
        seconds: dict[str, float] = {}
        state: dict[str, int] = {}
        # Once to warm up.
        for _ in range(2):
            one = self.headrace(streams, _star(orders[0]), COMPARED[OURS], _empty(out))
        seconds["headrace"], state["headrace"] = one.seconds, one.state_rows
        prints["headrace"] = fingerprint(out)
        for order in orders:
            name = f"native, {' '.join(order)}"
            seconds[name], state[name] = self._plain_spark(streams, _star(order), _empty(out))
            prints[name] = fingerprint(out)
            self.setup.say(
                f"native/{shape}: {name} took {seconds[name]:.2f} s and keeps {state[name]:,} rows,"
                f" headrace {one.seconds:.2f} s and {one.state_rows:,}"
            )
        others = [name for name in seconds if name != "headrace"]
        same = len(set(prints.values())) == 1
        return Case(
            f"native/{shape}/{4 * rows:,} rows",
            same,
            4 * rows,
            seconds,
            {f"{n}/headrace": seconds[n] / seconds["headrace"] for n in others}
            | {f"state rows, headrace/{n}": state["headrace"] / state[n] for n in others},
            {
                "target": "native/headrace >= 5 at a million rows; state rows at most a tenth of "
                "those of the order that a user may write",
                "results": prints["headrace"][0],
                "state rows": state,
                "keys": dict(keys),
                **({} if same else {"difference": str(prints)}),
            },
        )

    def _plain_spark(self, streams: list[FileStream], sql: str, out: Path) -> tuple[float, int]:
        """Seconds, and the rows that all joins together keep at the end."""
        from headrace import native
        from headrace.plan.nodes import OutputMode

        spark = self.setup.spark
        plan = open_race(spark, streams, None).sql(sql).plan
        session = native.native_session(spark)
        sources = {stream.name: stream.read(spark) for stream in streams}
        frame = native.stream_plan(plan, sources, None, OutputMode.APPEND, session)
        place = _empty(self.setup.work / "native-state")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place))
        started = time.perf_counter()
        query = writer.trigger(availableNow=True).start(str(out))
        query.awaitTermination()
        seconds = time.perf_counter() - started
        last = query.lastProgress
        if query.exception() is not None or last is None:
            raise BenchError(f"the plain Spark query failed: {query.exception()}")
        shutil.rmtree(place)
        return seconds, sum(int(one["numRowsTotal"]) for one in last["stateOperators"])

    # State far larger than a micro-batch

    def state(self) -> Found:
        growth = self.size.growth
        few, many = self.size.ratios
        streams = growth.write(self.setup.work / "growth")
        # The first run is only to warm up, and a whole one: Java compiles for a hundred epochs, and
        # if those with little state were the ones it slows down, much state would look cheap.
        for _ in range(2):
            one = self.headrace(streams, GROWTH_QUERY, COMPARED[OURS])
        if len(one.epochs) != growth.batches:
            raise BenchError(f"{growth.batches} micro-batches made {len(one.epochs)} epochs")
        clocks = {"epoch": one.epochs, "join phase": one.joining}
        seconds = {
            _kept(clock, ratio): median(_around(of, ratio))
            for clock, of in clocks.items()
            for ratio in (few, many)
        }
        case = Case(
            f"state/{many} to 1",
            one.results == growth.results,
            3 * growth.rows * growth.batches,
            seconds,
            {
                f"state {many}/{few} ({clock})": median(_around(of, many))
                / median(_around(of, few))
                for clock, of in clocks.items()
            },
            {
                "target": f"state {many}/{few} (epoch) <= 1.3",
                "results": one.results,
                "expected results": growth.results,
                # Medians leave out the epochs that merge indexes; here they are in.
                "mean seconds": {
                    _kept(clock, ratio): round(mean(_around(of, ratio)), 4)
                    for clock, of in clocks.items()
                    for ratio in (few, many)
                },
                "longest epoch": round(max(one.epochs), 3),
                "series": {
                    "x": "micro-batches in the state",
                    "y": "seconds",
                    "at": list(range(growth.batches)),
                    "lines": {c: [round(s, 4) for s in of] for c, of in clocks.items()},
                },
            },
        )
        return [case], {f"state, {name}": value for name, value in case.ratio.items()}

    # Planning

    def search(self) -> Found:
        return [], {"dp_pick of eight inputs, milliseconds (target < 50)": search_milliseconds()}

    # Runs

    def headrace(
        self,
        streams: list[FileStream],
        sql: str,
        settings: Mapping[str, str],
        out: Path | None = None,
    ) -> Run:
        """One run from an empty checkpoint; without a folder the results are counted only."""
        place = _empty(self.setup.work / "headrace")
        # Every epoch is wanted, however many there are.
        settings = {**settings, "progress.retained": "100000"}
        race = open_race(self.setup.spark, streams, place, settings)
        writer = race.sql(sql).writeStream.queryName("joined")
        if out is None:
            handle = writer.format("noop").start()
        else:
            handle = writer.format("parquet").start(str(out))
        started = time.perf_counter()
        race.start(availableNow=True)
        race.awaitTermination()
        seconds = time.perf_counter() - started
        last = handle.lastProgress
        if handle.exception() is not None or last is None:
            raise BenchError(f"the join failed under Headrace: {handle.exception()}")
        epochs = race.recentProgress
        probed = list(race._race.join_memory.probing.values())
        if not probed:
            raise BenchError("the join did not probe indexes")
        return Run(
            seconds,
            tuple(epoch["seconds"] for epoch in epochs),
            tuple(epoch["durationMs"].get("outputs", 0) / 1_000 for epoch in epochs),
            int(last["totalOutputRows"]),
            int(last["stateRows"]),
            sum(len(epoch["planChanges"]) for epoch in epochs),
            sum(one.statistics_seconds for one in probed)
            / max(1e-9, sum(one.seconds for one in probed)),
        )


def _tpcds_summary(runs: Runs) -> dict[str, float]:
    summary: dict[str, float] = {}
    for other in CONTESTANTS:
        if other == OURS:
            continue
        for clock in ("run", "join phase"):
            saved = [_reduction(of, other, joining=clock != "run") for of in runs.values()]
            for figure, value in (("mean", mean(saved)), ("min", min(saved)), ("max", max(saved))):
                summary[f"TPC-DS reduction vs {other} {figure} ({clock})"] = value
    ours = [of[OURS] for of in runs.values()]
    summary["TPC-DS switches of dp_pick, mean"] = mean(one.switches for one in ours)
    summary[f"TPC-DS share of statistics at most (target <= {MOST_STATISTICS:g})"] = max(
        one.statistics_share for one in ours
    )
    return summary


def _reduction(of: Mapping[str, Run], other: str, *, joining: bool) -> float:
    """The share of another strategy's time that dp_pick saves."""
    clock = "join phase" if joining else "run"
    return 1 - _clock(of[OURS], clock) / _clock(of[other], clock)


def _clock(one: Run, clock: str) -> float:
    return one.seconds if clock == "run" else one.join_seconds


def _bars(runs: Runs, names: Sequence[str], clock: str) -> dict[str, Any]:
    """A group of bars for each order, as ``probe_plots`` draws them."""
    return {
        "x": "initial order",
        "y": f"seconds of the {clock}",
        "groups": [order_name(order) for order in runs],
        "bars": {n: [round(_clock(of[n], clock), 3) for of in runs.values()] for n in names},
    }


def _by_order(runs: Runs, figure: Any) -> dict[str, Any]:
    return {
        order_name(order): {name: figure(of[name]) for name in CONTESTANTS}
        for order, of in runs.items()
    }


def _lines(
    fixed: Mapping[tuple[str, ...], Run],
    runs: Mapping[tuple[str, ...], Sequence[Run]],
    clock: str,
) -> dict[str, list[float]]:
    """As in the paper's figures: the fixed order for comparison, which does not depend on it."""
    lines = {}
    for order, ones in runs.items():
        lines[f"{order_name(order)} {FIXED}"] = [round(_clock(fixed[order], clock), 3)] * len(ones)
        lines[f"{order_name(order)} {OURS}"] = [round(_clock(one, clock), 3) for one in ones]
    return lines


def _shapes(rows: int) -> list[tuple[str, dict[str, int], tuple[str, ...]]]:
    """Four streams of so many rows: by how many keys, and the orders plain Spark runs them in.

    *even* has as many results as rows in all. In *filtered* three streams have 5.6 rows for each
    key, so that joined they are many, and the last one has few of their keys: results are again as
    many as rows. There a user may write the worst order or the best.
    """
    even = round((rows**3 / 4) ** (1 / 3))
    filtered = round(rows / 5.6)
    return [
        ("even", dict.fromkeys("abcd", even), ("abcd",)),
        ("filtered", {**dict.fromkeys("abc", filtered), "d": 44 * filtered}, ("abcd", "dabc")),
    ]


def _star(order: Sequence[str]) -> str:
    first, *others = order
    joins = "".join(f" JOIN {name} ON {first}.k = {name}.k" for name in others)
    values = ", ".join(f"{name}.v AS {name}v" for name in sorted(order))
    return f"SELECT a.k, {values} FROM {first}{joins}"


def _kept(clock: str, ratio: int) -> str:
    return f"{clock}, state of {ratio} micro-batches"


def _around(epochs: Sequence[float], ratio: int) -> Sequence[float]:
    """The epochs that found about so many micro-batches in the state."""
    width = max(2, ratio // 20)
    return epochs[max(0, ratio - width) : ratio + width + 1]


def search_milliseconds() -> float:
    """The longest of some searches over eight inputs of which any two share a key."""
    from headrace.cost.probing import ProbeModel, ProbeTuning, StateKind
    from headrace.optimizer.probing import dp_pick
    from headrace.optimizer.probing.graph import ProbeGraph
    from headrace.stats.probes import ProbeStatistics

    inputs = 8
    # One key in all of them, and a key for each pair, which leaves more ways to choose from.
    pairs = tuple(frozenset(pair) for pair in combinations(range(inputs), 2))
    longest = 0.0
    for classes in ((frozenset(range(inputs)),), pairs):
        graph = ProbeGraph(inputs, classes)
        for seed in range(5):
            chance = random.Random(seed)
            statistics = ProbeStatistics(
                {edge: chance.random() for edge in graph.edges},
                {edge: 10 ** chance.uniform(0, 2) for edge in graph.edges},
                {edge: 10 ** chance.uniform(1, 6) for edge in graph.edges},
                {index: 10 ** chance.uniform(2, 7) for index in range(inputs)},
            )
            started = time.perf_counter()
            dp_pick.orders(
                graph,
                statistics,
                ProbeTuning(),
                StateKind.HASH,
                ProbeModel.ENGINE,
                tuple(range(inputs)),
            )
            longest = max(longest, time.perf_counter() - started)
    return 1_000 * longest


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
