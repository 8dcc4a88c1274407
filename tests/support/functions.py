"""pyspark.sql.functions, imported when a test uses it: collecting tests must stay quick."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Functions:
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("pyspark.sql.functions"), name)


F = _Functions()
