"""What all tests share: Spark, seeds, markers, the golden-file switch, data from elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.costs import Costs, add_costs_option
from tests.support.seeds import SeedPlugin, add_seed_option, seeds
from tests.support.tally import Tallies, tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["seeds", "tally"]

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = REPOSITORY / "src"
if str(SOURCES) not in sys.path:
    sys.path.insert(0, str(SOURCES))
# Spark's Python workers, and the processes that tests start, must find the same interpreter and
# the same sources; the driver's sys.path does not reach them.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
)


#: Tests run thousands of small plans once each: the optimizing compiler never earns its keep. All
#: their code needs room, though: with one compiler Java reserves 48 MB, and fails when it is full.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"


#: What a test is, by the fixtures that it asks for, itself or through others.
MARKERS = {
    "spark": "spark",
    "spark_processes": "spark",
    "tally": "random",
    "seeds": "random",
    "shared_data": "data",
}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SeedPlugin(config), "seeds")
    config.pluginmanager.register(Tallies(config), "tallies")
    config.pluginmanager.register(Costs(config), "costs")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked = getattr(item, "fixturenames", ())
        for marker in {MARKERS[name] for name in asked if name in MARKERS}:
            item.add_marker(marker)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_seed_option(parser)
    add_costs_option(parser)
    parser.addoption(
        "--update-golden",
        action="store_true",
        default=False,
        help="write the expected texts of golden files anew instead of comparing with them",
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small Spark for the whole run: two cores, UTC, nothing left behind in the repository."""
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("headrace-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.driver.memory", "3g")
        .config("spark.headrace.executor", os.environ.get("HEADRACE_TEST_EXECUTOR", "auto"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(
            "spark.driver.extraJavaOptions",
            f"{QUICK_JAVA} -Dderby.system.home={home} -Duser.timezone=UTC",
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_processes() -> None:
    """Asked for by tests that start processes with a Spark of their own."""


@pytest.fixture(scope="session")
def near_spark(spark: SparkSession) -> SparkSession:
    """The same, but the bucket executor's tasks run in this process: for what tests their results
    and not how Spark runs them. With ``HEADRACE_TEST_EXECUTOR`` all tasks are Spark's."""
    from tests.support.in_process import tasks_in_process

    return spark if "HEADRACE_TEST_EXECUTOR" in os.environ else tasks_in_process(spark)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data sets that are not part of the repository; tests that need them skip without them."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the data folder {folder} is not on this machine")
    return folder
