"""The same plans as plain Structured Streaming: the baseline of comparisons, and a second oracle.

Read in this order: ``unsupported`` (what Spark alone cannot do, and why), ``settings`` (a session
of its own), ``frames`` (plan to DataFrame, with ``joins``), ``run``.
"""

from headrace.native.frames import stream_plan
from headrace.native.run import NativeRun, run
from headrace.native.settings import SETTINGS, native_session
from headrace.native.unsupported import NativeUnsupported, require_supported

__all__ = [
    "SETTINGS",
    "NativeRun",
    "NativeUnsupported",
    "native_session",
    "require_supported",
    "run",
    "stream_plan",
]
