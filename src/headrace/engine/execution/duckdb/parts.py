"""Which rows and which files belong to a part.

Pieces of a write and parts of a multi-way join must tell rows apart in the same way: files that
one of them wrote for a part are read by the other as that part's.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.execution.duckdb.render import identifier
from headrace.state.arrangement import Split, StateFile


def row_condition(wanted: Split, kind: str) -> str:
    """Whether a row is of a part; ``kind`` is what values of the column are hashed as."""
    hashed = f"hash(CAST({identifier(wanted.column)} AS {kind}))"
    return f"{hashed} % {wanted.parts} = {wanted.part}"


def files_of_part(files: Iterable[StateFile], wanted: Split) -> tuple[list[StateFile], bool]:
    """The files that may hold rows of a part, and whether they hold nothing else."""
    told_apart = (wanted.column, wanted.parts, wanted.hashing)
    chosen, all_ready = [], True
    for file in files:
        split = file.split
        if split is None or (split.column, split.parts, split.hashing) != told_apart:
            chosen.append(file)
            all_ready = False
        elif split.part == wanted.part:
            chosen.append(file)
    return chosen, all_ready
