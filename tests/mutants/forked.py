"""Run the unit tests of a module of the core with a mutant of it, in a process that is forked.

No file is changed: the mutant's text is compiled when the module is imported. The process that
forks has imported what the tests need from elsewhere, so that no run has to.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import SourceFileLoader
from multiprocessing import get_context
from types import CodeType
from typing import NamedTuple

import pytest

from tests.mutants.generated import ROOT, Generated

#: The modules that decide what counts and when, and the tests that have to notice: files in
#: tests/unit, beside the examples in the module itself.
KILLERS = {
    "acker": ("acker",),
    "attempt": (),
    "audits": ("audit_definitions",),
    "checkpoint": ("checkpoint_decisions",),
    "clear_or_retry": ("clear_or_retry",),
    "coordinator": ("coordinator",),
    "fold": ("acker",),
    "graph": ("graph",),
    "keys": ("txids",),
    "periods": ("expected_intervals",),
    "plan": ("checkpoint_decisions", "standing"),
    "request": ("clear_or_retry", "coordinator"),
    "rollback_check": ("rollback_check",),
    "sqlstate": ("sqlstates",),
    "standing": ("standing",),
    "txids": ("txids",),
    "waits": ("coordinator",),
}
LONGEST_TEST_SECONDS, LONGEST_RUN_SECONDS = 20, 300
_OWN = {"reliability", "reliability_airflow", "tests", "dev"}


class Run(NamedTuple):
    """What became of a run; without a mutant no test may fail, with one a test has to."""

    mutant: Generated | None
    failed: bool
    seconds: float


def run_all(mutants: Sequence[Generated], jobs: int) -> Iterator[Run]:
    """Run all tests as they are, then for each mutant those of its module until one fails."""
    fork = get_context("fork")
    sys.dont_write_bytecode = False  # else each run compiles everything
    with fork.Pool(1) as pool:
        (failed, seconds), imported = pool.apply(_run_without)
    yield Run(None, failed, seconds)
    for name in imported:
        if name.partition(".")[0] not in _OWN:
            with suppress(ImportError):
                import_module(name)
    with fork.Pool(jobs, maxtasksperchild=1) as pool:
        results = pool.imap(_run_with, mutants)
        for mutant in mutants:  # one whose process died has no result, ever
            yield Run(mutant, *results.next(LONGEST_RUN_SECONDS))


def _run_without() -> tuple[tuple[bool, float], list[str]]:
    return _pytest(list(KILLERS)), list(sys.modules)


def _run_with(mutant: Generated) -> tuple[bool, float]:
    mutated = f"reliability.core.{mutant.module}"
    original = SourceFileLoader.get_code
    loaded = []

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        if fullname != mutated:
            return original(loader, fullname)
        loaded.append(fullname)
        return compile(mutant.text, str(loader.path), "exec")

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
    result = _pytest([mutant.module])
    if not loaded:
        raise AssertionError(f"no test of {mutated} has imported it")
    return result


def _pytest(modules: Sequence[str]) -> tuple[bool, float]:
    """Run the tests of modules until one fails; say whether one did, and how long it took."""
    started = time.monotonic()
    for name in list(sys.modules):
        if name.partition(".")[0] in _OWN:
            del sys.modules[name]
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    files = {f"tests/unit/test_{name}.py" for module in modules for name in KILLERS[module]}
    examples = [
        f"tests/unit/test_examples.py::test_the_examples_of_a_module_are_true[reliability.core.{m}]"
        for m in modules
        if ">>> " in (ROOT / f"reliability/core/{m}.py").read_text()
    ]
    options = ("-x", "-q", f"--timeout={LONGEST_TEST_SECONDS}", "--hypothesis-profile=ci")
    # A conftest imports what runs servers; rewritten assertions would be another loader's.
    plain = ("--noconftest", "-p", "tests.support.rules", "-p", "no:reliability", "--assert=plain")
    code = pytest.main([*options, *plain, "-p", "no:cacheprovider", *examples, *sorted(files)])
    if code not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.INTERRUPTED,
    ):  # 2: no import
        raise AssertionError(f"pytest ended with {code}")
    return code != pytest.ExitCode.OK, time.monotonic() - started
