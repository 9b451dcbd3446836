"""What is told of streams, tables, views and queries, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.pipeline import QuerySpec, StreamSpec, TableSpec, ViewSpec
from headrace.redaction import redacted, redacted_json, shown_option
from headrace.service.definitions import Definition
from headrace.service.rights import Caller

if TYPE_CHECKING:
    from headrace.plan.types import Schema
    from headrace.session import QueryHandle
    from headrace.state.branches import QueryBranch

Described = dict[str, Any]


def shown_error(error: HeadraceError) -> Described:
    """An error as a program reads it."""
    place = error.position
    position = None
    if place is not None:
        position = {"line": place.line, "column": place.column}
    return {
        "condition": error.condition,
        "message": error.message,
        "advice": error.hint,
        "position": position,
    }


def columns_of(schema: Schema) -> list[Described]:
    return [{"name": field.name, "type": field.type.name} for field in schema]


def described(definition: Definition) -> Described:
    """What is the same for everything that was created; without what must not be shown."""
    spec = definition.spec
    body: Described = {
        "kind": definition.kind.value,
        "name": spec.name,
        "tenant": definition.tenant,
        "owner": definition.owner,
        "tags": list(definition.tags),
        "created": definition.created,
    }
    match spec:
        case StreamSpec() | TableSpec():
            body |= {"format": spec.format, "path": spec.path, "options": _options(spec.options)}
            if isinstance(spec, StreamSpec):
                body |= {"time": spec.time, "delay": spec.delay, "ttl": spec.ttl}
                body["idle"] = spec.idle
        case ViewSpec():
            body["sql"] = spec.sql
        case QuerySpec():
            sink = {"format": spec.sink.format, "path": spec.sink.path}
            body |= {"sql": spec.sql, "sink": {**sink, "options": _options(spec.sink.options)}}
            body["outputMode"] = spec.output_mode
    shown: Described = redacted_json(body)
    return shown


def query_state(
    name: str, handle: QueryHandle, standing_still: Mapping[str, QueryBranch], runs: bool
) -> Described:
    """How a query is: running, paused, failed, or waiting for the engine; and why."""
    branch, error = standing_still.get(name), handle.exception()
    status = handle.status
    message, reason = str(status["message"]), None
    if branch is not None and branch.failure is not None:
        paused = branch.failure.condition == "QUERY_PAUSED"
        message = "paused" if paused else "failed"
        reason = None if paused else redacted(branch.failure.message)
    elif error is None and not runs:
        message = "waiting"
    last = handle.lastProgress
    body: Described = {
        "state": message,
        "error": None if error is None or message == "paused" else shown_error(error),
        "reason": reason,
        "from": status.get("from"),
        "warning": status.get("warning"),
        "waitingForSink": status.get("waitingForSink"),
        "progress": last,
    }
    if branch is not None:
        body["missedRows"] = branch.missed_rows
        body["missedRowsKept"] = not branch.rows_gone
    shown: Described = redacted_json(body)
    return shown


def named_for(caller: Caller, definition: Definition) -> str:
    """The name by which a caller knows it."""
    own = definition.tenant == caller.tenant
    return definition.spec.name if own else f"{definition.tenant}.{definition.spec.name}"


def _options(options: Mapping[str, str]) -> dict[str, str]:
    return {key: shown_option(key, value) for key, value in options.items()}
