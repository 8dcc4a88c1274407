"""The tour of docs/development.md leads along calls that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STOP = re.compile(r"^\| (\d+) \| `([\w/.]+)` \| (?:`(\w+)`|the file) \|", re.MULTILINE)

GIVEN = {"FileSpout", "StageTask", "StoredContributions", "process_with"}


def stops() -> list[tuple[int, Path, str]]:
    found = STOP.findall((ROOT / "docs" / "development.md").read_text())
    return [(int(number), ROOT / path, name) for number, path, name in found]


def defined_in(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


def test_a_batch_is_followed_in_twenty_files():
    assert [number for number, _, _ in stops()] == list(range(1, 21))
    assert len({path for _, path, _ in stops()}) == 20


def test_each_stop_is_defined_where_the_tour_says():
    for _, path, name in stops():
        assert not name or name in defined_in(path), f"{path.name} does not define {name}"


def test_each_stop_is_named_by_an_earlier_one():
    """Spark calls the driver and its tasks, a DAG file gives the spout; the rest is named."""
    seen = ""
    for number, path, name in stops():
        text = path.read_text()
        assert name in seen or number == 1 or name in GIVEN, name
        seen += text
