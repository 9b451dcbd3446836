"""Requests about queries."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.errors import Position
from headrace.service.caller import TheCaller, TheService
from headrace.service.described import Described
from headrace.service.requests import QueryBody, ResumeBody
from headrace.statements import Explain, ExplainMode, Kind

routes = APIRouter(prefix="/queries", tags=["queries"])


@routes.post("", status_code=201)
async def create_query(body: QueryBody, service: TheService, caller: TheCaller) -> Described:
    """Start a query. It is durable when this is answered, and sees what comes from now on."""
    answer = await service.done(lambda: service.workspace.do(body.statement(), caller))
    return answer.things[0]


@routes.get("")
async def list_queries(
    service: TheService,
    caller: TheCaller,
    state: str | None = None,
    owner: str | None = None,
    tag: str | None = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> Described:
    """The queries that the caller may see, by what they are, whose, and how they are labelled."""
    every = await service.do(lambda: service.workspace.list(caller, Kind.QUERY))
    wanted = [
        query
        for query in every
        if (state is None or query["state"] == state)
        and (owner is None or query["owner"] == owner)
        and (tag is None or tag in query["tags"])
    ]
    return {"queries": wanted[offset : offset + limit], "total": len(wanted)}


@routes.get("/{name}")
async def get_query(name: str, service: TheService, caller: TheCaller) -> Described:
    """What a query is, how it does, and what it puts out."""
    return await service.do(lambda: service.workspace.describe(caller, Kind.QUERY, name))


@routes.get("/{name}/plan")
async def get_query_plan(
    name: str, service: TheService, caller: TheCaller, mode: ExplainMode = ExplainMode.COST
) -> Described:
    """The plan of a query beside the others, its costs, or what it did (``mode=analyze``)."""
    statement = Explain(mode, name, None, Position(1, 1))
    return {"plan": await service.do(lambda: service.workspace.explain(caller, statement))}


@routes.delete("/{name}")
async def drop_query(name: str, service: TheService, caller: TheCaller) -> Described:
    """Let a query go with its state and results; its name is free when this is answered."""
    answer = await service.done(lambda: service.workspace.drop(caller, Kind.QUERY, name))
    await service.do(service.workspace.tidy)
    return {"message": answer.message}


@routes.post("/{name}/pause")
async def pause_query(name: str, service: TheService, caller: TheCaller) -> Described:
    """Let a query stand still: its state stays, and the rows that it misses are kept for it."""
    answer = await service.done(lambda: service.workspace.pause(caller, name))
    return {"message": answer.message}


@routes.post("/{name}/resume")
async def resume_query(
    name: str, service: TheService, caller: TheCaller, body: ResumeBody | None = None
) -> Described:
    """Let a query go on that was paused or failed: where it was, or from now."""
    from_now = body is not None and body.from_ == "now"
    answer = await service.done(lambda: service.workspace.resume(caller, name, from_now))
    return {"message": answer.message}
