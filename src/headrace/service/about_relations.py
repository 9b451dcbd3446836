"""Requests about streams, tables and views: the same ones for each."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.service.caller import TheCaller, TheService
from headrace.service.described import Described
from headrace.service.requests import StreamBody, TableBody, ViewBody
from headrace.statements import Kind

routes = APIRouter()


@routes.post("/streams", status_code=201, tags=["streams"])
async def create_stream(body: StreamBody, service: TheService, caller: TheCaller) -> Described:
    """Register a stream, of a format and from a path that whoever runs the service has allowed."""
    answer = await service.done(lambda: service.workspace.do(body.statement(), caller))
    return answer.things[0]


@routes.post("/tables", status_code=201, tags=["tables"])
async def create_table(body: TableBody, service: TheService, caller: TheCaller) -> Described:
    """Register a table, of a format and from a path that whoever runs the service has allowed."""
    answer = await service.done(lambda: service.workspace.do(body.statement(), caller))
    return answer.things[0]


@routes.post("/views", status_code=201, tags=["views"])
async def create_view(body: ViewBody, service: TheService, caller: TheCaller) -> Described:
    """Name a query for others of the same tenant to read."""
    answer = await service.done(lambda: service.workspace.do(body.statement(), caller))
    return answer.things[0]


def _add(kind: Kind) -> None:
    """What is the same for each kind."""

    @routes.get(f"/{kind.plural}", tags=[kind.plural], name=f"list_{kind.plural}")
    async def list_all(service: TheService, caller: TheCaller) -> Described:
        return {kind.plural: await service.do(lambda: service.workspace.list(caller, kind))}

    @routes.get(f"/{kind.plural}/{{name}}", tags=[kind.plural], name=f"get_{kind}")
    async def get_one(name: str, service: TheService, caller: TheCaller) -> Described:
        return await service.do(lambda: service.workspace.describe(caller, kind, name))

    @routes.delete(f"/{kind.plural}/{{name}}", tags=[kind.plural], name=f"drop_{kind}")
    async def drop_one(name: str, service: TheService, caller: TheCaller) -> Described:
        answer = await service.done(lambda: service.workspace.drop(caller, kind, name))
        return {"message": answer.message}


for _kind in (Kind.STREAM, Kind.TABLE, Kind.VIEW):
    _add(_kind)
