"""Plans as text: of a query beside all others, or alone where others must not be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.statements import ExplainMode

if TYPE_CHECKING:
    from headrace.session import Headrace, Query, QueryHandle


class Plans:
    """Those of one session."""

    def __init__(self, hr: Headrace) -> None:
        self._hr = hr

    def explained(
        self,
        query: Query,
        mode: ExplainMode,
        sees_others: bool,
        handle: QueryHandle | None = None,
    ) -> str:
        """What EXPLAIN prints; ``handle`` is that of the query, if it was created."""
        asked = query if sees_others else query.alone()
        match mode:
            case ExplainMode.ALTERNATIVES:
                return _alternatives(asked)
            case ExplainMode.ANALYZE:
                plan = asked.explanation("cost").rstrip()
                return f"{plan}\n\n{_observed(handle)}"
            case other:
                return asked.explanation(other.value)

    def of_all(self, mode: str) -> str:
        """The plan of all queries."""
        return self._hr.explanation(mode)


def _alternatives(query: Query) -> str:
    return "\n".join(["== Alternatives ==", *map(str, query.alternatives())])


def _observed(handle: QueryHandle | None) -> str:
    """What a query did in the epochs that are remembered."""
    reports = [] if handle is None else handle.recentProgress
    if not reports:
        return "== Observed ==\nno epoch yet"
    lines = ["== Observed ==", f"{len(reports)} epochs, up to {reports[-1]['epoch']}"]
    for key, what in (
        ("numInputRows", "rows in"),
        ("numOutputRows", "rows out"),
        ("lateRows", "late rows"),
        ("stateRows", "rows of state"),
    ):
        lines.append(_line(what, [report[key] for report in reports]))
    times = [report["durationMs"]["triggerExecution"] for report in reports]
    outputs = [report["durationMs"]["output"] for report in reports]
    lines += [_line("ms of the epoch", times), _line("ms of its output", outputs)]
    return "\n".join(lines)


def _line(what: str, values: list[Any]) -> str:
    mean = sum(values) / len(values)
    return f"{what}: last {values[-1]:,}, mean {mean:,.1f}, most {max(values):,}"
