"""Reads the sums of all money in a loop, in snapshots and in single statements."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg2

from tests.chaos.bank import ENGINES, HERE, MART

#: What has committed everywhere, or nowhere.
SUMS = {
    HERE: """
        SELECT (SELECT coalesce(sum(amount), 0) FROM public.{0}_balance) AS money,
               (SELECT coalesce(sum(moves), 0) FROM public.{0}_balance) AS moves,
               (SELECT count(*) FROM public.{0}_seen) AS seen,
               (SELECT coalesce(sum(moves), 0) FROM public.{0}_last) AS last
    """,
    MART: """
        SELECT coalesce(sum(amount), 0) AS money, count(*) AS moves,
               count(DISTINCT (account, number)) AS different
          FROM public.{0}_mart_moved
    """,
}
PAUSE_SECONDS = 0.1


class Reader:
    """A thread that reads one database.

    :ivar snapshots: how many were read, by bank
    :ivar wrong: what was seen that may never be, or what the reader itself failed with
    """

    def __init__(self, dsn: Callable[[], str], database: str) -> None:
        self._dsn, self._database = dsn, database
        self.snapshots: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ends.wait(PAUSE_SECONDS):
            try:
                with suppress(psycopg2.Error), closing(psycopg2.connect(self._dsn())) as session:
                    session.autocommit = True
                    while not self._ends.wait(PAUSE_SECONDS):
                        for name in ENGINES:
                            self._look(session.cursor(), name)
            except Exception as error:  # a reader that has died proves nothing
                self.wrong.append(f"a reader failed: {type(error).__name__}: {error}")
                return

    def _look(self, cursor: Any, name: str) -> None:
        question = SUMS[self._database].format(name)
        try:
            cursor.execute(question)
            seen = [*cursor.fetchall()]
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            for _ in range(2):
                cursor.execute(question)
                seen += cursor.fetchall()
            cursor.execute("COMMIT")
        except psycopg2.errors.UndefinedTable:
            cursor.execute("ROLLBACK")  # nothing has committed so far
            return
        self.snapshots[name] += 2
        if seen[1] != seen[2] or not all(map(is_sound, seen)):
            self.wrong.append(f"{name} in {self._database or 'the ledger'}: {seen}")


def is_sound(row: Sequence[int]) -> bool:
    """Say whether money was moved only, and all tables have had the same moves."""
    money, *moves = row
    return money == 0 and len(set(moves)) == 1
