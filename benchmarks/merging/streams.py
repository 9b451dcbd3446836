"""The streams that generated queries run on: four, a file for each micro-batch, always the same.

No row is late, and all windows but those of the last micro-batch are complete in the end. Plain
Spark moves filters below its watermark, which then follows the rows that pass; so the last
micro-batch comes after a pause, and any of its rows will do to complete whatever came before.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.harness.data import FIRST_MILLISECOND
from benchmarks.merging.query_set_plans import FIELDS, TIMES
from benchmarks.merging.query_sets import sources
from headrace.contestants import StreamFolder, empty_folder

STREAMS = 4
#: Milliseconds of event time in a micro-batch; windows are of one to a hundred minutes.
STEP = 600_000
#: How long nothing comes before the last micro-batch: longer than any window.
PAUSE = 4 * 3_600_000
#: The last micro-batch is shorter than the delay, so that no window ends within it.
LAST, DELAY = 5_000, "10 seconds"
#: Fields are below this.
VALUES = 100


def write_streams(folder: Path, rows: int, batches: int) -> list[StreamFolder]:
    """Write all streams, so many rows of each in a micro-batch."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    streams = []
    # Why files get a time each, and stamps are made in Arrow, is said in ``data``.
    first_second = int(time.time()) - batches - 60
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for number, source in enumerate(sources(STREAMS)):
            place = empty_folder(folder / source.stream)
            names = source.schema.names[:FIELDS]
            for batch in range(batches):
                is_last = batch == batches - 1
                begin = FIRST_MILLISECOND + batch * STEP + (PAUSE if is_last else 0)
                span = LAST if is_last else STEP
                fields = ", ".join(
                    f"(hash(i, {10 * number + position}) % {VALUES})::BIGINT AS {name}"
                    for position, name in enumerate(names)
                )
                first = batch * rows
                table = connection.sql(
                    f"SELECT {fields}, {begin} + {span} * (i - {first}) // {rows} AS at "
                    f"FROM range({first}, {first + rows}) AS t(i)"
                ).to_arrow_table()
                stamps = table.column("at").cast(pa.timestamp("ms", tz="UTC"))
                stamps = stamps.cast(pa.timestamp("us", tz="UTC"))
                table = table.drop_columns(["at"])
                for stamp in TIMES:
                    table = table.append_column(stamp, stamps)
                file = place / f"part-{batch:06d}.parquet"
                pq.write_table(table, file)
                os.utime(file, (first_second + batch, first_second + batch))
            schema = ", ".join(f"{f.name} {f.type.name}" for f in source.schema)
            streams.append(StreamFolder(source.stream, place, schema, TIMES[0], DELAY, 1))
    return streams
