"""Bar charts of probe orders, as in Figures 2 and 3 of the paper on multi-way joins.

``python -m headrace.bench.probe_plots REPORT.json`` draws what notes of cases hold as ``bars``:
{title: {"x": label, "y": label, "groups": [names], "bars": {contestant: [numbers]}}}. Figures 4
and 5 are ``series``, which are drawn with every report.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH = 0.8


def write_bars(report: Mapping[str, Any], json_file: Path) -> list[Path]:
    """Draw the bars of a report next to its JSON; without matplotlib (an extra) there are none."""
    try:
        import matplotlib
    except ImportError:
        return []
    # Benches run where there is no screen.
    matplotlib.use("Agg")
    written = []
    for case in report["cases"]:
        for title, chart in case["notes"].get("bars", {}).items():
            name = re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")
            file = json_file.with_name(f"{json_file.stem}-{name}.png")
            written.append(_chart(f"{case['case']}: {title}", chart, file))
    return written


def _chart(title: str, chart: Mapping[str, Any], file: Path) -> Path:
    from matplotlib import pyplot

    groups, bars = chart["groups"], chart["bars"]
    figure, axes = pyplot.subplots(figsize=(max(6.0, 2 + 0.6 * len(groups)), 4.5))
    thickness = WIDTH / len(bars)
    for number, (name, values) in enumerate(bars.items()):
        left = (number + 0.5) * thickness - WIDTH / 2
        axes.bar([at + left for at in range(len(groups))], values, thickness, label=name)
    axes.set_xticks(range(len(groups)))
    axes.set_xticklabels(groups, rotation=60, ha="right")
    axes.set_xlabel(chart["x"])
    axes.set_ylabel(chart["y"])
    axes.set_title(title)
    # Beside the bars, which would hide behind it.
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
    return file


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for plot in write_bars(json.loads(Path(argument).read_text("utf-8")), Path(argument)):
            print(f"wrote {plot}")
