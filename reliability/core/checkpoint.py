"""The checkpoint protocol: apply one change of the states in one or several databases.

After Storm's CheckPointState and CheckpointSpout. It counts commit numbers c, not txids, because a
replay of txid 5 is a change like any other (C2). A checkpoint takes one or more of them, k::

    COMMITTED(c) ─► PREPARING(c+k) ─ all voted ─► COMMITTING(c+k) ─ all voted ─► COMMITTED(c+k)
                          │
                          └─► COMMITTED(c): a vote failed, or the driver died

COMMITTING never returns to COMMITTED(c): some databases may have committed. If a database cannot
commit the decided change, a rollback may replace it: databases that have c + k undo it, the others
drop it (C6)::

    COMMITTING(c+k) ─ all voted for a rollback ─► COMMITTING(c+k+1) ─ all voted ─► COMMITTED(c+k+1)

In Storm a late message can do harm: any fail triggers recovery, and an ack is counted for whatever
is in progress. Here a message carries action, c and epoch, which are compared before anything
changes. Votes are names of participants, not a count, so no participant votes twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from reliability.core.errors import CheckpointMismatch, CheckpointTakenOver

COORDINATOR = ""  # the participant in the ledger's own database


class Phase(str, Enum):
    """The phase of a checkpoint; the next one begins only after COMMITTED."""

    PREPARING = "PREPARING"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"


class CheckpointAction(str, Enum):
    """What every participant is asked to do."""

    PREPARE = "PREPARE"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    INIT_STATE = "INIT_STATE"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """A phase, and the commit number that it leads to or has reached.

    :param size: how many commit numbers the checkpoint takes; 1 once it is COMMITTED
    :param dropped: how many earlier commit numbers were decided and are dropped where not applied

    >>> preparing = CheckpointState(Phase.COMMITTED, 4).next_state(recovering=False, size=3)
    >>> preparing.phase.value, preparing.commit_number
    ('PREPARING', 7)
    >>> preparing.next_state(recovering=True).commit_number
    4
    """

    phase: Phase
    commit_number: int
    size: int = 1
    dropped: int = 0

    @property
    def is_at_rest(self) -> bool:
        return self.phase is Phase.COMMITTED

    @property
    def participants_at(self) -> tuple[int, ...]:
        """Return the commit numbers that a participant may have applied in this phase.

        >>> CheckpointState(Phase.COMMITTING, 7, 3).participants_at
        (4, 7)
        >>> CheckpointState(Phase.COMMITTING, 8, dropped=3).participants_at
        (4, 5, 6, 7, 8)
        """
        c, before = self.commit_number, self.commit_number - self.size
        match self.phase:
            case Phase.COMMITTED:
                return (c,)
            case Phase.PREPARING:
                return (before,)
            case Phase.COMMITTING:
                return (*range(before - self.dropped, before + 1), c)

    def next_action(self, recovering: bool) -> CheckpointAction:
        """Return the next action for the participants.

        In recovery, PREPARING is rolled back because some may not have prepared; COMMITTING goes
        forward because some may have committed.
        """
        match self.phase, recovering:
            case Phase.PREPARING, True:
                return CheckpointAction.ROLLBACK
            case Phase.COMMITTING, _:
                return CheckpointAction.COMMIT
            case Phase.COMMITTED, True:
                return CheckpointAction.INIT_STATE
        return CheckpointAction.PREPARE

    def next_state(self, recovering: bool, size: int = 1) -> CheckpointState:
        """Return the state that follows once all participants have done `next_action`.

        If there was nothing to repair, the same object is returned: recovery is complete.

        :param size: how many commit numbers the next checkpoint takes, if this begins one
        """
        match self.phase, recovering:
            case Phase.PREPARING, True:
                return CheckpointState(Phase.COMMITTED, self.commit_number - self.size)
            case Phase.PREPARING, False:
                return replace(self, phase=Phase.COMMITTING)
            case Phase.COMMITTING, _:
                return CheckpointState(Phase.COMMITTED, self.commit_number)
            case Phase.COMMITTED, False:
                return CheckpointState(Phase.PREPARING, self.commit_number + size, size)
        return self

    def replaced_by_rollback(self, dropped: int) -> CheckpointState:
        """Return the state in which a rollback has replaced the decided change.

        :param dropped: how many commit numbers some participants have not applied

        >>> CheckpointState(Phase.COMMITTING, 7, 3).replaced_by_rollback(dropped=3)
        CheckpointState(phase=<Phase.COMMITTING: 'COMMITTING'>, commit_number=8, size=1, dropped=3)
        """
        if self.phase is not Phase.COMMITTING:
            raise CheckpointMismatch(f"{self} is not decided: there is nothing to replace")
        return CheckpointState(Phase.COMMITTING, self.commit_number + 1, dropped=dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One action for every participant; acks and fails return it.

    :param dropped: how many commit numbers before these a participant may lack
    """

    action: CheckpointAction
    commit_number: int
    size: int
    epoch: int
    dropped: int = 0

    @classmethod
    def of(cls, action: CheckpointAction, state: CheckpointState, epoch: int) -> Message:
        """Return the message about the commit numbers that lead to a state."""
        c, size, dropped = state.commit_number, state.size, state.dropped
        return cls(action=action, commit_number=c, size=size, epoch=epoch, dropped=dropped)


class Answer(str, Enum):
    """How a participant answers a message."""

    APPLY = "APPLY"
    DONE = "DONE"


def judge(message: Message, *, last: int, known_epoch: int) -> Answer:
    """Decide whether a participant applies the plan of a message or has applied it already.

    :param last: the last c that the participant has applied
    :param known_epoch: the greatest epoch that the participant has seen
    :raises CheckpointTakenOver: the message has an older epoch: another driver has taken over
    :raises CheckpointMismatch: commit numbers are missing between the participant and the message
    """
    if message.epoch < known_epoch:
        raise CheckpointTakenOver(
            f"epoch {message.epoch} was replaced by epoch {known_epoch}; c={last} is applied"
        )
    if message.action is CheckpointAction.ROLLBACK:
        return Answer.DONE  # prepared work was rolled back at once; the epoch is the fence
    wanted = message.commit_number
    if message.action is CheckpointAction.INIT_STATE:
        if last != wanted:
            raise CheckpointMismatch(
                f"it has applied c={last}, but the coordinator expects c={wanted}"
            )
        return Answer.DONE
    if last >= wanted:
        return Answer.DONE
    first = wanted - message.size
    if not first - message.dropped <= last <= first:
        raise CheckpointMismatch(
            f"it has applied c={last}, but is asked for c={first + 1} to {wanted}"
        )
    if message.action is CheckpointAction.PREPARE and message.epoch > known_epoch:
        raise CheckpointMismatch(f"it was initialised in epoch {known_epoch}, not {message.epoch}")
    return Answer.APPLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """The progress of one driver through the protocol.

    It starts in recovery whatever the state is. A COMMITTED checkpoint is initialised again, which
    detects a participant that was restored from a backup before the next commit builds on it.

    :param participants: all who must vote on every action
    :param asked: the action in progress, None when the next one may be asked
    :param votes: the participants that have done it
    """

    state: CheckpointState
    epoch: int
    participants: frozenset[str]
    recovering: bool = True
    asked: Message | None = None
    votes: frozenset[str] = frozenset()

    @property
    def is_idle(self) -> bool:
        return self.asked is None and not self.recovering and self.state.is_at_rest

    @property
    def lacks(self) -> frozenset[str]:
        """Return the participants that have not voted on the current action."""
        return self.participants - self.votes

    def begin(self, size: int) -> Drive:
        """Begin the next checkpoint; make it durable before asking any participant."""
        return replace(self, state=self.state.next_state(recovering=False, size=size))

    def ask(self) -> Drive:
        """Ask for the next action, unless one is in progress."""
        if self.asked is not None:
            return self
        action = self.state.next_action(self.recovering)
        message = Message.of(action, self.state, self.epoch)
        return replace(self, asked=message, votes=frozenset())

    def replace_by_rollback(self, dropped: int) -> Drive:
        """Replace the decided change by a rollback, for which all participants have voted."""
        state = self.state.replaced_by_rollback(dropped)
        return replace(self, state=state, recovering=True, asked=None, votes=frozenset())

    def ack(self, message: Message, participant: str) -> Drive:
        """Count a participant's vote; ignore a message about another action."""
        if message != self.asked or participant not in self.participants:
            return self
        return replace(self, votes=self.votes | {participant})

    def fail(self, message: Message) -> Drive:
        """Recover, back or forward as `next_action` says. A stale fail changes nothing."""
        if message != self.asked:
            return self
        return replace(self, recovering=True, asked=None, votes=frozenset())

    def go_on(self) -> Drive:
        """Move to the next state if all participants have voted; else stay."""
        if self.asked is None or self.lacks:
            return self
        state = self.state.next_state(self.recovering)
        recovering = self.recovering and state is not self.state
        return replace(self, state=state, recovering=recovering, asked=None, votes=frozenset())
