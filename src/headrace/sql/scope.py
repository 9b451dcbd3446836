"""What names mean at a place in a query: the relations in sight and their columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from headrace.names import folded
from headrace.plan.expressions import Call, Column, Expr, Literal
from headrace.plan.nodes import Node
from headrace.plan.types import STRING
from headrace.sql.refusals import did_you_mean, refuse


@dataclass(frozen=True)
class Visible:
    """A column as the query may name it. ``hidden`` ones are found by qualified name only."""

    name: str
    alias: str | None
    expr: Expr
    hidden: bool = False


@dataclass(frozen=True)
class Relation:
    """A plan with the names under which its columns are seen.

    ``alias`` is None for a join, whose columns are qualified already. ``nullable`` holds the
    columns that an outer join fills with NULL.
    """

    node: Node
    columns: tuple[Visible, ...]
    alias: str | None
    nullable: frozenset[str] = frozenset()

    def qualified(self) -> Relation:
        """The relation as the input of a join names it: ``alias.column``."""
        if self.alias is None:
            return self
        prefix = f"{self.alias}."
        columns = tuple(replace(c, expr=with_prefix(c.expr, prefix)) for c in self.columns)
        nullable = frozenset(prefix + name for name in self.nullable)
        return replace(self, columns=columns, nullable=nullable)

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.alias for c in self.columns if c.alias is not None))


def relation(node: Node, alias: str, nullable: frozenset[str] = frozenset()) -> Relation:
    """A named relation that shows all columns of its plan."""
    columns = tuple(Visible(f.name, alias, Column(f.name, f.type)) for f in node.schema)
    return Relation(node, columns, alias, nullable)


def with_prefix(expr: Expr, prefix: str) -> Expr:
    """The expression with each column renamed to ``prefix`` and its name."""

    def rename(part: Expr) -> Expr:
        return Column(prefix + part.name, part.type) if isinstance(part, Column) else part

    return expr.transform(rename)


def without_prefix(expr: Expr, prefix: str) -> Expr:
    """The expression with the prefix taken off each column's name."""

    def rename(part: Expr) -> Expr:
        if isinstance(part, Column):
            return Column(part.name.removeprefix(prefix), part.type)
        return part

    return expr.transform(rename)


def resolve(columns: tuple[Visible, ...], parts: list[str], node: exp.Expr) -> Expr | None:
    """The expression that ``a.b.c`` means: a relation's column, or a field of a struct.

    None where no column fits; an ambiguous name is refused.
    """
    wanted = [folded(part) for part in parts]
    if len(parts) > 1:
        of_alias = [c for c in columns if folded(c.alias or "") == wanted[0]]
        matching = [c for c in of_alias if folded(c.name) == wanted[1]]
        if matching:
            return _fields(_only(matching, parts[1], node), parts[2:], node)
    matching = [c for c in columns if not c.hidden and folded(c.name) == wanted[0]]
    if not matching:
        return None
    return _fields(_only(matching, parts[0], node), parts[1:], node)


def _only(candidates: list[Visible], name: str, node: exp.Expr) -> Expr:
    if len(candidates) > 1:
        relations = [c.alias for c in candidates if c.alias is not None]
        example = f"{relations[0]}.{name}" if relations else "an alias"
        refuse(
            "AMBIGUOUS_COLUMN", node, name=name, relations=" and ".join(relations), example=example
        )
    return candidates[0].expr


def _fields(expr: Expr, names: list[str], node: exp.Expr) -> Expr:
    for name in names:
        expr = field_of(expr, name, node)
    return expr


def field_of(expr: Expr, name: str, node: exp.Expr) -> Expr:
    """``struct.field``."""
    what = expr.name if isinstance(expr, Column) else "this expression"
    if not expr.type.is_struct:
        refuse(
            "UNKNOWN_FIELD",
            node,
            of=f"{what} ({expr.type})",
            name=name,
            advice="only structs have fields",
        )
    fields = expr.type.fields()
    for field in fields:
        if folded(field.name) == folded(name):
            return Call("field", (expr, Literal(field.name, STRING)), field.type)
    names = [field.name for field in fields]
    refuse(
        "UNKNOWN_FIELD",
        node,
        of=what,
        name=name,
        advice=did_you_mean(name, names, f"its fields are {', '.join(names)}"),
    )


def unknown_column(columns: tuple[Visible, ...], parts: list[str], node: exp.Expr) -> NoReturn:
    """Refuse a name that no column has, with the closest one as advice."""
    name = ".".join(parts)
    aliases = {folded(c.alias or "") for c in columns}
    if len(parts) > 1 and folded(parts[0]) in aliases:
        names = [
            f"{c.alias}.{c.name}" for c in columns if folded(c.alias or "") == folded(parts[0])
        ]
    elif len(parts) > 1:
        names = [f"{c.alias}.{c.name}" for c in columns if c.alias is not None]
    else:
        names = [c.name for c in columns if not c.hidden]
    shown = ", ".join(dict.fromkeys(names))
    refuse(
        "UNKNOWN_COLUMN",
        node,
        name=name,
        advice=did_you_mean(name, names, f"the columns are {shown}"),
    )
