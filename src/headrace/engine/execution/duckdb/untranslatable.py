"""What has no proven equal in DuckDB, and what has one for some values alone."""

from __future__ import annotations

from sqlglot import exp

#: What DuckDB says where it fails so that Spark is asked.
NOT_HERE = "Spark alone knows"


class Untranslatable(Exception):
    """Something without a proven equal in DuckDB."""


def where_proven(proven: str, text: str) -> str:
    """A translation that means the same for the values of which ``proven`` is true, or NULL.

    For any other DuckDB fails, and Spark computes what was asked.
    """
    return f"CASE WHEN coalesce({proven}, true) THEN {text} ELSE error('{NOT_HERE}') END"


def constant_text(node: exp.Expr, what: str) -> str:
    """The text of an argument that must be a constant."""
    value = node.unnest()
    if isinstance(value, exp.Literal) and value.is_string:
        return str(value.this)
    raise Untranslatable(f"{what} that is no constant")


def constant_number(node: exp.Expr, what: str) -> int:
    """The whole number that an argument must be."""
    value = node.unnest()
    if isinstance(value, exp.Cast):
        value = value.this.unnest()
    negative = isinstance(value, exp.Neg)
    if negative:
        value = value.this.unnest()
    if isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdecimal():
        return -int(value.this) if negative else int(value.this)
    raise Untranslatable(f"{what} that is no constant")
