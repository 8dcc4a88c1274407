"""Seal: end steps and seal attempts by the contents of the ledger, not by an exit code.

Sealed rows never change; a commit checks only the status (A6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reliability.core.acker import Sink, check_accounting, check_acked
from reliability.core.attempt import Grant
from reliability.core.coordinator import SEALED, AttemptStatus
from reliability.core.definitions import Topology
from reliability.core.errors import AttemptIncomplete, ReliabilityError, StateDefinitionChanged
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.read_rows import batch_of, sink_of
from reliability.states import attempt_table
from reliability.states.digest import format_digest
from reliability.states.kinds import stored_state
from reliability.states.tables import StateTables
from reliability.transaction.process.attempt_messages import (
    error_of,
    fail_and_raise,
    raise_if_fenced,
    read_attempt,
    renew_lease,
    verify_source,
)
from reliability.transaction.process.audit import audit_contributions
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.server import end_sessions_of


def end_step(connection: LedgerConnection, topology: Topology, grant: Grant, step: str) -> None:
    """Mark a step as done after its spark-submit has ended if its sinks are acked; else fail.

    :raises AttemptIncomplete: acks are missing; the attempt has failed
    :raises AttemptFenced: the attempt was ended in the meantime
    """
    with TopologyDatabases.of_code(connection, topology) as databases:
        rows = databases.rows_of_all("sinks", **grant)
    sinks = [sink for sink in map(sink_of, rows) if sink.step == step]
    try:
        check_acked(sinks)
    except AttemptIncomplete as error:
        fail_and_raise(connection, grant, error)  # the driver may have recorded the reason before
    row = connection.first("end_step", step=step, **grant)
    if row is None:
        raise error_of(connection, grant)


@dataclass(frozen=True, slots=True)
class Sealed:
    """How many rows of its source a sealed attempt accounts for."""

    emitted: int
    has_set_aside: bool


def seal(
    connection: LedgerConnection, topology: Topology, grant: Grant, task: str
) -> Sealed | None:
    """Seal an attempt whose steps are all done: make it PROCESSED, or raise the reason not to (A6).

    1. SEALING: later acks find no PROCESSING row
    2. without a lock, check that all declared acks exist, that the fold of the staged rows equals
       the emitted side, and that the source is still what the batch was cut from; then run the
       audits of what is staged (C12)
    3. PROCESSED: the staged rows never change again

    With states in several databases, each seals its own. The coordinator is first in step 1 and
    last in step 3: PROCESSED there means PROCESSED everywhere (C6).

    :returns: None if another task has sealed it
    """
    row = connection.first("begin_seal", task=task, **grant)
    if row is None:
        # Two steps that end at the same moment both try to seal.
        status = AttemptStatus(read_attempt(connection, grant)["status"])
        if status is not AttemptStatus.SEALING and status not in SEALED:
            raise error_of(connection, grant)
        return None
    meta = batch_of(row)
    try:
        with TopologyDatabases.of_code(connection, topology) as databases:
            sinks = [sink_of(sink) for sink in row["sinks"]]
            for participant in databases:
                begun = participant.first("begin_seal", task=task, **grant)
                there = raise_if_fenced(begun, grant)
                sinks += map(sink_of, there["sinks"])
            _check_code(topology, grant, sinks)
            staged = _check_staged(databases, topology, grant, meta, sinks)
            tables = {state: account.table_id for state, account in staged.items()}
            audit_contributions(databases, topology, grant, tables)
            for database in databases.ledger_last:
                own = [
                    state.name for state in topology.states if state.database == database.database
                ]
                database.run(
                    "end_seal",
                    sinks=own,
                    rows=[staged[state].rows for state in own],
                    digests=[staged[state].digest for state in own],
                    **grant,
                )
    except ReliabilityError as error:
        fail_and_raise(connection, grant, error)
    return Sealed(meta.emitted.count, any(sink.set_aside != Fold() for sink in sinks))


def _check_code(topology: Topology, grant: Grant, sinks: Sequence[Sink]) -> None:
    """Raise unless the code here has the states for which the attempt has begun (C4)."""
    begun, here = sorted(sink.name for sink in sinks), sorted(s.name for s in topology.states)
    if begun != here:
        raise StateDefinitionChanged(
            f"attempt {grant.attempt} was begun by code with the states {begun}, and the code "
            f"that seals it has {here}",
            topology=topology.name,
        )


@dataclass(frozen=True, slots=True)
class _Staged:
    """What an attempt has staged for a state.

    :param table_id: the number of the table of its own in which it lies, None if in no such table
    """

    fold: Fold
    rows: int
    digest: str
    table_id: int | None


def _check_staged(
    databases: TopologyDatabases,
    topology: Topology,
    grant: Grant,
    meta: BatchMeta,
    sinks: Sequence[Sink],
) -> dict[str, _Staged]:
    """Return what is staged for each state; raise unless it is what was acked and emitted."""
    check_acked(sinks)
    # first, because it may take long: each state renews the lease, which an audit then has whole
    verify_source(databases.coordinator, grant, topology.spout, meta)
    sink_of_state = {sink.name: sink for sink in sinks}
    staged: dict[str, _Staged] = {}
    for state in topology.states:
        tables = stored_state(topology.name, state)
        connection = databases.connection_of(state.database)
        staged[state.name] = _staged(connection, tables, grant, sink_of_state[state.name])
        renew_lease(databases.coordinator, grant)
    folds = {state: account.fold for state, account in staged.items()}
    check_accounting(meta.emitted, sinks, folds, meta.verdict)
    return staged


def _staged(connection: LedgerConnection, tables: StateTables, grant: Grant, sink: Sink) -> _Staged:
    if sink.table_id is None:
        row = connection.one(tables.staged_accounts(), **grant)
    else:
        tables = tables.with_attempt_table(sink.table_id)
        # all have acked: a task that still copies does so in vain, but locks and extends the table
        end_sessions_of(connection, grant.topology, grant.attempt)
        is_merged = attempt_table.close(connection, sink.table_id)
        row = connection.one(tables.staged_accounts(), **grant)
        tables = attempt_table.seal(connection, tables, row["rows"], is_merged=is_merged)
    digest = format_digest(row["rows"], sink.digests)
    return _Staged(Fold(row["xor"], row["count"]), row["rows"], digest, tables.attempt_table)
