"""The house rules that a reader relies on: who imports whom, and that every error is explained."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from reliability.core.coordinator import Blocked
from reliability.core.errors import ReliabilityError, Terminal, Transient, error_types
from reliability.deployment.fingerprint import parse

ROOT = Path(__file__).resolve().parents[2]
STANDARD = frozenset(sys.stdlib_module_names)
LIBRARY = "reliability"
PLUGIN = ROOT / "plugins" / "reliability_airflow"


def of(names):
    """Return packages of the library by their names."""
    return {f"reliability.{name}" for name in names.split()}


TRANSACTION = of("core ledger deployment.address deployment.settings states")
# a room of reliability/transaction -> the rooms below it
ROOMS = {
    "topology": (),
    "emit": ("topology",),
    "process": ("topology", "emit"),
    "commit": ("topology", "emit", "process"),
    "correct": ("topology", "emit", "process", "commit"),
    "maintain": ("topology", "emit", "process", "commit"),
    "inspect": ("topology", "emit", "process", "commit"),
}

# folder -> what its modules may import at module level, besides the standard library
ALLOWED = {
    "reliability/core": of("core"),
    "reliability/airflow_provider.py": of("core"),
    "reliability/deployment": of("core"),
    "reliability/ledger": {*of("core deployment.address ledger"), "psycopg2"},
    "reliability/spouts": of(
        "core deployment.address deployment.lazy deployment.settings spark.frames spouts"
    ),
    "reliability/states": {*of("core states"), "psycopg2"},
    **{
        f"reliability/transaction/{room}": {
            *TRANSACTION,
            *(f"reliability.transaction.{below}" for below in (*rooms, room)),
            *(("psycopg2.sql",) if room == "inspect" else ()),  # it writes rows of composed SQL
        }
        for room, rooms in ROOMS.items()
    },
    **{
        f"reliability/transaction/{name}.py": {*TRANSACTION, "reliability.transaction"}
        for name in ("run", "own_run", "replay", "interval_run")
    },
    "reliability/spark": of("core deployment ledger spark states transaction"),
    "reliability/testing": {
        *of("core deployment ledger spark states testing transaction"),
        *("psycopg2", "pytest"),
    },
    "reliability/cli": {
        *of("cli core deployment ledger spark spouts states transaction"),
        "rich",
        "typer",
    },
    "plugins": {
        "reliability",
        "reliability_airflow",
        # Airflow brings the others
        *("airflow", "fastapi", "jinja2", "markupsafe", "pydantic", "starlette"),
        *("attr", "openlineage"),  # in lineage.py, which is imported only if OpenLineage asks
    },
    "spark_apps": {"reliability"},
    "dags": {"reliability_airflow", "spark_apps", "airflow"},
}


def files(place):
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@cache
def tree_of(path):
    return parse(path.read_text())


def imported_at_module_level(path):
    """Yield the modules that importing the file imports; TYPE_CHECKING blocks do not run."""
    pending = list(tree_of(path).body)
    while pending:
        node = pending.pop()
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                pending += orelse
            case ast.If() | ast.Try() | ast.With() | ast.ClassDef():
                pending += [child for child in ast.iter_child_nodes(node)]


def imported(path):
    """Yield the modules that the file imports anywhere, but not those it names in types only."""
    tree = tree_of(path)
    unreal = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        match node:
            case _ if id(node) in unreal:
                continue
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)


def is_allowed(module, allowed):
    return module.split(".")[0] in STANDARD or any(
        module == name or module.startswith(f"{name}.") for name in allowed
    )


@pytest.mark.parametrize("place", ALLOWED)
def test_imports_point_one_way(place):
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files(place)
        for module in imported_at_module_level(path)
        if not is_allowed(module, ALLOWED[place])
    ]
    assert wrong == []


def package_of(module):
    """Return the package of a module of this project; None for others'."""
    name, *inner = module.split(".")
    root = {"reliability": ROOT / "reliability", "reliability_airflow": PLUGIN}.get(name)
    while root is not None and inner and not root.joinpath(*inner).is_dir():
        inner = inner[:-1]
    return root and ".".join((name, *inner))


def test_no_packages_import_each_other_in_a_circle():
    """Not even by imports within functions: a circle is one package in several folders."""
    below = defaultdict(set)
    for path in (*files("reliability"), *files(PLUGIN)):
        folder = path.parent.relative_to(PLUGIN.parent if PLUGIN in path.parents else ROOT)
        for module in imported(path):
            if (other := package_of(module)) not in (None, ".".join(folder.parts)):
                below[".".join(folder.parts)].add(other)
    TopologicalSorter(below).prepare()


def test_every_module_of_the_library_has_its_rule():
    ruled = {path for place in ALLOWED for path in files(place)}
    face = {
        ROOT / "reliability" / name
        for name in ("__init__.py", "__main__.py", "transaction/__init__.py")
    }
    assert set(files("reliability")) - ruled == face


def test_only_these_modules_call_the_jvm_of_spark():
    """Spark's own objects have no API: `supported` checks what one module takes them for."""
    calls = re.compile(
        r"\b(?:(?:from|import) py4j|_j(?:vm|df|sc|rdd|sparkSession|dataset|conf)|sql\.classic)\b"
    )
    found = {
        str(path.relative_to(ROOT / "reliability"))
        for place in ("reliability", "plugins", "spark_apps")
        for path in files(place)
        if calls.search(path.read_text())
    }
    # the last two lend a JVM, and attach to it
    assert found == {"spark/frames/jvm.py", "spark/warm_engine.py", "spark/warm_session.py"}


def test_no_lease_or_order_is_by_the_clock_of_a_host():
    """The clocks of hosts differ and jump; what is noted in the ledger is by its server's."""
    reads = re.compile(r"datetime\.now\(|datetime\.utcnow\(|\btime\.time\(|\.today\(|localtime\(")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in (ROOT / "reliability", ROOT / "plugins", ROOT / "spark_apps")
        for path in folder.rglob("*.py")
        if reads.search(path.read_text())
    }
    assert found == {
        "reliability/cli/doctor.py",  # compares the clocks
        "reliability/cli/live.py",  # shown
        "reliability/deployment/address.py",  # the age of a file of its own
        "reliability/transaction/own_run.py",  # a part of a name
        "plugins/reliability_airflow/page/rendering.py",  # shown
        "plugins/reliability_airflow/schedule.py",  # the year whose zone changes are looked at
        "plugins/reliability_airflow/waiting.py",  # how long a refused login is waited for
    }


def test_only_one_module_of_the_page_uses_what_airflow_does_not_declare():
    uses = {
        path.name
        for path in files(PLUGIN / "page")
        for module in imported(path)
        if module.startswith("airflow.api_fastapi")
    }
    assert uses == {"access.py"}


def test_a_topology_imports_light():
    """A DAG file imports in milliseconds beyond Airflow itself."""
    code = (
        "import sys, spark_apps.cdnow_revenue;"
        "print([m for m in ('airflow', 'pyspark', 'pyarrow', 'numpy', 'pandas', 'psycopg2')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_verbs_print_lines_by_the_function_that_escapes_them():
    """Each of their texts may hold what others have written: only JSON escapes by itself."""
    printing = re.compile(r"typer\.echo\(|\bprint\(|console\(.*\)\.print\(")
    found = {
        path.name: len(printing.findall(path.read_text()))
        for path in (ROOT / "reliability" / "cli").glob("*.py")
    }
    assert {name: count for name, count in found.items() if count} == {
        "output.py": 1,  # JSON
        "parts.py": 1,  # lines and cells are escaped
        "bars.py": 2,  # escaped when it is told
        "terminal.py": 1,
    }


def test_every_error_is_explained_and_says_whether_to_try_again_as_the_docs_do():
    page = (ROOT / "docs" / "errors.md").read_text()
    explained = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    kinds = {}
    for code, error_type in error_types().items():
        is_ours = error_type.__module__.startswith("reliability.")  # other tests load the page's
        if is_ours and code not in ("RELIABILITY", "TRANSIENT", "TERMINAL"):
            is_transient = issubclass(error_type, Transient)
            assert is_transient != issubclass(error_type, Terminal), code
            kinds[code] = "transient" if is_transient else "terminal"
    assert kinds == explained


def test_an_error_is_what_why_and_what_to_do():
    error = ReliabilityError("the file is gone", remedy="put it back.")
    assert str(error) == "[RELIABILITY] the file is gone. What to do: put it back."


def test_a_blocked_txid_says_why_and_what_to_type():
    blocked = Blocked(txid=7, run_id="r", interval="", reason="a file is gone")
    said = str(blocked.error().about(topology="shop"))
    assert "txid 7 (run r) is blocked: a file is gone. What to do: " in said
    assert "`reliability show shop 7`" in said
    assert "`reliability resume-runs shop`" in said
    held = replace(blocked, is_held=True).error().about(topology="shop")
    assert "`reliability release shop`" in held.what_to_do
    released = replace(blocked, is_released=True).error().about(topology="shop")
    assert released.what_to_do.startswith("`reliability resume-runs shop`")


@pytest.mark.parametrize("code", sorted(error_types()))
def test_a_remedy_is_for_a_task_and_for_the_command_line(code):
    remedy = error_types()[code].remedy.text
    assert "task's log" not in remedy
    assert not remedy or remedy.endswith(".")
    assert "clear the run" not in remedy or code == "NO_REQUEST"
