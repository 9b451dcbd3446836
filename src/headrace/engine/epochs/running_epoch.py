"""An epoch as the engine has it: with all that an executor and a checkpoint can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.engine.checkpoint.storage import Storage
from headrace.engine.execution.executor import Executor
from headrace.engine.ingest.micro_batch import StreamBatch
from headrace.operators.epoch import Epoch


@dataclass
class RunningEpoch(Epoch):
    """What operators know of as ``Epoch``, and sinks, outboxes and compaction know in full."""

    executor: Executor
    checkpoint: Storage
    batches: Mapping[str, StreamBatch]
