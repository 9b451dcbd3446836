"""The service as an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from headrace import __version__
from headrace.errors import HeadraceError
from headrace.service import (
    about_health,
    about_plans,
    about_queries,
    about_relations,
    about_results,
)
from headrace.service.caller import Service
from headrace.service.gatekeeper import Gatekeeper
from headrace.service.problems import on_anything, on_bad_body, on_error, on_http_error


def make_app(service: Service, hosts: tuple[str, ...] | None = None) -> FastAPI:
    """The routes over one service; with ``hosts`` it answers under these names only."""
    app = FastAPI(
        title="Headrace",
        version=__version__,
        description="Standing SQL queries over streams, created, watched and dropped over HTTP.",
        # Their pages load scripts from the internet; the description itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    for module in (about_queries, about_relations, about_plans, about_results, about_health):
        app.include_router(module.routes)
    app.add_exception_handler(HeadraceError, on_error)
    app.add_exception_handler(RequestValidationError, on_bad_body)
    app.add_exception_handler(HTTPException, on_http_error)

    @app.middleware("http")
    async def answer_whatever_happens(
        request: Request, go_on: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        try:
            response = await go_on(request)
        except Exception as error:
            response = await on_anything(request, error)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    gatekeeper: Any = Gatekeeper
    app.add_middleware(gatekeeper, most_bytes=service.limits.request_bytes, hosts=hosts)
    return app
