"""All that can be seen of one topology, in one statement and so in one snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.checkpoint import COORDINATOR
from reliability.core.definitions import Topology
from reliability.ledger.connection import LedgerConnection
from reliability.states.kinds import stored_state
from reliability.states.tables import StateTables
from tests.simulation.contents import COLUMNS

Rows = list[dict[str, Any]]

_LEDGER = {
    "topology": "SELECT curr_txid, next_txid, commit_number, max_spout_pending,"
    " EXISTS (SELECT FROM reliability.commit_log l WHERE l.topology = p.topology"
    "  AND l.kind = 'COMMIT' AND l.txid = p.curr_txid - 1"
    "  AND l.committed_at > clock_timestamp() - p.checkpoint_interval"
    "  AND l.committed_at <= clock_timestamp()) AS is_gathering"  # else the clock was set back
    " FROM reliability.topology p WHERE topology = $1",
    "checkpoint": "SELECT phase, commit_number, plan FROM reliability.checkpoint"
    " WHERE topology = $1",
    "transactions": "SELECT txid, batch_meta, committed_attempt, commit_number,"
    " held_reason IS NOT NULL AS is_held"
    " FROM reliability.transaction WHERE topology = $1 ORDER BY txid",
    "items": "SELECT txid, item FROM reliability.source_item WHERE topology = $1",
    "requests": "SELECT request_id, txid, run_id, number, kind, status, granted_after,"
    " is_dry_run, tasks_ended_at IS NOT NULL AS tasks_ended"
    " FROM reliability.request WHERE topology = $1 ORDER BY request_id",
    "attempts": "SELECT txid, attempt_id, nonce, status, request_id, batch_meta,"
    " predecessor_attempt, left_out, reason_code, verdict, cleaned_at IS NOT NULL AS cleaned,"
    " ended_at > clock_timestamp() - interval '1 hour' AS ended_lately"
    " FROM reliability.attempt WHERE topology = $1 ORDER BY txid, attempt_id",
    "events": "SELECT txid, attempt_id, status, reason_code, reason FROM reliability.attempt_event"
    " WHERE topology = $1 ORDER BY event_id",
    "sinks": "SELECT txid, attempt_id, sink, ack_val, unacked, partitions,"
    " (SELECT coalesce(json_agg(partition ORDER BY partition), '[]') FROM reliability.ack k"
    "   WHERE k.topology = s.topology AND k.txid = s.txid AND k.attempt_id = s.attempt_id"
    "     AND k.sink = s.sink) AS acked"
    " FROM reliability.sink s WHERE topology = $1",
    "commits": "SELECT commit_number, kind, txid, attempt_id, replaced_attempt"
    " FROM reliability.commit_log WHERE topology = $1 ORDER BY commit_number",
    "states": "SELECT state, commit_number FROM reliability.state WHERE topology = $1",
    "skips": "SELECT txid, ended_at IS NULL AS is_active FROM reliability.skip WHERE topology = $1",
    "exclusions": "SELECT item, ended_at IS NULL AS is_active FROM reliability.exclusion"
    " WHERE topology = $1",
    "attempt_tables": "SELECT table_id, state, txid, attempt_id,"
    " public.rows_of_table(table_id) AS rows FROM reliability.attempt_table WHERE topology = $1",
    "headers": "SELECT state, txid, attempt_id FROM reliability.contribution WHERE topology = $1",
}


@dataclass(frozen=True)
class Observed:
    """What one snapshot shows; rows are as the ledger has them.

    :param forgotten: the tables of attempts that are there, though the ledger does not name them
    :param tables: how often each row is in a state's target
    """

    topology: dict[str, Any]
    checkpoint: dict[str, Any]
    transactions: Rows
    items: Rows
    requests: Rows
    attempts: Rows
    events: Rows
    sinks: Rows
    commits: Rows
    states: Rows
    skips: Rows
    exclusions: Rows
    attempt_tables: Rows
    forgotten: frozenset[int]
    headers: Rows
    staged: Rows
    tables: dict[str, Counter[tuple[Any, ...]]]

    @property
    def curr_txid(self) -> int:
        return int(self.topology["curr_txid"])

    @property
    def commit_number(self) -> int:
        """Return the last c."""
        return int(self.commits[-1]["commit_number"]) if self.commits else 0

    @property
    def txids(self) -> int:
        return len(self.transactions)

    def grant(self, topology: str, txid: int, age: int) -> Grant | None:
        """Return the grant of the txid's newest attempt, or of one that is so much older."""
        own = [a for a in self.attempts if a["txid"] == txid]
        if age >= len(own):
            return None
        attempt = own[-1 - age]
        return Grant(
            topology=topology,
            attempt=TransactionAttempt(txid, attempt["attempt_id"]),
            nonce=attempt["nonce"],
        )


class Observer:
    """The one statement, composed for the tables that a topology has in one database.

    :ivar opened: the numbers of the tables of attempts that there were
    """

    def __init__(self, topology: Topology, database: str = COORDINATOR) -> None:
        self._name = topology.name
        self._tables = {
            state.name: stored_state(topology.name, state)
            for state in topology.states
            if state.database == database
        }
        self._statement = _statement(self._tables)
        self._text = ""
        self.opened: set[int] = set()

    @staticmethod
    def prepare(connection: LedgerConnection) -> None:
        """Make the function that reads the ledger's part: its plan is kept from look to look.

        STABLE, so that it shares the snapshot of the statement that calls it.
        """
        with connection.transaction() as tx:
            tx.run(SQL(_ROWS_OF_TABLE))
            tx.run(
                SQL(
                    "CREATE FUNCTION public.look(topology text) RETURNS json LANGUAGE plpgsql"
                    " STABLE AS $$ #variable_conflict use_column\nBEGIN RETURN ({}); END $$"
                ).format(_as_json({name: SQL(text) for name, text in _LEDGER.items()}))
            )

    def look(self, connection: LedgerConnection) -> Observed:
        """Read everything; it is not part of any operation."""
        with connection.transaction() as tx:
            self._text = self._text or self._statement.as_string(tx.cursor)
            tx.cursor.execute(self._text, {"topology": self._name, "opened": [*self.opened]})
            row: Any = tx.cursor.fetchone()
        found = row["ledger"]
        found["topology"], found["checkpoint"] = found["topology"][0], found["checkpoint"][0]
        tables = row["tables"]
        named = {table["table_id"] for table in found["attempt_tables"]}
        there = {table["table_id"] for table in tables.pop("there")}
        self.opened |= named
        return Observed(
            **found,
            forgotten=frozenset(there - named),
            staged=[*tables.pop("staged"), *map(_as_staged, found["attempt_tables"])],
            tables={
                name: Counter(tuple(row.values()) for row in shown)
                for name, shown in tables.items()
            },
        )


def _as_staged(table: dict[str, Any]) -> dict[str, Any]:
    names = {"sink": "state", "txid": "txid", "attempt_id": "attempt_id", "rows": "rows"}
    return {name: table[column] for name, column in names.items()}


_ROWS_OF_TABLE = """
    CREATE FUNCTION public.rows_of_table(table_id bigint, OUT rows bigint) LANGUAGE plpgsql
        STABLE AS $$
    BEGIN
        EXECUTE 'SELECT count(*) FROM reliability_contribution.attempt_' || table_id INTO rows;
    END $$
"""


def _statement(tables: Mapping[str, StateTables]) -> Composed:
    parts: dict[str, Composable] = {
        name: SQL("SELECT {} FROM {}").format(
            SQL(", ").join(map(Identifier, COLUMNS[name])), table.target
        )
        for name, table in tables.items()
    }
    parts["staged"] = SQL(" UNION ALL ").join(
        SQL(
            "SELECT {} AS sink, _txid AS txid, _attempt_id AS attempt_id, count(*) AS rows"
            " FROM ONLY {} GROUP BY 2, 3"
        ).format(Literal(name), table.contribution)
        for name, table in tables.items()
    )
    parts["there"] = SQL(
        "SELECT table_id FROM unnest(%(opened)s::bigint[]) AS table_id"
        " WHERE to_regclass('reliability_contribution.attempt_' || table_id) IS NOT NULL"
    )
    return SQL("SELECT public.look(%(topology)s) AS ledger, ({}) AS tables").format(_as_json(parts))


def _as_json(parts: Mapping[str, Composable]) -> Composed:
    return SQL("SELECT json_build_object({})").format(
        SQL(", ").join(
            SQL("{}, (SELECT coalesce(json_agg(t), '[]') FROM ({}) AS t)").format(
                Literal(name), part
            )
            for name, part in parts.items()
        )
    )
