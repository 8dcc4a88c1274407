"""The rules of the house for tests: a file's name is its own, a docstring's rule is a marker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.rules import leading_rules

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 62_685


def test_no_two_files_of_tests_have_the_same_name():
    names = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_a_new_test_takes_the_room_of_an_older_one():
    """They had grown by 20,000 lines; where two show one thing, one of them goes."""
    files = (ROOT / "tests").rglob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= MOST_LINES


@pytest.mark.parametrize(
    ("docstring", "rules"),
    [
        ("K1: the digest says so.", ["K1"]),
        ("A1, C6: other databases may have the commit.", ["A1", "C6"]),
        ("C7.", ["C7"]),
        ("C7, in two databases too.", ["C7"]),
        ("E4, Storm T6: a batch is what its attempt read.", ["E4"]),
        ("H2: as E4 says", ["H2"]),
        ("C1 to C6 on the real ledger", []),
        ("ROLLBACK, then E4", []),
        (None, []),
    ],
)
def test_the_rules_that_lead_a_docstring_are_found(docstring, rules):
    assert leading_rules(docstring) == rules


def test_the_tests_of_one_rule_can_be_chosen(tmp_path):
    """Markers of one name, so that `-m "rule(id='K1')"` chooses them, too."""
    file = tmp_path / "test_two_rules.py"
    file.write_text(
        'def test_one():\n    """K1, A1: one."""\n\n'
        'def test_two():\n    """A1: two."""\n\n'
        "def test_three(): ...\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = rule\n")
    assert chosen(file, "--rule", "K1", "--rule", "C1") == ["test_one"]
    assert chosen(file, "-m", "rule(id='A1')") == ["test_one", "test_two"]


def chosen(file, *arguments):
    listed = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.support.rules"),
            *("-c", file.parent / "pytest.ini", "-p", "no:cacheprovider", *arguments, file),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.rpartition("::")[2] for line in listed.stdout.splitlines() if "::" in line]
