"""Counting different values approximately, in a state of constant size.

A HyperLogLog sketch: of 2^p registers each value hits one, which its hash says, and a register
holds the longest run of zero bits that any of its values' hashes had. A value that comes again
changes nothing, and sketches are merged by the greater registers: however rows are cut into epochs,
panes and parts, and before a join or after it, the answer is the same to the last digit. Registers
that were never hit are not stored, so that a sketch of few values is small.

Both executors compute the same hash (the first 60 bits of an MD5, of a text that both write alike)
and the same sum in the same order. The estimator is Ertl's *improved raw estimator*, which needs no
table of corrections and no other formula for small numbers (O. Ertl, New cardinality estimation
algorithms for HyperLogLog sketches, 2017).
"""

from __future__ import annotations

from math import ceil, log, log2

from sqlglot import exp

from headrace.definitions.definition import Sql, call
from headrace.plan.expressions import AggregateCall, Call, Cast, Expr, Literal
from headrace.plan.types import BIGINT, DOUBLE, STRING, DataType
from headrace.sql.render import to_sqlglot

NAME = "approx_count_distinct"
#: Registers that were hit, as register · 64 + run, in their order.
CELLS = DataType("struct<cells:array<int>>")
_RUN_BITS = 6
_HASH_DIGITS, _HASH_BITS = 15, 60
_STEPS = 24
_ALPHA = 1 / (2 * log(2))


def register_bits(aggregate: AggregateCall) -> int:
    """p: as many registers as Spark's own sketch takes for an error, with 0.05 for none.

    >>> from headrace.plan.expressions import Column
    >>> x, hundredth = Column("x", BIGINT), Literal(0.01, DOUBLE)
    >>> [register_bits(AggregateCall(NAME, some, BIGINT)) for some in ((x,), (x, hundredth))]
    [9, 14]
    """
    error = 0.05
    if len(aggregate.arguments) > 1:
        error_bound = aggregate.arguments[1]
        assert isinstance(error_bound, Literal)
        assert isinstance(error_bound.value, float)
        error = error_bound.value
    return max(4, ceil(2 * log2(1.106 / error)))


# --- states --------------------------------------------------------------------------------------


def state_of_cells(aggregate: AggregateCall) -> Sql:
    """The state of rows, an aggregate over them."""
    text, bits = _text(aggregate), register_bits(aggregate)
    cells = f"collect_set({_spark_cell(_spark(text), bits)})"
    return exp.Var(
        this=_spark_greatest(cells), twin=call("cells_of_rows", text, exp.Literal.number(bits))
    )


def cells_of_row(aggregate: AggregateCall) -> Sql:
    text, bits = _text(aggregate), register_bits(aggregate)
    cell = _spark_cell(_spark(text), bits)
    empty = "CAST(array() AS array<int>)"
    state = f"named_struct('cells', if({_spark(text)} IS NULL, {empty}, array({cell})))"
    return exp.Var(this=state, twin=call("cells_of_row", text, exp.Literal.number(bits)))


def merged_cells(stored: Sql) -> Sql:
    cells = f"flatten(collect_list({_spark(stored)}.cells))"
    return exp.Var(this=_spark_greatest(cells), twin=call("merged_cells", stored.copy()))


def different_values(state: Sql, bits: int) -> Sql:
    """About how many values made a state."""
    cells, registers = f"({_spark(state)}).cells", 1 << bits
    empty = f"({registers} - size({cells})) / {registers}.0D"
    hit = f"aggregate({cells}, 0.0D, (sum, cell) -> sum + 1.0D / shiftleft(1L, cell & 63))"
    sigma = (
        f"aggregate(sequence(1, {_STEPS}), named_struct('x', {empty}, 'y', 1.0D, 'z', {empty}), "
        "(s, i) -> named_struct('x', s.x * s.x, 'y', s.y + s.y, 'z', s.z + s.x * s.x * s.y), "
        "s -> s.z)"
    )
    estimate = f"{_spark_factor(registers)} / ({registers}.0D * {sigma} + {hit})"
    text = f"if(size({cells}) = 0, 0L, CAST(floor({estimate} + 0.5D) AS BIGINT))"
    return exp.Var(this=text, twin=call("values_of_cells", state.copy(), exp.Literal.number(bits)))


def _spark_factor(registers: int) -> str:
    return f"CAST('{_ALPHA * registers * registers!r}' AS DOUBLE)"


def _spark_greatest(cells: str) -> str:
    """The greatest cell of each register, in their order."""
    next_one = f"shiftright(get(s, i + 1), {_RUN_BITS}) <> shiftright(c, {_RUN_BITS})"
    greatest = f"filter(s, (c, i) -> coalesce({next_one}, true))"
    return f"named_struct('cells', transform(array(sort_array({cells})), s -> {greatest})[0])"


def _spark_cell(text: str, bits: int) -> str:
    """Which register a value hits, and one more than the zeros that its hash has above that."""
    hashed = f"CAST(conv(substring(md5({text}), 1, {_HASH_DIGITS}), 16, 10) AS BIGINT)"
    rest = f"shiftright({hashed}, {bits})"
    run = f"least(bit_count(({rest} & (-{rest})) - 1) + 1, {_HASH_BITS - bits + 1})"
    return f"CAST(({hashed} & {(1 << bits) - 1}) * {1 << _RUN_BITS} + {run} AS INT)"


def _spark(sql: Sql) -> str:
    return sql.sql(dialect="spark", normalize_functions=False)


# --- the text of a value -------------------------------------------------------------------------


def _text(aggregate: AggregateCall) -> Sql:
    """A text that is the same for values that are equal; NULL for what does not count."""
    value = aggregate.arguments[0]
    text = _text_of(value)
    if aggregate.filter is not None:
        text = Call("case", (aggregate.filter, text), STRING)
    return to_sqlglot(text)


def _text_of(value: Expr) -> Expr:
    kind = value.type
    if kind == STRING:
        return value
    if kind.name == "timestamp":
        return Cast(Call("unix_micros", (value,), BIGINT), STRING)
    if kind.is_fractional:
        # Zeros are equal, whatever their sign.
        wide = value if kind == DOUBLE else Cast(value, DOUBLE)
        return Cast(Call("+", (wide, Literal(0.0, DOUBLE)), DOUBLE), STRING)
    if kind.is_integer or kind.is_decimal or kind.name in ("boolean", "date"):
        return Cast(value, STRING)
    missing = Call("isnull", (value,), DataType("boolean"))
    hashed = Cast(Call("xxhash64", (value,), BIGINT), STRING)
    return Call("case", (Call("not", (missing,), DataType("boolean")), hashed), STRING)


# --- in DuckDB -----------------------------------------------------------------------------------


def duckdb_cells_of_rows(arguments: list[str]) -> str:
    text, bits = arguments
    cells = f"list(DISTINCT {_duckdb_cell(text, int(bits))}) FILTER (WHERE {text} IS NOT NULL)"
    return _duckdb_greatest(cells)


def duckdb_cells_of_row(arguments: list[str]) -> str:
    text, bits = arguments
    cell = _duckdb_cell(text, int(bits))
    return (
        f"struct_pack(cells := CASE WHEN {text} IS NULL THEN CAST([] AS INTEGER[]) "
        f"ELSE [{cell}] END)"
    )


def duckdb_merged_cells(arguments: list[str]) -> str:
    (state,) = arguments
    cells = f"flatten(list({state}.cells) FILTER (WHERE {state} IS NOT NULL))"
    return _duckdb_greatest(cells)


def duckdb_values_of_cells(arguments: list[str]) -> str:
    state, bits = arguments
    cells, registers = f"({state}).cells", 1 << int(bits)
    empty = f"(({registers} - len({cells})) / CAST({registers} AS DOUBLE))"
    one = "CAST(1 AS DOUBLE)"
    share = f"list_transform({cells}, lambda __c: {one} / (CAST(1 AS BIGINT) << (__c & 63)))"
    hit = f"list_reduce({share}, lambda __s, __c: __s + __c, CAST(0 AS DOUBLE))"
    nothing = f"{{'x': {one}, 'y': {one}, 'z': {one}}}"
    first = f"{{'x': {empty}, 'y': {one}, 'z': {empty}}}"
    steps = f"list_prepend({first}, list_transform(range({_STEPS}), lambda __i: {nothing}))"
    step = "'z': __s.z + __s.x * __s.x * __s.y"
    sigma = (
        f"list_reduce({steps}, lambda __s, __i: "
        f"{{'x': __s.x * __s.x, 'y': __s.y + __s.y, {step}}}).z"
    )
    estimate = f"{_spark_factor(registers)} / (CAST({registers} AS DOUBLE) * ({sigma}) + {hit})"
    counted = f"CAST(floor({estimate} + CAST('0.5' AS DOUBLE)) AS BIGINT)"
    return f"CASE WHEN len({cells}) = 0 THEN CAST(0 AS BIGINT) ELSE {counted} END"


def _duckdb_greatest(cells: str) -> str:
    last = f"__i = len(__s) OR (__s[__i + 1] >> {_RUN_BITS}) <> (__c >> {_RUN_BITS})"
    in_order = f"[list_sort(coalesce({cells}, CAST([] AS INTEGER[])))]"
    greatest = (
        f"list_transform({in_order}, lambda __s: list_filter(__s, lambda __c, __i: {last}))[1]"
    )
    return f"struct_pack(cells := {greatest})"


def _duckdb_cell(text: str, bits: int) -> str:
    hashed = f"CAST('0x' || substr(md5({text}), 1, {_HASH_DIGITS}) AS BIGINT)"
    rest = f"({hashed} >> {bits})"
    run = f"least(bit_count(({rest} & (-{rest})) - 1) + 1, {_HASH_BITS - bits + 1})"
    return f"CAST(({hashed} & {(1 << bits) - 1}) * {1 << _RUN_BITS} + {run} AS INTEGER)"
