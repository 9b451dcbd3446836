"""Window graphs: for each window of a set, from what it is computed.

The *window coverage graph* of "Factor Windows", reduced to one incoming edge per window as its
min-cost graphs are (Theorem 7): a forest whose roots are computed from the rows themselves.

Paper: Factor Windows, Section II-C, Section III-C, Theorem 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from headrace.errors import PlanError
from headrace.plan.coverage import covering_multiplier, is_covered_by, is_sample_of
from headrace.plan.windows import Hopping


@dataclass(frozen=True)
class WindowSource:
    """A window and the window it is computed from; None stands for the rows."""

    window: Hopping
    source: Hopping | None


@dataclass(frozen=True)
class WindowGraph:
    """A forest of windows. Those that nobody asked for are the *factor windows*."""

    asked: frozenset[Hopping]
    edges: tuple[WindowSource, ...]

    def __post_init__(self) -> None:
        windows = [edge.window for edge in self.edges]
        if len(set(windows)) != len(windows):
            raise PlanError("a window of the graph is computed twice")
        missing = self.asked - set(windows)
        if missing:
            raise PlanError(f"the graph does not compute {_names(missing)}")
        for edge in self.edges:
            if edge.source is None:
                continue
            if edge.source not in self.sources:
                raise PlanError(f"the graph does not compute {edge.source.name}")
            derived = is_covered_by(edge.window, edge.source)
            if edge.source == edge.window or not (
                derived or is_sample_of(edge.window, edge.source)
            ):
                raise PlanError(f"{edge.window.name} is not covered by {edge.source.name}")

    @classmethod
    def of(
        cls, wanted: Iterable[Hopping], sources: Mapping[Hopping, Hopping | None]
    ) -> WindowGraph:
        """A graph from "computed from" pairs, in one order whatever the order they came in."""
        edges = (WindowSource(w, sources[w]) for w in sorted(sources, key=_size))
        return cls(frozenset(wanted), tuple(edges))

    @cached_property
    def sources(self) -> dict[Hopping, Hopping | None]:
        return {edge.window: edge.source for edge in self.edges}

    @cached_property
    def roots(self) -> tuple[Hopping, ...]:
        """The windows that are computed from rows."""
        return tuple(edge.window for edge in self.edges if edge.source is None)

    @cached_property
    def factors(self) -> tuple[Hopping, ...]:
        """The windows that nobody asked for."""
        return tuple(edge.window for edge in self.edges if edge.window not in self.asked)

    def derived(self, source: Hopping | None) -> tuple[Hopping, ...]:
        """The windows computed from this one."""
        return tuple(edge.window for edge in self.edges if edge.source == source)

    def depth(self, window: Hopping) -> int:
        """How many windows lie between this one and the rows."""
        source = self.sources[window]
        return 0 if source is None else 1 + self.depth(source)

    def root(self, window: Hopping) -> Hopping:
        source = self.sources[window]
        return window if source is None else self.root(source)

    def tree(self, root: Hopping) -> Iterator[Hopping]:
        """A window and all that are computed from it, sources first."""
        yield root
        for window in self.derived(root):
            yield from self.tree(window)

    def to_json(self) -> dict[str, Any]:
        return {
            "windows": [
                {
                    "window": edge.window.name,
                    "from": None if edge.source is None else edge.source.name,
                    "factor": edge.window not in self.asked,
                }
                for edge in self.edges
            ]
        }


#: Numbers with more digits than this are told by their order of magnitude.
_MOST_DIGITS = 15


def format_number(number: Fraction, form: str = ",.4g") -> str:
    """A cost as text. Those of many windows may be larger than any float.

    >>> format_number(Fraction(7200)), format_number(Fraction(10) ** 400 * 3 / 7)
    ('7,200', '4.286e+399')
    """
    if number < 10**_MOST_DIGITS:
        return format(float(number), form)
    return format(Decimal(number.numerator) / number.denominator, ".4g").lower()


def graph_text(
    graph: WindowGraph, costs: Mapping[Hopping, Fraction] | None = None, rows: str = "rows"
) -> str:
    """The forest as indented lines; ``rows`` says what the roots are computed from."""
    lines = [rows]

    def visit(window: Hopping, depth: int) -> None:
        source = graph.sources[window]
        mark = "" if window in graph.asked else " *factor window*"
        parts = f" from {covering_multiplier(window, source)} each" if source is not None else ""
        cost = "" if costs is None else f", cost {format_number(costs[window])}"
        lines.append(f"{'   ' * depth}└─ {window.name}{mark}{parts}{cost}")
        for child in graph.derived(window):
            visit(child, depth + 1)

    for root in graph.roots:
        visit(root, 0)
    return "\n".join(lines)


def graph_cluster(
    graph: WindowGraph, name: str, title: str, costs: Mapping[Hopping, Fraction] | None = None
) -> list[str]:
    """The forest as a cluster of a DOT graph; factor windows have a dashed border.

    An arrow's number says how many windows make one.
    """
    lines = [
        f"  subgraph cluster_{name} {{",
        f'    label="{title}"; style=rounded; color="#bbbbbb"; fontname="Helvetica"; fontsize=11;',
        f'    {name}_rows [label="rows", fillcolor="#dbe9f6"];',
    ]
    names = {window: f"{name}_w{index}" for index, window in enumerate(graph.sources)}
    for window, node_name in names.items():
        label = (
            window.name if costs is None else f"{window.name}\\ncost {format_number(costs[window])}"
        )
        style = 'fillcolor="#fdebc8"'
        if window not in graph.asked:
            style = 'style="rounded,dashed", xlabel="factor"'
        lines.append(f'    {node_name} [label="{label}", {style}];')
    for window, source in graph.sources.items():
        if source is None:
            lines.append(f"    {name}_rows -> {names[window]};")
        else:
            count = covering_multiplier(window, source)
            lines.append(f'    {names[source]} -> {names[window]} [label="{count}"];')
    return [*lines, "  }"]


def _size(window: Hopping) -> tuple[int, int, int]:
    return window.length, window.slide, window.offset


def _names(windows: Iterable[Hopping]) -> str:
    return ", ".join(sorted(window.name for window in windows))
