"""Benchmarks: the comparisons that documents quote, each run by ``headrace bench NAME``.

They are not part of the package: who installs Headrace has no use for them. How two contestants are
timed and their results compared is, since ``headrace demo`` does the same; read
``headrace.native.compare`` and ``headrace.contestants`` first. Then come ``harness`` (what
all benches are given, and what they report), ``engine`` (throughput, latency, executors, memory),
a room for each of the papers (``windows``, ``joins``, ``early_aggregation``, ``probing`` and
``merging``), and ``choices``, which judges what is decided of four of them. A bench is a file of
its name with one ``run`` function.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from benchmarks.harness.report import Report, Setup


class BenchError(HeadraceError):
    """A benchmark that does not exist, cannot run, or whose contestants disagree."""

    condition = "BENCH_FAILED"


class BenchModule(Protocol):
    """What the module of a bench holds."""

    def run(self, setup: Setup) -> Report: ...


@dataclass(frozen=True)
class Bench:
    """A bench by name; its module is imported only when it runs."""

    name: str
    module: str
    purpose: str

    def load(self) -> BenchModule:
        return cast(BenchModule, import_module(self.module))


BENCHES: dict[str, Bench] = {
    bench.name: bench
    for bench in (
        Bench("ingest", "benchmarks.engine.ingest", "throughput of one window over many events"),
        Bench(
            "latency", "benchmarks.engine.latency", "time of a small micro-batch, early and late"
        ),
        Bench(
            "factor-windows",
            "benchmarks.windows.factor_windows",
            "many windows for the price of one",
        ),
        Bench("join-order", "benchmarks.joins.join_order", "window joins in the best order"),
        Bench(
            "early-aggregation",
            "benchmarks.early_aggregation.early_aggregation",
            "aggregates before joins: all plans, measured and predicted",
        ),
        Bench(
            "probe-order",
            "benchmarks.probing.probe_order",
            "probe orders of a multi-way join that follow the data",
        ),
        Bench(
            "merging",
            "benchmarks.merging.merging",
            "queries merged by meaning: what they share, and what that saves",
        ),
        Bench(
            "choices",
            "benchmarks.choices.choices",
            "the plan that is chosen, against the best of all that there are",
        ),
        Bench("executors", "benchmarks.engine.executors", "Spark's operators, and DuckDB in tasks"),
        Bench("soak", "benchmarks.engine.soak", "memory over minutes of a live stream"),
    )
}


def find_bench(name: str) -> Bench:
    """The bench of that name, or an error that says which ones there are."""
    if name not in BENCHES:
        near = get_close_matches(name, BENCHES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(BENCHES)}"
        raise BenchError(f"no bench {name!r}", hint=hint)
    return BENCHES[name]
