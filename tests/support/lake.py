"""What the tests of DeltaSpout and IcebergSpout share: rows, and a story of six batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from reliability import Count, State, Sum, Topology
from reliability.core.errors import SourceChanged
from reliability.core.spout import BatchMeta, Spout
from reliability.deployment.lazy import pa
from reliability.spouts.log_spout import LogSpout
from reliability.testing.allocated import Txids
from reliability.transaction.correct.rollback import release, roll_back
from tests.support.fix_postgres import rows

Values = tuple[int, str, int]
TOTALS = 'SELECT customer, day, orders, revenue FROM totals ORDER BY customer, day COLLATE "C"'


class Writable(Protocol):
    """A source, as its writers treat it."""

    spout: Any

    def append(self, *values: Values) -> None: ...

    def moves(self) -> None:
        """Compact it, if it has such a thing."""


class Lake(Writable, Protocol):
    """A table, as its clean-up treats it, too."""

    def files(self, version: int) -> list[Path]:
        """Return the files that a version added, counted from 0."""


def table_of(values: Sequence[Values]) -> Any:
    """Return rows of a customer, a day and a price."""
    names = ("customer", "day", "price")
    return pa.Table.from_pylist(
        [dict(zip(names, each, strict=True)) for each in values],
        schema=pa.schema([("customer", pa.int64()), ("day", pa.string()), ("price", pa.int64())]),
    )


def record(spout: LogSpout, txids: Txids) -> list[int]:
    """Emit; return how many rows each new batch has."""
    batches = spout.cut(spout.plan(None, txids))
    metas = [BatchMeta(items=items, emitted=spout.count(items)) for items in batches]
    return [txids.record(meta).emitted.count for meta in metas]


def read(spark: Any, spout: LogSpout, meta: BatchMeta) -> Counter[Any]:
    """Return the rows of a batch, and check that their fold is the emitted one."""
    spout.verify(meta)
    found = spout.frame(spark, meta).drop("_n").collect()
    xor = 0
    for row in found:
        xor ^= row["_x"]
    assert (xor, len(found)) == (meta.emitted.xor, meta.emitted.count)
    return Counter(tuple(row[:-1]) for row in found)


def read_all(spark: Any, spout: LogSpout, txids: Txids) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for meta in txids.batches.values():
        total += read(spark, spout, meta)
    return total


# --- six batches ----------------------------------------------------------------------------------


def totals(batch):
    return {"totals": batch}


def topology(spout: Spout) -> Topology:
    return Topology(
        "orders",
        spout=spout,
        process=totals,
        states=[
            State(
                "totals",
                key={"customer": "bigint", "day": "text"},
                values={"orders": Count(), "revenue": Sum("price", "bigint")},
            )
        ],
        max_spout_pending=2,
    )


def expected(batches: Sequence[Sequence[Values]]) -> list[tuple[Any, ...]]:
    """Return the table of these rows, as pandas computes it."""
    import pandas as pd

    frame = pd.concat([table_of(each).to_pandas() for each in batches])
    found = frame.groupby(["customer", "day"]).agg(
        orders=("price", "size"), revenue=("price", "sum")
    )
    ordered = found.reset_index().sort_values(["customer", "day"])
    return [tuple(row) for row in ordered.values.tolist()]


@dataclass(frozen=True)
class Lived:
    """Six batches, five of which have committed in three runs."""

    source: Writable
    connection: Any
    batches: Sequence[Sequence[Values]]
    runs: Sequence[Any]

    def check(self, batches: Sequence[Sequence[Values]]) -> None:
        """Compare the table with what pandas makes of these batches."""
        assert rows(self.connection, TOTALS) == expected(batches)

    def is_lost(self, run: Any, txid: int, what: str) -> None:
        """Replay a txid whose source is gone: it says so, and nothing moves; then refreeze it."""
        run.max_tries += 1
        with pytest.raises(SourceChanged, match=what):
            run.transact(txid)
        self.check(self.batches[:5])
        run.runner.refreeze(txid, "it is gone")
        run.replay(txid)

    def goes_on(self) -> None:
        """Emit and commit the last batch."""
        self.source.append(*self.batches[5])
        last = self.runs[-1].again("last")
        assert last.emit(None) == [6]
        last.transact(6)


def live_through_six_batches(source: Writable, pipeline: Any, connection: Any) -> Lived:
    """Let a driver die, the source be compacted, replays and a rollback come, and compare."""
    batches = [[(n % 4, f"day {n % 3}", n), (n % 4, f"day {n % 3}", n)] for n in range(6)]
    source.append(*batches[0])
    first = pipeline(topology(source.spout))
    assert first.emit(None) == [1]
    first.transact(1)
    for each in batches[1:3]:
        source.append(*each)
    second = first.again("second")
    assert second.emit(None) == [2, 3]
    second.run_step(second.begin(2))
    lose_driver(connection)
    for txid in (2, 3):
        second.transact(txid)
    attempts = "SELECT attempt_id, status FROM reliability.attempt WHERE txid = 2 ORDER BY 1"
    assert rows(connection, attempts) == [(0, "FENCED"), (1, "COMMITTED")]
    source.moves()
    for each in batches[3:5]:
        source.append(*each)
    source.moves()
    third = second.again("third")
    assert third.emit(None) == [4, 5]
    for txid in (4, 5):
        third.transact(txid)
    lived = Lived(source, connection, batches, (first, second, third))
    lived.check(batches[:5])
    # replays read what the source itself has replaced, and a rollback knows what it gave
    first.replay(1)
    roll_back(connection, "orders", 4, "too early")
    lived.check(batches[:4])
    release(connection, "orders")
    third.replay(5)
    lived.check(batches[:5])
    return lived


def outlive_clean_up(lake: Lake, pipeline: Any, connection: Any) -> None:
    """Then let clean-up remove a file that the table has replaced, and go on."""
    lived = live_through_six_batches(lake, pipeline, connection)
    for file in lake.files(2):
        file.unlink()
    lived.is_lost(lived.runs[1], 3, r"of version \d+ is gone")
    lived.goes_on()
    lived.check([*lived.batches[:2], *lived.batches[3:]])


def lose_driver(connection: Any) -> None:
    """Let the driver of the current attempt have died, some time ago."""
    with connection.transaction() as tx:
        tx.cursor.execute(
            "UPDATE reliability.attempt SET lease_until = now() - interval '1 s'"
            " WHERE lease_until IS NOT NULL"
        )
