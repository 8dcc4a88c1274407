"""Explain a row of a table: what each txid contributed to it, and which run requested it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reliability.core.attempt import TransactionAttempt
from reliability.core.errors import ExplainNotPossible
from reliability.core.spout import Interval
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.read_rows import interval_of, made_of
from reliability.states.adoption import ADOPTED
from reliability.states.explain_row import contributions_to, parameter, row_now
from reliability.states.tables import StateTables
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables

MAX_ROWS = 1000  # limits appended rows; in other states a txid has one row a key

Key = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one txid contributed to a row.

    :param committed_at: when the attempt committed; `dag_id`, `run_id`: the run that requested it
    :param attempt: None for what the state has adopted
    :param presence: `present`; `compacted`: the sum of this txid and older ones; or `adopted`
    :param values: column -> value, including hidden columns
    """

    attempt: TransactionAttempt | None
    presence: str
    values: Mapping[str, Any]
    committed_at: datetime | None = None
    dag_id: str = ""
    run_id: str = ""
    interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The origin of a row.

    :param row: the current row of the table, None if there is none. Always None for a state of
        appended rows: each contribution is a row of the table
    :param contributions: by txid
    """

    row: Mapping[str, Any] | None
    contributions: tuple[Contribution, ...]


def explain(
    connection: LedgerConnection,
    topology: str,
    state: str,
    key: Key,
    *,
    max_rows: int = MAX_ROWS,
    newest: bool = False,
    txids: Collection[int] | None = None,
) -> Explanation:
    """Return what each txid contributed to the row with this key.

    :param key: column -> value, as text as a person writes it, or None for NULL
    :param max_rows: the limit for a state of appended rows, the oldest first
    :param newest: return only the last `max_rows` contributions, to a state of any kind
    :param txids: return only what these have contributed
    :raises ExplainNotPossible: the topology has no such state, its key has other columns, or it
        keeps no contributions
    """
    with TopologyDatabases.of_known(connection, topology) as participants:
        database, tables = _find(participants, state)
        _check(tables, key)
        with database.transaction() as tx:
            row, rows = explain_row(tx, tables, key, max_rows, newest=newest, txids=txids)
            adopted = tx.first("adoption", **StateKey(topology, state)) or {}
        contributions = _contributions(participants, tables, rows, adopted)
        return Explanation(row=row, contributions=tuple(contributions))


def explain_row(
    tx: DatabaseTransaction,
    tables: StateTables,
    key: Key,
    max_rows: int = MAX_ROWS,
    *,
    newest: bool = False,
    txids: Collection[int] | None = None,
) -> tuple[Row | None, list[Row]]:
    """Read the row of the target and the contributions to it, from one database."""
    nulls = [name for name, value in key.items() if value is None]
    place = {parameter(n): key[name] for n, name in enumerate(tables.state.key)}
    statement = contributions_to(tables, nulls, newest=newest, is_among=txids is not None)
    contributions = tx.all(statement, most=max_rows, txids=[*(txids or ())], **place)
    if tables.state.is_append:
        return None, contributions
    return tx.first(row_now(tables, nulls), **place), contributions


# --- find the row --------------------------------------------------------------------------------


def _find(participants: TopologyDatabases, state: str) -> tuple[LedgerConnection, StateTables]:
    known = []
    for database in participants.all:
        for tables in declared_tables(database, participants.topology):
            known.append(tables.state.name)
            if tables.state.name == state:
                return database, tables
    raise ExplainNotPossible(
        f"{participants.topology} has no state {state}; it has {', '.join(sorted(known))}"
    )


def _check(tables: StateTables, key: Key) -> None:
    state = tables.state
    if not (tables.keeps_contributions or state.is_append):
        raise ExplainNotPossible(
            f"state {state.name} keeps no contributions",
            remedy="only a ContributionState does; the row's _txid is the last that changed it.",
        )
    if key.keys() != state.key.keys():
        columns = ", ".join(f"{name} ({type_})" for name, type_ in state.key.items())
        raise ExplainNotPossible(
            f"the key of state {state.name} is {columns or 'none'}, but {sorted(key)} was given",
            remedy="name each column of the key once.",
        )


# --- contributions -------------------------------------------------------------------------------


def _contributions(
    participants: TopologyDatabases, tables: StateTables, rows: Sequence[Row], adopted: Row
) -> Iterator[Contribution]:
    """Add when the attempts committed, and for which runs, from the coordinator's ledger.

    :param adopted: the adoption that has made what is of txid 0
    """
    commits = participants.coordinator.all(
        "commits_of_attempts",
        topology=participants.topology,
        txids=[row["_txid"] for row in rows],
        attempt_ids=[row["_attempt_id"] for row in rows],
    )
    by_attempt = {(commit["txid"], commit["attempt_id"]): commit for commit in commits}
    for row in rows:
        txid, attempt_id = row["_txid"], row["_attempt_id"]
        commit = by_attempt.get((txid, attempt_id), {})
        is_adopted = txid == ADOPTED
        yield made_of(
            Contribution,
            commit or ({"committed_at": adopted["adopted_at"]} if is_adopted else {}),
            attempt=None if is_adopted else TransactionAttempt(txid, attempt_id),
            presence="adopted" if is_adopted else row["_presence"],
            values={column.name: row[column.name] for column in tables.state.all_columns()},
            interval=interval_of(commit) if commit else None,
        )
