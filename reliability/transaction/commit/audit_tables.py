"""Audit tables as a commit makes them, inside its transaction, before any reader sees them (C12).

The audits are those that the attempts were sealed with. Txids that share a physical commit share
what its audits find.
"""

from __future__ import annotations

from collections.abc import Sequence

from reliability.core.audits import AuditOutcome, Of, Severity
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.states.audit_sql import run_audit


def audit_tables(
    tx: DatabaseTransaction, topology: str, audits: Sequence[Row]
) -> list[AuditOutcome]:
    """Run each audit once, and record for all its attempts what it finds.

    :param audits: as `facts_to_apply` reads them
    """
    outcomes = []
    for audit in audits:
        outcome = run_audit(
            tx,
            audit["query"],
            state=audit["state"],
            name=audit["name"],
            of=Of.TABLE,
            severity=Severity(audit["severity"]),
        )
        record_outcome(tx, topology, audit["txids"], audit["attempt_ids"], outcome)
        outcomes.append(outcome)
    if audits:
        tx.queue("limit_statements", seconds=0)
    return outcomes


def record_outcome(
    tx: DatabaseTransaction,
    topology: str,
    txids: Sequence[int],
    attempt_ids: Sequence[int],
    outcome: AuditOutcome,
) -> None:
    """Record what an audit has found; what is queued raises if an attempt has no such audit."""
    tx.queue(
        "record_audit",
        topology=topology,
        txids=list(txids),
        attempt_ids=list(attempt_ids),
        state=outcome.state,
        name=outcome.name,
        violations=outcome.violations,
        examples=None if outcome.violations is None else list(outcome.examples),
        problem=outcome.problem,
        error_code=outcome.error_code,
    )
