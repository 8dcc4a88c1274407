"""What an error tells people to type is a command."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import reliability
from reliability.core.remedy import COMMANDS
from reliability.deployment.fingerprint import parse


def literal_remedies(code: str) -> Iterator[str]:
    """Return the texts that are given to errors as they are: those of classes have fields."""
    calls = (node for node in ast.walk(parse(code)) if isinstance(node, ast.Call))
    for keyword in (keyword for call in calls for keyword in call.keywords):
        if keyword.arg == "remedy" and isinstance(keyword.value, ast.Constant):
            yield str(keyword.value.value)


def test_no_command_stays_unfilled():
    """A person read: run {refreeze}."""
    package = Path(reliability.__file__).parent
    texts = [text for file in package.rglob("*.py") for text in literal_remedies(file.read_text())]
    assert len(texts) > 50
    fields = [f"{{{command}}}" for command in COMMANDS]
    assert [text for text in texts if any(field in text for field in fields)] == []


def test_it_would_be_found():
    assert [*literal_remedies('raise E("x", remedy="run {refreeze}")')] == ["run {refreeze}"]
