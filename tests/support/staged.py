"""Topologies whose attempts are staged by INSERT: all that commit and checkpoint need of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg2.sql import SQL

from reliability import Count, OpaqueState, State
from reliability.core.attempt import Grant, TransactionAttempt
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.states.kinds import stored_state
from reliability.states.tables import StateTables
from reliability.transaction.commit.committer import drain
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.participants import declare_participants, mirror_grant
from tests.support.doomed import doomed
from tests.support.fix_postgres import insert, rows

Keys = Sequence[int]
TOPOLOGY = SQL("""
    INSERT INTO reliability.topology (topology, max_spout_pending, groups_commits)
    VALUES (%(topology)s, 1000, %(groups_commits)s)
""")
GRANT = SQL("""
    INSERT INTO reliability.transaction (topology, txid, batch_meta, emitted_xor, emitted_count,
                                         verdict, dag_id, run_id)
    VALUES (%(topology)s, %(txid)s, '[]', 0, 1, 'EXACT', 'd', 'r') ON CONFLICT DO NOTHING;
    UPDATE reliability.topology SET next_txid = greatest(next_txid, %(txid)s + 1)
     WHERE topology = %(topology)s;
    INSERT INTO reliability.attempt (topology, txid, attempt_id, lease, lease_until)
    VALUES (%(topology)s, %(txid)s, %(attempt_id)s, '1 min', now() + '1 min')
    RETURNING nonce::text AS nonce
""")
SINK = SQL("""
    INSERT INTO reliability.sink (topology, txid, attempt_id, step, sink, ack_val, unacked)
    VALUES (%(topology)s, %(txid)s, %(attempt_id)s, 'process', %(sink)s, 0, 0)
""")
SEAL = SQL("""
    UPDATE reliability.sink SET staged_rows = %(staged)s
     WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s;
    UPDATE reliability.attempt SET status = 'PROCESSED', lease_until = NULL,
           processed_at = clock_timestamp()
     WHERE topology = %(topology)s AND txid = %(txid)s AND attempt_id = %(attempt_id)s
       AND nonce = %(nonce)s
""")
COMMIT_NUMBERS = """
    SELECT p.commit_number, c.commit_number - jsonb_array_length(c.plan),
           (SELECT count(*) FROM reliability.commit_log l WHERE l.topology = p.topology)::int,
           (SELECT min(s.commit_number) FROM reliability.state s WHERE s.topology = p.topology)::int
      FROM reliability.topology p JOIN reliability.checkpoint c USING (topology)
     WHERE p.topology = %(topology)s
"""


@dataclass
class Staged:
    """A topology with one state per database: how often each key was seen."""

    connection: LedgerConnection
    topology: str
    others: Sequence[str] = ()
    kind: type[State] = State
    participants: TopologyDatabases = field(init=False)

    def __post_init__(self) -> None:
        self.participants = TopologyDatabases(self.connection, self.topology, self.others)
        with self.connection.transaction() as tx:
            groups_commits = not self.others or self.kind is not OpaqueState
            tx.run(TOPOLOGY, topology=self.topology, groups_commits=groups_commits)
        declare_participants(self.participants, lambda tx, database: None)
        for database, tables in self.tables().items():
            with self.participants.connection_of(database).transaction() as tx:
                tx.run(tables.create())
                tx.one(
                    "declare_state",
                    topology=self.topology,
                    state=tables.state.name,
                    target_table=tables.target_name,
                    contribution_table=tables.contribution_table,
                    definition=json.dumps(tables.state.definition()),
                    definition_digest=tables.state.digest(),
                )

    def tables(self) -> dict[str, StateTables]:
        """Return the one state of each database, the coordinator's own first."""
        return {
            database: stored_state(self.topology, self._state(database))
            for database in ("", *self.others)
        }

    def _state(self, database: str) -> State:
        name = database or "here"
        table = f"{self.topology}_{name}"
        return self.kind(name, key={"k": "bigint"}, values={"seen": Count()}, table=table)

    # --- attempts --------------------------------------------------------------------------------

    def grant(self, txid: int, attempt_id: int = 0) -> Grant:
        """Grant an attempt in the ledger and to the participants, as begin_attempt does."""
        with self.connection.transaction() as tx:
            row = tx.one(GRANT, topology=self.topology, txid=txid, attempt_id=attempt_id)
            attempt = TransactionAttempt(txid, attempt_id)
            grant = Grant(topology=self.topology, attempt=attempt, nonce=row["nonce"])
            self._open_sink(tx, grant, "")
        mirror_grant(self.participants, grant, lambda tx, name: self._open_sink(tx, grant, name))
        return grant

    def _open_sink(self, tx: DatabaseTransaction, grant: Grant, database: str) -> None:
        tx.run(SINK, sink=self._state(database).name, **grant)

    def stage(self, grant: Grant, keys: Mapping[str, Keys]) -> None:
        """Stage one row per key in each database, and seal the attempt everywhere."""
        self.stage_rows(grant, {name: [{"k": key} for key in of] for name, of in keys.items()})

    def stage_rows(self, grant: Grant, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Stage these rows in each database, and seal the attempt everywhere."""
        own = {"_txid": grant.attempt.txid, "_attempt_id": grant.attempt.attempt_id}
        for database, tables in self.tables().items():
            staged = rows.get(database, ())
            ones = dict.fromkeys(tables.contribution_columns(), 1)
            with self.participants.connection_of(database).transaction() as tx:
                for row in staged:
                    insert(tx, tables.contribution, {**ones, **own, **row})
                self._seal(tx, grant, len(staged))

    def _seal(self, tx: DatabaseTransaction, grant: Grant, staged: int) -> None:
        tx.run(SEAL, staged=staged, **grant)

    def process(self, txid: int, keys: Mapping[str, Keys], attempt_id: int = 0) -> Grant:
        """Have a txid PROCESSED in every database, with these keys."""
        grant = self.grant(txid, attempt_id)
        self.stage(grant, keys)
        return grant

    # --- what there is ---------------------------------------------------------------------------

    def seen(self, database: str = "") -> dict[int, int]:
        """Return how often each key was seen, in one database."""
        table = self._state(database).table
        return dict(self.ask(f"SELECT k, seen FROM {table} ORDER BY k", database))

    def commit_numbers(self) -> dict[str, tuple[int, ...]]:
        """Return c of the topology, of its checkpoint, of its log and its states, per database."""
        return {database: self.ask(COMMIT_NUMBERS, database)[0] for database in ("", *self.others)}

    def phase(self) -> str:
        [(phase,)] = self.ask(
            "SELECT phase FROM reliability.checkpoint WHERE topology = %(topology)s"
        )
        return str(phase)

    def statuses(self, database: str = "") -> dict[str, str]:
        """Return the status of every attempt, as 7:2 -> COMMITTED."""
        found = self.ask(
            "SELECT txid, attempt_id, status FROM reliability.attempt"
            " WHERE topology = %(topology)s ORDER BY txid, attempt_id",
            database,
        )
        return {f"{txid}:{attempt_id}": status for txid, attempt_id, status in found}

    def ask(self, query: str, database: str = "") -> list[tuple[Any, ...]]:
        return rows(self.participants.connection_of(database), query, topology=self.topology)


def other_nonce(grant: Grant) -> Grant:
    """The same attempt as a restored ledger would grant it again."""
    return Grant(topology=grant.topology, attempt=grant.attempt, nonce=str(uuid.uuid4()))


DECIDED = "SET phase = 'COMMITTING'"


def die_when_decided(staged: Staged) -> None:
    """Let a driver die when it has decided, and no database has heard of it."""
    with doomed(after=DECIDED) as fate:
        drain(LedgerConnection(staged.connection.dsn), staged.topology)
    assert fate.has_died
    assert staged.phase() == "COMMITTING"
