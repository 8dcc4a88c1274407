"""A digest of what an attempt adds to a state: equal digests, equal contributions.

Each row is hashed as text, and the hashes are summed: neither the order of rows nor how Spark cut
them into partitions matters, and a row that is there twice counts twice. Sums of floats may differ
in their last digits from one run of Spark to the next, and so may their digests.
"""

from __future__ import annotations

from psycopg2.sql import SQL, Composed

from reliability.states.compose import names
from reliability.states.tables import StateTables


def digest(tables: StateTables) -> Composed:
    """Digest what an attempt has staged, as `rows:sum`: Spark stages a key once."""
    return SQL(
        "SELECT count(*) || ':' || coalesce(sum(hashtextextended(ROW(staged.*)::text, 0)), 0)"
        " AS digest FROM (SELECT {} FROM {}"
        " WHERE _txid = %(txid)s AND _attempt_id = %(attempt_id)s) AS staged"
    ).format(names(tables.column_types()), tables.contribution)
