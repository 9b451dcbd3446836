"""Whether a query fails: the same in every plan, and only for what its meaning computes.

Random aggregates over joins, with arguments, filters, groups and conditions that fail for some
rows: rows that meet somebody, rows that meet nobody, or both. Aggregated late, early, and as the
planner chooses, all beside each other in one engine. What must come out is computed here, pair by
pair in Python: the rows, or which errors there may be.

``python -m tests.engine.epochs.test_failing_rows SEED [EXECUTOR]`` runs one of them.
"""

from __future__ import annotations

import datetime
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import add, mul, sub
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.optimizer import optimize
from headrace.plan.nodes import Node, OutputMode, Source, Table
from headrace.plan.types import BIGINT, INT, STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, tiny_executor
from tests.support.oracle import run_epochs

Row = dict[str, Any]
Pair = dict[str, Row]

COLUMNS = [("j", BIGINT), ("g", STRING), ("v", BIGINT), ("n", INT), ("ts", TIMESTAMP)]
#: No row is late.
STREAMS = {name: Source(name, Schema.of(COLUMNS), "ts", delay=15_000) for name in "abc"}
CATALOG: dict[str, Source | Table] = {
    **STREAMS,
    "t": Table("t", Schema.of(COLUMNS[:4])),
}
START = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
SECONDS = 10
LEAST, GREATEST = -(2**63), 2**63 - 1
TOGETHER = 3


class Fails(Exception):
    """What Spark's ANSI mode says of an expression for a row."""


# Expressions: Spark's SQL, and what it means. NULL in, NULL out.


def divided(value: int | None) -> float | None:
    if value == 0:
        raise Fails("DIVIDE_BY_ZERO")
    return None if value is None else 100 / value


def within(value: int, bits: int, error: str) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Fails(error)
    return value


def cast_text(text: str) -> int:
    if not text.isdigit():
        raise Fails("CAST_INVALID_INPUT")
    return int(text)


def remainder(value: int, divisor: int) -> int:
    if divisor == 0:
        raise Fails("REMAINDER_BY_ZERO")
    return value % divisor


def whole_quotient(value: int | None, divisor: int) -> int | None:
    if value is None:
        return None
    if divisor == 0:
        raise Fails("DIVIDE_BY_ZERO")
    return int(abs(value) // divisor * (1 if value >= 0 else -1))


def times(value: int | None) -> int | None:
    return None if value is None else within(value * value, 64, "ARITHMETIC_OVERFLOW")


def narrowed(value: int | None) -> int | None:
    return None if value is None else within(value, 32, "CAST_OVERFLOW")


Value = Callable[[Row], Any]
EXPRESSIONS: dict[str, Value] = {
    "100 / {x}.v": lambda r: divided(r["v"]),
    "{x}.v * {x}.v": lambda r: times(r["v"]),
    "CAST({x}.v AS INT)": lambda r: narrowed(r["v"]),
    "CAST({x}.g AS INT)": lambda r: cast_text(r["g"]),
    "{x}.n + {x}.n": lambda r: within(2 * r["n"], 32, "ARITHMETIC_OVERFLOW"),
    "7 % {x}.n": lambda r: remainder(7, r["n"]),
    "{x}.v DIV {x}.n": lambda r: whole_quotient(r["v"], r["n"]),
    # Nothing tells beforehand for which rows the decimals overflow.
    "CAST(CAST({x}.g AS DECIMAL(9,0)) + 1 AS BIGINT)": lambda r: cast_text(r["g"]) + 1,
    "{x}.v": lambda r: r["v"],
}
#: Values of a row for which some of the expressions fail.
BAD: tuple[Row, ...] = (
    {"v": 0},
    {"v": 2**62},
    {"v": LEAST},
    {"v": GREATEST},
    {"g": "x"},
    {"n": 0},
    {"n": 2**31 - 1},
)


@dataclass(frozen=True)
class Aggregated:
    """An aggregate of one input, and what it is of some values."""

    function: str
    expression: str
    of: str
    filtered: bool

    @property
    def sql(self) -> str:
        condition = f" FILTER (WHERE {self.of}.n > 1)" if self.filtered else ""
        argument = self.expression.format(x=self.of)
        if self.function == "count_different":
            return f"count(DISTINCT {argument}){condition}"
        return f"{self.function}({argument}){condition}"

    def value(self, pairs: Sequence[Pair]) -> Any:
        rows = [pair[self.of] for pair in pairs]
        values = [EXPRESSIONS[self.expression](r) for r in rows if not self.filtered or r["n"] > 1]
        return total(self.function, values)


def total(function: str, values: Sequence[Any]) -> Any:
    """What a function makes of some values."""
    known = [value for value in values if value is not None]
    if function.startswith("count"):
        return len(set(known) if function == "count_different" else known)
    if not known:
        return None
    if function == "sum" and isinstance(known[0], int):
        return within(sum(known), 64, "ARITHMETIC_OVERFLOW")
    plain: dict[str, Callable[[list[Any]], Any]] = {
        "sum": sum,
        "min": min,
        "max": max,
        "avg": lambda some: sum(map(float, some)) / len(some),
    }
    return plain[function](known)


Both = Callable[[Row, Row], Any]


def both(operation: Callable[[int, int], int], column: str, bits: int) -> Both:
    """A product or the like of a column of each side."""

    def computed(left: Row, right: Row) -> int | None:
        if left[column] is None or right[column] is None:
            return None
        return within(operation(left[column], right[column]), bits, "ARITHMETIC_OVERFLOW")

    return computed


#: Over two inputs: of factors, and (the last) of columns that tell rows apart.
OF_BOTH: dict[str, Both] = {
    "{x}.v * {y}.v": both(mul, "v", 64),
    "{x}.v + {y}.v": both(add, "v", 64),
    "{x}.v - {y}.v": both(sub, "v", 64),
    "{x}.n * {y}.n": both(mul, "n", 32),
    "{x}.n + {y}.n": both(add, "n", 32),
    "{x}.n - {y}.n": both(sub, "n", 32),
    "100 / ({x}.n - {y}.n)": lambda x, y: divided(both(sub, "n", 32)(x, y)),
}


@dataclass(frozen=True)
class AggregatedOfBoth:
    """An aggregate over two inputs."""

    function: str
    expression: str
    of: tuple[str, str]
    filtered: bool

    @property
    def sql(self) -> str:
        x, y = self.of
        condition = f" FILTER (WHERE {x}.n > 1)" if self.filtered else ""
        return f"{self.function}({self.expression.format(x=x, y=y)}){condition}"

    def value(self, pairs: Sequence[Pair]) -> Any:
        x, y = self.of
        wanted = [(p[x], p[y]) for p in pairs if not self.filtered or p[x]["n"] > 1]
        return total(self.function, [OF_BOTH[self.expression](*sides) for sides in wanted])


@dataclass(frozen=True)
class Query:
    """An aggregate over a join of streams, or of a stream and a table, in tumbling windows."""

    inputs: tuple[str, ...]
    aggregates: tuple[Aggregated | AggregatedOfBoth, ...]
    key: tuple[str, str] | None
    above: bool
    condition: tuple[str, str] | None

    def sql(self, hint: str) -> str:
        first, *others = self.inputs
        joined = first
        for other in others:
            joined += f" JOIN {other} ON {first}.j = {other}.j"
            if other != "t":
                joined += f" AND {_window(first)} = {_window(other)}"
        columns = [f"{call.sql} AS x{i}" for i, call in enumerate(self.aggregates)]
        by = [_window(first)]
        if self.key is not None:
            key = self.key[0].format(x=self.key[1])
            columns.insert(0, f"{key} AS k")
            by.insert(0, key)
        where = ""
        if self.condition is not None:
            where = f" WHERE {self.condition[0].format(x=self.condition[1])} > 1"
        text = f"SELECT {hint} {', '.join(columns)} FROM {joined}{where} GROUP BY {', '.join(by)}"
        return f"SELECT * FROM ({text}) AS d WHERE k >= 0" if self.above else text

    def answer(self, rows: dict[str, list[Row]]) -> tuple[list[tuple[Any, ...]], set[str]]:
        """The rows that come out, and the errors that there may be instead."""
        groups: dict[tuple[Any, ...], list[Pair]] = {}
        errors: set[str] = set()
        for pair in self._pairs(rows):
            try:
                if not self._wanted(pair):
                    continue
                key = [] if self.key is None else [EXPRESSIONS[self.key[0]](pair[self.key[1]])]
                window = pair[self.inputs[0]]["second"] // SECONDS
                groups.setdefault((window, *key), []).append(pair)
            except Fails as error:
                errors.add(str(error))
        found = []
        for (_, *key), pairs in groups.items():
            values = []
            for call in self.aggregates:
                try:
                    values.append(call.value(pairs))
                except Fails as error:
                    errors.add(str(error))
            if not self.above or (key[0] is not None and key[0] >= 0):
                found.append((*key, *values))
        return found, errors

    def _wanted(self, pair: Pair) -> bool:
        if self.condition is None:
            return True
        value = EXPRESSIONS[self.condition[0]](pair[self.condition[1]])
        return value is not None and value > 1

    def _pairs(self, rows: dict[str, list[Row]]) -> Iterator[Pair]:
        first = self.inputs[0]
        for some in product(*(rows[name] for name in self.inputs)):
            pair = dict(zip(self.inputs, some, strict=True))
            window = pair[first]["second"] // SECONDS
            if all(
                row["j"] == pair[first]["j"] and (name == "t" or row["second"] // SECONDS == window)
                for name, row in pair.items()
            ):
                yield pair


def _window(name: str) -> str:
    return f"window({name}.ts, '{SECONDS} seconds')"


# Random queries and rows


def random_query(rng: random.Random) -> Query:
    inputs = rng.choice([("a", "b")] * 3 + [("a", "b", "c"), ("a", "t")])

    def expression() -> str:
        return rng.choice(list(EXPRESSIONS))

    def aggregate() -> Aggregated | AggregatedOfBoth:
        if rng.random() < 0.4:
            function = rng.choice(["sum", "sum", "avg", "count", "max"])
            of = rng.sample(inputs, 2)
            chosen = rng.choice(list(OF_BOTH))
            return AggregatedOfBoth(function, chosen, (of[0], of[1]), rng.random() < 0.25)
        function = rng.choice(["sum", "sum", "min", "max", "avg", "count", "count_different"])
        return Aggregated(function, expression(), rng.choice(inputs), rng.random() < 0.25)

    aggregates = tuple(aggregate() for _ in range(rng.choice([1, 1, 2])))
    key = (expression(), rng.choice(inputs)) if rng.random() < 0.35 else None
    condition = (expression(), rng.choice(inputs)) if rng.random() < 0.2 else None
    return Query(inputs, aggregates, key, key is not None and rng.random() < 0.5, condition)


def random_rows(rng: random.Random) -> list[dict[str, list[Row]]]:
    """Two epochs of rows, and a third that closes all windows and meets nobody."""
    bad_alone, bad_met = rng.choice([0.5, 0.9]), rng.choice([0.0, 0.2, 0.5])

    def row(j: int, bad: float, second: int) -> Row:
        plain: Row = {
            "j": j,
            "g": str(rng.randrange(3)),
            "v": rng.choice([1, 2, 4, 5, None]),
            "n": rng.randrange(1, 4),
        }
        more = rng.choice(BAD) if rng.random() < bad else {}
        time = START + datetime.timedelta(seconds=second)
        return plain | more | {"second": second, "ts": time}

    def some(name: str, seconds: range) -> list[Row]:
        alone = 100 * (1 + "abct".index(name))
        met = [row(rng.randrange(3), bad_met, rng.choice(seconds)) for _ in range(5)]
        return met + [row(alone, bad_alone, rng.choice(seconds)) for _ in range(4)]

    epochs = [
        {name: some(name, range(15)) for name in "abc"},
        {name: some(name, range(8, 25)) for name in "abc"},
        {name: [row(100 * (1 + "abct".index(name)), 1.0, 95)] for name in "abc"},
    ]
    for epoch in epochs:
        # A row without a time is no row for any query.
        epoch["a"].append(row(1, 1.0, 0) | {"ts": None, "second": None})
    return [*epochs, {"t": some("t", range(1))}]


def queries_of(seed: int) -> tuple[list[Query], list[dict[str, list[Row]]]]:
    rng = random.Random(f"failing {seed}")
    return [random_query(rng) for _ in range(TOGETHER)], random_rows(rng)


def plans_of(rng: random.Random, query: Query) -> dict[str, Node]:
    hints = {"late": "/*+ LATE_AGGREGATION */", "auto": ""}
    forced = ", ".join(name for name in query.inputs if rng.random() < 0.5)
    hints[f"early {forced}"] = f"/*+ EARLY_AGGREGATION({forced}) */"
    return {
        name: optimize(plan_query(query.sql(hint), CATALOG).plan).plan
        for name, hint in hints.items()
    }


def check(seed: int, spark: SparkSession, executor: str, folder: Path) -> tuple[int, int]:
    """Run the queries of one seed; how many answer, and how many fail."""
    queries, (*epochs, table) = queries_of(seed)
    rng = random.Random(f"plans {seed}")
    plans = [plans_of(rng, query) for query in queries]
    calm = plan_query("SELECT count(*) FROM a GROUP BY window(ts, '1 hour')", CATALOG).plan
    running: dict[str, tuple[Node, OutputMode]] = {"calm": (calm, OutputMode.APPEND)}
    for number, some in enumerate(plans):
        running |= {f"{number} {n}": (plan, OutputMode.APPEND) for n, plan in some.items()}
    given = [{s: [_given(r) for r in rows] for s, rows in epoch.items()} for epoch in epochs]
    tables = {"t": [{n: r[n] for n, _ in COLUMNS[:4]} for r in table["t"]]}
    run = run_engine(
        tiny_executor(spark, executor=executor, **{"tasks.rows": "50000"}),
        running,
        CATALOG,
        given,
        tables,
        folder,
        as_given=frozenset(running),
        may_fail=True,
    )
    timed = {n: [r for e in epochs for r in e[n] if r["ts"] is not None] for n in "abc"}
    answers = [query.answer(timed | table) for query in queries]
    for (wanted, errors), query, some in zip(answers, queries, plans, strict=True):
        number = queries.index(query)
        for name in some:
            failure = run.failures.get(f"{number} {name}")
            context = f"seed {seed} on {executor}, {name}: {query.sql('')}"
            if errors:
                assert failure is not None, f"no failure, but {errors}: {context}"
                assert any(f"[{error}" in str(failure) for error in errors), (failure, context)
                continue
            assert failure is None, f"{failure}: {context}"
            actual = [row for epoch in run.rows[f"{number} {name}"] for row in epoch]
            assert_same_rows(actual, wanted, context=context)
    return sum(1 for _, errors in answers if not errors), sum(1 for _, e in answers if e)


def _given(row: Row) -> Row:
    return {name: row[name] for name, _ in COLUMNS}


@pytest.mark.random
def test_plans_fail_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Of these, two answer and one fails."""
    assert check(26, spark, "auto", tmp_path / "hr") == (2, 1)


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("executor", ["auto", "spark"])
@pytest.mark.parametrize("first", range(10, 50, 4))
def test_many_plans_fail_alike(
    executor: str, first: int, spark: SparkSession, tmp_path: Path
) -> None:
    for seed in range(first, first + 4):
        check(seed, spark, executor, tmp_path / f"hr{seed}")


def test_queries_answer_and_fail_about_as_often() -> None:
    """In the long run both, and rows that fail and meet nobody are everywhere."""
    outcomes: list[bool] = []
    for seed in range(50):
        queries, (*epochs, table) = queries_of(seed)
        rows = {n: [r for e in epochs for r in e[n] if r["ts"] is not None] for n in "abc"} | table
        for query in queries:
            wanted, errors = query.answer(rows)
            if wanted or errors:
                outcomes.append(bool(errors))
    assert len(outcomes) > 100
    assert 0.25 < sum(outcomes) / len(outcomes) < 0.75


# Forms of joins and windows: whatever is computed where, a divisor that is zero in a row without a
# partner, in a late one or in one without a time divides nothing.

SAME = f"{_window('a')} = {_window('b')}"
FORMS = {
    "hopping": "SELECT {hint} sum(100 / a.v) AS x FROM a JOIN b ON a.j = b.j AND "
    + SAME
    + " GROUP BY window(a.ts, '20 seconds', '10 seconds')",
    "trailing": "SELECT {hint} sum(100 / a.v) AS x, max(7 % b.v) AS y "
    "FROM a JOIN b ON a.j = b.j AND " + SAME + " GROUP BY trailing(a.ts, '100 seconds')",
    "landmark": "SELECT {hint} 7 % a.v AS k, avg(100 / b.v) AS x FROM a JOIN b ON a.j = b.j AND "
    + SAME
    + " GROUP BY 7 % a.v, landmark(a.ts)",
    # Late rows count in these.
    "windows of each": "SELECT {hint} sum(100 / b.v) AS x, count(*) AS n "
    "FROM a JOIN b ON a.j = b.j "
    "GROUP BY trailing(a.ts, '100 seconds'), trailing(b.ts, '100 seconds')",
    "filtered": "SELECT {hint} sum(100 / a.v) FILTER (WHERE a.v <> 2) AS x, "
    "max(100 / a.v) FILTER (WHERE a.v <> 2) AS y FROM a JOIN b ON a.j = b.j AND "
    + SAME
    + " GROUP BY "
    + _window("a"),
    "three": "SELECT {hint} count(*) AS n FROM a JOIN b ON a.j = b.j AND "
    + SAME
    + f" JOIN c ON a.j = c.j AND {_window('a')} = {_window('c')} "
    + "WHERE 100 / a.v > 1 GROUP BY "
    + _window("a"),
}
WITHOUT_PLANS = {
    "outer": "SELECT a.j, b.n FROM a LEFT JOIN b ON a.j = b.j AND b.ts BETWEEN a.ts AND "
    "a.ts + INTERVAL 5 SECONDS AND 100 / b.v > 1 AND 100 / a.v > 1",
    "table": "SELECT a.j, t.n FROM a LEFT JOIN t ON a.j = t.j AND 100 / t.v > 1",
    "by keys": "SELECT a.j, b.n FROM a JOIN b ON a.j = b.j WHERE 100 / b.v > 1",
    "its own": "SELECT sum(100 / n) AS x FROM b GROUP BY window(ts, '10 seconds')",
}
FAILING = {
    # A filter below a join is one of all rows, whoever they meet.
    "below": "SELECT {hint} count(*) AS n FROM (SELECT * FROM a WHERE 100 / v > 1) a "
    "JOIN b ON a.j = b.j AND " + SAME + " GROUP BY " + _window("a"),
    "met": "SELECT {hint} sum(100 / a.n) AS x FROM a JOIN b ON a.j = b.j AND "
    + SAME
    + " GROUP BY "
    + _window("a"),
}
HINTS = {"late": "/*+ LATE_AGGREGATION */", "auto": ""}


def _rows(*rows: tuple[int, int, int, float | None]) -> list[Row]:
    def time(second: float | None) -> datetime.datetime | None:
        return None if second is None else START + datetime.timedelta(seconds=second)

    return [{"j": j, "g": "1", "v": v, "n": n, "ts": time(at)} for j, v, n, at in rows]


def forms(executor: str, spark: SparkSession, folder: Path) -> None:
    catalog: dict[str, Source | Table] = {
        name: Source(name, Schema.of(COLUMNS), "ts") for name in "abc"
    } | {"t": CATALOG["t"]}
    epochs = [
        {
            # The third has a partner in c, and none in b.
            "a": _rows((1, 2, 0, 1), (9, 0, 3, 2), (4, 0, 3, 3), (1, 0, 3, None)),
            "b": _rows((1, 5, 1, 1), (8, 0, 1, 2), (3, 5, 1, 4), (1, 0, 0, None)),
            "c": _rows((1, 1, 0, 1), (4, 1, 7, 4)),
        },
        {
            # The first is late.
            "a": _rows((1, 0, 2, 0), (7, 0, 2, 90)),
            "b": _rows((6, 0, 2, 90)),
            "c": _rows((5, 0, 2, 90)),
        },
    ]
    tables = {"t": [{k: r[k] for k in "jgvn"} for r in _rows((1, 5, 3, 0), (3, 0, 1, 0))]}
    texts = {
        f"{form} {h}": sql.format(hint=hint)
        for form, sql in FORMS.items()
        for h, hint in HINTS.items()
    }
    texts |= WITHOUT_PLANS
    failing = {
        f"{form} {h}": sql.format(hint=hint)
        for form, sql in FAILING.items()
        for h, hint in HINTS.items()
    }
    plans = {
        n: optimize(plan_query(sql, catalog).plan).plan for n, sql in {**texts, **failing}.items()
    }
    mode = {n: OutputMode.UPDATE if n.startswith("hopping") else OutputMode.APPEND for n in plans}
    run = run_engine(
        tiny_executor(spark, executor=executor, **{"tasks.rows": "50000"}),
        {n: (plan, mode[n]) for n, plan in plans.items()},
        catalog,
        epochs,
        tables,
        folder,
        as_given=frozenset(plans),
        may_fail=True,
    )
    assert run.failures.keys() == failing.keys(), {n: str(e) for n, e in run.failures.items()}
    assert all("[DIVIDE_BY_ZERO]" in str(error) for error in run.failures.values())
    for name in texts:
        wanted = run_epochs(plans[name], epochs, tables, mode[name])
        assert any(wanted), name
        for actual, rows in zip(run.rows[name], wanted, strict=True):
            assert_same_rows(actual, rows, context=f"{name} on {executor}: {texts[name]}")


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["auto", "spark"])
def test_rows_that_meet_nobody_fail_nothing(
    executor: str, spark: SparkSession, tmp_path: Path
) -> None:
    forms(executor, spark, tmp_path / "hr")


if __name__ == "__main__":
    import tempfile

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    chosen = sys.argv[2] if len(sys.argv) > 2 else "auto"
    begin, _, end = sys.argv[1].partition("-")
    if begin == "forms":
        with tempfile.TemporaryDirectory() as place:
            forms(chosen, session, Path(place) / "hr")
        sys.exit()
    for one in range(int(begin), int(end or begin) + 1):
        with tempfile.TemporaryDirectory() as place:
            try:
                print(one, *check(one, session, chosen, Path(place) / "hr"), flush=True)
            except AssertionError as error:
                print(one, "WRONG", str(error)[:1500], flush=True)
