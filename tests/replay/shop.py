"""A topology with every aggregator, driven as Airflow's tasks drive it; only Spark is left out.

Rows are reduced in Python and staged by the product's own Spark task, acks and all. The rows of a
batch keep their tuple ids when the code that makes something else of them is corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

from psycopg2.sql import SQL, Identifier

from reliability import (
    Append,
    Avg,
    Count,
    First,
    Latest,
    Max,
    Min,
    OpaqueState,
    State,
    Sum,
    Topology,
    Upsert,
)
from reliability.core.attempt import Grant
from reliability.core.coordinator import Wait
from reliability.core.difference import Difference
from reliability.core.errors import NothingToEmit, SourceChanged
from reliability.core.fold import Fold
from reliability.core.graph import THE_STEP
from reliability.core.request import TaskTry
from reliability.core.spout import AllocatedItems, BatchMeta, Interval, SourceItem, SpoutKind
from reliability.deployment.address import address_of
from reliability.ledger.connection import LedgerConnection
from reliability.spouts.memory import MemorySlice
from reliability.spouts.tuple_ids import fold_rows
from reliability.states.kinds import stored_state
from reliability.transaction.commit.apply import Committed
from reliability.transaction.commit.dry_run import DryRunResult
from reliability.transaction.emit.requests import Run, TaskContact
from tests.support.fix_postgres import rows
from tests.support.pool import PooledConnection
from tests.support.python_driver import Rows, stage_batch
from tests.support.runner import TransactionRunner, Unattended
from tests.support.without_spark import WithoutSpark

BY = {"day": "date"}
MONEY = "numeric(14,2)"
ROW_LENGTH = 6  # rows of a batch


def states(elsewhere: str = "") -> list[State]:
    """One state for each way in which a replay works; `elsewhere` is another database."""
    total, shown = Sum("price", MONEY), Append("price", MONEY)
    lowest, highest = Min("price", MONEY), Max("price", MONEY)
    opened, closed = First("price", by=BY, type=MONEY), Latest("price", by=BY, type=MONEY)
    newest = {"word": Upsert("word", BY, "text"), "price": Upsert("price", BY, MONEY)}
    rows_of = {"word": Append("word", "text"), "price": shown}
    return [
        State(
            "exact",
            key={"k": "bigint", "word": "text"},
            values={"n": Count(), "prices": Count("price"), "total": total, "mean": Avg("price")},
        ),
        State(
            "recomputed",
            key={"word": "text"},
            values={
                "n": Count(),
                "lowest": lowest,
                "highest": highest,
                "opened": opened,
                "closed": closed,
            },
            database=elsewhere,
        ),
        State("newest", key={"k": "bigint"}, values=newest),
        State("log", values=rows_of),
        State("viewed", key={"k": "bigint"}, values=rows_of, as_view=True),
        State("all_of_it", values={"n": Count(), "total": total}),
    ]


@dataclass
class Batches(WithoutSpark):
    """A spout whose batches grow: batch n is txid n + 1, and its rows never change.

    :param sizes: how many rows each batch has
    :param makes: txid -> the rows that are read of its batch
    :param gone: which batches are not there now, as files that were deleted; if none is there,
        nothing can be planned
    """

    sizes: list[int]
    makes: dict[int, list[dict[str, Any]]]
    opaque: bool = False
    gone: set[int] = field(default_factory=set)

    def plan(self, interval: Interval | None, allocated: AllocatedItems) -> list[SourceItem]:
        items = [
            MemorySlice(partition=n, offset=0, rows=rows)
            for n, rows in enumerate(self.sizes)
            if n not in self.gone
        ]
        if self.gone and not items:
            raise NothingToEmit("nothing is there")
        known = allocated.which([item.identity for item in items])
        return [item for item in items if item.identity not in known]

    def cut(self, items: Sequence[SourceItem]) -> list[tuple[SourceItem, ...]]:
        return [(item,) for item in items]

    def count(self, items: Sequence[SourceItem]) -> Fold:
        return Fold.of(fold_rows(ordinal, item.rows) for ordinal, item in enumerate(items))

    def verify(self, meta: BatchMeta) -> None:
        """Raise SourceChanged if a batch has another number of rows now."""
        for item in _slices(meta):
            if item.partition in self.gone:
                raise SourceChanged(f"batch {item.partition} is gone")
            if self.sizes[item.partition] != item.rows:
                raise SourceChanged(f"batch {item.partition} has {self.sizes[item.partition]} rows")

    def rows_of(self, item: MemorySlice) -> list[dict[str, Any]]:
        return self.makes[item.partition + 1]

    def refresh(self, meta: BatchMeta) -> list[SourceItem]:
        return [
            replace(item, rows=self.sizes[item.partition])
            for item in _slices(meta)
            if item.partition not in self.gone
        ]


def _slices(meta: BatchMeta) -> list[MemorySlice]:
    return [item for item in meta.items if isinstance(item, MemorySlice)]


def made(seed: int, rows: int = ROW_LENGTH) -> list[dict[str, Any]]:
    """Make the rows of a batch: keys that recur, NULLs, ties of `day`."""
    return [
        {
            "k": None if (seed + n) % 7 == 0 else (seed * 3 + n) % 4,
            "word": "abc"[(seed + n * n) % 3],
            "price": None if (seed * n) % 5 == 4 else Decimal((seed * 37 + n * 11) % 100) / 4,
            "day": None if (seed + n) % 11 == 0 else date(2026, 1, 1 + (seed + n) % 3),
        }
        for n in range(rows)
    ]


@dataclass
class Shop:
    """The topology, and what its code makes of each batch now.

    :param makes: txid -> rows without tuple ids; a correction changes it
    :param tasks: of each state but the first, which has two
    """

    connection: LedgerConnection
    elsewhere: str = ""
    kinds: Callable[[str], Sequence[State]] = states
    makes: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    name: str = "shop"
    pending: int = 3
    spout_kind: SpoutKind = SpoutKind.TRANSACTIONAL
    raised: dict[str, int] = field(default_factory=dict)
    tasks: int = 1

    def __post_init__(self) -> None:
        self.source = Batches([], self.makes, self.spout_kind is SpoutKind.OPAQUE)
        self.topology = Topology(
            self.name,
            spout=self.source,
            states=list(self.kinds(self.elsewhere)),
            process=self._to_each_state,
            max_spout_pending=self.pending,
            module=__name__,
        )
        self.runner = TransactionRunner(self.topology, self.connection)

    def another_process(self) -> Shop:
        """The same topology on a session of its own; what the code makes is shared."""
        other = replace(self, connection=LedgerConnection(self.connection.dsn))
        other.source.sizes = self.source.sizes
        return other

    def _to_each_state(self, batch: Rows) -> dict[str, Rows]:
        return dict.fromkeys((state.name for state in self.topology.states), batch)

    # --- what people and Airflow do --------------------------------------------------------------

    def deliver(self, *batches: list[dict[str, Any]], run: str = "run") -> list[int]:
        """New batches come, and a run emits them."""
        first = len(self.source.sizes) + 1
        for txid, batch in enumerate(batches, start=first):
            self.source.sizes.append(len(batch))
            self.makes[txid] = batch
        who = TaskContact(
            run=Run(dag_id=self.name, run_id=f"{run} {first}"),
            task="emit",
            this_try=TaskTry(max_tries=0),
        )
        return self.runner.emit(None, who, max_batches=1000)

    def commit_first(self, txids: int) -> None:
        """One run emits the first batches, and they commit."""
        self.commit(*(made(n) for n in range(1, txids + 1)))

    def commit(self, *batches: list[dict[str, Any]]) -> None:
        """New batches come, and commit one after the other."""
        for txid in self.deliver(*batches):
            self.transact(txid)

    def with_first(self, txids: int) -> Shop:
        """Go on in a ledger in which they have committed."""
        self.source.sizes += [ROW_LENGTH] * txids
        self.makes |= {n: made(n) for n in range(1, txids + 1)}
        return self

    def run_of(self, txid: int) -> Run:
        [(run,)] = self.ask(
            "SELECT run_id FROM reliability.transaction WHERE topology = %(topology)s"
            " AND txid = %(txid)s",
            txid=txid,
        )
        return Run(dag_id=self.name, run_id=run)

    def txids_of(self, run: Run) -> list[int]:
        """Return the txids that a run emitted."""
        found = self.ask(
            "SELECT txid FROM reliability.transaction WHERE topology = %(topology)s"
            " AND run_id = %(run_id)s ORDER BY txid",
            run_id=run.run_id,
        )
        return [txid for (txid,) in found]

    def who(self, txid: int, run: Run | None = None, *, is_dry_run: bool = False) -> TaskContact:
        run = run or self.run_of(txid)
        raised = self.raised.get(f"{run.run_id}:{txid}", 0)
        return TaskContact(
            run=run, task="commit", this_try=TaskTry(max_tries=raised), is_dry_run=is_dry_run
        )

    def transact(
        self,
        txid: int,
        run: Run | None = None,
        *,
        is_dry_run: bool = False,
        as_refrozen: bool = False,
    ) -> list[Difference]:
        """Go the way of the txid until it is committed, or dry_run; say what that changed."""
        who = self.who(txid, run, is_dry_run=is_dry_run)
        executor = _Executor(self, txid)
        dry_run = self._run(txid, who, executor, step=None, as_refrozen=as_refrozen)
        return list(dry_run.differences) if dry_run else executor.differences

    def begin(self, txid: int) -> Grant:
        """Begin an attempt, whose driver has not been heard of yet."""
        request_id = self.runner.contact(txid, self.who(txid)).request_id
        grant = self.runner.begin(txid, request_id, self.topology.work("commit"))
        assert grant is not None
        return grant

    def process(self, txid: int, task: str = "commit") -> None:
        """Do the processing phase alone: what its step's task does."""
        self._run(txid, replace(self.who(txid), task=task), _Executor(self, txid), step=THE_STEP)

    def _run(
        self,
        txid: int,
        who: TaskContact,
        executor: _Executor,
        step: str | None,
        *,
        as_refrozen: bool = False,
    ) -> DryRunResult | None:
        request_id = self.runner.contact(txid, who).request_id
        work = self.topology.work("commit", step)
        return self.runner.run(txid, request_id, work, executor, as_refrozen=as_refrozen)

    def clear(self, *txids: int) -> None:
        """A person clears the transactions: their tasks' max_tries rise."""
        for txid in txids:
            key = f"{self.run_of(txid).run_id}:{txid}"
            self.raised[key] = self.raised.get(key, 0) + 1

    def replay(self, txid: int) -> list[Difference]:
        self.clear(txid)
        return self.transact(txid)

    def do_again(self, *txids: int) -> None:
        """A person clears txids that were released, and they commit."""
        self.clear(*txids)
        for txid in txids:
            self.transact(txid)

    def dry_run(self, txid: int, *, as_refrozen: bool = False) -> list[Difference]:
        self.clear(txid)
        return self.transact(txid, is_dry_run=True, as_refrozen=as_refrozen)

    def correct(self, txid: int, rows: list[dict[str, Any]]) -> list[Difference]:
        """Deploy code that makes other rows of the batch, and replay it."""
        assert len(rows) == self.source.sizes[txid - 1]
        self.makes[txid] = rows
        return self.replay(txid)

    # --- what Spark does -------------------------------------------------------------------------

    def write(self, grant: Grant) -> None:
        """Do what the driver and its tasks do for every state of an attempt.

        The first state has two tasks: each task has a session of its own, which takes time.
        """
        first, *others = (state.name for state in self.topology.states)
        tasks = {first: 2, **dict.fromkeys(others, self.tasks)}
        stage_batch(self.connection, self.topology, grant, tasks=tasks)

    def dsn_of(self, database: str) -> str:
        return address_of(database).dsn if database else self.connection.dsn

    @staticmethod
    def connection_to(database: str) -> closing[LedgerConnection]:
        return closing(LedgerConnection(address_of(database)))

    # --- what there is ---------------------------------------------------------------------------

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every table as it is, all columns but what only says which attempt it was."""
        return {state.name: self.contents(state) for state in self.topology.states}

    def contents(self, state: State) -> list[tuple[Any, ...]]:
        columns = [*state.key, *state.values]
        if not state.is_append:
            columns += [c.name for c in state.columns() if c.name not in columns] + ["_txid"]
        statement = SQL("SELECT {} FROM {}").format(
            SQL(", ").join(map(Identifier, columns)), stored_state(self.name, state).target
        )
        with PooledConnection(self.dsn_of(state.database)) as own, own.transaction() as tx:
            found = [tuple(row.values()) for row in tx.all(statement)]
        return sorted(found, key=repr)

    def ask(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        with self.connection.transaction() as tx:
            tx.queue(SQL("SET LOCAL search_path = public"))
            found = tx.all(SQL(statement), topology=self.name, **parameters)
        return [tuple(row.values()) for row in found]

    def statuses(self, txid: int) -> list[str]:
        """Return the status of each attempt at a txid."""
        asked = "SELECT status FROM reliability.attempt WHERE txid = %(txid)s ORDER BY attempt_id"
        return [status for (status,) in self.ask(asked, txid=txid)]


def committed(
    connection: LedgerConnection, *batches: list[dict[str, Any]], **parameters: Any
) -> Shop:
    """Return a shop in which these batches have committed, by default the first three."""
    shop = Shop(connection, **parameters)
    shop.commit(*(batches or (made(1), made(2), made(3))))
    return shop


@dataclass
class _Executor(Unattended):
    """What is done without Airflow and Spark; nobody is waited for for long."""

    shop: Shop
    txid: int
    differences: list[Difference] = field(default_factory=list)
    looks: int = 0

    def submit(self, grant: Grant, step: str) -> None:
        self.shop.write(grant)

    def wait(self, wait: Wait) -> None:
        self.looks += 1
        assert self.looks < 40, f"txid {self.txid} waits {wait}"

    def committed(self, committed: Sequence[Committed]) -> None:
        for one in committed:
            if one.attempt.txid == self.txid:
                self.differences = list(one.differences)


def opaque_states(elsewhere: str = "") -> list[State]:
    """A state that keeps one txid's history."""
    return [
        OpaqueState(
            "exact",
            key={"k": "bigint"},
            values={"n": Count(), "total": Sum("price", "numeric(14,2)")},
        )
    ]


def shown(shop: Shop) -> dict[str, list[tuple[Any, ...]]]:
    """Return every table as a reader sees it."""
    return {
        state.name: sorted(
            rows(
                shop.connection,
                f"SELECT {', '.join((*state.key, *state.values))} FROM {state.target[1]}",
            ),
            key=repr,
        )
        for state in shop.topology.states
    }
