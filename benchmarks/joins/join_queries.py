"""The queries Q1 to Q16 and the arrival rates S1 to S4 of the paper on window join reordering.

A unit of time is a minute here; rates are rows per key and 60 minutes. Every query joins its
streams to ``a`` from left to right, and hands on a.ts.

Paper: Window Join Reordering, Section 7.1, Table 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

KEYS = 16


class Sliding(NamedTuple):
    """SW(l, s) of the paper."""

    length: int
    slide: int

    def condition(self, left: str, right: str) -> str:
        spec = f"'{self.length} minutes', '{self.slide} minutes'"
        return f"window({left}.ts, {spec}) = window({right}.ts, {spec})"

    def __str__(self) -> str:
        return f"SW({self.length},{self.slide})"


class Interval(NamedTuple):
    """I(lB, uB) of the paper: from lB before to uB after."""

    before: int
    after: int

    def condition(self, left: str, right: str) -> str:
        return (
            f"{right}.ts BETWEEN {left}.ts - INTERVAL {self.before} MINUTES "
            f"AND {left}.ts + INTERVAL {self.after} MINUTES"
        )

    def __str__(self) -> str:
        return f"I({self.before},{self.after})"


SETTINGS: dict[str, dict[str, int]] = {
    "S1": {"a": 15, "b": 15, "c": 15},
    "S2": {"a": 30, "b": 15, "c": 1},
    "S3": {"a": 15, "b": 100, "c": 1},
    "S4": {"a": 29, "b": 2, "c": 8, "d": 1, "e": 60},
}


@dataclass(frozen=True)
class JoinQuery:
    """One query: the windows by which b, c, … join a, and what the paper found.

    ``filtered`` keeps the positive values of every stream, which are half of them. ``orders`` is
    how many valid orders the paper has.
    """

    name: str
    case: str
    windows: tuple[Sliding | Interval, ...]
    orders: int
    settings: tuple[str, ...]
    filtered: bool = False

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple("abcdefgh"[: len(self.windows) + 1])

    @property
    def sql(self) -> str:
        columns = ", ".join(f"{name}.v AS {name}v" for name in self.streams)
        text = f"SELECT a.k, {columns} FROM a"
        for name, window in zip(self.streams[1:], self.windows, strict=True):
            text += f" JOIN {name} ON a.k = {name}.k AND {window.condition('a', name)}"
        if self.filtered:
            text += " WHERE " + " AND ".join(f"{name}.v > 0" for name in self.streams)
        return text


def _pair(
    name: str,
    case: str,
    one: Sliding | Interval,
    other: Sliding | Interval,
    orders: int,
    settings: tuple[str, ...] = ("S1", "S2"),
    filtered: bool = False,
) -> JoinQuery:
    return JoinQuery(name, case, (one, other), orders, settings, filtered)


QUERIES: dict[str, JoinQuery] = {
    query.name: query
    for query in (
        _pair("Q1", "A1", Sliding(20, 2), Sliding(20, 2), 4),
        _pair("Q2", "A1", Sliding(20, 10), Sliding(20, 10), 4),
        _pair("Q3", "A3", Sliding(10, 2), Sliding(20, 2), 4),
        _pair("Q4", "A3", Sliding(20, 10), Sliding(15, 10), 4),
        _pair("Q5", "A2", Sliding(30, 30), Sliding(30, 30), 6),
        _pair("Q6", "A2", Sliding(30, 45), Sliding(30, 45), 6),
        _pair("Q7", "A4", Sliding(30, 30), Sliding(5, 30), 6),
        _pair("Q8", "A4", Sliding(30, 45), Sliding(5, 45), 6),
        _pair("Q9", "A4", Sliding(5, 30), Sliding(30, 30), 6),
        _pair("Q10", "A4", Sliding(5, 45), Sliding(30, 45), 6),
        _pair("Q11", "A7", Interval(0, 10), Interval(10, 10), 4),
        _pair("Q12", "A6", Interval(10, 10), Interval(10, 10), 4),
        _pair("Q13", "A7", Interval(10, 10), Interval(10, 0), 4),
        _pair("Q14", "A3, A4", Sliding(60, 30), Sliding(5, 5), 4, ("S3",), filtered=True),
        _pair("Q15", "A3, A7", Sliding(30, 15), Interval(0, 10), 4, ("S3",), filtered=True),
        JoinQuery(
            "Q16",
            "A1, A3, A4",
            (Sliding(20, 10), Sliding(20, 10), Sliding(20, 20), Sliding(20, 5)),
            48,
            ("S4",),
            filtered=True,
        ),
    )
}

#: Best against worst order in the paper's Figure 6, the most of each group, and its queries.
PAPER_SPEEDUPS: dict[str, tuple[float, tuple[str, ...]]] = {
    "overlapping": (2.91, ("Q1", "Q2", "Q3", "Q4")),
    "non-overlapping": (3.84, ("Q5", "Q6", "Q7", "Q8", "Q9", "Q10")),
    "interval": (1.5, ("Q11", "Q12", "Q13")),
    "mixed": (10.6, ("Q14", "Q15", "Q16")),
}
