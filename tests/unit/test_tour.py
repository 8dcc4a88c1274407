"""The tour of docs/internals/development.md leads along calls that exist."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reliability.deployment.fingerprint import parse

ROOT = Path(__file__).resolve().parents[2]
STOP = re.compile(
    r"^\| (\d+) \| (`[^|]+`) \| (?:`([\w.]+)`|both files) \| ([^|]+) \|", re.MULTILINE
)
OUTSIDE = {"Airflow", "Spark"}  # they call a function of ours; no call of it is in our code


@dataclass(frozen=True)
class Stop:
    """A row of the tour; `callers` are the numbers of other stops, none if a program calls it."""

    number: int
    files: tuple[Path, ...]
    name: str
    by: str

    @property
    def callers(self) -> list[int]:
        return [] if self.by in OUTSIDE else [int(self.by.partition(",")[0])]


@cache
def stops() -> dict[int, Stop]:
    found = STOP.findall((ROOT / "docs" / "internals" / "development.md").read_text())
    return {
        int(number): Stop(
            int(number), tuple(ROOT / path for path in re.findall("`([^`]+)`", files)), name, by
        )
        for number, files, name, by in found
    }


@cache
def tree_of(path: Path) -> ast.Module:
    return parse(path.read_text())


def defined_in(path: Path) -> set[str]:
    """Return the functions, classes and `Class.method` of a module."""
    found = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


def called_in(path: Path) -> set[str]:
    """Return the names of the functions and methods that a module calls."""
    called = [node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    names = {function.id for function in called if isinstance(function, ast.Name)}
    return names | {function.attr for function in called if isinstance(function, ast.Attribute)}


def test_a_batch_is_followed_in_nineteen_stops():
    assert list(stops()) == list(range(1, 20))
    files = [path for stop in stops().values() for path in stop.files]
    assert len(set(files)) == len(files)
    assert all(path.is_file() for path in files)


def test_each_stop_is_defined_where_the_tour_says():
    for stop in list(stops().values())[1:]:
        assert stop.name in defined_in(stop.files[0]), f"{stop.files[0]} defines no {stop.name}"


def test_each_stop_is_called_by_the_stop_that_the_tour_names():
    for stop in stops().values():
        function = stop.name.rpartition(".")[2]
        for caller in stop.callers:
            assert caller < stop.number
            called = set().union(*map(called_in, stops()[caller].files))
            assert function in called, f"stop {caller} does not call {stop.name}"


def test_the_caller_of_each_stop_is_another_stop_or_a_program():
    assert all(stop.callers or stop.by in OUTSIDE for stop in stops().values())
    assert [stop.number for stop in stops().values() if not stop.callers] == [1, 3, 7, 11, 14]
