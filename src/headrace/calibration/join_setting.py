"""Streams to join and aggregate, by the few figures that decide what this costs.

A stream has a join attribute of 1/σ values, a grouping attribute of g values and a whole number to
add up. Windows tumble: in one of T seconds there are w = λT rows of a stream of rate λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCHEMA = "ts TIMESTAMP, j STRING, g STRING, a BIGINT"


@dataclass(frozen=True)
class JoinSetting:
    """Figures of the streams, and the seconds of a window."""

    rates: tuple[float, ...]
    groups: tuple[int, ...]
    selectivity: float
    seconds: float

    @property
    def names(self) -> list[str]:
        return [f"s{number}" for number in range(1, len(self.rates) + 1)]

    def sql(self, hint: str = "") -> str:
        """Sums of every stream's numbers, by the groups of those that have some."""
        first, *others = self.names
        window = f"window({{}}.ts, '{self.seconds * 1_000:.0f} milliseconds')"
        joins = " ".join(
            f"JOIN {name} ON {first}.j = {name}.j "
            f"AND {window.format(first)} = {window.format(name)}"
            for name in others
        )
        keys = [f"{n}.g" for n, groups in zip(self.names, self.groups, strict=True) if groups > 1]
        columns = [f"{key} AS g{i}" for i, key in enumerate(keys)]
        sums = [f"sum({name}.a) AS a{i}" for i, name in enumerate(self.names)]
        grouping = ", ".join([*keys, window.format(first)])
        return (
            f"SELECT {hint} {', '.join([*columns, 'window', *sums])} FROM {first} {joins} "
            f"GROUP BY {grouping}"
        )


def write_stream(
    folder: Path, rows: int, rate: float, groups: int, values: int, salt: int, files: int = 8
) -> None:
    """Rows at a steady rate with join, grouping and aggregation attributes, all independent."""
    import duckdb

    folder.mkdir(parents=True)
    with duckdb.connect() as connection:
        for number in range(files):
            first, last = rows * number // files, rows * (number + 1) // files
            connection.execute(
                f"COPY (SELECT make_timestamptz(1714564800000000 + "
                f"CAST(i * {1_000_000 / rate!r} AS BIGINT)"
                # The last row is of long after, so that every window before it closes.
                f" + CASE WHEN i = {rows - 1} THEN 3600000000 ELSE 0 END) AS ts, "
                f"'j' || (hash(i * 2 + 1, {salt}) % {values}) AS j, "
                f"'g' || (hash(i * 3 + 2, {salt}) % {groups}) AS g, "
                f"CAST(hash(i, {salt}) % 1000 AS BIGINT) AS a "
                f"FROM range({first}, {last}) t(i)) "
                f"TO '{folder}/{number:04d}.parquet' (FORMAT parquet)"
            )
