"""Drive a spout through what happens to a source, and say in words what it breaks.

It does with the spout what emission, attempts, replays and refreezes do, over a source that the
test changes, with the txids in memory. Each sentence of a `SpoutBroken` names the method, the txid
and the item.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reliability.core.errors import RefreezeNotPossible, SourceUnreadable
from reliability.core.spout import BatchMeta, Spout
from reliability.testing.drive import Drive, Rows, Stopped, comparable, names_of
from reliability.testing.source import Source, SpoutBroken
from reliability.transaction.emit.source_items import with_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
HEAVY = {"numpy", "pandas", "pyarrow", "pyspark"}


def check_spout(
    spout: Spout,
    source: Source,
    *,
    spark: SparkSession | None = None,
    others: Sequence[Spout] = (),
) -> list[str]:
    """Drive a spout over a source; return what was tried, a phrase each.

    What the source cannot do, because it does not override `change` or `lose`, is not tried.

    :param spark: a session; without one, the active one is used, or a local one until the end
    :param others: spouts of the same source with other limits, which a person may deploy later
    :raises SpoutBroken: it breaks the contract; the error has every sentence that was found
    """
    if spark is not None:
        return _Check(spout, source, spark).run(others)
    from pyspark.sql import SparkSession as Session

    running = Session.getActiveSession()
    own = running or Session.builder.master("local[2]").getOrCreate()
    try:
        return _Check(spout, source, own).run(others)
    finally:
        if running is None:
            own.stop()


@dataclass
class _Check(Drive):
    """What happens to one spout, in order.

    :ivar first_rows: txid -> the rows that its first attempt read
    """

    tried: list[str] = field(default_factory=list)
    first_rows: dict[int, Rows] = field(default_factory=dict)

    def run(self, others: Sequence[Spout]) -> list[str]:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("an import as light as a DAG file's", self._import),
            ("a source as it is found", self._as_found),
            ("a crash between plan and record", self._crash),
            ("emission", self._emission),
            ("a second emission", self._second_emission),
            ("attempts", self._attempts),
            ("late items", self._late_items),
            ("replays", self._replays),
            *((f"other limits: {other}", lambda o=other: self._limits(o)) for other in others),
            ("excluded items", self._excluded),
            ("an empty batch", self._empty_batch),
            ("opaque batches", self._opaque),
            ("all rows", self._all_rows),
            ("a change and a refreeze", lambda: self._damage(self.source.change)),
            ("a loss and a refreeze", lambda: self._damage(self.source.lose)),
        ]
        with _told_once(self.broken):
            for name, step in steps:
                try:
                    step()
                except NotImplementedError:
                    logger.info("not tried: %s", name)
                    continue
                self.tried.append(name)
        if self.broken:
            raise SpoutBroken(self.spout, self.broken)
        return self.tried

    def _import(self) -> None:
        """Import the spout's module alone: the scheduler does so for each DAG file."""
        module = type(self.spout).__module__
        code = f"import sys, {module}; print(*sorted(sys.modules.keys() & {HEAVY}))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:  # it is no module of its own
            raise NotImplementedError
        if heavy := done.stdout.split():
            self.says(f"its module imports {heavy}: import them in the methods that use them")

    def _as_found(self) -> None:
        with self.allowing("is_ready"):
            ready = self.spout.is_ready(1, self.source.interval)
        if type(ready) is not bool:
            self.says("is_ready: it returns neither True nor False")
        self.record(self.cut(self.plan()))
        for _ in range(3):
            self.source.add()

    def _crash(self) -> None:
        """Lose a plan, and half of one: what is not recorded comes again, the same."""
        one, two = self.plan(), self.plan(again=True)
        if one != two:
            self.says(
                f"plan: two calls in a row list other items: {names_of(one)}, {names_of(two)}"
            )
        if not one:
            self.says("plan: it lists nothing of what was added to the source")
            raise Stopped
        batches = self.cut(one)
        if self.cut(one) != batches:
            self.says("cut: two calls with the same items cut other batches")
        self.record(batches[:1])
        rest = self.plan(again=True)
        self.compare("plan: after half of its batches were recorded", batches[1:], [rest])

    def _emission(self) -> None:
        self.record(self.cut(self.plan()))

    def _second_emission(self) -> None:
        if again := self.plan(again=True):
            self.says(f"plan: a second emission lists again what txids have: {names_of(again)}")

    def _late_items(self) -> None:
        before = self._emitted()
        self.source.add()
        late = self.plan()
        if not late:
            self.says("plan: it does not list what was added after an emission")
        if twice := [item.identity for item in late if item.identity in before]:
            self.says(f"plan: beside what is new it lists again what txids have: {twice}")
            raise Stopped
        self.record(self.cut(late))
        self._attempts()

    def _limits(self, other: Spout) -> None:
        """Deploy another spout of the source between two emissions."""
        for spout in (other, self.spout):
            if again := self.plan(spout=spout):
                self.says(
                    f"plan: with other limits it lists again what txids have: {names_of(again)}"
                )
                raise Stopped
            self.source.add()
            self.record(self.cut(self.plan(spout=spout), spout))
        self._attempts()

    def _opaque(self) -> None:
        """Cut each batch where the one before ends, as attempts of an opaque spout do."""
        if not self.spout.opaque:
            raise NotImplementedError
        self.source.add()
        self.source.add()
        wanted = self.plan()
        before: list[BatchMeta] = []
        while len(before) <= len(wanted):
            left = self.plan(allocated=with_batches(self.txids, before))
            if not left:
                break
            before.append(self.frozen(self.cut(left)[0]))
        self.compare("plan beside uncommitted batches", [wanted], [meta.items for meta in before])
        self.record([meta.items for meta in before])
        self._attempts()

    def _emitted(self) -> set[str]:
        return {item.identity for meta in self.txids.batches.values() for item in meta.items}

    def _attempts(self) -> None:
        """Let each txid that has read nothing yet read its batch, twice."""
        for txid, meta in self.txids.batches.items():
            if txid not in self.first_rows:
                self.verify(txid, meta)
                self.first_rows[txid] = self.read(txid, meta)
                if self.read(txid, meta) != self.first_rows[txid]:
                    self.says(f"frame: txid {txid} reads other rows the second time")

    def _replays(self) -> None:
        for txid, meta in self.txids.batches.items():
            self.verify(txid, meta)
            if self.read(txid, meta) != self.first_rows[txid]:
                self.says(
                    f"frame: a replay of txid {txid} reads other rows, and verify says nothing"
                )

    def _excluded(self) -> None:
        """Read each batch without its first item."""
        for txid, meta in self.txids.batches.items():
            self.read(txid, self.frozen(meta.items[1:]), "without an excluded item")

    def _empty_batch(self) -> None:
        empty = self.frozen(())
        self.verify(0, empty)
        self.read(0, empty, "of an empty batch")

    def _all_rows(self) -> None:
        if (rows := self.source.rows()) is None:
            raise NotImplementedError
        names = sorted(self.columns or {})
        there = Counter(tuple(comparable(row[name]) for name in names) for row in rows)
        read = Counter(row[:-1] for rows in self.first_rows.values() for row in rows.elements())
        if lost := there - read:
            self.says(f"frame: {lost.total()} rows of the source are in no batch: {_some(lost)}")
        if more := read - there:
            self.says(f"frame: {more.total()} rows are in batches, and not once more in the "
                       f"source: {_some(more)}")  # fmt: skip

    def _damage(self, do: Callable[[], None]) -> None:
        """Change the source: `verify` has to see it, and a refreeze to give batches that hold.

        What cannot be frozen again stays damaged.
        """
        before = self._damaged()
        do()
        verb = do.__name__
        damaged = self._damaged()
        if not damaged - before and len(before) < len(self.txids.batches):
            self.says(f"verify: after {verb}() of the source it says nothing new of any txid")
        for txid, meta in self.txids.batches.items():
            if txid in damaged:
                self._refreeze(txid, meta, verb)
            elif self.read(txid, meta) != self.first_rows[txid]:
                self.says(f"frame: after {verb}() txid {txid} reads other rows, and verify says "
                           "nothing")  # fmt: skip
        if not self._damaged() and (again := self.plan()):  # otherwise it may refuse the source
            self.says(f"plan: after {verb}() and a refreeze it lists {names_of(again)}")

    def _damaged(self) -> set[int]:
        return {txid for txid, meta in self.txids.batches.items() if self.is_damaged(meta)}

    def _refreeze(self, txid: int, meta: BatchMeta, verb: str) -> None:
        try:
            with self.allowing(f"refresh after {verb}()", RefreezeNotPossible, SourceUnreadable):
                items = self.spout.refresh(meta)
        except (RefreezeNotPossible, SourceUnreadable) as error:
            logger.info("no refreeze of txid %s: %s", txid, error)
            return
        new = self.txids.refreeze(txid, self.frozen(items))
        self.verify(txid, new)
        self.first_rows[txid] = self.read(txid, new, f"after {verb}() and a refreeze")


@contextmanager
def _told_once(broken: list[str]) -> Iterator[None]:
    """End the drive where nothing further can be tried; what is broken has been said."""
    try:
        yield
    except Stopped:
        assert broken


def _some(rows: Rows) -> str:
    return ", ".join(map(str, list(rows)[:3]))
