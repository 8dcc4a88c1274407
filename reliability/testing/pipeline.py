"""Topologies in a ledger of a test's own: run without Airflow, with real Spark and real Postgres.

A run does what a DAG's run does, one txid after the other. Where one of its processes dies, it is
tried again as Airflow tries a task again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from psycopg2.sql import SQL, Identifier

from reliability.core.column import is_hidden
from reliability.core.definitions import Topology
from reliability.core.errors import ReliabilityError
from reliability.core.names import variable_of
from reliability.core.periods import UTC
from reliability.core.progress import TxidProgress
from reliability.core.request import TaskTry
from reliability.core.spout import Interval
from reliability.core.state import State
from reliability.deployment.address import ADDRESSES, CREDENTIALS, EXECUTOR_DSN, address_of
from reliability.ledger.connection import LedgerConnection
from reliability.spark.run_here import check_interval, in_session
from reliability.states.kinds import stored_state
from reliability.testing.faults import Death, Fault, Faults
from reliability.testing.server import TestServer
from reliability.transaction.emit.emission import emit
from reliability.transaction.emit.requests import Run, TaskContact, contact, settle
from reliability.transaction.own_run import PollingExecutor, RunFailed, RunStep
from reliability.transaction.process.begin import TransactionTask
from reliability.transaction.replay import ReplayRequest, ReplayRun
from reliability.transaction.run import run_transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Done = TypeVar("Done")
TASK = "test"
MOST_TRIES = 3
MOST_BATCHES = 1_000
WAIT_SECONDS = 60.0
#: Floats are compared by so many digits: the last ones depend on the order of addition.
DIGITS = 9

Tables = Mapping[str, Counter[str]]
"""State -> its rows as people read them, without hidden columns, each as a text."""


@dataclass
class _TestRun:
    """A run of a topology's DAG.

    :param topology: its name; a clear runs the code of today
    :param clears: how often it was cleared
    """

    topology: str
    interval: Interval | None
    run: Run
    clears: int = 0


@dataclass
class Pipeline:
    """A ledger of a test's own, and the topologies that have run in it.

    :ivar faults: what happens to the runs of this ledger
    """

    server: TestServer
    spark: SparkSession
    faults: Faults = field(default_factory=Faults)
    _topologies: dict[str, Topology] = field(default_factory=dict)
    _runs: list[_TestRun] = field(default_factory=list)
    _databases: set[str] = field(default_factory=set)
    _lent: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def anew(self, fault: Fault | None = None) -> Iterator[Pipeline]:
        """Lend another one, with an empty ledger, to whose runs this happens."""
        with patch.dict(os.environ), ExitStack() as lent:
            _forget_credentials()
            own = Pipeline(self.server, self.spark, Faults(fault), _lent=lent)
            own._lend("")
            yield own

    # --- what a test does ------------------------------------------------------------------------

    def run(self, topology: Topology, *, interval: str | Interval | None = None) -> list[int]:
        """Emit, process and commit as a new run of the topology's DAG; return the run's txids.

        It does not wait for the topology's own least times between attempts and between commits.

        :param interval: such as `2026-01` or `2026-01-02`; None for a spout without intervals
        :raises InvalidDefinition: the interval does not fit the spout
        :raises ReliabilityError: what the run fails with
        """
        if isinstance(interval, str):
            interval = Interval.parse(interval, topology.spout.time_zone or UTC)
        check_interval(topology, interval)
        at_once = replace(topology, emit_interval_seconds=0, checkpoint_interval_seconds=0)
        self._topologies[topology.name] = at_once
        self._make_schemas(topology)
        run = _TestRun(
            topology.name, interval, Run(dag_id=TASK, run_id=f"run {len(self._runs) + 1}")
        )
        self._runs.append(run)
        return self._do(run)

    def clear(self) -> None:
        """Do all runs again, as after a clear: what has committed is replayed.

        :raises ReliabilityError: what a run fails with
        """
        for run in self._runs:
            run.clears += 1
            self._do(run)

    def _do(self, run: _TestRun) -> list[int]:
        txids = self._tried(partial(self._process, run))
        self._tried(lambda _: self._settle(run, txids))
        return txids

    def _tried(self, task: Callable[[int], Done]) -> Done:
        """Do what a task does; after a fault it is tried again, and those before it are not."""
        for number in range(MOST_TRIES):
            had_fired = self.faults.has_fired
            try:
                with self.faults.armed():
                    return task(number)
            except (Death, ReliabilityError):
                if self.faults.has_fired == had_fired:
                    raise
        raise AssertionError("a fault fires once")

    def _lend(self, database: str) -> None:
        """Let the name of a database mean an empty one of this test's own, from now on."""
        if database not in self._databases:
            os.environ[variable_of(database)] = self._lent.enter_context(self.server.ledger())
            self._databases.add(database)

    def _make_schemas(self, topology: Topology) -> None:
        for database, schema in {(state.database, state.target[0]) for state in topology.states}:
            self._lend(database)
            with session(database) as connection:
                connection.run(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(schema)))

    def _process(self, own: _TestRun, number: int) -> list[int]:
        topology, run = self._topologies[own.topology], own.run
        this_try = TaskTry(
            max_tries=MOST_TRIES + own.clears,
            try_id=f"{own.clears} {number}",
            clear_number=own.clears,
            is_first=number == 0,
        )
        who = TaskContact(run=run, task=TASK, this_try=this_try)
        run_step = in_session(self.spark, topology)
        with session() as connection:
            return process_run(connection, topology, own.interval, who, run_step)

    def _settle(self, own: _TestRun, txids: Sequence[int]) -> None:
        with session() as connection:
            settle(connection, own.topology, own.run, txids)

    def rows(self, state: str) -> list[dict[str, Any]]:
        """Return the rows of a state's table, without hidden columns, in no order.

        :param state: its name; `topology.state` if several topologies have a state of this name
        :raises LookupError: no topology that has run has such a state
        """
        states = self._states()
        if state not in states:
            raise LookupError(f"there is no state {state!r}; there are {sorted(states)}")
        topology, found = states[state]
        with session(found.database) as connection:
            rows = connection.all(stored_state(topology, found).all_rows())
        return [{n: _plain(v) for n, v in row.items() if not is_hidden(n)} for row in rows]

    def _states(self) -> dict[str, tuple[str, State]]:
        """Return the states by the names that `rows` takes, each with its topology's name."""
        pairs = [(t.name, state) for t in self._topologies.values() for state in t.states]
        having = Counter(state.name for _, state in pairs)
        return {
            state.name if having[state.name] == 1 else f"{topology}.{state.name}": (topology, state)
            for topology, state in pairs
        }

    def tables(self) -> Tables:
        """Return the rows of all states, to be compared."""
        return {state: _comparable(self.rows(state)) for state in self._states()}

    def expected_tables(self, *, has_committed: bool = True) -> Tables:
        """Return the tables of a run with which others are compared.

        :param has_committed: whether its end is a commit, and not a refusal or a rollback
        :raises AssertionError: no txid has (committed) rows, so that they would show nothing
        """
        with session() as connection:
            facts = connection.one("rows_of_sources")
        assert facts["any_committed" if has_committed else "any"], (
            "nothing was processed, so nothing is shown: no txid has "
            f"{'committed ' if has_committed else ''}rows of its source. Check the interval and "
            "the files"
        )
        return self.tables()

    def replay(self) -> None:
        """Replay all that has committed.

        :raises ReliabilityError: what a replay fails with
        """
        for topology in self._topologies.values():
            with session() as connection:
                last = connection.one("topology_position", topology=topology.name)["next_txid"]
                request = ReplayRequest(topology=topology, txids=range(1, last), by=TASK)
                try:
                    ReplayRun(connection, request, in_session(self.spark, topology)).run()
                except RunFailed as failed:
                    raise failed.first from None

    def assert_replay_changes_nothing(self) -> None:
        """Replay all that has committed, and compare the tables.

        :raises AssertionError: a row differs: the same data became something else; or nothing has
            committed
        """
        before = self.expected_tables()
        self.replay()
        assert_equal(before, self.tables(), "after a replay")


def session(database: str = "") -> closing[LedgerConnection]:
    """Open a session of the test's with a database; "" is the ledger's own."""
    return closing(LedgerConnection(address_of(database), f"reliability {TASK}"))


def _forget_credentials() -> None:
    """Forget what would lead sessions with a database of the test's to one of a deployment."""
    for name in [*os.environ]:
        if name in (CREDENTIALS, ADDRESSES) or name.startswith(EXECUTOR_DSN):
            del os.environ[name]


def process_run(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    who: TaskContact,
    run_step: RunStep,
) -> list[int]:
    """Emit, process and commit what a run of the topology's DAG does; return its txids.

    :raises ReliabilityError: what a task of the run fails with
    """
    txids = emit(connection, topology, interval, who, max_batches=MOST_BATCHES)
    for txid in txids:
        task = TransactionTask(
            topology=topology,
            txid=txid,
            request_id=contact(connection, topology.name, txid, who).request_id,
            work=topology.work(who.task),
        )
        executor = PollingExecutor(
            connection, task, run_step, WAIT_SECONDS, TxidProgress(), "the test"
        )
        run_transaction(connection, task, executor)
    return txids


_HINT = (
    "Does the process function return the same rows for the same batch, or does it use a random "
    "number, a clock, or an order that it does not define?"
)


def assert_equal(expected: Tables, found: Tables, when: str) -> None:
    """Raise AssertionError if a table has other rows, with one of them."""
    for state, rows in expected.items():
        missing, surplus = rows - found[state], found[state] - rows
        told = [f"lacks {row}" for row in [*missing][:1]] + [f"has {row}" for row in [*surplus][:1]]
        assert not told, (
            f"{when}, state {state} {' and '.join(told)}"
            f" ({missing.total()} rows are missing, {surplus.total()} are surplus). {_HINT}"
        )


def _comparable(rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
    def text_of(row: Mapping[str, Any]) -> str:
        return ", ".join(
            f"{name} is NULL" if value is None else f"{name}={_rounded(value)}"
            for name, value in row.items()
        )

    return Counter(map(text_of, rows))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _rounded(value: Any) -> Any:
    if isinstance(value, float) and isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value
