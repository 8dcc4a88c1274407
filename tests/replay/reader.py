"""A reader beside the pipeline: every snapshot is the state after some change (G3)."""

from __future__ import annotations

import threading
from contextlib import closing
from types import TracebackType

from reliability.ledger.connection import LedgerConnection
from tests.support.fix_postgres import rows


class Reader:
    """Runs one statement over and over, whose columns say the same of different tables."""

    def __init__(self, dsn: str, statement: str) -> None:
        self._dsn, self._statement = dsn, statement
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.seen: set[object] = set()
        self.torn: list[object] = []

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        assert self.seen, "it never read anything"
        assert not self.torn

    def _read(self) -> None:
        with closing(LedgerConnection(self._dsn)) as connection:
            while not self._ended.wait(0.02):
                [found] = rows(connection, self._statement)
                if len(set(found)) > 1:
                    self.torn.append(found)
                self.seen.add(found[0])
