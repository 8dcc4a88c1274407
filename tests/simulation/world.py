"""One history: a topology of its own in a real ledger, and what its processes do to it."""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from psycopg2.sql import SQL, Identifier

from reliability import Count, Topology
from reliability.core.attempt import Grant
from reliability.core.checkpoint import COORDINATOR, CheckpointAction
from reliability.core.coordinator import Action, Begin, Snapshot, Submit, Wait
from reliability.core.errors import (
    AttemptFenced,
    InvalidDefinition,
    LedgerCorruption,
    LedgerNotMigrated,
    ReliabilityError,
    StateDefinitionChanged,
    UnexpectedAnswer,
)
from reliability.core.leases import Leases
from reliability.core.request import TaskTry
from reliability.core.spout import SpoutKind
from reliability.deployment.address import DatabaseAddress, address_of
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.ledger.read_rows import blocked_of, standing_of
from reliability.spark.stage.stage_task import StageTask
from reliability.states import attempt_table
from reliability.states.kinds import stored_state
from reliability.states.tables import StateTables
from reliability.transaction import run as run_module
from reliability.transaction.commit.checkpoint_driver import Checkpoint
from reliability.transaction.commit.committer import read_plan
from reliability.transaction.correct.rollback import release
from reliability.transaction.emit.requests import Run, TaskContact
from reliability.transaction.maintain import compaction
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.process import seal as sealing
from reliability.transaction.process.attempt_messages import declare_partitions, read_batch_meta
from reliability.transaction.process.audit import audit_contributions
from reliability.transaction.process.begin import TransactionTask
from reliability.transaction.run import decide
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.read_standing import read_standing
from tests.simulation.config import OTHER, Config
from tests.simulation.connections import FAULTS, Crash, Fault, FaultKind, SimulatedConnection
from tests.simulation.contents import COLUMNS, PARTITIONS, POISON, Tuple, partition_of, staged
from tests.simulation.invariants import Invariants, Mirror
from tests.simulation.observed import Observed, Observer
from tests.simulation.source import MONTHS, Source
from tests.support.runner import TransactionRunner, Unattended
from tests.support.spark_rows import spark_batch

if TYPE_CHECKING:
    import pyarrow as pa

Copy = tuple[str, Mapping[str, str]]
"""A COPY, and the types of its columns."""

NEVER = (LedgerCorruption, LedgerNotMigrated, InvalidDefinition, StateDefinitionChanged)
WRITES = uuid.UUID("00000000-0000-0000-0000-000000000001")
# So that histories of few rows meet what large batches meet.
SMALL: tuple[tuple[Any, str, int], ...] = (
    (attempt_table, "MIN_ROWS", 2),
    (attempt_table, "MAX_TABLES_OF_VIEW", 2),
    (attempt_table, "MAX_TABLES", 3),
    (compaction, "KEPT_TABLES", 1),
)
MAX_SWEEPS = 2 + 15  # a clock may have been set back in each step
MAX_ROUNDS = 4  # poison is in the first two attempts of a txid, in more than one in a group
ENOUGH = 12  # acts of a task that works alone
_create = attempt_table._create
_numbers = count(1)


class World(Unattended):
    """The topology of one history, its runs, and the processes that work for it."""

    def __init__(self, dsn: str, config: Config) -> None:
        self._patches = ExitStack()
        for module, name, value in SMALL:
            self._patches.enter_context(patch.object(module, name, value))
        self.config = config
        self.name = f"h_{os.getpid()}_{next(_numbers)}"
        self.source = Source(
            [list(config.items), [2]],
            opaque=config.spout is SpoutKind.OPAQUE,
            is_disturbed=not config.sealed_late,
        )
        self._patches.enter_context(patch.object(sealing, "audit_contributions", self._audit))
        self.connection = SimulatedConnection(dsn)
        topology = config.topology(self.name, self.source)
        self.states = {state.name: state for state in topology.states}
        self.tables = {s.name: stored_state(self.name, s) for s in topology.states}
        self.copies: dict[str, Copy] = {}
        self._staging: dict[tuple[Grant, str], Copy | None] = {}
        self.tries: dict[tuple[str, int, str, int], int] = defaultdict(int)
        self._held: list[tuple[str, tuple[int, int]]] = []
        self.invariants, self.mirror = Invariants(config, self._held), Mirror(config, self._held)
        self.observers = {name: Observer(topology, name) for name in ("", *topology.databases)}
        self.restart()
        self._start()
        self.look()

    def with_another_value(self, name: str) -> Topology:
        """Return the topology of newer code, in which a state also counts its rows."""
        changed = [
            replace(state, values={**state.values, "also": Count()})
            if state.name == name
            else state
            for state in self.runner.topology.states
        ]
        return replace(self.runner.topology, states=changed, process=None)

    def _start(self) -> None:
        self.runner.emit(MONTHS[0], self.who("A", 0, "emit"), max_batches=1000)
        with self.connection.transaction() as tx:
            for name, table in self.tables.items():
                self.copies[name] = (table.copy().as_string(tx.cursor), table.copied_types())
        if self.config.poison:
            guarded = self.config.guarded
            with self.connection_of(guarded) as connection, connection.transaction() as tx:
                check = SQL("ALTER TABLE {} ADD CONSTRAINT poor CHECK ({} < %(poison)s)").format(
                    self.tables[guarded].target, Identifier(COLUMNS[guarded][-3])
                )
                tx.run(check, poison=POISON)

    def restart(self) -> None:
        """Every process begins anew: nothing is left but the ledger and the source."""
        self.connection.close()
        self.connection = SimulatedConnection(self.connection.dsn)
        topology = self.config.topology(self.name, self.source)
        self.runner = TransactionRunner(topology, self.connection, Leases(overdue=1))

    def close(self) -> None:
        """End the history."""
        self.connection.close()
        self._patches.close()

    # --- looking ---------------------------------------------------------------------------------

    def statuses(self) -> dict[str, str]:
        """Return the status of each attempt, as 7:2 -> COMMITTED."""
        return {f"{a['txid']}:{a['attempt_id']}": a["status"] for a in self.look().attempts}

    def look(self) -> Observed:
        """Check all that can be seen now."""
        with FAULTS.armed(None):
            seen = self.observers[COORDINATOR].look(self.connection)
            self.invariants.check(seen)
            if OTHER in self.observers:
                with self.connection_of(self.config.states[-1]) as connection:
                    other = self.observers[OTHER].look(connection)
                self.mirror.check(other, seen, self.invariants.contents)
                self.other = other
        self.seen = seen
        return seen

    def check_swept(self) -> None:
        """Sweep when no reader is left that began before the last change."""
        if not any(observer.opened for observer in self.observers.values()):
            return
        if self.invariants.has_refused:
            self.refuse(None)
        # one may commit a replay; what that replaces is left to the next
        for _ in range(MAX_SWEEPS):
            self.hours_pass(Silent.NOBODY)
            self._try(partial(self.sweep, clean=True), None, None)
            left = self._unswept()
            if left is None:
                return
        assert left is None, left

    def _unswept(self) -> AssertionError | None:
        """Return what is wrong after a sweep, if anything."""
        seen = self.look()
        try:
            self.invariants.check_swept(seen, seen)
            if OTHER in self.observers:
                self.mirror.check_swept(self.other, seen)
        except AssertionError as error:
            return error
        return None

    def check_standing(self) -> None:
        """What one reading of the topology says of each txid is what is read of that txid alone."""
        with FAULTS.armed(None), self.connection.transaction(reads_only=True) as tx:
            standing, plan = read_standing(tx, self.name), read_plan(self.name, tx)
            due = self._due()
            planned = {change.txid for change in plan[:1]}
            assert planned <= due, "C5: a commit plans what is due"
            assert bool(plan) == bool(due), "C5: a commit plans all that is due"
            for transaction in self.seen.transactions:
                txid = transaction["txid"]
                row = tx.one("standing", topology=self.name, txid=txid, request_id=None)
                blocked = tx.first("blocked_txid", topology=self.name, below=txid)
                alone = replace(standing_of(row), blocked=blocked_of(blocked)).snapshot(txid)
                among = standing.snapshot(txid)
                same = replace(among, position=alone.position)  # which has no later candidates
                assert same == alone, f"the standing of txid {txid}"
                assert among.may_commit == alone.may_commit == (txid in due), (
                    f"C5: the turn of txid {txid}"
                )

    def _due(self) -> set[int]:
        """Return the txids that may commit now: curr_txid in its turn, and any replay."""
        seen = self.seen
        dry_runs = {r["request_id"] for r in seen.requests if r["is_dry_run"]}
        processed = {
            a["txid"]
            for a in seen.attempts
            if a["status"] == "PROCESSED" and a["request_id"] not in dry_runs
        }
        last = seen.curr_txid - seen.topology["is_gathering"]
        return {txid for txid in processed if txid <= last}

    @contextmanager
    def connection_of(self, sink: str) -> Iterator[LedgerConnection]:
        """Open the database that a state lies in."""
        if self.states[sink].database == COORDINATOR:
            yield self.connection
            return
        connection = SimulatedConnection(self.dsn_of(sink))
        try:
            yield connection
        finally:
            connection.close()

    # --- acting ----------------------------------------------------------------------------------

    def perform(
        self, act: Callable[[], None], fault: Fault | None = None, within: Act | None = None
    ) -> None:
        """Do it as one process; whoever loses an answer asks again; then look."""
        self._try(act, fault, within)
        if FAULTS.fired is FaultKind.LOST:
            self.look()
            self.restart()
            FAULTS.is_first_try = False
            self._try(act, None, None)
            FAULTS.is_first_try = True
        elif FAULTS.fired is FaultKind.CRASH:
            self.restart()
        FAULTS.fired = None
        self.look()

    def _try(self, act: Act, fault: Fault | None, within: Act | None) -> None:
        other = None if within is None else partial(self._try, within, None, None)
        with FAULTS.armed(fault), self.meanwhile(other):
            try:
                act()
            except Crash:
                pass
            except ReliabilityError as error:
                self._check_error(error)

    def _check_error(self, error: ReliabilityError) -> None:
        refused, has_refused = isinstance(error, UnexpectedAnswer), self.invariants.has_refused
        if isinstance(error, NEVER) or (
            refused and not ("poor" in str(error) and (self.config.poison or has_refused))
        ):
            raise error

    @contextmanager
    def meanwhile(self, within: Act | None) -> Iterator[None]:
        """Let another process act once, where this one holds nothing."""
        if within is None:
            yield
            return

        def interrupt() -> None:
            own_runner, own_connection = self.runner, self.connection
            self.source.meanwhile = _nothing
            self.connection = SimulatedConnection(own_connection.dsn)
            self.runner = TransactionRunner(own_runner.topology, self.connection, own_runner.leases)
            try:
                self.look()  # at the attempt that is interrupted, too
                within()
                self.look()
            finally:
                self.connection.close()
                self.runner, self.connection = own_runner, own_connection

        self.source.meanwhile = interrupt
        try:
            yield
        finally:
            self.source.meanwhile = _nothing

    def _audit(self, *sealed: Any) -> None:
        """Audit as the product does; another may come in after it: all has been checked."""
        audit_contributions(*sealed)
        if self.config.sealed_late:
            self.source.meanwhile()

    # --- what Airflow's tasks do -----------------------------------------------------------------

    def who(self, run: str, txid: int, task: str, *, is_dry_run: bool = False) -> TaskContact:
        return TaskContact(
            run=Run(dag_id=self.name, run_id=run),
            task=task,
            this_try=self._try_of(run, txid, task),
            is_dry_run=is_dry_run,
        )

    def _try_of(self, run: str, txid: int, task: str) -> TaskTry:
        """Return what a task's next try shows of the clears before it, one way or another.

        A clear of the transaction raises max_tries, or, with retries that were lowered, does not.
        A clear of the whole run does not either; the second one is a run made again instead.
        """
        raised = self.invariants.raised
        whole, own = raised[run, 0], raised[run, txid] if txid else 0
        others = sum(n for (of, other), n in raised.items() if of == run and other)
        before = self.tries[run, txid, task, whole + own]
        self.tries[run, txid, task, whole + own] += 1
        return TaskTry(
            max_tries=1 + (own + 1) // 2,
            try_id=f"{run} {task} {whole} {own} {before}",
            clear_number=others + whole % 2,
            run_started=f"{whole // 2}",
            is_first=before == 0,
        )

    def run_of(self, wanted: str, txid: int) -> str:
        """Return the run, or the other one if it has nothing to do with the txid."""
        asking = {r["run_id"] for r in self.seen.requests if r["txid"] == txid}
        return wanted if wanted in asking or not asking else min(asking)

    def clear_if_closed(self, run: str, txid: int | None = None) -> None:
        """Tasks that ended come again only when a person clears them, or the whole run."""
        latest = {r["txid"]: r for r in self.seen.requests if r["run_id"] == run}
        ended = {t for t, r in latest.items() if r["tasks_ended"] or r["status"] == "CLOSED"}
        if txid in ended or (txid is None and ended):
            self.invariants.raised[run, txid or 0] += 1

    def emit(self, run: str) -> list[int]:
        """Run the run's first task."""
        self.clear_if_closed(run)
        own = MONTHS[0] if run == "A" or self.config.shared else MONTHS[1]
        return self.runner.emit(own, self.who(run, 0, "emit"), max_batches=1000)

    def clear(self, run: str, txid: int = 0) -> None:
        """A person clears a transaction of a run, or, without a txid, the whole run."""
        self.invariants.raised[run, txid] += 1

    def work(
        self, run: str, txid: int, task: str, acts: int = ENOUGH, *, is_dry_run: bool = False
    ) -> None:
        """Do what a task's loop does, at most so many acts: then its process is stopped."""
        self.clear_if_closed(run, txid)
        work = self.runner.topology.work(task, None if task == "commit" else task)
        who = self.who(run, txid, task, is_dry_run=is_dry_run)
        request_id = self.runner.contact(txid, who).request_id
        with suppress(_Stopped), patch.object(run_module, "decide", _limited(acts)):
            self.runner.run(txid, request_id, work, self)

    def submit(self, grant: Grant, step: str) -> None:
        """Be spark-submit."""
        self.write(grant, self.runner.topology.step(step).feeds)

    def wait(self, wait: Wait) -> None:
        """A task that waits is gone; another operation is its next look."""
        raise _Stopped

    def claim(self, run: str, txid: int, task: str) -> None:
        """Begin if need be and take up a step, whose write the history goes on with."""
        self.clear_if_closed(run, txid)
        work = self.runner.topology.work(task, None if task == "commit" else task)
        request_id = self.runner.contact(txid, self.who(run, txid, task)).request_id
        if isinstance(self.runner.next_action(txid, request_id, work), Begin):
            self.runner.begin(txid, request_id, work)
        match self.runner.next_action(txid, request_id, work):
            case Submit(step=name):
                self.runner.claim_step(txid, request_id, name, work)

    # --- what Spark does -------------------------------------------------------------------------

    def grant(self, txid: int) -> Grant:
        """Return the grant of the txid's newest attempt."""
        grant = self.look().grant(self.name, txid, 0)
        assert grant is not None
        return grant

    def write(self, grant: Grant, sinks: Sequence[str] = ()) -> None:
        """Do all that a driver and its Spark tasks do for these sinks, or for all."""
        for sink in sinks or self.config.states:
            for partition in range(PARTITIONS[sink]):
                self.stage(grant, sink, partition)
            self.declare(grant, sink, PARTITIONS[sink])

    def open(self, grant: Grant, sink: str) -> Copy:
        """Let the attempt's driver decide, once, where it stages a state; return its COPY.

        Before the table is there, another may come in. A driver that dies before it knows is not
        followed by another one of its attempt.
        """
        if (grant, sink) not in self._staging:
            self._staging[grant, sink] = None
            self._staging[grant, sink] = self._open(grant, sink)
        copy = self._staging[grant, sink]
        if copy is None:
            raise AttemptFenced(f"{grant}: the driver is dead")
        return copy

    def _open(self, grant: Grant, sink: str) -> Copy:
        emitted, limit = len(self._contents(grant)), self.config.min_rows_of(grant.attempt)
        if emitted < limit:
            return self.copies[sink]
        opened = self.observers[self.states[sink].database].opened

        def create_late(
            tx: DatabaseTransaction, own: StateTables, grant: Grant, **how: bool
        ) -> None:
            assert own.attempt_table is not None
            opened.add(own.attempt_table)
            self.source.meanwhile()
            _create(tx, own, grant, **how)

        with (
            patch.object(attempt_table, "MIN_ROWS", limit),
            patch.object(attempt_table, "_create", create_late),
            self.connection_of(sink) as connection,
        ):
            own = attempt_table.open_table(connection, self.tables[sink], grant, emitted)
            with connection.transaction() as tx:
                return own.copy().as_string(tx.cursor), own.copied_types()

    def stage(self, grant: Grant, sink: str, partition: int, write: int = 0) -> None:
        """Run one Spark task: COPY, fence, ack; in the middle of the COPY another may come in."""

        tables, attempt = self.tables[sink], grant.attempt
        own = partition_of(self._contents(grant), sink, partition)
        rows = staged(tables, attempt, own)

        def batches() -> Iterator[pa.RecordBatch]:
            yield spark_batch(tables, rows)
            if not self.config.sealed_late:
                with self._holding(sink, grant):
                    self.source.meanwhile()

        copy, types = self.open(grant, sink)
        task = StageTask(
            address=DatabaseAddress(dsn=self.dsn_of(sink)),
            copy=copy,
            types=types,
            grant=grant,
            sink=sink,
            write_id=str(uuid.uuid5(WRITES, f"{grant}:{sink}:{write}")),
        )
        try:
            task.stage(partition, batches())
        except AttemptFenced as error:
            if "table is gone" in str(error):
                statuses = {a["nonce"]: a["status"] for a in self.look().attempts}
                if statuses[grant.nonce] == "PROCESSING":
                    raise AssertionError("H10: the table of a live attempt") from error
            raise

    @contextmanager
    def _holding(self, sink: str, grant: Grant) -> Iterator[None]:
        held = sink, (grant.attempt.txid, grant.attempt.attempt_id)
        self._held.append(held)
        try:
            yield
        finally:
            self._held.remove(held)

    def dsn_of(self, sink: str) -> str:
        database = self.states[sink].database
        return address_of(database).dsn if database else self.connection.dsn

    def _contents(self, grant: Grant) -> Sequence[Tuple]:
        if self.invariants.knows(grant.attempt):
            return self.invariants.contents((grant.attempt.txid, grant.attempt.attempt_id))
        with FAULTS.armed(None):
            meta = read_batch_meta(self.connection, grant)
        return self.invariants.contents_of(grant.attempt, meta.emitted.count)

    def declare(self, grant: Grant, sink: str, partitions: int) -> None:
        """Say how many partitions the sink's write action had."""
        with self.connection_of(sink) as connection:
            declare_partitions(connection, grant, sink, partitions)

    # --- the end ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Nobody dies any more, and people clear what is red: everything commits."""
        self.restart()
        self.runner.resume()
        if self.invariants.has_refused:
            self.refuse(None)
        release(self.connection, self.name)
        self.source.ready = True
        for _ in range(MAX_ROUNDS):
            for txid in range(self.look().curr_txid, self.seen.txids + 1):
                run = self.run_of("A", txid)
                self.invariants.raised[run, txid] += 1
                for silent in Silent:
                    self.hours_pass(silent)
                self._try(partial(self.work, run, txid, "commit"), None, None)
        seen = self.look()
        assert seen.curr_txid == seen.topology["next_txid"], "txids are left that do not commit"

    def decide(self) -> None:
        """Drive what is due to its decision, and die."""
        planner = partial(read_plan, self.name)
        with TopologyDatabases.of(self.connection, self.name) as participants:
            driver = Checkpoint(participants, patience=10)
            if not driver.begin_epoch(planner):
                return
            while (message := driver.next_action(planner)) is not None:
                if message.action is CheckpointAction.COMMIT or driver.carry_out(message):
                    return

    def refuse(self, sink: str | None) -> None:
        """Let the table of one state refuse every row from now on, or none do."""
        for name, table in self.tables.items():
            if table.is_view:
                continue
            drop = "ALTER TABLE {} DROP CONSTRAINT IF EXISTS poor_too"
            add = "ALTER TABLE {} ADD CONSTRAINT poor_too CHECK (false) NOT VALID"
            with (
                FAULTS.armed(None),
                self.connection_of(name) as connection,
                connection.transaction() as tx,
            ):
                tx.run(SQL(drop).format(table.target))
                if name == sink:
                    tx.run(SQL(add).format(table.target))
                    self.invariants.has_refused = True

    # --- time ------------------------------------------------------------------------------------

    def hours_pass(self, silent: Silent) -> None:
        """Let two hours pass in which nobody shows any progress, or all runs are silent."""
        self.invariants.is_gathering &= silent is not Silent.NOBODY
        with self.connection.transaction() as tx:
            for noted in HOURS_PASS[silent]:
                put_back(tx, self.name, *noted)
        if silent is Silent.NOBODY and OTHER in self.observers:
            with (
                self.connection_of(self.config.states[-1]) as connection,
                connection.transaction() as tx,
            ):
                put_back(tx, self.name, *ENDED)

    def set_clock(self, hours: int) -> None:
        """Let the ledger's server set its clock: what was noted then lies ahead, or long ago."""
        with self.connection.transaction() as tx:
            for noted in tx.all(NOTED):
                put_back(tx, self.name, noted["table"], noted["column"], hours)

    def sweep(self, clean: bool = False) -> None:
        """Pass by."""
        sweep(self.connection, self.name, self.runner.leases, clean=clean)

    def execute(self, statement: str, **parameters: object) -> list[Any]:
        """Do to the ledger what nobody should; `{totals}` is the table of that state."""
        tables = {name: tables.target for name, tables in self.tables.items()}
        with self.connection.transaction() as tx:
            tx.run(SQL(statement).format(**tables), **parameters)
            return [] if tx.cursor.description is None else tx.cursor.fetchall()


Act = Callable[[], None]


class _Stopped(Exception):
    """The process of a task is stopped."""


def _limited(acts: int) -> Callable[[LedgerConnection, TransactionTask], tuple[Snapshot, Action]]:
    """Decide so many times what is to be done next; then the process is stopped."""
    left = iter(range(acts))

    def decide_next(connection: LedgerConnection, task: TransactionTask) -> tuple[Snapshot, Action]:
        if next(left, None) is None:
            raise _Stopped
        return decide(connection, task)

    return decide_next


class Silent(str, Enum):
    """Who shows no sign of life while hours pass."""

    NOBODY = "nobody"
    SPARK = "Spark"
    AIRFLOW = "Airflow"


def _nothing() -> None:
    pass


def put_back(
    tx: DatabaseTransaction, topology: str, table: str, column: str, hours: int = 2
) -> None:
    """Let a time that was noted lie so many hours before it."""
    statement = SQL(
        "UPDATE reliability.{0} SET {1} = {1} - %(hours)s * interval '1 hour'"
        " WHERE topology = %(topology)s"
    )
    tx.run(statement.format(Identifier(table), Identifier(column)), topology=topology, hours=hours)


#: The times that are noted for a topology by the server's clock.
NOTED = SQL("""
    SELECT c.relname AS "table", a.attname AS "column"
      FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
     WHERE c.relnamespace = 'reliability'::regnamespace AND c.relkind = 'r'
       AND a.atttypid = 'timestamptz'::regtype AND a.attname ~ '_(at|until)$'
       AND EXISTS (SELECT FROM pg_attribute t
                    WHERE t.attrelid = c.oid AND t.attname = 'topology')
""")
ENDED = ("attempt", "ended_at")
HOURS_PASS = {
    Silent.NOBODY: (
        ("topology", "last_granted_at"),
        ("commit_log", "committed_at"),
        ("attempt", "processed_at"),
        ENDED,
    ),
    Silent.SPARK: (("attempt", "lease_until"),),
    Silent.AIRFLOW: (("request", "renewed_at"),),
}
