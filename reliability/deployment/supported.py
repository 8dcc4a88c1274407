"""The releases of Airflow and Python in which this package runs; docs/deployment/versions.md."""

from __future__ import annotations

from reliability.core.errors import AirflowNotSupported, PythonNotSupported

OLDEST, BEFORE = (3, 0), (4, 0)
PYTHONS = range(10, 14)  # 3.10 to 3.13


def check_airflow(version: str) -> tuple[int, ...]:
    """Return a release of Airflow as numbers, such as (3, 3).

    :raises AirflowNotSupported: this package does not run in it
    """
    release = tuple(int(part) for part in version.split(".")[:2])
    if not OLDEST <= release < BEFORE:
        raise AirflowNotSupported(f"this is Airflow {version}")
    return release


def check_python(version: tuple[int, ...]) -> None:
    """Raise PythonNotSupported of a Python in which this package was not tried."""
    if version[0] != 3 or version[1] not in PYTHONS:
        raise PythonNotSupported(f"this is Python {version[0]}.{version[1]}")
