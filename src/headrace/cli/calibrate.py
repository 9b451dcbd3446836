"""``headrace calibrate``: measure what rows cost on this machine, for whoever plans on it."""

from __future__ import annotations

import json as json_text
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.console import err, note, out


class Scale(StrEnum):
    """As the keys of ``headrace.calibration.calibrate.SIZES``, which imports Spark."""

    small = "small"
    full = "full"


# The memory that the figures which Headrace comes with were measured with.
_SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
}


def calibrate(
    context: typer.Context,
    scale: Annotated[
        Scale, typer.Option(help="small ends in about two minutes; full measures more rows.")
    ] = Scale.small,
    json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON, and the rest to stderr.")
    ] = False,
) -> None:
    """Measure what rows cost on this machine, and keep it for planning.

    Figures go to ~/.config/headrace/calibration.json, by the machine's name.
    Plans are chosen by them from then on, and by those of another machine until then.
    """
    from headrace.calibration.calibrate import SIZES
    from headrace.calibration.calibrate import calibrate as measure
    from headrace.cli.spark import spark_session
    from headrace.planner.calibration import machine_name, store_calibration

    with (
        tempfile.TemporaryDirectory(prefix="headrace-calibrate-") as folder,
        err.status("starting Spark") as status,
        spark_session("headrace calibrate", _SETTINGS, debug=bool(context.obj)) as spark,
    ):
        status.update("measuring")
        measured = measure(spark, Path(folder), SIZES[scale.value], note)
    file = store_calibration(measured.rows, measured.probes)
    if json:
        report = {"machine": machine_name(), "file": str(file), "seconds": measured.seconds}
        print(json_text.dumps(report, indent=1))
        return
    for name, seconds in measured.seconds.items():
        out.print(f"{name:20} {seconds * 1e9:7.1f} ns", highlight=False)
    note(f"wrote {file}")
