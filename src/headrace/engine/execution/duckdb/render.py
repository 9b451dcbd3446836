"""Definitions as DuckDB SQL: the same queries as for Spark, in another spelling.

Operators build definitions from few forms (see ``relations``), and only these are known here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlglot import exp

from headrace.engine.execution.duckdb import calendars, decimals, patterns
from headrace.engine.execution.duckdb.meanings import (
    cast,
    comparison_sign,
    division,
    duckdb_type,
    function,
    like,
    of_one_type,
    operator,
)
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.sql.render import type_of

_JOINS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("LEFT", "ANTI"): "ANTI JOIN",
}


def duckdb_query(query: exp.Expr) -> str:
    """A definition as DuckDB SQL; raises ``Untranslatable`` with what has no equal there."""
    match query:
        case exp.Union() if not query.args.get("distinct"):
            return f"{duckdb_query(query.this)} UNION ALL {duckdb_query(query.expression)}"
        case exp.Select():
            return _select(query)
        case exp.Subquery():
            return f"({duckdb_query(query.this)})"
        case _:
            raise Untranslatable(f"a query of the form {type(query).__name__}")


def identifier(name: str) -> str:
    """A quoted name.

    >>> identifier('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


_KNOWN_PARTS = {"expressions", "from_", "joins", "where", "group", "distribute"}


def _select(query: exp.Select) -> str:
    strange = {part for part, value in query.args.items() if value} - _KNOWN_PARTS
    if strange:
        raise Untranslatable(f"{', '.join(sorted(strange))} in a query")
    columns: list[str] = []
    generated = ""
    for item in query.expressions:
        if isinstance(item, exp.Anonymous) and item.name == "inline":
            names, generated = _generated(item.expressions[0])
            columns += names
        else:
            columns.append(_item(item))
    if generated:
        columns = ["__s.*" if column == "*" else column for column in columns]
    text = [f"SELECT {', '.join(columns)}"]
    source = query.args.get("from_")
    if source is not None:
        text.append(f"FROM {_source(source.this, '__s' if generated else '')}{generated}")
    for join in query.args.get("joins") or ():
        text.append(_join(join))
    where = query.args.get("where")
    if where is not None:
        text.append(f"WHERE {duckdb_expression(where.this)}")
    group = query.args.get("group")
    if group is not None:
        text.append(f"GROUP BY {', '.join(map(duckdb_expression, group.expressions))}")
    return " ".join(text)


def _item(item: exp.Expr) -> str:
    if isinstance(item, exp.Alias):
        return f"{duckdb_expression(item.this)} AS {identifier(item.alias)}"
    return duckdb_expression(item)


def _source(source: exp.Expr, alias: str = "") -> str:
    if isinstance(source, exp.Table):
        text = identifier(source.name)
    elif isinstance(source, exp.Subquery):
        text, alias = f"({duckdb_query(source.this)})", alias or source.alias
    else:
        raise Untranslatable(f"rows from {type(source).__name__}")
    return f"{text} AS {identifier(alias)}" if alias else text


def _join(join: exp.Join) -> str:
    kind = _JOINS.get((join.side.upper(), join.kind.upper()))
    if kind is None:
        raise Untranslatable(f"a join of kind {join.side} {join.kind}")
    on = join.args.get("on")
    condition = f" ON {duckdb_expression(on)}" if on is not None else ""
    if not condition and kind == "JOIN":
        kind = "CROSS JOIN"
    return f"{kind} {_source(join.this)}{condition}"


# Rows that constants generate. Spark gets them as JSON, from which it need not compile code anew;
# for DuckDB they are a table to join with.


def _generated(argument: exp.Expr) -> tuple[list[str], str]:
    """The columns of ``inline(…)`` and the join that makes them."""
    if isinstance(argument, exp.Bracket):
        position = duckdb_expression(argument.expressions[0])
        names, by_position = _constants(argument.this)
        rows = [[at, *row] for at, some in enumerate(by_position) for row in some]
        return _columns(names), _values(["__at", *names], rows, f"__o.__at = {position}")
    names, rows = _constants(argument)
    return _columns(names), _values(names, rows, "true")


def _columns(names: Sequence[str]) -> list[str]:
    return [f"__o.{identifier(name)} AS {identifier(name)}" for name in names]


def _values(names: Sequence[str], rows: Sequence[Sequence[int]], condition: str) -> str:
    listed = ", ".join(f"({', '.join(map(str, row))})" for row in rows)
    if not rows:
        listed, condition = f"({', '.join('0' for _ in names)})", "false"
    typed = ", ".join(f"{identifier(name)}::BIGINT AS {identifier(name)}" for name in names)
    header = ", ".join(map(identifier, names))
    return f" JOIN (SELECT {typed} FROM (VALUES {listed}) AS v({header})) AS __o ON {condition}"


def _constants(call: exp.Expr) -> tuple[list[str], list[list]]:  # type: ignore[type-arg]
    """Names and rows of a ``from_json`` over constants; one list deeper where it is an array of
    arrays."""
    if not (isinstance(call, exp.Anonymous) and call.name == "from_json"):
        raise Untranslatable("rows that are generated from something else than constants")
    value, kind = (part.this for part in call.expressions)
    fields = kind[kind.index("struct<") + len("struct<") : kind.index(">")]
    names = [field.split(":")[0].strip() for field in fields.split(",")]
    parsed = json.loads(value)
    if kind.startswith("array<array<"):
        return names, [[[row[name] for name in names] for row in some] for some in parsed]
    return names, [[row[name] for name in names] for row in parsed]


# Expressions


def duckdb_expression(node: exp.Expr) -> str:
    """An expression as DuckDB SQL."""
    match node:
        case exp.Column():
            kind = type_of(node)
            if kind is not None:
                duckdb_type(kind)
            return identifier(node.name)
        case exp.Star():
            return "*"
        case exp.Paren():
            return f"({duckdb_expression(node.this)})"
        case exp.Literal():
            return _text(node.this) if node.is_string else node.this
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Null():
            return "NULL"
        case exp.Alias():
            return _item(node)
        case exp.Not():
            return f"NOT {duckdb_expression(node.this)}"
        case exp.Neg():
            return f"-{duckdb_expression(node.this)}"
        case exp.Is(expression=exp.Null()):
            return f"{duckdb_expression(node.this)} IS NULL"
        case exp.In():
            return _in(node)
        case exp.Case():
            return _case(node)
        case exp.TryCast():
            raise Untranslatable("try_cast")
        case exp.Cast():
            return f"CAST({duckdb_expression(node.this)} AS {cast(node)})"
        case exp.Dot():
            return f"({duckdb_expression(node.this)}).{identifier(node.expression.name)}"
        case exp.Div():
            return _binary(node, division(node))
        case exp.Like():
            return _binary(node, like(node))
        case exp.Count():
            return f"count({duckdb_expression(node.this)})"
        case exp.Distinct():
            return f"DISTINCT {', '.join(map(duckdb_expression, node.expressions))}"
        case exp.Filter():
            condition = duckdb_expression(node.expression.this)
            return f"{duckdb_expression(node.this)} FILTER (WHERE {condition})"
        case exp.Window():
            return _window(node)
        case exp.RegexpLike():
            return patterns.matches(node, _operand)
        case exp.Add() | exp.Sub() if (moved := calendars.shifted(node, _operand)) is not None:
            return moved
        case exp.Add() | exp.Sub() | exp.Mul() if decimals.is_of_decimals(node):
            return decimals.arithmetic(node, _operand)
        case exp.Binary() if (sign := comparison_sign(node)) and decimals.are_two_sizes(node):
            return decimals.comparison(node, sign, _operand)
        case exp.IntDiv():
            # A bigint in Spark, whatever is divided: sums look at its upper half.
            whole = f"CAST({duckdb_expression(node.this)} AS BIGINT)"
            return f"{whole} {operator(node)} {_operand(node.expression)}"
        case exp.Binary():
            return _binary(node, operator(node))
        case exp.Var() if isinstance(node.args.get("twin"), exp.Expr):
            return duckdb_expression(node.args["twin"])
        case exp.Anonymous():
            return function(node, [duckdb_expression(a) for a in node.expressions])
        case _:
            raise Untranslatable(f"an expression of the form {type(node).__name__}")


def _text(value: str) -> str:
    if "\x00" in value:
        raise Untranslatable("a text with a zero character")
    return "'" + value.replace("'", "''") + "'"


def _binary(node: exp.Expr, sign: str) -> str:
    return f"{_operand(node.this)} {sign} {_operand(node.expression)}"


def _operand(node: exp.Expr) -> str:
    """An operand, in brackets where the engines' precedence could differ."""
    text = duckdb_expression(node)
    is_open = isinstance(node, exp.Binary | exp.Not | exp.Neg | exp.Is | exp.In | exp.Case)
    return f"({text})" if is_open and not isinstance(node, exp.Dot) else text


def _in(node: exp.In) -> str:
    for value in node.expressions:
        operator(exp.EQ(this=node.this.copy(), expression=value.copy()))
    values = ", ".join(map(duckdb_expression, node.expressions))
    return f"{_operand(node.this)} IN ({values})"


def _case(node: exp.Case) -> str:
    if node.this is not None:
        raise Untranslatable("CASE with a value")
    ifs, default = node.args["ifs"], node.args.get("default")
    values = [branch.args["true"] for branch in ifs] + ([default] if default is not None else [])
    texts = of_one_type(values, [duckdb_expression(value) for value in values])
    branches = [
        f"WHEN {duckdb_expression(branch.this)} THEN {value}"
        for branch, value in zip(ifs, texts, strict=False)
    ]
    last = f" ELSE {texts[-1]}" if default is not None else ""
    return f"CASE {' '.join(branches)}{last} END"


def _window(node: exp.Window) -> str:
    parts = []
    if node.args.get("partition_by"):
        parts.append(f"PARTITION BY {', '.join(map(duckdb_expression, node.args['partition_by']))}")
    order = node.args.get("order")
    if order is not None:
        # Where NULLs come is written out: Spark's default is not DuckDB's.
        keys = [f"{duckdb_expression(item.this)} ASC NULLS FIRST" for item in order.expressions]
        parts.append(f"ORDER BY {', '.join(keys)}")
    spec = node.args.get("spec")
    if spec is not None:
        parts.append(
            f"{spec.args['kind']} BETWEEN {_bound(spec, 'start')} AND {_bound(spec, 'end')}"
        )
    return f"{duckdb_expression(node.this)} OVER ({' '.join(parts)})"


def _bound(spec: exp.WindowSpec, side: str) -> str:
    bound = spec.args[side]
    text = bound if isinstance(bound, str) else duckdb_expression(bound)
    return f"{text} {spec.args.get(f'{side}_side') or ''}".strip()
