"""Wait for a ledger that does not answer, without using a retry or holding a worker slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from reliability.core.errors import NOT_ANSWERING, PATIENCE_SECONDS, SOON_MENDED, ReliabilityError
from reliability.deployment.address import ConnIds, using
from reliability.deployment.airflow_connections import asking_alone
from reliability_airflow.context import WAIT_TIMEOUT, mapped_errors
from reliability_airflow.releases import is_test_run
from reliability_airflow.triggers import LedgerTrigger

if TYPE_CHECKING:
    from reliability.ledger.connection import LedgerConnection

PATIENCE = timedelta(seconds=PATIENCE_SECONDS)
# A login is refused within it; a task that has run for longer has been let in.
LONGEST_LOGIN = timedelta(minutes=2)


def connections_as_arguments(
    ledger_conn_id: str | None, database_conn_ids: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the default arguments by which every task of a DAG knows its connections."""
    named = {"ledger_conn_id": ledger_conn_id, "database_conn_ids": database_conn_ids}
    return {name: value for name, value in named.items() if value}


class WaitingOperator(BaseOperator):
    """An operator whose work can restart at any time, as all work with the ledger can.

    :param wait_timeout: fail if what the task waits for does not come for so long
    :param scope: the key in a run's conf under which is what is meant for the task; empty if the
        whole conf is
    :param ledger_conn_id: the connection of Airflow that leads to the ledger
    :param database_conn_ids: the same for other databases, by their names
    """

    def __init__(
        self,
        *,
        wait_timeout: timedelta = WAIT_TIMEOUT,
        scope: str = "",
        ledger_conn_id: str | None = None,
        database_conn_ids: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        # emit's and settle's lists are what Airflow maps tasks over, whatever default_args say
        super().__init__(do_xcom_push=True, multiple_outputs=False, **kwargs)
        self.wait_timeout = wait_timeout
        self.scope = scope
        self.ledger_conn_id = ledger_conn_id
        self.database_conn_ids = dict(database_conn_ids or {})
        self._since: Mapping[str, str] = {}  # since when each thing has been waited for
        self._resumed_at = _now()

    @property
    def conn_ids(self) -> ConnIds:
        """Return the connections that the DAG names."""
        return ConnIds.of(self.ledger_conn_id, self.database_conn_ids)

    @property
    def named_connections(self) -> dict[str, Any]:
        """Return them as the fields of a trigger."""
        return {
            "ledger_conn_id": self.ledger_conn_id,
            "database_conn_ids": self.database_conn_ids,
        }

    def resume(self, context: Any, event: Mapping[str, Any] | None = None, **since: str) -> Any:
        """Continue after a wait; the event is only a hint, the ledger is read again."""
        self._since = since
        self._resumed_at = _now()
        return self.execute(context)

    def carried(
        self, what: str, error: Exception, timeout: timedelta | None = None
    ) -> dict[str, str]:
        """Return what a deferral carries: since when the task has waited for `what`.

        Each check ends a deferral and its timeout, so the total wait is measured here.

        :param timeout: by default `wait_timeout`
        :raises Exception: `error`, if it has waited for longer
        """
        now = _now()
        since = self._since.get(what)
        longest = self.wait_timeout if timeout is None else timeout
        if since is not None and now - datetime.fromisoformat(since) > longest:
            raise error
        return {what: since or now.isoformat()}

    @contextmanager
    def ledger(
        self, purpose: str, topology: str = "", txid: int | None = None, *, briefly: bool = False
    ) -> Iterator[LedgerConnection]:
        """Open the ledger; leave the worker slot while it cannot be asked. Map all other errors.

        By default Airflow retries three times, 5 s apart, which is shorter than a server's restart.
        A login that is refused, and a ledger of another release, are waited for too, but only as
        long as a rotation or a deployment may take: the next try reads all of it again.

        Errors are about the topology and the txid.

        :param purpose: what the session is for, shown in pg_stat_activity
        :param briefly: do not wait for a ledger that is away
        """
        from reliability.transaction.topology.databases import open_ledger

        waited_for = SOON_MENDED if briefly else NOT_ANSWERING
        with mapped_errors(topology, txid), using(self.conn_ids), asking_alone():
            try:
                with open_ledger(purpose) as connection:
                    yield connection
            except waited_for as error:
                if is_test_run():  # in which a trigger would wait for as long as it takes
                    raise
                if isinstance(error, SOON_MENDED):
                    kwargs = self._carried_refusal(error)
                    until = f"for {PATIENCE_SECONDS // 60} minutes at most until that is mended"
                else:
                    kwargs = self.carried("ledger", error)
                    until = "until the ledger answers"
                self.log.warning("%s The task waits %s, without using a retry.", error, until)
                self.defer(
                    trigger=LedgerTrigger(**self.named_connections),
                    method_name="resume",
                    kwargs=kwargs,
                    timeout=self.wait_timeout,  # the trigger itself waits while the ledger is away
                )

    def _carried_refusal(self, error: ReliabilityError) -> dict[str, str]:
        if _now() - self._resumed_at > LONGEST_LOGIN:  # let in since the wait before this one
            self._since = {}
        return self.carried("refusal", error, PATIENCE)


def _now() -> datetime:
    return datetime.now(timezone.utc)
