"""All parameters of the cost models, measured one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.calibration.probe_costs import probe_tuning
from headrace.calibration.row_costs import RowRuns, row_tuning
from headrace.cost.early_aggregation import Tuning
from headrace.cost.probing import ProbeTuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Size:
    """How much is measured: ``rows`` of each stream, how often, and keys of the largest index."""

    rows: int
    repeats: int
    probed_keys: int


SIZES = {
    "small": Size(400_000, 3, 1_000_000),
    "full": Size(1_000_000, 5, 4_000_000),
}


@dataclass(frozen=True)
class Calibration:
    """What was measured, for each of the cost models that need it."""

    rows: Tuning
    probes: ProbeTuning

    @property
    def seconds(self) -> dict[str, float]:
        """What each of the things costs that are done to a row."""
        return {
            "storing a row": self.rows.update,
            "probing a row": self.rows.probe,
            "grouping a row": self.rows.group,
            "a joined row": self.rows.pair,
            "looking a key up": self.probes.query,
            "a row found by a key": self.probes.match,
        }


def calibrate(
    spark: SparkSession, work: Path, size: Size, say: Callable[[str], None] = lambda line: None
) -> Calibration:
    """Measure; files are made under ``work``, and ``say`` is told what each run took."""
    rows = row_tuning(RowRuns(spark, work, size.rows, size.repeats, say))
    return Calibration(rows, probe_tuning(size.probed_keys))
