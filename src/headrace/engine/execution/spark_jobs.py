"""Spark jobs by the thread that starts them: named by a tag, and cancelled by it.

That works where each Python thread has a Java thread of its own, as is so unless
``PYSPARK_PIN_THREAD=false``. Without that nobody knows whose a job is, so none is cancelled.
"""

from __future__ import annotations

from contextlib import suppress

from py4j.clientserver import ClientServer
from pyspark.sql import SparkSession


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Name all Spark jobs that this thread starts from now on."""
    context = spark.sparkContext
    if isinstance(context._gateway, ClientServer):
        context.addJobTag(tag)
        # A task may hang where it never looks whether it is still wanted.
        context.setInterruptOnCancel(True)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel the Spark jobs of this name that run now."""
    # Where Spark itself has ended there is nothing left to cancel.
    with suppress(Exception):
        spark.sparkContext.cancelJobsWithTag(tag)
