"""The bits by which different keys are counted, as an aggregate that watches rows go by.

Executors hash as they like: the bits of one write are all of one executor, and nothing but their
number is kept. So no query can name this aggregate, and each executor writes it in its own words.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.definitions.definition import Sql, call
from headrace.stats.key_bits import BITS

NAME = "key_bits"
#: Lower bits of a hash say which bit it sets, and those above whether it is looked at.
_PLACES = BITS.bit_length() - 1


def key_bits(columns: Sequence[Sql], share: int) -> Sql:
    """The bits of the different values that columns take together, of one in ``share`` hashes.

    A single column that is NULL takes no value: it joins nothing.
    """
    return call(NAME, exp.Literal.number(share), *columns)


def for_spark(watched: Sql) -> Sql:
    """The same with the bits as Spark makes them."""

    def rendered(node: exp.Expr) -> exp.Expr:
        if not (isinstance(node, exp.Anonymous) and node.name == NAME):
            return node
        share, *columns = (part.sql(dialect="spark") for part in node.expressions)
        hashed = f"xxhash64({', '.join(columns)})"
        chosen = f"pmod(shiftright({hashed}, {_PLACES}), {share}) = 0"
        # Spark watches no aggregate that has a filter.
        place = _where(columns, share, chosen, f"pmod({hashed}, {BITS})")
        return exp.Var(this=f"bitmap_construct_agg({place})")

    return watched.copy().transform(rendered)


def for_duckdb(arguments: Sequence[str]) -> str:
    """The same as DuckDB makes them."""
    share, *columns = arguments
    hashed = f"hash({', '.join(columns)})"
    chosen = f"(({hashed} >> {_PLACES}) & {int(share) - 1}) = 0"
    place = _where(columns, share, chosen, f"CAST({hashed} & {BITS - 1} AS INTEGER)")
    return f"CAST(bitstring_agg({place}, 0, {BITS - 1}) AS BLOB)"


def _where(columns: Sequence[str], share: str, chosen: str, place: str) -> str:
    """The place of a key that there is, and that is looked at."""
    conditions = [f"{columns[0]} IS NOT NULL"] if len(columns) == 1 else []
    conditions += [chosen] if share != "1" else []
    return f"CASE WHEN {' AND '.join(conditions)} THEN {place} END" if conditions else place
