"""Conditions of stream-stream joins from which Spark can tell how long to keep rows.

A window condition alone would make Spark hand on the window's watermark, with which the next
operator drops the raw times of pairs that were completed late. So the raw times stay the event
times, bounded beside the window condition by ``b.ts > a.ts - length AND b.ts < a.ts + length``.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions

from headrace.plan.expressions import Column, Expr, conjuncts
from headrace.plan.nodes import WINDOW_COLUMN, IntervalBound, Join, JoinKind, JoinTime, SameWindow
from headrace.plan.windows import Hopping
from headrace.sql.render import spark_sql


def join_condition(node: Join) -> str:
    """Keys, time and residual as Spark SQL over both sides' columns."""
    parts = [f"({spark_sql(left)}) = ({spark_sql(right)})" for left, right in node.keys]
    for time in node.times:
        parts += _time_conditions(time)
    parts += [_residual(node, part) for part in conjuncts(node.residual)]
    if node.kind is JoinKind.FULL:
        # In a full outer join of streams Spark lets NULL keys find each other in the state.
        parts += [f"({spark_sql(left)}) IS NOT NULL" for left, _ in node.keys]
    return " AND ".join(parts) or "true"


def _time_conditions(time: JoinTime) -> list[str]:
    parts: list[str] = []
    match time:
        case IntervalBound(left=left, right=right, lower=lower, upper=upper):
            if lower is not None:
                parts.append(f"{spark_sql(right)} >= {_later(left, lower)}")
            if upper is not None:
                parts.append(f"{spark_sql(right)} <= {_later(left, upper)}")
        case SameWindow(left=left, right=right, window=window):
            if window.overlap == 1:
                # As a key: rows of different windows need not meet at all.
                starts = (_last_start(_micros(side), window) for side in (left, right))
                parts.append(" = ".join(starts))
                if not window.tumbling:
                    # A row between two windows is in none.
                    parts += [_in_a_window(_micros(side), window) for side in (left, right)]
            else:
                parts.append(_share_one(_micros(left), _micros(right), window))
            parts.append(f"{spark_sql(right)} > {_later(left, -window.length)}")
            parts.append(f"{spark_sql(right)} < {_later(left, window.length)}")
    return parts


def _residual(node: Join, predicate: Expr) -> str:
    """A further condition, hidden from Spark's search for time bounds where it misleads it.

    Spark takes a comparison of a column with a constant (``a.price > 0``) for a bound on the age
    of the rows of that side and then never drops any: rows without a partner never come out. On a
    side whose rows are not kept the comparison is pushed below the join, so only kept sides suffer.
    """
    text = f"({spark_sql(predicate)})"
    columns = predicate.columns()
    only_left = node.kind.keeps_left and columns <= set(node.left_schema.names)
    only_right = node.kind.keeps_right and columns <= set(node.right_schema.names)
    # The number of bits of true is one; no rule of Spark's optimizer sees through it.
    return f"bit_count({text}) = 1" if columns and (only_left or only_right) else text


def per_common_window(joined: DataFrame, time: SameWindow) -> DataFrame:
    """Each pair once per window that holds both rows, with that window as a column.

    A row that comes out alone is in no common window: its window is NULL.
    """
    window = time.window
    left, right = _micros(time.left), _micros(time.right)
    last = _last_start(f"least({left}, {right})", window)
    # A window that holds the earlier row begins at `last` or a number of slides before it.
    structs = []
    for steps in range(window.overlap):
        start = f"({last} - {steps * window.slide * 1000})"
        end = f"({start} + {window.length * 1000})"
        structs.append(
            f"IF(greatest({left}, {right}) < {end}, named_struct("
            f"'start', timestamp_micros({start}), 'end', timestamp_micros({end})), NULL)"
        )
    windows = f"explode_outer(filter(array({', '.join(structs)}), w -> w IS NOT NULL))"
    return joined.select("*", functions.expr(windows).alias(WINDOW_COLUMN))


def _micros(column: Column) -> str:
    return f"unix_micros({spark_sql(column)})"


def _last_start(micros: str, window: Hopping) -> str:
    slide, offset = window.slide * 1000, window.offset * 1000
    return f"({micros} - pmod({micros} - {offset}L, {slide}L))"


def _share_one(left: str, right: str, window: Hopping) -> str:
    last = _last_start(f"least({left}, {right})", window)
    return f"greatest({left}, {right}) < {last} + {window.length * 1000}L"


def _in_a_window(micros: str, window: Hopping) -> str:
    slide, offset = window.slide * 1000, window.offset * 1000
    return f"pmod({micros} - {offset}L, {slide}L) < {window.length * 1000}L"


def _later(column: Column, milliseconds: int) -> str:
    """The column shifted, in the form in which Spark finds time bounds."""
    sign = "-" if milliseconds < 0 else "+"
    whole, rest = divmod(abs(milliseconds), 1000)
    return f"{spark_sql(column)} {sign} INTERVAL '{whole}.{rest:03}' SECOND"
