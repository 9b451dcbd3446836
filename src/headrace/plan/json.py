"""Plans as JSON, exactly: what is read back equals what was written, to the last bit of a literal.

A plan is a list of nodes, inputs before users; a shared subplan stands in the list once and is
referred to by its position. Every object names its class as ``op`` and has that class's fields; a
field at its default is left out, so that a field added later does not change old plans' hashes.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, replace
from enum import Enum
from functools import cache
from typing import Any, get_type_hints
from zoneinfo import ZoneInfo

from headrace.errors import PlanError
from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Literal, Named
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    InputWindow,
    IntervalBound,
    Join,
    JoinKind,
    Node,
    OutputMode,
    Project,
    SameSession,
    SameWindow,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.types import DataType, Schema
from headrace.plan.windows import Current, Hopping, InheritedWindow, Landmark, Session, Trailing

FORMAT = "headrace-plan"
VERSION = 1

_CLASSES: tuple[type, ...] = (
    *(Source, Table, Filter, Project, Aggregate, Join, Union, Sink),
    *(Column, Literal, Call, Cast, AggregateCall, Named),
    *(Hopping, Session, Trailing, Current, Landmark, InheritedWindow),
    *(SameWindow, IntervalBound, SameSession, InputWindow),
)


def _kind(cls: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


_BY_KIND = {_kind(cls): cls for cls in _CLASSES}

JsonObject = dict[str, Any]
#: Under which a node remembers its hash.
_DIGEST = "_plan_hash"


def to_json(node: Node) -> JsonObject:
    """The plan as an object that ``json.dumps`` can write."""
    nodes: list[JsonObject] = []
    # Keyed by what is written, not by equality: 0.0 and -0.0 are equal, but not the same plan.
    positions: dict[str, int] = {}
    # Objects already written, so that deep sharing is not walked once per use.
    seen: dict[int, JsonObject] = {}

    def reference(value: Node) -> JsonObject:
        if id(value) in seen:
            return seen[id(value)]
        written = _encode_fields(value, reference)
        text = _canonical(written)
        if text not in positions:
            positions[text] = len(nodes)
            nodes.append(written)
        seen[id(value)] = {"node": positions[text]}
        return seen[id(value)]

    root = reference(node)["node"]
    return {"format": FORMAT, "version": VERSION, "nodes": nodes, "root": root}


def from_json(data: JsonObject) -> Node:
    """The plan that :func:`to_json` wrote."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError("this JSON is not a plan", hint=f'a plan has "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise PlanError(
            f"a plan of format version {data.get('version')} cannot be read",
            hint=f"this release reads version {VERSION}",
        )
    nodes: list[Node] = []
    try:
        for written in data["nodes"]:
            nodes.append(_decode(written, nodes))
        root = nodes[data["root"]]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        raise PlanError(f"damaged plan: {type(problem).__name__} {problem}") from problem
    return root


def plan_hash(node: Node) -> str:
    """A name for the plan that is the same in every process: SHA-256 of its canonical JSON.

    In whatever order a plan's joins are computed, whichever inputs of its joins are aggregated
    early, and however its output follows its windows, its rows and the state are the same; so they
    are however the names of its streams are spelt.
    """
    digest = node.__dict__.get(_DIGEST)
    if digest is None:
        written = to_json(node.transform(_without_choices))
        for part in written["nodes"]:
            part.pop("spelling", None)
        digest = hashlib.sha256(_canonical(written).encode()).hexdigest()
        # Beside the fields: state is named by it whenever queries come or go.
        node.__dict__[_DIGEST] = digest
    return str(digest)


def _without_choices(node: Node) -> Node:
    if isinstance(node, Join) and node.order is not None:
        return replace(node, order=None)
    if isinstance(node, Aggregate) and (node.early or node.output):
        return replace(node, early="" if node.early in ("", "late") else "auto", output="")
    return node


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


# --- writing -------------------------------------------------------------------------------------


def _encode(value: object, reference: Callable[[Node], JsonObject]) -> object:
    match value:
        case Node():
            return reference(value)
        case DataType():
            return value.name
        case Schema():
            return [[field.name, field.type.name] for field in value]
        case Enum():
            return value.value
        case tuple():
            return [_encode(item, reference) for item in value]
        case None | bool() | int() | str():
            return value
        case _:
            return _encode_fields(value, reference)


def _encode_fields(value: object, reference: Callable[[Node], JsonObject]) -> JsonObject:
    kind = _kind(type(value))
    if _BY_KIND.get(kind) is not type(value):
        raise PlanError(f"{type(value).__name__} cannot be written as JSON")
    written: JsonObject = {"op": kind}
    for field in fields(value):  # type: ignore[arg-type]
        item = getattr(value, field.name)
        if isinstance(value, Literal) and field.name == "value":
            written[field.name] = _encode_literal(item)
        elif not _is_default(field, item):
            written[field.name] = _encode(item, reference)
    return written


def _is_default(field: Field[Any], item: object) -> bool:
    if field.default is MISSING:
        return False
    return type(item) is type(field.default) and item == field.default


def _encode_literal(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": repr(value)}
        case decimal.Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": value.hex()}
        case datetime.datetime():
            written: JsonObject = {"datetime": value.replace(fold=0).isoformat()}
            if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
                written = {
                    "datetime": value.replace(tzinfo=None, fold=0).isoformat(),
                    "zone": value.tzinfo.key,
                }
            if value.fold:
                written["fold"] = value.fold
            return written
        case datetime.date():
            return {"date": value.isoformat()}
        case _:
            raise PlanError(f"a literal of {type(value).__name__} cannot be written as JSON")


# --- reading -------------------------------------------------------------------------------------


def _decode(written: Any, nodes: list[Node]) -> Any:
    if isinstance(written, list):
        return tuple(_decode(item, nodes) for item in written)
    if not isinstance(written, dict):
        return written
    if "node" in written:
        return nodes[written["node"]]
    if written.get("op") not in _BY_KIND:
        raise PlanError(f"a plan with a {written.get('op')!r} cannot be read")
    cls = _BY_KIND[written["op"]]
    readers = _readers(cls)
    arguments: dict[str, Any] = {}
    for name, item in written.items():
        if name == "op":
            continue
        reader = readers[name]
        arguments[name] = reader(item) if reader is not None else _decode(item, nodes)
    return cls(**arguments)


@cache
def _readers(cls: type) -> dict[str, Callable[[Any], Any] | None]:
    """How each field is read; None for those whose JSON says by itself what it is."""
    hints = get_type_hints(cls)
    readers: dict[str, Callable[[Any], Any] | None] = {}
    for field in fields(cls):
        hint = hints[field.name]
        if cls is Literal and field.name == "value":
            readers[field.name] = _decode_literal
        elif hint is Schema:
            readers[field.name] = _decode_schema
        elif hint in (DataType, JoinKind, OutputMode):
            readers[field.name] = hint
        else:
            readers[field.name] = None
    return readers


def _decode_schema(written: list[list[str]]) -> Schema:
    return Schema.of((name, DataType(kind)) for name, kind in written)


def _decode_literal(written: Any) -> object:
    match written:
        case {"float": text}:
            # One NaN object for all, so that literals read back compare equal.
            value = float(text)
            return math.nan if math.isnan(value) else value
        case {"decimal": text}:
            return decimal.Decimal(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"datetime": text}:
            moment = datetime.datetime.fromisoformat(text).replace(fold=written.get("fold", 0))
            return moment.replace(tzinfo=ZoneInfo(written["zone"])) if "zone" in written else moment
        case {"date": text}:
            return datetime.date.fromisoformat(text)
        case None | bool() | int() | str():
            return written
        case _:
            raise PlanError(f"a literal {written!r} cannot be read")
