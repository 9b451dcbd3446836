"""The Spark session of a command: local unless told otherwise, quiet, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import HeadraceError
from headrace.redaction import redacted
from headrace.settings import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
T = TypeVar("T")


class JavaError(HeadraceError):
    """Spark cannot start, most often because Java is missing or has the wrong version."""

    condition = "SPARK_NOT_STARTED"


@contextmanager
def spark_session(
    name: str, settings: Mapping[str, str] | None = None, *, debug: bool = False
) -> Iterator[SparkSession]:
    """Start Spark with these settings, and stop it and remove its files at the end.

    A Spark that runs in this process already is used, in a session of its own, and left running.
    """
    running = _session_of_running_spark(settings or {})
    if running is not None:
        yield running
        return
    _require_java()
    # Python workers use the interpreter named here, not the driver's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    scratch = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    try:
        session = _start(_configuration(name, scratch, settings or {}), scratch / "log", debug)
        try:
            yield session
        finally:
            session.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _session_of_running_spark(settings: Mapping[str, str]) -> SparkSession | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        return None
    session = active.newSession()
    for key, value in settings.items():
        # What Spark was started with, its memory for one, cannot be changed any more. Spark does
        # not know Headrace's settings, and takes them without asking.
        if key.startswith(PREFIX) or session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def with_active_session(work: Callable[[], T]) -> Callable[[], T]:
    """The work for another thread, in which the session that is active here is so, too."""
    if "pyspark" not in sys.modules:
        return work
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None or active._jvm is None:
        return work
    jvm, session = active._jvm, active._jsparkSession

    def run() -> T:
        jvm.SparkSession.setActiveSession(session)
        return work()

    return run


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if not java or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH"
        raise JavaError(where, hint="install Java 17 or 21, or set JAVA_HOME to it")


def _configuration(name: str, scratch: Path, settings: Mapping[str, str]) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    master = settings.get("spark.master") or os.environ.get("MASTER") or f"local[{cores or 2}]"
    defaults = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Over TCP, Java and Python wait 40 ms for each other in every task.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if master.startswith("local"):
        defaults |= {
            "spark.sql.shuffle.partitions": str(cores or 2),
            "spark.local.dir": str(scratch / "local"),
            # A laptop between two networks has a host name that resolves to nothing useful.
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return defaults | dict(settings)


def _start(configuration: Mapping[str, str], log: Path, debug: bool) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in configuration.items():
        builder = builder.config(key, value)
    try:
        with _java_log(None if debug else log):
            return builder.getOrCreate()
    except PySparkException as error:
        # "Java gateway process exited": the reason is what Java said last.
        words = log.read_text(errors="replace").split("\n") if log.exists() else []
        said = [line for line in words if line.strip()]
        raise JavaError(
            f"Spark did not start: {said[-1].strip() if said else error}",
            hint="Spark 4.3 needs Java 17 or 21",
        ) from error


@contextmanager
def _java_log(file: Path | None) -> Iterator[None]:
    """Send what Java writes to standard error to a file, or on to standard error.

    Java inherits the descriptor when it starts and keeps it, so the start is all that is wrapped;
    Spark's greetings and warnings would otherwise run through the screens of a command.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    target = _redacted_to(os.dup(saved)) if file is None else os.open(file, _NEW)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _redacted_to(target: int) -> int:
    """A descriptor; what is written to it comes out at the target without what must not be shown.

    Its reader ends with the last process that writes.
    """
    reader, writer = os.pipe()

    def pass_on() -> None:
        with open(reader, errors="replace") as lines, open(target, "w") as shown:
            for line in lines:
                shown.write(redacted(line))
                shown.flush()

    threading.Thread(target=pass_on, name="spark's log", daemon=True).start()
    return writer
