"""`make shell` and `dev/shell`: what they give, and what they keep of their caller's."""

from __future__ import annotations

import os
import subprocess
import sys

from dev.services.processes import MARKER
from tests.support.fix_postgres import ROOT

SHELL = str(ROOT / "dev" / "shell")
CONF = """{"dry_run": false, "why": "it's \\"net\\""}"""


def run(*command, text="", **variables):
    env = os.environ | variables
    return subprocess.run(
        [SHELL, *command], input=text, capture_output=True, text=True, check=False, env=env
    )


def test_a_command_keeps_its_quotes_its_exit_code_and_exported_variables():
    """`make run` ate the quotes of a JSON argument, and turned the exit code 3 into 2."""
    show = "import os, sys; print(sys.argv[1]); print(os.environ['RELIABILITY_MINE']); sys.exit(3)"
    done = run("python", "-c", show, CONF, RELIABILITY_MINE="kept")
    assert (done.returncode, done.stdout.splitlines()) == (3, [CONF, "kept"]), done.stderr


def test_a_shell_finds_everything_says_what_is_there_and_shows_where_one_is():
    found = "command -v airflow reliability psql spark-submit java python\n"
    told = f"echo $RELIABILITY_AIRFLOW_URL ${MARKER} $RELIABILITY_DSN\nexit 3\n"
    done = run(text=found + told)
    assert done.returncode == 3, done.stderr
    tools, services, *programs, variables = done.stdout.splitlines()
    assert "spark-submit" in tools
    assert "Airflow" in services
    assert len(programs) == 6
    assert programs[-1] == os.path.join(os.path.dirname(sys.executable), "python")
    url, *others = variables.split()
    assert url.startswith("http://127.0.0.1:")
    assert others == ["service=reliability"]  # without the mark, by which `make down` kills
    assert "(reliability)" in done.stderr  # the prompt


def test_an_unknown_command_is_said_to_be_one():
    done = run("no-such-command")
    assert done.returncode == 1
    assert "no such command: no-such-command" in done.stderr
