"""The pytest plugin: the fixture `pipeline`, and the marker `faultpoints`.

It is found by its entry point, and imports nothing until a test asks for the fixture.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reliability.testing.pipeline import Pipeline
    from reliability.testing.server import TestServer

MARKER = "faultpoints"
_FIXTURE = "pipeline"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}: run the test with the fixture `{_FIXTURE}` once more for each fault that its"
        " runs can meet, and compare the tables with those of the first time",
    )


@pytest.fixture(scope="session")
def reliability_server() -> Iterator[TestServer]:
    """Lend the Postgres of the test run."""
    from reliability.testing.server import test_server

    # Not in pytest's folder: each run of pytest closes that to others, such as root's Postgres.
    folder = TemporaryDirectory(prefix="reliability-", ignore_cleanup_errors=True)
    try:
        with folder as path, test_server(Path(path)) as server:
            yield server
    except LookupError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def reliability_spark() -> Iterator[SparkSession]:
    """Lend a local Spark with the settings of a driver; override it to use another one."""
    from reliability.deployment.address import CREDENTIALS
    from reliability.spark.driver_environment import OPTIONS, quick_options
    from reliability.spark.session import pin_zone, session_builder

    pin_zone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # PATH may have another one
        with pytest.MonkeyPatch.context() as of_jvm:  # and of what it starts, not of the tests
            of_jvm.setenv(OPTIONS, quick_options(os.environ))
            of_jvm.delenv(CREDENTIALS, raising=False)  # Spark's tasks would ask it
            session = (
                session_builder("reliability tests")
                .master("local[2]")
                .config("spark.ui.enabled", "false")
                .config("spark.sql.shuffle.partitions", "2")
                .getOrCreate()
            )
        yield session
        session.stop()


@pytest.fixture
def pipeline(reliability_server: TestServer, reliability_spark: SparkSession) -> Iterator[Pipeline]:
    """Lend an empty ledger, in which topologies run without Airflow."""
    from reliability.testing.pipeline import Pipeline

    with Pipeline(reliability_server, reliability_spark).anew() as own:
        yield own


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a test with the marker once for each fault, each time with a new ledger."""
    if pyfuncitem.get_closest_marker(MARKER) is None:
        return None
    from reliability.testing.exactly_once import try_faults

    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    if _FIXTURE not in arguments:
        pytest.fail(f"a test with @pytest.mark.{MARKER} needs the fixture `{_FIXTURE}`", False)
    folder: Any = pyfuncitem.funcargs.get("tmp_path")
    with _put_back(folder) as put_back:

        def call(own: Pipeline) -> None:
            put_back()
            pyfuncitem.obj(**{**arguments, _FIXTURE: own})

        try_faults(arguments[_FIXTURE], call)
    return True


@contextmanager
def _put_back(folder: Path | None) -> Iterator[Callable[[], None]]:
    """Lend what puts a test's folder back to how it is now: its calls may add files.

    The working folder may be in it, and is put back too.
    """
    here = Path.cwd()
    with TemporaryDirectory(prefix="reliability-") as kept:
        if folder is not None:
            shutil.copytree(folder, kept, symlinks=True, dirs_exist_ok=True)

        def put_back() -> None:
            if folder is None:
                return
            for path in folder.iterdir():  # the folder itself stays
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)
            os.chdir(here)

        yield put_back
