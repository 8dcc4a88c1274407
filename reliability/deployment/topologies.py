"""Find a topology by its module and name, which is how processes refer to it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from reliability.core.definitions import Topology
from reliability.core.errors import TopologyNotFound


def load_topology(module: str, name: str) -> Topology:
    """Import the module and return its topology of that name; raise TopologyNotFound."""
    try:
        members = vars(import_module(module)).values()
    except ImportError as error:
        raise TopologyNotFound(f"module {module} cannot be imported: {error}") from error
    for member in members:
        if isinstance(member, Topology) and member.name == name:
            return member
    raise TopologyNotFound(f"module {module} defines no topology called {name}")


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
