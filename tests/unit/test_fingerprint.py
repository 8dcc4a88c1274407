"""The fingerprint of a topology's code: what is in it, what is not, and what changes it."""

from __future__ import annotations

import ast
import gc
import json
import py_compile
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from unittest.mock import Mock

import pytest

from reliability import Count, MemorySpout, State, Topology
from reliability.core.names import DISTRIBUTION
from reliability.deployment.fingerprint import (
    UNKNOWN,
    CodeFingerprint,
    _each_import,
    fingerprint,
    parse,
)

FILES = {
    "flow/__init__.py": "",
    "flow/pipe.py": """
from __future__ import annotations
from typing import TYPE_CHECKING
import psycopg2
from . import prices
try:
    import nowhere_to_be_found
except ImportError:
    pass
from flow.deep.rates import RATE
from reliability import Count, MemorySpout, State, Topology
from reliability.core.names import DISTRIBUTION
if TYPE_CHECKING:
    from flow import for_checkers
def process(batch):
    import flow_beside
    return {"counts": batch}
topology = Topology("pipe", spout=MemorySpout({"v": "bigint"}, [[1]], take=1), process=process,
                    states=[State("counts", values={"n": Count()})])
""",
    "flow/prices.py": "from .money import round_up\n",
    "flow/money.py": "import decimal\nround_up = decimal.ROUND_UP\n",
    "flow/deep/rates.py": "RATE = 2\n",  # a folder without __init__.py
    "flow/for_checkers.py": "",
    "flow/nobody_imports_it.py": "",
    "flow_beside.py": "import flow.money\n",
}
OWN = {"flow", "flow.pipe", "flow.prices", "flow.money", "flow.deep.rates", "flow_beside"}
PRINT = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from reliability.deployment.fingerprint import fingerprint\n"
    "from flow.pipe import topology; print(fingerprint(topology).digest)"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's own modules, on the path of this process."""
    write(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("flow")]:
        del sys.modules[name]


def write(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read() -> CodeFingerprint:
    return fingerprint(import_module("flow.pipe").topology)


def in_another_process(path: Path, first: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", first + PRINT, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_users_modules_count_by_source_whatever_way_they_are_imported(folder):
    found = read()
    assert found.modules.keys() == OWN
    assert all(len(digest) == 16 for digest in found.modules.values())


def test_packages_count_by_version(folder):
    packages = read().packages
    assert packages["psycopg2-binary"] == metadata.version("psycopg2-binary")
    assert {"python", "reliability", "pyspark", "pyarrow", "pandas", "numpy"} < packages.keys()
    assert packages["reliability"] == metadata.version(DISTRIBUTION)  # not that of its namesake
    assert "nowhere_to_be_found" not in packages


def test_no_path_stands_in_it(folder):
    assert "/" not in json.dumps(read().contents)


def test_it_is_the_same_in_every_process_and_every_place(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere)
    here = read().digest
    assert in_another_process(elsewhere) == here
    assert in_another_process(folder, "import yaml, pyarrow, pytest;") == here


def test_it_is_the_same_in_an_archive(folder, tmp_path_factory):
    """As --py-files brings it."""
    elsewhere = tmp_path_factory.mktemp("archive")
    (folder / "flow/deep/__init__.py").write_text("")
    archive = shutil.make_archive(str(elsewhere / "flow"), "zip", folder)
    assert in_another_process(Path(archive)) == read().digest


@pytest.mark.parametrize("name", ["flow/pipe.py", "flow/money.py", "flow_beside.py"])
def test_a_change_of_what_is_imported_changes_it(folder, name):
    before = read()
    with (folder / name).open("a") as file:
        file.write("# another line\n")
    after = read()
    module = name.removesuffix(".py").replace("/", ".")
    assert {n for n, _ in before.modules.items() ^ after.modules.items()} == {module}
    assert after.digest != before.digest


def test_a_change_of_what_is_not_imported_does_not(folder):
    before = read()
    (folder / "flow/nobody_imports_it.py").write_text("1")
    (folder / "flow/for_checkers.py").write_text("1")
    assert read() == before


def test_a_module_without_source_is_unknown(folder):
    before = read()
    py_compile.compile(str(folder / "flow/money.py"), str(folder / "flow/money.pyc"))
    (folder / "flow/money.py").unlink()
    assert read().modules == {**before.modules, "flow.money": UNKNOWN}


def test_source_of_another_python_is_no_error(folder):
    import_module("flow.pipe")
    (folder / "flow/money.py").write_text("print 'two'")
    assert read().modules.keys() == OWN


def test_two_threads_may_read_the_code_at_once(every_collection_changes_threads):
    """Two drivers in one process; Python 3.11's parser is not safe there by itself."""
    source = b"import os\n" + b"if 1:\n    x = [1, (2, {3: 4})]\n" * 500
    read = partial(_each_import, source, "")

    def read_deeper(frames: int) -> set[str]:
        return read_deeper(frames - 1) if frames else set(read())

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(read_deeper, [0, 50] * 5)) == [{"os"}] * 10


def test_a_traceback_that_another_thread_prints_is_no_error(monkeypatch):
    """It parses each line for its carets, whoever holds the lock."""
    mismatch = SystemError("AST constructor recursion depth mismatch (before=150, after=72)")
    monkeypatch.setattr(ast, "parse", Mock(side_effect=[mismatch, mismatch, parse("import os")]))
    assert set(_each_import(b"import os", "")) == {"os"}


@pytest.fixture
def every_collection_changes_threads():
    def replace_by_rollback(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(replace_by_rollback)
    gc.set_threshold(10, 2, 2)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(replace_by_rollback)


def test_a_module_that_is_gone_is_unknown():
    assert fingerprint(topology("flow_that_is_gone.pipe")).modules.items() >= {
        ("flow_that_is_gone.pipe", UNKNOWN)
    }


def topology(module: str) -> Topology:
    return Topology(
        "pipe",
        spout=MemorySpout({"v": "bigint"}, [[1]], take=1),
        process=partial(counts, "counts"),
        states=[State("counts", values={"n": Count()})],
        module=module,
    )


def counts(state, batch):
    return {state: batch}


def test_the_module_of_a_steps_function_counts(folder):
    assert fingerprint(topology("flow.money")).modules.keys() >= {__name__, "flow.money"}
