"""Wait for a ledger that does not answer, without using a retry or holding a worker slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import BaseOperator

from reliability.core.errors import LedgerBusy, LedgerUnavailable
from reliability_airflow.context import WAIT_TIMEOUT, mapped_errors
from reliability_airflow.triggers import LedgerTrigger


class WaitingOperator(BaseOperator):
    """An operator whose work can restart at any time, as all work with the ledger can.

    :param wait_timeout: fail if what the task waits for does not come for so long
    """

    def __init__(self, *, wait_timeout: timedelta = WAIT_TIMEOUT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait_timeout = wait_timeout
        self._since: Mapping[str, str] = {}  # since when each thing has been waited for

    def resume(self, context: Any, event: Mapping[str, Any] | None = None, **since: str) -> Any:
        """Continue after a wait; the event is only a hint, the ledger is read again."""
        self._since = since
        return self.execute(context)

    def carried(self, what: str, error: Exception) -> dict[str, str]:
        """Return what a deferral carries: since when the task has waited for `what`.

        Each check ends a deferral and its timeout, so the total wait is measured here.

        :raises Exception: `error`, if it has waited for longer than `wait_timeout`
        """
        now = datetime.now(timezone.utc)
        since = self._since.get(what)
        if since is not None and now - datetime.fromisoformat(since) > self.wait_timeout:
            raise error
        return {what: since or now.isoformat()}

    @contextmanager
    def waiting_for_ledger(self, **names: object) -> Iterator[None]:
        """Leave the worker slot while the ledger is unavailable or busy; map all other errors.

        By default Airflow retries three times, 5 s apart, which is shorter than a server's restart.

        :param names: what the remedies of errors name: `topology`, `txid`
        """
        try:
            with mapped_errors(**names):
                yield
        except (LedgerUnavailable, LedgerBusy) as error:
            kwargs = self.carried("ledger", error)
            self.log.warning(
                "%s The task waits until the ledger answers, without using a retry.", error
            )
            trigger = LedgerTrigger()  # type: ignore[no-untyped-call]
            self.defer(
                trigger=trigger,
                method_name="resume",
                kwargs=kwargs,
                timeout=self.wait_timeout,  # the trigger itself waits while the ledger is away
            )
