"""Pytest plugin of a mutant's run: use the Postgres and the JVM that are up already.

Of a test that has failed in one case, no other case runs: one is enough to kill a mutant.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_SERVER = "MUTANTS_SERVER"  # the environment's own variables, as JSON
GATEWAY = "gateway"  # a file in the tree: port and secret of the JVM that runs already


class Attached:
    """Stands in for the environment that the tests would bring up; its databases are own."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def up_postgres(self) -> None:
        """It is up."""

    def own_env(self) -> dict[str, str]:
        """Return what leads to it."""
        found: dict[str, str] = json.loads(os.environ[OF_SERVER])
        return found

    def destroy(self) -> None:
        """Others use it."""


_failed: set[str] = set()


def _test_of(nodeid: str) -> str:
    """Return the test of which this is a case."""
    return nodeid.partition("[")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember which tests have failed."""
    if report.failed and report.when == "call":
        _failed.add(_test_of(report.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what shows nothing more, before its fixtures are made."""
    if _test_of(item.nodeid) in _failed:
        pytest.skip("another case of it has failed")


def _in_running_jvm(session: Callable[[], SparkSession]) -> Callable[[], SparkSession]:
    """Let pyspark find the JVM; processes that the tests start have their own."""
    port, secret = Path(GATEWAY).read_text().split()

    def in_running_jvm() -> SparkSession:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYSPARK_GATEWAY_PORT", port)
            patch.setenv("PYSPARK_GATEWAY_SECRET", secret)
            patch.setenv("PYSPARK_PYTHON", sys.executable)  # what launches a JVM says so, too
            return session()

    return in_running_jvm


def pytest_configure(config: pytest.Config) -> None:
    """Databases of several runs live side by side."""
    from tests.support import fix_postgres, fix_spark

    if Path(GATEWAY).is_file():  # not with --histories
        vars(fix_spark)["local_session"] = _in_running_jvm(fix_spark.local_session)

    own = os.getpid()
    vars(fix_postgres).update(
        Environment=Attached, TEMPLATE=f"template_{own}", _numbers=itertools.count(own * 1000)
    )
