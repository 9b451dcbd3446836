"""Whether it lives, whether it works, and how much it does: for those who watch over it."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headrace.service.caller import TheCaller, TheService
from headrace.service.described import Described
from headrace.service.metrics import metrics

routes = APIRouter(tags=["health"])


@routes.get("/health")
async def health(service: TheService, response: Response) -> Described:
    """Whether the process does its work; it should be started anew if not. Open to everybody."""
    alive = service.commands.alive
    response.status_code = 200 if alive else 503
    return {"status": "ok" if alive else "dead"}


@routes.get("/ready")
async def ready(service: TheService, response: Response) -> Described:
    """Whether queries run that should. Open to everybody, and so without names and reasons."""
    life = service.workspace.life
    well = service.commands.alive and (life.hr.isActive or life.trouble is None)
    response.status_code = 200 if well else 503
    return {"ready": well, "engine": "running" if life.hr.isActive else "standing still"}


@routes.get("/metrics", response_class=Response)
async def get_metrics(service: TheService, caller: TheCaller) -> Response:
    """Figures for Prometheus, of the queries that the caller sees."""
    text = await service.do(lambda: metrics(service.workspace, caller, service.commands.waiting))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
