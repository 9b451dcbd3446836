"""What a run costs: the seconds of each worker, and of the files in which most of them are spent.

``--costs`` prints it. Times are those of a clock on the wall, so they say something only of a
machine that does nothing else.
"""

from __future__ import annotations

from collections import Counter

import pytest


def add_costs_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--costs", action="store_true", default=False, help="print which files cost how much"
    )


class Costs:
    """The plugin: adds up the times of all reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._wanted = config.getoption("--costs") and not hasattr(config, "workerinput")
        self._files: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()
        self._workers: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._files[file] += report.duration
        self._tests[file] += report.when == "call"
        self._workers[getattr(report, "worker_id", "main")] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        whole = self._files.total()
        if not self._wanted or not whole:
            return
        terminalreporter.section("costs")
        for name, seconds in sorted(self._workers.items()):
            terminalreporter.write_line(f"{seconds:8.0f} s  {name}")
        so_far = 0.0
        for file, seconds in self._files.most_common():
            so_far += seconds
            terminalreporter.write_line(
                f"{seconds:8.1f} s  {so_far / whole:4.0%}  {self._tests[file]:4} tests  {file}"
            )
            if so_far > 0.95 * whole:
                break
