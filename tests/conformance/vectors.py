"""A file of vectors, and what is in it: sections, each of one vector or of many."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "vectors"


@dataclass(frozen=True, slots=True)
class Vector:
    """One recorded history.

    :param data: the vector itself; a section that is one vector stands under its own name
    :param beside: the whole file: some vectors have their data once for all of them
    """

    section: str
    name: str
    data: Mapping[str, Any]
    beside: Mapping[str, Any]

    @property
    def quirk(self) -> str | None:
        """Return what defect of the original it records, if it does."""
        return self.data.get("upstream_quirk")

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        steps: list[Mapping[str, Any]] = self.data["steps"]
        return steps


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file as it was read; `component` says which part of the originals it is about."""

    name: str
    component: str
    data: Mapping[str, Any]

    def sections(self) -> Iterator[tuple[str, Any]]:
        """Return what may hold vectors: all that is neither text nor a list of texts."""
        for section, value in self.data.items():
            is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
            if isinstance(value, list | dict) and not is_texts:
                yield section, value

    def each(self, section: str) -> list[Vector]:
        """Return a section of many vectors."""
        return [
            Vector(section, _name_of(section, number, data), data, self.data)
            for number, data in enumerate(self.data[section])
        ]

    def whole(self, section: str) -> Vector:
        """Return a section that is one vector."""
        return Vector(section, section, {section: self.data[section]}, self.data)


def load(path: Path) -> VectorFile:
    """Read a file; raise ValueError if it is none of this format."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or not isinstance(data.get("component"), str):
        raise ValueError("it names no component")
    return VectorFile(path.name, data["component"], data)


def _name_of(section: str, number: int, data: Mapping[str, Any]) -> str:
    if "name" in data:
        return str(data["name"])
    told = [f"{key} {data[key]}" for key in _TELLING if key in data]
    return f"{section}[{number}] {', '.join(told)}"


_TELLING = ("op", "state", "txid", "batch_txid", "recovering")
