"""Watch an attempt while spark-submit works for it (A7)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from reliability.core.attempt import Grant
from reliability.core.errors import ReliabilityError
from reliability.deployment.settings import ledger_dsn
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.process.attempt_messages import is_processing

logger = logging.getLogger(__name__)
POLL_INTERVAL_SECONDS = 3.0


class Watch:
    """While the block runs, end spark-submit if its attempt was ended."""

    def __init__(self, grant: Grant, kill: Callable[[], None]) -> None:
        self._grant = grant
        self._kill = kill
        self._connection = LedgerConnection(
            ledger_dsn(), application_name=f"reliability {grant} watch"
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(timeout=10)
        self._connection.close()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_INTERVAL_SECONDS):
            try:
                if not is_processing(self._connection, self._grant):
                    logger.warning("attempt %s was ended: ending its spark-submit", self._grant)
                    self._kill()
                    return
            except ReliabilityError as error:
                logger.warning("cannot watch attempt %s now: %s", self._grant, error)
