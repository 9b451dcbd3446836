"""Small local files of rows under other column names, without running anything for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as parquet

from headrace.engine.checkpoint.files import plain_path
from headrace.engine.execution.spark_executor import write_parquet
from headrace.operators.write import Write, Written
from headrace.plan.types import Schema

#: What Parquet files of Spark hold in types that Arrow would write in another way.
_SPARKS_OWN = ("interval", "variant", "geo", "char")


def can_rename(schema: Schema) -> bool:
    """Whether Arrow writes all columns as they were read."""
    return not any(word in field.type.name for field in schema for word in _SPARKS_OWN)


def rename_files(
    written: Written, source: Write, targets: Sequence[tuple[tuple[str, ...], Write]]
) -> list[Written | Exception]:
    """For each target the files of a write, with these columns under the target's names."""
    assert source.path is not None
    tables: dict[str, list[tuple[str, pa.Table]]] = {}
    answers: list[Written | Exception] = []
    for columns, target in targets:
        assert target.path is not None
        renamed = []
        try:
            for file in written.files:
                if file.path not in tables:
                    tables[file.path] = _read(plain_path(file.path))
                path = target.path + file.path[len(source.path) :]
                size = 0
                for name, table in tables[file.path]:
                    # A column may be asked for twice, which names cannot say.
                    places = [table.column_names.index(column) for column in columns]
                    rows = table.select(places).rename_columns(list(target.schema.names))
                    size += write_parquet(rows, plain_path(path) + name)
                renamed.append(replace(file, path=path, size=size))
            answers.append(replace(written, files=tuple(renamed)))
        except Exception as error:
            answers.append(error)
    return answers


def _read(path: str) -> list[tuple[str, pa.Table]]:
    """A file, or those of a folder, each with what its path ends in beyond this one.

    What Spark notes of a schema beside it names the columns, too, and goes.
    """
    names = [""]
    if os.path.isdir(path):
        names = [f"/{name}" for name in sorted(os.listdir(path)) if name.endswith(".parquet")]
    return [
        (name, parquet.ParquetFile(path + name).read().replace_schema_metadata(None))
        for name in names
    ]
