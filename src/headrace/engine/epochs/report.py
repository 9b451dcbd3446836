"""What an epoch tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import HeadraceError
from headrace.stats.load import Load


@dataclass
class EpochReport:
    """What an epoch did, for progress and statistics."""

    epoch: int
    #: False where nothing was to be committed: sinks were tried again in vain.
    is_committed: bool = True
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
    #: What sinks said that did not take rows, which wait for them now, and how many rows were
    #: delivered that had waited.
    refused: dict[str, HeadraceError] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    #: Streams whose new rows could not be read; they are not part of the epoch.
    broken: dict[str, HeadraceError] = field(default_factory=dict)
    #: What queries did that go on by themselves since they failed, by name.
    branches: dict[str, EpochReport] = field(default_factory=dict)
    loads: dict[str, Load] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    jobs: int = 0
