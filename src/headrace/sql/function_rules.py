"""How the type of a function follows from its arguments: signatures, and the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    INT,
    INTERVAL,
    INTERVAL_MONTHS,
    NULL,
    STRING,
    DataType,
    array,
    decimal,
)
from headrace.sql.typing import (
    CoercionError,
    arithmetic_type,
    common_type_of,
    is_atomic,
    is_temporal,
)

Types = tuple[DataType, ...]


TypeRule = Callable[[Types], DataType]

_KINDS: dict[str, tuple[str, Callable[[DataType], bool]]] = {
    "n": ("a number", lambda t: t.is_numeric or t == STRING),
    "v": ("a number or an interval", lambda t: t.is_numeric or t.is_interval or t == STRING),
    "i": ("a whole number", lambda t: t.is_numeric or t == STRING),
    "s": ("a string", lambda t: is_atomic(t) and not t.is_interval),
    "z": ("a string", lambda t: t in (STRING, BINARY)),
    "b": ("a condition", lambda t: t in (BOOLEAN, STRING)),
    "t": ("a date or timestamp", lambda t: is_temporal(t) or t == STRING),
    "a": ("an array", lambda t: t.name.startswith("array<")),
    "m": ("a map", lambda t: t.name.startswith("map<")),
    "o": ("something that can be ordered", lambda t: not t.name.startswith("map<")),
    "x": ("anything", lambda t: True),
}


@dataclass(frozen=True)
class Function:
    """A function's signature and the rule for its type."""

    name: str
    signature: str
    rule: TypeRule

    @property
    def required(self) -> int:
        return len(self.signature.rstrip("*").split("?")[0])

    @property
    def most(self) -> int | None:
        """How many arguments at most; None is without limit."""
        return None if self.signature.endswith("*") else len(self.signature.replace("?", ""))

    @property
    def expected(self) -> str:
        """How many arguments it takes, in words."""
        if self.most is None:
            return f"at least {self.required} argument{'s'[: self.required != 1]}"
        if self.most == self.required:
            return f"{self.most} argument{'s'[: self.most != 1]}"
        return f"{self.required} to {self.most} arguments"

    def type_of(self, types: Types) -> DataType:
        """The type of a call with arguments of these types; CoercionError if they do not fit."""
        letters = self.signature.replace("?", "").rstrip("*")
        for index, kind in enumerate(types):
            letter = letters[min(index, len(letters) - 1)]
            wanted, fits = _KINDS[letter]
            if kind != NULL and not fits(kind):
                raise CoercionError(
                    f"argument {index + 1} of {self.name}() must be {wanted}, not {kind}"
                )
        return self.rule(types)


def always(kind: DataType) -> TypeRule:
    return lambda types: kind


def first_type(types: Types) -> DataType:
    return types[0]


def common_argument_type(types: Types) -> DataType:
    return common_type_of(types)


def number_type(types: Types) -> DataType:
    """The argument's own number type; a string is read as a double."""
    return DOUBLE if types[0] in (STRING, NULL) else types[0]


def branches_type(types: Types) -> DataType:
    return common_type_of(types[1:])


def ceiling_type(types: Types) -> DataType:
    """ceil and floor: whole numbers, as decimals where the argument is one."""
    if not types[0].is_decimal:
        return BIGINT
    precision, scale = types[0].decimal_parameters
    return decimal(precision - scale + 1, 0) if scale else decimal(precision, 0)


def operator_type(operator: str) -> TypeRule:
    """The type of an arithmetic operator that is spelled as a function."""
    return lambda types: arithmetic_type(operator, types[0], types[1])


def or_zero_type(types: Types) -> DataType:
    return common_type_of((types[0], INT))


def shift_type(types: Types) -> DataType:
    return BIGINT if types[0] == BIGINT else INT


def element_type(types: Types) -> DataType:
    if not types[0].name.startswith(("array<", "map<")):
        raise CoercionError(f"only arrays and maps have elements, not {types[0]}")
    return types[0].element()


def array_of_type(types: Types) -> DataType:
    return array(common_type_of(types) if types else NULL)


def map_of_type(types: Types) -> DataType:
    if len(types) % 2:
        raise CoercionError("map() takes pairs of key and value")
    keys, values = common_type_of(types[0::2]), common_type_of(types[1::2])
    return DataType(f"map<{keys},{values}>")


def map_keys_type(types: Types) -> DataType:
    value = element_type(types).name
    inner = types[0].name[len("map<") : -1]
    return array(DataType(inner[: -len(value) - 1]))


def map_values_type(types: Types) -> DataType:
    return array(element_type(types))


def concat_type(types: Types) -> DataType:
    if types and all(t.name.startswith("array<") for t in types):
        return common_type_of(types)
    for kind in types:
        if not is_atomic(kind):
            raise CoercionError(f"concat takes strings, or arrays alone, not {kind}")
    return BINARY if types and all(t == BINARY for t in types) else STRING


def flatten_type(types: Types) -> DataType:
    return element_type(types)


def padded_type(types: Types) -> DataType:
    return BINARY if types[0] == BINARY else STRING


def reversed_type(types: Types) -> DataType:
    return types[0] if types[0].name.startswith("array<") else STRING


def sum_type(types: Types) -> DataType:
    kind = types[0]
    if kind.is_decimal:
        precision, scale = kind.decimal_parameters
        return DataType(f"decimal({min(precision + 10, 38)},{scale})")
    if kind.is_integer:
        return BIGINT
    if kind.is_interval:
        return INTERVAL_MONTHS if "month" in kind.name or "year" in kind.name else INTERVAL
    return DOUBLE


def average_type(types: Types) -> DataType:
    kind = types[0]
    if kind.is_decimal:
        precision, scale = kind.decimal_parameters
        return DataType(f"decimal({min(precision + 4, 38)},{min(scale + 4, 38)})")
    return DOUBLE


def array_of_first_type(types: Types) -> DataType:
    return array(types[0])


def percentile_type(types: Types) -> DataType:
    return array(DOUBLE) if types[1].name.startswith("array<") else DOUBLE


def percentile_approx_type(types: Types) -> DataType:
    return array(types[0]) if types[1].name.startswith("array<") else types[0]


Values = tuple[object, ...]


def round_type(types: Types, values: Values) -> DataType:
    """round and bround of a decimal keep as many digits as the second argument says."""
    kind = number_type(types)
    if not kind.is_decimal:
        return kind
    precision, scale = kind.decimal_parameters
    places = values[1] if len(values) > 1 else 0
    if not isinstance(places, int):
        raise CoercionError("the number of places must be a constant")
    if places < 0:
        return decimal(max(precision - scale + 1, -places + 1), 0)
    left = min(scale, places)
    return decimal(precision - scale + 1 + left, left)
