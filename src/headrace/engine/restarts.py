"""What a start makes of the queries that a checkpoint holds, above all of those that failed.

A query that failed is never decided for: it goes on from the failed epoch, or from now, or is
forgotten, as ``spark.headrace.failedQueries`` says; where that says nothing the start is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import QueryError
from headrace.names import same_name
from headrace.plan.types import Schema
from headrace.settings import FailedQueries
from headrace.state.branches import QueryBranch, back_among_others, described, forget_branch
from headrace.state.committed import Committed, QueryRecord
from headrace.state.store_names import results_of_query

_KEY = "spark.headrace.failedQueries"


def settle_failed(
    state: Committed, started: Mapping[str, Schema], choices: FailedQueries
) -> set[str]:
    """Do as was decided for each query that failed; the queries that begin anew from now.

    ``started`` are the queries that are started now, with the columns of their output.

    What is to go on from the failed epoch, or to wait, stays a branch. Raises where nothing was
    decided.
    """
    failed = {n: b for n, b in state.branches.items() if b.failure is not None}
    for name, branch in failed.items():
        _check_choice(name, branch, choices.of(name), name in started)
        if choices.of(name) in ("retry", "skip"):
            check_schema(name, branch, started[name])
    skipped = set()
    for name in failed:
        choice = choices.of(name)
        if choice == "skip":
            back_among_others(state, name)
            skipped.add(name)
        elif choice == "drop":
            forget_branch(state, name)
    return skipped


def _check_choice(name: str, branch: QueryBranch, choice: str | None, is_started: bool) -> None:
    if choice == "drop" or (choice is not None and is_started and not branch.rows_gone):
        return
    if choice in ("skip", "wait") and is_started:
        return
    assert branch.failure is not None
    if choice is not None and not is_started:
        raise QueryError(
            f"query {name!r} failed in epoch {branch.failure.epoch} and was not started",
            hint=f"start it, or forget it: {_KEY}={name}=drop",
            condition="QUERY_FAILED_BEFORE",
        )
    retry = "" if branch.rows_gone else f"{name}=retry (mended, from the failed epoch), "
    gone = " (the rows since then are no longer kept)" if branch.rows_gone else ""
    raise QueryError(
        f"query {name!r} failed in epoch {branch.failure.epoch}: {branch.failure.message}{gone}",
        hint=f"say how it goes on by setting {_KEY}: {retry}{name}=skip (from now; its results "
        f"stay), or {name}=drop (forget it)",
        condition="QUERY_FAILED_BEFORE",
    )


def check_schema(name: str, branch: QueryBranch, schema: Schema) -> None:
    if branch.schema != described(schema):
        raise QueryError(
            f"query {name!r} has put out {', '.join(branch.schema)}, and is now to put out "
            f"{', '.join(described(schema))}",
            hint=f"mend it so that its columns and their types stay, or set {_KEY}={name}=drop",
            condition="QUERY_FAILED_BEFORE",
        )


def mended(record: QueryRecord, plan: str, stores: Iterable[str]) -> QueryRecord:
    """The record of a query that was changed to go on, on the state that it has."""
    if record.plan != plan and set(record.stores) != set(stores):
        raise other_state("it needs other state now")
    return replace(record, plan=plan)


def other_state(why: str) -> QueryError:
    return QueryError(
        f"a mended query can go on from where it failed only on the state that it has: {why}",
        hint=f"mend only what it computes of it, or take skip or drop in {_KEY}",
        condition="QUERY_FAILED_BEFORE",
    )


def take_spellings(state: Committed, names: Iterable[str]) -> None:
    """Let the checkpoint call queries by the names that they have now, which may differ in case.

    Result tables of names that are not plain were kept under the name itself once.
    """
    for name in state.queries:
        stored, wanted = f"results-{name}", results_of_query(name)
        if stored != wanted and stored in state.arrangements and wanted not in state.arrangements:
            state.arrangements[wanted] = replace(state.arrangements.pop(stored), name=wanted)
    for name in names:
        former = [n for n in (*state.queries, *state.branches) if same_name(n, name)]
        if len(former) == 1 and former[0] != name:
            for by_query in (state.queries, state.merged, state.branches):
                _rename(by_query, former[0], name)
    for name, branch in state.branches.items():
        take_spellings(branch.state, [name])


def _rename(by_query: dict[str, Any], old: str, new: str) -> None:
    if old in by_query:
        by_query[new] = by_query.pop(old)
