"""The command line, called in this process."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import typer.testing
from typer.main import get_command
from typer.testing import CliRunner

from reliability.cli import app
from reliability.core.texts import signed
from reliability.deployment.settings import person

# else each call makes all verbs anew
vars(typer.testing)["_get_command"] = cache(get_command)


def say(*arguments: str, code: int | None = 0, **options: Any) -> Any:
    """Call a verb and return what it said, on stdout and on stderr."""
    result = CliRunner().invoke(app, list(arguments), **options)
    assert code is None or result.exit_code == code, result.output
    return result


def read(*arguments: str, code: int | None = 0) -> Any:
    """Call a verb with --json and return its one document."""
    return json.loads(say(*arguments, "--json", code=code).stdout)


def by_me(reason: str) -> str:
    """Return a reason as the command line records it."""
    return signed(reason, person())
