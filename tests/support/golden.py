"""Texts that are generated, kept in the repository for people, and held equal by a test."""

from __future__ import annotations

import os
from pathlib import Path

WRITE = "WRITE_GOLDEN"


def check_golden(path: Path, text: str) -> None:
    """Compare a text with its file; with WRITE_GOLDEN=1, write the file instead."""
    if os.environ.get(WRITE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} is out of date: run this test with {WRITE}=1"
