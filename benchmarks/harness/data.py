"""Streams as Parquet files: made by DuckDB from row numbers alone, so always the same.

Values are whole numbers, so that sums are exact in whatever order they are made. Event times run
with the row number, shaken by less than any delay the benches give, so that no row is late: what a
late row may still do differs between Spark and Headrace, and is no matter for a stopwatch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EVENTS_SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"

# The stream begins here and not in 1970: Spark's first watermark is the epoch, and rows at or
# below it are dropped as late.
FIRST_MILLISECOND = 1_704_067_200_000  # 2024-01-01 00:00:00 UTC


@dataclass(frozen=True)
class EventFiles:
    """A stream of events (k, v, ts), cut into files of equal size."""

    rows: int
    files: int
    keys: int = 200
    # Milliseconds of event time from one row to the next, and by how much a time may be off.
    step: float = 1.0
    shake: int = 5_000
    # 1 draws all keys alike; the greater, the more rows the first keys have.
    skew: int = 1
    # Streams of different salts have nothing in common; signed values are negative half the time.
    salt: int = 0
    signed: bool = False

    @property
    def rows_per_file(self) -> int:
        return -(-self.rows // self.files)

    def write(self, folder: Path) -> Path:
        """Write all files, oldest first; gives the folder back."""
        for _ in self.write_one_by_one(folder):
            pass
        return folder

    def write_one_by_one(self, folder: Path) -> Iterator[Path]:
        """Write a file each time the next one is asked for."""
        import duckdb

        folder.mkdir(parents=True, exist_ok=True)
        # The file source takes files in the order of their modification times, and files that are
        # written within one tick of the clock have none: give each its own second of the past.
        first_second = int(time.time()) - self.files - 60
        with duckdb.connect() as connection:
            connection.execute("SET threads = 1")
            for number in range(self.files):
                file = folder / f"part-{number:06d}.parquet"
                write_events(connection, self, number, file)
                os.utime(file, (first_second + number, first_second + number))
                yield file


def _key(events: EventFiles) -> str:
    if events.skew == 1:
        return f"CAST(hash(i + {events.salt}) % {events.keys} AS BIGINT)"
    share = f"(hash(i + {events.salt}) % 1000000007) / 1000000007.0"
    return f"CAST(floor({events.keys} * power({share}, {events.skew})) AS BIGINT)"


def write_events(
    connection: object, events: EventFiles, number: int, file: Path, first: int | None = None
) -> None:
    """Write one file of the stream; it appears whole, by renaming.

    ``first`` moves the beginning of the stream to another millisecond.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    low = number * events.rows_per_file
    high = min(events.rows, low + events.rows_per_file)
    start = FIRST_MILLISECOND if first is None else first
    shaken = f"hash(i + {9_000_000_000 + events.salt}) % {max(1, events.shake)}"
    table = connection.sql(  # type: ignore[attr-defined]
        f"""
        SELECT {_key(events)} AS k,
               CAST(hash(i + {7_000_000_000 + events.salt}) % 100000 AS BIGINT)
                   - {50_000 if events.signed else 0} AS v,
               {start} + CAST(floor(i * {events.step}) AS BIGINT)
                   + CAST({shaken} AS BIGINT) AS ts
        FROM range({low}, {high}) AS rows(i)
        """
    ).to_arrow_table()
    # From whole milliseconds in Arrow, because a timestamp that DuckDB writes is one without a
    # time zone, which Spark reads as another type.
    stamps = (
        table.column("ts").cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    )
    table = table.set_column(2, "ts", stamps)
    # Spark's file source passes over names that begin with a dot.
    hidden = file.with_name(f".{file.name}.tmp")
    pq.write_table(table, hidden)
    hidden.rename(file)
