"""Fixtures come in plugins, one for each thing that has to run."""

from __future__ import annotations

import gc
import os
import re
import signal
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).parents[1]

pytest_plugins = [
    "tests.support.fix_postgres",
    "tests.support.fix_roles",
    "tests.support.fix_spark",
    "tests.support.fix_pipeline",
    "tests.support.fix_engine",
    "tests.support.fix_airflow",
    "tests.support.fix_page",
    "tests.support.fix_shop",
    "tests.simulation.fixtures",
    "tests.support.rules",
]
#: The folders and files that a run was asked for.
ASKED_FOR = pytest.StashKey[list[str]]()
#: Files of one process, by how their names begin: they share what takes long to make.
SHARED = {
    "tests/end_to_end/": "Airflow",
    "tests/integration/test_page.py": "a long history",
    "tests/browser/": "a long history",
    "tests/integration/test_hostile_requests.py": "a long history",
}
#: Those that need Spark are of two processes, so that no third one starts it, too.
SPARKS = 2
NEEDS_SPARK = re.compile(r"\bdef \w+\([^)]*\b(spark|pipeline|kit)\b")


@cache
def shared_by(file: str) -> str:
    """Say what a file shares with others, if it does: those come first, as they take longest."""
    for begin, name in SHARED.items():
        if file.startswith(begin):
            return name
    if NEEDS_SPARK.search((ROOT / file).read_text()):
        return f"Spark {crc32(file.encode()) % SPARKS}"
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Let tests interrupt what they start, also if this run ignores SIGINT, which is inherited.

    A shell without job control lets what it starts with `&` ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[ASKED_FOR] = [*config.args]
    config.args[:] = _from_own_place(config.args)
    gc.disable()  # nothing of what is collected goes away, and there is much of it


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _from_own_place(folders: list[str]) -> list[str]:
    """Let each process of a run read other tests first: what one has compiled, the next loads."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    place = number * len(folders) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return [*folders[place:], *folders[:place]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring the tests into the order asked for, which all processes need to have in common."""
    where = config.invocation_params.dir
    folders = [where / name.partition("::")[0] for name in config.stash[ASKED_FOR]]
    if len(folders) == len({*folders}):  # otherwise a name is not enough to tell

        @cache
        def place(file: Path) -> list[bool]:
            return [not file.is_relative_to(folder) for folder in folders]

        items.sort(key=lambda item: place(item.path))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: not shared_by(item.location[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file is one process's, and so are all that share something."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return shared_by(file) or file

    return ByFile(config, log)
