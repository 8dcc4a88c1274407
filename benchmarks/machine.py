"""Say in words what the suite runs on."""

from __future__ import annotations

import platform

import psutil

GIB = 1 << 30


def describe_machine() -> str:
    """Return the cores, the memory, the load and the system."""
    memory = round(psutil.virtual_memory().total / GIB)
    load = psutil.getloadavg()[2]
    python = platform.python_version()
    return (
        f"{psutil.cpu_count()} cores, {memory} GiB of memory, {platform.system()} on "
        f"{platform.machine()}, Python {python}; load of the last 15 minutes {load:.1f}"
    )
