"""What an error of Postgres means, by its SQLSTATE: the classes of Postgres's appendix A.

Only an outage is waited for. A refusal is told in Postgres's own words, and fails the attempt whose
rows are refused (C5). Otherwise one row that is too large would stop a topology for as long as a
server may be away.
"""

from __future__ import annotations

import re
from enum import Enum


class Kind(Enum):
    """What an error of Postgres means."""

    OUTAGE = "the server, or the way to it, is out of order for everyone: wait"
    FULL = "the server lacks disk or sessions, for everyone: wait"
    BUSY = "something else was in the way: the same statement may succeed soon"
    LOGIN = "the server refuses the session: its credentials may have changed"
    RIGHT = "the role lacks a right"
    TEXT = "a text cannot be stored in the database's encoding"
    REFUSAL = "the statement or its rows are refused, and will be again"


# The first two characters of a SQLSTATE, or all five for a code that differs from its class.
_CODES = {
    Kind.OUTAGE: (
        "08 57 58 "  # connections; the operator; an I/O error
        "25P03 25P04 40003 HV00N"  # the session ends; the answer is lost; a foreign server is away
    ),
    Kind.FULL: "53",
    Kind.BUSY: "40 72 55P03 57014",  # lock_timeout; a person or a timeout has cancelled it
    Kind.LOGIN: "28 3D",  # there is no such database
    Kind.RIGHT: "42501",
    Kind.TEXT: "22021 22P05",
    Kind.REFUSAL: (
        "00 01 02 03 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 2B 2D 2F 34 38 39 3B 3F 42 44 "
        "54 55 F0 HV P0 XX "
        "08P01 40002 "  # also rows that COPY cannot read; a constraint
        "53200 53400 "  # out of memory, or of locks; a limit for one statement: often by itself
        "58P01 58P02 58P03"  # a file of the database, or of an extension, that is not there
    ),
}
KINDS = {code: kind for kind, codes in _CODES.items() for code in codes.split()}


# A table, function or type that was not found; or an operator, of which a message gives the sign.
_UNDEFINED = ("42P01", "42883", "42704")
_OPERATOR = re.compile(r" [-+*/<>=~!@#%^&|`?]+ ")
QUALIFY = (
    "write names with their schema: without one, sessions of this package look in pg_catalog only. "
    "A function or trigger of yours gets its own path by ALTER FUNCTION … SET search_path = …."
)
_NO_VALUE = (
    "a value is none of that type, or out of its range: correct what you have typed; change the "
    "process function if it made the value; give a sum that has outgrown its type a wider one, and "
    "run `reliability alter`."
)
_ALTERED = (
    "if somebody has dropped, renamed or altered a table of a state, `reliability declare "
    "TOPOLOGY` says how to mend it. If the name is in an audit, a trigger or a function of yours, "
    "correct it there."
)
_TOLD = "the message is Postgres's own; change what it names, then let the task run again."
#: What to do about a refusal, by its SQLSTATE or class.
_REMEDIES = {
    "22003": _NO_VALUE,
    "22007": _NO_VALUE,
    "22008": _NO_VALUE,
    "22P02": _NO_VALUE,
    "42804": _ALTERED,
    "42883": _ALTERED,
    "42P01": _ALTERED,
    "42703": _ALTERED,
    "3F000": _ALTERED,
    "53200": "raise the limit that the message names, or let a txid have fewer rows.",
    "53400": "raise the limit that the message names, or let a txid have fewer rows.",
    "54": "Postgres cannot store or index a value or a row of that size. If the index in the "
    "message is yours, drop it or index md5(column). The key of a state is always indexed: shorten "
    "or hash the value in the process function.",
    "54011": "a table has at most 1,600 columns, with the hidden ones of its state: spread them "
    "over several states.",
    "55000": f"{_TOLD} A table that is published, but has no replica identity: "
    "ALTER TABLE … REPLICA IDENTITY FULL.",
    "55P03": "",
    "55": _TOLD,
}


def lacks_schema(sqlstate: str, said: str) -> bool:
    """Say whether a name without a schema was not found, by a message in any language.

    >>> lacks_schema("42P01", 'relation "audit" does not exist')
    True
    >>> lacks_schema("42P01", 'relation "public.audit" does not exist')
    False
    >>> lacks_schema("42883", "Operator existiert nicht: bigint = text")  # a column of another type
    False
    """
    return sqlstate in _UNDEFINED and "." not in said and not _OPERATOR.search(said)


def remedy_of(sqlstate: str) -> str:
    """Return what to do about an error, empty if the SQLSTATE does not tell.

    >>> remedy_of("53200"), remedy_of("55P03")
    ('raise the limit that the message names, or let a txid have fewer rows.', '')
    >>> remedy_of("55006")
    "the message is Postgres's own; change what it names, then let the task run again."
    """
    return _REMEDIES.get(sqlstate, _REMEDIES.get(sqlstate[:2], ""))


def kind_of(sqlstate: str, *, ends_session: bool = False) -> Kind:
    """Return what an error means.

    :param ends_session: the server has ended the session with it: FATAL or PANIC

    >>> kind_of("54000").name, kind_of("57P01").name, kind_of("55P03").name
    ('REFUSAL', 'OUTAGE', 'BUSY')
    >>> kind_of("XX000", ends_session=True).name, kind_of("28P01", ends_session=True).name
    ('OUTAGE', 'LOGIN')
    >>> kind_of("53100").name, kind_of("53300", ends_session=True).name
    ('FULL', 'FULL')
    >>> kind_of("RX001").name  # raised by a trigger of a user's
    'REFUSAL'
    """
    kind = KINDS.get(sqlstate) or KINDS.get(sqlstate[:2], Kind.REFUSAL)
    return Kind.OUTAGE if ends_session and kind not in (Kind.LOGIN, Kind.FULL) else kind
