"""Ask Spark, when a query is registered, whether it reads every expression as the plan does.

The SQL front end types expressions by itself. Here Spark's analyzer has the last word: what it
refuses is refused now, in one line, instead of in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlglot import exp

from headrace.definitions.definition import Sql, null_columns, select
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.introspection.agreed_shapes import AgreedShapes
from headrace.errors import Position, QueryError
from headrace.names import OWN_NAMES
from headrace.plan.expressions import AggregateCall, Expr
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project
from headrace.plan.types import DataType, Schema
from headrace.sql.calls import AskedFunction
from headrace.sql.render import data_type, to_sqlglot

#: The place of an expression in the text, if it has one.
PlaceOf = Callable[[Expr], Position | None]


def check_names(plan: Node, place: Position | None = None) -> None:
    """Raise if the plan has a column of a name that definitions use for columns of their own."""
    for node in plan.walk():
        for name in node.schema.names if not isinstance(node, Join) else ():
            if name.startswith(OWN_NAMES):
                raise QueryError(
                    f"no column can be named {name!r}: names that begin with '{OWN_NAMES}' are "
                    "Headrace's own",
                    hint="give it another name: with AS, or in the stream's DataFrame with "
                    "withColumnRenamed",
                    position=place,
                    condition="RESERVED_NAME",
                )


def check_expressions(
    session: SparkSession,
    plan: Node,
    place_of: PlaceOf = lambda expr: None,
    agreed: AgreedShapes | None = None,
) -> None:
    """Raise if Spark does not accept an expression of the plan, or gives it another type.

    What is of a shape that Spark has ``agreed`` with is not asked again.
    """
    agreed = AgreedShapes() if agreed is None else agreed
    by_schema: list[tuple[Schema, list[Expr]]] = []
    for node in dict.fromkeys(plan.walk()):
        expressions = _expressions(node)
        if expressions and not agreed.has(expressions):
            schema = node.schema if isinstance(node, Join) else node.inputs[0].schema
            by_schema.append((schema, expressions))
    if len(by_schema) < 2 or not _all_right(session, by_schema):
        for schema, expressions in by_schema:
            _check(session, schema, expressions, place_of)
    for _, expressions in by_schema:
        agreed.note(expressions)


def _all_right(session: SparkSession, checked: list[tuple[Schema, list[Expr]]]) -> bool:
    """Whether Spark agrees with everything at once, which takes it no longer than with one."""
    together = exp.Select(expressions=[exp.Star()])
    for number, (schema, expressions) in enumerate(checked):
        part = _question(schema, expressions, f"n{number}_").subquery(f"t{number}", copy=False)
        if number == 0:
            together = together.from_(part, copy=False)
        else:
            together = together.join(part, join_type="cross", copy=False)
    try:
        fields = _analyzed(session, together).fields
    except Exception:
        return False
    planned = [expr.type.name for _, expressions in checked for expr in expressions]
    return all(
        _same_type(name, field.dataType.simpleString())
        for name, field in zip(planned, fields, strict=True)
    )


#: Leaves of Spark's expressions that are another value at each run, and constants within one.
_MOVING_LEAVES = ("Current", "Now", "Local")
_SESSION_LEAVES = ("CurrentTimeZone",)


def ask_function(
    session: SparkSession, name: str, arguments: tuple[DataType, ...]
) -> AskedFunction | None:
    """What Spark says of a function of these arguments; None if it knows no such one."""
    values: list[Sql] = [exp.Cast(this=exp.Null(), to=data_type(kind)) for kind in arguments]
    query = exp.Select(expressions=[exp.Anonymous(this=name, expressions=values)])
    try:
        frame = _frame(session, query)
        kind = DataType(frame.schema.fields[0].dataType.simpleString())
        analyzed = frame._jdf.queryExecution().analyzed().expressions().apply(0)
    except Exception:
        return None
    return AskedFunction(kind, is_deterministic(analyzed))


def is_deterministic(expression: Any) -> bool:
    """Whether an expression of Spark is the same whenever it is computed.

    Spark's own flag means: within one run. What is read once per run is told by its class.
    """
    kind = expression.getClass().getSimpleName()
    moving = kind.startswith(_MOVING_LEAVES) and kind not in _SESSION_LEAVES
    children = expression.children()
    return (
        bool(expression.deterministic())
        and not moving
        and all(is_deterministic(children.apply(i)) for i in range(children.size()))
    )


def _expressions(node: Node) -> list[Expr]:
    match node:
        case Filter(predicate=predicate):
            return [predicate]
        case Project(columns=columns):
            return [c.expr for c in columns]
        case Aggregate():
            return [named.expr for named in (*node.keys, *node.aggregates)]
        case Join():
            sides = [expr for pair in node.keys for expr in pair]
            return sides + ([node.residual] if node.residual is not None else [])
        case _:
            return []


def _question(schema: Schema, expressions: list[Expr], prefix: str) -> exp.Select:
    """The expressions over one row of NULLs."""
    empty = exp.Select(expressions=[])
    for name, value in null_columns(schema).items():
        empty = empty.select(exp.alias_(value, name, quoted=True), copy=False)
    columns = {f"{prefix}{i}": to_sqlglot(expr) for i, expr in enumerate(expressions)}
    keys = [expr for expr in expressions if not _aggregates(expr)]
    grouped = any(_aggregates(expr) for expr in expressions)
    by: list[Sql] = [to_sqlglot(key) for key in keys if key.columns()] if grouped else []
    return select(empty, columns, (), by)


def _check(
    session: SparkSession, schema: Schema, expressions: list[Expr], place_of: PlaceOf
) -> None:
    query = _question(schema, expressions, "c")
    try:
        fields = _analyzed(session, query).fields
    except Exception as error:
        raise QueryError(
            f"Spark refuses an expression: {one_line(error)}",
            position=place_of(_culprit(session, schema, expressions)),
            condition="INVALID_EXPRESSION",
        ) from error
    for expr, field in zip(expressions, fields, strict=True):
        spark_type = field.dataType.simpleString()
        if not _same_type(expr.type.name, spark_type):
            raise QueryError(
                f"{expr} is {spark_type} in Spark, but was planned as {expr.type}",
                hint=f"write CAST({expr} AS {spark_type})",
                position=place_of(expr),
                condition="TYPE_MISMATCH",
            )


def _culprit(session: SparkSession, schema: Schema, expressions: list[Expr]) -> Expr:
    """The first expression that Spark refuses by itself."""
    for expr in expressions:
        try:
            _analyzed(session, _question(schema, [expr], "c"))
        except Exception:
            return expr
    return expressions[0]


def _analyzed(session: SparkSession, query: exp.Query) -> StructType:
    """Let Spark analyze a query that may well be wrong; PySpark's log of its mistake is not for
    the user, who gets an error of ours."""
    return _frame(session, query).schema


def _frame(session: SparkSession, query: exp.Query) -> DataFrame:
    with _silenced("SQLQueryContextLogger"):
        return session.sql(query.sql(dialect="spark", normalize_functions=False))


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    logger = PySparkLogger.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _aggregates(expr: Expr) -> bool:
    return any(isinstance(part, AggregateCall) for part in expr.walk())


def _same_type(planned: str, analysed: str) -> bool:
    # Intervals of different fields ("interval minute") are one type to the plan.
    return planned == analysed or (
        planned.startswith("interval") and analysed.startswith("interval")
    )
