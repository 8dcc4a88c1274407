"""The way of a txid: ask the pure `next_action` what is to be done, do it, ask again.

Airflow's tasks and `reliability replay` go it alike, so they are fenced alike: what a process left
behind when it died is given up by any sweep, and another run that wants the txid waits. What they
differ in are their hands: how a step is submitted, how one waits, who is told.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reliability.core.attempt import Grant
from reliability.core.coordinator import (
    Begin,
    Commit,
    Done,
    DryRun,
    Fail,
    Seal,
    Submit,
    Wait,
    Work,
)
from reliability.core.errors import AttemptIncomplete, PredecessorFailed
from reliability.runner import TransactionRunner
from reliability.transaction.commit.apply import DifferenceObserver
from reliability.transaction.commit.dry_run import DryRunResult
from reliability.transaction.commit.plan import Committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What one task, or one call of the command line, is there for.

    :param work: the step that is to be processed, or that the txid is to be committed
    """

    txid: int
    request_id: int
    work: Work


class Hands(Protocol):
    """What is done by other means in a task of Airflow than on the command line."""

    def check(self) -> None:
        """Raise if nothing could be submitted; asked before an attempt begins."""

    def submit(self, grant: Grant, step: str) -> None:
        """Run a step on Spark to its end; raise if it failed. That it did not proves nothing."""

    def wait(self, wait: Wait) -> None:
        """Return when it is time to ask again, or leave, to come back later."""

    def committed(self, committed: Sequence[Committed]) -> None:
        """Be told what has committed: this txid, and whatever was due with it."""

    def tell(self, what: str, level: int = logging.INFO) -> None:
        """Be told what happens."""


def advance(
    runner: TransactionRunner,
    errand: Errand,
    hands: Hands,
    observer: DifferenceObserver | None = None,
) -> DryRunResult | None:
    """Do whatever is lacking until the errand is done, be it the work of others (rule R4).

    :param witness: looks at the rows that a dry run finds different
    :return: what a dry run has found
    :raises ReliabilityError: it cannot be done now, or ever; whoever asks again begins here
    """
    txid, request_id = errand.txid, errand.request_id
    while True:
        action = runner.next_action(txid, request_id, errand.work)
        match action:
            case Done():
                return None
            case Fail(error=error):
                raise error
            case Wait():
                hands.wait(action)
            case Commit():
                committed = runner.commit(txid)
                hands.committed(committed)
                if not committed:  # somebody else is faster, or it is not due any more
                    hands.wait(Wait("its commit"))
            case DryRun():
                return runner.rehearse(txid, request_id, observer)
            case Begin() | Submit() | Seal():
                try:
                    _process(runner, errand, hands, action)
                except PredecessorFailed as fallen:
                    # nobody's fault here: it waits for the predecessor and begins again
                    hands.tell(str(fallen), logging.WARNING)


def _process(
    runner: TransactionRunner, errand: Errand, hands: Hands, action: Begin | Submit | Seal
) -> None:
    """Do one act of the processing phase; what is gone meanwhile is decided anew."""
    txid, request_id, work = errand.txid, errand.request_id, errand.work
    match action:
        case Begin():
            hands.check()
            grant = runner.begin(txid, request_id, work)
            if grant is not None:
                hands.tell(f"attempt {grant.attempt} begins")
        case Submit(step=step):
            grant = runner.claim_step(txid, request_id, step, work)
            if grant is not None:
                hands.tell(f"attempt {grant.attempt}: step {step} runs on Spark")
                _submit(runner, hands, grant, step)
        case Seal():
            grant = runner.live_grant(txid, request_id)
            if grant is not None:
                runner.seal(grant, work.task)
                hands.tell(f"attempt {grant.attempt} is processed")


def _submit(runner: TransactionRunner, hands: Hands, grant: Grant, step: str) -> None:
    """Run a step, and end it by what lies in the ledger."""
    try:
        hands.submit(grant, step)
    except Exception as error:
        # Its JVM is gone, its Python may live on: fence it before anything else is tried.
        first_line = str(error).split("\n", 1)[0][:300]
        what = f"spark-submit ended before the attempt was complete ({first_line})"
        runner.end_attempt(grant, AttemptIncomplete(what), fence=True)
        raise runner.error_of(grant) from error
    runner.end_step(grant, step)
