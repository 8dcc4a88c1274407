"""What Airflow asks of an installed provider; here, as it must not import Airflow."""

from __future__ import annotations

from typing import Any

from reliability.core.names import DISTRIBUTION

_PLUGIN = "reliability_airflow"


def get_provider_info() -> dict[str, Any]:
    """Return what `airflow providers get` shows, and where Airflow finds what we add to it."""
    return {
        "package-name": DISTRIBUTION,
        "name": "Reliability",
        "description": "Exactly-once batch transactions on Airflow, Spark and Postgres",
        "connection-types": [_CONNECTION],
        "extra-links": [
            f"{_PLUGIN}.links.{name}"
            for name in ("TransactionLink", "SparkLink", "BlockingRunLink")
        ],
        "config": {"reliability": _CONFIG},
    }


def _field(label: str, description: str) -> dict[str, Any]:
    return {
        "label": label,
        "description": description,
        "schema": {"type": ["string", "null"]},
    }


#: of its form in Airflow's UI, from 3.2 on; 3.1 shows the general one
_CONNECTION = {
    "connection-type": "reliability",
    "hook-name": "Reliability",
    "hook-class-name": f"{_PLUGIN}.hook.ReliabilityHook",
    "ui-field-behaviour": {
        "relabeling": {"schema": "Database", "login": "Role"},
        "placeholders": {"host": "db.example", "port": "5432", "schema": "warehouse"},
    },
    "conn-fields": {
        "sslmode": _field("TLS", "libpq's sslmode, such as verify-full"),
        "sslrootcert": _field("Root certificate", "a file on each host, or `system`"),
        "target_session_attrs": _field("Server", "of several hosts, such as read-write"),
    },
}


def _option(description: str, example: str) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": "string",
        "example": example,
        "default": "",
    }


_CONFIG = {
    "description": "Where the ledger and other databases are, unless a DAG or libpq's own files "
    "and variables say it; and who may act on the page.",
    "options": {
        "ledger_conn_id": _option(
            "The connection to the ledger; by default reliability_default, if there is one.",
            "reliability_ledger",
        ),
        "database_conn_ids": _option(
            "The connections to the databases that states and spouts name, as JSON.",
            '{"mart": "mart_postgres"}',
        ),
        "correction_roles": _option(
            "Airflow's roles whose users may act on the page; empty: all who may edit runs.",
            "Op, Corrections",
        ),
    },
}
