"""Variants of one case, of which `make test` runs some, and `make test-all` every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def variants(cases: Iterable[Any], is_quick: Callable[[Any], bool]) -> list[Any]:
    """Return parameters, of which those that are not quick are slow."""
    marked = [
        case
        if is_quick(case)
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
    assert any(map(is_quick, cases)), "none is left for `make test`"
    return marked
