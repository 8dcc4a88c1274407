"""One local Spark session for the whole test run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reliability.testing.pipeline import Pipeline

#: What pyspark asks the JVM for by its name with each column: it would look through all jars.
OFTEN_NAMED = ("PythonUtils", "functions", "org.apache.spark.sql.functions")


@pytest.fixture(scope="session")
def spark(environment) -> Iterator[SparkSession]:
    """The one session."""
    session = local_session()
    yield session
    session.stop()
    # py4j tells the root logger of what it can no longer give back, when its stream is closed
    logging.raiseExceptions = False


@pytest.fixture
def no_cache(spark) -> Iterator[None]:
    """Leave nothing cached behind."""
    yield
    spark.catalog.clearCache()


@pytest.fixture
def kit(environment, spark) -> Iterator[Pipeline]:
    """The fixture `pipeline` of the plugin for users, with this run's server and Spark."""
    from reliability.testing.pipeline import Pipeline
    from reliability.testing.server import TestServer

    server = TestServer("service=admin dbname=postgres")
    with Pipeline(server, spark).anew() as own:
        yield own
    server.close()


def local_session() -> SparkSession:
    """A real local session; a failed task is tried once more, as on a cluster."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.daemon.module", "reliability.spark.daemon")
        # otherwise each call that makes a column tells the JVM its place in the code: most calls
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    for name in OFTEN_NAMED:
        setattr(session._jvm, name, getattr(session._jvm, name))
    # py4j tells of its end when pytest has closed the stream that it would tell it to
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return session
