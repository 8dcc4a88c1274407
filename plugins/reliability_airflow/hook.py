"""The hook of Airflow's connections of type `reliability`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reliability.core.errors import LedgerNotMigrated, ReliabilityError
from reliability.deployment.address import address_at
from reliability.deployment.airflow_connections import DEFAULT
from reliability_airflow.releases import BaseHook

if TYPE_CHECKING:
    from reliability.ledger.connection import LedgerConnection


class ReliabilityHook(BaseHook):
    """Opens sessions with the database that a connection leads to.

    :param ledger_conn_id: the connection, of type `reliability` or `postgres`
    """

    conn_name_attr = "ledger_conn_id"
    default_conn_name = DEFAULT
    conn_type = "reliability"
    hook_name = "Reliability"

    def __init__(self, ledger_conn_id: str = DEFAULT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ledger_conn_id = ledger_conn_id

    def get_conn(self) -> LedgerConnection:
        """Return a session, which logs in when it is first used."""
        from reliability.ledger.connection import LedgerConnection

        return LedgerConnection(address_at(self.ledger_conn_id), "reliability hook")

    def test_connection(self) -> tuple[bool, str]:
        """Say whether the server lets the role in, and whether it has a ledger."""
        from reliability.ledger.migrations import check_migrated

        try:
            with self.get_conn() as connection:
                facts = connection.one("server_facts")
                found = f"Postgres {facts['version']}, {facts['database']} as {facts['role']}"
                try:
                    check_migrated(connection)
                except LedgerNotMigrated as error:
                    return True, f"{found}. {error.advice}"
        except ReliabilityError as error:
            return False, str(error)
        return True, f"{found}, with a ledger of this release"
