"""States of moments in DuckDB: merged all at once, around the mean that they have in common.

``definitions.moments`` says what is in them, and merges them one by one for Spark. DuckDB reduces
a list at several times the cost of one that is summed up.
"""

from __future__ import annotations

from collections.abc import Sequence


def merged_moments(arguments: Sequence[str]) -> str:
    (state,) = arguments
    d = f"(s.mean - {_mean(state, 'mean')})"
    return _struct(state, {"mean": _mean(state, "mean"), "m2": f"s.m2 + s.n * {d} * {d}"})


def merged_pairs(arguments: Sequence[str]) -> str:
    (state,) = arguments
    dx, dy = (f"(s.{side} - {_mean(state, side)})" for side in "xy")
    return _struct(
        state,
        {
            "x": _mean(state, "x"),
            "y": _mean(state, "y"),
            "c": f"s.c + s.n * {dx} * {dy}",
            "xx": f"s.xx + s.n * {dx} * {dx}",
            "yy": f"s.yy + s.n * {dy} * {dy}",
        },
    )


def correlation(arguments: Sequence[str]) -> str:
    """What divides by zero fails, and Spark is asked to say how."""
    (s,) = arguments
    root = f"sqrt({s}.xx * {s}.yy)"
    nothing = "CAST(error('division by zero') AS DOUBLE)"
    return f"CASE WHEN {s}.n <= 1 THEN NULL WHEN {root} = 0 THEN {nothing} ELSE {s}.c / {root} END"


def _struct(state: str, parts: dict[str, str]) -> str:
    """Parts that read ``s`` are summed over all states that are not empty."""
    listed = f"list({state}) FILTER (WHERE {state}.n > 0)"
    fields = [f"n := CAST(coalesce(sum({state}.n), 0) AS BIGINT)"]
    for name, text in parts.items():
        value = f"list_sum(list_transform({listed}, lambda s: {text}))" if "s." in text else text
        fields.append(f"{name} := coalesce({value}, CAST(0 AS DOUBLE))")
    return f"struct_pack({', '.join(fields)})"


def _mean(state: str, name: str) -> str:
    """The mean of all values; a state without any has a mean of 0, and counts nothing."""
    return f"(sum({state}.n * {state}.{name}) / nullif(sum({state}.n), 0))"
