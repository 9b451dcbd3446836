"""The processor time of everything that a bench has started: Java, and Python's workers.

It is read from Linux's list of processes. A process that has ended and was waited for is in the
figures of the one that started it, so nothing is lost when workers come and go.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import BenchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROCESSES = Path("/proc")


def cpu_seconds(spark: SparkSession) -> float:
    """Seconds that this process, Spark's Java and all that they started have computed so far."""
    if not _PROCESSES.joinpath("self", "stat").exists():
        raise BenchError("the processor time of other processes can only be read on Linux")
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in _PROCESSES.iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text("utf-8", "replace")
            except OSError:
                # Gone between the listing and the look.
                continue
            number = int(folder.name)
            # The name of the program, in brackets, may hold anything.
            fields = text[text.rindex(")") + 2 :].split()
            parents[number] = int(fields[1])
            # In user and system mode, its own and that of its children that have ended.
            ticks[number] = sum(map(int, fields[11:15]))
    roots = {os.getpid(), int(java)}
    counted = sum(of for number, of in ticks.items() if _belongs(number, roots, parents))
    return counted / os.sysconf("SC_CLK_TCK")


def _belongs(number: int, roots: set[int], parents: dict[int, int]) -> bool:
    while number and number not in roots:
        number = parents.get(number, 0)
    return number in roots
