"""Parquet files, a folder per epoch: ``path/epoch=12/…``.

Readers see only committed epochs: an epoch is staged in a hidden folder beside them, and its files
appear one by one after the commit (``state/publication.py``). ``epoch`` comes out as a partition
column. The folder belongs to this query alone (``ownership``).
"""

from __future__ import annotations

import os

from headrace.engine.checkpoint.files import FileSystem, is_local, plain_path
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.sinks.base import QuerySink
from headrace.engine.sinks.ownership import claim_now
from headrace.errors import SinkError
from headrace.failpoints import failpoint
from headrace.names import storage_name
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Write, Writing
from headrace.plan.nodes import Sink
from headrace.redaction import without_passwords
from headrace.state.publication import STAGING, Publication


class ParquetSink(QuerySink):
    """Writes each epoch's rows as Parquet."""

    is_outside = True

    def __init__(self, sink: Sink, options: dict[str, str]) -> None:
        super().__init__(sink)
        if "path" not in options:
            raise SinkError(
                f"query {sink.name!r} has no path to write to", hint="add .option('path', 'out/')"
            )
        self._path = self.folder = plain_path(options["path"]).rstrip("/")
        if without_passwords(self._path) != self._path:
            raise SinkError(
                f"the path of query {sink.name!r} has a password in it: {self._path}",
                hint="paths are written down in checkpoints; give credentials in Spark's settings",
            )
        self._recent_rows: int | None = None
        #: What owners of the checkpoint before this one have staged; None until it was looked for.
        self._leftovers: list[str] | None = None
        self._files: FileSystem | None = None

    def open(self) -> None:
        if not is_local(self._path):
            return
        # The folder itself is made when it is claimed: a query that is refused leaves nothing.
        place = self._path
        while place and not os.path.lexists(place):
            place = os.path.dirname(place)
        allowed = os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)
        if not allowed:
            raise SinkError(
                f"query {self.name!r} cannot write to {self._path}",
                hint="choose a folder that this user may write to",
            )

    def begin(self) -> None:
        self._leftovers = self._files = None

    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        if not self.owns_folder:
            claim_now(self, epoch.checkpoint, epoch.state)
        staging = f"{self._path}/{STAGING}/{storage_name(self.name)}"
        staged = f"{staging}/{epoch.checkpoint.staging_name(epoch.number)}"
        files = self._files = epoch.checkpoint.files_of(staged)
        if self._leftovers is None:
            ours = f"-{epoch.checkpoint.mark}-"
            staged_before = [f"{staging}/{n}" for n in files.names(staging) if ours in n]
            waiting = {publication.staged for publication in epoch.checkpoint.unpublished}
            self._leftovers = [path for path in staged_before if path not in waiting]
        files.delete(staged)
        written = yield Write(
            self.name,
            rows.definition.query,
            rows.schema,
            columns=rows.columns,
            path=staged,
            folder=True,
            expected_rows=self._recent_rows,
        )
        failpoint("sink.after")
        self._recent_rows = written.rows
        if written.rows:
            final = f"{self._path}/epoch={epoch.number}"
            epoch.state.publications.append(Publication(staged, final))
        else:
            files.delete(staged)
        return written.rows

    def publish(self, epoch: int) -> None:
        """Delete what epochs have staged that never ended: now they cannot end any more."""
        if self._leftovers and self._files is not None:
            for path in self._leftovers:
                self._files.delete(path)
            self._leftovers = []
