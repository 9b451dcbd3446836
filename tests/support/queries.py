"""Random standing queries as SQL text, in every form that Headrace's SQL has.

``random_case(seed)`` is a whole experiment: streams with delays and ttls, a query over them, an
output mode, and the rows of each epoch. The same seed gives the same case for ever; the features
it uses are named, so that a run can say what it covered. ``WEIGHTS`` says how often which form
comes; give other weights to look closer at one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

from headrace.plan.durations import SECOND
from headrace.plan.nodes import Node, OutputMode, Source, Table
from tests.support.expressions import Scope, aggregate, double, integer, predicate, text, value
from tests.support.oracle import run_epochs
from tests.support.streams import (
    BIDS,
    CLICKS,
    ITEMS,
    SOURCES,
    STOPS,
    Epochs,
    Idle,
    Row,
    random_epochs,
    random_tables,
)

#: How often each form comes, relative to the others.
WEIGHTS: Mapping[str, float] = {
    "stateless": 1,
    "union": 1,
    "window": 4,
    "windows": 2,
    "session": 2,
    "trailing": 1,
    "landmark": 1,
    "union_window": 1,
    "cascade": 2,
    "window_join": 2,
    "interval_join": 2,
    "session_join": 1,
    "table_join": 1,
    "state_join": 1,
    "three_way_join": 1,
    "join_window": 2,
    "table_join_window": 1,
    "aggregation_join": 2,
    "moving_join": 1,
}
_LENGTHS = (2, 5, 10, 20, 30)


@dataclass(frozen=True)
class RandomQuery:
    """SQL text, its output mode, and what it is made of."""

    sql: str
    mode: OutputMode
    features: frozenset[str]
    #: Which of the forms it is.
    form: str = ""


@dataclass(frozen=True)
class Case:
    """A query over streams of known rows."""

    seed: int
    catalog: Mapping[str, Source | Table]
    query: RandomQuery
    epochs: Epochs
    tables: Mapping[str, list[Row]]
    #: The streams that are idle in each epoch, unless they have rows in it.
    idle: Idle | None = None

    @cached_property
    def plan(self) -> Node:
        from headrace.sql import plan_query

        return plan_query(self.query.sql, self.catalog).plan

    def expected(self) -> list[list[tuple[Any, ...]]]:
        """What comes out in each epoch, by the oracle."""
        return self._expected

    @cached_property
    def _expected(self) -> list[list[tuple[Any, ...]]]:
        return run_epochs(self.plan, self.epochs, self.tables, self.query.mode, idle=self.idle)

    @property
    def rows(self) -> int:
        """How many rows are expected."""
        return sum(map(len, self.expected()))

    def __str__(self) -> str:
        features = ", ".join(sorted(self.query.features))
        streams = ", ".join(
            f"{s.stream} (delay {s.delay} ms, ttl {s.ttl})"
            for s in self.catalog.values()
            if isinstance(s, Source)
        )
        return (
            f"seed {self.seed}, mode {self.query.mode.value}, features: {features}\n"
            f"{streams}\n{self.query.sql}"
        )


def random_case(seed: int, weights: Mapping[str, float] = WEIGHTS) -> Case:
    """Streams, tables, a query and its rows, all from one seed."""
    return case_from(random.Random(seed), seed, weights)


def case_from(
    chance: random.Random, seed: int = -1, weights: Mapping[str, float] = WEIGHTS
) -> Case:
    """The same from any Random, such as Hypothesis's own, which can shrink it."""
    query = random_query(chance, weights)
    catalog = random_catalog(chance)
    sources = [s for s in catalog.values() if isinstance(s, Source)]
    return Case(seed, catalog, query, random_epochs(chance, sources), random_tables(chance))


def productive(
    case: Case, chance: random.Random, fits: Callable[[Case], Case] = lambda case: case
) -> Case:
    """The case with another query of its form, if need be, of which rows are expected: mostly,
    since that nothing comes out is worth a test now and then. ``fits`` may choose yet another."""
    case = fits(case)
    for _ in range(0 if chance.random() < 0.1 else 6):
        if case.rows:
            break
        case = fits(replace(case, query=random_query(chance, {case.query.form: 1})))
    return case


def random_catalog(chance: random.Random) -> dict[str, Source | Table]:
    """The streams with delays and, sometimes, ttls of their own."""
    catalog: dict[str, Source | Table] = {ITEMS.table: ITEMS}
    for source in SOURCES:
        delay = chance.choice((0, 0, 1, 2, 5, 10)) * SECOND + chance.choice((0, 0, 0, 1))
        ttl = chance.choice((None, 0, 3 * SECOND, 15 * SECOND))
        catalog[source.stream] = replace(source, delay=delay, ttl=ttl)
    return catalog


def random_query(chance: random.Random, weights: Mapping[str, float] = WEIGHTS) -> RandomQuery:
    names = [name for name, weight in weights.items() if weight > 0]
    form = chance.choices(names, [weights[name] for name in names])[0]
    writer = _Writer(chance)
    writer.features.add(form)
    sql = _FORMS[form](writer)
    if chance.random() < 0.15:
        sql = f"WITH q AS ({sql}) SELECT * FROM q"
        writer.features.add("cte")
    return RandomQuery(sql, writer.mode, frozenset(writer.features), form)


@dataclass
class _Writer:
    """Writes one query; notes its features on the way."""

    chance: random.Random
    features: set[str] = field(default_factory=set)
    mode: OutputMode = OutputMode.APPEND

    def maybe(self, share: float, feature: str) -> bool:
        if self.chance.random() < share:
            self.features.add(feature)
            return True
        return False

    # --- pieces ----------------------------------------------------------------------------------

    def seconds(self, values: tuple[float, ...] = _LENGTHS) -> str:
        number = self.chance.choice(values)
        if number == 30 and self.chance.random() < 0.3:
            return "'0.5 minutes'"
        return f"'{number:g} seconds'"

    def window_arguments(self) -> str:
        """Length, and sometimes slide (below or above the length) and offset."""
        length = self.chance.choice(_LENGTHS)
        form = self.chance.choice(("tumbling", "tumbling", "hopping", "hopping", "sampling"))
        self.features.add(form)
        if form == "tumbling":
            slide: float = length
        elif form == "hopping":
            slide = self.chance.choice([s for s in (1, 2, 3, 5, 7, 10) if s < length <= 8 * s])
        else:
            slide = self.chance.choice((1.5, 2)) * length
        arguments = f"'{length} seconds'"
        offset = self.maybe(0.15, "offset")
        if slide != length or offset or self.chance.random() < 0.2:
            arguments += f", '{slide:g} seconds'"
        if offset:
            arguments += f", '{self.chance.choice((1, 3, 0.25))} seconds'"
        return arguments

    def where(self, scope: Scope, share: float = 0.3) -> str:
        if self.maybe(share, "where"):
            return f" WHERE {predicate(self.chance, scope)}"
        return ""

    def stream(self) -> Source:
        return self.chance.choice((BIDS, BIDS, CLICKS, STOPS))

    def keys(self, scope: Scope) -> list[str]:
        """Grouping keys: mostly the key column, sometimes others, expressions, or none."""
        form = self.chance.choice(("k", "k", "k", "name", "expression", "none", "two"))
        self.features.add(f"keys:{form}")
        names = scope.of_type("string")
        first = next(n for n in scope.of_type("bigint") if n.rpartition(".")[2] == "k")
        return {
            "k": [first],
            "name": [self.chance.choice(names)],
            "expression": [integer(self.chance, scope, 1) + " + 0"],
            "none": [],
            "two": [first, self.chance.choice(names)],
        }[form]

    def grouped(
        self,
        source: str,
        scope: Scope,
        window: str,
        window_columns: tuple[str, ...] = ("window",),
        holistic: bool = True,
    ) -> str:
        """SELECT keys, window, aggregates … GROUP BY keys, window."""
        keys = self.keys(scope)
        columns = [f"{key} AS g{i}" for i, key in enumerate(keys)] + list(window_columns)
        calls = [
            aggregate(self.chance, scope, holistic) for _ in range(self.chance.randrange(1, 4))
        ]
        self.features.update("aggregate:" + call.split("(")[0] for call, _ in calls)
        self.features.update("filter" for call, _ in calls if " FILTER " in call)
        self.features.update("distinct" for call, _ in calls if "DISTINCT" in call)
        columns += [f"{call} AS v{i}" for i, (call, _) in enumerate(calls)]
        if self.chance.random() < 0.2:
            columns.append("count(*) * 2 + 1 AS odd")
        if window_columns == ("window",) and self.chance.random() < 0.2:
            columns[columns.index("window")] = self.chance.choice(
                ("window.start AS since", "window.end AS until")
            )
        having = ""
        if self.maybe(0.2, "having"):
            having = f" HAVING count(*) {self.chance.choice(('> 1', '< 3', '>= 2'))}"
        groups = ", ".join([*keys, window])
        return f"SELECT {', '.join(columns)} FROM {source} GROUP BY {groups}{having}"

    def update_sometimes(self) -> None:
        if self.maybe(0.3, "update"):
            self.mode = OutputMode.UPDATE

    # --- forms -----------------------------------------------------------------------------------

    def stateless(self) -> str:
        source = self.stream()
        scope = Scope.of(source.schema)
        columns = [
            f"{value(self.chance, scope)} AS c{i}" for i in range(self.chance.randrange(1, 4))
        ]
        columns += self.chance.sample(list(source.schema.names), 2)
        return f"SELECT {', '.join(columns)} FROM {source.stream}{self.where(scope, 0.7)}"

    def union(self) -> str:
        parts = []
        for _ in range(self.chance.randrange(2, 4)):
            source = self.stream()
            scope = Scope.of(source.schema)
            number = f"CAST({integer(self.chance, scope, 1)} AS BIGINT)"
            columns = (
                f"{source.time} AS at, {number} AS n, {text(self.chance, scope, 1)} AS s, "
                f"{double(self.chance, scope, 1)} AS d"
            )
            parts.append(f"SELECT k, {columns} FROM {source.stream}{self.where(scope)}")
        return " UNION ALL ".join(parts)

    def window(self) -> str:
        self.update_sometimes()
        source = self.stream()
        scope = Scope.of(source.schema)
        rows = f"{source.stream}{self.where(scope)}"
        return self.grouped(rows, scope, f"window({source.time}, {self.window_arguments()})")

    def windows(self) -> str:
        self.update_sometimes()
        source = self.stream()
        scope = Scope.of(source.schema)
        sets = {self.window_arguments(): None for _ in range(self.chance.randrange(2, 5))}
        texts = [f"window({source.time}, {arguments})" for arguments in _different(sets)]
        if len(texts) == 1:
            texts.append(f"window({source.time}, '40 seconds')")
        rows = f"{source.stream}{self.where(scope)}"
        window = f"windows({', '.join(texts)})"
        return self.grouped(rows, scope, window, ("window", "window_id"))

    def session(self) -> str:
        source = self.stream()
        scope = Scope.of(source.schema)
        rows = f"{source.stream}{self.where(scope)}"
        gap = self.seconds((1, 2, 5, 10))
        return self.grouped(
            rows, scope, f"session_window({source.time}, {gap})", ("session_window",)
        )

    def trailing(self) -> str:
        source = self.stream()
        scope = Scope.of(source.schema)
        rows = f"{source.stream}{self.where(scope)}"
        return self.grouped(rows, scope, f"trailing({source.time}, {self.seconds()})")

    def landmark(self) -> str:
        source = self.stream()
        scope = Scope.of(source.schema)
        rows = f"{source.stream}{self.where(scope)}"
        return self.grouped(rows, scope, f"landmark({source.time})", ())

    def union_window(self) -> str:
        self.update_sometimes()
        scope = Scope((("k", "bigint"), ("n", "bigint"), ("s", "string"), ("d", "double")))
        scope = replace(scope, columns=scope.columns[:3])
        return self.grouped(f"({self.union()})", scope, f"window(at, {self.window_arguments()})")

    def cascade(self) -> str:
        """An aggregate of an aggregate: by its window, or by wider windows of its last instant."""
        self.update_sometimes()
        source = self.stream()
        scope = Scope.of(source.schema)
        lower = (
            f"SELECT k, window, count(*) AS n, {integer_total(self.chance, scope)} AS total, "
            f"max({text(self.chance, scope, 1)}) AS s "
            f"FROM {source.stream}{self.where(scope)} "
            f"GROUP BY k, window({source.time}, {self.window_arguments()})"
        )
        upper = Scope((("k", "bigint"), ("n", "bigint"), ("total", "bigint"), ("s", "string")))
        if self.maybe(0.4, "given window"):
            return self.grouped(f"({lower})", upper, "window")
        time = f"window(window_time(window), {self.window_arguments()})"
        if self.maybe(0.3, "cte"):
            return f"WITH low AS ({lower}) " + self.grouped("low", upper, time)
        return self.grouped(f"({lower})", upper, time)

    def join_sides(self) -> tuple[Source, Source]:
        return self.chance.choice(((BIDS, CLICKS), (CLICKS, BIDS), (BIDS, STOPS), (BIDS, BIDS)))

    def kind(self, outer: bool) -> str:
        if outer and self.maybe(0.4, "outer"):
            kind = self.chance.choice(("LEFT", "RIGHT", "FULL"))
            self.features.add(kind.lower())
            return f"{kind} JOIN"
        return "JOIN"

    def window_condition(self, left: str, right: str) -> str:
        arguments = self.window_arguments()
        return f"window({left}, {arguments}) = window({right}, {arguments})"

    def interval_condition(self, left: str, right: str) -> str:
        lower = self.chance.choice((-10, -5, -1, 0, 2))
        upper = lower + self.chance.choice((0, 3, 5, 12))
        if self.chance.random() < 0.5:
            return f"{right} BETWEEN {_shifted(left, lower)} AND {_shifted(left, upper)}"
        return f"{right} >= {_shifted(left, lower)} AND {right} <= {_shifted(left, upper)}"

    def join(self, condition: str, outer: bool, select_window: bool = False) -> str:
        left, right = self.join_sides()
        a, b = Scope.of(left.schema, "a"), Scope.of(right.schema, "b")
        both = a + b
        columns = [
            f"{value(self.chance, side, 1)} AS c{i}"
            for i, side in enumerate(self.chance.choices((a, b, both), k=3))
        ]
        columns += [f"a.{left.time} AS a_time", f"b.{right.time} AS b_time"]
        kind = self.kind(outer and not select_window)
        if select_window and self.maybe(0.3, "selects window"):
            columns.append("window")
        on = f"a.k = b.k AND {self.condition(condition, f'a.{left.time}', f'b.{right.time}')}"
        if self.maybe(0.2, "residual"):
            on += f" AND {predicate(self.chance, both, 0)}"
        return (
            f"SELECT {', '.join(columns)} FROM {left.stream} a {kind} {right.stream} b ON {on}"
            f"{self.where(both, 0.2)}"
        )

    def condition(self, form: str, left: str, right: str) -> str:
        if form == "window":
            return self.window_condition(left, right)
        if form == "interval":
            return self.interval_condition(left, right)
        gap = self.seconds((2, 5, 10))
        return f"session_window({left}, {gap}) = session_window({right}, {gap})"

    def window_join(self) -> str:
        return self.join("window", outer=True, select_window=self.chance.random() < 0.5)

    def interval_join(self) -> str:
        return self.join("interval", outer=True)

    def session_join(self) -> str:
        return self.join("session", outer=False)

    def state_join(self) -> str:
        left, right = self.join_sides()
        a, b = Scope.of(left.schema, "a"), Scope.of(right.schema, "b")
        columns = [f"{value(self.chance, side, 1)} AS c{i}" for i, side in enumerate((a, b, a + b))]
        return (
            f"SELECT a.k, {', '.join(columns)} FROM {left.stream} a JOIN {right.stream} b "
            f"ON a.k = b.k{self.where(a + b)}"
        )

    def table_source(self, source: Source) -> tuple[str, Scope]:
        a, i = Scope.of(source.schema, "a"), Scope.of(ITEMS.schema, "i")
        kind = "LEFT JOIN" if self.maybe(0.4, "outer") else "JOIN"
        return f"{source.stream} a {kind} items i ON a.k = i.k", a + i

    def table_join(self) -> str:
        source = self.stream()
        rows, scope = self.table_source(source)
        columns = [f"{value(self.chance, scope, 1)} AS c{i}" for i in range(3)]
        return (
            f"SELECT a.{source.time} AS at, i.label, {', '.join(columns)} "
            f"FROM {rows}{self.where(scope)}"
        )

    def table_join_window(self) -> str:
        self.update_sometimes()
        source = self.stream()
        rows, scope = self.table_source(source)
        window = f"window(a.{source.time}, {self.window_arguments()})"
        return self.grouped(f"{rows}{self.where(scope)}", scope, window)

    def three_way_join(self) -> str:
        """The second join takes the time that the first one hands on."""
        scopes = [
            Scope.of(s.schema, alias) for s, alias in ((BIDS, "a"), (CLICKS, "b"), (STOPS, "c"))
        ]
        first = self.condition(self.chance.choice(("window", "interval")), "a.ts", "b.at")
        through = self.chance.choice(("a.ts", "b.at"))
        second = self.condition(self.chance.choice(("window", "interval")), through, "c.ts")
        columns = [f"{value(self.chance, scope, 1)} AS c{i}" for i, scope in enumerate(scopes)]
        return (
            f"SELECT a.k, a.ts AS a_time, b.at AS b_time, c.ts AS c_time, {', '.join(columns)} "
            f"FROM bids a JOIN clicks b ON a.k = b.k AND {first} "
            f"JOIN stops c ON a.k = c.k AND {second}"
            f"{self.where(scopes[0] + scopes[1] + scopes[2], 0.2)}"
        )

    def join_window(self) -> str:
        """A windowed aggregate over a join, by a time it hands on or by its own windows."""
        left, right = self.join_sides()
        scope = Scope.of(left.schema, "a") + Scope.of(right.schema, "b")
        form = self.chance.choice(("window", "interval"))
        self.features.add(form)
        times = f"a.{left.time}", f"b.{right.time}"
        rows = (
            f"{left.stream} a JOIN {right.stream} b "
            f"ON a.k = b.k AND {self.condition(form, *times)}{self.where(scope, 0.2)}"
        )
        if form == "window" and self.maybe(0.4, "given window"):
            return self.grouped(rows, scope, "window")
        window = f"window({self.chance.choice(times)}, {self.window_arguments()})"
        return self.grouped(rows, scope, window)

    def moving_join(self) -> str:
        """A trailing window, a landmark, or a window of each input, over a join."""
        inputs = [("bids", BIDS, "a"), ("clicks", CLICKS, "b"), ("stops", STOPS, "c")]
        chosen = self.chance.sample(inputs, self.chance.choice((2, 2, 3)))
        form = self.chance.choice(("trailing", "landmark", "inputs", "inputs"))
        self.features.add(f"over {form}")
        (first, source, alias), *others = chosen
        time, rows = f"{alias}.{source.time}", f"{first} {alias}"
        scopes = [Scope.of(source.schema, alias)]
        arguments = self.window_arguments()
        for name, other, its in others:
            rows += f" JOIN {name} {its} ON {alias}.k = {its}.k"
            if form in ("trailing", "landmark"):
                condition = f"window({time}, {arguments}) = window({its}.{other.time}, {arguments})"
                if self.maybe(0.2, "interval"):
                    condition = self.interval_condition(time, f"{its}.{other.time}")
                rows += f" AND {condition}"
            scopes.append(Scope.of(other.schema, its))
        if self.maybe(0.2, "table"):
            rows += f" JOIN items i ON {alias}.k = i.k"
            scopes.append(Scope.of(ITEMS.schema, "i"))
        if self.maybe(0.1, "where"):
            rows += f" WHERE {predicate(self.chance, self.chance.choice(scopes))}"
        windows = [f"trailing({time}, {self.seconds()})"]
        if form == "landmark":
            windows = [f"landmark({time})"]
        elif form == "inputs":
            for _, other, its in others:
                own = f"{its}.{other.time}"
                trailing = self.chance.random() < 0.7
                length = self.seconds()
                windows.append(f"trailing({own}, {length})" if trailing else f"landmark({own})")
            self.chance.shuffle(windows)
        keys = [key for scope in scopes if self.chance.random() < 0.5 for key in self.keys(scope)]
        calls = ["count(*)"] if self.chance.random() < 0.5 else []
        for scope in scopes:
            if not calls or self.chance.random() < 0.6:
                calls.append(plain_aggregate(self.chance, scope))
        if self.maybe(0.3, "two sides"):
            calls.append(two_sided(self.chance, scopes))
        self.features.update("aggregate:" + call.split("(")[0] for call in calls)
        columns = [f"{key} AS g{i}" for i, key in enumerate(keys)]
        columns += [] if form == "landmark" else ["window"]
        columns += [f"{call} AS v{i}" for i, call in enumerate(calls)]
        groups = ", ".join([*keys, *windows])
        return f"SELECT {', '.join(columns)} FROM {rows} GROUP BY {groups}"

    def aggregation_join(self) -> str:
        """Aggregates of one input each over a join of two to four, tables among them."""
        self.update_sometimes()
        inputs = [("bids", BIDS, "a"), ("clicks", CLICKS, "b"), ("stops", STOPS, "c")]
        chosen = self.chance.sample(inputs, self.chance.choice((1, 2, 2, 2, 3)))
        (first, source, alias), *others = chosen
        arguments = self.window_arguments()
        time, rows = f"{alias}.{source.time}", f"{first} {alias}"
        scopes = [Scope.of(source.schema, alias)]
        for name, other, its in others:
            own = arguments if self.chance.random() < 0.7 else self.window_arguments()
            equal = f"window({time}, {own}) = window({its}.{other.time}, {own})"
            if self.maybe(0.15, "interval"):
                equal = self.interval_condition(time, f"{its}.{other.time}")
            rows += f" JOIN {name} {its} ON {alias}.k = {its}.k AND {equal}"
            scopes.append(Scope.of(other.schema, its))
        if not others or self.maybe(0.25, "table"):
            rows += f" JOIN items i ON {alias}.k = i.k"
            scopes.append(Scope.of(ITEMS.schema, "i"))
        if self.maybe(0.15, "where"):
            of = self.chance.choice([*scopes, sum_of(scopes)])
            rows += f" WHERE {predicate(self.chance, of)}"
        of_groups = arguments if self.chance.random() < 0.7 else self.window_arguments()
        window = f"window({time}, {of_groups})"
        shared = (
            len(others) == 1 and "interval" not in self.features and "table" not in self.features
        )
        if shared and self.maybe(0.3, "given window"):
            window = "window"
        keys = [key for scope in scopes if self.chance.random() < 0.5 for key in self.keys(scope)]
        columns = [f"{key} AS g{i}" for i, key in enumerate(keys)]
        calls = ["count(*)"] if self.chance.random() < 0.5 else []
        for scope in scopes:
            if not calls or self.chance.random() < 0.6:
                calls.append(plain_aggregate(self.chance, scope))
        if self.maybe(0.1, "any of several sides"):
            calls.append(aggregate(self.chance, sum_of(scopes), holistic=False)[0])
        if self.maybe(0.3, "two sides"):
            calls.append(two_sided(self.chance, scopes))
        self.features.update("aggregate:" + call.split("(")[0] for call in calls)
        columns += ["window", *(f"{call} AS v{i}" for i, call in enumerate(calls))]
        having = f" HAVING {calls[0]} IS NOT NULL" if self.maybe(0.2, "having") else ""
        groups = ", ".join([*keys, window])
        return f"SELECT {', '.join(columns)} FROM {rows} GROUP BY {groups}{having}"


def plain_aggregate(chance: random.Random, scope: Scope) -> str:
    """An aggregate of a column that every executor knows; now and then any at all."""
    if chance.random() < 0.12:
        return aggregate(chance, scope, holistic=False)[0]
    numbers = [*scope.of_type("bigint"), *scope.of_type("int"), *scope.of_type("double")]
    texts = scope.of_type("string")
    function = chance.choice(("count", "sum", "sum", "avg", "min", "max", "stddev"))
    column = chance.choice([*numbers, *texts] if function in ("count", "min", "max") else numbers)
    if function == "stddev":
        column = chance.choice([*steady_numbers(scope)])
    different = "DISTINCT " if function in ("count", "sum") and chance.random() < 0.25 else ""
    call = f"{function}({different}{column})"
    if chance.random() < 0.15:
        call += f" FILTER (WHERE {chance.choice(numbers)} > {chance.randrange(10)})"
    return call


def steady_numbers(scope: Scope) -> list[str]:
    """Columns of numbers that are finite."""
    return [*scope.of_type("bigint"), *scope.of_type("int"), *scope.steady_doubles]


def two_sided(chance: random.Random, scopes: list[Scope]) -> str:
    """An aggregate over columns of two inputs, or of three."""
    spread = chance.random() < 0.3
    operands = []
    for scope in chance.sample(scopes, min(len(scopes), chance.choice((2, 2, 2, 3)))):
        infinite = [] if spread else scope.of_type("double")
        column = chance.choice([*steady_numbers(scope), *infinite])
        operands.append(f"nullif({column}, 1)" if chance.random() < 0.2 else column)
    if spread and chance.random() < 0.4:
        call = f"covar_pop({operands[0]}, {operands[1]})"
    elif spread:
        joined = f" {chance.choice('*+-')} ".join(operands)
        call = f"{chance.choice(('stddev', 'var_pop'))}({joined})"
    else:
        if chance.random() < 0.4:
            operands = [f"CAST({operand} AS DOUBLE)" for operand in operands]
        joined = f" {chance.choice('**+-')} ".join(operands)
        call = f"{chance.choice(('sum', 'sum', 'sum', 'avg', 'count', 'max'))}({joined})"
    if chance.random() < 0.2:
        column = chance.choice([n for scope in scopes for n in scope.of_type("bigint", "int")])
        call += f" FILTER (WHERE {column} > {chance.randrange(10)})"
    return call


def sum_of(scopes: list[Scope]) -> Scope:
    """All columns of several scopes."""
    return reduce(lambda one, other: one + other, scopes)


_FORMS: Mapping[str, Callable[[_Writer], str]] = {name: getattr(_Writer, name) for name in WEIGHTS}


def integer_total(chance: random.Random, scope: Scope) -> str:
    return f"sum({integer(chance, scope, 1)})"


def _different(arguments: Mapping[str, None]) -> list[str]:
    """One spelling per window set: '5 seconds' and '5 seconds, 5 seconds' are the same."""
    seen: dict[tuple[str, ...], str] = {}
    for text_ in arguments:
        parts = text_.split(", ")
        length, slide = parts[0], parts[1] if len(parts) > 1 else parts[0]
        seen.setdefault((length, slide), text_)
    return list(seen.values())


def _shifted(column: str, seconds: int) -> str:
    if seconds == 0:
        return column
    return f"{column} {'-' if seconds < 0 else '+'} INTERVAL {abs(seconds)} SECONDS"
