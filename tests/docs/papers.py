"""The parts of the five papers, and which files do what they say.

A module that does what a part of a paper says names it in the last lines of its docstring:

    Paper: Factor Windows, Section II-B, Theorem 1,
    Theorem 3.

A line for each paper, which may go on in the next one and ends with a full stop. The parts are
those listed here. Those that no file does say why.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY

_CITATION = re.compile(r"^Paper: (.*?)\.$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A section, algorithm, or the like. ``instead`` says why no file does it."""

    name: str
    about: str
    instead: str = ""


@dataclass(frozen=True)
class Paper:
    """``name`` is what modules call it by."""

    name: str
    title: str
    parts: tuple[Part, ...]


#: What has no code of its own, and needs none.
INTRODUCTION = "says what the paper is for"
RELATED = "compares the paper with others"
CONCLUSION = "sums up"
PROOFS = "proves what the paper says; tests compare it with what windows hold"

PAPERS = (
    Paper(
        "Factor Windows",
        "Factor Windows: Cost-based Query Rewriting for Optimizing Correlated Window Aggregates "
        "(W. Wu, P. A. Bernstein, A. Raizman, C. Pavlopoulou)",
        (
            Part("Section I", "introduction", INTRODUCTION),
            Part("Section II-A", "windows as sets of intervals"),
            Part("Section II-B", "windows that are made of the intervals of others"),
            Part("Definition 1", "one window covered by another"),
            Part("Theorem 1", "when a window is covered"),
            Part("Definition 2", "the intervals that one interval is made of"),
            Part("Theorem 3", "how many these are"),
            Part("Definition 5", "one window partitioned by another"),
            Part("Theorem 4", "when a window is partitioned"),
            Part("Section II-C", "the graph of who can be computed from whom"),
            Part("Section III-A", "which aggregates can be computed from parts"),
            Part("Theorem 5", "partitioned by: parts of any such aggregate will do"),
            Part("Theorem 6", "covered by: minimum and maximum may see a row twice"),
            Part("Section III-B", "what a graph costs, and the cheapest one"),
            Part("Equation 1", "how often a window occurs in a period"),
            Part("Algorithm 1", "each window from the cheapest of the others"),
            Part("Section III-C", "from a graph to a plan that runs"),
            Part("Theorem 7", "the cheapest graph is a forest"),
            Part("Definition 6", "windows that nobody asked for, computed to save work"),
            Part("Section IV-A", "what a factor window saves"),
            Part("Equation 2", "the benefit of a factor window"),
            Part("Section IV-B", "candidates, and the best of them"),
            Part("Algorithm 2", "the best factor window where intervals may overlap"),
            Part("Section IV-C", "all of it together, and that it is a Steiner tree"),
            Part("Algorithm 3", "the cheapest graph with factor windows"),
            Part("Section IV-D", "factor windows that tumble"),
            Part("Algorithm 4", "whether a tumbling factor window helps"),
            Part("Algorithm 5", "the best tumbling factor window"),
            Part("Section V-A", "sets of windows to measure with"),
            Part("Algorithm 6", "random sets of windows"),
            Part("Section V-B", "throughput on synthetic data"),
            Part("Table I", "speed-ups for sets of five and ten"),
            Part("Section V-C", "throughput on real data", "benches make their streams up"),
            Part("Table II", "speed-ups on real data, shown beside ours"),
            Part("Section V-D", "larger sets"),
            Part("Table III", "speed-ups for sets of 15 and 20"),
            Part("Section V-E", "how long planning takes"),
            Part("Section V-F", "against a system that slices", "not compared with other engines"),
            Part("Section VI", "related work", RELATED),
            Part("Section VII", "conclusion", CONCLUSION),
            Part("Appendix", "proofs, and more measurements", PROOFS),
        ),
    ),
    Paper(
        "Window Join Reordering",
        "Unraveling the Impact of Window Semantics: Optimizing Join Order for Efficient Stream "
        "Processing (A. Ziehn, S. Zeuch and others, PVLDB 18(8), 2025)",
        (
            Part("Section 1", "introduction", INTRODUCTION),
            Part("Section 2.1", "streams, and queries as graphs of operators"),
            Part("Section 2.2", "the kinds of window joins, and which time they hand on"),
            Part("Table 1", "the parameters of each kind"),
            Part("Section 3.1", "exchanging the sides of sliding window joins (C1)"),
            Part("Section 3.2", "the same for session joins (C2)"),
            Part("Section 3.3", "the same for interval joins (C3 and C4)"),
            Part("Section 4.1", "reordering sliding window joins (A1 to A4)"),
            Part("Section 4.2", "the same for session joins (A5)"),
            Part("Section 4.3", "the same for interval joins (A6 and A7)"),
            Part("Section 5.1", "bounds that change places"),
            Part("Section 5.2", "the largest window first, or alone"),
            Part("Section 5.3", "which window belongs to which pair of streams"),
            Part(
                "Algorithm 1",
                "all pairs with their windows",
                "conditions are kept by their pairs (`plan/join_graph.py`); as published it is in "
                "the tests, which compare with it",
            ),
            Part("Table 2", "what holds, what is acquired, what fails"),
            Part("Section 5.4", "three levels of freedom"),
            Part("Section 6.1", "enumeration of orders, and what they cost"),
            Part(
                "Algorithm 2",
                "all valid orders",
                "`optimizer/joins/search.py` finds the best of more; as published it is in the "
                "tests, which compare with it",
            ),
            Part("Section 6.2", "in an engine: few statistics, windows of several kinds"),
            Part("Table 3", "the queries, and the rates of their intermediate results"),
            Part("Section 7.1", "queries and arrival rates to measure with"),
            Part("Section 7.2", "all orders give the same rows"),
            Part("Section 7.3.1", "windows that overlap"),
            Part("Section 7.3.2", "windows that do not"),
            Part("Section 7.3.3", "intervals"),
            Part("Section 7.3.4", "more streams, and windows of several kinds"),
            Part("Section 7.3.5", "other shares of the rate"),
            Part(
                "Section 7.3.6",
                "memory and latency",
                "joins keep no intermediate results here; `benchmarks/engine/` has both for the "
                "engine as a whole",
            ),
            Part("Section 7.4", "what was observed", CONCLUSION),
            Part("Section 8", "related work", RELATED),
            Part("Section 9", "conclusion", CONCLUSION),
        ),
    ),
    Paper(
        "Early Aggregation",
        "The work on continuous aggregation join queries over data streams",
        (
            Part("Section 1", "introduction", INTRODUCTION),
            Part("Section 2", "related work", RELATED),
            Part("Section 3", "streams, windows, joins of windows"),
            Part("Definition 1", "a window at a time"),
            Part("Definition 2", "what enters a window, and what leaves it"),
            Part("Section 4", "how such queries are processed"),
            Part("Definition 3", "sets of groups"),
            Part("Definition 4", "keeping a set up to date"),
            Part("Definition 5", "rows that are all alike"),
            Part("Definition 6", "rows joined with a set"),
            Part("Section 5", "which plans there are"),
            Part("Rule 1", "what a set groups by"),
            Part("Rule 2", "what a set computes"),
            Part("Section 6.1", "the steps for each row that comes or goes"),
            Part("Figure 5", "the output follows what enters and leaves the windows"),
            Part(
                "Section 6.2",
                "all plans give the same rows",
                "proved there; here tests compare every plan with the oracle",
            ),
            Part("Section 6.3", "what plans cost, and which is taken"),
            Part("Equations 1-4", "the four plans of a join of two streams"),
            Part("Section 7.1.1", "costs of hash joins and of nested loops"),
            Part("Equations 5-12", "the four plans by either"),
            Part("Equations 13-22", "sizes and matches from what is known of the streams"),
            Part("Section 7.1.2", "data to measure with"),
            Part("Section 7.2.1", "whether the model predicts what is measured"),
            Part("Section 7.2.2", "one parameter after the other"),
            Part("Section 7.2.3", "settings in which another plan is best"),
            Part("Section 8", "conclusion", CONCLUSION),
            Part("Appendix A", "proofs for 6.2", "proves that plans are equal"),
            Part("Appendix B", "where Equations 13-22 come from"),
        ),
    ),
    Paper(
        "Multi-Way Joins",
        "Runtime-Optimized Multi-way Stream Join Operator for Large-scale Streaming Data "
        "(J. Hu, T. Qiu)",
        (
            Part("Section 1", "introduction", INTRODUCTION),
            Part("Section 2", "related work", RELATED),
            Part("Section 3.1", "one operator for all inputs, and what it keeps"),
            Part("Algorithm 1", "rows come, rows expire, and now and then orders change"),
            Part("Algorithm 2", "probing one input after the other"),
            Part("Section 3.2", "what a sequence of probes costs"),
            Part("Equations 1-3", "a probe, and all that follow it"),
            Part("Section 4.1", "what the parts of a probe cost"),
            Part("Equations 4-8", "looking up, matching, and both"),
            Part("Section 4.2", "the best order for each input"),
            Part("Algorithm 3", "the cheapest sequence of each input (dpPick)"),
            Part("Algorithm 4", "all sequences"),
            Part("Section 4.3", "what is observed, and what is expected next"),
            Part("Equation 9", "how many probes find anything"),
            Part("Equation 10", "and how many rows they find"),
            Part("Equation 11", "how many keys an input has"),
            Part("Section 5.1", "the query and its data"),
            Part("Section 5.2", "other ways to choose"),
            Part("Section 5.3", "what each half of the model is worth"),
            Part("Section 5.4", "how long a cycle is, and how long the history"),
            Part("Section 6", "conclusion", CONCLUSION),
        ),
    ),
    Paper(
        "Query Merging",
        "Incremental Stream Query Merging (A. Chaudhary, J. Karimov, S. Zeuch, V. Markl, "
        "EDBT 2023)",
        (
            Part("Section 1", "introduction", INTRODUCTION),
            Part("Section 2", "background", "what queries and operators are: see the algebra"),
            Part("Section 3", "where merging stands among the steps of planning"),
            Part("Section 4.1", "what a signature holds"),
            Part("Section 4.2", "columns replaced by what they are computed from"),
            Part("Section 4.2.1", "signatures of sources, maps, filters and projections"),
            Part("Section 4.2.2", "signatures of windowed aggregates"),
            Part("Section 4.2.3", "signatures of unions"),
            Part("Section 4.2.4", "signatures of window joins"),
            Part("Section 5", "the global plan and its indexes"),
            Part("Section 6.1", "when signatures are equal: cheap checks, then a solver"),
            Part("Section 6.2", "whole queries that are there, and parts of queries"),
            Part("Section 6.3", "variants that look at the writing first, or from the sources up"),
            Part("Section 7", "queries that come and go"),
            Part("Section 8.1", "generated and published query sets, and other strategies"),
            Part("Section 8.2.1", "more queries that mean the same"),
            Part("Section 8.2.2", "more streams"),
            Part("Section 8.2.3", "more queries that are like no other"),
            Part(
                "Section 8.2.4",
                "more queries that are written alike",
                "such sets are not generated; both variants plan all others side by side",
            ),
            Part("Section 8.3", "queries with parts in common"),
            Part("Section 8.4", "what merged queries take when they run"),
            Part("Section 8.5", "what was learnt", CONCLUSION),
            Part("Section 9", "related work", RELATED),
            Part("Section 10", "conclusion", CONCLUSION),
        ),
    ),
)


@dataclass(frozen=True)
class Citation:
    """A part of a paper, as a module names it."""

    paper: str
    part: str
    file: Path


def citations_of(text: str, file: Path) -> Iterator[Citation]:
    """What the docstring of a module names, in the order in which it does."""
    for found in _CITATION.findall(text):
        paper, *parts = re.split(r",\s+", found)
        yield from (Citation(paper, part, file) for part in parts)


@cache
def docstrings() -> tuple[tuple[Path, str], ...]:
    """The docstrings of all modules that may cite, in the order of their folders."""
    return tuple(
        (file, ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")
        for folder in ("src/headrace", "benchmarks")
        for file in sorted((REPOSITORY / folder).rglob("*.py"))
    )


def citations() -> tuple[Citation, ...]:
    return tuple(c for file, text in docstrings() for c in citations_of(text, file))


def papers_part() -> str:
    """Each paper as a table of its parts and the files that do them."""
    files: dict[tuple[str, str], list[Path]] = {}
    for citation in citations():
        files.setdefault((citation.paper, citation.part), []).append(citation.file)
    return "\n".join(line for paper in PAPERS for line in _table(paper, files))


def _table(paper: Paper, files: Mapping[tuple[str, str], list[Path]]) -> Iterator[str]:
    yield from (f"## {paper.name}", "", f"{paper.title}.", "", "| part | about | where |")
    yield "|---|---|---|"
    for part in paper.parts:
        where = ", ".join(_link(file) for file in files.get((paper.name, part.name), ()))
        yield f"| {part.name} | {part.about} | {where or f'*no code: {part.instead}*'} |"
    yield ""


def _link(file: Path) -> str:
    path = file.relative_to(REPOSITORY)
    return f"[`{str(path).removeprefix('src/headrace/')}`](../{path})"
