"""What documents list is what the code has."""

from __future__ import annotations

import pytest

from tests.docs.examples import document
from tests.docs.generated import PARTS, check_parts


@pytest.mark.parametrize("name", PARTS)
def test_generated_parts(name: str, update_golden: bool) -> None:
    made = {part: make() for part, make in PARTS[name].items()}
    check_parts(document(name), made, update_golden)
