"""Plots of a report, as PNG files beside its JSON.

A bar chart of the seconds of all cases, a line chart for every case whose notes hold a ``series``:
{"x": label, "y": label, "lines": {name: [numbers]}, "at": [numbers], optional}, and what they hold
as ``bars`` (see ``bar_charts``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.harness.bar_charts import draw_bars
from benchmarks.harness.report import Report


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
            file = _beside(json_file, case.case)
            written.append(_lines(f"{report.bench}: {case.case}", case.notes["series"], file))
        for title, chart in case.notes.get("bars", {}).items():
            file = _beside(json_file, f"{case.case} {title}")
            written.append(draw_bars(f"{case.case}: {title}", chart, file))
    return written


def _beside(json_file: Path, title: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")
    return json_file.with_name(f"{json_file.stem}-{name}.png")


def _bars(report: Report, file: Path) -> Path:
    from matplotlib import pyplot

    bars = [
        (case.case, name, value) for case in report.cases for name, value in case.seconds.items()
    ]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.4 * len(bars)))
    # One colour per contestant, the same in every case.
    names = list(dict.fromkeys(name for _, name, _ in bars))
    colours = [f"C{names.index(name) % 10}" for _, name, _ in bars]
    drawn = axes.barh(range(len(bars)), [value for *_, value in bars], color=colours)
    axes.bar_label(drawn, fmt="%.3g", padding=3)
    axes.set_yticks(range(len(bars)))
    axes.set_yticklabels([f"{case}: {name}" for case, name, _ in bars])
    axes.invert_yaxis()
    axes.set_xlabel("seconds (less is better)")
    axes.set_title(f"{report.bench} ({report.scale})")
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
