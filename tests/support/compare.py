"""Results as multisets of plain tuples, compared and shown readably."""

from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

TOLERANCE = 1e-9
_FLOAT = "<double>"


def plain_rows(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows of DuckDB, Arrow (a table) or Spark as tuples of comparable values.

    Windows become (start, end); times are aware and in UTC. A time without a zone is taken as
    UTC, so collect Spark results with ``spark_rows``: ``collect()`` gives local times.
    """
    return [tuple(map(plain_value, row)) for row in rows]


def plain_value(value: Any) -> Any:
    match value:
        case datetime.datetime():
            if value.tzinfo is None:
                return value.replace(tzinfo=datetime.UTC)
            return value.astimezone(datetime.UTC)
        case dict():
            return tuple(plain_value(part) for part in value.values())
        case list() | tuple():
            return tuple(plain_value(part) for part in value)
        case decimal.Decimal():
            return value.normalize() if value else decimal.Decimal(0)
        case bytearray():
            return bytes(value)
        case _:
            return value


def spark_rows(frame: Any) -> list[tuple[Any, ...]]:
    """The rows of a Spark DataFrame, through Arrow: its times are exact and carry their zone."""
    table = frame.toArrow()
    return arrow_rows(table)


def arrow_rows(table: Any) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return plain_rows(zip(*columns, strict=True)) if columns else []


def assert_same_rows(
    actual: Iterable[Sequence[Any]],
    expected: Iterable[Sequence[Any]],
    context: object = "",
    columns: Sequence[str] = (),
) -> None:
    """Fail with a readable difference unless both hold the same rows, counted.

    Doubles may differ by a relative 1e-9; NaN equals NaN. ``context`` (a seed, a query) is
    printed with the difference.
    """
    missing, extra = difference(plain_rows(actual), plain_rows(expected))
    if not missing and not extra:
        return
    lines = [f"{len(missing)} rows are missing and {len(extra)} are too many"]
    if columns:
        lines.append("  columns: " + ", ".join(columns))
    for title, sign, rows in (("missing", "-", missing), ("too many", "+", extra)):
        lines += [f"  {sign} {_row_text(row)}" for row in sorted(rows, key=repr)[:20]]
        if len(rows) > 20:
            lines.append(f"    … and {len(rows) - 20} more {title}")
    if context:
        lines.append(str(context))
    raise AssertionError("\n".join(lines))


def difference(
    actual: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The rows that are missing from ``actual`` and those it has too many."""
    counts = Counter(map(_exact_key, actual))
    counts.subtract(map(_exact_key, expected))
    if not any(counts.values()):
        return [], []
    ours, theirs = _by_shape(actual), _by_shape(expected)
    missing: list[tuple[Any, ...]] = []
    extra: list[tuple[Any, ...]] = []
    for shape in ours.keys() | theirs.keys():
        left_over = list(ours.get(shape, ()))
        for row in theirs.get(shape, ()):
            partner = next((i for i, r in enumerate(left_over) if _close(r, row)), None)
            if partner is None:
                missing.append(row)
            else:
                left_over.pop(partner)
        extra += left_over
    return missing, extra


def _exact_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((_FLOAT, repr(v)) if isinstance(v, float) else v for v in row)


def _by_shape(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    """Rows by all but their doubles, which are compared with tolerance."""
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        groups[tuple(_FLOAT if isinstance(v, float) else v for v in row)].append(row)
    return groups


def _close(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return all(
        (math.isnan(a) and math.isnan(b))
        or math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(left, right, strict=True)
        if isinstance(a, float)
    )


def _row_text(row: tuple[Any, ...]) -> str:
    return "(" + ", ".join(map(_value_text, row)) + ")"


def _value_text(value: Any) -> str:
    match value:
        case datetime.datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
        case tuple():
            return "[" + ", ".join(map(_value_text, value)) + ")"
        case _:
            return repr(value)
