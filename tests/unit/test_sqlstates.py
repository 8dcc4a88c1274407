"""Each SQLSTATE of Postgres means something, by decision and not by psycopg2's base class."""

from __future__ import annotations

import psycopg2
import psycopg2.errors
import pytest
from psycopg2 import errorcodes

from reliability.core.errors import (
    LedgerFull,
    LedgerRefusedLogin,
    LedgerUnavailable,
    Transient,
    UnexpectedAnswer,
    error_from_ledger,
)
from reliability.core.sqlstate import KINDS, Kind, kind_of
from reliability.ledger.failures import translate

NAMES = {
    code: name
    for name, code in vars(errorcodes).items()
    if name.isupper() and isinstance(code, str)
}
CLASSES = {code for code in NAMES if len(code) == 2}
CODES = set(NAMES) - CLASSES
# All that is waited for; everything else is told at once.
OUTAGES = [
    *("08000", "08001", "08003", "08004", "08006", "08007", "25P03", "25P04", "40003"),
    *("57000", "57P01", "57P02", "57P03", "57P04", "57P05"),
    *("58000", "58030", "HV00N"),
]
FULL = ["53000", "53100", "53300"]
BUSY = ["40000", "40001", "40P01", "55P03", "57014", "72000"]
LOGINS = ["28000", "28P01", "3D000"]


def test_every_class_of_sqlstates_is_decided_on_and_no_other():
    """C5: a class that a new driver knows has to be looked at."""
    assert {code for code in KINDS if len(code) == 2} == CLASSES
    assert {code for code in KINDS if len(code) == 5} <= CODES


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (Kind.OUTAGE, OUTAGES),
        (Kind.FULL, FULL),
        (Kind.BUSY, BUSY),
        (Kind.LOGIN, LOGINS),
        (Kind.RIGHT, ["42501"]),
    ],
)
def test_only_these_are(kind, codes):
    """C5: one row that was too large was taken for an outage, and stopped its topology."""
    assert {code for code in CODES if kind_of(code) is kind} == set(codes)


def test_an_error_that_ends_the_session_is_an_outage():
    assert kind_of("XX000") is Kind.REFUSAL
    assert kind_of("XX000", ends_session=True) is Kind.OUTAGE


@pytest.mark.parametrize("code", ["54000", "55000", "53400", "58P01", "XX000", "HV000", "08P01"])
def test_a_refusal_is_told_although_the_driver_calls_it_operational(code):
    """C5"""
    error = psycopg2.errors.lookup(code)("index row size 4016 exceeds")
    assert kind_of(code) is Kind.REFUSAL
    assert isinstance(error, psycopg2.OperationalError | psycopg2.InternalError)


AT = 'connection to server at "db" (10.0.0.1), port 5432 failed: '


@pytest.mark.parametrize(
    "said",
    [
        AT + 'FATAL:  password authentication failed for user "etl"',
        AT + 'FATAL:  PAM authentication failed for user "etl"',
        AT + 'FATAL:  LDAP authentication failed for user "etl"',
        AT + 'FATAL:  certificate authentication failed for user "etl"',
        AT + 'FATAL:  role "etl" does not exist',
        AT + 'FATAL:  role "etl" is not permitted to log in',
        AT + 'FATAL:  database "warehouse" does not exist',
        AT + 'FATAL:  permission denied for database "warehouse"',
        AT + 'FATAL:  no pg_hba.conf entry for host "10.0.0.2", user "etl", database "x", no SSL',
        AT + "FATAL:  kein pg_hba.conf-Eintrag für Host »10.0.0.2«, Benutzer »etl«, Datenbank »x«",
        AT + "fe_sendauth: no password supplied",
        AT + "FATAL:  SASL authentication failed",
        AT + "FATAL:  Tenant or user not found",
        AT + "FATAL:  no such database: warehouse",
        AT + "FATAL:  connection requires a valid client certificate",
    ],
)
def test_a_refused_login_is_no_outage(said):
    """S5: an expired token of RDS was waited for as if the server were away."""
    error = translate(psycopg2.OperationalError(said))
    assert type(error) is LedgerRefusedLogin


@pytest.mark.parametrize(
    "said", ['definition of service "reliability" not found', 'service file "/etc/x" not found']
)
def test_without_an_address_the_error_says_how_to_give_one(said):
    """A new user was told to check a user and a password that were nowhere."""
    error = translate(psycopg2.OperationalError(said))
    assert type(error) is LedgerRefusedLogin
    assert "airflow connections add reliability_default" in error.what_to_do


@pytest.mark.parametrize(
    "error",
    [
        psycopg2.OperationalError(AT + "Connection refused\n\tIs the server running?"),
        psycopg2.OperationalError(AT + "FATAL:  the database system is starting up"),
        psycopg2.OperationalError("server closed the connection unexpectedly"),
        psycopg2.OperationalError("SSL SYSCALL error: EOF detected"),
        psycopg2.InterfaceError("connection already closed"),
        psycopg2.DatabaseError("error with status PGRES_TUPLES_OK and no message from the libpq"),
    ],
)
def test_a_server_that_does_not_answer_is_an_outage(error):
    assert type(translate(error)) is LedgerUnavailable


@pytest.mark.parametrize(
    "said",
    [
        AT + "FATAL:  sorry, too many clients already",
        AT + 'FATAL:  too many connections for role "etl"',
        AT + "FATAL:  remaining connection slots are reserved for roles with SUPERUSER",
        AT + "FATAL:  no more connections allowed (max_client_conn)",
        AT + "FATAL:  Max client connections reached",
    ],
)
def test_a_server_without_a_place_is_waited_for_and_told_as_full(said):
    """A person was told to check that it runs; so was one whose driver had recorded a full disk."""
    error = translate(psycopg2.OperationalError(said))
    assert type(error) is LedgerFull
    assert isinstance(error, LedgerUnavailable)
    assert "more disk or sessions" in error_from_ledger(error.code, error.what).what_to_do


def test_an_error_of_the_drivers_own_is_no_outage():
    error = translate(psycopg2.ProgrammingError("no results to fetch"))
    assert type(error) is UnexpectedAnswer
    assert isinstance(error, Transient)
