"""The table of mutants fits the code: quick checks; `python -m tests.mutants` runs them."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from reliability.deployment.fingerprint import parse
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.forked import KILLERS
from tests.mutants.generated import generated
from tests.mutants.run import ROOT, apply
from tests.mutants.table import MUTANTS

RULES = [
    *(f"R{n}" for n in range(1, 6)),
    *(f"E{n}" for n in range(1, 10)),
    *(f"A{n}" for n in range(1, 10)),
    *(f"C{n}" for n in range(1, 13)),
    *(f"H{n}" for n in range(1, 13)),
    *(f"S{n}" for n in range(1, 9)),
    *("V1", "V2", "V3", "V5", "V6", "V7", "V8", "V9"),
    *("K1", "K2"),
]


def test_every_rule_has_a_mutant():
    assert {mutant.rule for mutant in MUTANTS} == set(RULES)


def test_names_tell_mutants_apart():
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule} {mutant.name}")
def test_a_mutant_changes_one_place_and_its_tests_name_the_rule(mutant):
    assert mutant.old != mutant.new
    apply(mutant)
    for test in mutant.tests:
        path, _, name = test.partition("::")
        module = parsed(path)
        functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
        [function] = [one for one in functions if one.name == name]
        cited = f"{name} {ast.get_docstring(function)} {ast.get_docstring(module)}"
        assert mutant.rule in cited, f"{test} does not name {mutant.rule}"


def test_an_equivalent_mutant_is_one_that_is_made():
    made = {mutant.name for module in KILLERS for mutant in generated(module)}
    assert made >= EQUIVALENT


@cache
def parsed(path):
    return parse((ROOT / path).read_text())
