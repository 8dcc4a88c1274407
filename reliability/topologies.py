"""Find a topology by its module and name: what travels between processes is never the object."""

from __future__ import annotations

from importlib import import_module

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
    raise TopologyNotFound(f"module {module} holds no topology called {name}")
