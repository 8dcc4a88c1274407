"""A digest of an attempt's contribution to a state: equal contributions have equal digests.

Each row is hashed as text, and the hashes are summed. The order of rows and their partitions do not
matter, and a row that occurs twice counts twice. Sums of floats may differ in their last digits
from one run of Spark to the next; then their digests differ too.
"""

from __future__ import annotations

from psycopg2.sql import SQL, Composed

from reliability.states.compose import names
from reliability.states.tables import StateTables


def digest(tables: StateTables) -> Composed:
    """Digest the staged rows of an attempt, as `rows:sum`; Spark stages each key once."""
    return SQL(
        "SELECT count(*) || ':' || coalesce(sum(hashtextextended(ROW(staged.*)::text, 0)), 0)"
        " AS digest FROM (SELECT {} FROM {}"
        " WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s) AS staged"
    ).format(names(tables.column_types()), tables.contribution)
