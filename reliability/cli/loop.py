"""The operator's loop without Airflow: replay committed txids, each by a request of its own.

The same calls of the runner in the same order, so the same fencing: another run that wants the
txid waits, and what this process left behind when it died is given up by any sweep.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.coordinator import (
    Begin,
    Commit,
    Done,
    Fail,
    Rehearse,
    Seal,
    Submit,
    Wait,
    Work,
)
from reliability.core.difference import Difference
from reliability.core.errors import (
    AttemptIncomplete,
    NothingToReplay,
    PredecessorFailed,
    ReliabilityError,
    RunUnsatisfied,
    Transient,
)
from reliability.core.request import Request
from reliability.ledger.locks import lock_topology
from reliability.runner import TransactionRunner
from reliability.spark.submission import Submission
from reliability.transaction.apply import Witness
from reliability.transaction.attempt import is_processing
from reliability.transaction.begin import read_snapshot
from reliability.transaction.request import Run, TaskContact, contact_in, renew
from reliability.transaction.story import outdated_code, story

logger = logging.getLogger(__name__)
TASK = "replay"
LOOK_EVERY_SECONDS = 0.5
SWEEP_EVERY_SECONDS = 10.0

SubmitStep = Callable[[Submission, Callable[[], bool]], None]
"""Runs a step to its end; the second argument says whether anybody still wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay changed, or, of a dry run, would change.

    :param outdated_code: a warning, if it may have run old code
    """

    txid: int
    attempt: TransactionAttempt
    differences: tuple[Difference, ...]
    outdated_code: str | None


class Replaying:
    """One call of `reliability replay`: a run of its own, for some txids of a topology.

    :param module: where spark-submit finds the topology
    :param patience: how many seconds to wait for a txid's turn
    :param tell: is told what happens
    :param witness: txid, attempt_id -> who looks at the rows that a dry run finds different
    """

    def __init__(
        self,
        runner: TransactionRunner,
        submit: SubmitStep,
        run: Run,
        *,
        module: str,
        is_dry_run: bool = False,
        patience: float = 3600,
        tell: Callable[[str], None] = logger.info,
        witness: Callable[[int, int], Witness] | None = None,
    ) -> None:
        self.runner = runner
        self._door = runner.door
        self._topology = runner.topology.name
        self._work: Work = runner.topology.work(TASK)
        self._submit_step = submit
        self._who = TaskContact(run=run, task=TASK, max_tries=0, is_dry_run=is_dry_run)
        self._module = module
        self._patience = patience
        self._tell = tell
        self._witness = witness
        self._requests: Mapping[int, Request] = {}

    def ask(self, txids: Sequence[int], reason: str = "") -> None:
        """Open a request for each txid, or for none.

        :raises NothingToReplay: one of them has not committed
        """
        place = {"topology": self._topology}
        with self._door.transaction() as tx:
            lock_topology(tx, self._topology)
            committed = tx.all("committed_txids", txids=list(txids), **place)
            if missing := sorted(set(txids) - {row["txid"] for row in committed}):
                raise NothingToReplay(f"{self._topology}: txids {missing} have not committed")
            self._requests = {
                txid: contact_in(tx, self._topology, txid, self._who, may_open_first=True)
                for txid in txids
            }
            for request in self._requests.values():
                row: dict[str, Any] = {"request_id": request.request_id, "reason": reason or None}
                tx.run("record_reason_of_request", **row)

    def replay(self, txid: int) -> Replayed:
        """Do what is lacking until the txid is replayed, and tell what that changed."""
        # It was asked for with all the others, which may be long ago: a sweep may have given it up.
        request = self.runner.contact(txid, self._who)
        found = self._advance(txid, request.request_id)
        if found is None:
            found = self._told_by_ledger(txid, request)
        attempt, differences = found
        return Replayed(
            txid=txid,
            attempt=attempt,
            differences=differences,
            outdated_code=outdated_code(self._door, self._topology, attempt),
        )

    def give_up(self, reason: str) -> None:
        """Close what is not satisfied; what still runs for it is fenced.

        A ledger that is away now must not hide why that is; a sweep gives the requests up.
        """
        try:
            for txid in self._requests:
                self.runner.close(txid, self._who.run, reason)
        except ReliabilityError as error:
            logger.warning("error ignored while requests are closed: %s", error)

    # --- the loop --------------------------------------------------------------------------------

    def _advance(
        self, txid: int, request_id: int
    ) -> tuple[TransactionAttempt, tuple[Difference, ...]] | None:
        """Return what a dry run found; None once a replay is committed, whoever did it."""
        waits_since: float | None = None
        self.runner.sweep()
        while True:
            action = self.runner.next_action(txid, request_id, self._work)
            match action:
                case Done():
                    return None
                case Fail(error=error):
                    raise error
                case Rehearse():
                    return self._rehearse(txid, request_id)
                case Commit():
                    if not self.runner.commit(txid):  # somebody else is faster
                        action = Wait("its commit")
                case Begin() | Submit() | Seal():
                    try:
                        self._process(txid, request_id, action)
                    except PredecessorFailed as fallen:
                        self._tell(str(fallen))
            if isinstance(action, Wait):
                waits_since = waits_since or time.monotonic()
                self._wait(txid, request_id, action, waits_since)
            else:
                waits_since = None

    def _wait(self, txid: int, request_id: int, wait: Wait, since: float) -> None:
        waited = time.monotonic() - since
        if waited >= self._patience:
            raise RunUnsatisfied(
                f"txid {txid} of {self._topology} waited for {self._patience:g} s for "
                f"{wait.reason}",
                remedy="look at `reliability status`, and replay it again.",
            )
        self._tell(f"txid {txid} waits for {wait.reason}")
        if waited % SWEEP_EVERY_SECONDS < LOOK_EVERY_SECONDS:
            renew(self._door, request_id)
            self.runner.sweep()
        time.sleep(LOOK_EVERY_SECONDS)

    def _process(self, txid: int, request_id: int, action: Begin | Submit | Seal) -> None:
        """Do one act of the processing phase; what is gone meanwhile is decided anew."""
        match action:
            case Begin():
                grant = self.runner.begin(txid, request_id, self._work)
                if grant is not None:
                    self._tell(f"attempt {grant.attempt} begins")
            case Submit(step=step):
                grant = self.runner.claim_step(txid, request_id, step, self._work)
                if grant is not None:
                    self._submit(grant, step, request_id)
            case Seal():
                grant = self.runner.live_grant(txid, request_id)
                if grant is not None:
                    self.runner.seal(grant, TASK)
                    self._tell(f"attempt {grant.attempt} is processed")

    def _submit(self, grant: Grant, step: str, request_id: int) -> None:
        """Run a step, and end it by what lies in the ledger."""
        self._tell(f"attempt {grant.attempt}: step {step} runs on Spark")
        submission = Submission(module=self._module, grant=grant, step=step)
        try:
            self._submit_step(submission, partial(self._is_wanted, grant, request_id))
        except Exception as error:
            # Its JVM is gone, its Python may live on: fence it before anything else is tried.
            what = f"spark-submit ended before the attempt was complete ({error})"
            self.runner.end_attempt(grant, AttemptIncomplete(what), fence=True)
            raise self.runner.error_of(grant) from error
        self.runner.end_step(grant, step)

    def _is_wanted(self, grant: Grant, request_id: int) -> bool:
        try:
            renew(self._door, request_id)
            return is_processing(self._door, grant)
        except Transient as error:
            logger.warning("cannot watch attempt %s now: %s", grant, error)
            return True

    # --- what came of it -------------------------------------------------------------------------

    def _rehearse(
        self, txid: int, request_id: int
    ) -> tuple[TransactionAttempt, tuple[Difference, ...]]:
        snapshot, _ = read_snapshot(self._door, self._topology, txid, request_id)
        live = snapshot.live
        number = live.attempt_id if live else 0  # gone since: then rehearse() says so
        witness = self._witness(txid, number) if self._witness else None
        differences = self.runner.rehearse(txid, request_id, witness)
        return TransactionAttempt(txid, number), tuple(differences)

    def _told_by_ledger(
        self, txid: int, request: Request
    ) -> tuple[TransactionAttempt, tuple[Difference, ...]]:
        place = {"topology": self._topology, "txid": txid, "granted_after": request.granted_after}
        with self._door.transaction() as tx:
            number = tx.one("first_replay_after", **place)["attempt_id"]
        attempt = TransactionAttempt(txid, number)
        return attempt, story(self._door, self._topology, attempt).differences
