"""The kept contributions of a state: all of them, or those to keys that were collected before.

A staged row is a contribution if a header names its attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg2.sql import SQL, Composable, Composed, Identifier, Literal

from reliability.states.compose import same_key, same_key_as_record, same_key_by
from reliability.states.headers import MIN_TXID
from reliability.states.tables import StateTables

if TYPE_CHECKING:
    from reliability.ledger.connection import DatabaseTransaction

COLLECTED = Identifier("pg_temp", "collected")
Pattern = Mapping[str, bool]
"""Maps each column of the key to whether it is NULL."""
# From so many keys on, all headers are read at once, if they are no more than fit into memory.
MANY_KEYS, MOST_HEADERS = 1_000, 500_000
# From one key in so many of the target on, all contributions are folded: a join would cost more.
FEW_OTHERS = 3
_OPEN = Identifier("pg_temp", "open_keys")
LAST_TXIDS = Identifier("pg_temp", "last_txids")


@dataclass(frozen=True, slots=True)
class Collected:
    """What is known of keys that were collected.

    :param patterns: which of their columns are NULL together
    :param are_many: the headers of their contributions are read at once, not one by one
    """

    patterns: Sequence[Pattern]
    are_many: bool

    def same_key(self, key: Iterable[str], one: str, other: str) -> Composed:
        """Compare the keys of two rows, one of which has a collected key."""
        return (same_key if self._have_null else self._same_key_by)(key, one, other)

    def same_key_without_index(self, key: Iterable[str], one: str, other: str) -> Composed:
        """Do the same where no index has the key."""
        return (same_key_as_record if self._have_null else self._same_key_by)(key, one, other)

    def _same_key_by(self, _: Iterable[str], one: str, other: str) -> Composed:
        return same_key_by(self.patterns[0], one, other)

    @property
    def _have_null(self) -> bool:
        return any(is_null for pattern in self.patterns for is_null in pattern.values())


def kept(tables: StateTables) -> Composed:
    """Read every committed contribution of this state."""
    return tables.sql(
        "SELECT staged.* FROM {contribution} AS staged"
        " JOIN reliability.contribution AS header ON {header}"
        " AND header.txid = staged._txid AND header.attempt_id = staged._attempt_id"
    )


def counts(tables: StateTables, row: str) -> Composed:
    """Return the condition that a row counts as a contribution: its header names its attempt.

    OFFSET 0 makes Postgres check each row separately. Without statistics of the headers, a join
    might start with them and compare every key with every row.
    """
    return tables.sql(
        "EXISTS (SELECT FROM reliability.contribution AS header WHERE {header}"
        " AND header.txid = {txid} AND header.attempt_id = {attempt_id} OFFSET 0)",
        txid=Identifier(row, "_txid"),
        attempt_id=Identifier(row, "_attempt_id"),
    )


def _counts_among_all(tables: StateTables, row: str) -> Composed:
    """Return the same condition, for which all headers of the state are read once.

    Postgres hashes them if they fit into work_mem, by its estimate, which LIMIT bounds. Without
    coalesce() it would make a join of it.
    """
    return tables.sql(
        "coalesce(ROW({txid}, {attempt_id}) IN (SELECT header.txid, header.attempt_id"
        " FROM reliability.contribution AS header WHERE {header} LIMIT {most}), false)",
        most=Literal(MOST_HEADERS),
        txid=Identifier(row, "_txid"),
        attempt_id=Identifier(row, "_attempt_id"),
    )


_ARE_MANY = (
    "SELECT count(*) >= %(keys)s AND (SELECT count(*) <= %(headers)s FROM (SELECT FROM"
    " reliability.contribution AS header WHERE {header} LIMIT %(headers)s + 1) AS h)"
    " AS are_many FROM (SELECT FROM {collected} LIMIT %(keys)s) AS k"
)
_ARE_MOST = (
    "SELECT (SELECT count(*) FROM (SELECT FROM {target} LIMIT %(few)s * keys) AS t)"
    " < %(few)s * keys AS are_most FROM (SELECT count(*) AS keys FROM {collected}) AS k"
)


def collect(
    tx: DatabaseTransaction, tables: StateTables, keys: Composable, **parameters: Any
) -> Collected:
    """Collect keys in a temporary table.

    Who is done drops the table, because the next state of the transaction creates its own.

    The planner gets statistics of it: without them it reads all contributions for each key instead
    of using an index.

    :param keys: a query for the keys, with these parameters
    """
    statement = SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS"
        " SELECT row_number() OVER () AS _number, found.* FROM ({}) AS found"
    )
    tx.run("use_more_memory")
    tx.run(statement.format(COLLECTED, keys), **parameters)
    tx.run(tables.sql("ANALYZE {collected} (_number, {key})", collected=COLLECTED))
    is_null = SQL(", ").join(
        SQL("{0} IS NULL AS {0}").format(Identifier(name)) for name in tables.key
    )
    patterns = tx.all(SQL("SELECT DISTINCT {} FROM {}").format(is_null, COLLECTED))
    limits = {"keys": MANY_KEYS, "headers": MOST_HEADERS}
    are_many = tx.one(tables.sql(_ARE_MANY, collected=COLLECTED), **limits)["are_many"]
    return Collected([*patterns] or [dict.fromkeys(tables.key, False)], are_many)


def find_last_txids(
    tx: DatabaseTransaction, tables: StateTables, collected: Collected, *, through: int, txids: int
) -> None:
    """Put the greatest txid that each collected key has up to one into a table: _number, _txid.

    Contributions are read from the newest back, twice as many txids each time, for the keys that
    are still without one. Most contributions are never read.

    :param txids: how many are read first
    """
    tx.run(
        SQL("CREATE TEMPORARY TABLE {} (_number bigint, _txid bigint) ON COMMIT DROP").format(
            LAST_TXIDS
        )
    )
    keys, is_last = COLLECTED, not collected.are_many
    while True:
        after = MIN_TXID if is_last or through <= txids else through - txids
        span = tables.sql(
            "(SELECT {key}, _txid, _attempt_id FROM {contribution}"
            " WHERE _txid > %(after)s AND _txid <= %(through)s)"
        )
        found = contributions_to_collected(tables, collected, span, keys)
        statement = "INSERT INTO {} SELECT _number, max(_txid) FROM ({}) AS found GROUP BY _number"
        tx.run(SQL(statement).format(LAST_TXIDS, found), after=after, through=through)
        if keys is _OPEN:
            tx.run(SQL("DROP TABLE {}").format(_OPEN))
        if after == MIN_TXID:
            return
        keys, is_last = _OPEN, _collect_open(tx, tables) < MANY_KEYS
        through, txids = after, 2 * txids


def _collect_open(tx: DatabaseTransaction, tables: StateTables) -> int:
    """Collect the keys without a txid, and return how many they are."""
    statement = tables.sql(
        "CREATE TEMPORARY TABLE {open} ON COMMIT DROP AS SELECT _number, {key}"
        " FROM {collected} AS collected WHERE NOT EXISTS"
        " (SELECT FROM {last} AS last WHERE last._number = collected._number)",
        open=_OPEN,
        collected=COLLECTED,
        last=LAST_TXIDS,
    )
    found = tx.run(statement)
    tx.run(SQL("ANALYZE {}").format(_OPEN))
    return found


def contributions_to_fold(
    tx: DatabaseTransaction, tables: StateTables, collected: Collected, staged: Composable
) -> Composed:
    """Read the contributions to the collected keys; all of them, if those are most keys.

    :param staged: the staged rows that are read
    """
    most = tables.sql(_ARE_MOST, collected=COLLECTED)
    # all headers have to fit into memory: of more, `_counts_among_all` would leave some out
    if not (collected.are_many and tx.one(most, few=FEW_OTHERS)["are_most"]):
        return contributions_to_collected(tables, collected, staged)
    return SQL("SELECT own.* FROM {} AS own WHERE {}").format(
        staged, _counts_among_all(tables, "own")
    )


def contributions_to_collected(
    tables: StateTables,
    collected: Collected,
    staged: Composable | None = None,
    keys: Composable = COLLECTED,
) -> Composed:
    """Read the contributions to the collected keys, each with the `_number` of its key.

    The keys of each pattern are joined separately (`same_key_by`).

    :param staged: the staged rows that are read; all by default
    :param keys: the table with the collected keys, or with some of them
    """
    rows = SQL(" UNION ALL ").join(
        tables.sql(
            "SELECT collected._number, staged.* FROM {collected} AS collected"
            " JOIN {staged} AS staged ON {same_key}",
            collected=keys,
            staged=tables.contribution if staged is None else staged,
            same_key=same_key_by(pattern, "collected", "staged"),
        )
        for pattern in collected.patterns
    )
    is_kept = (_counts_among_all if collected.are_many else counts)(tables, "own")
    return SQL("SELECT * FROM ({} OFFSET 0) AS own WHERE {}").format(rows, is_kept)
