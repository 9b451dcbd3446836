"""Requests for results: pages, and what is new as it comes."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from headrace.service.caller import Service, TheCaller, TheService
from headrace.service.limits import TooMuch
from headrace.service.result_rows import BadFilter, Filter, Page, Range, ResultTable, json_rows

routes = APIRouter(prefix="/results", tags=["results"])

ARROW = "application/vnd.apache.arrow.stream"
#: How often (seconds) somebody who follows a table is told what is new, and that nobody is gone.
_LOOK, _SIGN = 0.2, 15.0


@routes.get("/{name}", response_model=None)
async def read_results(
    name: str,
    service: TheService,
    caller: TheCaller,
    filter: Annotated[list[str] | None, Query(max_length=20)] = None,
    since: Annotated[int, Query(ge=0)] = 0,
    page: str | None = None,
    limit: Annotated[int, Query(ge=1)] = 1_000,
    accept: Annotated[str, Header()] = "application/json",
) -> Response | dict[str, Any]:
    """Rows of a result table in the order of epochs, as JSON or as an Arrow stream.

    ``filter`` is ``column:sign:value`` with one of eq, ne, lt, le, gt, ge. ``page`` is what the
    page before gave as ``next``. ``since`` leaves out what epochs up to this one have put out.
    """
    most = service.limits.page_rows
    if limit > most:
        raise TooMuch(f"a page has at most {most} rows", hint="ask for the next page")
    results = await service.do(lambda: service.workspace.results(caller, name))
    filters = [Filter.parse(text, results.columns) for text in filter or ()]
    until, offset = _place(page)
    wanted = Range(since, until, offset, limit)
    read = await asyncio.to_thread(results.page, wanted, filters)
    after = f"{read.until}.{offset + read.rows.num_rows}" if read.has_more else None
    if ARROW in accept:
        headers = {"Headrace-Epoch": str(read.until)}
        if after is not None:
            headers["Headrace-Next"] = after
        return Response(_arrow(read.rows), media_type=ARROW, headers=headers)
    return {
        "columns": [{"name": field.name, "type": field.type.name} for field in results.sink.schema],
        "rows": await asyncio.to_thread(json_rows, read.rows),
        "epoch": read.until,
        "next": after,
    }


@routes.get("/{name}/events", response_model=None)
async def follow_results(
    name: str,
    request: Request,
    service: TheService,
    caller: TheCaller,
    since: Annotated[int, Query(ge=0)] = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """What epochs put out, as it comes (server-sent events), each row once.

    The id of an event is its epoch; whoever comes back with it goes on from there.
    """
    results = await service.do(lambda: service.workspace.results(caller, name))
    if service.followers >= service.limits.followers:
        raise TooMuch(f"{service.followers} follow results already")
    begin = int(last_event_id) if last_event_id and last_event_id.isdecimal() else since
    return StreamingResponse(
        _events(results, begin, request, service),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    results: ResultTable, since: int, request: Request, service: Service
) -> AsyncIterator[str]:
    service.followers += 1
    try:
        quiet = 0.0
        yield ": here\n\n"
        while service.commands.alive and not await request.is_disconnected():
            last = await asyncio.to_thread(lambda: results.last_epoch)
            if last <= since:
                await asyncio.sleep(_LOOK)
                quiet += _LOOK
                if quiet >= _SIGN:
                    quiet = 0.0
                    yield ": here\n\n"
                continue
            async for text in _until(results, since, last, service.limits.page_rows):
                yield text
            since, quiet = last, 0.0
    finally:
        service.followers -= 1


async def _until(results: ResultTable, since: int, last: int, most: int) -> AsyncIterator[str]:
    """All rows of some epochs, in pages; only the last says that this is all."""
    offset = 0
    while True:
        wanted = Range(since, last, offset, most)
        read: Page = await asyncio.to_thread(results.page, wanted)
        rows = await asyncio.to_thread(json_rows, read.rows)
        data = json.dumps({"epoch": last, "rows": rows}, ensure_ascii=False)
        # Whoever is cut off in the middle has no id yet, and gets all of it again.
        mark = "" if read.has_more else f"id: {last}\n"
        yield f"{mark}event: rows\ndata: {data}\n\n"
        if not read.has_more:
            return
        offset += len(rows)


def _place(page: str | None) -> tuple[int | None, int]:
    if page is None:
        return None, 0
    until, dot, offset = page.partition(".")
    if not (dot and until.isdecimal() and offset.isdecimal() and len(page) < 40):
        raise BadFilter(f"{page!r} is no page", hint="take what the page before gave as next")
    return int(until), int(offset)


def _arrow(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    return out.getvalue()
