"""How much random tests tried: queries, the rows that were expected of them, and how many had any.

A query of which nothing is expected proves nothing. A group (the runs of one test function) whose
queries mostly expect none fails the whole run, however green its tests are. The figures travel
with the reports of tests, so they add up over the workers of pytest-xdist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pytest

LEAST_SHARE = 0.8
#: A group of fewer queries says little about its generator.
LEAST_QUERIES = 10
_PROPERTY = "tally"


@dataclass
class Tally:
    """What one test, or one group of them, tried."""

    sets: int = 0
    queries: int = 0
    rows: int = 0
    productive: int = 0

    def add(self, rows: int) -> None:
        """A query of which so many rows were expected."""
        self.queries += 1
        self.rows += rows
        self.productive += rows > 0

    def include(self, other: Tally) -> None:
        for name, figure in asdict(other).items():
            setattr(self, name, getattr(self, name) + figure)

    @property
    def is_vacuous(self) -> bool:
        return self.queries >= LEAST_QUERIES and self.productive < LEAST_SHARE * self.queries

    def __str__(self) -> str:
        sets = f"{self.sets} sets, " if self.sets else ""
        share = self.productive / max(1, self.queries)
        return (
            f"{sets}{self.queries} queries, {self.rows} rows expected, "
            f"{self.productive} outputs not empty ({share:.0%})"
        )


@pytest.fixture
def tally() -> Tally:
    """Counts what a random test tries."""
    return Tally()


class Tallies:
    """The plugin: adds up what tests counted, prints it, and fails a run that tried too little."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_worker = hasattr(config, "workerinput")
        self._groups: dict[str, Tally] = defaultdict(Tally)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        counted = getattr(item, "funcargs", {}).get("tally")
        if call.when == "call" and isinstance(counted, Tally):
            item.user_properties.append((_PROPERTY, asdict(counted)))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        group = report.nodeid.partition("[")[0]
        for name, figures in report.user_properties:
            if name == _PROPERTY and isinstance(figures, dict):
                self._groups[group].include(Tally(**figures))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        vacuous = any(group.is_vacuous for group in self._groups.values())
        if vacuous and not self._is_worker and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._is_worker or not self._groups:
            return
        terminalreporter.section("random queries")
        for name, group in sorted(self._groups.items()):
            terminalreporter.write_line(f"{name}: {group}")
            if group.is_vacuous:
                terminalreporter.write_line(
                    f"FAILED {name}: of at least {LEAST_SHARE:.0%} of its queries rows must be "
                    "expected, or they prove nothing",
                    red=True,
                )
