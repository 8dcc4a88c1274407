"""The command line without a ledger: notations, and what is compared."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from reliability.cli import app
from reliability.cli.app import check_asked
from reliability.cli.output import print_json
from reliability.core.remedy import COMMANDS
from reliability.deployment.airflow_api import DagRun
from reliability.transaction.inspect.disagreement import Disagreement, compare
from tests.support.fix_postgres import ROOT

CLI_PAGE = (ROOT / "docs" / "cli.md").read_text()
VERBS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", COMMANDS.values())
def test_a_remedy_names_a_command_that_is_there(line):
    """Who types what an error says, and reads that there is no such command, has no remedy."""
    program, verb, *arguments = shlex.split(line.format_map(defaultdict(lambda: "1")))
    assert program == "reliability"
    get_command(app).commands[verb].make_context(verb, arguments)  # type: ignore[attr-defined]


NEEDS_REASON = re.compile(
    r"reliability (?:replay [^`\n]*--refreeze|quarantine forget [^-`\s])[^`\n]*"
)


@pytest.mark.parametrize("folder", ["README.md", "docs", "reliability", "plugins"])
def test_a_command_that_needs_a_reason_is_written_with_one(folder):
    """Five pages and a remedy showed commands that are refused as they were written."""
    place = ROOT / folder
    files = [place] if place.is_file() else [*place.rglob("*.md"), *place.rglob("*.py")]
    found = [line for file in files for line in NEEDS_REASON.findall(file.read_text())]
    assert not [line for line in found if "--reason" not in line and "--dry-run" not in line]
    assert found or folder in ("README.md", "plugins")


def test_what_lies_in_the_current_folder_shadows_nothing(tmp_path):
    for name in ("calendar", "typer", "psycopg2"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    said = subprocess.run(
        [sys.executable, "-m", "reliability", "status", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_who_closed_the_output_gets_the_exit_code(closed):
    """As some schedulers start a command; a table was a traceback."""
    code = "from reliability.cli.parts import *; show([Table(['a'], [['b']])])"
    said = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -c \"{code}\" {closed}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_and_stands_in_the_docs(verb):
    said = CliRunner().invoke(app, [verb, "--help"])
    assert said.exit_code == 0
    assert f"reliability {verb}" in said.stdout
    assert f"| `{verb}" in CLI_PAGE


def test_the_page_says_which_verbs_have_no_json():
    """It left out declare."""
    [said] = re.findall(r"All verbs have `--json` but (.*?)\.", CLI_PAGE, re.DOTALL)
    commands = get_command(app).commands  # type: ignore[attr-defined]
    without = {
        verb
        for verb, command in commands.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert set(re.findall(r"`(\w+)`", said)) == without


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "shop"],
        ["show", "shop", "0:1"],
        ["replay", "shop", "3", "--dry-run", "--diff", "rows.txt"],
        ["replay", "shop", "3", "--dry-run", "--diff", "/nowhere/rows.csv"],
        ["replay", "shop", "3", "--dry-run", "--diff", "rows.csv", "--diff-table", "a.b"],
        ["replay", "shop", "3", "--dry-run", "--diff-table", "rows"],
        ["replay", "shop", "3", "--refreeze"],
        ["rollback", "shop", "3"],
        ["rollback", "shop", "-1", "--reason", "x"],
        ["park", "shop", "0", "--reason", "x"],
    ],
)
def test_a_wrong_use_is_told_before_anything_is_done(arguments):
    assert CliRunner().invoke(app, arguments).exit_code == 2


# --- Airflow and the ledger ----------------------------------------------------------------------


def known(txids=2, satisfied=2, open=0, held=0, silent=0):
    unsatisfied = "{[1,2)}" if satisfied < txids else "{}"
    return {
        "txids": txids,
        "satisfied": satisfied,
        "open": open,
        "held": held,
        "silent": silent,
        "unsatisfied": unsatisfied,
    }


NEVER_ASKED = object()


@pytest.mark.parametrize(
    ("state", "row", "emitted", "expected"),
    [
        ("success", known(), NEVER_ASKED, []),
        ("success", None, [], []),  # an interval without files
        ("success", None, [1, 2], [("UNKNOWN", "1..2")]),
        ("success", None, None, [("UNKNOWN", "?")]),
        ("success", known(satisfied=1), NEVER_ASKED, [("UNSATISFIED", "1")]),
        ("success", known(satisfied=1, held=1), NEVER_ASKED, [("HELD", "1")]),
        ("failed", known(), NEVER_ASKED, [("SATISFIED", "")]),
        ("failed", known(satisfied=1), NEVER_ASKED, []),
        ("failed", None, NEVER_ASKED, []),
        ("failed", known(satisfied=1, open=1), NEVER_ASKED, [("OPEN", "1")]),
        ("running", known(satisfied=0, open=2), NEVER_ASKED, []),
        ("running", known(satisfied=1, open=1, silent=1), NEVER_ASKED, [("SILENT", "1")]),
        ("queued", known(satisfied=1, open=1, silent=1), NEVER_ASKED, []),
        (None, known(satisfied=1, open=1), NEVER_ASKED, [("GONE", "1")]),
        (None, known(satisfied=1), NEVER_ASKED, []),
    ],
)
def test_what_airflow_and_the_ledger_do_not_agree_about(state, row, emitted, expected):
    def ask(run_id):
        assert emitted is not NEVER_ASKED
        return emitted

    runs = [DagRun(run_id="r", state=state)] if state else []
    found = compare("shop", runs, {"r": row} if row else {}, {}, ask, lambda run: False)
    assert [(one.what.name, one.txids) for one in found] == expected
    assert all(one.what in Disagreement for one in found)


def test_a_question_that_nobody_can_answer_is_no_yes(monkeypatch, capsys):
    """Under a daemon there may be no standard input at all."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(typer.Abort):
        check_asked("Drop it?", yes=False)
    assert "add --yes to go on without it" in capsys.readouterr().err


def test_json_has_no_number_that_a_program_would_round_or_not_read(capsys):
    print_json({"a": [float("nan"), 2**53, -(2**53) - 1, 0.1], "b": float("-inf")})
    read = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert read == {"a": ["NaN", 2**53, str(-(2**53) - 1), 0.1], "b": "-Infinity"}
