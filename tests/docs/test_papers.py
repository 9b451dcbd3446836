"""Each part of each paper is done by a file that says so, or nothing is there to be done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.docs.papers import PAPERS, Citation, Paper, citations, citations_of, docstrings

#: Prose that names a part of a paper.
_NAMES_A_PART = re.compile(
    r"\b(Section|Algorithm|Theorem|Definition|Table|Rule|Equation|Eq\.)s?\s+[0-9IVX]"
)


def test_a_citation_names_its_paper_and_its_parts() -> None:
    file = Path("some.py")
    text = "About.\n\nPaper: One Paper, Section 4.2,\nAlgorithm 1.\nPaper: Other, Table II.\n"
    assert list(citations_of(text, file)) == [
        Citation("One Paper", "Section 4.2", file),
        Citation("One Paper", "Algorithm 1", file),
        Citation("Other", "Table II", file),
    ]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_each_part_has_a_file_or_a_reason(paper: Paper) -> None:
    cited = {c.part for c in citations() if c.paper == paper.name}
    assert not [p.name for p in paper.parts if not p.instead and p.name not in cited]
    assert not [p.name for p in paper.parts if p.instead and p.name in cited]


def test_citations_name_what_exists() -> None:
    parts = {(paper.name, part.name) for paper in PAPERS for part in paper.parts}
    assert len(parts) == sum(len(paper.parts) for paper in PAPERS)
    assert not [c for c in citations() if (c.paper, c.part) not in parts]


def test_citations_end_their_docstrings_in_one_form() -> None:
    """What begins like a citation is one, and nothing follows it."""
    for file, text in docstrings():
        name = str(file.relative_to(REPOSITORY))
        begun = len(re.findall(r"^\W*papers?:", text, re.MULTILINE | re.IGNORECASE))
        assert begun == len(re.findall(r"^Paper: ", text, re.MULTILINE)), name
        if begun:
            last = text[text.index("Paper: ") :]
            lines = r"(Paper: [^.\n]*, [^\n]*[,\d\w](\n[^\n]+[,\d\w])*\.(\n|$))+"
            assert re.fullmatch(lines, last), name
            assert text[: text.index("Paper: ")].endswith("\n\n"), name


def test_prose_about_a_paper_comes_with_a_citation() -> None:
    """A module that speaks of a paper's part is found from the page, too."""
    silent = [
        str(file.relative_to(REPOSITORY))
        for file, text in docstrings()
        if file.name != "__init__.py" and _NAMES_A_PART.search(text) and "Paper: " not in text
    ]
    assert not silent
