"""Messages about an attempt, from its driver and its watchers; each presents the grant (A1).

Each compares first and then changes: a late message about an old attempt changes nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from reliability.core.attempt import Grant
from reliability.core.coordinator import SEALED, AttemptStatus
from reliability.core.definitions import Topology
from reliability.core.erasure import ErasedKeys
from reliability.core.errors import (
    AttemptFenced,
    ReliabilityError,
    SchemaMismatch,
    SourceChanged,
    SourceMoved,
    error_from_ledger,
)
from reliability.core.fold import Fold
from reliability.core.remedy import Remedy
from reliability.core.set_aside import Correction, Kind, QuarantinedRow, SetAside
from reliability.core.spout import BatchMeta, Spout
from reliability.core.statement_key import StatementKey
from reliability.core.texts import as_json
from reliability.deployment.address import address_of
from reliability.ledger.connection import SPARK_PATIENCE_SECONDS, Ledger, LedgerConnection, Row
from reliability.ledger.locks import check_known
from reliability.ledger.read_rows import batch_of

if TYPE_CHECKING:
    from reliability.deployment.fingerprint import CodeFingerprint

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverProcess(StatementKey):
    """The driver process of a step, and its code; the JVM and its Python can die separately.

    :param ui_url: where Spark shows the application while it runs; None if it has no UI
    """

    host: str
    jvm_pid: int
    python_pid: int
    application_id: str
    ui_url: str | None = None
    code: CodeFingerprint


def driver_session(grant: Grant) -> LedgerConnection:
    """Return a driver's session, which waits for a server that is being restarted."""
    name = f"reliability {grant} driver"
    return LedgerConnection(address_of(), name, opens_within=SPARK_PATIENCE_SECONDS)


def start_step(
    connection: LedgerConnection, grant: Grant, step: str, driver: DriverProcess
) -> None:
    """Record the driver's first message; raise AttemptFenced if the step is another driver's.

    From then on, the driver outlives a restart of the server while its session is idle.
    """
    # Its own transaction, so that steps with the same new code do not wait for each other.
    code = driver.code
    connection.run("record_code", digest=code.digest, contents=as_json(code.contents))
    with connection.transaction() as tx:
        row = raise_if_fenced(
            tx.first("start_step", step=step, code_digest=code.digest, **driver, **grant), grant
        )
        raise_if_fenced(tx.first("renew_lease", **grant), grant)
    connection.reopen_at(row["timeline"])


def renew_lease(connection: LedgerConnection, grant: Grant) -> None:
    """Show progress; raise AttemptFenced if the attempt has ended."""
    raise_if_fenced(connection.first("renew_lease", **grant), grant)


def declare_partitions(
    connection: LedgerConnection,
    grant: Grant,
    sink: str,
    partitions: int,
    set_aside: Sequence[SetAside] = (),
) -> Fold:
    """Record that a sink's single write action has finished, and its number of partitions (A5).

    :param set_aside: what was set aside on the way to it, one for each kind and reason (V8)
    :returns: what it lacks of what was emitted
    """
    row = connection.first(
        "declare_partitions",
        sink=sink,
        partitions=partitions,
        kinds=[aside.kind.value for aside in set_aside],
        reasons=[aside.reason for aside in set_aside],
        xors=[aside.fold.xor for aside in set_aside],
        counts=[aside.fold.count for aside in set_aside],
        **grant,
    )
    sink_row = raise_if_fenced(row, grant)
    return Fold(sink_row["ack_val"], sink_row["unacked"])


def read_set_aside(connection: LedgerConnection, grant: Grant, sink: str) -> list[SetAside]:
    """Return what the attempt has set aside on the way to a state."""
    rows = connection.all("set_aside_for", sink=sink, **grant)
    return [
        SetAside(Kind(row["kind"]), row["reason"], Fold(row["xor"], row["count"])) for row in rows
    ]


def read_corrections(connection: LedgerConnection, grant: Grant) -> list[Correction]:
    """Return the rows of the attempt's batch that a person has corrected (V9)."""
    return [Correction(**row) for row in connection.all("corrections_of_attempt", **grant)]


def read_erased(connection: Ledger, topology: Topology) -> ErasedKeys:
    """Return whose rows an attempt leaves out; an erasure fences those that run (H12)."""
    return ErasedKeys.of(connection.all("erased_keys", topology=topology.name))


def store_quarantined(
    connection: LedgerConnection, grant: Grant, step: str, rows: Sequence[QuarantinedRow]
) -> None:
    """Store the rows that a step has put into the quarantine; they count with the attempt."""
    stored = connection.all(
        "quarantine_rows",
        step=step,
        reasons=[row.reason for row in rows],
        items=[row.item for row in rows],
        rows=[row.row for row in rows],
        contents=[row.contents for row in rows],
        cut=[row.is_cut for row in rows],
        xors=[row.fold.xor for row in rows],
        counts=[row.fold.count for row in rows],
        sources=[row.source for row in rows],
        **grant,
    )
    if len(stored) != len(rows):
        raise error_of(connection, grant)


def read_batch_meta(connection: LedgerConnection, grant: Grant) -> BatchMeta:
    """Return what the attempt reads: the txid's frozen batch, or the attempt's own (opaque)."""
    return batch_of(raise_if_fenced(connection.first("batch_meta_of_attempt", **grant), grant))


def verify_source(
    connection: LedgerConnection, grant: Grant, spout: Spout, meta: BatchMeta
) -> None:
    """Compare what the attempt reads with the source (E6).

    :raises SourceChanged: the batch is frozen: no attempt can read it until a person acts
    :raises SourceMoved: the batch is the attempt's own: the next attempt cuts another
    """
    try:
        spout.verify(meta)
    except SourceChanged as error:
        row = connection.one("is_frozen", topology=grant.topology, txid=grant.attempt.txid)
        if row["is_frozen"]:
            raise
        raise SourceMoved(error.what) from error


def with_changed_columns(
    connection: LedgerConnection, topology: Topology, grant: Grant, error: SchemaMismatch
) -> SchemaMismatch:
    """Return the error with the files whose columns differ from those of another txid, if any do.

    The other one is the nearest that has committed; if there is none, the nearest that is emitted.
    """
    row = connection.first("nearest_batch", topology=topology.name, txid=grant.txid)
    if row is None:
        return error
    meta = read_batch_meta(connection, grant)
    try:
        items = topology.spout.refresh(meta)  # the ledger does not keep the columns
    except ReliabilityError:
        return error
    differences = topology.spout.changed_columns(items, batch_of(row))
    if not differences:
        return error
    return SchemaMismatch(
        f"{error.what}. Compared with the file of txid {row['txid']}: {'; '.join(differences)}",
        remedy=Remedy(
            "if the file is wrong, deliver it again and run {refreeze}, then {resume_runs}. "
            f"Otherwise {error.remedy.text}",
            error.remedy.names,
        ),
        topology=topology.name,
        txid=grant.txid,
    )


def new_write_id() -> str:
    return str(uuid.uuid4())


def end_attempt(
    connection: LedgerConnection, grant: Grant, error: ReliabilityError, *, fence: bool = False
) -> bool:
    """Fail or fence an unsealed attempt; return whether this call ended it (A8)."""
    status = AttemptStatus.FENCED if fence else AttemptStatus.FAILED
    connection.opens_within = 0  # whoever waits for the step knows as much
    ended = connection.run("end_attempt", status=status.value, **error.to_ledger(), **grant)
    return ended > 0


def fail_and_raise(connection: LedgerConnection, grant: Grant, error: ReliabilityError) -> NoReturn:
    """Fail the attempt and raise `error`; if it had ended before, raise the reason for that.

    A sealed attempt goes on: only the answer to its seal was lost. An unavailable ledger must not
    hide the first error.
    """
    try:
        ended = end_attempt(connection, grant, error)
    except ReliabilityError as unreachable:
        logger.warning("ignored an error while failing %s: %s", grant, unreachable)
        raise error from unreachable
    if not ended and AttemptStatus(read_attempt(connection, grant)["status"]) not in SEALED:
        raise error_of(connection, grant) from error
    raise error


def error_of(connection: LedgerConnection, grant: Grant) -> ReliabilityError:
    """Return why an attempt ended, as the error that a task raises."""
    row = read_attempt(connection, grant)
    what = f"attempt {grant.attempt}: {row['reason']}"
    error = error_from_ledger(row["reason_code"], what, row["remedy"])
    return error.about(topology=grant.topology, txid=grant.attempt.txid)


def is_wanted(connection: LedgerConnection, grant: Grant) -> bool:
    """Say whether the attempt's work can still count: it is PROCESSING, or nobody can say."""
    try:
        status = AttemptStatus(read_attempt(connection, grant)["status"])
    except ReliabilityError as error:
        logger.warning("cannot watch attempt %s now: %s", grant, error)
        return True
    return status is AttemptStatus.PROCESSING


def read_attempt(connection: LedgerConnection, grant: Grant) -> Row:
    """Return the attempt's status and why it ended."""
    row = connection.first("attempt", **grant)
    if row is None:
        check_known(connection, grant.topology)
        raise AttemptFenced(f"attempt {grant} is gone: its topology was dropped and made again")
    return row


def raise_if_fenced(row: Row | None, grant: Grant) -> Row:
    """Return the row; raise AttemptFenced if the statement found none."""
    if row is None:
        raise AttemptFenced(f"attempt {grant} was ended")
    return row
