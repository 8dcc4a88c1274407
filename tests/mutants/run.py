"""Run tests against a mutated copy of the tree, and say which of them failed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from reliability.deployment.fingerprint import parse
from tests.mutants.attach import GATEWAY, OF_SERVER
from tests.mutants.table import Mutant
from tests.support.fix_postgres import HOSTILE_ENVIRONMENT, PLAIN

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = """
import sys
from subprocess import DEVNULL
from pyspark.java_gateway import launch_gateway

to = launch_gateway(popen_kwargs={"stdout": DEVNULL, "stderr": DEVNULL}).gateway_parameters
print(to.port, to.auth_token, flush=True)
sys.stdin.read()
"""
LONGEST_RUN_SECONDS = 1800
COPIED = ("reliability", "plugins", "sql", "spark_apps", "dags", "dev", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Outcome:
    """What became of a run: which tests did not come out as they have to.

    :param mutant: None for the product as it is
    :param wrong: tests that passed with a mutant, or did not without one
    """

    mutant: Mutant | None
    tests: tuple[str, ...]
    wrong: tuple[str, ...]
    seconds: float
    output: str


def copy_tree(target: Path) -> Path:
    """Copy what a test run needs; the checkout itself is never changed."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy2(source, target / name)
    (target / "data").symlink_to(ROOT / "data")
    return target


@contextmanager
def running_jvm(tree: Path) -> Iterator[None]:
    """Run a JVM for the Spark sessions of all runs in a tree; its start outlasts most tests."""
    hostile = {} if os.environ.get(PLAIN) else HOSTILE_ENVIRONMENT
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        cwd=tree,
        env=_environment(tree) | hostile | json.loads(os.environ[OF_SERVER]),  # of its workers
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout
    (tree / GATEWAY).write_text(launcher.stdout.readline())
    try:
        yield
    finally:
        launcher.communicate()


def apply(mutant: Mutant, root: Path = ROOT) -> str:
    """Return the mutated text of the mutant's file; raise unless its old text is there once."""
    text = (root / mutant.path).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(
            f"{mutant.rule}, {mutant.name}: its text is in {mutant.path} "
            f"{text.count(mutant.old)} times"
        )
    mutated = text.replace(mutant.old, mutant.new)
    if mutant.path.endswith(".py"):
        parse(mutated)
    return mutated


def run_mutant(mutant: Mutant, tree: Path, tests: Sequence[str]) -> Outcome:
    """Run tests with the mutant in the place of the original, and put that back."""
    path = tree / mutant.path
    original = path.read_text()
    path.write_text(apply(mutant, tree))
    try:
        return run_tests(tests, tree, mutant)
    finally:
        path.write_text(original)


def run_tests(tests: Sequence[str], tree: Path, mutant: Mutant | None = None) -> Outcome:
    """Run tests in a tree, each of which has to fail if there is a mutant in it."""
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    started = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
            *("-m", ""),  # slow ones too
            *("-p", "tests.mutants.attach", f"--junitxml={report}", *tests),
        ],
        cwd=tree,
        env=_environment(tree),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_RUN_SECONDS,
    )
    seconds = time.monotonic() - started
    failed, passed = _cases(report) if report.is_file() else (set(), set())
    wanted = passed - failed if mutant is None else failed
    wrong = tuple(test for test in tests if test not in wanted)
    return Outcome(mutant, tuple(tests), wrong, seconds, done.stdout + done.stderr)


def _environment(tree: Path) -> dict[str, str]:
    """Let Python import from the tree, and keep what it has compiled."""
    path = os.pathsep.join([str(tree), str(tree / "plugins")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}


def _cases(report: Path) -> tuple[set[str], set[str]]:
    """Return the tests of which a case failed and of which one passed; an error is neither."""
    failed, passed = set(), set()
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.attrib["classname"].replace(".", "/") + ".py"
        test = f"{path}::{case.attrib['name'].partition('[')[0]}"
        if case.find("failure") is not None:
            failed.add(test)
        elif case.find("error") is None and case.find("skipped") is None:
            passed.add(test)
    return failed, passed
