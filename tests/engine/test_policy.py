"""What settings ask of the planner."""

from __future__ import annotations

import pytest

from headrace.engine.policy import planner_policy
from headrace.errors import SettingError
from headrace.planner.calibration import calibrated_probes
from headrace.settings import read_settings

COSTS = "spark.headrace.probe.costs"


def test_costs_of_probes_are_those_of_the_machine_or_as_asked() -> None:
    measured = calibrated_probes()
    assert planner_policy(read_settings({})).probe_tuning == measured
    asked = planner_policy(read_settings({COSTS: "90, 10"})).probe_tuning
    assert (asked.query, asked.match) == pytest.approx((90e-9, 10e-9))
    # What tables of many keys cost stays as it was measured.
    assert (asked.slots, asked.miss, asked.near) == (measured.slots, measured.miss, measured.near)


@pytest.mark.parametrize(
    "text", ["", "45", "45, 15, 1", "-1, 2", "0, 0", "nan, 1", "inf, 1", "a, b"]
)
def test_costs_that_are_none(text: str) -> None:
    with pytest.raises(SettingError, match="two numbers of nanoseconds"):
        read_settings({COSTS: text})
