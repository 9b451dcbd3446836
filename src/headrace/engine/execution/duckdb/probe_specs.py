"""A multi-way join in the terms of its kernel: what a part of it reads, looks up and checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from headrace.definitions.definition import sql_of
from headrace.definitions.join_shape import key_condition
from headrace.engine.checkpoint.files import plain_path
from headrace.engine.execution.duckdb.local_index import DIES, KEY
from headrace.engine.execution.duckdb.meanings import duckdb_type, same_kind
from headrace.engine.execution.duckdb.parts import files_of_part, row_condition
from headrace.engine.execution.duckdb.render import duckdb_expression, duckdb_query, identifier
from headrace.engine.execution.duckdb.splits import Cut
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.operators.inputs import STORED, ProbedInput, ProbedLeaf
from headrace.plan.expressions import Column, Expr
from headrace.plan.types import Schema
from headrace.state.arrangement import Split

#: Keys of these kinds are whole numbers, or become some without loss: equal if these are.
_EXACT = {
    "BIGINT": "CAST({} AS BIGINT)",
    "BOOLEAN": "CAST({} AS BIGINT)",
    "DATE": "({} - DATE '1970-01-01')",
    "TIMESTAMP WITH TIME ZONE": "epoch_us({})",
}
#: Rows of an outer join without a partner may have no time by which they expire.
_NEVER = 2**63 - 1


@dataclass(frozen=True)
class ProbedPlan:
    """What all parts of a join have in common."""

    join: ProbedInput
    leaves: Sequence[Mapping[str, Any]]
    conditions: Sequence[Mapping[str, Any]]
    #: Equalities of keys that are looked up by a hash that other keys may have as well, and the
    #: columns that they need.
    verified: str
    verified_columns: frozenset[str]

    def part(self, part: int, parts: int, columns: Iterable[str], hashing: str) -> dict[str, Any]:
        """The work of one part; ``columns`` are those of the results that somebody reads."""
        join = self.join
        read = {*columns, *self.verified_columns}
        return {
            "run": join.run,
            "epoch": join.epoch,
            "inputs": [
                {**self.leaves[i], **_files(leaf, join.cut_by, part, parts, hashing)}
                | {"shelf": f"{self.leaves[i]['shelf']}-{join.cut_by}-{part}-{parts}"}
                for i, leaf in enumerate(join.leaves)
            ],
            "orders": {driver: list(order) for driver, order in join.orders.items()},
            "conditions": self.conditions,
            "verified": self.verified,
            "types": {f.name: duckdb_type(f.type) for f in join.schema if f.name in read},
        }


def plan_probed(join: ProbedInput) -> ProbedPlan:
    """The join for the kernel; raises ``Untranslatable`` where something in it is Spark's alone."""
    verified: list[exp.Expr] = []
    kinds: dict[int, str] = {}
    first: dict[int, Expr] = {}
    for leaf in join.leaves:
        for position, (key, _) in leaf.keys.items():
            kind = same_kind(key.type)
            if kind in ("FLOAT", "DOUBLE"):
                raise Untranslatable("fractions as keys of a join")
            if kinds.setdefault(position, kind) != kind:
                raise Untranslatable(f"keys of the types {kind} and {kinds[position]}")
            before = first.setdefault(position, key)
            if before is not key and kind not in _EXACT:
                verified.append(key_condition(before, key))
    return ProbedPlan(
        join,
        [_leaf(join, index, kinds) for index in range(len(join.leaves))],
        [_condition(join, condition) for condition in join.conditions],
        " AND ".join(map(duckdb_expression, verified)),
        frozenset(c.name for equality in verified for c in equality.find_all(exp.Column)),
    )


def cuts_of(name: str, join: ProbedInput) -> list[Cut]:
    """In which ways the results can be cut: in any, and by the key by which the work is."""
    cuts = [Cut(((name, None),))]
    if join.cut_by is not None:
        keys = [leaf.keys[join.cut_by][0] for leaf in join.leaves if join.cut_by in leaf.keys]
        shown = frozenset(key.name for key in keys if isinstance(key, Column))
        if shown:
            column = min(shown)
            cuts.append(Cut(((name, column),), shown, same_kind(join.schema[column].type)))
    return cuts


def read_columns(query: exp.Query, schema: Schema) -> list[str]:
    """The columns of a join's results that a definition reads, or all where it does not say."""
    if _shows_all(query):
        return list(schema.names)
    named = {column.name for column in query.find_all(exp.Column)}
    read = [name for name in schema.names if name in named]
    # Rows of no columns could not be counted.
    return read or list(schema.names[:1])


def _shows_all(query: exp.Expr) -> bool:
    while isinstance(query, exp.Subquery):
        query = query.this
    if isinstance(query, exp.Union):
        return _shows_all(query.this) or _shows_all(query.expression)
    return any(isinstance(item, exp.Star) for item in query.expressions)


def _leaf(join: ProbedInput, index: int, kinds: Mapping[int, str]) -> dict[str, Any]:
    leaf = join.leaves[index]
    keys = {
        position: duckdb_expression(sql_of(key)) for position, (key, _) in sorted(leaf.keys.items())
    }
    columns = [f"{identifier(name)}" for name in leaf.schema.names]
    columns += [
        f"{_EXACT.get(kinds[p], 'hash({})').format(key)} AS {KEY}{p}" for p, key in keys.items()
    ]
    if leaf.lives:
        columns.append(f"{_last_instant(leaf)} AS {DIES}")
    is_keyed = " AND ".join(f"{key} IS NOT NULL" for key in keys.values())
    sql = f"SELECT {', '.join(columns)} FROM ({duckdb_query(leaf.rows)}) WHERE {is_keyed}"
    paths = _paths(join, index)
    for field in leaf.old.schema:
        duckdb_type(field.type)
    # An index forgets rows by its join's watermark: a join with other streams has another index.
    identity = repr((leaf.store, sql, paths, sorted(leaf.clocks) if leaf.lives else None))
    return {
        "sql": sql,
        "stored": STORED,
        "classes": list(keys),
        "paths": paths,
        "columns": list(leaf.schema.names),
        "watermark": leaf.watermark * 1_000 if leaf.lives and leaf.watermark is not None else None,
        "shelf": hashlib.sha256(identity.encode()).hexdigest()[:16],
    }


def _last_instant(leaf: ProbedLeaf) -> str:
    """The last watermark (µs) at which a row is alive: that of the first of its times to die."""
    ends = [f"epoch_us({identifier(name)}) + {ttl * 1_000}" for name, ttl in leaf.lives.items()]
    return f"coalesce(least({', '.join(ends)}), {_NEVER})"


def _paths(join: ProbedInput, index: int) -> list[list[int]]:
    """The sets of keys by which another input may look this one up."""
    ours = join.leaves[index].keys.keys()
    paths = {
        tuple(sorted(ours & other.keys.keys()))
        for position, other in enumerate(join.leaves)
        if position != index
    }
    return [list(path) for path in sorted(paths) if path]


def _condition(join: ProbedInput, condition: exp.Expr) -> dict[str, Any]:
    names = {column.name for column in condition.find_all(exp.Column)}
    columns = {
        index: [name for name in leaf.schema.names if name in names]
        for index, leaf in enumerate(join.leaves)
    }
    owners = {index: found for index, found in columns.items() if found}
    return {"sql": duckdb_expression(condition), "inputs": list(owners), "columns": owners}


def _files(
    leaf: ProbedLeaf, cut_by: int | None, part: int, parts: int, hashing: str
) -> dict[str, Any]:
    """The files that a part reads of an input; all where nothing tells its rows apart."""
    column = None if cut_by is None or cut_by not in leaf.keys else leaf.keys[cut_by][1]
    if parts == 1 or column is None:
        old, new, where = list(leaf.old.files), list(leaf.new.files), ""
    else:
        wanted = Split(column, parts, part, hashing)
        where = row_condition(wanted, same_kind(leaf.old.schema[column].type))
        old, _ = files_of_part(leaf.old.files, wanted)
        new, _ = files_of_part(leaf.new.files, wanted)
    return {
        "old": [plain_path(file.path) for file in old],
        "spans": [file.epochs for file in old],
        "new": [plain_path(file.path) for file in new],
        "where": where,
        #: Whether every part holds all of its rows.
        "whole": column is None,
        "types": {f.name: duckdb_type(f.type) for f in leaf.old.schema},
    }
