"""Streams as an engine holds them: what a user registered, before any query reads it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from headrace.engine.ingest.ingest import Trigger
from headrace.errors import StreamError
from headrace.plan.durations import format_duration, parse_duration
from headrace.plan.nodes import Source


@dataclass(frozen=True)
class RegisteredStream:
    """A streaming DataFrame and how the plan sees it.

    ``idle`` (ms) is how long it may be without rows before it holds no watermark back; None is for
    ever. It is no part of what queries mean: like a trigger, it may change from start to start.
    """

    frame: DataFrame
    source: Source
    idle: int | None = None

    @property
    def idle_after(self) -> float | None:
        """The same in seconds."""
        return None if self.idle is None else self.idle / 1_000

    def check(self, trigger: Trigger) -> None:
        """Between two triggers every stream is silent; that must not make it idle."""
        every = 0 if trigger.processing_time is None else parse_duration(trigger.processing_time)
        if self.idle is not None and self.idle <= every:
            raise StreamError(
                f"stream {self.source.stream!r} would be idle after {format_duration(self.idle)}, "
                f"but has a batch only every {format_duration(every)}",
                hint="give it an idle time of several triggers",
            )
