"""Fill a ledger with copies of its first txid, as if it had run for years.

Every row that the ledger has of txid 1 is copied under the numbers of later txids, with the rows of
its contribution. Each copy has an interval, a run and a source item of its own, and keeps every
constraint of the ledger. The target tables stay as they are: the ledger's size is the question.
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg2.sql import SQL, Composable, Identifier

from reliability.ledger.connection import DatabaseTransaction, LedgerConnection

START = "2020-01-01 00:00+00"
AT_ONCE = 50_000
SCHEMA = "reliability"
CONTRIBUTIONS = "reliability_contribution"
#: Which rows are those of txid 1, in an order that satisfies the foreign keys.
OF_TXID_1 = {
    "transaction": "txid = 1",
    "source_item": "txid = 1",
    "emission": "run_id = 'run 1'",
    "request": "txid = 1",
    "request_contact": "request_id = 1",
    "attempt": "txid = 1",
    "attempt_event": "txid = 1 AND status <> 'COMMITTED'",  # a trigger writes the last one
    "attempt_step": "txid = 1",
    "sink": "txid = 1",
    "ack": "txid = 1",
    "contribution": "txid = 1",
    "commit_log": "txid = 1",
}
#: What a column of a copy has instead; `copy` is its number.
CHANGED = {
    "txid": "copy",
    "_txid": "copy",
    "commit_number": "copy",
    "request_id": "copy",
    "run_id": "'run ' || copy",
    "item": "'copy ' || copy",
    "interval_start": f"timestamptz '{START}' + copy * interval '1 minute'",
    "interval_end": f"timestamptz '{START}' + (copy + 1) * interval '1 minute'",
}
COLUMNS = SQL("""
    SELECT attname AS name FROM pg_attribute
     WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped
       AND attgenerated = '' AND (attidentity = '' OR attname = 'request_id')
""")
COPY = SQL("""
    INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE
    SELECT {values} FROM {table} AS r, generate_series(%(first)s, %(last)s) AS copy WHERE {rows}
""")
MOVE = SQL("""
    UPDATE reliability.topology SET commit_number = %(last)s, curr_txid = %(last)s + 1,
           next_txid = %(last)s + 1;
    UPDATE reliability.state SET commit_number = %(last)s;
    UPDATE reliability.checkpoint SET commit_number = %(last)s;
    SELECT setval(pg_get_serial_sequence('reliability.request', 'request_id'), %(last)s)
""")


def fill(connection: LedgerConnection, last: int) -> None:
    """Copy txid 1 until the only topology of the ledger has committed the txid `last`."""
    with connection.transaction() as tx:
        position = SQL("SELECT next_txid AS first, topology FROM reliability.topology")
        row = tx.one(position)
        tables = [*_tables(tx, row["topology"])]
    for first in range(row["first"], last + 1, AT_ONCE):
        numbers = {"first": first, "last": min(last, first + AT_ONCE - 1)}
        with connection.transaction() as tx:
            for table, rows in tables:
                tx.run(_copy(tx, table, rows), **numbers)
            tx.run(MOVE, **numbers)


def _tables(tx: DatabaseTransaction, topology: str) -> Iterator[tuple[Identifier, str]]:
    for name, rows in OF_TXID_1.items():
        yield Identifier(SCHEMA, name), rows
    for row in tx.all(SQL("SELECT state FROM reliability.state")):
        yield Identifier(CONTRIBUTIONS, f"{topology}__{row['state']}"), "_txid = 1"


def _copy(tx: DatabaseTransaction, table: Identifier, rows: str) -> Composable:
    found = tx.all(COLUMNS, table=".".join(table.strings))
    names = [row["name"] for row in found]
    values = [SQL(CHANGED[n]) if n in CHANGED else Identifier("r", n) for n in names]
    return COPY.format(
        table=table,
        columns=SQL(", ").join(map(Identifier, names)),
        values=SQL(", ").join(values),
        rows=SQL(rows),
    )
