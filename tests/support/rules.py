"""A pytest plugin: the rule that a test's docstring begins with becomes a marker.

`pytest --rule K1` runs the tests of rule K1 of docs/internals/protocol.md, as does
`pytest -m "rule(id='K1')"`.
"""

from __future__ import annotations

import re

import pytest

_LEADING = re.compile(r"[A-Z]\d+(?:, [A-Z]\d+)*(?=[:.,])")


def leading_rules(docstring: str | None) -> list[str]:
    """Return the rules that a docstring begins with.

    >>> leading_rules("A1, C6: other databases may have the commit")
    ['A1', 'C6']
    """
    found = _LEADING.match(docstring or "")
    return found[0].split(", ") if found else []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rule", action="append", default=[], help="run the tests of this rule only, such as K1"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for rule in leading_rules(getattr(getattr(item, "obj", None), "__doc__", None)):
            item.add_marker(pytest.mark.rule(id=rule))
    wanted = set(config.getoption("--rule"))
    if wanted:
        kept = [item for item in items if wanted & _rules(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def _rules(item: pytest.Item) -> set[str]:
    return {marker.kwargs["id"] for marker in item.iter_markers("rule")}
