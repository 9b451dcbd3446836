"""Spark's own logs of a stream, on a local disk without a process for every file.

Without Hadoop's native library each file that Spark creates there with a mode runs ``chmod`` as a
process of its own, which is more than half of what a small micro-batch costs. Another of Spark's
two ways to write these files asks for no mode; it renames them into place as the usual one does.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from headrace.engine.checkpoint.files import is_local
from headrace.spark_sessions import in_session

KEY = "spark.sql.streaming.checkpointFileManagerClass"
WITHOUT_MODES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def with_quick_log(frame: DataFrame, checkpoint: str) -> DataFrame:
    """The same stream in a session like its own, whose logs in ``checkpoint`` cost less.

    What a user has set stays, and so does the way of stores that are on no local disk.
    """
    session = frame.sparkSession
    if not is_local(checkpoint) or session.conf.get(KEY, None) is not None:
        return frame
    alike = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    alike.conf.set(KEY, WITHOUT_MODES)
    try:
        return _read_in(alike, frame)
    except Py4JError:
        # Spark's plan looks otherwise in this version: the source's own log stays as it was.
        return in_session(alike, frame)


def _read_in(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The stream in another session; a source that is read as it is belongs to that session too.

    A source keeps the session that it was made in, and writes its log by that one's settings.
    """
    plan = frame._jdf.queryExecution().analyzed()
    if not plan.getClass().getName().endswith(".StreamingRelation"):
        return in_session(session, frame)
    source = _copied(plan.dataSource(), session._jsparkSession)
    jvm = session.sparkContext._jvm
    assert jvm is not None
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(
        session._jsparkSession, _copied(plan, source)
    )
    return DataFrame(rows, session)


def _copied(case_class: Any, first: Any) -> Any:
    """A Scala case class with another first field."""
    methods = case_class.getClass().getMethods()
    count = next(m.getParameterCount() for m in methods if m.getName() == "copy")
    others = (getattr(case_class, f"copy$default${n}")() for n in range(2, count + 1))
    return case_class.copy(first, *others)
