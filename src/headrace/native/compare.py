"""How contestants are compared: same process, same data, warm, repeated, results equal.

The first contestant is the baseline. Ratios are baseline / candidate, so above one means that the
candidate is faster. A ratio is only worth printing if both did the same work, so every run's
results are compared with the baseline's as multisets, warm-up runs included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# The note that holds each contestant's whole run shared out over its micro-batches.
WALL = "wall seconds per micro-batch"


@dataclass(frozen=True)
class ContestantRun:
    """One run of one contestant: how long it took, and what came out of each of its queries."""

    seconds: float
    results: Mapping[str, pa.Table] = field(default_factory=dict)
    batch_seconds: Sequence[float] = ()
    # From the start of each micro-batch to that of the next.
    start_to_start: Sequence[float] = ()
    # The part of each micro-batch that is Headrace's own: without what Spark does around it.
    epoch_seconds: Sequence[float] = ()
    # Mean seconds of the phases of an epoch, where the contestant tells them.
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def wall_per_batch(self) -> float:
        """The whole run shared out over its micro-batches: nothing is left out of this one."""
        return self.seconds / max(1, len(self.batch_seconds))


@dataclass(frozen=True)
class Case:
    """One comparison. ``notes`` hold what a reader wants besides: series, targets, differences."""

    case: str
    equal: bool
    rows: int
    seconds: Mapping[str, float]
    ratio: Mapping[str, float]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "equal": self.equal,
            "rows": self.rows,
            "seconds": {name: rounded(value) for name, value in self.seconds.items()},
            "ratio": {name: rounded(value) for name, value in self.ratio.items()},
            "notes": dict(self.notes),
        }


def compare(
    case: str,
    rows: int,
    contestants: Mapping[str, Callable[[], ContestantRun]],
    *,
    warmups: int = 1,
    repeats: int = 3,
    measure: Callable[[ContestantRun], float] = lambda outcome: outcome.seconds,
    notes: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda line: None,
    advance: Callable[[float], None] = lambda share: None,
) -> Case:
    """Run the contestants in turns and compare medians and results.

    The order is turned around in every other round: what the first one leaves in the page cache
    or in the heap then helps and hurts both alike.
    """
    if len(contestants) < 2 or repeats < 1:
        raise ValueError("a comparison needs two contestants and a repeat")
    baseline = next(iter(contestants))
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    walls: dict[str, list[float]] = {name: [] for name in contestants}
    last: dict[str, ContestantRun] = {}
    expected: ContestantRun | None = None
    difference: str | None = None
    for turn in range(warmups + repeats):
        names = list(contestants)
        for name in names if turn % 2 == 0 else reversed(names):
            outcome = contestants[name]()
            phase = "warm-up" if turn < warmups else f"run {turn - warmups + 1} of {repeats}"
            say(f"{case}: {name} took {measure(outcome):.3f} s ({phase})")
            if turn >= warmups:
                measured[name].append(measure(outcome))
                walls[name].append(outcome.wall_per_batch)
            last[name] = outcome
            advance(1 / (len(contestants) * (warmups + repeats)))
            # Turn 0 begins with the baseline, so there always is something to compare with.
            expected = expected or outcome
            if difference is None:
                differs = difference_between(expected.results, outcome.results)
                difference = differs and f"{name} against {baseline}: {differs}"
    seconds = {name: median(times) for name, times in measured.items()}
    details: dict[str, Any] = {"runs": {n: [rounded(t) for t in measured[n]] for n in measured}}
    batches = {name: [rounded(t) for t in last[name].batch_seconds] for name in contestants}
    if any(batches.values()):
        details["series"] = {"x": "micro-batch", "y": "seconds", "lines": batches}
        details[WALL] = {name: rounded(median(times)) for name, times in walls.items()}
    phases = {
        name: {phase: rounded(s) for phase, s in last[name].phases.items()}
        for name in contestants
        if last[name].phases
    }
    if phases:
        details["phases"] = phases
    if difference is not None:
        details["difference"] = difference
    return Case(
        case=case,
        equal=difference is None,
        rows=rows,
        seconds=seconds,
        ratio={
            f"{baseline}/{name}": seconds[baseline] / seconds[name]
            for name in contestants
            if name != baseline and seconds[name] > 0
        },
        notes={**details, **(notes or {})},
    )


def difference_between(
    expected: Mapping[str, pa.Table], actual: Mapping[str, pa.Table]
) -> str | None:
    """Say how two sets of results differ, or nothing if they are equal as multisets."""
    if expected.keys() != actual.keys():
        return f"results of {sorted(actual)} instead of {sorted(expected)}"
    for name in expected:
        reason = multiset_difference(expected[name], actual[name])
        if reason is not None:
            return f"query {name}: {reason}"
    return None


def multiset_difference(expected: pa.Table, actual: pa.Table) -> str | None:
    """Compare two tables as multisets of rows, by column name, exactly.

    Exact also for floating point: what is compared aggregates whole numbers, so that the order of
    additions cannot matter and a difference is always a mistake.
    """
    import duckdb

    columns = sorted(expected.column_names)
    if columns != sorted(actual.column_names):
        return f"columns {sorted(actual.column_names)} instead of {columns}"
    chosen = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    with duckdb.connect() as connection:
        connection.register("expected", expected)
        connection.register("found", actual)
        counts = {}
        for this, other in (("expected", "found"), ("found", "expected")):
            rest = f"SELECT {chosen} FROM {this} EXCEPT ALL SELECT {chosen} FROM {other}"
            row = connection.execute(f"SELECT count(*), any_value(r) FROM ({rest}) r").fetchone()
            assert row is not None
            counts[this] = row
    missing, extra = counts["expected"], counts["found"]
    if not missing[0] and not extra[0]:
        return None
    example = f"missing {missing[1]}" if missing[0] else f"not expected {extra[1]}"
    return f"{missing[0]} rows missing, {extra[0]} not expected, for example {example}"


def rounded(value: float) -> float:
    """Four significant digits are more than any of these measurements carries."""
    return float(f"{value:.4g}")
