"""Operations: every error condition and every field of the reports is explained."""

from __future__ import annotations

import re

from headrace.engine.epochs.report import EpochReport
from headrace.engine.introspection.progress import (
    OwnProgress,
    QueryState,
    epoch_progress,
    query_facts,
)
from headrace.sql.refusals import REFUSALS
from headrace.state.committed import Committed
from tests.conftest import REPOSITORY, SOURCES
from tests.docs.examples import document

TEXT = document("operations.md").read_text(encoding="utf-8")


def test_every_condition_is_explained() -> None:
    raised: set[str] = set()
    code_of_ours = [SOURCES / "headrace", REPOSITORY / "benchmarks"]
    for path in (path for folder in code_of_ours for path in folder.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        raised |= set(re.findall(r'\bcondition ?= ?"([A-Z_]+)"', code))
    errors = TEXT[TEXT.index("## Errors") :]
    explained = set(re.findall(r"^\| `([A-Z_]+)` \|", errors, re.MULTILINE))
    of_sql = {refusal.name for refusal in REFUSALS}
    # The base class has a name too, but is never raised by it alone.
    assert explained - of_sql == raised - of_sql - {"HEADRACE"}


def test_every_field_of_progress_is_explained() -> None:
    report = EpochReport(1)
    fields = {*epoch_progress(report, {})}
    facts = query_facts(report, frozenset(), {}, Committed())
    fields |= OwnProgress(facts, 1, 1, None).to_json("q").keys()
    state = QueryState("q", 1, starts_at=0, warning="w", paused={"l": "r"})
    state.waiting = {"rows": 1, "sinceEpoch": 1, "tries": 1, "error": "e"}
    status = {**state.status(), **state.waiting}
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert fields | status.keys() <= named


#: For each fault of the table, the tests that make it happen.
FAULTS = {
    "the process is killed, or the power fails": [
        "engine/crashes/test_crash.py::test_killed_once",
        "engine/checkpoint/test_power_cuts.py",
    ],
    "a sink does not take its rows": [
        "engine/epochs/test_outbox.py::test_rows_wait_in_order_and_survive_a_restart",
        "engine/epochs/test_outbox.py::test_a_folder_becomes_a_file_and_a_folder_again",
    ],
    "the disk under a sink is full": [
        "engine/epochs/test_failures.py::test_a_full_disk_under_a_sink"
    ],
    "more rows wait for a sink than `sink.outboxRows`": [
        "engine/epochs/test_outbox.py::test_too_much_waits_and_the_query_goes_on_from_there"
    ],
    "a query fails beside others": [
        "engine/epochs/test_failures.py::test_a_failing_expression_hurts_its_own_query_only",
        "engine/epochs/test_failed_queries.py::test_a_mended_query_goes_on_from_the_failed_epoch",
    ],
    "the only query fails, or all do": [
        "engine/epochs/test_failures.py::test_the_only_query_fails_and_nothing_is_lost"
    ],
    "new rows of a stream cannot be read": [
        "engine/epochs/test_failures.py::test_a_file_that_cannot_be_read"
    ],
    "a source ends with an error": [
        "engine/epochs/test_failures.py::test_a_source_that_disappears"
    ],
    "a file of the state is damaged or gone, also of rows that wait for a sink or are kept for a "
    "query": [
        "engine/epochs/test_failed_queries.py::test_a_damaged_state_file_stops_everybody",
        "engine/epochs/test_failed_queries.py::test_rows_that_were_kept_are_damaged",
        "engine/epochs/test_outbox.py::test_rows_that_wait_are_damaged",
    ],
    "the disk of the checkpoint is full": ["engine/epochs/test_failures.py::test_a_full_disk"],
    "another process takes the checkpoint over": ["engine/checkpoint/test_lease.py"],
    "a folder of a sink belongs to somebody else": ["engine/sinks/test_sink_owners.py"],
}


def test_every_fault_of_the_table_is_made_to_happen() -> None:
    section = TEXT[TEXT.index("## When something fails") : TEXT.index("### Sinks that do not")]
    listed = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    assert [fault for fault in listed if fault not in ("fault", "---")] == list(FAULTS)
    for tests in FAULTS.values():
        for test in tests:
            file, _, function = test.partition("::")
            code = (REPOSITORY / "tests" / file).read_text(encoding="utf-8")
            assert f"def {function or 'test_'}" in code, test


def test_the_faults_of_the_table_are_in_the_default_run() -> None:
    """Each by at least one test that is not marked slow as a whole."""
    for fault, tests in FAULTS.items():
        files = {(REPOSITORY / "tests" / test.partition("::")[0]) for test in tests}
        codes = [file.read_text(encoding="utf-8") for file in files]
        assert any("pytestmark = pytest.mark.slow" not in code for code in codes), fault
