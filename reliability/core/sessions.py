"""How many sessions of Postgres all topologies may have at once, and whether they find a place."""

from __future__ import annotations

from collections.abc import Iterable

#: of an attempt, beside those that stage: two of its driver, three of its task
OF_AN_ATTEMPT = 5


def sessions_at_once(topologies: Iterable[tuple[int, int]], most_attempts: int) -> tuple[int, int]:
    """Return how many sessions attempts may have at once, and how many of these stage nothing.

    :param topologies: how many attempts each may have at once, and with how many sessions one
        stages at most
    :param most_attempts: how many attempts Airflow runs at once

    >>> sessions_at_once([(4, 1), (2, 32)], most_attempts=3)
    (80, 15)
    """
    each = (staging for many, staging in topologies for _ in range(min(many, most_attempts)))
    chosen = sorted(each, reverse=True)[:most_attempts]
    others = OF_AN_ATTEMPT * len(chosen)
    return others + sum(chosen), others


def lacking_sessions(wanted: int, others: int, server: int, limit: int | None) -> str:
    """Say what is too little; an empty text if there is place for all.

    A Spark task that finds no place waits for one. So a CONNECTION LIMIT may be less than what is
    wanted, but needs place for more than what those have for which a Spark task would wait.

    :param server: for how many sessions the server has place
    :param limit: the CONNECTION LIMIT of the role or the database, if there is one

    >>> lacking_sessions(148, 20, server=97, limit=None)
    'attempts may have 148 sessions at once, and the server has place for 97'
    >>> lacking_sessions(148, 20, server=97, limit=40)
    ''
    >>> lacking_sessions(148, 20, server=97, limit=20)
    'attempts may have 20 sessions at once that stage nothing, and CONNECTION LIMIT is 20'
    """
    if limit is not None and limit < min(wanted, others + 1):
        which = f"{others} sessions at once that stage nothing"
        return f"attempts may have {which}, and CONNECTION LIMIT is {limit}"
    if wanted > server and (limit is None or limit > server):
        return f"attempts may have {wanted} sessions at once, and the server has place for {server}"
    return ""
