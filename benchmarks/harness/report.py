"""What a bench is given to run with, and the one shape of what it reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import BenchError
from headrace.native.compare import Case, rounded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

# ``tiny`` is for the tests of the benches: it says that they run, and nothing about speed.
SCALES = ("tiny", "small", "full")


@dataclass(frozen=True)
class Setup:
    """What a bench is given to run with, and where it tells how far it is."""

    scale: str
    spark: SparkSession
    work: Path
    say: Callable[[str], None] = lambda line: None
    advance: Callable[[float], None] = lambda share: None

    def part(self, share: float) -> Callable[[float], None]:
        """An ``advance`` for a piece of work that is this share of the whole."""
        return lambda done: self.advance(share * done)


@dataclass(frozen=True)
class Report:
    """All that a bench found, in the one shape that every bench has."""

    bench: str
    scale: str
    machine: Mapping[str, int | str]
    cases: Sequence[Case]
    summary: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "scale": self.scale,
            "machine": dict(self.machine),
            "cases": [case.to_json() for case in self.cases],
            "summary": {name: rounded(value) for name, value in self.summary.items()},
        }

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    def require_equal(self) -> None:
        """Fail if any comparison was not one, because the contestants disagree."""
        for case in self.cases:
            if not case.equal:
                reason = case.notes.get("difference", "no details")
                raise BenchError(f"results differ in {case.case}: {reason}")


def describe_machine(spark: SparkSession) -> dict[str, int | str]:
    """Name the machine, as the numbers mean nothing without it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = spark.sparkContext._jvm.System.getProperty(  # type: ignore[union-attr]
        "java.specification.version"
    )
    return {
        "cores": cores or 1,
        "memory_gb": round(memory / 2**30),
        "spark": spark.version,
        "java": str(java),
    }


def as_table(report: Report) -> Table:
    """The report for people: ratios first, then what they are ratios of."""
    from rich.table import Table
    from rich.text import Text

    machine = report.machine
    title = (
        f"{report.bench} ({report.scale}) on {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"Spark {machine['spark']}, Java {machine['java']}"
    )
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("case", overflow="fold")
    table.add_column("ratio", style="bold", no_wrap=True)
    table.add_column("seconds", no_wrap=True)
    for case in report.cases:
        said = Text(f"{case.case}\n{case.rows:,} rows, ")
        said.append(*(("results equal", "green") if case.equal else ("RESULTS DIFFER", "bold red")))
        if "target" in case.notes:
            said.append(f"\ntarget: {case.notes['target']}", "dim")
        table.add_row(
            said,
            "\n".join(f"{name} {value:.2f}" for name, value in case.ratio.items()),
            "\n".join(f"{name} {value:.3f}" for name, value in case.seconds.items()),
        )
    return table
