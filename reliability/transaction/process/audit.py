"""Audit what an attempt has staged, at its seal, and the tables inside its commit (C12).

A commit works without the pipeline's code. So each database keeps, with the attempt, the audits of
its own states. Txids that share a physical commit share what the audits of its tables find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reliability.core.attempt import Grant
from reliability.core.audits import Audit, AuditOutcome, Of, Severity, refuse_violations
from reliability.core.definitions import Topology
from reliability.core.state import State, digest_of
from reliability.core.texts import as_json
from reliability.ledger.connection import DatabaseTransaction, Row
from reliability.ledger.read_rows import made_of
from reliability.states.audit_sql import audits_contribution, log_violations, query_of, run_audit
from reliability.states.kinds import stored_state
from reliability.transaction.process.attempt_messages import error_of, renew_lease
from reliability.transaction.topology.databases import TopologyDatabases


def audit_contributions(
    databases: TopologyDatabases,
    topology: Topology,
    grant: Grant,
    attempt_tables: Mapping[str, int | None],
) -> None:
    """Run the audits of contributions, store all audits, and raise if the attempt must not commit.

    No lock is held, and a topology without audits costs no round trip.

    :param attempt_tables: state -> the number of the attempt's own table, if it has had one
    :raises AuditFailed: an audit has found a violation that is an error; all are recorded
    :raises AttemptFenced: the attempt was ended in the meantime
    """
    outcomes: list[AuditOutcome] = []
    for connection in databases.all:
        audited = [
            _audit(databases, topology, grant, state, attempt_tables[state.name], audit)
            for state in topology.states
            if state.database == connection.database
            for audit in state.audits
        ]
        if audited:
            audits = as_json([_stored(outcome, query) for outcome, query in audited])
            if len(connection.all("store_audits", audits=audits, **grant)) != len(audited):
                raise error_of(databases.coordinator, grant)
        outcomes += [outcome for outcome, _ in audited]
    refuse_violations(outcomes)
    log_violations(str(grant), outcomes)


def _stored(outcome: AuditOutcome, query: str) -> dict[str, Any]:
    """Return an audit as plain data for the ledger."""
    of, severity = outcome.of.value, outcome.severity.value
    version = {"name": outcome.name, "of": of, "severity": severity, "query": query}
    return {**outcome, **version, "digest": digest_of(version)}


def _audit(
    databases: TopologyDatabases,
    topology: Topology,
    grant: Grant,
    state: State,
    attempt_table: int | None,
    audit: Audit,
) -> tuple[AuditOutcome, str]:
    """Run one audit if it is of the contribution; the lease has all the time that this takes.

    :returns: what it has found, nothing if it is of the table, which is audited at the commit; and
        its query
    """
    tables = stored_state(topology.name, state).with_attempt_table(attempt_table)
    outcome = AuditOutcome(
        state=state.name, name=audit.name, of=audit.of, severity=audit.severity, violations=None
    )
    with databases.connection_of(state.database).in_one_round_trip() as tx:
        query = tx.text_of(query_of(audit, tables))
        if audit.of is Of.TABLE:
            return outcome, query
        text = tx.text_of(audits_contribution(query, tables, grant.attempt))
        found = run_audit(tx, text, topology.lease_seconds)
    renew_lease(databases.coordinator, grant)
    return replace(outcome, **found), query


# --- tables, inside a commit ---------------------------------------------------------------------


def audit_tables(
    tx: DatabaseTransaction, topology: str, audits: Sequence[Row]
) -> list[AuditOutcome]:
    """Run each audit once, and record for all its attempts what it finds.

    :param audits: as `facts_to_apply` reads them
    """
    outcomes = []
    for audit in audits:
        found = run_audit(tx, audit["query"])
        severity = Severity(audit["severity"])
        outcome = made_of(AuditOutcome, audit, of=Of.TABLE, severity=severity, **found)
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
        **{**outcome, "examples": list(outcome.examples)},
    )
