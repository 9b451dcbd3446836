"""Our types are Spark's: for every function, and every operator on every pair of types."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from headrace.engine.introspection.check import ask_function, is_deterministic
from headrace.errors import HeadraceError, SqlError
from headrace.plan.expressions import AggregateCall
from headrace.plan.nodes import Aggregate, Project
from headrace.plan.text import expression_text
from headrace.plan.types import INT, DataType
from headrace.sql import AskedFunction, plan_query
from headrace.sql import functions_table as table
from tests.sql.catalog import CATALOG, TYPED
from tests.support.seeds import Seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Columns to try for the first argument of each kind; the others take the first of theirs.
SAMPLES = {
    "n": ["i", "l", "d", "f", "dec", "s", "y"],
    "v": ["i", "dec"],
    "i": ["i"],
    "s": ["s", "i"],
    "z": ["s"],
    "b": ["b"],
    "t": ["ts", "dt"],
    "a": ["arr"],
    "m": ["m"],
    "o": ["i", "s", "dec", "ts"],
    "x": ["i", "s", "dec", "ts"],
}

# Where the kinds of arguments do not say enough: units, formats, constants.
EXAMPLES: dict[str, list[str]] = {
    "round": ["round(d)", "round(dec)", "round(dec, 1)", "round(i, 1)", "round(dec, -1)"],
    "bround": ["bround(d)", "bround(dec, 1)"],
    "nanvl": ["nanvl(d, d)"],
    "isnan": ["isnan(d)"],
    "ceil": ["ceil(i)", "ceil(d)", "ceil(dec)", "ceil(cast(i as decimal(5, 0)))"],
    "elt": ["elt(i, s, s)"],
    "substring": ["substring(s, i)", "substring(s, i, i)", "substring(bin, 1, 2)"],
    "reverse": ["reverse(s)", "reverse(arr)"],
    "concat": ["concat(s, i)", "concat(arr, arr)", "concat(bin, bin)", "concat(s)"],
    "replace": ["replace(s, s)", "replace(s, s, s)"],
    "to_char": ["to_char(dec, '999')"],
    "to_varchar": ["to_varchar(dec, '999')"],
    "trunc": ["trunc(dt, 'MM')"],
    "date_trunc": ["date_trunc('hour', ts)"],
    "next_day": ["next_day(dt, 'MO')"],
    "from_unixtime": ["from_unixtime(l)", "from_unixtime(l, 'yyyy')"],
    "unix_timestamp": ["unix_timestamp(ts)"],
    "unix_date": ["unix_date(dt)"],
    "unix_seconds": ["unix_seconds(ts)"],
    "unix_millis": ["unix_millis(ts)"],
    "unix_micros": ["unix_micros(ts)"],
    "hour": ["hour(ts)"],
    "minute": ["minute(ts)"],
    "second": ["second(ts)"],
    "dayname": ["dayname(dt)"],
    "monthname": ["monthname(dt)"],
    "timestamp_millis": ["timestamp_millis(l)"],
    "timestamp_micros": ["timestamp_micros(l)"],
    "timestamp_seconds": ["timestamp_seconds(l)", "timestamp_seconds(d)"],
    "make_timestamp": ["make_timestamp(i, i, i, i, i, dec)"],
    "window_time": [],
    "size": ["size(arr)", "size(m)"],
    "cardinality": ["cardinality(arr)", "cardinality(m)"],
    "array_size": ["array_size(arr)"],
    "array": ["array(i, l)", "array(s)", "array()"],
    "array_contains": ["array_contains(arr, i)"],
    "array_position": ["array_position(arr, i)"],
    "array_append": ["array_append(arr, i)"],
    "array_prepend": ["array_prepend(arr, i)"],
    "array_remove": ["array_remove(arr, i)"],
    "array_join": ["array_join(split(s, ','), ',')"],
    "sort_array": ["sort_array(arr)", "sort_array(arr, false)"],
    "element_at": ["element_at(arr, i)", "element_at(m, s)"],
    "try_element_at": ["try_element_at(arr, i)", "try_element_at(m, s)"],
    "get": ["get(arr, i)"],
    "flatten": ["flatten(array(arr, arr))"],
    "map": ["map(s, i)"],
    "map_contains_key": ["map_contains_key(m, s)"],
    "boolean": ["boolean(i)", "boolean(s)"],
    "tinyint": ["tinyint(i)"],
    "smallint": ["smallint(i)"],
    "int": ["int(d)", "int(s)"],
    "bigint": ["bigint(i)"],
    "float": ["float(i)"],
    "double": ["double(i)"],
    "string": ["string(i)", "string(ts)"],
    "binary": ["binary(s)"],
    "date": ["date(ts)", "date(s)"],
    "timestamp": ["timestamp(s)", "timestamp(dt)"],
    "nullifzero": ["nullifzero(i)"],
    "nullif": ["nullif(i, l)", "nullif(s, s)"],
    "if": ["if(b, i, l)", "if(b, s, s)", "if(b, null, dec)"],
    "nvl2": ["nvl2(i, l, d)"],
    "months_between": ["months_between(ts, dt)", "months_between(ts, ts, true)"],
    "percentile": ["percentile(i, 0.5)", "percentile(d, array(0.1, 0.9))"],
    "percentile_approx": [
        "percentile_approx(i, 0.5)",
        "percentile_approx(d, array(0.1, 0.9), 100)",
    ],
    "sum": ["sum(y)", "sum(i)", "sum(l)", "sum(f)", "sum(d)", "sum(dec)", "sum(big)", "sum(s)"],
    "avg": ["avg(i)", "avg(l)", "avg(f)", "avg(d)", "avg(dec)", "avg(big)", "avg(s)"],
    "approx_count_distinct": ["approx_count_distinct(s)", "approx_count_distinct(i, 0.1)"],
    "count": ["count(*)", "count(i)", "count(distinct i, s)"],
    "bit_and": ["bit_and(i)", "bit_and(l)"],
    "bit_or": ["bit_or(i)"],
    "bit_xor": ["bit_xor(y)"],
    "overlay": ["overlay(s, s, i)", "overlay(s placing s from 1 for 2)"],
    "locate": ["locate(s, s)", "locate(s, s, 1)", "position(s in s)"],
    "date_add": ["date_add(dt, i)", "date_add(ts, 1)"],
    "regexp_replace": ["regexp_replace(s, 'a', 'b')"],
    "encode": ["encode(s, 'utf-8')"],
    "sha2": ["sha2(s, 256)"],
    "conv": ["conv(s, 10, 16)"],
    "split_part": ["split_part(s, ',', 1)"],
    "format_number": ["format_number(d, 2)"],
    "pmod": ["pmod(i, l)", "pmod(dec, i)"],
    "mod": ["mod(i, l)", "mod(d, i)"],
    "try_divide": ["try_divide(i, l)", "try_divide(dec, dec)"],
    "width_bucket": ["width_bucket(d, d, d, i)"],
}

OTHER_EXPRESSIONS = [
    "extract(year FROM ts)",
    "extract(second FROM ts)",
    "date_part('minute', ts)",
    "trim(both 'x' FROM s)",
    "trim(leading 'x' FROM s)",
    "trim('x', s)",
    "trim(s)",
    "substring(s FROM 1 FOR 2)",
    "CASE WHEN b THEN i ELSE l END",
    "CASE i WHEN 1 THEN 'a' END",
    "CAST(s AS DECIMAL(12, 3))",
    "CAST(i AS DECIMAL)",
    "TRY_CAST(s AS INT)",
    "s::date",
    "CAST(arr AS ARRAY<BIGINT>)",
    "i IN (1, 2L)",
    "s LIKE 'a%'",
    "NOT s RLIKE 'a'",
    "i IS NOT NULL",
    "b IS TRUE",
    "i IS DISTINCT FROM l",
    "arr[0]",
    "m['k']",
    "st.y",
    "struct(i, s AS t)",
    "named_struct('a', i)",
    "ts + INTERVAL 5 MINUTES",
    "ts - INTERVAL '1 hour 5 minutes'",
    "INTERVAL 1 DAY + ts",
    "dt + INTERVAL 1 DAY",
    "dt + INTERVAL 1 HOUR",
    "dt + INTERVAL 1 MONTH",
    "ts - ts",
    "dt - dt",
    "dt + 1",
    "1 + 2.5",
    "dec * 2",
    "dec + 10",
    "dec / 3",
    "i / 2",
    "1e3 + i",
    "5L + i",
    "0.05 * dec",
    "12345678901",
    "DATE '2024-01-01'",
    "TIMESTAMP '2024-01-01 00:00:00'",
    "'it''s'",
    "X'1F'",
    "NULL",
    "-i",
    "- dec",
    "~i",
    "i << 2",
    "s || i",
    "i BETWEEN 1 AND l",
    "coalesce(NULL, dec, i)",
    "greatest(i, dec, d)",
]


def _examples() -> list[tuple[str, str]]:
    examples = []
    for name, function in {**table.SCALARS, **table.AGGREGATES}.items():
        if name in EXAMPLES:
            examples += [(name, text) for text in EXAMPLES[name]]
            continue
        letters = function.signature.rstrip("*").replace("?", "")[: max(function.required, 0)]
        if not letters:
            examples.append((name, f"{name}()"))
            continue
        for first in SAMPLES[letters[0]]:
            rest = [first if x == letters[0] else SAMPLES[x][0] for x in letters[1:]]
            examples.append((name, f"{name}({', '.join([first, *rest])})"))
    for synonym, canonical in table.AGGREGATE_SYNONYMS.items():
        if canonical not in EXAMPLES:
            column = "b" if canonical.startswith("bool") else "i"
            examples.append((synonym, f"{synonym}({column})"))
    return examples


def _spark_types(spark: SparkSession, expressions: list[str]) -> list[str]:
    columns = ", ".join(f"({text}) AS c{index}" for index, text in enumerate(expressions))
    return [f.dataType.simpleString() for f in spark.sql(f"SELECT {columns} FROM typed").schema]


def _spark_type(spark: SparkSession, expression: str) -> str | None:
    try:
        return _spark_types(spark, [expression])[0]
    except Exception:  # Spark's analysis errors are many; all of them mean a refusal
        return None


def _our_type(expression: str, *, aggregate: bool) -> tuple[str, str]:
    """Our type, and the expression as the plan prints it."""
    group = " GROUP BY window(ts, '1 hour')" if aggregate else ""
    plan = plan_query(f"SELECT {expression} AS x FROM typed{group}", CATALOG).plan
    assert isinstance(plan, Project)
    expr = plan.columns[0].expr
    if aggregate:
        assert isinstance(plan.input, Aggregate)
        expr = plan.input.aggregates[0].expr
        assert isinstance(expr, AggregateCall)
    return expr.type.name, expression_text(expr)


@pytest.fixture(scope="module")
def typed(spark: SparkSession) -> SparkSession:
    columns = ", ".join(f"CAST(NULL AS {f.type}) AS {f.name}" for f in TYPED.schema)
    spark.sql(f"SELECT {columns}").createOrReplaceTempView("typed")
    return spark


def test_every_function_has_the_type_that_spark_gives_it(typed: SparkSession) -> None:
    wrong = []
    scalars = [text for name, text in _examples() if name in table.SCALARS]
    others = [text for name, text in _examples() if name not in table.SCALARS]
    for group, aggregate in ((scalars + OTHER_EXPRESSIONS, False), (others, True)):
        ours = [_our_type_or_refusal(text, aggregate=aggregate) for text in group]
        theirs = _spark_types_or_each(typed, group)
        printed = _spark_types_or_each(typed, [text for _, text in ours])
        for text, (kind, shown), spark_kind, again in zip(
            group, ours, theirs, printed, strict=True
        ):
            if not _same(kind, spark_kind) or not _same(kind, again):
                wrong.append(f"{text}: we say {kind}, Spark {spark_kind}; {shown} is {again}")
    assert not wrong, "\n".join(wrong)
    assert len(scalars) > 200
    assert len(others) > 40


def test_every_function_is_the_same_at_each_run(typed: SparkSession) -> None:
    """What Spark itself calls deterministic, and nothing that it reads from its surroundings."""
    scalars = [text for name, text in _examples() if name in table.SCALARS] + OTHER_EXPRESSIONS
    aggregates = [text for name, text in _examples() if name not in table.SCALARS]
    for examples in (scalars, aggregates):
        columns = ", ".join(f"({text}) AS c{index}" for index, text in enumerate(examples))
        frame = typed.sql(f"SELECT {columns} FROM typed")
        found = frame._jdf.queryExecution().analyzed().expressions()
        assert found.size() == len(examples)
        moving = [text for i, text in enumerate(examples) if not is_deterministic(found.apply(i))]
        assert not moving


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, ()) for name in ("rand", "uuid", "now", "current_date", "current_path")),
        *((name, ()) for name in ("monotonically_increasing_id", "input_file_name")),
        ("shuffle", (DataType("array<int>"),)),
        ("randstr", (INT,)),
        ("unix_timestamp", ()),
    ],
)
def test_functions_that_move_are_known_by_spark(
    typed: SparkSession, name: str, arguments: tuple[DataType, ...]
) -> None:
    """So that a function that our table has never heard of is refused as these are."""
    asked = ask_function(typed, name, arguments)
    if name == "randstr":
        # Its length must be a constant, and we ask with NULL.
        assert asked is None or not asked.deterministic
        return
    assert asked is not None
    assert not asked.deterministic


def test_an_unknown_function_that_moves_is_refused(typed: SparkSession) -> None:
    def ask(name: str, arguments: tuple[DataType, ...]) -> AskedFunction | None:
        return AskedFunction(INT, deterministic=False)

    with pytest.raises(SqlError, match=r"NONDETERMINISTIC: later\(\).*line 1, column 8"):
        plan_query("SELECT later(i) AS x FROM typed", CATALOG, ask)


def _our_type_or_refusal(text: str, *, aggregate: bool) -> tuple[str | None, str]:
    try:
        return _our_type(text, aggregate=aggregate)
    except HeadraceError:
        return None, text


def _spark_types_or_each(spark: SparkSession, expressions: list[str]) -> list[str | None]:
    """All at once, or one by one where that fails, so that the failing ones are named."""
    try:
        return list(_spark_types(spark, expressions))
    except Exception:
        return [_spark_type(spark, text) for text in expressions]


def _same(ours: str | None, theirs: str | None) -> bool:
    # The plan has two kinds of intervals; Spark also says from which to which unit.
    if ours is not None and theirs is not None and theirs.startswith("interval"):
        return ours.startswith("interval") and ("month" in ours) == ("month" in theirs)
    return ours == theirs


@pytest.mark.parametrize("share", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%", "div", "=", "||", "&"])
def test_operators_on_every_pair_of_types(
    typed: SparkSession, operator: str, share: int, seeds: Seeds
) -> None:
    """Spark has to be asked one by one about what we refuse: about some of it, others every day."""
    accepted: list[tuple[str, str]] = []
    refused: list[str] = []
    for left, right in product(TYPED.schema.names, repeat=2):
        text = f"{left} {operator} {right}"
        try:
            accepted.append((text, _our_type(text, aggregate=False)[0]))
        except HeadraceError:
            refused.append(text)
    theirs = _spark_types_or_each(typed, [text for text, _ in accepted])
    wrong = [
        f"{text}: we say {ours}, Spark {spark_kind}"
        for (text, ours), spark_kind in zip(accepted, theirs, strict=True)
        if not _same(ours, spark_kind)
    ]
    wrong += [
        f"{text}: we refuse it"
        for text in seeds.every(share, refused)
        if _spark_type(typed, text) is not None
    ]
    assert not wrong, "\n".join(wrong)
