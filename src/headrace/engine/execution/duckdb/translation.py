"""A write in DuckDB's terms, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.definitions.definition import Sql
from headrace.engine.checkpoint.files import is_local
from headrace.engine.execution.duckdb.meanings import duckdb_type
from headrace.engine.execution.duckdb.probe_specs import ProbedPlan, cuts_of, plan_probed
from headrace.engine.execution.duckdb.render import duckdb_expression, duckdb_query, identifier
from headrace.engine.execution.duckdb.splits import Cut, cuts
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.operators.inputs import BatchInput, Input, Inputs, ProbedInput
from headrace.operators.write import Write
from headrace.plan.types import Schema

#: Files of a first batch that a store is asked about, a request each; more are much work anyway.
_MOST_ASKED = 64


@dataclass(frozen=True)
class Translated:
    """A write as text for DuckDB, its inputs, and the ways in which it can be cut into parts.

    ``kept`` is the condition of the rows that are written; ``rows`` is how many are read and made,
    if that is known. ``probed`` are those of the inputs that are joins to be probed.
    """

    write: Write
    sql: str
    watch: str
    kept: str
    inner: Mapping[str, str] | None
    inputs: Mapping[str, Input]
    cuts: list[Cut]
    rows: int | None
    probed: Mapping[str, ProbedPlan] = field(default_factory=dict)


def translate(write: Write, bound: Inputs, size_of: Callable[[str], int]) -> Translated:
    """The write for DuckDB; raises ``Untranslatable`` where something in it is Spark's alone."""
    queries = [write.query] if write.inner is None else [write.query, write.inner.query]
    inputs = bound.of(*queries)
    _check_tables(write, queries, inputs)
    for source in inputs.values():
        if isinstance(source, BatchInput) and source.batch.files is None:
            stream = source.batch.source.shown
            raise Untranslatable(f"the stream {stream}, whose rows come through Spark")
        _check_columns(source.schema)
    _check_columns(write.schema)
    probed = {
        name: plan_probed(source)
        for name, source in inputs.items()
        if isinstance(source, ProbedInput)
    }

    def lookup(name: str) -> exp.Query | Schema | list[Cut]:
        if write.inner is not None and name == write.inner.name:
            return write.inner.query
        if name in probed:
            return cuts_of(name, probed[name].join)
        return inputs[name].schema

    return Translated(
        write,
        _typed(duckdb_query(write.query), write.schema),
        _listed(write.watch),
        "true" if write.keep is None else duckdb_expression(write.keep.condition),
        _inner(write),
        inputs,
        cuts(write.query, lookup, write.partial),
        _rows(bound, inputs, queries, size_of),
        probed,
    )


def _check_tables(write: Write, queries: list[exp.Query], inputs: Mapping[str, Input]) -> None:
    inner = None if write.inner is None else write.inner.name
    for query in queries:
        for table in query.find_all(exp.Table):
            if table.name not in inputs and table.name != inner:
                raise Untranslatable(f"the table {table.name.removeprefix('headrace_table_')}")


def _check_columns(schema: Schema) -> None:
    folded = [name.casefold() for name in schema.names]
    if len(set(folded)) < len(folded):
        raise Untranslatable("columns whose names differ in case only")
    for column in schema:
        duckdb_type(column.type)


def _inner(write: Write) -> Mapping[str, str] | None:
    inner = write.inner
    if inner is None:
        return None
    return {"name": inner.name, "sql": duckdb_query(inner.query), "watch": _listed(inner.watch)}


def _typed(sql: str, schema: Schema) -> str:
    """The definition with its columns in the types of the schema; others go along for watching."""
    typed = ", ".join(
        f"CAST({identifier(f.name)} AS {duckdb_type(f.type)}) AS {identifier(f.name)}"
        for f in schema
    )
    return f"SELECT * REPLACE ({typed}) FROM ({sql})"


def _listed(watch: Mapping[str, Sql]) -> str:
    return ", ".join(
        f"{duckdb_expression(value)} AS {identifier(name)}" for name, value in watch.items()
    )


def _rows(
    bound: Inputs,
    inputs: Mapping[str, Input],
    queries: list[exp.Query],
    size_of: Callable[[str], int],
) -> int | None:
    rows = bound.rows(*queries)
    if rows is not None:
        return rows
    # The first batch of a stream: so many bytes are a row, or less.
    paths = [path for source in inputs.values() for path in source.paths]
    if sum(not is_local(path) for path in paths) > _MOST_ASKED:
        return None
    return sum(map(size_of, paths)) // 16
