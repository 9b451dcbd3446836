"""The tuning parameters of the cost models as they were measured on a machine.

``headrace calibrate`` writes them to a file, by the machine's name, and whoever plans reads
those of the machine it runs on. Without a file the parameters of the machine that the documents
quote are taken: only their ratios matter, and these differ little.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from headrace.cost.early_aggregation import Tuning
from headrace.cost.probing import ProbeTuning

T = TypeVar("T")


def calibration_file() -> Path:
    """Where measured parameters are kept, for all of a user's projects."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "headrace" / "calibration.json"


def machine_name() -> str:
    return platform.node() or "this machine"


#: Which parameters those of each cost model are, in the file.
_EARLY, _PROBING = "early_aggregation", "probing"


def calibrated(file: Path | None = None) -> Tuning:
    """The parameters of this machine, or the usual ones where they were never measured."""
    return _read(Tuning, _EARLY, file)


def calibrated_probes(file: Path | None = None) -> ProbeTuning:
    return _read(ProbeTuning, _PROBING, file)


def _read(kind: type[T], name: str, file: Path | None) -> T:
    place = file or calibration_file()
    try:
        by_machine = json.loads(place.read_text(encoding="utf-8"))
        return kind(**by_machine[machine_name()][name])
    except (OSError, ValueError, KeyError, TypeError):
        return kind()


def store_calibration(tuning: Tuning, probing: ProbeTuning, file: Path | None = None) -> Path:
    """Note this machine's parameters beside those of others."""
    place = file or calibration_file()
    try:
        by_machine = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        by_machine = {}
    by_machine[machine_name()] = {_EARLY: asdict(tuning), _PROBING: asdict(probing)}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(by_machine, indent=2) + "\n", encoding="utf-8")
    return place
