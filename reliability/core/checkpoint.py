"""The checkpoint: how one change of the states goes through several databases, or through none.

After Storm's CheckPointState and CheckpointSpout; it counts commit numbers c, not txids, because
a replay of txid 5 is a change like any other (C2). A checkpoint may take several, k of them::

    COMMITTED(c) ─► PREPARING(c+k) ─ all voted ─► COMMITTING(c+k) ─ all did ─► COMMITTED(c+k)
                          │
                          └─► COMMITTED(c): a vote failed, or the driver died

COMMITTING never goes back: some may have committed. If a database cannot commit what is decided, a
rollback may take its place: who has c + k undoes it, the others drop it (C6)::

    COMMITTING(c+k) ─ all voted for a rollback ─► COMMITTING(c+k+1) ─ all did ─► COMMITTED(c+k+1)

In the originals a late message can do harm: any fail triggers recovery, and an ack is taken for
whatever is under way. Here a message carries action, c and epoch, and is compared before anything
changes; votes are the names of the participants, never a count, so nobody votes twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from reliability.core.errors import CheckpointMismatch, CheckpointTakenOver

COORDINATOR = ""  # the participant that is the ledger's own database


class Phase(str, Enum):
    """Where a checkpoint stands; only COMMITTED lets the next one begin."""

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
    """A phase and the commit number that it leads to, or that is reached.

    :param size: how many commit numbers the checkpoint takes, 1 once it is COMMITTED
    :param dropped: how many before these were decided, and are not taken where they lack

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
        """Say whether nothing is under way: the next checkpoint may begin."""
        return self.phase is Phase.COMMITTED

    @property
    def participants_at(self) -> tuple[int, ...]:
        """Return the commit numbers that a participant may be at: before the decision none moves.

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
        """Return what the participants are asked next.

        Recovering, PREPARING is rolled back because not all may have prepared, and COMMITTING
        goes forward because some may have committed.
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
        """Return what follows when all participants did `next_action`.

        The same object comes back when there was nothing to repair: then recovery is complete.

        :param size: how many commit numbers the next checkpoint takes, if one begins here
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

    def given_way(self, dropped: int) -> CheckpointState:
        """Return the decision for a rollback in the place of the decision that is here.

        :param dropped: how many commit numbers some participants have not taken

        >>> CheckpointState(Phase.COMMITTING, 7, 3).given_way(dropped=3)
        CheckpointState(phase=<Phase.COMMITTING: 'COMMITTING'>, commit_number=8, size=1, dropped=3)
        """
        if self.phase is not Phase.COMMITTING:
            raise CheckpointMismatch(f"{self} is not decided: there is nothing to give way")
        return CheckpointState(Phase.COMMITTING, self.commit_number + 1, dropped=dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One action asked of every participant; acks and fails carry it back.

    :param dropped: a participant may lack so many commit numbers before these
    """

    action: CheckpointAction
    commit_number: int
    size: int
    epoch: int
    dropped: int = 0


class Answer(str, Enum):
    """What a participant makes of a message."""

    APPLY = "APPLY"
    DONE = "DONE"


def judge(message: Message, *, last: int, known_epoch: int) -> Answer:
    """Decide what a participant does with a message: apply the plan, or nothing because it is done.

    :param last: the last c that the participant has applied
    :param known_epoch: the greatest epoch that it has heard of
    :raises CheckpointTakenOver: the message is of an older epoch: its driver was given up
    :raises CheckpointMismatch: there is a gap between the participant and the message
    """
    if message.epoch < known_epoch:
        raise CheckpointTakenOver(
            f"epoch {message.epoch} is over, epoch {known_epoch} has begun; c={last} is applied"
        )
    if message.action is CheckpointAction.ROLLBACK:
        return Answer.DONE  # what was prepared was rolled back at once; the epoch is the fence
    wanted = message.commit_number
    if message.action is CheckpointAction.INIT_STATE:
        if last != wanted:
            raise CheckpointMismatch(f"it has applied c={last}, and the coordinator c={wanted}")
        return Answer.DONE
    if last >= wanted:
        return Answer.DONE
    first = wanted - message.size
    if not first - message.dropped <= last <= first:
        raise CheckpointMismatch(
            f"it has applied c={last}, and is asked for c={first + 1} to {wanted}"
        )
    if message.action is CheckpointAction.PREPARE and message.epoch > known_epoch:
        raise CheckpointMismatch(f"it was initialised in epoch {known_epoch}, not {message.epoch}")
    return Answer.APPLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """One driver's way through the table, from its first look at the checkpoint on.

    It starts recovering, whatever it finds: a COMMITTED checkpoint is initialised, so that a
    participant that was restored from a backup is noticed before anything is built on it.

    :param participants: everybody who has to vote on every action
    :param asked: the action under way, None when the next one may be asked
    :param votes: who has done it
    """

    state: CheckpointState
    epoch: int
    participants: frozenset[str]
    recovering: bool = True
    asked: Message | None = None
    votes: frozenset[str] = frozenset()

    @property
    def is_idle(self) -> bool:
        """Say whether a new checkpoint may begin."""
        return self.asked is None and not self.recovering and self.state.is_at_rest

    @property
    def lacks(self) -> frozenset[str]:
        """Return who has not voted on what is under way."""
        return self.participants - self.votes

    def begin(self, size: int) -> Drive:
        """Begin the next checkpoint; it has to be durable before anybody is asked."""
        return replace(self, state=self.state.next_state(recovering=False, size=size))

    def ask(self) -> Drive:
        """Ask for the next action; nothing new is asked while one is under way."""
        if self.asked is not None:
            return self
        message = Message(
            action=self.state.next_action(self.recovering),
            commit_number=self.state.commit_number,
            size=self.state.size,
            epoch=self.epoch,
            dropped=self.state.dropped,
        )
        return replace(self, asked=message, votes=frozenset())

    def give_way(self, dropped: int) -> Drive:
        """Let a rollback take the place of what is decided; everybody has voted for it."""
        state = self.state.given_way(dropped)
        return replace(self, state=state, recovering=True, asked=None, votes=frozenset())

    def ack(self, message: Message, participant: str) -> Drive:
        """Count a participant's vote; a message about anything else changes nothing."""
        if message != self.asked or participant not in self.participants:
            return self
        return replace(self, votes=self.votes | {participant})

    def fail(self, message: Message) -> Drive:
        """Recover: the table says whether back or forward. A stale fail changes nothing."""
        if message != self.asked:
            return self
        return replace(self, recovering=True, asked=None, votes=frozenset())

    def go_on(self) -> Drive:
        """Go on to the next state if everybody has voted; else stay."""
        if self.asked is None or self.lacks:
            return self
        state = self.state.next_state(self.recovering)
        return replace(
            self,
            state=state,
            recovering=self.recovering and state is not self.state,
            asked=None,
            votes=frozenset(),
        )
