"""Groups of bars, such as the seconds of several contestants in several settings.

``bars`` in the notes of a case are charts by title:
{"x": label, "y": label, "groups": [names], "bars": {contestant: [numbers]}}.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH = 0.8


def draw_bars(title: str, chart: Mapping[str, Any], file: Path) -> Path:
    """Draw one chart."""
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
