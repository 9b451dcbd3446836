"""Nothing of the text is passed over: what the binder has not read is refused.

sqlglot parses more than standing queries have, and each of its releases parses more. A list of what
to refuse would always be behind, so it is the other way round: while a query is bound, each node
notes which of its arguments were asked for by name. An argument that is there and that nobody asked
for (``VERSION AS OF``, ``IN UNNEST(…)``, whatever a later release adds) would have been ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from sqlglot import exp

from headrace.sql.refusals import refuse


class Arguments(dict[str, Any]):
    """The arguments of a node, and which of them were asked for.

    Walking, copying and comparing a tree go through all arguments and ask for none.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__(arguments)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


#: Arguments that say nothing about the meaning of a query, and why.
WITHOUT_MEANING: dict[type[exp.Expr], frozenset[str]] = {
    # Spark's names are case-insensitive, quoted or not.
    exp.Identifier: frozenset({"quoted"}),
    # How Spark divides, concatenates and casts, which sqlglot notes for other dialects.
    exp.Div: frozenset({"typed", "safe"}),
    exp.Concat: frozenset({"safe", "coalesce"}),
    exp.DPipe: frozenset({"safe"}),
    exp.TryCast: frozenset({"safe", "requires_string"}),
    # Whether a type holds others, which its kind says.
    exp.DataType: frozenset({"nested"}),
}

_LEAVE_IT_OUT = "leave it out"
_NAME_THE_COLUMNS = "name the columns, and give those that change an expression and an alias"
_AS_IT_WAS = (
    "leave it out; a table as it was is registered as such: "
    "table(name, spark.read.option('versionAsOf', …))"
)
_EACH_USE = "leave it out; each use of a name means the query itself"
_DERIVED = "write a derived table: (SELECT … FROM a JOIN b ON …) AS alias"

#: How an argument is written in SQL, and what to write instead.
_CLAUSES: dict[tuple[type[exp.Expr], str], tuple[str, str]] = {
    (exp.Table, "version"): ("VERSION AS OF or TIMESTAMP AS OF", _AS_IT_WAS),
    (exp.Table, "when"): ("AT or BEFORE", _AS_IT_WAS),
    (exp.Table, "changes"): ("CHANGES", _LEAVE_IT_OUT),
    (exp.Table, "hints"): ("WITH (…)", _LEAVE_IT_OUT),
    (exp.Table, "ordinality"): ("WITH ORDINALITY", _LEAVE_IT_OUT),
    (exp.Table, "partition"): ("PARTITION", "use WHERE"),
    (exp.Subquery, "alias"): ("an alias of a join in parentheses", _DERIVED),
    (exp.CTE, "materialized"): ("MATERIALIZED", _EACH_USE),
    (exp.With, "search"): ("SEARCH", _LEAVE_IT_OUT),
    (exp.Star, "replace"): ("* REPLACE (…)", _NAME_THE_COLUMNS),
    (exp.Star, "rename"): ("* RENAME (…)", _NAME_THE_COLUMNS),
    (exp.Star, "ilike"): ("* ILIKE …", _NAME_THE_COLUMNS),
    (exp.Star, "except_"): ("* EXCEPT (…) inside a function", "name the columns"),
    (exp.Between, "symmetric"): (
        "BETWEEN SYMMETRIC",
        "write x BETWEEN least(a, b) AND greatest(a, b)",
    ),
    (exp.In, "unnest"): ("IN UNNEST(…)", "use array_contains(array, value)"),
    (exp.In, "field"): ("IN without a list", "write IN (…), or array_contains(array, value)"),
    (exp.Cast, "default"): ("DEFAULT … ON CONVERSION ERROR", "use coalesce(TRY_CAST(…), …)"),
    (exp.DataType, "expressions"): ("a length of this type", "name the type alone"),
    (exp.DataType, "collate"): ("COLLATE", "compare lower(a) with lower(b)"),
    (exp.ColumnDef, "constraints"): ("a constraint in a type", "name the field and its type alone"),
    (exp.Distinct, "on"): ("DISTINCT ON", _LEAVE_IT_OUT),
}


def watched(tree: exp.Expr) -> exp.Expr:
    """A copy of the tree whose nodes note what is asked of them."""
    copy = tree.copy()
    for node in copy.walk():
        node.args = Arguments(node.args)
    return copy


def refuse_unread(tree: exp.Expr) -> None:
    """Refuse the first argument of a watched tree that is there and was never asked for."""
    for node, key, value in unread(tree):
        _refuse(node, key, value)


def unread(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str, Any]]:
    """What a watched tree holds and nobody asked for, outermost first."""
    for node in tree.dfs():
        arguments = node.args
        if not isinstance(arguments, Arguments):
            continue
        accounted_for = arguments.read | WITHOUT_MEANING.get(type(node), frozenset())
        for key, value in arguments.items():
            if key not in accounted_for and not _is_absent(value):
                yield node, key, value


def _is_absent(value: object) -> bool:
    return value is None or value is False or value == [] or value == ""


def _refuse(node: exp.Expr, key: str, value: Any) -> NoReturn:
    clause, advice = _CLAUSES.get((type(node), key), (_shown(node, key), _LEAVE_IT_OUT))
    refuse("NOT_UNDERSTOOD", _place(node, value), what_it_is=clause, advice=advice)


def _shown(node: exp.Expr, key: str) -> str:
    """An argument that we have no words for, by sqlglot's."""
    return f"{key.strip('_').replace('_', ' ').upper()} of {type(node).__name__}"


def _place(node: exp.Expr, value: Any) -> exp.Expr:
    """The argument itself where it knows its place, or else what it is an argument of."""
    first = value[0] if isinstance(value, list) else value
    below = first.walk() if isinstance(first, exp.Expr) else iter(())
    if isinstance(first, exp.Expr) and any("start" in part.meta for part in below):
        return first
    while "start" not in node.meta and node.parent is not None:
        node = node.parent
    return node
