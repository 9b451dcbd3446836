"""Data types and schemas, in Spark's vocabulary but without Spark.

A type is its Spark simple string (``bigint``, ``decimal(10,2)``, ``struct<start:timestamp,...>``):
one spelling per type, so types compare and hash as strings do and go through JSON unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.errors import PlanError
from headrace.names import first_twice


@dataclass(frozen=True)
class DataType:
    """A Spark data type, named by its simple string."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def is_integer(self) -> bool:
        return self.name in _INTEGER_RANK

    @property
    def is_decimal(self) -> bool:
        return self.name.startswith("decimal")

    @property
    def is_fractional(self) -> bool:
        return self.name in ("float", "double")

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_decimal or self.is_fractional

    @property
    def is_struct(self) -> bool:
        return self.name.startswith("struct<")

    @property
    def is_interval(self) -> bool:
        return self.name.startswith("interval")

    @property
    def integer_rank(self) -> int:
        """Position among the integer types, narrowest first."""
        return _INTEGER_RANK[self.name]

    @property
    def decimal_parameters(self) -> tuple[int, int]:
        """Precision and scale of a decimal type."""
        match = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", self.name)
        if match is None:
            raise PlanError(f"{self.name} is not a decimal type")
        return int(match[1]), int(match[2])

    def fields(self) -> tuple[Field, ...]:
        """The fields of a struct type.

        >>> [f.name for f in WINDOW.fields()]
        ['start', 'end']
        """
        if not self.is_struct:
            raise PlanError(f"{self.name} has no fields")
        parts = _split_at_depth_zero(self.name[len("struct<") : -1])
        return tuple(
            Field(name, DataType(kind)) for name, _, kind in (p.partition(":") for p in parts)
        )

    def element(self) -> DataType:
        """The element type of an array, or the value type of a map."""
        inner = self.name[self.name.index("<") + 1 : -1]
        return DataType(_split_at_depth_zero(inner)[-1])


_INTEGER_RANK = {"tinyint": 0, "smallint": 1, "int": 2, "bigint": 3}


def _split_at_depth_zero(text: str) -> list[str]:
    """Split at the commas that stand outside every bracket."""
    parts, depth, begin = [], 0, 0
    for index, char in enumerate(text):
        if char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:index].strip())
            begin = index + 1
    parts.append(text[begin:].strip())
    return parts


BOOLEAN = DataType("boolean")
TINYINT = DataType("tinyint")
SMALLINT = DataType("smallint")
INT = DataType("int")
BIGINT = DataType("bigint")
FLOAT = DataType("float")
DOUBLE = DataType("double")
STRING = DataType("string")
BINARY = DataType("binary")
DATE = DataType("date")
TIMESTAMP = DataType("timestamp")
NULL = DataType("void")
INTERVAL = DataType("interval day to second")
INTERVAL_MONTHS = DataType("interval year to month")
WINDOW = DataType("struct<start:timestamp,end:timestamp>")


def decimal(precision: int, scale: int) -> DataType:
    """A decimal type, bounded as Spark bounds it (38 digits).

    >>> decimal(45, 10).name
    'decimal(38,6)'
    """
    if precision > 38:
        # Spark keeps the digits before the point and gives up scale, but never below six.
        scale = max(scale - (precision - 38), min(scale, 6))
        precision = 38
    return DataType(f"decimal({precision},{scale})")


def array(element: DataType) -> DataType:
    return DataType(f"array<{element.name}>")


@dataclass(frozen=True)
class Field:
    """A named, typed column."""

    name: str
    type: DataType

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True)
class Schema:
    """An ordered list of columns, each of its own name whatever its case."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        twice = first_twice(f.name for f in self.fields)
        if twice is not None:
            both = " and ".join(dict.fromkeys(twice))
            raise PlanError(f"two columns are named {both}", hint="give each its own alias with AS")

    @classmethod
    def of(cls, fields: Iterable[tuple[str, DataType]]) -> Schema:
        return cls(tuple(Field(name, kind) for name, kind in fields))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return any(f.name == name for f in self.fields)

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise PlanError(f"no column {name!r}", hint=f"the columns are {', '.join(self.names)}")

    def select(self, names: Iterable[str]) -> Schema:
        """The columns of these names, in this schema's order."""
        wanted = set(names)
        return Schema(tuple(f for f in self.fields if f.name in wanted))

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))
