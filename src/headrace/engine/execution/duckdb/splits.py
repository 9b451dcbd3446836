"""How a definition can be cut into parts that need nothing of each other.

If the rows of all inputs are told apart by a column each, such that whatever meets in a join, a
group or a window function has equal values there, then each part can be computed from its own
share of the inputs, and all parts together are the whole. Which columns do that is read off the
definition: those that every join equates, and that every grouping and every window function
groups by. Rows that meet no others can be told apart in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.engine.execution.duckdb.meanings import is_aggregate, same_kind
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.plan.types import Schema


@dataclass(frozen=True)
class Cut:
    """A way to cut: by which column of each input (None: in any way).

    ``shown`` are the columns of the definition's rows that hold the value by which was cut, and
    ``kind`` is the type of that value.
    """

    columns: tuple[tuple[str, str | None], ...]
    shown: frozenset[str] = frozenset()
    kind: str = ""

    @property
    def anyhow(self) -> bool:
        return all(column is None for _, column in self.columns)

    def also(self, other: Cut, shown: frozenset[str]) -> Cut | None:
        """Both at once, for a definition that reads the inputs of both."""
        together = dict(self.columns)
        for name, column in other.columns:
            if together.setdefault(name, column) != column:
                return None
        if self.kind and other.kind and self.kind != other.kind:
            return None
        return Cut(tuple(sorted(together.items())), shown, self.kind or other.kind)


#: More ways than this are not followed; the first ones found are as good as any.
_MOST = 16

Lookup = Callable[[str], "exp.Query | Schema | list[Cut]"]


def cuts(query: exp.Expr, lookup: Lookup, partial: bool = False) -> list[Cut]:
    """The ways in which a definition can be cut; none where it cannot.

    ``lookup`` gives the schema of an input, the ways to cut one that is computed, or the definition
    behind a name. ``partial`` says that the outermost groups may come out in parts.
    """
    match query:
        case exp.Subquery():
            return cuts(query.this, lookup, partial)
        case exp.Union():
            return _together(
                cuts(query.this, lookup, partial),
                cuts(query.expression, lookup, partial),
                _renamed(query),
            )
        case exp.Select():
            return _of_select(query, lookup, partial)
        case _:
            return []


def _of_select(query: exp.Select, lookup: Lookup, partial: bool) -> list[Cut]:
    source = query.args.get("from_")
    if source is None:
        return []
    grouped = query.args.get("group") is not None
    # A filter or projection around a grouping leaves the grouping the outermost.
    inner_partial = partial and not grouped and not query.args.get("joins")
    cuts = _of_rows(source.this, lookup, inner_partial)
    for join in query.args.get("joins") or ():
        cuts = _joined(cuts, _of_rows(join.this, lookup, False), join)
    if grouped:
        if not partial:
            cuts = [cut for cut in cuts if cut.shown & _grouped_by(query)]
    elif _aggregates(query):
        return []
    for window in query.find_all(exp.Window):
        if window.find_ancestor(exp.Select) is query:
            by = _names(window.args.get("partition_by") or ())
            cuts = [cut for cut in cuts if cut.shown & by]
    shown = _shown(query)
    return [replace(cut, shown=shown(cut.shown)) for cut in cuts][:_MOST]


def _of_rows(source: exp.Expr, lookup: Lookup, partial: bool) -> list[Cut]:
    if not isinstance(source, exp.Table):
        return cuts(source, lookup, partial)
    behind = lookup(source.name)
    if isinstance(behind, exp.Expr):
        return cuts(behind, lookup, partial)
    if isinstance(behind, list):
        return behind
    own_cuts = [Cut(((source.name, None),))]
    for field in behind:
        try:
            kind = same_kind(field.type)
        except Untranslatable:
            continue
        if kind not in ("FLOAT", "DOUBLE"):
            own_cuts.append(Cut(((source.name, field.name),), frozenset((field.name,)), kind))
    return own_cuts


def _joined(left: list[Cut], right: list[Cut], join: exp.Join) -> list[Cut]:
    """Cuts under which all rows that can meet are in one part."""
    on = join.args.get("on")
    if on is None:
        return []
    cuts: list[Cut] = []
    for condition in on.flatten() if isinstance(on, exp.And) else (on,):
        bare = condition.unnest()
        if not isinstance(bare, exp.EQ | exp.NullSafeEQ):
            continue
        a, b = _column(bare.this), _column(bare.expression)
        for ours in left:
            for theirs in right:
                for one, other in ((a, b), (b, a)):
                    if one in ours.shown and other in theirs.shown:
                        both = ours.also(theirs, _shown_by(join, ours.shown, theirs.shown))
                        if both is not None:
                            cuts.append(both)
    return list(dict.fromkeys(cuts))[:_MOST]


def _shown_by(join: exp.Join, left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    """The columns that still hold the value: in a row without partner the other side's do not."""
    match join.side.upper():
        case "LEFT":
            return left
        case "RIGHT":
            return right
        case "FULL":
            return frozenset()
        case _:
            return left | right


def _together(left: list[Cut], right: list[Cut], renamed: Mapping[str, str]) -> list[Cut]:
    """Cuts of a union: each branch in its own way, best by a column that both show."""
    cuts: list[Cut] = []
    for ours in left:
        for theirs in right:
            shown = frozenset(renamed.get(name, name) for name in theirs.shown) & ours.shown
            both = ours.also(theirs, shown)
            if both is not None:
                cuts.append(both)
    unique = dict.fromkeys(cuts)
    return sorted(unique, key=lambda cut: not (cut.shown or cut.anyhow))[:_MOST]


def _renamed(union: exp.Union) -> dict[str, str]:
    """The columns of a union are named by its first branch, the others' by position."""
    ours, theirs = _output_names(union.this), _output_names(union.expression)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return {}
    return dict(zip(theirs, ours, strict=True))


def _output_names(query: exp.Expr) -> list[str] | None:
    while isinstance(query, exp.Union | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select) or any(isinstance(e, exp.Star) for e in query.expressions):
        return None
    return [item.alias_or_name for item in query.expressions]


def _shown(query: exp.Select) -> Callable[[frozenset[str]], frozenset[str]]:
    """Under which names the columns of the input go on."""
    star = any(isinstance(item, exp.Star) for item in query.expressions)
    names: dict[str, list[str]] = {}
    for item in query.expressions:
        if isinstance(item, exp.Alias):
            source = _column(item.this)
            if source is not None:
                names.setdefault(source, []).append(item.alias)

    def rename(shown: frozenset[str]) -> frozenset[str]:
        unchanged = shown if star else frozenset()
        return unchanged.union(*(names.get(name, ()) for name in shown))

    return rename


def _grouped_by(query: exp.Select) -> frozenset[str]:
    """The input columns among the grouping expressions, which may be positions."""
    grouped: set[str] = set()
    for by in query.args["group"].expressions:
        if isinstance(by, exp.Literal) and not by.is_string:
            by = query.expressions[int(by.this) - 1]
            by = by.this if isinstance(by, exp.Alias) else by
        name = _column(by)
        if name is not None:
            grouped.add(name)
    return frozenset(grouped)


def _names(expressions: Iterable[exp.Expr]) -> frozenset[str]:
    return frozenset(name for e in expressions if (name := _column(e)) is not None)


def _column(expression: exp.Expr) -> str | None:
    """The column that an expression is, casts between whole numbers aside.

    A cut is by values of one kind, and all integers are one: a cast from one to another cannot
    bring apart what was equal, or it fails.
    """
    bare = expression.unnest()
    while isinstance(bare, exp.Cast) and bare.to.this in exp.DataType.INTEGER_TYPES:
        inner = bare.this.unnest()
        if not isinstance(inner, exp.Column | exp.Cast):
            return None
        bare = inner
    return bare.name if isinstance(bare, exp.Column) else None


def _aggregates(query: exp.Select) -> bool:
    """Whether a query without groups makes one row of all."""
    for item in query.expressions:
        for node in item.find_all(exp.Anonymous, exp.Count):
            if is_aggregate(node) and node.find_ancestor(exp.Window) is None:
                return True
    return False
