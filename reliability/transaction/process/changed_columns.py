"""How the columns of a batch differ from those of another: why a type may not fit."""

from __future__ import annotations

from reliability.core.attempt import Grant
from reliability.core.definitions import Topology
from reliability.core.errors import ReliabilityError, SchemaMismatch
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.read_rows import batch_of
from reliability.transaction.process.attempt_messages import read_batch_meta


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
        remedy=f"if the file is wrong, deliver it again and type `reliability replay "
        f"{topology.name} {grant.txid} --refreeze`, then `reliability resume-runs "
        f"{topology.name}`. Otherwise {error.what_to_do}",
    )
