"""The settings that plain Structured Streaming needs, in a session of its own."""

from __future__ import annotations

from pyspark.sql import SparkSession

#: What a good Spark engineer sets for stateful queries.
SETTINGS: dict[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Silent loss: a stateful subplan that several branches of one query share (a union of windows
    # over one aggregate) returned no rows for three of five windows with exchange reuse on.
    "spark.sql.exchange.reuse": "false",
    # Its log on a local disk without a process for every file, as the engine's streams have it.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # One watermark for the whole query; the greatest of several would drop rows that are not late.
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
}


def native_session(spark: SparkSession) -> SparkSession:
    """A session on the same Spark with SETTINGS on top of the user's; the user's is unchanged."""
    session = spark.newSession()
    # A new session knows only what Spark was started with: what was set since counts too.
    for name, value in spark.conf.getAll.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session
