"""What an error of Postgres means, by its SQLSTATE: the classes of Postgres's appendix A.

Only an outage is waited for. A refusal is told in Postgres's own words, and fails the attempt whose
rows are refused (C5). Otherwise one row that is too large would stop a topology for as long as a
server may be away.
"""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """What an error of Postgres means."""

    OUTAGE = "the server, or the way to it, is out of order for everyone: wait"
    BUSY = "something else was in the way: the same statement may succeed soon"
    LOGIN = "the server refuses the session: its credentials may have changed"
    RIGHT = "the role lacks a right"
    TEXT = "a text cannot be stored in the database's encoding"
    REFUSAL = "the statement or its rows are refused, and will be again"


#: The first two characters of a SQLSTATE, or all five for a code that differs from its class.
KINDS: dict[str, Kind] = {
    "00": Kind.REFUSAL,  # no errors: 00, 01 and 02
    "01": Kind.REFUSAL,
    "02": Kind.REFUSAL,
    "03": Kind.REFUSAL,
    "08": Kind.OUTAGE,
    "08P01": Kind.REFUSAL,  # also rows that COPY cannot read
    "09": Kind.REFUSAL,
    "0A": Kind.REFUSAL,
    "0B": Kind.REFUSAL,
    "0F": Kind.REFUSAL,
    "0L": Kind.REFUSAL,
    "0P": Kind.REFUSAL,
    "0Z": Kind.REFUSAL,
    "10": Kind.REFUSAL,
    "20": Kind.REFUSAL,
    "21": Kind.REFUSAL,
    "22": Kind.REFUSAL,
    "22021": Kind.TEXT,
    "22P05": Kind.TEXT,
    "23": Kind.REFUSAL,
    "24": Kind.REFUSAL,
    "25": Kind.REFUSAL,
    "25P03": Kind.OUTAGE,  # this and the next end the session
    "25P04": Kind.OUTAGE,
    "26": Kind.REFUSAL,
    "27": Kind.REFUSAL,
    "28": Kind.LOGIN,
    "2B": Kind.REFUSAL,
    "2D": Kind.REFUSAL,
    "2F": Kind.REFUSAL,
    "34": Kind.REFUSAL,
    "38": Kind.REFUSAL,
    "39": Kind.REFUSAL,
    "3B": Kind.REFUSAL,
    "3D": Kind.LOGIN,  # there is no such database
    "3F": Kind.REFUSAL,
    "40": Kind.BUSY,
    "40002": Kind.REFUSAL,  # a constraint
    "40003": Kind.OUTAGE,  # the answer is lost
    "42": Kind.REFUSAL,
    "42501": Kind.RIGHT,
    "44": Kind.REFUSAL,
    "53": Kind.OUTAGE,  # a full disk or too many sessions
    "53200": Kind.REFUSAL,  # out of memory, or of locks: by the statement itself as often as not
    "53400": Kind.REFUSAL,  # a limit for one statement, such as temp_file_limit
    "54": Kind.REFUSAL,
    "55": Kind.REFUSAL,
    "55P03": Kind.BUSY,  # lock_timeout
    "57": Kind.OUTAGE,
    "57014": Kind.BUSY,  # a person or a timeout has cancelled the statement
    "58": Kind.OUTAGE,  # an I/O error
    "58P01": Kind.REFUSAL,  # a file of the database, or of an extension, that is not there
    "58P02": Kind.REFUSAL,
    "58P03": Kind.REFUSAL,
    "72": Kind.BUSY,
    "F0": Kind.REFUSAL,
    "HV": Kind.REFUSAL,
    "HV00N": Kind.OUTAGE,  # a foreign table's server does not answer
    "P0": Kind.REFUSAL,
    "XX": Kind.REFUSAL,
}


# A table, function or type that was not found.
_UNDEFINED = ("42P01", "42883", "42704")
QUALIFY = (
    "write names with their schema: without one, sessions of this package look in pg_catalog only. "
    "A function or trigger of yours gets its own path by ALTER FUNCTION … SET search_path = …."
)
#: What to do about a refusal, by its SQLSTATE or class.
_REMEDIES = {
    "53": "the server lacks room or sessions: give it more; the task goes on by itself then.",
    "53200": "raise the limit that the message names, or let a txid have fewer rows.",
    "53400": "raise the limit that the message names, or let a txid have fewer rows.",
    "54": "Postgres cannot store or index a value or a row of that size. If the index in the "
    "message is yours, drop it or index md5(column). The key of a state is always indexed: shorten "
    "or hash the value in the process function.",
    "55P03": "",
    "55": "the message is Postgres's own; change what it names, then let the task run again.",
}


def lacks_schema(sqlstate: str, said: str) -> bool:
    """Say whether a name without a schema was not found.

    >>> lacks_schema("42P01", 'relation "audit" does not exist')
    True
    >>> lacks_schema("42P01", 'relation "public.audit" does not exist')
    False
    """
    return sqlstate in _UNDEFINED and "." not in said


def remedy_of(sqlstate: str) -> str:
    """Return what to do about an error, empty if the SQLSTATE does not tell.

    >>> remedy_of("53100"), remedy_of("55P03")
    ('the server lacks room or sessions: give it more; the task goes on by itself then.', '')
    """
    return _REMEDIES.get(sqlstate, _REMEDIES.get(sqlstate[:2], ""))


def kind_of(sqlstate: str, *, ends_session: bool = False) -> Kind:
    """Return what an error means.

    :param ends_session: the server has ended the session with it: FATAL or PANIC

    >>> kind_of("54000").name, kind_of("57P01").name, kind_of("55P03").name
    ('REFUSAL', 'OUTAGE', 'BUSY')
    >>> kind_of("XX000", ends_session=True).name, kind_of("28P01", ends_session=True).name
    ('OUTAGE', 'LOGIN')
    >>> kind_of("RX001").name  # raised by a trigger of a user's
    'REFUSAL'
    """
    kind = KINDS.get(sqlstate) or KINDS.get(sqlstate[:2], Kind.REFUSAL)
    return Kind.OUTAGE if ends_session and kind is not Kind.LOGIN else kind
