"""Figures in the text form of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from headrace.service.rights import Caller
from headrace.service.workspace import Workspace
from headrace.statements import Kind

_STATES = ("running", "paused", "failed", "waiting")


def metrics(workspace: Workspace, caller: Caller, waiting: int) -> str:
    """Of the queries that a caller sees; those of the engine as a whole are the house's."""
    lines: list[str] = []

    def add(name: str, kind: str, what: str, values: Iterable[tuple[dict[str, str], Any]]) -> None:
        samples = [(labels, value) for labels, value in values if value is not None]
        lines.extend([f"# HELP headrace_{name} {what}", f"# TYPE headrace_{name} {kind}"])
        lines.extend(f"headrace_{name}{_labels(labels)} {_number(v)}" for labels, v in samples)

    queries = workspace.list(caller, Kind.QUERY)
    states = [query["state"] for query in queries]
    add(
        "queries",
        "gauge",
        "Queries by what they do.",
        [({"state": state}, states.count(state)) for state in _STATES],
    )
    for key, kind, what in (
        ("numOutputRows", "gauge", "Rows put out in the last epoch."),
        ("totalOutputRows", "counter", "Rows put out since the service started."),
        ("lateRows", "gauge", "Rows of the last epoch that came too late."),
        ("stateRows", "gauge", "Rows in the state that the query uses."),
        ("numInputRows", "gauge", "Rows of its streams in the last epoch."),
    ):
        name = f"query_{_snake(key)}{'_total' if kind == 'counter' else ''}"
        add(name, kind, what, [(_who(q), (q["progress"] or {}).get(key)) for q in queries])
    add(
        "query_watermark_seconds",
        "gauge",
        "Event time up to which its results are final.",
        [(_who(q), _seconds((q["progress"] or {}).get("watermark"))) for q in queries],
    )
    if caller.tenant:
        return "\n".join(lines) + "\n"
    life, last = workspace.life, workspace.life.hr.lastProgress or {}
    add("engine_running", "gauge", "Whether the engine runs.", [({}, int(life.hr.isActive))])
    add("engine_starts_total", "counter", "How often the engine was started.", [({}, life.starts)])
    add("commands_waiting", "gauge", "Requests that wait for their turn.", [({}, waiting)])
    add("epoch", "counter", "The last committed epoch.", [({}, last.get("epoch"))])
    add("epoch_seconds", "gauge", "How long the last epoch took.", [({}, last.get("seconds"))])
    add("epoch_input_rows", "gauge", "Rows of the last epoch.", [({}, last.get("numInputRows"))])
    add("epoch_jobs", "gauge", "Spark jobs of the last epoch.", [({}, last.get("jobs"))])
    add(
        "stream_watermark_seconds",
        "gauge",
        "Event time up to which a stream has come.",
        [({"stream": s}, _seconds(w)) for s, w in last.get("watermarks", {}).items()],
    )
    return "\n".join(lines) + "\n"


def _who(query: dict[str, Any]) -> dict[str, str]:
    return {"query": query["name"], "owner": query["owner"]}


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    """
    >>> _escaped('a"b')
    'a\\\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


def _seconds(moment: str | None) -> float | None:
    return None if moment is None else datetime.fromisoformat(moment).timestamp()


def _snake(name: str) -> str:
    """
    >>> _snake("numInputRows")
    'num_input_rows'
    """
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
