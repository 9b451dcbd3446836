"""Workloads of many windows over one grouping: which panes are stored for them.

Sets of windows are the paper's random and sequential ones, windows that are each other's multiples,
windows that have no divisor but a millisecond in common, and a few odd ones; streams have few keys,
as many keys as rows, few rows, or a load that changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.choices.streams import Phase, StreamOf, Workload, uniform, zipf
from benchmarks.windows.window_sets import SETUPS, window_set, windows_sql
from headrace.plan.windows import Hopping

SECOND = 1_000
#: Seconds of event time of an epoch.
EPOCH = 200


def _windows(*figures: tuple[float, float]) -> tuple[Hopping, ...]:
    return tuple(Hopping(int(length * SECOND), int(slide * SECOND)) for length, slide in figures)


SETS: Mapping[str, tuple[Hopping, ...]] = {
    **{
        name: window_set(setup, 0)
        for setup in SETUPS
        if (name := setup.name)
        in ("R-5-tumbling", "R-5-hopping", "S-10-tumbling", "S-10-hopping", "R-20-tumbling")
    },
    "multiples": _windows((10, 10), (20, 20), (60, 60), (120, 60)),
    "without divisor": _windows((11, 11), (13, 13), (17, 17), (19, 19)),
    "two families": _windows((10, 10), (20, 20), (40, 40), (7, 7), (14, 14), (49, 49)),
    "short and long": _windows((1, 1), (60, 30), (150, 50)),
    "finely sliding": _windows((60, 1), (120, 60)),
}
#: Rows of an epoch, and their keys, in each phase.
LOADS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "few keys": ((150_000, 50),),
    "many keys": ((150_000, 30_000),),
    "few rows": ((2_000, 500),),
    "keys that grow": ((150_000, 50), (150_000, 30_000)),
}


def window_workloads(length: int) -> Iterator[Workload]:
    """Each set of windows with each load; phases of so many epochs."""
    for set_name, windows in SETS.items():
        for load, figures in LOADS.items():
            phases = tuple(
                Phase(rows, {"k": uniform(keys) if keys < 1_000 else zipf(keys, 0.2)})
                for rows, keys in figures
            )
            sql = (
                "SELECT k, window, window_id, SUM(v) AS total FROM s "
                f"GROUP BY k, {windows_sql(windows)}"
            )
            yield Workload(
                f"windows/{set_name}/{load}",
                sql,
                (StreamOf("s", phases),),
                (length,) * len(phases),
                (load,),
                step=EPOCH * SECOND,
            )
