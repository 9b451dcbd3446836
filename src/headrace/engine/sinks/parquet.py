"""Parquet files, a folder per epoch: ``path/epoch=12/…``.

Readers see only committed epochs: an epoch is staged in a hidden folder beside them and appears
by a rename after the commit. ``epoch`` comes out as a partition column.
"""

from __future__ import annotations

import os

from headrace.engine.checkpoint import Publication
from headrace.engine.epoch import Epoch
from headrace.engine.failpoints import reach
from headrace.engine.files import is_local, plain_path
from headrace.engine.relations import Relation
from headrace.engine.sinks.base import QuerySink
from headrace.engine.writes import Steps, Write
from headrace.errors import SinkError
from headrace.plan.nodes import Sink


class ParquetSink(QuerySink):
    """Writes each epoch's rows as Parquet."""

    def __init__(self, sink: Sink, options: dict[str, str]) -> None:
        super().__init__(sink)
        if "path" not in options:
            raise SinkError(
                f"query {sink.name!r} has no path to write to", hint="add .option('path', 'out/')"
            )
        self._path = plain_path(options["path"]).rstrip("/")
        self._recent_rows: int | None = None

    def open(self) -> None:
        if not is_local(self._path):
            return
        try:
            os.makedirs(self._path, exist_ok=True)
            allowed = os.access(self._path, os.W_OK)
        except OSError:
            allowed = False
        if not allowed:
            raise SinkError(
                f"query {self.name!r} cannot write to {self._path}",
                hint="choose a folder that this user may write to",
            )

    def write(self, epoch: Epoch, rows: Relation) -> Steps[int]:
        staged = f"{self._path}/_headrace/{self.name}/{epoch.number:010d}"
        epoch.checkpoint.files_of(staged).delete(staged)
        written = yield Write(
            self.name,
            rows.query,
            rows.schema,
            path=staged,
            folder=True,
            expected_rows=self._recent_rows,
        )
        reach("sink.after")
        self._recent_rows = written.rows
        if written.rows:
            final = f"{self._path}/epoch={epoch.number}"
            epoch.state.publications.append(Publication(staged, final))
        else:
            epoch.checkpoint.files_of(staged).delete(staged)
        return written.rows
