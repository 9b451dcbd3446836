"""Queries written otherwise, as text: rewrites that keep the meaning, and changes that do not.

Both work on sqlglot's trees, by the letter of SQL, and share no code with ``headrace.merge``. A
column's type is known by its name (``tests.merge.written``). ``rewritten`` keeps the meaning;
``changed`` makes one small change to it, so that a query of another meaning is as near as can be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import sqlglot
from sqlglot import exp

_WHOLE, _WIDE = frozenset("ij"), frozenset("lm")
_DOUBLES, _MONEY, _TEXTS, _FLAGS = (
    frozenset("de"),
    frozenset("pq"),
    frozenset("st"),
    frozenset("bc"),
)
_ALIKE = (_WHOLE, _WIDE, _DOUBLES, _MONEY, _TEXTS, _FLAGS)

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}
_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
}
_NEAR: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.GTE,
    exp.GTE: exp.GT,
    exp.LT: exp.LTE,
    exp.LTE: exp.LT,
    exp.EQ: exp.LTE,
    exp.NEQ: exp.LT,
}

#: A place in a query, and what may stand there instead; None where the rule does not apply.
Rule = Callable[[exp.Expr, random.Random], exp.Expr | None]


def rewritten(sql: str, chance: random.Random, steps: int = 4) -> str:
    """The same query, written otherwise in some places."""
    return _applied(sql, chance, _SAME, steps)


def changed(sql: str, chance: random.Random) -> str:
    """A query that differs in one place."""
    return _applied(sql, chance, _OTHER, 1)


def _applied(sql: str, chance: random.Random, rules: tuple[Rule, ...], steps: int) -> str:
    tree = sqlglot.parse_one(sql, read="spark")
    for _ in range(steps):
        places = list(_places(tree))
        chance.shuffle(places)
        for place, rule in ((p, r) for p in places for r in chance.sample(rules, len(rules))):
            replacement = rule(place, chance)
            if replacement is not None:
                place.replace(replacement)
                break
    return tree.sql(dialect="spark")


def _places(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Conditions, values and aggregates; the arguments of windows are not looked into."""
    for node in tree.walk(prune=_is_window):
        if node is not tree:
            yield node


def _is_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in (
        *("window", "session_window", "trailing", "landmark"),
    )


# --- what keeps the meaning ----------------------------------------------------------------------


def _mirror(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if type(node) not in _MIRRORED or _holds_window(node):
        return None
    return _MIRRORED[type(node)](this=node.expression.copy(), expression=node.this.copy())


def _negate(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if type(node) not in _NEGATED or not _is_filter(node) or _holds_window(node):
        return None
    inner = _NEGATED[type(node)](this=node.this.copy(), expression=node.expression.copy())
    return exp.Not(this=exp.Paren(this=inner))


def _next_number(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``i > 3`` and ``i >= 4``."""
    if not isinstance(node, exp.GT | exp.LTE) or _kind(node.this) not in (_WHOLE, _WIDE):
        return None
    number = _number(node.expression)
    if number is None or number != int(number):
        return None
    other = exp.GTE if isinstance(node, exp.GT) else exp.LT
    return other(this=node.this.copy(), expression=exp.Literal.number(int(number) + 1))


def _between(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.Between) or _holds_window(node):
        return None
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    return exp.Paren(this=exp.And(this=low, expression=high))


def _listed(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``IN`` and ``OR``, in another order."""
    if not isinstance(node, exp.In):
        return None
    items = chance.sample(node.expressions, len(node.expressions))
    if chance.random() < 0.5:
        return exp.In(this=node.this.copy(), expressions=[item.copy() for item in items])
    equal = [exp.EQ(this=node.this.copy(), expression=item.copy()) for item in items]
    return exp.Paren(this=_chain(exp.Or, equal))


def _commute(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.And | exp.Or):
        return None
    return type(node)(this=_in_brackets(node.expression), expression=_in_brackets(node.this))


def _de_morgan(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.And | exp.Or) or _holds_window(node) or _has_columns_of_two(node):
        return None
    other = exp.Or if isinstance(node, exp.And) else exp.And
    parts = [exp.Not(this=_in_brackets(part)) for part in (node.this, node.expression)]
    return exp.Not(this=exp.Paren(this=other(this=parts[0], expression=parts[1])))


def _distribute(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``a AND (b OR c)`` as ``(a AND b) OR (a AND c)``."""
    if not isinstance(node, exp.And) or _holds_window(node) or _has_columns_of_two(node):
        return None
    one, choice = node.this, node.expression
    inner = choice.unnest()
    if not isinstance(inner, exp.Or):
        return None
    pairs = [
        exp.Paren(this=exp.And(this=_in_brackets(one), expression=_in_brackets(part)))
        for part in (inner.this, inner.expression)
    ]
    return exp.Paren(this=exp.Or(this=pairs[0], expression=pairs[1]))


def _absorb(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``a`` as ``a OR (a AND s = 'a')``."""
    if not _is_filter(node) or _holds_window(node) or _has_columns_of_two(node):
        return None
    if not isinstance(node, exp.GT | exp.EQ | exp.LT) or node.find(exp.Column) is None:
        return None
    column = node.find(exp.Column)
    assert column is not None
    beside = exp.EQ(
        this=exp.column("s", table=column.table or None), expression=exp.Literal.string("a")
    )
    both = exp.Paren(this=exp.And(this=node.copy(), expression=beside))
    return exp.Paren(this=exp.Or(this=node.copy(), expression=both))


def _further_bound(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``i > 3`` as ``i > 3 AND i > 1``, or with its being there."""
    if (
        not isinstance(node, exp.GT)
        or not isinstance(node.this, exp.Column)
        or not _is_filter(node)
    ):
        return None
    number = _number(node.expression)
    if number is None:
        return None
    if chance.random() < 0.5:
        implied: exp.Expr = exp.Not(this=exp.Is(this=node.this.copy(), expression=exp.Null()))
    else:
        implied = exp.GT(this=node.this.copy(), expression=exp.Literal.number(int(number) - 2))
    return exp.Paren(this=exp.And(this=node.copy(), expression=implied))


def _is_true(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not _is_filter(node) or type(node) not in _MIRRORED or _holds_window(node):
        return None
    if _has_columns_of_two(node):
        return None
    return exp.Is(this=exp.Paren(this=node.copy()), expression=exp.true())


def _constant(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``5`` as ``2 + 3`` or, beside a column, as ``5.0``."""
    if not isinstance(node, exp.Literal) or node.is_string or type(node.parent) not in _MIRRORED:
        return None
    number = _number(node)
    if number is None or number != int(number):
        return None
    if chance.random() < 0.5:
        return exp.Literal.number(f"{int(number)}.0")
    if "." in node.name:
        return None
    parts = exp.Add(
        this=exp.Literal.number(int(number) - 1) if number >= 1 else node.copy(),
        expression=exp.Literal.number(1 if number >= 1 else 0),
    )
    return exp.Paren(this=parts)


def _synonym(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    match node:
        case exp.Upper():
            return exp.Anonymous(this="ucase", expressions=[node.this.copy()])
        case exp.Lower():
            return exp.Anonymous(this="lcase", expressions=[node.this.copy()])
        case exp.Length():
            return exp.Anonymous(this="char_length", expressions=[node.this.copy()])
        case exp.Coalesce() if len(node.expressions) == 1:
            name = chance.choice(("nvl", "ifnull"))
            parts = [node.this.copy(), node.expressions[0].copy()]
            return exp.Anonymous(this=name, expressions=parts)
    return None


def _aggregate(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``count_if``, ``FILTER`` and sums of ones."""
    match node:
        case exp.CountIf():
            ones = exp.If(
                this=node.this.copy(), true=exp.Literal.number(1), false=exp.Literal.number(0)
            )
            if chance.random() < 0.5:
                return exp.Sum(this=ones)
            where = exp.Where(this=node.this.copy())
            return exp.Filter(this=exp.Count(this=exp.Star()), expression=where)
        case exp.Filter(this=exp.Sum() | exp.Max() | exp.Min() | exp.Avg()):
            case = exp.Case(
                ifs=[exp.If(this=node.expression.this.copy(), true=node.this.this.copy())]
            )
            return type(node.this)(this=case)
        case exp.Count(this=exp.Star()):
            return exp.Count(this=exp.Literal.number(1))
    return None


def _windows(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``window(ts, '10 seconds')`` with its slide, in every place."""
    if not _is_window(node) or node.name.lower() != "window" or len(node.expressions) != 2:
        return None
    if isinstance(node.parent, exp.EQ):
        return None
    arguments = [*(part.copy() for part in node.expressions), node.expressions[1].copy()]
    return exp.Anonymous(this="window", expressions=arguments)


_SAME: tuple[Rule, ...] = (
    *(_mirror, _negate, _next_number, _between, _listed, _commute, _de_morgan, _distribute),
    *(_absorb, _further_bound, _is_true, _constant, _synonym, _aggregate, _windows),
)


# --- what changes the meaning --------------------------------------------------------------------


def _other_number(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    number = _number(node)
    if number is None:
        return None
    step = chance.choice((1, -1, 2))
    if number == int(number) and "." not in node.name:
        return exp.Literal.number(int(number) + step)
    digits = len(node.name.partition(".")[2])
    return exp.Literal.number(f"{number + step / 10**digits:.{digits}f}")


def _other_text(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    if isinstance(node.parent, exp.Cast):
        day = (
            node.name.replace("-02", "-03")
            if "-02" in node.name
            else node.name.replace("01", "02", 1)
        )
        return exp.Literal.string(day) if day != node.name and ":" not in day else None
    if node.name.endswith(("seconds", "minutes", "minute")):
        return None
    return exp.Literal.string(chance.choice([t for t in ("a", "b", "A", "ab") if t != node.name]))


def _near_operator(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if type(node) not in _NEAR or _holds_window(node) or _has_columns_of_two(node):
        return None
    other = chance.choice((_NEAR[type(node)], _NEGATED[type(node)]))
    return other(this=node.this.copy(), expression=node.expression.copy())


def _and_or(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.And | exp.Or) or _holds_window(node) or _has_columns_of_two(node):
        return None
    other = exp.Or if isinstance(node, exp.And) else exp.And
    return exp.Paren(
        this=other(this=_in_brackets(node.this), expression=_in_brackets(node.expression))
    )


def _dropped(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.And | exp.Or) or _holds_window(node) or _has_columns_of_two(node):
        return None
    return chance.choice((node.this, node.expression)).copy()


def _other_column(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    kind = _kind(node)
    if kind is None or isinstance(node.parent, exp.Anonymous) or node.find_ancestor(exp.Group):
        return None
    if isinstance(node.parent, exp.Select | exp.Alias) and node.find_ancestor(exp.Select):
        return None
    if node.args.get("table") is not None and node.text("table") != "a":
        return None
    (other,) = kind - {node.name}
    return exp.column(other, table=node.text("table") or None)


def _other_function(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    pairs: tuple[tuple[type[exp.Expr], type[exp.Expr]], ...] = (
        *((exp.Max, exp.Min), (exp.Min, exp.Max), (exp.Upper, exp.Lower), (exp.Lower, exp.Upper)),
        *((exp.StartsWith, exp.EndsWith), (exp.Sum, exp.Max), (exp.Avg, exp.Min)),
    )
    for one, other in pairs:
        if isinstance(node, one):
            return other(**{k: v.copy() for k, v in node.args.items() if isinstance(v, exp.Expr)})
    match node:
        case exp.CountIf():
            return exp.CountIf(this=exp.Not(this=exp.Paren(this=node.this.copy())))
        case exp.Filter() if chance.random() < 0.4:
            return node.this.copy()
        case exp.Count(this=exp.Star()) if not isinstance(node.parent, exp.Filter):
            return exp.Count(this=exp.column("d"))
    return None


def _not(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """A condition turned round, and its NULL kept or not."""
    if not _is_filter(node) or _holds_window(node) or _has_columns_of_two(node):
        return None
    if isinstance(node, exp.Is | exp.In | exp.Between | exp.Column):
        return exp.Not(this=exp.Paren(this=node.copy()))
    if type(node) in _MIRRORED:
        return exp.Not(this=exp.Is(this=exp.Paren(this=node.copy()), expression=exp.false()))
    return None


def _list_changed(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not isinstance(node, exp.In) or len(node.expressions) < 2:
        return None
    items = [item.copy() for item in node.expressions]
    items.pop(chance.randrange(len(items)))
    return exp.In(this=node.this.copy(), expressions=items)


def _other_window(node: exp.Expr, chance: random.Random) -> exp.Expr | None:
    if not _is_window(node) or isinstance(node.parent, exp.EQ) or len(node.expressions) < 2:
        return None
    lengths = {
        "window": ("12 seconds", "20 seconds", "5 seconds"),
        "session_window": ("7 seconds",),
    }
    other = exp.Literal.string(chance.choice(lengths.get(node.name.lower(), ("2 minutes",))))
    time, length = node.expressions[0].copy(), node.expressions[1].copy()
    if node.name.lower() == "window" and chance.random() < 0.5:
        return exp.Anonymous(
            this="window", expressions=[time, length, exp.Literal.string("5 seconds")]
        )
    return exp.Anonymous(this=node.name, expressions=[time, other])


_OTHER: tuple[Rule, ...] = (
    *(_other_number, _other_text, _near_operator, _and_or, _dropped, _other_column),
    *(_other_function, _not, _list_changed, _other_window),
)


# --- what the rules ask --------------------------------------------------------------------------


def _kind(node: exp.Expr) -> frozenset[str] | None:
    """The columns of the same type as a column; None of anything else."""
    if not isinstance(node, exp.Column):
        return None
    return next((kind for kind in _ALIKE if node.name in kind), None)


def _number(node: exp.Expr) -> float | None:
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        return float(node.name)
    except ValueError:
        return None


def _is_filter(node: exp.Expr) -> bool:
    """Whether it stands where only being true counts."""
    parent = node.parent
    while isinstance(parent, exp.And | exp.Or | exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Where | exp.CountIf)


def _holds_window(node: exp.Expr) -> bool:
    """Whether it is about the times of a join."""
    names = (exp.Interval, exp.Anonymous)
    return any(_is_window(part) or isinstance(part, exp.Interval) for part in node.find_all(*names))


def _has_columns_of_two(node: exp.Expr) -> bool:
    """Whether it ties the inputs of a join."""
    return len({column.text("table") for column in node.find_all(exp.Column)}) > 1


def _in_brackets(node: exp.Expr) -> exp.Expr:
    inner = node.copy()
    return exp.Paren(this=inner) if isinstance(inner, exp.And | exp.Or | exp.Not) else inner


def _chain(kind: type[exp.Expr], parts: list[exp.EQ]) -> exp.Expr:
    result: exp.Expr = parts[0]
    for part in parts[1:]:
        result = kind(this=result, expression=part)
    return result
