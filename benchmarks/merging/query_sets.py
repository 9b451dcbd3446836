"""Query sets as in the evaluation of the query-merging paper (Sections 8.1 to 8.3), generated.

A query is made of five steps (``query_set_steps``), each of which can be written in several forms
that mean the same. The queries of a group are one seed query, in forms that differ.

No two seeds mean the same. The first step of each bounds two columns of its stream by figures that
no other seed has for these columns, and no later filter looks at them again. Later filters cannot
contradict each other: they hold where columns decrease steeply, from the first to the last.

Paper: Query Merging, Section 8.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from random import Random

from benchmarks import BenchError
from benchmarks.merging.query_set_plans import (
    AGGREGATES,
    FIELDS,
    TIMES,
    sink,
    source,
    to_sql,
)
from benchmarks.merging.query_set_steps import (
    SMALL,
    AggregateOver,
    Assign,
    Bounds,
    Combine,
    Compare,
    Compute,
    JoinWith,
    Keep,
    Shift,
    Step,
    Tenfold,
    UnionWith,
    shuffled,
)
from headrace.plan.nodes import Node, Sink, Source
from headrace.plan.windows import Hopping, tumbling

#: The streams take three schemas in turn, as in the paper's sets of 2021.
SCHEMAS = 3
STEPS = 5
#: What a query is made of: a kind for each of its steps.
Shape = tuple[str, ...]
#: The steps of queries. The second is one of many forms, so that groups do not run out of them.
_JOIN: Shape = ("bounds", "many", "any", "join", "keep")
_JOIN_AGGREGATE: Shape = ("bounds", "many", "any", "join", "aggregate")
_UNION_AGGREGATE: Shape = ("bounds", "many", "union", "any", "aggregate")
SHAPES: tuple[Shape, ...] = (
    ("bounds", "many", "any", "any", "any"),
    ("bounds", "many", "union", "any", "any"),
    ("bounds", "many", "any", "any", "aggregate"),
    _JOIN,
    _JOIN_AGGREGATE,
)
#: The queries that the paper runs (Section 8.4), ten groups on four streams: half are window joins,
#: half window aggregates of unions, so that all read two streams; every stream begins some of both.
RUN_SHAPES: tuple[Shape, ...] = (
    _JOIN,
    _UNION_AGGREGATE,
    _JOIN_AGGREGATE,
    _UNION_AGGREGATE,
    _UNION_AGGREGATE,
    _JOIN,
    _UNION_AGGREGATE,
    _JOIN_AGGREGATE,
    _JOIN,
    _UNION_AGGREGATE,
)
# Upper bounds are high and lower ones low, so that many rows with fields below 100 pass.
_UPPER, _LOWER = range(60, 101), range(1, 31)
_LARGE_UPPER = range(60, 10_001)
_LARGE = range(1, 1_001)
_MINUTE, _SECOND = 60_000, 1_000
_PAIRS = tuple(permutations(range(FIELDS), 2))
_BEGINNINGS = len(_PAIRS) * len(_UPPER) * len(_LOWER)
_TRIES = 50


@dataclass(frozen=True)
class GeneratedQuery:
    """A query, and the group of those that mean the same; None is a query like no other.

    In a set of partial overlap, the queries of a group only begin in the same way.
    """

    sink: Sink
    group: int | None

    def to_sql(self) -> str:
        return to_sql(self.sink)


def sources(streams: int) -> list[Source]:
    """The streams that the queries of a set read."""
    return [source(f"example{number}", SCHEMAS) for number in range(1, streams + 1)]


def generate(
    count: int,
    streams: int = 4,
    groups: int = 100,
    distinct: float = 0.0,
    overlap: int | None = None,
    seed: int = 0,
    shapes: Sequence[Shape] | None = None,
) -> list[GeneratedQuery]:
    """A set of queries; the same arguments always give the same.

    ``distinct`` is the share of queries that belong to no group. With ``overlap``, in percent, the
    queries of a group have only that share of their steps in common, those next to the source. A
    group that has run out of forms repeats itself. Seeds take the ``shapes`` in turn; without them,
    all streams take the first of ``SHAPES``, then all the second, and so on.
    """
    if min(count, streams, groups) < 1 or not 0 <= distinct <= 1 or not 0 <= (overlap or 0) <= 100:
        raise BenchError(
            f"no query set of {count} queries, {streams} streams, {groups} groups, "
            f"a share of {distinct} distinct ones and {overlap} percent of overlap",
            hint="counts are positive, the share is at most 1, and percent are at most 100",
        )
    chance = Random(f"{streams}/{groups}/{distinct}/{overlap}/{seed}")
    alone = round(count * distinct)
    in_turn = shapes or [shape for shape in SHAPES for _ in range(streams)]
    beginnings = _beginnings(groups + alone, streams, in_turn, chance)
    seeds = [_completed(beginning, _ALIKE, chance) for beginning in beginnings[:groups]]
    strangers = iter(beginnings[groups:])
    common = STEPS if overlap is None else int(STEPS * overlap / 100)

    members: list[int | None] = [None] * alone
    members += [number % groups for number in range(count - alone)]
    chance.shuffle(members)
    seen: set[Node] = set()
    queries = []
    for number, group in enumerate(members, start=1):
        for _ in range(_TRIES):
            draft = next(strangers) if group is None else seeds[group].first(common)
            plan = _completed(draft, _LOOSE, chance).written(chance)
            if group is None or plan not in seen:
                break
        seen.add(plan)
        queries.append(GeneratedQuery(sink(plan, number), group))
    return queries


@dataclass(frozen=True)
class _Scope:
    """What a step finds: the integer columns, and those of them that filters may look at.

    Each of ``free`` may be asked to exceed those after it, and only ``small``, the last, to be
    small. There is one product at most, so that fields of a few digits never overflow.
    """

    columns: tuple[str, ...]
    free: tuple[str, ...]
    small: str
    has_product: bool = False
    is_joined: bool = False

    def without(self, *names: str) -> _Scope:
        """The same columns, but filters may no longer look at these."""
        return replace(self, free=tuple(name for name in self.free if name not in names))


@dataclass(frozen=True)
class _Draft:
    """A query of which some steps are drawn; ``scopes`` are those before and after each."""

    stream: Source
    other: Source
    shape: Shape
    steps: tuple[Step, ...]
    scopes: tuple[_Scope, ...]

    def first(self, count: int) -> _Draft:
        return replace(self, steps=self.steps[:count], scopes=self.scopes[: count + 1])

    def written(self, chance: Random) -> Node:
        node: Node = self.stream
        for step in self.steps:
            node = step.written(node, chance)
        return node


#: Draws a step for what is there, or nothing where there is no place for it.
_Draw = Callable[[_Scope, Source, Random], tuple[Step, _Scope] | None]


def _beginnings(count: int, streams: int, in_turn: Sequence[Shape], chance: Random) -> list[_Draft]:
    """Queries with their first step, which bounds two columns as no other does."""
    all_sources = sources(streams)
    shapes = [shape for shape in in_turn if streams > 1 or not {"union", "join"} & {*shape}]
    if count > streams * _BEGINNINGS:
        raise BenchError(f"there are no {count} distinct queries on {streams} streams")
    numbers = [iter(chance.sample(range(_BEGINNINGS), -(-count // streams))) for _ in all_sources]
    drafts = []
    for place in range(count):
        stream = all_sources[place % streams]
        other = chance.choice([s for s in all_sources if s != stream] or [stream])
        rest, upper = divmod(next(numbers[place % streams]), len(_UPPER))
        pair, lower = divmod(rest, len(_LOWER))
        columns = stream.schema.names[:FIELDS]
        small, great = (columns[position] for position in _PAIRS[pair])
        step = Bounds(((small, "<=", _UPPER[upper]), (great, ">=", _LOWER[lower])))
        free = tuple(name for name in columns if name not in (small, great))
        scopes = (_Scope(columns, columns, columns[-1]), _Scope(columns, free, free[-1]))
        shape = shapes[place % len(shapes)]
        drafts.append(_Draft(stream, other, shape, (step,), scopes))
    return drafts


def _completed(draft: _Draft, draws: Mapping[str, Sequence[_Draw]], chance: Random) -> _Draft:
    """The query with the steps that it lacks."""
    for kind in draft.shape[len(draft.steps) :]:
        tried = shuffled(draws[kind], chance)
        drawn = (draw(draft.scopes[-1], draft.other, chance) for draw in tried)
        step, scope = next(filter(None, drawn))
        draft = replace(draft, steps=(*draft.steps, step), scopes=(*draft.scopes, scope))
    return draft


def _bounds(uppers: range) -> _Draw:
    def draw(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope] | None:
        if len(scope.free) < 2:
            return None
        return Bounds(tuple(bound(n, scope, chance) for n in _some(scope.free, 2, chance))), scope

    def bound(name: str, scope: _Scope, chance: Random) -> tuple[str, str, int]:
        if name == scope.small:
            return name, chance.choice(("<", "<=")), chance.choice(uppers)
        return name, chance.choice((">", ">=")), chance.choice(_LOWER)

    return draw


def _compare(shifted: bool) -> _Draw:
    def draw(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope] | None:
        if len(scope.free) < 2:
            return None
        left, right = _some(scope.free, 2, chance)
        return Compare(left, chance.choice((">", ">=")), right, shifted), scope

    return draw


def _tenfold(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope] | None:
    return (Tenfold(scope.small), scope) if scope.small in scope.free else None


def _assign(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope] | None:
    if len(scope.free) < 2:
        return None
    left, right = _some(scope.free, 2, chance)
    target = chance.choice([name for name in scope.columns if name not in (left, right)])
    step = Assign(target, chance.choice(SMALL), left, chance.choice((">", ">=")), right)
    return step, scope.without(target)


def _sum(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope]:
    target = chance.choice(scope.columns)
    return Combine(target, "+", scope.columns), scope.without(target)


def _product(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope] | None:
    if scope.has_product:
        return None
    operands = _some(scope.columns, 3, chance)
    target = chance.choice(operands)
    return Combine(target, "*", operands), replace(scope.without(target), has_product=True)


def _shift(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope]:
    names = _some(scope.columns, 2, chance)
    return Shift(tuple((n, chance.choice("+-*"), chance.choice(SMALL)) for n in names)), scope


def _compute(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope]:
    target, operand = chance.sample(scope.columns, 2)
    step = Compute(target, chance.choice(_LARGE), chance.choice("+-*"), operand)
    return step, scope.without(target)


def _keep(renamed: bool) -> _Draw:
    def draw(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope] | None:
        if len(scope.columns) < 4:
            return None
        kept = _some(scope.columns, chance.randint(3, len(scope.columns) - 1), chance)
        names = {name: alias(name, chance) if renamed else name for name in kept}
        times = () if scope.is_joined else tuple((time, time) for time in TIMES)
        below = replace(
            scope,
            columns=tuple(names.values()),
            free=tuple(names[name] for name in scope.free if name in names),
            small=names.get(scope.small, ""),
        )
        return Keep((*names.items(), *times)), below

    def alias(name: str, chance: Random) -> str:
        # Without vowels, no name is a word of SQL.
        return "".join(chance.choices("bcdfghjklmnpqrstvwxz", k=4)) + name

    return draw


def _union(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope]:
    return UnionWith(other), scope


def _join(window: Callable[[Random], Hopping]) -> _Draw:
    def draw(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope]:
        theirs = other.schema.names[:FIELDS]
        keys = chance.choice(scope.columns), chance.choice(theirs)
        columns = tuple(dict.fromkeys((*scope.columns, *theirs)))
        below = replace(scope, columns=columns, free=(), is_joined=True)
        return JoinWith(other, keys, window(chance)), below

    return draw


def _aggregate(window: Callable[[Random], Hopping], alias: str | None) -> _Draw:
    def draw(scope: _Scope, other: Source, chance: Random) -> tuple[Step, _Scope]:
        argument, key = chance.sample(scope.columns, 2)
        keyed = key if chance.random() < 0.5 else None
        function = chance.choice(AGGREGATES)
        return AggregateOver(window(chance), function, argument, keyed, alias), scope

    return draw


def _tumbling(chance: Random) -> Hopping:
    return tumbling(chance.randint(1, 100) * _MINUTE)


def _hopping(chance: Random) -> Hopping:
    length = chance.randint(1, 100)
    return Hopping(length * _SECOND, chance.randint(-(-length // 4), 100) * _SECOND)


def _some(names: tuple[str, ...], count: int, chance: Random) -> tuple[str, ...]:
    """That many of the names, in their order."""
    return tuple(names[place] for place in sorted(chance.sample(range(len(names)), count)))


#: The steps of seed queries.
_ALIKE: dict[str, tuple[_Draw, ...]] = {
    "many": (_compare(shifted=True), _sum),
    "any": (
        _bounds(_UPPER),
        _compare(shifted=False),
        _compare(shifted=True),
        _tenfold,
        _assign,
        _sum,
        _product,
        _shift,
        _keep(renamed=False),
    ),
    "union": (_union,),
    "join": (_join(_tumbling),),
    "keep": (_keep(renamed=False),),
    "aggregate": (_aggregate(_tumbling, None),),
}
#: The steps that a query has to itself; as in the paper, only these rename, and have such windows.
_LOOSE: dict[str, tuple[_Draw, ...]] = {
    "bounds": (_bounds(_LARGE_UPPER),),
    "many": (_bounds(_LARGE_UPPER), _compute),
    "any": (_bounds(_LARGE_UPPER), _compute, _keep(renamed=True)),
    "union": (_union,),
    "join": (_join(_hopping),),
    "keep": (_keep(renamed=True),),
    "aggregate": (_aggregate(_hopping, "result"),),
}
