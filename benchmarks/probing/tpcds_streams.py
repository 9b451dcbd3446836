"""Four tables of TPC-DS as streams that are joined by the address of a customer.

The tables are those of the paper on run-time optimized multi-way joins (Section 5.1). They come
from DuckDB's generator, whose extension is published for older releases of DuckDB than the one
that Headrace uses, so it runs in a virtual environment of its own. Tables are kept in the user's
cache, since they are always the same. Rows are shuffled, again always in the same way, and get an
event time: all four streams cover the same span, as if each came in at a steady rate.

Paper: Multi-Way Joins, Section 5.1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, permutations
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import BenchError
from benchmarks.harness.data import FIRST_MILLISECOND
from headrace.contestants import StreamFolder

if TYPE_CHECKING:
    import pyarrow as pa

RELEASE = "1.5.5"
PACKAGES = (f"duckdb=={RELEASE}", f"duckdb-extension-tpcds=={RELEASE}")
SPAN = 3_600_000  # Milliseconds from the first row of each stream to the last.
SEED = 2024

# Runs in the side environment: its DuckDB reads the extension from the package that brings it.
_GENERATOR = """
import sys
from pathlib import Path
import duckdb, duckdb_extension_tpcds
factor, folder, queries = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
extensions = Path(duckdb_extension_tpcds.__file__).parent / "extensions"
(extension,) = extensions.rglob("tpcds.duckdb_extension")
config = {"allow_unsigned_extensions": "true"}
connection = duckdb.connect(f"{folder}/all.duckdb", config=config)
connection.execute(f"LOAD '{extension}'")
connection.execute(f"CALL dsdgen(sf={factor:g})")
for query in queries:
    connection.execute(query)
"""


@dataclass(frozen=True)
class Table:
    """A table as a stream: its short name, the address by which it is joined, and what is kept."""

    stream: str
    table: str
    address: str
    keys: tuple[str, ...]
    amount: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.address, *self.keys, *filter(None, [self.amount]))

    @property
    def schema(self) -> str:
        amount = f"{self.amount} DECIMAL(7,2), " if self.amount else ""
        return (
            "".join(f"{k} BIGINT, " for k in (self.address, *self.keys)) + f"{amount}ts TIMESTAMP"
        )


TABLES = {
    table.stream: table
    for table in (
        Table(
            "sr",
            "store_returns",
            "sr_addr_sk",
            ("sr_item_sk", "sr_ticket_number"),
            "sr_return_amt",
        ),
        # A customer has no amount.
        Table("cu", "customer", "c_current_addr_sk", ("c_customer_sk",), None),
        Table(
            "wr",
            "web_returns",
            "wr_refunded_addr_sk",
            ("wr_item_sk", "wr_order_number"),
            "wr_return_amt",
        ),
        Table(
            "cr",
            "catalog_returns",
            "cr_refunded_addr_sk",
            ("cr_item_sk", "cr_order_number"),
            "cr_return_amount",
        ),
    )
}

#: All orders in which the join can be written, which are the orders that runs begin with.
ORDERS = tuple(permutations(TABLES))


def order_name(order: Sequence[str]) -> str:
    """An order as the paper's figures name it.

    >>> order_name(("cr", "wr", "sr", "cu"))
    'CrWrSrCu'
    """
    return "".join(stream.capitalize() for stream in order)


def join_query(order: Sequence[str]) -> str:
    """The paper's query (Section 5.1), its tables in this order. All keys equal the first one's."""
    first, *others = order
    left = f"{first}.{TABLES[first].address}"
    joins = "".join(f" JOIN {o} ON {left} = {o}.{TABLES[o].address}" for o in others)
    return f"SELECT {_selected()} FROM {first}{joins}"


def _selected() -> str:
    keys = [f"{table.stream}.{key}" for table in TABLES.values() for key in table.keys]
    return ", ".join([f"cu.{TABLES['cu'].address} AS addr_sk", *keys])


@dataclass(frozen=True)
class TpcdsTables:
    """A folder with a Parquet file for each of the tables."""

    folder: Path

    def file(self, stream: str) -> Path:
        return self.folder / f"{TABLES[stream].table}.parquet"

    @cached_property
    def rows(self) -> Mapping[str, int]:
        import duckdb

        with duckdb.connect() as connection:
            return {
                stream: _number(connection, f"SELECT count(*) FROM '{self.file(stream)}'")
                for stream in TABLES
            }

    @cached_property
    def results(self) -> int:
        """How many rows the join has, counted without making them."""
        import duckdb

        counts = [
            f"(SELECT {table.address} AS addr_sk, count(*) AS {stream} "
            f"FROM '{self.file(stream)}' GROUP BY ALL)"
            for stream, table in TABLES.items()
        ]
        first, *others = counts
        joins = "".join(f" JOIN {other} USING (addr_sk)" for other in others)
        product = " * ".join(TABLES)
        with duckdb.connect() as connection:
            return _number(
                connection, f"SELECT coalesce(sum({product}), 0)::BIGINT FROM {first}{joins}"
            )

    def write_join(self, folder: Path) -> Path:
        """The join as DuckDB makes it of the whole tables at once; gives the folder back."""
        import duckdb

        folder.mkdir(parents=True, exist_ok=True)
        with duckdb.connect() as connection:
            for stream in TABLES:
                connection.execute(f"CREATE VIEW {stream} AS FROM '{self.file(stream)}'")
            connection.execute(
                f"COPY ({join_query(tuple(TABLES))}) TO '{folder}/join.parquet' (FORMAT parquet)"
            )
        return folder

    def write_streams(self, folder: Path, batches: int) -> list[StreamFolder]:
        """Cut each table into a file for each micro-batch, unless that was done before."""
        streams = []
        for stream, table in TABLES.items():
            place = folder / f"{stream}-{batches}"
            if not place.exists():
                _write_stream(self.file(stream), table, self.rows[stream], batches, place)
            streams.append(StreamFolder(stream, place, table.schema, files_per_batch=1))
        return streams


def _write_stream(file: Path, table: Table, rows: int, batches: int, folder: Path) -> None:
    import duckdb

    with duckdb.connect() as connection:
        shuffled = connection.sql(
            f"""
            SELECT {", ".join(table.columns)},
                   {FIRST_MILLISECOND} + {SPAN} * (row_number() OVER shuffled - 1) // {max(1, rows)}
                       AS ts
            FROM read_parquet('{file}', file_row_number = true)
            WINDOW shuffled AS (ORDER BY hash(file_row_number, {SEED}), file_row_number)
            ORDER BY ts
            """
        ).to_arrow_table()
    cuts = [rows * number // batches for number in range(batches + 1)]
    write_parts(folder, [shuffled.slice(low, high - low) for low, high in pairwise(cuts)])


def write_parts(folder: Path, parts: Iterable[pa.Table]) -> Path:
    """Write a stream as files, one for each micro-batch; ``ts`` comes as whole milliseconds.

    Why stamps are made in Arrow, and files get a time each, is said in ``data``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    written = []
    for number, part in enumerate(parts):
        stamps = part.column("ts").cast(pa.timestamp("ms", tz="UTC"))
        stamps = stamps.cast(pa.timestamp("us", tz="UTC"))
        part = part.set_column(part.column_names.index("ts"), "ts", stamps)
        written.append(folder / f"part-{number:06d}.parquet")
        pq.write_table(part, written[-1])
    first_second = int(time.time()) - len(written) - 60
    for number, file in enumerate(written):
        os.utime(file, (first_second + number, first_second + number))
    return folder


def generated(factor: float, say: Callable[[str], None] = lambda line: None) -> TpcdsTables:
    """The tables at a scale factor, from the cache or from the generator."""
    folder = _cache() / f"sf{factor:g}"
    if not folder.exists():
        python = _side_environment(say)
        say(f"generating TPC-DS at scale factor {factor:g}, once")
        making = folder.with_name(f".{folder.name}-{os.getpid()}")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        copies = [
            f"COPY (SELECT {', '.join(table.columns)} FROM {table.table}) "
            f"TO '{making}/{table.table}.parquet' (FORMAT parquet)"
            for table in TABLES.values()
        ]
        _call([str(python), "-c", _GENERATOR, str(factor), str(making), *copies])
        (making / "all.duckdb").unlink()
        making.rename(folder)
    return TpcdsTables(folder)


def synthetic(folder: Path, rows: int) -> TpcdsTables:
    """Tables of the same columns without the generator: for tests, which need no network.

    ``store_returns`` has this many rows and the others the shares that they have of TPC-DS; a few
    addresses are NULL.
    """
    import duckdb

    shares = {"sr": 1.0, "cu": 0.35, "wr": 0.25, "cr": 0.5}
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        for salt, (stream, table) in enumerate(TABLES.items()):
            drawn = f"hash(i, {salt}) % {max(1, rows // 6)}"
            columns = [f"CASE WHEN i % 29 > 0 THEN ({drawn})::BIGINT END AS {table.address}"]
            columns += [f"(i * {n} + {salt})::BIGINT AS {k}" for n, k in enumerate(table.keys, 1)]
            if table.amount:
                columns.append(f"(i % 1000 / 4)::DECIMAL(7,2) AS {table.amount}")
            connection.execute(
                f"COPY (SELECT {', '.join(columns)} FROM range({int(rows * shares[stream])}) t(i)) "
                f"TO '{folder}/{table.table}.parquet' (FORMAT parquet)"
            )
    return TpcdsTables(folder)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headrace" / "tpcds"


def _side_environment(say: Callable[[str], None]) -> Path:
    """The interpreter of an environment that has the generator; made where there is none."""
    folder = _cache() / f"venv-{RELEASE}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        say(f"installing {' and '.join(PACKAGES)} into {folder}")
        _call([sys.executable, "-m", "venv", "--clear", str(folder)])
        _call([str(python), "-m", "pip", "install", "--quiet", *PACKAGES])
        ready.touch()
    return python


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise BenchError(
            f"TPC-DS cannot be generated: {lines[-1]}",
            hint=f"it takes {' and '.join(PACKAGES)} from PyPI, in a virtual environment in "
            f"{_cache()}; the tables can also be put there from another machine, in a folder sf…",
        )


def _number(connection: object, query: str) -> int:
    found = connection.execute(query).fetchone()  # type: ignore[attr-defined]
    return int(found[0])
