"""Every example in a docstring is true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for folder in ("reliability", "plugins", "dev", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_are_true(module):
    found = doctest.testmod(import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
