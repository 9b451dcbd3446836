"""``headrace serve``: an engine that runs for good, and takes queries over HTTP."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.console import note
from headrace.cli.signals import Signals
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, load_pipeline

if TYPE_CHECKING:
    from headrace.service.limits import Allowed
    from headrace.service.tokens import TokenFile


class ServeError(HeadraceError):
    """A service that cannot be started as asked."""

    condition = "SERVICE_NOT_STARTED"


@dataclass(frozen=True)
class _Door:
    """Where a service listens, and who is let in."""

    host: str
    port: int
    tokens: TokenFile | None
    certificate: Path | None
    key: Path | None

    @property
    def address(self) -> str:
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{self.host}:{self.port}"


def serve(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="What is there from the start.", metavar="PIPELINE"),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Where all is kept; the pipeline's if not given."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Where to listen.")] = 8090,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may: a file made by `headrace token`.")
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Let everybody on this machine do anything.")
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TLS certificate, with --key.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="TLS is done by a proxy before this address.")
    ] = False,
    allow_format: Annotated[
        list[str] | None, typer.Option(help="A format that requests may read.")
    ] = None,
    allow_path: Annotated[
        list[str] | None, typer.Option(help="A folder that requests may read from.")
    ] = None,
    allow_sink_path: Annotated[
        list[str] | None, typer.Option(help="A folder that requests may write results to.")
    ] = None,
    allow_option: Annotated[
        list[str] | None, typer.Option(help="An option of Spark's that requests may set.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="A micro-batch per stream at most this often.")
    ] = None,
    stop_timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long the last epoch may take.")
    ] = 30.0,
) -> None:
    """Run queries for good, and take new ones over HTTP."""
    _require_packages()
    from headrace.service.limits import Allowed

    door = _door(host, port, tokens, open_to_all, certificate, key, behind_proxy)
    pipeline = None if file is None else load_pipeline(file)
    place = checkpoint or (pipeline.checkpoint if pipeline is not None else None)
    if place is None:
        raise ServeError("a service needs a checkpoint", hint="give --checkpoint DIR")
    allowed = Allowed(
        frozenset(name.lower() for name in allow_format or ()),
        tuple(map(_in_full, allow_path or ())),
        tuple(map(_in_full, allow_sink_path or ())),
        frozenset(allow_option or ()),
    )
    signals = Signals()
    trigger = every or (pipeline.trigger.processing_time if pipeline is not None else None)
    work = _Work(signals, door, place, pipeline, allowed, trigger, stop_timeout)
    signals.while_working(
        lambda: work.do(bool(context.obj)), work.say_that_it_stops, work.stop_at_once
    )
    raise typer.Exit(work.exit_code)


def _require_packages() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ServeError(
            f"the package {error.name} is not installed", hint="pip install 'headrace[serve]'"
        ) from None


def _door(
    host: str,
    port: int,
    tokens: Path | None,
    open_to_all: bool,
    certificate: Path | None,
    key: Path | None,
    behind_proxy: bool,
) -> _Door:
    """Refuse what would let in whom nobody has thought of."""
    from headrace.service.tokens import TokenFile

    if (certificate is None) != (key is None):
        raise ServeError("--certificate and --key belong together")
    loopback = is_loopback(host)
    if open_to_all and tokens is not None:
        raise ServeError("--open lets everybody in, --tokens only some", hint="give one of them")
    if open_to_all and not loopback:
        raise ServeError(f"--open is for this machine alone, not for {host}")
    if tokens is None and not open_to_all:
        raise ServeError(
            "nobody has said who may use the service",
            hint="make a token with `headrace token create NAME --role admin` and give --tokens "
            "FILE; or --open lets everybody on this machine do anything",
        )
    if not loopback and certificate is None and not behind_proxy:
        raise ServeError(
            f"tokens would go over the network to {host} for everybody to read",
            hint="give --certificate and --key, or --behind-proxy if a proxy does TLS",
        )
    who = None if tokens is None else TokenFile(tokens)
    if who is not None and not who.all():
        raise ServeError(
            f"{tokens} has no tokens",
            hint=f"make one: headrace token create NAME --role admin --file {tokens}",
        )
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise ServeError(f"there is no file {path}")
    return _Door(host, port, who, certificate, key)


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _in_full(path: str) -> str:
    from headrace.engine.checkpoint.files import plain_path

    return plain_path(path)


class _Work:
    """One life of a service."""

    def __init__(
        self,
        signals: Signals,
        door: _Door,
        checkpoint: str,
        pipeline: Pipeline | None,
        allowed: Allowed,
        trigger: str | None,
        stop_timeout: float,
    ) -> None:
        self._signals, self._door = signals, door
        self._checkpoint, self._pipeline = checkpoint, pipeline
        self._allowed, self._trigger = allowed, trigger
        self._stop_timeout = stop_timeout
        self._server: Any = None
        self._hurry = threading.Event()
        self._whole = True

    def do(self, debug: bool) -> None:
        from headrace.cli.spark import spark_session

        settings: Mapping[str, str] = {} if self._pipeline is None else self._pipeline.settings
        with spark_session("headrace serve", settings, debug=debug) as spark:
            if not self._signals.asked:
                self._serve(spark)

    def _serve(self, spark: Any) -> None:
        import uvicorn

        from headrace.service.app import make_app
        from headrace.service.caller import Service
        from headrace.service.commands import Commands
        from headrace.service.gatekeeper import LOOPBACK_NAMES
        from headrace.service.limits import Limits
        from headrace.service.workspace import open_workspace

        limits, door = Limits(), self._door
        workspace = open_workspace(
            spark, self._checkpoint, self._pipeline, self._allowed, limits, self._trigger
        )
        commands = Commands(limits.waiting_commands, workspace.life.tick)
        try:
            commands.start()
            # With tokens a page of another site cannot ask for anything.
            hosts = LOOPBACK_NAMES if door.tokens is None else None
            app = make_app(Service(workspace, commands, door.tokens, limits), hosts)
            config = uvicorn.Config(
                app,
                host=door.host,
                port=door.port,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=5,
                limit_concurrency=1_000,
                h11_max_incomplete_event_size=65_536,
                ssl_certfile=None if door.certificate is None else str(door.certificate),
                ssl_keyfile=None if door.key is None else str(door.key),
            )
            self._server = uvicorn.Server(config)
            if self._signals.asked:
                return
            note(f"listening at {door.address}")
            self._listen()
        finally:
            commands.end()
            self._whole = workspace.close(0.0 if self._hurry.is_set() else self._stop_timeout)

    def _listen(self) -> None:
        # By which uvicorn says that it cannot listen.
        with suppress(SystemExit):
            self._server.run()
        if not self._server.started:
            raise ServeError(
                f"cannot listen at {self._door.address}", hint="take another --port or --host"
            )

    def say_that_it_stops(self) -> None:
        note("stopping after the epoch that runs; ask again to abandon it")
        if self._server is not None:
            self._server.should_exit = True

    def stop_at_once(self) -> None:
        self._hurry.set()
        if self._server is not None:
            self._server.force_exit = True

    @property
    def exit_code(self) -> int:
        if not self._whole:
            return 75
        return self._signals.exit_code if self._signals.asked else 0
