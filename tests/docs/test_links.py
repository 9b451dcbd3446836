"""Links between documents lead somewhere, and named files are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(document: Path) -> set[str]:
    """Anchors of headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _without_code(document.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_all_documents_are_there() -> None:
    names = {path.name for path in DOCUMENTS}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "semantics.md", "sql.md"} <= names


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links(document: Path) -> None:
    text = _without_code(document.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in _anchors(file), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_document_is_reachable_from_the_readme(document: Path) -> None:
    if document.name != "README.md":
        readme = (REPOSITORY / "README.md").read_text("utf-8")
        assert str(document.relative_to(REPOSITORY)) in readme


def test_paths_in_contributing_exist() -> None:
    text = _without_code((REPOSITORY / "CONTRIBUTING.md").read_text("utf-8"))
    code = REPOSITORY / "src" / "headrace"
    roots = (REPOSITORY, code, code / "sql", code / "engine")
    for name in re.findall(r"`([\w./]+(?:\.py|\.md|/))`", text):
        if name == ".hypothesis/":
            continue
        assert any((root / name).exists() for root in roots), name
