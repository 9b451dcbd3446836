"""Rows of earlier epochs and of this one, told apart where only changes come out."""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import Definition, named, select, union_all

#: Whether a row came with this epoch; over a group, whether any of its rows did.
NEW = "__new"


def old_and_new(old: Definition | None, new: Definition | None, mark: bool) -> exp.Query | None:
    """Both together, with a flag that tells which is which if ``mark`` says so."""
    parts = [(rows, flag) for rows, flag in ((old, False), (new, True)) if rows is not None]
    if not parts:
        return None
    if not mark:
        return union_all([rows.query for rows, _ in parts])
    return union_all(
        [
            select(rows.query, None).select(named(exp.convert(flag), NEW), copy=False)
            for rows, flag in parts
        ]
    )
