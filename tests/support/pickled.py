"""A topology of a test's own, for the drivers of its steps: the test leaves it in a file."""

from __future__ import annotations

import os
from pathlib import Path

from reliability import Topology

FILE = "PICKLED_TOPOLOGY"


def read_topology(path: str) -> Topology:
    """Read the topology; its functions are imported from the modules that define them."""
    from pyspark import cloudpickle

    topology: Topology = cloudpickle.loads(Path(path).read_bytes())
    return topology


if FILE in os.environ:
    topology = read_topology(os.environ[FILE])
