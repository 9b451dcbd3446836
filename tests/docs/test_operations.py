"""Operations: every error condition and every field of the reports is explained."""

from __future__ import annotations

import re

from headrace.engine.checkpoint import Committed
from headrace.engine.progress import QueryState, epoch_progress, query_progress
from headrace.engine.report import EpochReport
from headrace.sql.refusals import REFUSALS
from tests.conftest import SOURCES
from tests.docs.examples import document

TEXT = document("operations.md").read_text(encoding="utf-8")


def test_every_condition_is_explained() -> None:
    raised: set[str] = set()
    for path in (SOURCES / "headrace").rglob("*.py"):
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
    fields |= {*query_progress("q", report, frozenset(), {}, Committed()), "totalOutputRows"}
    status = QueryState("q", 1, visible_from=0, warning="w", paused={"l": "r"}).status()
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert fields | status.keys() <= named
