"""Seal: steps end and attempts are sealed by what lies in the ledger, not by an exit code.

Sealed rows never change; a commit checks the status only (A6).
"""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.acker import Sink, check_accounting, check_acked
from reliability.core.attempt import Grant
from reliability.core.checkpoint import COORDINATOR
from reliability.core.coordinator import SEALED, AttemptStatus
from reliability.core.definitions import Topology
from reliability.core.errors import AttemptIncomplete, ReliabilityError
from reliability.core.fold import Fold
from reliability.ledger.door import Door
from reliability.ledger.records import sink_of
from reliability.states.digest import digest
from reliability.states.tables import StateTables
from reliability.transaction.attempt import (
    error_of,
    fail_and_raise,
    place_of,
    read_attempt,
    read_batch_meta,
    renew_lease,
    unless_fenced,
    verify_source,
)
from reliability.transaction.participant import Participants


def end_step(door: Door, topology: Topology, grant: Grant, step: str) -> None:
    """Mark a step done whose spark-submit has ended, if its sinks are fully acked; else fail.

    :raises AttemptIncomplete: acks are missing; the attempt has failed
    :raises AttemptFenced: the attempt was ended meanwhile
    """
    with _databases(door, topology) as databases:
        sinks = [sink for sink in _sinks(databases, grant) if sink.step == step]
    try:
        check_acked(sinks)
    except AttemptIncomplete as error:
        fail_and_raise(door, grant, error)  # the driver may have said why before
    with door.transaction() as tx:
        row = tx.first("end_step", step=step, **place_of(grant))
    if row is None:
        raise error_of(door, grant)


def seal(door: Door, topology: Topology, grant: Grant, task: str) -> None:
    """Seal an attempt whose steps are all done: PROCESSED, or raise why not (A6).

    1. SEALING: from now on acks find no PROCESSING row
    2. with no lock held: are all declared acks there, does the fold of the staged rows equal the
       emitted side, is the source still what the batch was cut from
    3. PROCESSED: the staged rows never change again

    With states in several databases each seals its own, and the coordinator's comes first in
    step 1 and last in step 3: PROCESSED there means that it is so everywhere (C6).
    """
    with door.transaction() as tx:
        row = tx.first("begin_seal", task=task, **place_of(grant))
    if row is None:
        return _sealed_by_another_or_raise(door, grant)
    try:
        with _databases(door, topology) as databases:
            for participant in databases:
                _begin_seal_there(participant.door, grant, task)
            staged = _audit(databases, topology, grant)
            for participant in databases:
                _end_seal(participant.door, grant, staged[participant.name])
            _end_seal(door, grant, staged[COORDINATOR])
    except ReliabilityError as error:
        fail_and_raise(door, grant, error)


def _databases(door: Door, topology: Topology) -> Participants:
    return Participants(door, topology.name, topology.databases)


def _begin_seal_there(door: Door, grant: Grant, task: str) -> None:
    with door.transaction() as tx:
        unless_fenced(tx.first("begin_seal", task=task, **place_of(grant)), grant)


@dataclass(frozen=True, slots=True)
class _Staged:
    rows: int
    digest: str


def _audit(
    databases: Participants, topology: Topology, grant: Grant
) -> dict[str, dict[str, _Staged]]:
    """Return what is staged: database -> state -> how many rows, and their digest."""
    meta = read_batch_meta(databases.coordinator, grant)
    sinks = _sinks(databases, grant)
    check_acked(sinks)
    folds: dict[str, Fold] = {}
    found: dict[str, dict[str, _Staged]] = {name: {} for name in (COORDINATOR, *databases.others)}
    for state in topology.states:
        tables = StateTables(topology.name, state)
        door = databases.door_of(state.database)
        folds[state.name], rows = _fold(door, tables, grant)
        renew_lease(databases.coordinator, grant)
        found[state.database][state.name] = _Staged(rows, _digest(door, tables, grant))
        renew_lease(databases.coordinator, grant)
    check_accounting(meta.emitted, sinks, folds, meta.verdict)
    verify_source(databases.coordinator, grant, topology.spout, meta)
    return found


def _sinks(databases: Participants, grant: Grant) -> list[Sink]:
    doors = [databases.coordinator, *(participant.door for participant in databases)]
    sinks: list[Sink] = []
    for door in doors:
        with door.transaction() as tx:
            sinks += [sink_of(row) for row in tx.all("sinks", **place_of(grant))]
    return sinks


def _fold(door: Door, tables: StateTables, grant: Grant) -> tuple[Fold, int]:
    with door.transaction() as tx:
        row = tx.one(tables.fold(), **place_of(grant))
    return Fold(row["xor"], row["count"]), row["rows"]


def _digest(door: Door, tables: StateTables, grant: Grant) -> str:
    with door.transaction() as tx:
        found: str = tx.one(digest(tables), **place_of(grant))["digest"]
    return found


def _end_seal(door: Door, grant: Grant, staged: dict[str, _Staged]) -> None:
    with door.transaction() as tx:
        for sink, found in staged.items():
            tx.one(
                "record_staged_rows",
                sink=sink,
                staged_rows=found.rows,
                contribution_digest=found.digest,
                **place_of(grant),
            )
        row = tx.first("end_seal", **place_of(grant))
    unless_fenced(row, grant)


def _sealed_by_another_or_raise(door: Door, grant: Grant) -> None:
    # Two steps that end at the same moment both come to seal.
    status = AttemptStatus(read_attempt(door, grant)["status"])
    if status is not AttemptStatus.SEALING and status not in SEALED:
        raise error_of(door, grant)
