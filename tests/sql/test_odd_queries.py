"""SQL that parses and is seldom written: it means what Spark means by it, or is refused.

``odd.txt`` holds the queries and says what is expected of each.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.errors import SqlError
from tests.sql.catalog import CATALOG
from tests.sql.test_refusals import _place
from tests.support.registering import registered

TEXT = Path(__file__).with_name("odd.txt").read_text(encoding="utf-8")
SAME = re.findall(r"^(\S.*)\n  = (.*)$", TEXT, re.MULTILINE)
REFUSED = re.findall(r"^([A-Z_]+): (.*)$", TEXT, re.MULTILINE)


def test_the_file_is_read() -> None:
    assert len(SAME) > 25
    assert len(REFUSED) > 90


@pytest.mark.parametrize(("odd", "plain"), SAME)
def test_odd_spellings_mean_the_same(odd: str, plain: str) -> None:
    assert registered(odd, CATALOG) == registered(plain, CATALOG)


@pytest.mark.parametrize(("condition", "marked"), REFUSED)
def test_refused_at_its_place(condition: str, marked: str) -> None:
    sql, position = _place(marked)
    with pytest.raises(SqlError) as caught:
        registered(sql, CATALOG)
    error = caught.value
    assert (error.condition, error.position) == (condition, position), str(error)
    assert error.hint
    assert "\n" not in str(error)
