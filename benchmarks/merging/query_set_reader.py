"""The query sets that were published with the query-merging paper, read as plans.

A set is a text file with a query per line, as a C++ program would build it:
``Query::from("example1").filter(Attribute("a")<5).sink(NullOutputSinkDescriptor::create());``
Every operator becomes one node of the plan, so that nodes can be counted as the paper counts them.

Paper: Query Merging, Section 8.1.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import BenchError
from benchmarks.merging.query_set_plans import (
    AGGREGATES,
    aggregated,
    arithmetic,
    attribute,
    comparison,
    constant,
    joined,
    mapped,
    projected,
    sink,
    source,
)
from headrace.errors import DurationError, HeadraceError, PlanError, Position
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Filter, Node, Sink, Union
from headrace.plan.types import BIGINT
from headrace.plan.windows import Hopping, tumbling

#: How many schemas the streams of a set take in turn: three in those of 2021, four in later ones.
SCHEMAS = (3, 4)
# Whatever is nothing else is a token too, which no rule of the grammar takes.
_TOKEN = re.compile(r'"[^"]*"|\w+|::|->|[<>=]=|\S')
_COMPARISONS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "==": "="}
_UNITS = {"Seconds": 1_000, "Minutes": 60_000}


class QuerySetError(BenchError):
    """A query of a set that cannot be read."""


def read_query_set(
    lines: Iterable[str],
    name: str = "query",
    schemas: int | None = None,
    on_bad: Callable[[QuerySetError], object] | None = None,
) -> list[Sink]:
    """The plans of a set, one for each line that is not empty; sinks are called q1, q2, ….

    ``name`` says in errors where the text is from. The text does not say how many schemas there
    are: without ``schemas``, it is the first of ``SCHEMAS`` by which the fewest lines are bad. A
    line that cannot be read is told to ``on_bad`` and left out; without that, it is raised.
    """
    text = list(lines)
    read: list[tuple[list[Sink], list[QuerySetError]]] = []
    for choice in SCHEMAS if schemas is None else (schemas,):
        queries, bad = [], []
        for number, line in enumerate(text, start=1):
            try:
                if line.strip():
                    queries.append(_Parser(line, number, name, choice).query())
            except QuerySetError as error:
                bad.append(error)
        if not bad:
            return queries
        read.append((queries, bad))
    if on_bad is None:
        raise max((bad[0] for _, bad in read), key=_place)
    queries, bad = min(read, key=lambda each: len(each[1]))
    for one in bad:
        on_bad(one)
    return queries


def read_query_set_file(
    path: Path,
    schemas: int | None = None,
    on_bad: Callable[[QuerySetError], object] | None = None,
) -> list[Sink]:
    """The plans of a file, which may be compressed."""
    content = path.read_bytes()
    if path.suffix == ".xz":
        content = lzma.decompress(content)
    # A byte that is no text spoils its line alone.
    text = content.decode("utf-8", "replace")
    return read_query_set(text.splitlines(), path.name, schemas, on_bad)


def _place(error: QuerySetError) -> tuple[int, int]:
    assert error.position is not None
    return error.position.line, error.position.column


class _Parser:
    """Recursive descent over the tokens of one line; each operator is bound as it is read."""

    def __init__(self, line: str, number: int, name: str, schemas: int) -> None:
        self.line = line
        self.number = number
        self.name = name
        self.schemas = schemas
        self.tokens: list[str] = [*_TOKEN.findall(line), ""]
        self.at = 0

    # --- tokens ----------------------------------------------------------------------------------

    def error(self, message: str, at: int | None = None, hint: str | None = None) -> QuerySetError:
        starts = [match.start() for match in _TOKEN.finditer(self.line)]
        starts.append(len(self.line.rstrip()))
        column = starts[self.at if at is None else at] + 1
        return QuerySetError(message, hint=hint, position=Position(self.number, column, self.name))

    def located(self, error: HeadraceError, at: int) -> QuerySetError:
        return self.error(error.message, at, error.hint)

    def expected(self, what: str) -> QuerySetError:
        return self.error(f"expected {what}, not {self.tokens[self.at] or 'the end of the line'}")

    def expect(self, *texts: str) -> None:
        for text in texts:
            if self.tokens[self.at] != text:
                raise self.expected(text)
            self.at += 1

    def accept(self, text: str) -> bool:
        if self.tokens[self.at] != text:
            return False
        self.at += 1
        return True

    def one_of(self, texts: Iterable[str]) -> str:
        token = self.tokens[self.at]
        if token not in texts:
            raise self.expected(f"one of {', '.join(texts)}")
        self.at += 1
        return token

    def string(self) -> str:
        token = self.tokens[self.at]
        if len(token) < 3 or token[0] != '"':
            raise self.expected("a name in quotes")
        self.at += 1
        return token[1:-1]

    def integer(self) -> int:
        token = self.tokens[self.at]
        if not (token.isascii() and token.isdigit()):
            raise self.expected("a number")
        self.at += 1
        return int(token)

    # --- queries and operators -------------------------------------------------------------------

    def query(self) -> Sink:
        node = self.chain()
        self.expect(".", "sink", "(", "NullOutputSinkDescriptor", "::", "create", "(", ")", ")")
        self.expect(";")
        if self.tokens[self.at]:
            raise self.expected("the end of the line")
        return sink(node, self.number)

    def chain(self) -> Node:
        """A source and its operators, up to a sink or the end of a side."""
        self.expect("Query", "::", "from", "(")
        begin = self.at
        stream = self.string()
        self.expect(")")
        try:
            node: Node = source(stream, self.schemas)
        except PlanError as error:
            raise self.located(error, begin) from error
        while self.tokens[self.at] == "." and self.tokens[self.at + 1] != "sink":
            self.at += 1
            node = self.operator(node)
        return node

    def operator(self, node: Node) -> Node:
        begin = self.at
        read = _OPERATORS[self.one_of(_OPERATORS)]
        self.expect("(")
        try:
            return read(self, node)
        except (PlanError, DurationError) as error:
            raise self.located(error, begin) from error

    def filter(self, node: Node) -> Node:
        left = self.sum(node)
        operator = _COMPARISONS[self.one_of(_COMPARISONS)]
        predicate = comparison(operator, left, self.sum(node))
        self.expect(")")
        return Filter(node, predicate)

    def map(self, node: Node) -> Node:
        target = self.attribute_name()
        self.expect("=")
        value = self.sum(node)
        self.expect(")")
        return mapped(node, target, value)

    def project(self, node: Node) -> Node:
        columns = []
        while True:
            name = alias = self.attribute_name()
            if self.accept("."):
                self.expect("as", "(")
                alias = self.string()
                self.expect(")")
            columns.append((name, alias))
            if not self.accept(","):
                break
        self.expect(")")
        return projected(node, columns)

    def union(self, node: Node) -> Node:
        other = self.chain()
        self.expect(")")
        return Union((node, other))

    def join(self, node: Node) -> Node:
        other = self.chain()
        self.expect(")", ".", "where", "(")
        left = self.attribute_name()
        self.expect(")", ".", "equalsTo", "(")
        right = self.attribute_name()
        self.expect(")", ".", "window", "(")
        time, window = self.window()
        self.expect(")")
        return joined(node, other, (left, right), time, window)

    def aggregate(self, node: Node) -> Node:
        time, window = self.window()
        self.expect(")", ".")
        key = None
        if self.accept("byKey"):
            self.expect("(")
            key = self.attribute_name()
            self.expect(")", ".")
        self.expect("apply", "(")
        function = _FUNCTIONS[self.one_of(_FUNCTIONS)]
        self.expect("(")
        argument = self.attribute_name()
        self.expect(")")
        alias = None
        if self.accept("->"):
            self.expect("as", "(")
            alias = self.attribute_name()
            self.expect(")")
        self.expect(")")
        return aggregated(node, time, window, function, argument, key, alias)

    # --- what operators are made of --------------------------------------------------------------

    def window(self) -> tuple[str, Hopping]:
        kind = self.one_of(("TumblingWindow", "SlidingWindow"))
        self.expect("::", "of", "(", "EventTime", "(")
        time = self.attribute_name()
        self.expect(")", ",")
        length = self.duration()
        if kind == "TumblingWindow":
            window = tumbling(length)
        else:
            self.expect(",")
            window = Hopping(length, self.duration())
        self.expect(")")
        return time, window

    def duration(self) -> int:
        unit = _UNITS[self.one_of(_UNITS)]
        self.expect("(")
        figure = self.integer()
        self.expect(")")
        return figure * unit

    def attribute_name(self) -> str:
        self.expect("Attribute", "(")
        name = self.string()
        self.expect(")")
        return name

    def sum(self, node: Node) -> Expr:
        left = self.product(node)
        while (operator := self.tokens[self.at]) in ("+", "-"):
            self.at += 1
            left = arithmetic(operator, left, self.product(node))
        return left

    def product(self, node: Node) -> Expr:
        left = self.operand(node)
        while self.accept("*"):
            left = arithmetic("*", left, self.operand(node))
        return left

    def operand(self, node: Node) -> Expr:
        if self.tokens[self.at] != "Attribute":
            return constant(self.integer())
        begin = self.at
        name = self.attribute_name()
        try:
            column = attribute(node, name)
        except PlanError as error:
            raise self.located(error, begin) from error
        if column.type != BIGINT:
            raise self.error(f"{name} is a {column.type}, not a number to compute with", begin)
        return column


_FUNCTIONS = {name.capitalize(): name for name in AGGREGATES}
_OPERATORS: dict[str, Callable[[_Parser, Node], Node]] = {
    "filter": _Parser.filter,
    "map": _Parser.map,
    "project": _Parser.project,
    "unionWith": _Parser.union,
    "joinWith": _Parser.join,
    "window": _Parser.aggregate,
}
