"""Audits are checked when a state is defined."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, cast

import pytest

from reliability import Count, State, Sum, audit, in_range, not_null, references, unique
from reliability.core.audits import AuditOutcome, Of, Severity, refuse_violations
from reliability.core.errors import AuditFailed, InvalidDefinition, LedgerBusy

CONTRIBUTION, WARN = Of.CONTRIBUTION, Severity.WARN
OWN = "SELECT 1 FROM {table}"


def state(*audits):
    values = {"n": Count(), "total": Sum("price")}
    return State("sales", key={"day": "date"}, values=values, audits=audits)


@pytest.mark.parametrize(
    ("defined", "of", "severity"),
    [
        (not_null("day", "n"), Of.CONTRIBUTION, Severity.ERROR),
        (not_null("day", of="table", severity="warn"), Of.TABLE, Severity.WARN),
        (in_range("n", least=0), Of.CONTRIBUTION, Severity.ERROR),
        (in_range("total", most=Decimal("1e6"), of="table"), Of.TABLE, Severity.ERROR),
        (in_range("day", least=date(2026, 1, 1), most="infinity"), Of.CONTRIBUTION, Severity.ERROR),
        (references("day", "calendar.day"), Of.CONTRIBUTION, Severity.ERROR),
        (references("day", "mart.calendar.day", of="table"), Of.TABLE, Severity.ERROR),
        (unique("n", "total"), Of.TABLE, Severity.ERROR),
        (unique("n", of="contribution"), Of.CONTRIBUTION, Severity.ERROR),
        (audit("own", OWN), Of.TABLE, Severity.ERROR),
        (audit("x" * 100, OWN), Of.TABLE, Severity.ERROR),
        (audit("own", "SELECT '{}', 1 FROM {contribution};", severity="warn"), CONTRIBUTION, WARN),
    ],
)
def test_an_audit_says_what_it_looks_at(defined, of, severity):
    assert state(defined).audits == (defined,)
    assert (defined.of, defined.severity) == (of, severity)


@pytest.mark.parametrize(
    ("define", "says"),
    [
        (lambda: state(not_null("dya")), "names the column dya, .*columns are day, n, total"),
        (lambda: state(unique("n", "_txid")), "names the column _txid"),
        (
            lambda: state(in_range("n", least=0), in_range("n", least=0)),
            r"two .*in_range\(n, least",
        ),
        (lambda: state(audit("own", OWN), audit("own", OWN)), "two audits with the name own"),
        (lambda: state(audit(" ", OWN)), "1 to 100 characters"),
        (lambda: state(audit("x" * 101, OWN)), "1 to 100 characters"),
        (lambda: state("SELECT 1"), "is not an audit.*use not_null"),
        (lambda: not_null("n", severity="fatal"), 'severity=\'fatal\'.*"error" or "warn"'),
        (lambda: unique("n", of="tabel"), 'of=\'tabel\'.*"contribution" or "table"'),
        (lambda: not_null(), "names no column"),
        (lambda: unique(), "names no column"),
        (lambda: in_range("n"), "no bound.*set least= or most="),
        (lambda: in_range("n", least=True), "True cannot be a bound"),
        (lambda: in_range("n", most=cast("Any", [1])), "cannot be a bound"),
        (lambda: references("n", "calendar"), "write schema.table.column"),
        (lambda: references("n", "a.b.c.d"), "write schema.table.column"),
        (lambda: references("n", "a..c"), "write schema.table.column"),
        (lambda: audit("own", "SELECT 1 FROM sales"), "neither .*read FROM {contribution}"),
        (lambda: audit("own", OWN + ", {contribution}"), "both"),
    ],
)
def test_what_cannot_be_audited_is_refused(define, says):
    with pytest.raises(InvalidDefinition, match=says):
        define()


def outcome(**found):
    return AuditOutcome(**{"state": "s", "name": "a", "of": Of.TABLE, "violations": 0, **found})


@pytest.mark.parametrize(
    ("found", "error", "says"),
    [
        ({}, None, "found 0 violations"),
        ({"violations": 2}, AuditFailed, "found 2 violations"),
        ({"violations": 2, "severity": WARN}, None, "found 2 violations"),
        ({"violations": None}, None, "has no result"),
        ({"violations": None, "problem": "no x", "error_code": "42703"}, AuditFailed, "run: no x"),
        ({"violations": None, "problem": "locked", "error_code": "55P03"}, LedgerBusy, "locked"),
    ],
)
def test_what_an_audit_finds_fails_the_attempt_or_is_tried_again(found, error, says):
    """C5: a lock that was not granted says nothing about the rows."""
    one = outcome(**{"severity": Severity.ERROR, **found})
    assert says in str(one)
    with nullcontext() if error is None else pytest.raises(error, match=says):
        refuse_violations([one])


def test_audits_are_no_part_of_the_definition():
    """They may change at any time, as `keep` may."""
    audited = state(not_null("n"), audit("own", OWN))
    assert audited.digest() == replace(audited, audits=()).digest()
    assert State.from_definition(audited.definition()).audits == ()
