"""What chaos runs: streams, queries that meet in every way, and what must come out of them.

Rows are out of order by less than the streams' delay, partners of joins come within the ttl, and
ids are used again only long after it. So nothing is ever late, and what comes out in all does not
depend on which files share an epoch, which kills change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.plan.nodes import OutputMode, Source
from headrace.plan.types import DataType, Schema
from headrace.sql import plan_query
from tests.support.oracle import run_epochs
from tests.support.script import Stream, at

STREAMS = (
    Stream("bids", "id bigint, k string, v bigint, ts timestamp", delay="5 seconds", ttl="20 s"),
    Stream("asks", "id bigint, k string, p bigint, ts timestamp", delay="5 seconds", ttl="20 s"),
)
#: How far event time goes on with a file, and how far its rows are out of order, in seconds.
PACE, DISORDER = 3, 4
#: After so many files ids come again; their former rows are dead by then.
ROUND = 120
_ROWS = 8
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Standing:
    """A query, its sink, and how it is written after it has failed (``mended``).

    Where it puts out versions of its groups, ``groups`` is how many columns name one.
    """

    name: str
    text: str
    format: str = "parquet"
    groups: int = 0
    mended: str | None = None

    @property
    def mode(self) -> OutputMode:
        return OutputMode.UPDATE if self.groups else OutputMode.APPEND


QUERIES = (
    # Two of one meaning are computed once, and so are panes of several.
    Standing(
        "tumbling",
        "SELECT k, window, COUNT(*) AS n, SUM(v) AS total FROM bids "
        "GROUP BY k, window(ts, '10 seconds')",
    ),
    Standing(
        "tumbling_again",
        "SELECT SUM(v) AS s, window AS slot, k AS who, COUNT(*) AS many FROM bids "
        "GROUP BY window(ts, '10 seconds'), k",
        "foreachBatch",
    ),
    Standing(
        "hopping",
        "SELECT k, window, MIN(v) AS least, MAX(v) AS most FROM bids "
        "GROUP BY k, window(ts, '20 seconds', '10 seconds')",
        "results",
    ),
    Standing(
        "updates",
        "SELECT k, window, COUNT(*) AS n, SUM(p) AS total FROM asks "
        "GROUP BY k, window(ts, '10 seconds')",
        groups=2,
    ),
    Standing(
        "totals",
        "SELECT k, COUNT(*) AS n, SUM(p) AS total FROM asks GROUP BY k, landmark(ts)",
        "results",
        groups=1,
    ),
    Standing(
        "near",
        "SELECT b.k, b.v, a.p, b.ts AS bt, a.ts AS at FROM bids b JOIN asks a ON b.k = a.k "
        "AND a.ts BETWEEN b.ts - INTERVAL 3 SECONDS AND b.ts + INTERVAL 1 SECONDS",
    ),
    Standing(
        "near_again",
        "SELECT a.ts AS t, b.ts AS u, a.p, b.v, a.k FROM asks a JOIN bids b ON a.k = b.k "
        "AND b.ts BETWEEN a.ts - INTERVAL 1 SECONDS AND a.ts + INTERVAL 3 SECONDS",
        "foreachBatch",
    ),
    Standing(
        "pairs",
        "SELECT b.id, b.v, a.p, b.ts AS bt, a.ts AS at FROM bids b JOIN asks a ON b.id = a.id",
    ),
    Standing("printed", "SELECT id, k, v, ts FROM bids WHERE v > 30", "foreachBatch"),
    # For one row, and for one window, these divide by zero.
    Standing(
        "divided",
        "SELECT id, ts, 1000 DIV v AS n FROM bids",
        "foreachBatch",
        mended="SELECT id, ts, 1000 DIV NULLIF(v, 0) AS n FROM bids",
    ),
    Standing(
        "shares",
        "SELECT k, window, 1000 DIV SUM(v) AS n FROM bids GROUP BY k, window(ts, '10 seconds')",
        mended="SELECT k, window, 1000 DIV NULLIF(SUM(v), 0) AS n FROM bids "
        "GROUP BY k, window(ts, '10 seconds')",
    ),
)


@dataclass(frozen=True)
class Data:
    """The rows of each file, which depend on the seed alone; two files bring a zero each."""

    seed: int
    zero_row_in: int
    zero_sum_in: int

    def rows(self, stream: str, number: int) -> list[Row]:
        return self._bids(number) if stream == "bids" else self._asks(number)

    def _bids(self, number: int) -> list[Row]:
        random = Random(f"{self.seed} bids {number}")
        rows: list[Row] = [
            (_id(number, i), random.choice("abcd"), random.randint(1, 99), _time(random, number))
            for i in range(_ROWS)
        ]
        if number == self.zero_row_in:
            rows.append((-1, "a", 0, PACE * number + 0.5))
        if number == self.zero_sum_in:
            start = PACE * number // 10 * 10
            time = max(start, PACE * number - DISORDER)
            rows += [(-1, "nil", 7, time), (-1, "nil", -7, time)]
        return rows

    def _asks(self, number: int) -> list[Row]:
        random = Random(f"{self.seed} asks {number}")
        return [
            (
                _id(max(0, number - random.randrange(2)), random.randrange(_ROWS)),
                random.choice("abcd"),
                random.randint(1, 99),
                _time(random, number),
            )
            for _ in range(_ROWS - 2)
        ]

    def last_rows(self, stream: str, files: int) -> list[Row]:
        """A file that closes all windows, and meets nobody."""
        return [(-2 if stream == "bids" else -3, f"end of {stream}", 1, PACE * files + 1_000)]


def _id(number: int, row: int) -> int:
    return number % ROUND * _ROWS + row


def _time(random: Random, number: int) -> float:
    return max(0, round(PACE * number + random.uniform(-DISORDER, PACE), 3))


def expected(
    files: Mapping[str, Sequence[Sequence[Row]]], cut: Sequence[Mapping[str, Sequence[int]]]
) -> dict[str, list[Row]]:
    """What the oracle says that each query has put out, if each epoch takes these files."""
    catalog, names = {}, {}
    for stream in STREAMS:
        pairs = [column.split() for column in stream.columns.split(", ")]
        schema = Schema.of([(name, DataType(kind)) for name, kind in pairs])
        catalog[stream.name] = Source(stream.name, schema, "ts", 5_000, ttl=20_000)
        names[stream.name] = schema.names
    epochs = [
        {
            stream: [
                dict(zip(names[stream], (*row[:-1], at(row[-1])), strict=True))
                for number in numbers
                for row in files[stream][number]
            ]
            for stream, numbers in epoch.items()
        }
        for epoch in cut
    ]
    return {
        query.name: newest(
            query,
            run_epochs(
                plan_query(query.mended or query.text, catalog).plan, epochs, mode=query.mode
            ),
        )
        for query in QUERIES
    }


def newest(query: Standing, epochs: Sequence[Sequence[Row]]) -> list[Row]:
    """All rows; of versions, the last of each group."""
    rows = [row for epoch in epochs for row in epoch]
    if not query.groups:
        return rows
    # Two versions from one epoch are one too many, and stay.
    last = {row[: query.groups]: n for n, epoch in enumerate(epochs) for row in epoch}
    return [
        row for n, epoch in enumerate(epochs) for row in epoch if last[row[: query.groups]] == n
    ]
