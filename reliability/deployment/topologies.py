"""Find a topology by its module and name, which is how processes refer to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from reliability.core.definitions import Topology
from reliability.core.errors import InvalidDefinition, TopologyNotFound

_NOT_IMPORTED = (
    "install the code, or put the folder that has it on PYTHONPATH; `reliability` also looks in "
    "the current folder and in RELIABILITY_HOME."
)
_DAG_FILES = "unusual_prefix_"  # how Airflow names the module of a DAG's file


def load_topology(module: str, name: str) -> Topology:
    """Import the module and return its topology of that name; raise TopologyNotFound."""
    try:
        members = vars(import_module(module)).values()
    except ImportError as error:
        raise TopologyNotFound(
            f"module {module} cannot be imported: {error}", remedy=_NOT_IMPORTED
        ) from error
    for member in members:
        if isinstance(member, Topology) and member.name == name:
            return member
    raise TopologyNotFound(f"module {module} defines no topology called {name}")


def check_found(topology: Topology) -> None:
    """Raise InvalidDefinition unless a topology is a variable of its module, as others look for it.

    A DAG's file is imported under a name that only Airflow knows.
    """
    module, name = topology.module, topology.name
    try:
        load_topology(module, name)
    except TopologyNotFound as error:
        where = next(iter(sorted(_modules_with(topology))), "a module that they can import")
        raise InvalidDefinition(
            f"topology {name}: {error.what}, where Spark's drivers and `reliability` look for it",
            remedy=f"keep it in a variable of {where}, and pass module=__name__ there to the "
            "Topology, or to the function that makes it.",
        ) from error
    if module.startswith(_DAG_FILES):
        raise InvalidDefinition(
            f"topology {name} is defined in the file of its DAG, which no other process can import",
            remedy="define it, with its process function, in a module, and import it here.",
        )


def _modules_with(topology: Topology) -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        values = list(getattr(module, "__dict__", {}).values())
        is_importable = not name.startswith(_DAG_FILES) and name != "__main__"
        if is_importable and any(value is topology for value in values):
            yield name


def folder_of(module: str) -> str | None:
    """Return the folder on the path from which a module was imported.

    None if it is installed, so that every Python of this environment finds it, or has no file.
    """
    imported = sys.modules.get(module)
    file = getattr(imported, "__file__", None)
    if file is None:
        return None
    is_package = hasattr(imported, "__path__")
    folder = Path(file).absolute().parents[module.count(".") + is_package]
    return None if folder.name in ("site-packages", "dist-packages") else str(folder)
