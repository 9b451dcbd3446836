"""How the panes of each grouping are laid out, and how that changes while queries run.

A *family* is a grouping: an input, its keys and its time. All tumbling and hopping windows over it,
of whichever query, share one layout. A layout that changes begins a new *generation* of stores:
each epoch's rows are in one generation only, and a window that was open reads them all. Nothing is
migrated; a generation that no window needs any more expires with its panes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.cost.cost import Cost
from headrace.engine.partials import coverage_of, decompose_all
from headrace.optimizer.windows.describe import DescribedWindows, described
from headrace.optimizer.windows.layout import (
    UNIT,
    CostModel,
    PaneLayout,
    Sharing,
    layout_cost,
    layouts,
)
from headrace.plan.coverage import is_partitioned_by
from headrace.plan.expressions import Named
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Aggregate, Node
from headrace.plan.windows import Hopping
from headrace.stats.figure import Exact, Figure
from headrace.stats.load import Load


@dataclass(frozen=True)
class Generation:
    """A layout and its number; the last of a family is the one that rows are stored by."""

    number: int
    layout: PaneLayout

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "stored": [[_triple(window), _triple(pane)] for window, pane in self.layout.stored],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Generation:
        stored = {Hopping(*window): Hopping(*pane) for window, pane in value["stored"]}
        return cls(value["number"], PaneLayout.of(stored))


Layouts = Mapping[str, tuple[Generation, ...]]


@dataclass(frozen=True)
class Change:
    """A family whose layout was changed, for who watches."""

    family: str
    before: PaneLayout
    after: PaneLayout
    gain: float | None

    @property
    def text(self) -> str:
        def panes(layout: PaneLayout) -> str:
            return ", ".join(pane.name for pane in layout.panes)

        why = "windows that need it" if self.gain is None else f"expected to save {self.gain:.0%}"
        return f"{self.family}: panes of {panes(self.before)} -> {panes(self.after)} ({why})"


@dataclass(frozen=True)
class LayoutPolicy:
    """How layouts are chosen: what may be shared, by which model, and when a change pays."""

    sharing: Sharing = Sharing.FACTORS
    model: CostModel = CostModel.ENGINE
    #: The share of the cost that a new layout must save to be worth a change.
    least_gain: float = 0.2


def has_panes(node: Node) -> bool:
    """Whether an aggregate is computed from panes that families lay out."""
    if not isinstance(node, Aggregate) or not isinstance(node.windows[0], Hopping):
        return False
    return decompose_all(node.aggregates) is not None


def family_of(node: Aggregate) -> str:
    """The name of a grouping: equal for all aggregates that can share panes."""
    keys = tuple(Named(f"k{i}", key.expr) for i, key in enumerate(node.keys))
    shape = Aggregate(node.input, keys, node.time, (Hopping(1, 1),), (), node.sharing)
    return f"panes-{plan_hash(shape)[:16]}"


def windows_by_family(plans: Iterable[Node]) -> dict[str, list[Aggregate]]:
    """The aggregates of each family, in the order they are met."""
    found: dict[str, list[Aggregate]] = {}
    for plan in plans:
        for node in plan.walk():
            if isinstance(node, Aggregate) and has_panes(node):
                found.setdefault(family_of(node), []).append(node)
    return found


def decide(
    plans: Iterable[Node],
    current: Layouts,
    loads: Mapping[str, Load],
    policy: LayoutPolicy,
) -> tuple[dict[str, tuple[Generation, ...]], list[Change]]:
    """A layout for every family: the one it has, unless another is needed or pays."""
    decided: dict[str, tuple[Generation, ...]] = {}
    changes = []
    for family, nodes in windows_by_family(plans).items():
        windows = frozenset(w for node in nodes for w in node.windows if isinstance(w, Hopping))
        sharing = Sharing(nodes[0].sharing) if nodes[0].sharing else policy.sharing
        load = loads.get(family)
        best = layouts(windows, load, sharing, policy.model)[0].layout
        past = tuple(_restricted(g, windows) for g in current.get(family, ()))
        if not past:
            decided[family] = (Generation(1, best),)
            continue
        kept = _kept(past[-1].layout, windows)
        gain = None if kept is None else _gain(kept, best, load)
        if kept is not None and (gain is None or gain < policy.least_gain):
            # The same panes; windows that came or went change nothing in the stores.
            decided[family] = (*past[:-1], Generation(past[-1].number, kept))
        else:
            decided[family] = (*past, Generation(past[-1].number + 1, best))
            changes.append(Change(family, past[-1].layout, best, gain))
    return decided, changes


def describe_windows(
    plan: Node, loads: Mapping[str, Load], policy: LayoutPolicy
) -> list[DescribedWindows]:
    """For each aggregate that has more windows than stored panes: how they are shared."""
    found = []
    for family, nodes in windows_by_family([plan]).items():
        windows = frozenset(w for node in nodes for w in node.windows if isinstance(w, Hopping))
        sharing = Sharing(nodes[0].sharing) if nodes[0].sharing else policy.sharing
        load = loads.get(family)
        ranked = layouts(windows, load, sharing, policy.model)
        if len(windows) == 1 and windows == set(ranked[0].layout.panes):
            continue
        keys = ", ".join(str(key.expr) for key in nodes[0].keys) or "all rows"
        title = f"{keys} of {', '.join(sorted(nodes[0].streams()))}"
        parts = [part for node in nodes for part in (decompose_all(node.aggregates) or {}).values()]
        coverage = coverage_of(parts)
        found.append(described(title, ranked[0].layout, coverage, load, tuple(ranked)))
    return found


@dataclass(frozen=True)
class ForcedSharing:
    """A plan whose windows share in one way only, and what an epoch then costs."""

    sharing: Sharing
    plan: Node
    cost: Cost


def forced_sharings(plan: Node, loads: Mapping[str, Load]) -> list[ForcedSharing]:
    """The plan with each way to share windows that would store other panes than the others."""
    found: dict[tuple[PaneLayout, ...], ForcedSharing] = {}
    for sharing in reversed(Sharing):
        families = windows_by_family([plan])
        chosen = []
        total: Figure = Exact(0)
        for family, nodes in families.items():
            windows = frozenset(w for node in nodes for w in node.windows if isinstance(w, Hopping))
            best = layouts(windows, loads.get(family), sharing)[0]
            chosen.append(best.layout)
            total = total + best.cost.figure
        forced = plan.transform(
            lambda node, how=sharing: (  # type: ignore[misc]
                replace(node, sharing=how.value) if has_panes(node) else node
            )
        )
        found.setdefault(tuple(chosen), ForcedSharing(sharing, forced, Cost(total, UNIT)))
    return list(found.values()) if len(found) > 1 else []


def _restricted(generation: Generation, windows: frozenset[Hopping]) -> Generation:
    """The generation without the windows that nobody asks for any more."""
    stored = {w: pane for w, pane in generation.layout.stored if w in windows}
    return Generation(generation.number, PaneLayout.of(stored))


def _kept(layout: PaneLayout, windows: frozenset[Hopping]) -> PaneLayout | None:
    """The same panes for these windows, if they will do for all of them."""
    panes = {}
    for window in windows:
        fitting = [p for p in layout.panes if is_partitioned_by(window, p)]
        pane = layout.pane_of.get(window) or max(fitting, key=lambda p: p.length, default=None)
        if pane is None:
            return None
        panes[window] = pane
    return PaneLayout.of(panes)


def _gain(kept: PaneLayout, best: PaneLayout, load: Load | None) -> float | None:
    before, after = layout_cost(kept, load).figure.number, layout_cost(best, load).figure.number
    if before is None or after is None:
        return None
    return 1 - after / before


def _triple(window: Hopping) -> list[int]:
    return [window.length, window.slide, window.offset]
