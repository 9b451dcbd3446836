"""Central moments as states of constant size: of values, of their shape, and of pairs.

A state holds how many values there are, their mean, and sums of powers of their distances from it
(for pairs: from both means). Sums of plain powers would be simpler and are wrong in the digits that
matter: they cancel where the mean is large against the spread. States are merged one by one by the
formulas of Chan et al. and Pébay; or, where all are at hand as a list, around their common mean.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from headrace.definitions.definition import Sql, call, column, number
from headrace.plan.types import DOUBLE, DataType
from headrace.sql.render import data_type

VALUES = DataType("struct<n:bigint,mean:double,m2:double>")
SHAPES = DataType("struct<n:bigint,mean:double,m2:double,m3:double,m4:double>")
PAIRS = DataType("struct<n:bigint,x:double,y:double,c:double,xx:double,yy:double>")

#: Function: whether it divides by n - 1, and whether it takes the root.
VARIANCES: dict[str, tuple[bool, bool]] = {
    "variance": (True, False),
    "var_samp": (True, False),
    "var_pop": (False, False),
    "stddev": (True, True),
    "std": (True, True),
    "stddev_samp": (True, True),
    "stddev_pop": (False, True),
}
SHAPED = frozenset({"skewness", "kurtosis"})
PAIRED = frozenset({"corr", "covar_pop", "covar_samp"})

#: An aggregate over the rows of a state, by the names of its function and of its arguments.
Over = Callable[..., Sql]

_N = "a.n + b.n"


# --- states of rows ------------------------------------------------------------------------------


def state_of_values(over: Over) -> Sql:
    """``over`` takes a function over the value."""
    count = over("count")
    spread = _or_zero(exp.Mul(this=over("var_pop"), expression=count.copy()))
    return _struct(n=count, mean=_or_zero(over("avg")), m2=spread)


def state_of_shape(over: Over) -> Sql:
    """The third and fourth moments are what makes the skewness and the kurtosis of the rows."""
    n, m2 = (
        over("count").sql(dialect="spark"),
        f"({_text(over('var_pop'))} * {_text(over('count'))})",
    )
    m3 = f"{_text(over('skewness'))} * {m2} * sqrt({m2}) / sqrt({n})"
    m4 = f"({_text(over('kurtosis'))} + 3.0D) * {m2} * {m2} / {n}"
    # Of values that are all alike Spark has neither, and both moments are 0.
    parts = {"n": n, "mean": f"coalesce({_text(over('avg'))}, 0.0D)", "m2": f"coalesce({m2}, 0.0D)"}
    for name, moment in (("m3", m3), ("m4", m4)):
        parts[name] = f"if(coalesce({m2}, 0.0D) = 0.0D, 0.0D, {moment})"
    listed = ", ".join(f"'{name}', {part}" for name, part in parts.items())
    return exp.Var(this=f"named_struct({listed})")


def state_of_pairs(over: Over) -> Sql:
    """``over`` takes a function over ``x``, ``y`` or both, of pairs without a NULL."""
    count = over("count", "x")

    def summed(*named: str) -> Sql:
        return _or_zero(exp.Mul(this=over(*named), expression=count.copy()))

    return _struct(
        n=count,
        x=_or_zero(over("avg", "x")),
        y=_or_zero(over("avg", "y")),
        c=summed("covar_pop", "x", "y"),
        xx=summed("var_pop", "x"),
        yy=summed("var_pop", "y"),
    )


def values_of_row(value: Sql) -> Sql:
    return _struct(n=_there(value), mean=_or_zero(value), m2=_none_of(value))


def shape_of_row(value: Sql) -> Sql:
    none = _none_of(value)
    return _struct(n=_there(value), mean=_or_zero(value), m2=none, m3=none.copy(), m4=none.copy())


def pair_of_row(x: Sql, y: Sql) -> Sql:
    """Of a pair; both sides are NULL where one is."""
    none = [_none_of(side) for side in (x, y)]
    both = exp.paren(none[0].copy() + none[1].copy())
    return _struct(n=_there(x), x=_or_zero(x), y=_or_zero(y), c=both, xx=none[0], yy=none[1])


def _there(value: Sql) -> Sql:
    missing = exp.Is(this=exp.paren(value.copy()), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=missing, true=number(0))], default=number(1))


def _none_of(value: Sql) -> Sql:
    """The spread of a single value: 0, and none that is a number where it is infinite."""
    return _or_zero(exp.Sub(this=exp.paren(value.copy()), expression=exp.paren(value.copy())))


# --- of rows that are there many times, and of all pairs of rows --------------------------------


def times(state: Sql, kind: DataType, count: Sql) -> Sql:
    """The state of so many times the same rows."""
    means = {VALUES: ("mean",), SHAPES: ("mean",), PAIRS: ("x", "y")}[kind]
    parts = {
        field.name: part if field.name in means else exp.Mul(this=part, expression=exp.paren(count))
        for field in kind.fields()
        for part in (_part(state, field.name),)
    }
    return _struct(**parts)


def sum_of_each(left: Sql, right: Sql, negative: bool) -> Sql:
    """The state of the sums, or the differences, of all values of one with all of another."""
    mean_of = exp.Sub if negative else exp.Add
    return _struct(
        n=_part(left, "n") * _part(right, "n"),
        mean=mean_of(this=_part(left, "mean"), expression=_part(right, "mean")),
        m2=_part(left, "m2") * _part(right, "n") + _part(right, "m2") * _part(left, "n"),
    )


def product_of_each(left: Sql, right: Sql) -> Sql:
    """The state of the products of all values of one with all of another."""
    spreads: Sql = _part(left, "m2") * _part(right, "m2")
    for one, other in ((left, right), (right, left)):
        mean = _part(one, "mean")
        spreads += _part(other, "m2") * _part(one, "n") * mean * mean.copy()
    return _struct(
        n=_part(left, "n") * _part(right, "n"),
        mean=_part(left, "mean") * _part(right, "mean"),
        m2=spreads,
    )


def pairs_of_each(left: Sql, right: Sql) -> Sql:
    """The state of all pairs of a value of one and a value of another, which do not depend on each
    other: 0 between them, and none that is a number where a value is infinite."""
    none = [_none_of(_part(side, "mean")) for side in (left, right)]
    return _struct(
        n=_part(left, "n") * _part(right, "n"),
        x=_part(left, "mean"),
        y=_part(right, "mean"),
        c=exp.paren(none[0] + none[1]),
        xx=_part(left, "m2") * _part(right, "n"),
        yy=_part(right, "m2") * _part(left, "n"),
    )


def _part(state: Sql, name: str) -> Sql:
    return exp.Dot(this=state.copy(), expression=exp.to_identifier(name))


# --- merged --------------------------------------------------------------------------------------


def merged_values(stored: Sql) -> Sql:
    delta = "(b.mean - a.mean)"
    return _merged(
        stored,
        "n:bigint,mean,m2",
        {
            "mean": f"a.mean + {delta} * b.n / ({_N})",
            "m2": f"a.m2 + b.m2 + {delta} * {delta} * a.n * b.n / ({_N})",
        },
        "merged_moments",
    )


def merged_shapes(stored: Sql) -> Sql:
    d, n = "(b.mean - a.mean)", f"({_N})"
    return _merged(
        stored,
        "n:bigint,mean,m2,m3,m4",
        {
            "mean": f"a.mean + {d} * b.n / {n}",
            "m2": f"a.m2 + b.m2 + {d} * {d} * a.n * b.n / {n}",
            "m3": f"a.m3 + b.m3 + {d} * {d} * {d} * a.n * b.n * (a.n - b.n) / {n} / {n} "
            f"+ 3.0D * {d} * (a.n * b.m2 - b.n * a.m2) / {n}",
            "m4": f"a.m4 + b.m4 + {d} * {d} * {d} * {d} * a.n * b.n / {n} "
            f"* (1.0D * a.n * a.n - 1.0D * a.n * b.n + 1.0D * b.n * b.n) / {n} / {n} "
            f"+ 6.0D * {d} * {d} * (1.0D * a.n * a.n * b.m2 + 1.0D * b.n * b.n * a.m2) / {n} / {n} "
            f"+ 4.0D * {d} * (a.n * b.m3 - b.n * a.m3) / {n}",
        },
        None,
    )


def merged_pairs(stored: Sql) -> Sql:
    dx, dy, both = "(b.x - a.x)", "(b.y - a.y)", f"a.n * b.n / ({_N})"
    return _merged(
        stored,
        "n:bigint,x,y,c,xx,yy",
        {
            "x": f"a.x + {dx} * b.n / ({_N})",
            "y": f"a.y + {dy} * b.n / ({_N})",
            "c": f"a.c + b.c + {dx} * {dy} * {both}",
            "xx": f"a.xx + b.xx + {dx} * {dx} * {both}",
            "yy": f"a.yy + b.yy + {dy} * {dy} * {both}",
        },
        "merged_pairs",
    )


def _merged(stored: Sql, fields: str, parts: dict[str, str], elsewhere: str | None) -> Sql:
    """States merged one by one in Spark, and by a function of the engine's own in DuckDB."""
    names = [field.split(":")[0] for field in fields.split(",")]
    nothing = ", ".join(f"'{name}', {'0L' if name == 'n' else '0.0D'}" for name in names)
    merged = ", ".join(f"'{name}', {parts.get(name, _N)}" for name in names)
    text = (
        f"aggregate(collect_list({stored.sql(dialect='spark')}), named_struct({nothing}), "
        f"(a, b) -> if(b.n = 0, a, if(a.n = 0, b, named_struct({merged}))))"
    )
    twin = None if elsewhere is None else call(elsewhere, stored.copy())
    return exp.Var(this=text, twin=twin)


# --- finished ------------------------------------------------------------------------------------


def finished_values(function: str, name: str) -> Sql:
    sample, root = VARIANCES[function]
    # Too few values have no variance: NULL, not a division by zero.
    result = _quotient(_field(name, "m2"), name, sample)
    return call("sqrt", result) if root else result


def finished_shape(function: str, name: str) -> Sql:
    s = column(name).sql(dialect="spark")
    if function == "skewness":
        value = f"sqrt({s}.n) * {s}.m3 / sqrt({s}.m2 * {s}.m2 * {s}.m2)"
    else:
        value = f"{s}.n * {s}.m4 / ({s}.m2 * {s}.m2) - 3.0D"
    return exp.Var(this=f"if({s}.n = 0 OR {s}.m2 = 0.0D, NULL, {value})")


def finished_pairs(function: str, name: str) -> Sql:
    if function != "corr":
        return _quotient(_field(name, "c"), name, function == "covar_samp")
    s = column(name).sql(dialect="spark")
    # Where one side is always the same Spark divides by zero, which fails.
    text = f"if({s}.n <= 1, NULL, {s}.c / sqrt({s}.xx * {s}.yy))"
    return exp.Var(this=text, twin=call("correlation", column(name)))


def _quotient(total: Sql, name: str, sample: bool) -> Sql:
    count = _field(name, "n")
    if sample:
        count = call("greatest", exp.paren(count - number(1)), number(0))
    return exp.Div(this=total, expression=call("nullif", count, number(0)))


def _field(name: str, field: str) -> Sql:
    return exp.Dot(this=column(name), expression=exp.to_identifier(field))


def _struct(**parts: Sql) -> Sql:
    flat: list[Sql] = []
    for name, value in parts.items():
        flat += [exp.Literal.string(name), value]
    return call("named_struct", *flat)


def _or_zero(value: Sql) -> Sql:
    zero = exp.Cast(this=exp.Literal.number(0), to=data_type(DOUBLE))
    return call("coalesce", value, zero)


def _text(sql: Sql) -> str:
    return sql.sql(dialect="spark", normalize_functions=False)
