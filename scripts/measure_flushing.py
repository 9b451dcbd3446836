"""What flushing costs an epoch: checkpoints that flush and that do not, in turns.

    python scripts/measure_flushing.py [FOLDER] [EPOCHS]

Each epoch writes one file of state, and where there is a sink one file of output; what is measured
is its intent and its commit, with the publication. The folder should be on the disk in question.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as parquet

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.state.arrangement import StateFile
from headrace.state.committed import Committed, Intent
from headrace.state.publication import Publication

ROWS = pa.table({"k": range(1_000), "n": range(1_000)})
#: Epochs that are not counted, and files of the state before old ones go.
WARM_UP, HELD = 20, 5


@dataclass
class Contestant:
    """A checkpoint with or without flushing, and with or without a sink's output."""

    folder: str
    flush: bool
    has_sink: bool
    seconds: list[float] = field(default_factory=list)
    state: Committed = field(default_factory=Committed)

    def __post_init__(self) -> None:
        files = LocalFiles(self.flush)
        self.checkpoint = Checkpoint(lambda path: files, f"{self.folder}/checkpoint", 20)
        self.checkpoint.open()

    def run(self, epoch: int) -> None:
        state = self.state.copied()
        state.epoch, state.batches, state.publications = epoch, {"a": epoch - 1}, []
        path = self.checkpoint.new_path("state", "rows", f"{epoch:010d}") + ".parquet"
        size = write(path)
        rows = state.arrangement("rows")
        rows.append([StateFile(path, epoch, ROWS.num_rows, size, None, None)])
        gone = rows.files[:-HELD]
        rows.replace(gone, [])
        state.garbage += [(epoch, file.path) for file in gone]
        if self.has_sink:
            out = f"{self.folder}/out"
            staged = f"{out}/_headrace/q/{self.checkpoint.staging_name(epoch)}"
            write(f"{staged}/part-0.parquet")
            state.publications = [Publication(staged, f"{out}/epoch={epoch}")]
        started = time.perf_counter()
        self.checkpoint.begin(Intent(epoch, state.batches))
        self.checkpoint.commit(state)
        self.seconds.append(time.perf_counter() - started)
        self.state = state


def write(path: str) -> int:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    parquet.write_table(ROWS, path, compression="zstd")
    return os.path.getsize(path)


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    folder = tempfile.mkdtemp(prefix="headrace-flushing-", dir=parent)
    contestants = [
        Contestant(f"{folder}/{flush}-{has_sink}", flush, has_sink)
        for has_sink in (False, True)
        for flush in (True, False)
    ]
    for epoch in range(1, epochs + WARM_UP + 1):
        for contestant in contestants[:: 1 if epoch % 2 else -1]:
            contestant.run(epoch)
    for one in contestants:
        one.checkpoint.close()
        ms = sorted(1_000 * seconds for seconds in one.seconds[WARM_UP:])
        what = "state and a sink" if one.has_sink else "state"
        how = "flushed" if one.flush else "not flushed"
        spread = f"10 to 90 %: {ms[len(ms) // 10]:.1f} to {ms[-len(ms) // 10]:.1f}"
        print(f"{what}, {how}: median {statistics.median(ms):.1f} ms, {spread}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
