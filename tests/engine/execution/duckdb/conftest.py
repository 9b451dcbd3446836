"""Here steps run in Spark's tasks, however few rows they have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

KEY = "spark.headrace.tasks.leastRows"


@pytest.fixture(autouse=True)
def in_tasks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Engines that are made meanwhile start a job for every step."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    spark.conf.set(KEY, "0")
    yield
    spark.conf.unset(KEY)
