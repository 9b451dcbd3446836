"""Rule fixtures: cases of SQL, the plan before, and the plan after, in readable text files.

    # about the file
    # after: push_filter_through_project        rules that run before, where a rule needs them

    -- title of a case
    SELECT … the query

    before
      the plan as written
    after
      the plan after the rule, or the word 'unchanged'

``pytest --update-golden`` writes all but titles and queries anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Case:
    title: str
    query: str
    before: str
    after: str


@dataclass(frozen=True)
class FixtureFile:
    header: str
    cases: tuple[Case, ...]

    @property
    def rules_before(self) -> tuple[str, ...]:
        """Rules that run first, so that the rule meets what it is about."""
        for line in self.header.splitlines():
            if line.startswith("# after: "):
                return tuple(line.removeprefix("# after: ").split(", "))
        return ()


def read_fixture(path: Path) -> FixtureFile:
    header: list[str] = []
    cases: list[Case] = []
    sections: dict[str, list[str]] = {}
    title = None
    section = "query"

    def finish() -> None:
        if title is not None:
            texts = {name: "\n".join(lines).strip("\n") for name, lines in sections.items()}
            cases.append(
                Case(title, texts["query"], texts.get("before", ""), texts.get("after", ""))
            )

    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-- "):
            finish()
            title, section, sections = line[3:].strip(), "query", {"query": []}
        elif title is None:
            header.append(line)
        elif line in ("before", "after"):
            section = line
            sections[section] = []
        elif section == "query":
            sections[section].append(line)
        else:
            sections[section].append(line.removeprefix("  "))
    finish()
    return FixtureFile("\n".join(header).strip("\n"), tuple(cases))


def fixture_text(fixture: FixtureFile) -> str:
    blocks = [fixture.header]
    for case in fixture.cases:
        blocks.append(
            f"-- {case.title}\n{case.query}\n\n"
            f"before\n{_indented(case.before)}\nafter\n{_indented(case.after)}"
        )
    return "\n\n".join(blocks) + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())
