"""Sweep: find what died silently. Begin, commit and waiting triggers sweep their topology (K1).

The housekeeping DAG is only a convenience: a new DAG starts paused, and a scheduler may be down.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import (
    LedgerBusy,
    ReliabilityError,
    RightMissing,
    TopologyUnknown,
    Transient,
    UnexpectedAnswer,
)
from reliability.core.leases import DEFAULT_LEASES, Leases
from reliability.core.statement_key import AttemptKey
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import check_coordinator, unless_dropped
from reliability.states import attempt_table
from reliability.transaction.commit.apply import Committed
from reliability.transaction.commit.committer import PASSING_PATIENCE_SECONDS, drain
from reliability.transaction.maintain.compaction import Compacted, compact, merge_tables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables
from reliability.transaction.topology.server import (
    end_holders_of,
    end_sessions_of,
    fence_after_restore,
)

logger = logging.getLogger(__name__)
#: No reader's transaction is expected to last for longer (H11).
LONGEST_SNAPSHOT_SECONDS = 3600.0
#: A reader waits behind a DROP that waits for another reader.
DROP_PATIENCE_SECONDS = 0.1


@dataclass(slots=True, kw_only=True)
class Swept:
    expired: list[TransactionAttempt] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    cleaned: list[TransactionAttempt] = field(default_factory=list)
    compacted: list[Compacted] = field(default_factory=list)
    merged: int = 0

    def __bool__(self) -> bool:
        stored = any(self.compacted) or self.merged
        return bool(self.expired or self.given_up or self.committed or self.cleaned or stored)


def topologies(connection: LedgerConnection) -> list[str]:
    return [row["topology"] for row in connection.all("topologies")]


def sweep(
    connection: LedgerConnection,
    topology: str,
    leases: Leases = DEFAULT_LEASES,
    *,
    clean: bool = False,
) -> Swept:
    """Fence attempts whose lease expired, give up silent requests, commit overdue txids.

    A checkpoint that a dead driver left unfinished is completed first, overdue or not.

    :param clean: also delete staged rows that can never count, compact contributions beyond the
        horizon of a state, and merge attempts' own tables
    :raises NotTheCoordinator: this database only takes part in the topology
    """
    swept = Swept()
    with connection.transaction() as tx:
        check_coordinator(tx, topology)
        fence_after_restore(tx)
    with suppress(TopologyUnknown), unless_dropped(connection, topology):  # nothing is left to do
        swept.expired = _expire(connection, topology)
        swept.given_up = _give_up_silent(connection, topology, leases)
        with suppress(LedgerBusy):  # another process is committing
            swept.committed = drain(connection, topology, overdue=leases.overdue)
        if clean:
            swept.cleaned = _clean(connection, topology)
            swept.compacted = _compact(connection, topology)
            swept.merged = merge_tables(connection, topology)
    if swept:
        logger.info("swept %s: %s", topology, swept)
    return swept


def _expire(connection: LedgerConnection, topology: str) -> list[TransactionAttempt]:
    expired = []
    for row in connection.all("expired_attempts", topology=topology):
        attempt = TransactionAttempt(row["txid"], row["attempt_id"])
        with _skip_on_transient_error(f"attempt {attempt}"):
            try:
                with connection.transaction(patience=PASSING_PATIENCE_SECONDS) as tx:
                    if tx.first("expire_attempt", topology=topology, **row):
                        expired.append(attempt)
            except LedgerBusy:
                # sessions that hold its row, or that of an attempt that fails with it (A3, A4)
                end_holders_of(connection, topology, attempt)
                raise
    return expired


def _give_up_silent(connection: LedgerConnection, topology: str, leases: Leases) -> list[int]:
    """Give up requests whose run was deleted or died, and end their live attempt (R3)."""
    silence = {"request_lease": leases.request}
    given_up = []
    for row in connection.all("silent_requests", topology=topology, **silence):
        request_id = row["request_id"]
        with (
            _skip_on_transient_error(f"request {request_id}"),
            connection.transaction(patience=PASSING_PATIENCE_SECONDS) as tx,
        ):
            if tx.first("give_up_request", request_id=request_id, **silence):
                reason = "its run was silent for too long"
                tx.run("end_attempt_of_request", request_id=request_id, reason=reason)
                given_up.append(request_id)
    return given_up


@contextmanager
def _skip_on_transient_error(what: str) -> Iterator[None]:
    """Skip a row that another session holds, so that the sweep goes on with the others."""
    try:
        yield
    except LedgerBusy as error:
        logger.info("%s is left for the next sweep: %s", what, error)


def _put_off(what: str, error: ReliabilityError) -> None:
    """Log what is left to the next sweep: a warning if Postgres may reject it each time."""
    level = logging.WARNING if isinstance(error, UnexpectedAnswer) else logging.INFO
    logger.log(level, "%s: %s", what, error)


def _compact(connection: LedgerConnection, topology: str) -> list[Compacted]:
    try:
        return compact(connection, topology, patience=PASSING_PATIENCE_SECONDS)
    except (Transient, RightMissing) as error:  # another process is at work, for example
        _put_off(f"{topology} is compacted later", error)
        return []


def _clean(connection: LedgerConnection, topology: str) -> list[TransactionAttempt]:
    # Never under the topology's lock: a stalled COPY may hold these rows' table (A4).
    dead = connection.all("attempts_to_clean", topology=topology)
    cleaned = []
    with TopologyDatabases.of(connection, topology) as databases:
        for attempt in (TransactionAttempt(**row) for row in dead):
            try:
                # the coordinator's rows last: until then the attempt stays on the list
                if all(_clean_attempt(one, topology, attempt) for one in databases.ledger_last):
                    cleaned.append(attempt)
            except (Transient, RightMissing) as error:
                _put_off(f"{attempt} is cleaned later", error)
    return cleaned


def _clean_attempt(
    connection: LedgerConnection, topology: str, attempt: TransactionAttempt
) -> bool:
    """Delete what an attempt has staged in a database; False if a reader may still see it.

    So he may where it has committed: one of the databases has lost its last commits (C6). Its
    tables go first: rows that are merged meanwhile are then deleted with the others.
    """
    key = AttemptKey(topology, attempt.txid, attempt.attempt_id)
    end_sessions_of(connection, topology, attempt)
    with connection.transaction() as tx:
        # A participant may not know yet that the attempt has ended; later staging there rolls back.
        tx.run("fence_live_attempts", reason="it was ended in the ledger of its topology", **key)
        if tx.first("committed_here", **key) is not None:
            logger.warning("%s counts in database %s alone", attempt, connection.database)
            return False
        own = tx.all("tables_of_attempt", **key, snapshot_seconds=LONGEST_SNAPSHOT_SECONDS)
    if not all(row["is_unread"] for row in own):
        return False
    is_dropped = not own or _drop(connection, [row["table_id"] for row in own])
    with connection.transaction() as tx:
        for table in declared_tables(tx, topology):
            tx.run(table.clean(), **key)
        tx.run("delete_quarantined", **key)
        if is_dropped:
            tx.run("record_cleaned", **key)
    return is_dropped


def _drop(connection: LedgerConnection, numbers: list[int]) -> bool:
    """Drop tables, unless somebody reads one of them."""
    try:
        # alone, because readers wait until it has committed
        with connection.transaction(patience=DROP_PATIENCE_SECONDS) as tx:
            for number in numbers:
                attempt_table.drop(tx, number)
    except LedgerBusy as error:
        logger.info("tables %s are dropped later: %s", numbers, error)
        return False
    return True
