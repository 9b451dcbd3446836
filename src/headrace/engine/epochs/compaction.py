"""Merging the small files of an arrangement, so that reading it does not cost more with its age.

Files have levels: an epoch writes level 0, and as many files of one level as the limit says become
one of the next. Each row is thus rewritten a few times only, however long the stream.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.definitions.definition import Definition
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.operators.write import Write, Writing
from headrace.plan.types import Schema
from headrace.state.arrangement import StateFile, span


def merge_files(
    epoch: RunningEpoch,
    name: str,
    schema: Schema,
    compacted: Callable[[Definition], Definition],
    limit: int,
    area: str = "state",
    folder: str | None = None,
    split_by: tuple[str, ...] = (),
) -> Writing[None]:
    """Merge the files of one level, if there are enough of them."""
    arrangement = epoch.state.arrangements.get(name)
    files = arrangement.mergeable(limit) if arrangement is not None and limit > 1 else []
    if arrangement is None or not files:
        return
    times = span(files)
    level = files[0].level + 1
    oldest = min(file.epochs[0] for file in files)
    newest = max(file.epoch for file in files)
    rows = Definition(epoch.inputs.bind_files(files, schema), schema)
    compact = compacted(rows)
    written = yield Write(
        f"merge {name}",
        compact.query,
        compact.schema,
        path=epoch.checkpoint.new_path(area, folder or name, f"{newest:010d}-{level}"),
        expected_rows=sum(file.rows for file in files),
        split_by=split_by,
    )
    first, last = times if times is not None else (None, None)
    merged = [
        StateFile(f.path, newest, f.rows, f.size, first, last, level, f.split, oldest)
        for f in written.files
    ]
    arrangement.replace(files, [file for file in merged if file.rows])
    for file in merged:
        if not file.rows:
            epoch.checkpoint.files.delete(file.path)
    epoch.state.garbage += [(epoch.number, file.path) for file in files]
