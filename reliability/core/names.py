"""Which names users may give, and the names that are derived from them.

A user's name is any text that Postgres or Airflow takes. Names of this package never equal one:
beside a user's columns they are refused there (`State`), or begin with a blank, as no user's does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from reliability.core.errors import InvalidDefinition

#: What pip installs this package as; the name `reliability` is another project's there.
DISTRIBUTION = "airflow-provider-reliability"
# How the names of source items begin that are rows of a table, or messages of a topic.
TABLE_SOURCE = "table:"
KAFKA_SOURCE = "kafka:"
TXID_LABEL = "txid "  # how the label of a mapped task in Airflow begins
COMMAND_LINE = "cli"  # the DAG of `reliability run` and `reliability replay`, in the ledger
LONGEST_NAME = 63  # bytes: Postgres cuts off the rest
LONGEST_ID = 250  # characters of a DAG's id; a task's id has its group's before it
LONGEST_STEP = 200
_ID = re.compile(r"\w[\w.-]*")
_DATABASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


def check_name(what: str, name: str) -> None:
    """Raise InvalidDefinition unless Postgres can call something so; `what` says what.

    Blanks around a name would not be seen, and derived names begin with one.
    """
    if not isinstance(name, str) or not name:
        raise _invalid(what, name, "is empty")
    if not name.isprintable():  # NUL, other control characters, halves of a surrogate pair
        raise _invalid(what, name, "has a character that cannot be printed")
    if name != name.strip():
        raise _invalid(what, name, "begins or ends with a blank")
    if (length := len(name.encode())) > LONGEST_NAME:
        raise _invalid(what, name, f"has {length} bytes in UTF-8, and Postgres cuts off what is "
                       f"beyond {LONGEST_NAME}")  # fmt: skip


def check_id(what: str, name: str, longest: int = LONGEST_ID) -> None:
    """Raise InvalidDefinition unless Airflow can call a DAG or a task so.

    A dash in front would make it an option on a command line, a dot a path in a URL.
    """
    if not isinstance(name, str) or not _ID.fullmatch(name) or len(name) > longest:
        raise InvalidDefinition(
            f"{what}: {name!r} is not a valid name",
            remedy="use letters, digits, dots, dashes and underscores, a letter, a digit or an "
            f"underscore first, and at most {longest} characters.",
        )


def check_database(what: str, name: str) -> None:
    """Raise InvalidDefinition unless an environment variable can be made of it."""
    if not _DATABASE.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InvalidDefinition(
            f"{what}: {name!r} is not a valid name",
            remedy="use letters without accents, digits, dots, dashes and underscores, a letter or "
            f"a digit first, and at most {LONGEST_NAME} characters: RELIABILITY_DSN_NAME is made "
            "of it, and it names a libpq service.",
        )


def _invalid(what: str, name: object, why: str) -> InvalidDefinition:
    return InvalidDefinition(
        f"{what}: the name {name!r} {why}",
        remedy=f"use any text of 1 to {LONGEST_NAME} bytes without blanks around it.",
    )


# --- derived names -------------------------------------------------------------------------------


def fitted(name: str, longest: int = LONGEST_NAME) -> str:
    """Return the name if it has at most `longest` bytes; otherwise cut, with a hash of all of it.

    >>> fitted("_total_count"), fitted("_" + "a" * 60 + "_count", 30)
    ('_total_count', '_aaaaaaaaaaaaaaaaaaaa~3ca2c0a9')
    """
    if len(name.encode()) <= longest:
        return name
    digest = _hash(name)
    return f"{_cut(name, longest - len(digest) - 1)}~{digest}"


def contribution_table_of(topology: str, state: str) -> str:
    """Return the table with the contributions of a state, in 63 bytes.

    Names in lower snake case are used as they are. Of others the table has what it can, and a hash
    behind three underscores, which tells it from every table without one.

    >>> contribution_table_of("shop", "days"), contribution_table_of("Shop.EU", "Umsatz je Tag")
    ('shop__days', 'shop_eu__umsatz_je_tag___d83a7348')
    """
    plain = f"{topology}__{state}"
    words = [re.sub("[^a-z0-9]+", "_", part.lower()).strip("_") for part in (topology, state)]
    if [topology, state] == words and len(plain) <= LONGEST_NAME:
        return plain
    digest = _hash(f"{topology}\0{state}")
    most = LONGEST_NAME - len(digest) - len("_____")
    second = words[1][: max(most // 2, most - len(words[0]))]
    return f"{words[0][: most - len(second)]}__{second}___{digest}"


def session_name(name: str) -> str:
    """Return an `application_name` that Postgres keeps as it is: 63 bytes of ASCII.

    What begins alike would end alike if Postgres cut it, such as a topology's two attempts.
    """
    return fitted(name.encode("ascii", "backslashreplace").decode())


def variable_of(database: str) -> str:
    """Return the environment variable with the DSN of a database; "" is the ledger's own.

    >>> variable_of("shop"), variable_of("Shop-EU.2")
    ('RELIABILITY_DSN_SHOP', 'RELIABILITY_DSN_SHOP_EU_2')
    """
    return f"RELIABILITY_DSN_{upper_name(database)}" if database else "RELIABILITY_DSN"


def upper_name(name: str) -> str:
    """Return what stands for a name in an environment variable's.

    >>> upper_name("Shop-EU.2")
    'SHOP_EU_2'
    """
    return re.sub("[^A-Z0-9]", "_", name.upper())


def metric_of(topology: str) -> str:
    """Return a topology's part of a metric's name, in which Airflow takes ASCII only.

    >>> metric_of("shop.eu-1"), metric_of("Umsätze")
    ('shop.eu-1', 'Ums_tze')
    """
    return re.sub("[^A-Za-z0-9_.-]", "_", topology)


def prefix_of(topology: str) -> str:
    """Return how the names of a topology's temporary files begin; a file's has up to 255 bytes.

    >>> prefix_of("shop"), len(prefix_of("ü" * 250).encode())
    ('reliability-shop-', 75)
    """
    return f"reliability-{_cut(topology, LONGEST_NAME)}-"


def _cut(name: str, most: int) -> str:
    return name.encode()[:most].decode(errors="ignore")


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def source_of_table(database: str, place: Sequence[str]) -> str:
    """Return what the ledger calls a table that a spout reads.

    >>> source_of_table("", ("public", "orders"))
    'table:/public.orders'
    """
    return f"{TABLE_SOURCE}{database}/{'.'.join(place)}"


# --- schema.table --------------------------------------------------------------------------------


def name_of_table(*parts: str) -> str:
    """Return the name of a table as Postgres reads it, with quotes only where it needs them.

    >>> print(name_of_table("public", "days"), name_of_table("Sales.2026", 'the "days"'))
    public.days "Sales.2026"."the ""days\"""
    """
    return ".".join(
        part if _PLAIN.fullmatch(part) else '"{}"'.format(part.replace('"', '""')) for part in parts
    )


def parts_of(name: str) -> list[str]:
    """Split a name at its dots; a part with a dot or a quote of its own stands in double quotes.

    A part without quotes is taken as it is written: nothing becomes lower case.

    :raises ValueError: a quote has no end, or a part is empty

    >>> parts_of('Sales.days'), parts_of('"Sales.2026"."the ""days\"""')
    (['Sales', 'days'], ['Sales.2026', 'the "days"'])
    """
    parts, end = [], 0
    while match := _PART.match(name, end):
        parts.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        end = match.end()
        if end == len(name):
            return parts
        if name[end] != ".":
            break
        end += 1
    raise ValueError(name)
