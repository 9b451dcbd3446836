"""Orders of window joins: the paper's queries in every order, and against plain Spark.

Four questions, each with its own cases:

- *orders*: how much the order matters on this engine, and whether the best one is chosen, with
  statistics and without. Orders that only exchange the sides of a join are one order here: Spark
  decides by itself which side it hashes.
- *native*: how much faster than plain Spark in the user's order, and in the best one.
- *rates*: the sweep of the paper's Figure 7.
- *planning*: how long it takes to plan eight streams.

The clock of an order runs while micro-batches are processed, as that of a sustained throughput
does; that of a comparison with plain Spark runs from start to end.

Paper: Window Join Reordering, Section 7.2, Section 7.3.1, Section 7.3.2, Section 7.3.3,
Section 7.3.4, Section 7.3.5.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import BenchError
from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from benchmarks.harness.fingerprints import fingerprint
from benchmarks.harness.report import Report, Setup, describe_machine
from benchmarks.joins.join_queries import KEYS, PAPER_SPEEDUPS, QUERIES, SETTINGS, JoinQuery
from headrace.contestants import StreamFolder, empty_folder, open_session
from headrace.native.compare import Case
from headrace.optimizer.joins.rewrite import reordered
from headrace.optimizer.joins.search import best_order, best_without_statistics, cost_of, join_cost
from headrace.plan.join_graph import (
    JoinGraph,
    inputs_of,
    join_graph,
    left_deep,
    order_text,
    pairs_of,
    topmost_joins,
)
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Join, Node, Order
from headrace.query import Query
from headrace.session import Headrace

MINUTE = 60_000
BATCHES = 2
FILES_PER_BATCH = 2


@dataclass(frozen=True)
class Size:
    """What is run at a scale: rows of a run, how often, and which queries."""

    rows: int
    repeats: int
    native_rows: int
    orders: tuple[tuple[str, str], ...]
    native: tuple[str, ...]
    sweep: tuple[int, ...]


_S2 = tuple((name, query.settings[-1]) for name, query in QUERIES.items())
# At equal rates only windows that differ make a difference, and one query of each kind will do.
_S1 = tuple((name, "S1") for name in ("Q3", "Q7", "Q9", "Q11", "Q13"))
SIZES = {
    "tiny": Size(4_000, 1, 4_000, (("Q7", "S2"),), ("Q7",), (20,)),
    "small": Size(400_000, 1, 400_000, (("Q1", "S2"), ("Q7", "S2")), ("Q7",), (20, 80)),
    "full": Size(
        2_000_000, 2, 4_000_000, _S2 + _S1, ("Q5", "Q6", "Q7", "Q8", "Q9", "Q10"), (20, 40, 60, 80)
    ),
}


@dataclass(frozen=True)
class Measured:
    """One run: seconds from start to end, those within micro-batches, and what came out."""

    seconds: float
    busy: float
    fingerprint: tuple[int, int]
    state_bytes: int = 0
    order: Order | None = None


def run(setup: Setup) -> Report:
    bench = _Bench(setup, SIZES[setup.scale])
    cases = [*bench.orders(), *bench.native(), *bench.sweep()]
    machine = describe_machine(setup.spark)
    return Report("join-order", setup.scale, machine, cases, bench.summary(cases))


class _Bench:
    def __init__(self, setup: Setup, size: Size) -> None:
        self.setup = setup
        self.size = size
        self.steps = len(size.orders) + 2 * len(size.native) + len(size.sweep)

    # How much the order matters, and whether the best is chosen

    def orders(self) -> list[Case]:
        cases = []
        for name, setting in self.size.orders:
            query = QUERIES[name]
            streams = self.streams(query, SETTINGS[setting], setting, self.size.rows)
            cases.append(self._orders(query, setting, streams))
            self.setup.advance(1 / self.steps)
        return cases

    def _orders(self, query: JoinQuery, setting: str, streams: list[StreamFolder]) -> Case:
        _, graph = self._planned(query, streams)
        runs: dict[str, list[Measured]] = {}
        # A run of its own choice first: it tells the load by which the others are costed.
        self.headrace(query, streams, None)
        for _ in range(self.size.repeats):
            runs.setdefault("chosen", []).append(self.headrace(query, streams, None))
        chosen = runs["chosen"][-1].order
        assert chosen is not None
        blind = best_without_statistics(graph).order
        compared = self._compared(graph, chosen, blind)
        for order in compared:
            name = order_text(order, graph.names)
            for _ in range(self.size.repeats):
                runs.setdefault(name, []).append(self.headrace(query, streams, order))
            self.setup.say(f"{query.name}/{setting}: {name} took {_busy(runs[name]):.2f} s")
        seconds = {name: _busy(found) for name, found in runs.items()}
        orders = {name: s for name, s in seconds.items() if name != "chosen"}
        best, worst = min(orders.values()), max(orders.values())
        own, unaided = (order_text(_canonical(o), graph.names) for o in (chosen, blind))
        prints = {m.fingerprint for found in runs.values() for m in found}
        return Case(
            case=f"orders/{query.name}/{setting}",
            equal=len(prints) == 1,
            rows=self.size.rows,
            seconds=seconds,
            ratio={
                "worst/best": worst / best,
                "best/chosen": best / orders[own],
                "best/without statistics": best / orders[unaided],
            },
            notes={
                "kind": "orders",
                "query": query.name,
                "setting": setting,
                "windows": [str(window) for window in query.windows],
                "results": next(iter(prints))[0],
                "chosen": order_text(chosen, graph.names),
                "without statistics": order_text(blind, graph.names),
                "rows per second": {n: self.size.rows / s for n, s in seconds.items()},
                "state bytes": {n: found[-1].state_bytes for n, found in runs.items()},
                "intermediate rows, estimated": self._intermediate(graph, compared),
                "published orders": query.orders,
            },
        )

    def _compared(self, graph: JoinGraph, chosen: Order, blind: Order) -> list[Order]:
        """All orders of three streams. Of more: those that were chosen, the one written, and a
        spread of the others by cost."""
        sequences = [s for s in permutations(range(len(graph.leaves))) if s[0] < s[1]]
        orders = [left_deep(sequence) for sequence in sequences]
        if len(orders) > 6:
            costs = join_cost(graph, self._load)
            orders.sort(key=lambda order: cost_of(order, costs))
            last = len(orders) - 1
            orders = [orders[last * part // 4] for part in range(5)]
        wanted = [*orders, graph.written, _canonical(chosen), _canonical(blind)]
        return list(dict.fromkeys(_canonical(order) for order in wanted))

    def _intermediate(self, graph: JoinGraph, orders: Sequence[Order]) -> dict[str, int]:
        """Rows that come out of all joins of an order but the last."""
        costs = join_cost(graph, self._load)
        found = {}
        for order in orders:
            below = list(pairs_of(order))[:-1]
            rate = sum(costs.rows(sum(1 << i for i in inputs_of(pair))) for pair in below)
            found[order_text(order, graph.names)] = round(rate * self._load.stretch * BATCHES)
        return found

    # Against plain Spark

    def native(self) -> list[Case]:
        cases = []
        for name in self.size.native:
            query = QUERIES[name]
            streams = self.streams(query, SETTINGS["S2"], "S2", self.size.native_rows)
            plan, graph = self._planned(query, streams)
            self.headrace(query, streams, None)
            headrace = [self.headrace(query, streams, None) for _ in range(self.size.repeats)]
            chosen = headrace[-1].order
            assert chosen is not None
            join = next(topmost_joins(plan))
            best = _with_joins(plan, join, chosen)
            runs = {
                "native, as written": self.plain_spark(plan, streams),
                "native, best order": self.plain_spark(best, streams),
            }
            self.setup.advance(2 / self.steps)
            seconds = {n: m.seconds for n, m in runs.items()}
            seconds["headrace"] = median(m.seconds for m in headrace)
            prints = {m.fingerprint for m in (*runs.values(), *headrace)}
            self.setup.say(f"native/{name}: {seconds}")
            cases.append(
                Case(
                    case=f"native/{name}/S2",
                    equal=len(prints) == 1,
                    rows=self.size.native_rows,
                    seconds=seconds,
                    ratio={f"{n}/headrace": s / seconds["headrace"] for n, s in seconds.items()
                           if n != "headrace"},
                    notes={"kind": "native", "query": name, "results": next(iter(prints))[0],
                           "order": order_text(chosen, graph.names)},
                )
            )  # fmt: skip
        return cases

    # The rate sweep

    def sweep(self) -> list[Case]:
        """Q5 with r(a) = 1 and b and c sharing 99, as in Figure 7."""
        query = QUERIES["Q5"]
        cases = []
        for b in self.size.sweep:
            rates = {"a": 1, "b": b, "c": 99 - b}
            streams = self.streams(query, rates, f"b{b}", self.size.rows)
            _, graph = self._planned(query, streams)
            self.headrace(query, streams, None)
            runs = {
                order_text(order, graph.names): self.headrace(query, streams, order)
                for order in (((0, 1), 2), ((0, 2), 1), ((1, 2), 0))
            }
            seconds = {name: measured.busy for name, measured in runs.items()}
            cases.append(
                Case(
                    case=f"rates/Q5/b={b}",
                    equal=len({m.fingerprint for m in runs.values()}) == 1,
                    rows=self.size.rows,
                    seconds=seconds,
                    ratio={"worst/best": max(seconds.values()) / min(seconds.values())},
                    notes={"kind": "rates", "rates": rates},
                )
            )
            self.setup.advance(1 / self.steps)
        return cases

    # Runs

    def streams(
        self, query: JoinQuery, rates: Mapping[str, int], setting: str, rows: int
    ) -> list[StreamFolder]:
        """A stream per input at its rate; together they have this many rows, over one time."""
        hours = rows / (KEYS * sum(rates[name] for name in query.streams))
        found = []
        for position, name in enumerate(query.streams):
            count = max(BATCHES * FILES_PER_BATCH, round(hours * KEYS * rates[name]))
            folder = self.setup.work / "streams" / f"{setting}-{len(query.streams)}-{rows}-{name}"
            if not folder.exists():
                EventFiles(
                    count,
                    BATCHES * FILES_PER_BATCH,
                    keys=KEYS,
                    step=hours * 60 * MINUTE / count,
                    shake=1_000,
                    salt=1_000_003 * (position + 1),
                    signed=True,
                ).write(folder)
            found.append(StreamFolder(name, folder, EVENTS_SCHEMA, files_per_batch=FILES_PER_BATCH))
        return found

    def _planned(self, query: JoinQuery, streams: list[StreamFolder]) -> tuple[Node, JoinGraph]:
        hr = open_session(self.setup.spark, streams, None)
        plan = hr.sql(query.sql).optimized.plan
        return plan, join_graph(next(topmost_joins(plan)))

    def headrace(
        self, query: JoinQuery, streams: list[StreamFolder], order: Order | None
    ) -> Measured:
        place = empty_folder(self.setup.work / "headrace")
        hr = open_session(self.setup.spark, streams, place / "state")
        standing = hr.sql(query.sql)
        if order is not None:
            standing = standing.in_order(_by_name(order, query.streams))
        handle = (
            standing.writeStream.queryName("joined").format("parquet").start(str(place / "out"))
        )
        started = time.perf_counter()
        hr.start(availableNow=True)
        hr.awaitTermination()
        seconds = time.perf_counter() - started
        error = handle.exception()
        if error is not None:
            raise BenchError(f"{query.name} failed under Headrace: {error}")
        busy = sum(epoch["seconds"] for epoch in hr.recentProgress)
        self._remember(hr, standing)
        return Measured(
            seconds, busy, fingerprint(place / "out"), _bytes(place / "state"), self._chosen
        )

    def _remember(self, hr: Headrace, query: Query) -> None:
        """The load and the order of the run, as the engine itself saw them."""
        join = next(topmost_joins(query.optimized.plan))
        plan = hr._engine.plan
        assert plan is not None
        self._load = plan.statistics.joins[plan_hash(join)]
        self._chosen = plan.choices.join_orders.get(plan_hash(join))

    def plain_spark(self, plan: Node, streams: list[StreamFolder]) -> Measured:
        from headrace import native

        place = empty_folder(self.setup.work / "native")
        spark = self.setup.spark
        done = native.run(
            plan,
            spark,
            {stream.name: stream.read(spark) for stream in streams},
            checkpoint=str(place / "state"),
            out_dir=str(place / "out"),
            read_back=False,
        )
        return Measured(done.seconds, done.seconds, fingerprint(place / "out"))

    # What it comes to

    def summary(self, cases: list[Case]) -> dict[str, float]:
        found: dict[str, float] = {"planning eight streams, seconds": planning_seconds()}
        orders = [c for c in cases if c.notes.get("kind") == "orders"]
        for group, (paper, names) in PAPER_SPEEDUPS.items():
            ratios = [
                c.ratio["worst/best"]
                for c in orders
                if c.notes["query"] in names and c.notes["setting"] != "S1"
            ]
            if ratios:
                found[f"{group}: worst/best at most"] = max(ratios)
                found[f"{group}: worst/best at most, paper"] = paper
        for setting, wanted in (("S1", True), ("the others", False)):
            some = [c for c in orders if (c.notes["setting"] == "S1") is wanted]
            for what in ("best/chosen", "best/without statistics"):
                if some:
                    share = [c.ratio[what] >= 0.9 for c in some]
                    found[f"{what} at least 0.9, of {len(some)} in {setting}"] = sum(share)
        natives = [c for c in cases if c.notes.get("kind") == "native"]
        for which in ("native, as written", "native, best order"):
            if natives:
                found[f"{which}/headrace at least"] = min(
                    c.ratio[f"{which}/headrace"] for c in natives
                )
        return found


def _with_joins(plan: Node, join: Join, order: Order) -> Node:
    """The plan whose joins are in this order, for who runs a plan as it stands."""
    return plan.transform(lambda node: reordered(join, order) if node == join else node)


def _by_name(order: Order, names: Sequence[str]) -> object:
    if isinstance(order, int):
        return names[order]
    return tuple(_by_name(part, names) for part in order)


def _canonical(order: Order) -> Order:
    """One spelling for orders that only exchange the sides of a join."""
    if isinstance(order, int):
        return order
    left, right = _canonical(order[0]), _canonical(order[1])
    # The larger part first, so that one stream after the other reads as it is done.
    first = min((left, right), key=lambda part: (-len(inputs_of(part)), min(inputs_of(part))))
    return (left, right) if first == left else (right, left)


def _busy(runs: Sequence[Measured]) -> float:
    return median(measured.busy for measured in runs)


def planning_seconds() -> float:
    """The longest of some plans of eight streams, stars and chains."""
    import random

    from headrace.cost.window_joins import JoinLoad
    from headrace.plan.nodes import Source
    from headrace.plan.types import BIGINT, TIMESTAMP, Schema
    from headrace.sql import plan_query

    names = "abcdefgh"
    schema = Schema.of((("k", BIGINT), ("ts", TIMESTAMP)))
    catalog: dict[str, Any] = {name: Source(name, schema, "ts", 0) for name in names}
    longest = 0.0
    for seed in range(10):
        chance = random.Random(seed)
        sql = "SELECT a.k FROM a"
        for position, name in enumerate(names[1:], 1):
            partner = "a" if seed % 2 else names[position - 1]
            minutes = chance.choice((5, 10, 30))
            sql += f" JOIN {name} ON {partner}.k = {name}.k AND {name}.ts BETWEEN {partner}.ts "
            sql += f"AND {partner}.ts + INTERVAL {minutes} MINUTES"
        graph = join_graph(next(topmost_joins(plan_query(sql, catalog).plan)))
        rates = tuple(10 ** chance.uniform(-5, -2) for _ in names)
        load = JoinLoad(rates, {(i, 0): 100.0 for i in range(len(names))}, 3.6e6)
        started = time.perf_counter()
        best_order(graph, load)
        longest = max(longest, time.perf_counter() - started)
    return longest


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "state").rglob("*.parquet"))
