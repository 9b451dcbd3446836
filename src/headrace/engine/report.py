"""What an epoch tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import HeadraceError
from headrace.stats.load import Load


@dataclass
class EpochReport:
    """What an epoch did, for progress and statistics."""

    epoch: int
    rows_in: dict[str, int] = field(default_factory=dict)
    null_times: dict[str, int] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    late: dict[tuple[str, str], int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    #: Streams that hold no watermark back.
    idle: frozenset[str] = frozenset()
    #: Streams whose batches wait because state is full, with those they wait for.
    paused: dict[str, str] = field(default_factory=dict)
    failures: dict[str, HeadraceError] = field(default_factory=dict)
    loads: dict[str, Load] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    jobs: int = 0
