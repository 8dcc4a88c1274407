"""What has to hold of a bank, which moves money and never makes it, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection

#: Attempts that somebody still works on, or seems to.
LIVE = """
    SELECT topology, txid, attempt_id, status FROM reliability.attempt
     WHERE status IN ('PROCESSING', 'SEALING')
"""
RECONNECT_SECONDS = 0.05


class Reader:
    """A thread that reads sums in a loop, in single statements and in snapshots.

    :param connect: opens a session
    :param questions: by name, each for one row: the money, and how many moves each table has had
    :param every: seconds between two looks
    :ivar snapshots: how many were read, by name
    :ivar wrong: what was seen that may never be, or what the reader itself failed with
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        questions: Mapping[str, str],
        *,
        every: float,
        moves_only: bool = True,
    ) -> None:
        self._connect, self._questions = connect, questions
        self._every, self._moves_only = every, moves_only
        self.snapshots: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ends.is_set():
            try:
                with suppress(psycopg2.Error), closing(self._connect()) as session:
                    session.autocommit = True
                    while not self._ends.wait(self._every):
                        for name, question in self._questions.items():
                            self._look(session.cursor(), name, question)
            except Exception as error:  # a reader that has died proves nothing
                self.wrong.append(f"a reader failed: {type(error).__name__}: {error}")
                return
            self._ends.wait(RECONNECT_SECONDS)

    def _look(self, cursor: Any, name: str, question: str) -> None:
        try:
            cursor.execute(question)
            seen = [*cursor.fetchall()]
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            for _ in range(2):
                cursor.execute(question)
                seen += cursor.fetchall()
            cursor.execute("COMMIT")
        except (psycopg2.errors.UndefinedTable, psycopg2.errors.InFailedSqlTransaction):
            cursor.execute("ROLLBACK")  # nothing has committed so far
            return
        self.snapshots[name] += 2
        if seen[1] != seen[2] or not all(is_sound(row, self._moves_only) for row in seen):
            self.wrong.append(f"{name}: {seen}")


def is_sound(row: Sequence[int], moves_only: bool = True) -> bool:
    """Say whether all tables have had the same moves; and, unless rows were erased, no money."""
    money, *moves = row
    return (money == 0 or not moves_only) and len(set(moves)) == 1
