"""Drive the checkpoint of a topology whose states lie in several databases (C2, C6, G3).

1. Save PREPARING(c+k) with its plan. Every database tries the whole commit and rolls it back.
2. If all voted yes, save COMMITTING(c+k). This is the decision.
3. Every other database commits. The coordinator's own commits last, together with COMMITTED(c+k).

The next driver, which commits or sweeps, first repairs what a dead driver left: it rolls PREPARING
back, rolls COMMITTING forward, and compares COMMITTED with every database. No transaction stays
prepared in Postgres, and no lock is held from one step to the next.

If a database cannot commit the decided change, a rollback must replace it (`_replace_by_rollback`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from reliability.core.audits import refuse_violations
from reliability.core.checkpoint import COORDINATOR, CheckpointAction, Drive, Message, Phase
from reliability.core.difference import Difference
from reliability.core.errors import (
    CheckpointMismatch,
    CheckpointStuck,
    CheckpointTakenOver,
    LedgerBusy,
    ReliabilityError,
    RollbackNotPossible,
)
from reliability.core.plan import Plan, dropped_by
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection, Row
from reliability.ledger.locks import holding, lock_topology
from reliability.states.audit_sql import log_violations
from reliability.transaction.commit.apply import (
    REFUSALS,
    AppliedPlan,
    Planner,
    RefusedPlan,
    apply_plan,
    finish_requests,
    plan_nothing,
)
from reliability.transaction.commit.participant import Participant, rolled_back
from reliability.transaction.commit.saved_checkpoint import (
    SavedCheckpoint,
    change_at,
    checkpoint_of,
    save_checkpoint,
)
from reliability.transaction.topology.databases import TopologyDatabases

logger = logging.getLogger(__name__)
# A driver that holds the lock without progress for this long hangs, or a pooler has given its
# session, and the lock with it, to other clients.
DRIVER_SILENCE_SECONDS = 900
MAX_COMMIT_TRIES = 2


class Checkpoint:
    """One driver's session with a topology's checkpoint; do not use it again after an error.

    It has the steps of Storm's CheckpointSpout: `next_action` emits a message, `carry_out` sends it
    to all participants and counts their acks, and `fail` records a refusal.
    """

    def __init__(self, participants: TopologyDatabases, patience: int) -> None:
        self.participants = participants
        self.topology = participants.topology
        self.connection = participants.coordinator
        self.patience = patience
        self.plan: Plan = ()
        self._drive: Drive | None = None
        self._decided_before: int | None = None
        self._differences: list[Difference] = []

    @property
    def drive(self) -> Drive:
        """The progress of this driver; available once `begin_epoch` has returned True."""
        assert self._drive is not None
        return self._drive

    def change(
        self, planner: Planner, *, may_drop: bool = False
    ) -> AppliedPlan | RefusedPlan | None:
        """Repair what a predecessor left, then take one checkpoint from PREPARING to COMMITTED.

        Returns the applied plan, the plan that its data made a database refuse, or None if nothing
        is due.

        :param planner: plans the change under the topology's lock
        :param may_drop: the change is a rollback, and may replace a decided change
        :raises CheckpointStuck: the change is decided, and a database cannot commit it
        :raises CheckpointTakenOver: another driver has taken over
        :raises ReliabilityError: a database did not vote, for example because it is down; the
            attempts of the plan stay PROCESSED
        """
        if self._drive is None and not self.begin_epoch(planner):
            return None
        tries = 0
        while (message := self.next_action(planner)) is not None:
            plan = self.plan
            failures = self.carry_out(message)
            match message.action, bool(failures):
                case CheckpointAction.COMMIT, False:
                    return AppliedPlan(plan, tuple(self._differences))
                case CheckpointAction.COMMIT, True:
                    tries += 1
                    if tries == MAX_COMMIT_TRIES:
                        stuck = self._stuck(message, failures)
                        # a change that this driver has decided gets another call first
                        if not may_drop or message.commit_number != self._decided_before:
                            raise stuck
                        self._replace_by_rollback(planner, stuck)
                        tries = 0
                case CheckpointAction.PREPARE, True:
                    return self._roll_back(plan, _cause(failures))
                case _, True:
                    raise _cause(failures)
        return None

    def begin_epoch(self, planner: Planner) -> bool:
        """Begin a new epoch; return False if there is nothing to repair or to commit."""
        with self._holding() as (tx, locked):
            before = checkpoint_of(locked)
            is_at_rest = before.state.is_at_rest
            if is_at_rest and not planner(tx):
                return False
            saved = replace(before, epoch=before.epoch + 1)
            save_checkpoint(tx, self.topology, before, saved)
        if not is_at_rest:
            logger.warning(
                "repairing the checkpoint of %s, found at %s", self.topology, before.state
            )
        self.plan = saved.plan
        if before.state.phase is Phase.COMMITTING:
            self._decided_before = before.state.commit_number
        self._drive = Drive(
            state=saved.state,
            epoch=saved.epoch,
            participants=frozenset({*self.participants.others, COORDINATOR}),
        )
        return True

    def next_action(self, planner: Planner) -> Message | None:
        """Return the next message for every participant; PREPARING is durable before PREPARE.

        Returns None if nothing is due, or if the last message is still in progress.
        """
        if self.drive.asked is not None or (self.drive.is_idle and not self._begin(planner)):
            return None
        self._drive = self.drive.ask()
        return self.drive.asked

    def carry_out(self, message: Message) -> dict[str, ReliabilityError]:
        """Send a message to every participant, the coordinator last; go on if all ack.

        Returns the error of each participant that failed, by its name. The first failed vote on
        PREPARE ends the round. COMMIT continues: the decided change is committed in every database
        that can commit it, to keep the time short in which readers see two commit numbers.
        """
        failures: dict[str, ReliabilityError] = {}
        change = None
        if message.action is CheckpointAction.INIT_STATE:
            change = change_at(self.connection, self.topology, message.commit_number)
        for participant in self._participants():
            try:
                differences = participant.handle(message, self.plan, self.patience, change)
                if message.action is CheckpointAction.COMMIT:  # PREPARE was rolled back
                    self._differences += differences
            except CheckpointTakenOver:
                raise
            except ReliabilityError as error:
                failures[participant.name] = error
                if message.action is CheckpointAction.PREPARE:
                    break
            else:
                self.ack(message, participant.name)
        if self.drive.lacks == {COORDINATOR}:
            failures = self._vote_for_coordinator(message)
        if failures:
            self.fail(message)
        return failures

    def ack(self, message: Message, participant: str) -> None:
        """Count a vote; a late or repeated one changes nothing."""
        self._drive = self.drive.ack(message, participant)

    def fail(self, message: Message) -> None:
        """Recover, back or forward; a stale message changes nothing."""
        self._drive = self.drive.fail(message)

    # --- steps -----------------------------------------------------------------------------------

    def _begin(self, planner: Planner) -> bool:
        """Save PREPARING with the plan of what is due, before any participant is asked."""
        old = self._saved()
        with self._holding() as (tx, _):
            plan = planner(tx)
            if not plan:
                return False
            drive = self.drive.begin(len(plan))
            save_checkpoint(tx, self.topology, old, replace(old, state=drive.state, plan=plan))
        self._drive, self.plan, self._differences = drive, plan, []
        return True

    def _replace_by_rollback(self, planner: Planner, stuck: ReliabilityError) -> None:
        """Replace the decided change, which a database cannot commit, by a rollback (C6).

        1. Tell every database this epoch, so that no older driver can commit the dropped change.
        2. Every database tries the rollback and reverts it.
        3. Save COMMITTING(c+1) with the rollback as its plan. This is the decision.

        Nothing is durable before step 3; until then the next driver finds the old decision.

        :param stuck: why the change cannot be committed; it is part of every error raised here
        """
        if not isinstance(stuck, CheckpointStuck):
            raise stuck
        old = self._saved()
        try:
            drive, plan = self._vote_for_rollback(planner)
        except (LedgerBusy, CheckpointMismatch):
            raise
        except RollbackNotPossible as refused:
            raise RollbackNotPossible(f"{refused.what}; {stuck.what}") from refused
        except ReliabilityError as error:
            what = f"{stuck.what}; and a rollback cannot replace it: {error.what}"
            raise CheckpointStuck(what) from error
        with self._holding() as (tx, _):
            save_checkpoint(tx, self.topology, old, replace(old, state=drive.state, plan=plan))
        logger.warning("%s; a rollback replaces it", stuck.what)
        self._drive, self.plan = drive, plan
        self._differences, self._decided_before = [], None

    def _vote_for_rollback(self, planner: Planner) -> tuple[Drive, Plan]:
        """Do steps 1 and 2; return the progress after the decision, and the rollback's plan."""
        epoch = self.drive.epoch
        fence = Message.of(CheckpointAction.ROLLBACK, self.drive.state, epoch)
        self._ask_all(fence, self.plan)
        with self._holding() as (tx, _):
            plan = planner(tx)
        drive = self.drive.replace_by_rollback(dropped_by(plan))
        self._ask_all(Message.of(CheckpointAction.PREPARE, drive.state, epoch), plan)
        self._try_plan(plan)
        return drive, plan

    def _holding(self) -> AbstractContextManager[tuple[DatabaseTransaction, Row]]:
        return holding(self.connection, self.topology, self.patience)

    def _participants(self) -> Iterator[Participant]:
        for connection in self.participants:
            yield Participant(connection, self.topology)

    def _ask_all(self, message: Message, plan: Plan) -> None:
        for participant in self._participants():
            participant.handle(message, plan, self.patience)

    def _vote_for_coordinator(self, message: Message) -> dict[str, ReliabilityError]:
        """Give the coordinator's own vote, and save the next state with it."""
        try:
            if message.action is CheckpointAction.PREPARE:
                self._try_plan(self.plan)
            elif message.action is CheckpointAction.COMMIT:
                with _naming_ledger():
                    self._save_next(message)
                return {}
        except CheckpointTakenOver:
            raise
        except ReliabilityError as error:
            return {COORDINATOR: error}
        # An error here is not a vote: the next driver reads the ledger to see what was saved.
        self._save_next(message)
        return {}

    def _try_plan(self, plan: Plan) -> None:
        with _naming_ledger(), rolled_back(self.connection) as tx:
            lock_topology(tx, self.topology, self.patience)
            refuse_violations(apply_plan(tx, self.topology, plan).audits)

    def _save_next(self, message: Message) -> None:
        drive = self.drive.ack(message, COORDINATOR).go_on()
        old = self._saved()
        new = replace(old, state=drive.state, plan=() if drive.state.is_at_rest else self.plan)
        if new != old:
            with self._holding() as (tx, locked):
                if checkpoint_of(locked) != new:  # if equal, only the answer was lost (G8)
                    if message.action is CheckpointAction.COMMIT:
                        applied = apply_plan(tx, self.topology, self.plan)
                        log_violations(
                            f"{self.topology} c={new.state.commit_number}", applied.audits
                        )
                        self._differences += applied.differences
                        finish_requests(tx, self.topology, self.plan)
                    save_checkpoint(tx, self.topology, old, new)
        self._drive, self.plan = drive, new.plan

    def _roll_back(self, plan: Plan, cause: ReliabilityError) -> RefusedPlan:
        """After a failed vote, return to COMMITTED(c) once every database has acked ROLLBACK."""
        message = self.next_action(plan_nothing)
        assert message is not None
        if failures := self.carry_out(message):
            logger.warning("%s stays %s: %s", self.topology, self.drive.state, failures)
            raise cause
        if not isinstance(cause, REFUSALS):
            raise cause
        return RefusedPlan(plan=plan, error=cause)

    def _saved(self) -> SavedCheckpoint:
        """Return the row that the ledger has unless another driver has taken over."""
        return SavedCheckpoint(state=self.drive.state, epoch=self.drive.epoch, plan=self.plan)

    def _stuck(self, message: Message, failures: dict[str, ReliabilityError]) -> ReliabilityError:
        cause = _cause(failures)
        if isinstance(cause, CheckpointMismatch):
            return cause
        return CheckpointStuck(
            f"{self.topology}: c={message.commit_number} is decided and cannot be committed: "
            f"{'; '.join(error.what for error in failures.values())}"
        )


def _cause(failures: dict[str, ReliabilityError]) -> ReliabilityError:
    """Return the error to raise; if databases do not match, it names all of them."""
    mismatches = [e.what for e in failures.values() if isinstance(e, CheckpointMismatch)]
    if mismatches:
        return CheckpointMismatch("; ".join(mismatches))
    return next(iter(failures.values()))


@contextmanager
def _naming_ledger() -> Iterator[None]:
    """Name the ledger's own database in errors too, beside which those of others are named."""
    try:
        yield
    except ReliabilityError as error:
        error.what = f"database of the ledger: {error.what}"
        raise


@contextmanager
def driving(participants: TopologyDatabases, patience: int) -> Iterator[Checkpoint]:
    """Wait until no other driver has this topology's checkpoint, then drive it.

    :raises LedgerBusy: another driver holds the lock for longer than `patience` seconds
    """
    connection, topology = participants.coordinator, participants.topology
    has_lock = _lock_driver(connection, topology, patience)
    try:
        if has_lock:  # waiting drivers measure the silence from here, not from the last driver
            connection.run("show_driver", topology=topology)
        yield Checkpoint(participants, patience)
    finally:
        if has_lock:
            try:
                connection.run("unlock_driver", topology=topology)
            except ReliabilityError as error:
                logger.warning(
                    "the driver's lock was not released; it ends with its session: %s", error
                )


def _lock_driver(connection: LedgerConnection, topology: str, patience: int) -> bool:
    try:
        with connection.transaction(patience=patience) as tx:
            tx.run("lock_driver", topology=topology)
        return True
    except LedgerBusy:
        row = connection.one("is_silent", topology=topology, seconds=DRIVER_SILENCE_SECONDS)
        if not row["is_silent"]:
            raise
        logger.warning("the driver of %s hangs: taking over and fencing it", topology)
        return False
