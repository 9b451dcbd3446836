"""Parts of documents that are made by the code they describe.

A part stands between ``<!-- generated: name -->`` and ``<!-- end -->``. ``pytest --update-golden``
writes it anew; without the switch, a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headrace.errors import SqlError
from headrace.optimizer import JOIN_RULES, STAGES
from headrace.planner import DECISIONS
from headrace.settings import settings_table
from headrace.sql import functions_table
from headrace.sql.refusals import REFUSALS
from tests.docs.papers import papers_part
from tests.sql.catalog import CATALOG
from tests.sql.test_refusals import EXAMPLES, MARK
from tests.support.registering import registered

#: Aggregates of two columns.
_OF_TWO = {"corr", "covar_pop", "covar_samp", "max_by", "min_by"}
#: Refusals that no query by itself meets.
_WITHOUT_TEXT = {
    "VIEW_CYCLE": "a view that reads itself: the view v would read itself by way of w; a view "
    "reads streams, tables, and views that do not read it",
    "INVALID_BUILDER_CALL": "a call of the builder that has no meaning",
}
_PART = re.compile(r"<!-- generated: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)


def parts(document: Path) -> dict[str, str]:
    """The generated parts of a document, by name."""
    return dict(_PART.findall(document.read_text(encoding="utf-8")))


def check_parts(document: Path, made: Mapping[str, str], update: bool) -> None:
    """Compare the parts of a document with what the code makes, or write them."""
    found = parts(document)
    assert made.keys() <= found.keys(), f"{document.name} lacks {made.keys() - found.keys()}"
    if update:
        text = document.read_text(encoding="utf-8")

        def written(part: re.Match[str]) -> str:
            body = made.get(part[1], part[2])
            return f"<!-- generated: {part[1]} -->\n{body}<!-- end -->"

        document.write_text(_PART.sub(written, text), encoding="utf-8")
        return
    for name, text in made.items():
        assert found[name] == text, f"{name} in {document.name} differs; run with --update-golden"


def settings_part() -> str:
    return settings_table() + "\n"


def refusals_part() -> str:
    """Every refusal with an example and the error it gives, in the order of the list itself."""
    lines = ["| condition | for example | the error says |", "|---|---|---|"]
    for refusal in REFUSALS:
        example = next((e for e in EXAMPLES if e.condition == refusal.name), None)
        if example is None:
            lines.append(f"| `{refusal.name}` | | {_WITHOUT_TEXT[refusal.name]} |")
            continue
        sql = example.sql.replace(MARK, "")
        lines.append(f"| `{refusal.name}` | `{_cell(sql)}` | {_cell(_error(sql))} |")
    return "\n".join(lines) + "\n"


def _error(sql: str) -> str:
    try:
        registered(sql, CATALOG)
    except SqlError as error:
        return f"{error.message}; {error.hint}" if error.hint else error.message
    raise AssertionError(f"not refused: {sql}")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def scalars_part() -> str:
    return _listed(functions_table.SCALARS)


def aggregates_part() -> str:
    from headrace.definitions.partials import decompose
    from headrace.plan.expressions import AggregateCall, Column
    from headrace.plan.types import BOOLEAN, DOUBLE

    def holistic(name: str, distinct: bool = False) -> bool:
        kind = BOOLEAN if name.startswith("bool") else DOUBLE
        arguments = (Column("x", kind),) * (2 if name in _OF_TWO else 1)
        return decompose(AggregateCall(name, arguments, kind, distinct)) is None

    names = sorted(functions_table.AGGREGATES)
    synonyms = (f"`{a}` = `{b}`" for a, b in sorted(functions_table.AGGREGATE_SYNONYMS.items()))
    return "\n".join(
        [
            "| kept as | aggregates |",
            "|---|---|",
            f"| partial aggregates | {_words(n for n in names if not holistic(n))} |",
            f"| rows | {_words(n for n in names if holistic(n))}, and any with `DISTINCT` "
            "where it changes the answer |",
            "",
            f"Other spellings: {', '.join(synonyms)}.",
            "",
        ]
    )


def _listed(names: Iterable[str]) -> str:
    return _words(sorted(names)) + "\n"


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def decisions_part() -> str:
    """What the planner decides, in its order."""
    lines = ["| decision | when | from | settings |", "|---|---|---|---|"]
    for decision in DECISIONS:
        figures = _words(decision.reads) or "the plans alone"
        settings = _words(decision.settings)
        lines.append(
            f"| `{decision.name}`: {decision.what} | {decision.when} | {figures} | {settings} |"
        )
    return "\n".join(lines) + "\n"


def switches_part() -> str:
    """All names of rules and decisions that can be turned off."""
    switchable = (rule for stage in STAGES for rule in stage.rules if not rule.always)
    rules = dict.fromkeys(rule.name for rule in switchable)
    return "\n".join(
        (
            f"- rules of the optimizer: {_words(rules)}",
            f"- rules for orders of joins: {_words(JOIN_RULES)}",
            f"- decisions: {_words(decision.name for decision in DECISIONS)}",
            "",
        )
    )


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "settings.md": {"settings": settings_part, "switches": switches_part},
    "design.md": {"decisions": decisions_part},
    "papers.md": {"papers": papers_part},
    "sql.md": {
        "refusals": refusals_part,
        "scalars": scalars_part,
        "aggregates": aggregates_part,
    },
}
