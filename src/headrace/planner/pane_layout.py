"""How the panes of each grouping are laid out, and how that changes while queries run.

All tumbling and hopping windows over one grouping, of whichever query, share one layout. A grouping
by fewer keys takes the panes of one by more, its *host*, where there is one when it comes. A layout
that changes begins a new *generation* of stores: each epoch's rows are in one generation only, and
a window that was open reads them all. Nothing is migrated; a generation that no window needs any
more expires with its panes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.cost.cost import Cost
from headrace.cost.jobs import MOST_FILTERS, MOST_GROUPS
from headrace.cost.panes import PaneCost
from headrace.definitions.partials import coverage_of, decompose_all
from headrace.optimizer.windows.describe import DescribedWindows, described
from headrace.optimizer.windows.layout import (
    UNIT,
    PaneLayout,
    Sharing,
    layout_cost,
    layouts,
    own_panes,
)
from headrace.plan.coverage import is_partitioned_by
from headrace.plan.nodes import Aggregate, Node
from headrace.plan.windows import Hopping
from headrace.planner.decision import Alternative, PlannedQuery, RankedPlan
from headrace.planner.filter_sharing import can_share_filters, stream_below
from headrace.planner.grouping import Grouping, aggregates_by_family, has_panes, windows_of
from headrace.planner.names import PANE_LAYOUT
from headrace.planner.policy import PlannerPolicy
from headrace.planner.regret import NOTHING_REGRETTED, Regret, Regrets
from headrace.planner.stored_panes import is_guarded, layout_name, promise_of, subject_of
from headrace.stats.figure import Exact, Figure
from headrace.stats.load import Load


@dataclass(frozen=True)
class Generation:
    """A layout and its number; the last of a grouping is the one that rows are stored by."""

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


@dataclass(frozen=True)
class PanePlan:
    """The layouts of all groupings that have panes, and which of them have another's."""

    generations: Mapping[str, tuple[Generation, ...]] = field(default_factory=dict)
    hosts: Mapping[str, Grouping] = field(default_factory=dict)

    @property
    def running(self) -> dict[str, PaneLayout]:
        """The layouts that new rows are stored by."""
        return {family: last[-1].layout for family, last in self.generations.items() if last}

    def host(self, node: Aggregate) -> Grouping:
        """The grouping whose panes an aggregate is computed from."""
        own = Grouping.of(node)
        return self.hosts.get(own.family, own)

    def layouts_of(self, plan: Node) -> tuple[tuple[str, tuple[Generation, ...]], ...]:
        """The layouts that a plan is computed from."""
        families = [
            self.host(node).family
            for node in plan.walk()
            if isinstance(node, Aggregate) and has_panes(node)
        ]
        return tuple((family, self.generations.get(family, ())) for family in families)

    def to_json(self) -> dict[str, Any]:
        return {
            "generations": {
                family: [generation.to_json() for generation in generations]
                for family, generations in self.generations.items()
            },
            "hosts": {family: host.to_json() for family, host in self.hosts.items()},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PanePlan:
        return cls(
            {
                family: tuple(Generation.from_json(body) for body in generations)
                for family, generations in value["generations"].items()
            },
            {family: Grouping.from_json(host) for family, host in value["hosts"].items()},
        )


@dataclass(frozen=True)
class Change:
    """A grouping whose layout was changed, for who watches."""

    family: str
    before: PaneLayout
    after: PaneLayout
    gain: float | None
    #: What is held against the layout before, if it did not keep its promise.
    regret: Regret | None = None

    @property
    def text(self) -> str:
        before, after = layout_name(self.before), layout_name(self.after)
        why = "windows that need it" if self.gain is None else f"expected to save {self.gain:.0%}"
        if self.regret is not None:
            why = f"the former {self.regret.text}"
        return f"{self.family}: panes of {before} -> {after} ({why})"


def plan_pane_layouts(
    plans: Iterable[Node],
    current: PanePlan,
    loads: Mapping[str, Load],
    policy: PlannerPolicy,
    regrets: Regrets = NOTHING_REGRETTED,
) -> tuple[PanePlan, list[Change]]:
    """A layout for every grouping: the one it has, unless another is needed or pays, or the one it
    has did not keep its promise."""
    by_family = aggregates_by_family(plans)
    hosts = _hosts(by_family, current, loads, policy)
    hosted: dict[str, list[Aggregate]] = {}
    for family, nodes in by_family.items():
        host = hosts.get(family)
        hosted.setdefault(family if host is None else host.family, []).extend(nodes)
    generations: dict[str, tuple[Generation, ...]] = {}
    changes = []
    for family, nodes in hosted.items():
        windows, load = windows_of(nodes), loads.get(family)
        best = _best(family, nodes, windows, load, policy, regrets)
        past = tuple(_restricted(g, windows) for g in current.generations.get(family, ()))
        if not past:
            generations[family] = (Generation(1, best),)
            continue
        adapted = _kept(past[-1].layout, windows)
        gain = None if adapted is None else _gain(adapted, best, load)
        regret = None
        if (
            adapted is not None
            and is_guarded(policy)
            and not _admits(family, adapted, load, regrets)
        ):
            regret = regrets.of(subject_of(family)).regret(layout_name(adapted))
        stays = gain is None or gain < policy.least_gain
        if adapted is not None and (adapted == best or (stays and regret is None)):
            # The same panes; windows that came or went change nothing in the stores.
            generations[family] = (*past[:-1], Generation(past[-1].number, adapted))
        else:
            generations[family] = (*past, Generation(past[-1].number + 1, best))
            changes.append(Change(family, past[-1].layout, best, gain, regret))
    return PanePlan(generations, hosts), changes


def _best(
    family: str,
    nodes: list[Aggregate],
    windows: frozenset[Hopping],
    load: Load | None,
    policy: PlannerPolicy,
    regrets: Regrets,
) -> PaneLayout:
    """The best layout that may be chosen, after all that was seen of it."""
    ranked = layouts(windows, load, policy.sharing_of(nodes), policy.window_cost_model)
    if not is_guarded(policy):
        return ranked[0].layout
    return next(one.layout for one in ranked if _admits(family, one.layout, load, regrets))


def _admits(family: str, layout: PaneLayout, load: Load | None, regrets: Regrets) -> bool:
    written = own_panes(layout.pane_of)
    if load is None or layout == written:
        return True
    return regrets.admits(subject_of(family), layout_name(layout), promise_of(layout, load, load))


def _hosts(
    by_family: Mapping[str, list[Aggregate]],
    current: PanePlan,
    loads: Mapping[str, Load],
    policy: PlannerPolicy,
) -> dict[str, Grouping]:
    """Which groupings take the panes of another; decided once, when a grouping comes."""
    hosts = {family: host for family, host in current.hosts.items() if family in by_family}
    groupings = {family: Grouping.of(nodes[0]) for family, nodes in by_family.items()}
    hosting = {host.family: host for host in hosts.values()}
    folding = _folding(by_family, groupings, hosts) if policy.shares_filters else {}
    for family in sorted(groupings, key=lambda f: len(groupings[f].keys), reverse=True):
        grouping = groupings[family]
        if family in hosts:
            continue
        if (
            family not in current.generations
            and policy.sharing_of(by_family[family]) is not Sharing.NONE
        ):
            finer = [h for h in hosting.values() if grouping.is_coarser_than(h)]
            finer = [h for h in finer if _is_worth_hosting(h, current, loads)]
            if finer:
                hosts[family] = min(finer, key=lambda h: len(h.keys))
                continue
            host = folding.get(family)
            if host is not None and _is_worth_hosting(host, current, loads):
                hosts[family] = host
                continue
        hosting[family] = grouping
    return hosts


def _folding(
    by_family: Mapping[str, list[Aggregate]],
    groupings: Mapping[str, Grouping],
    hosts: Mapping[str, Grouping],
) -> dict[str, Grouping]:
    """Groupings of filtered streams that can be folded, where there are several filters."""
    sharing: dict[str, list[str]] = {}
    for family, grouping in groupings.items():
        base = grouping.unfiltered
        if base is not None and can_share_filters(by_family[family]):
            sharing.setdefault(base.family, []).append(family)
    folding: dict[str, Grouping] = {}
    for base_family, families in sharing.items():
        others = base_family in groupings
        if len(families) + others < 2:
            continue
        room = MOST_FILTERS - sum(f in hosts for f in families)
        for family in [f for f in families if f not in hosts][: max(room, 0)]:
            base = groupings[family].unfiltered
            assert base is not None
            folding[family] = base
    return folding


def _is_worth_hosting(host: Grouping, current: PanePlan, loads: Mapping[str, Load]) -> bool:
    load, generations = loads.get(host.family), current.generations.get(host.family)
    if load is None or not generations:
        return True
    stored = sum(PaneCost(load).stored(pane) for pane in generations[-1].layout.panes)
    return stored <= load.rows * MOST_GROUPS


def describe(query: PlannedQuery) -> list[DescribedWindows]:
    """For each aggregate that is not stored as it is: how its windows are shared."""
    described_windows = []
    policy = query.policy
    for nodes in aggregates_by_family([query.plan]).values():
        host = query.panes.host(nodes[0])
        windows, load = windows_of(nodes), query.statistics.loads.get(host.family)
        layout = _restricted(query.panes.generations[host.family][-1], windows).layout
        if len(windows) == 1 and windows == set(layout.panes):
            continue
        keys = ", ".join(str(key.expr) for key in nodes[0].keys) or "all rows"
        title = f"{keys} of {', '.join(sorted(nodes[0].streams()))}"
        if set(host.keys) != {key.expr for key in nodes[0].keys}:
            title += f", from panes by {', '.join(map(str, host.keys))}"
        parts = [part for node in nodes for part in (decompose_all(node.aggregates) or {}).values()]
        ranked = tuple(layouts(windows, load, policy.sharing_of(nodes), policy.window_cost_model))
        described_windows.append(described(title, layout, coverage_of(parts), load, ranked))
    return described_windows


@dataclass(frozen=True)
class DescribedFilter:
    """An aggregate of a filtered stream that is computed from a store of all of its rows."""

    node: Aggregate
    filters: int

    @property
    def text(self) -> str:
        below = stream_below(self.node.input)
        assert below is not None
        stream, condition = below
        others = f", which has those of {self.filters} filters" if self.filters > 1 else ""
        return f"rows of {stream.shown} where {condition}: from panes of all rows{others}"

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "filters": self.filters}


def describe_filters(query: PlannedQuery) -> list[DescribedFilter]:
    """The aggregates of a query whose filters share a store with others."""
    hosted = Counter(host.family for host in query.panes.hosts.values())
    filters = []
    for family, nodes in aggregates_by_family([query.plan]).items():
        host, own = query.panes.hosts.get(family), Grouping.of(nodes[0])
        if host is not None and own.unfiltered == host:
            filters.append(DescribedFilter(nodes[0], hosted[host.family]))
    return filters


@dataclass(frozen=True)
class ForcedSharing:
    """A plan whose windows share in one way only, and what an epoch then costs."""

    sharing: Sharing
    plan: Node
    cost: Cost


def forced_sharings(plan: Node, loads: Mapping[str, Load]) -> list[ForcedSharing]:
    """The plan with each way to share windows that would store other panes than the others."""
    by_layouts: dict[tuple[PaneLayout, ...], ForcedSharing] = {}
    families = aggregates_by_family([plan])
    for sharing in reversed(Sharing):
        best = [
            layouts(windows_of(nodes), loads.get(family), sharing)[0]
            for family, nodes in families.items()
        ]
        cost: Figure = sum((entry.cost.figure for entry in best), Exact(0))
        forced = plan.transform(lambda node, how=sharing: _forced(node, how))  # type: ignore[misc]
        entry = ForcedSharing(sharing, forced, Cost(cost, UNIT))
        by_layouts.setdefault(tuple(entry.layout for entry in best), entry)
    return list(by_layouts.values()) if len(by_layouts) > 1 else []


_SHARING_REASONS = {
    Sharing.NONE: "each window from panes of its own",
    Sharing.WINDOWS: "windows from other windows that were asked for",
    Sharing.FACTORS: "auxiliary windows where they pay",
}


def alternatives(query: PlannedQuery) -> Iterator[RankedPlan]:
    """The other ways in which the windows of a query could share work."""
    for forced in forced_sharings(query.own, query.statistics.loads):
        info = Alternative(
            f"windows share: {forced.sharing.value}",
            forced.cost,
            PANE_LAYOUT,
            False,
            _SHARING_REASONS[forced.sharing],
        )
        yield RankedPlan(info, forced.plan)


def _forced(node: Node, sharing: Sharing) -> Node:
    if isinstance(node, Aggregate) and has_panes(node):
        return replace(node, sharing=sharing.value)
    return node


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


def _gain(present: PaneLayout, best: PaneLayout, load: Load | None) -> float | None:
    before, after = layout_cost(present, load).figure.number, layout_cost(best, load).figure.number
    if before is None or after is None:
        return None
    return 1 - after / before


def _triple(window: Hopping) -> list[int]:
    return [window.length, window.slide, window.offset]
