"""Run one counted figure without Spark.

python -m benchmarks.probing FIGURE [SCALE] [REPEATS] [FILE]; the case goes into the file as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.probing.counted import FIGURES, SIZES, counted_figure, tpcds_files
from benchmarks.probing.probe_order import PUBLISHED_GAINERS


def main(what: str, scale: str = "small", repeats: str = "", file: str = "") -> None:
    """Run a figure, and write the case as JSON if a file is named."""
    assert what in FIGURES, f"there are {', '.join(FIGURES)}"
    size = SIZES[scale]
    size = replace(size, repeats=int(repeats)) if repeats else size

    def say(line: str) -> None:
        print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix="headrace-counted-") as folder:
        files = tpcds_files(size, Path(folder), say)
        case = counted_figure(what, size, files, PUBLISHED_GAINERS[: size.orders], say)
    print(json.dumps(case.to_json(), indent=1))
    if file:
        Path(file).write_text(json.dumps(case.to_json(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
