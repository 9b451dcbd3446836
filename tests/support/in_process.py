"""Sessions whose tasks run in this process: those of the benches (``benchmarks.harness``)."""

from benchmarks.harness.in_process import NeedsSpark, in_process_session, tasks_in_process

__all__ = ["NeedsSpark", "in_process_session", "tasks_in_process"]
