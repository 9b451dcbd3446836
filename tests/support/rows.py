"""Random rows for any schema, from the values that random plans use, so that they find matches."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from headrace.plan.nodes import Node, Project, Source, Table
from headrace.plan.substitute import identity
from headrace.plan.types import DataType, Schema
from tests.support.plans import DOUBLES, INTEGERS, STRINGS

START = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
#: Two minutes: several of the generator's windows, and sessions both long and short.
SPAN_MILLISECONDS = 120_000


def random_value(kind: DataType, random_source: random.Random) -> Any:
    """A value of this type; NULL about once in ten."""
    if random_source.random() < 0.1:
        return None
    if kind.is_integer:
        return random_source.choice(INTEGERS)
    if kind.is_fractional:
        return random_source.choice(DOUBLES)
    if kind.is_decimal:
        return Decimal(random_source.choice(INTEGERS))
    match kind.name:
        case "string":
            return random_source.choice(STRINGS)
        case "boolean":
            return random_source.random() < 0.5
        case "timestamp":
            moment = random_source.randrange(SPAN_MILLISECONDS)
            # Whole seconds often, so that rows lie on the edges of windows.
            moment -= moment % 1_000 if random_source.random() < 0.7 else 0
            return START + datetime.timedelta(milliseconds=moment)
        case "date":
            return START.date() + datetime.timedelta(days=random_source.randrange(-3, 4))
        case "binary":
            return random_source.randbytes(2)
        case _:
            raise NotImplementedError(f"no random values of type {kind}")


def random_rows(schema: Schema, count: int, random_source: random.Random) -> list[dict[str, Any]]:
    return [
        {field.name: random_value(field.type, random_source) for field in schema}
        for _ in range(count)
    ]


def random_tables(
    leaves: Iterable[Source | Table], count: int, random_source: random.Random
) -> dict[str, list[dict[str, Any]]]:
    """Rows for each stream and table, by name."""
    tables = {}
    for leaf in leaves:
        tables[leaf_name(leaf)] = random_rows(leaf.schema, count, random_source)
    return tables


def reading_all_columns(plan: Node, leaves: Iterable[Source | Table]) -> Node:
    """The same plan with each leaf read in full and narrowed above it.

    Two plans that differ in the columns they read can then run over the same tables.
    """
    full = {(type(leaf), leaf_name(leaf)): leaf for leaf in leaves}

    def widened(node: Node) -> Node:
        if not isinstance(node, Source | Table):
            return node
        columns = full[type(node), leaf_name(node)].columns
        if columns == node.columns:
            return node
        return Project(replace(node, columns=columns), identity(node.columns))

    return plan.transform(widened)


def leaf_name(leaf: Source | Table) -> str:
    return leaf.stream if isinstance(leaf, Source) else leaf.table


def leaves_of(plan: Node) -> list[Source | Table]:
    """Every leaf of a plan, each once."""
    return list(dict.fromkeys(n for n in plan.walk() if isinstance(n, Source | Table)))
