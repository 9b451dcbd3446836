"""``headrace calibrate``: figures are measured, kept by machine, and read by planners."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.calibration.calibrate import SIZES, Calibration, Size
from headrace.cli import main
from headrace.cli.calibrate import Scale
from headrace.cost.early_aggregation import Tuning
from headrace.cost.probing import ProbeTuning
from headrace.planner.calibration import (
    calibrated,
    calibrated_probes,
    calibration_file,
    machine_name,
    store_calibration,
)


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_measures_and_keeps(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setitem(SIZES, "small", Size(rows=4_000, repeats=1, probed_keys=20_000))
    with pytest.raises(SystemExit) as exit_:
        main(["calibrate", "--json"])
    assert exit_.value.code in (0, None)
    report = json.loads(capsys.readouterr().out)
    assert (report["file"], report["machine"]) == (str(calibration_file()), machine_name())
    assert len(report["seconds"]) == 6
    assert all(0 < seconds < 1 for seconds in report["seconds"].values())
    rows, probes = calibrated(), calibrated_probes()
    assert Calibration(rows, probes).seconds == report["seconds"]
    assert rows != Tuning()
    assert probes != ProbeTuning()


def test_figures_are_kept_for_each_machine(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "calibration.json"
    rows = replace(Tuning(), probe=1e-3)
    probes = replace(ProbeTuning(), match=2e-3)
    store_calibration(rows, probes, file)
    assert (calibrated(file), calibrated_probes(file)) == (rows, probes)
    known = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({"another machine": known[machine_name()]}), encoding="utf-8")
    # Of this machine nothing is known now.
    assert (calibrated(file), calibrated_probes(file)) == (Tuning(), ProbeTuning())
    store_calibration(rows, probes, file)
    assert json.loads(file.read_text(encoding="utf-8")).keys() == {
        "another machine",
        machine_name(),
    }


def test_a_file_that_makes_no_sense_is_as_none(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text("{", encoding="utf-8")
    assert calibrated(file) == Tuning()


def test_what_is_told_is_what_is_kept() -> None:
    rows, probes = Tuning(1.0, 2.0, 3.0, 4.0), replace(ProbeTuning(), query=5.0, match=6.0)
    told = Calibration(rows, probes).seconds
    assert tuple(told.values()) == (*astuple(rows), 5.0, 6.0)


def test_the_command_knows_every_size() -> None:
    assert [scale.value for scale in Scale] == list(SIZES)
