"""Judge the workloads whose names contain a text, without Spark.

python -m benchmarks.choices TEXT [FILE]; the cases go into the file as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.choices.choices import KINDS, SIZES, case_of, figures_of, text_of
from benchmarks.choices.judging import Verdict, all_workloads, judge
from headrace.contestants import empty_folder


def main(wanted: str, file: Path | None) -> None:
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="headrace-choices-") as folder:
        for workload in all_workloads(SIZES["full"].length):
            if wanted in workload.name:
                verdicts.append(judge(workload, empty_folder(Path(folder) / "choices")))
                print(text_of(verdicts[-1]), flush=True)
                for change in verdicts[-1].changes:
                    print(f"    {change}")
    if file is not None:
        cases = [case_of(verdict).to_json() for verdict in verdicts]
        file.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    for kind in KINDS:
        own = [verdict for verdict in verdicts if verdict.kind == kind]
        if own:
            for name, value in figures_of(kind, own).items():
                print(f"{name}: {value:.3g}")


if __name__ == "__main__":
    text, *rest = [*sys.argv[1:], ""][:3]
    main(text, Path(rest[0]) if rest and rest[0] else None)
