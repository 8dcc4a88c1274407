"""What Airflow asks of an installed provider; here, as it must not import Airflow."""

from __future__ import annotations

from reliability.core.names import DISTRIBUTION


def get_provider_info() -> dict[str, str]:
    """Return what `airflow providers list` shows: the distribution, its name, what it is for."""
    return {
        "package-name": DISTRIBUTION,
        "name": "Reliability",
        "description": "Exactly-once batch transactions on Airflow, Spark and Postgres",
    }
