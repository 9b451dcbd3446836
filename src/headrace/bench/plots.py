"""Plots of a report, as PNG files beside its JSON.

A bar chart of the seconds of all cases, and a line chart for every case whose notes hold a
``series``: {"x": label, "y": label, "lines": {name: [numbers]}, "at": [numbers], optional}.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headrace.bench.harness import Report


def write_plots(report: Report, json_file: Path) -> list[Path]:
    """Draw the report next to its JSON; without matplotlib (an extra) there are no plots."""
    try:
        import matplotlib
    except ImportError:
        return []
    # Benches run where there is no screen.
    matplotlib.use("Agg")
    written = [_bars(report, json_file.with_name(f"{json_file.stem}-seconds.png"))]
    for case in report.cases:
        if "series" in case.notes:
            name = re.sub(r"[^A-Za-z0-9]+", "-", case.case).strip("-")
            file = json_file.with_name(f"{json_file.stem}-{name}.png")
            written.append(_lines(f"{report.bench}: {case.case}", case.notes["series"], file))
    return written


def _bars(report: Report, file: Path) -> Path:
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for case in report.cases for name in case.seconds))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.35 * len(names) * len(report.cases)))
    height = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        places = [row + index * height for row, case in enumerate(report.cases)]
        axes.barh(
            places, [case.seconds.get(name, 0.0) for case in report.cases], height, label=name
        )
    centre = height * (len(names) - 1) / 2
    axes.set_yticks([row + centre for row in range(len(report.cases))])
    axes.set_yticklabels([case.case for case in report.cases])
    axes.invert_yaxis()
    axes.set_xlabel("seconds (less is better)")
    axes.set_title(f"{report.bench} ({report.scale})")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
    return file


def _lines(title: str, series: dict[str, Any], file: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for name, values in series["lines"].items():
        axes.plot(series.get("at") or range(1, len(values) + 1), values, label=name, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(series["x"])
    axes.set_ylabel(series["y"])
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
    return file
