"""A small model of the ledger, whose every state is visited: the product's own core decides in it.

The ledger is a value; each transaction with it is a function to the next value. What next_action,
next_plan, Standing and rollback_refusal decide is not written again here. What SQL decides is: the
conditions of its writes, as sql/queries/attempt.sql states them. A driver holds its grant from its
claim to its end, whatever happens to its attempt meanwhile: that is a zombie. An answer that is
lost is no move: who lost it asks the ledger again.

In bounds: three txids in a window of two, two attempts each; at most so many faults, replays,
rollbacks with their releases, and parks as a search begins with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reliability import ContributionState, Count
from reliability.core.clear_or_retry import kind_of_new_request
from reliability.core.coordinator import (
    AttemptStatus,
    Begin,
    Commit,
    Goal,
    LiveAttempt,
    Seal,
    StepProgress,
    Submit,
    Work,
    next_action,
)
from reliability.core.plan import ChangeKind, Due, Position, next_plan
from reliability.core.request import Request, RequestKind, RequestStatus
from reliability.core.rollback_check import rollback_refusal
from reliability.core.standing import PROCESSING, Standing

TXIDS = (1, 2, 3)
WINDOW = 2
ATTEMPTS = 2
STEP = "process"
REQUEST = 1
STATES = (ContributionState("totals", values={"n": Count()}),)
Key = tuple[int, int]  # (txid, attempt_id)
Move = tuple[str, int]  # what happens, and to which txid


@dataclass(frozen=True, slots=True)
class Live:
    """The live attempt of a txid; `is_own` says whether it was granted to the latest request."""

    attempt_id: int
    status: AttemptStatus
    is_own: bool = True
    is_claimed: bool = False
    is_done: bool = False
    lease_expired: bool = False


@dataclass(frozen=True, slots=True)
class Txid:
    """What the ledger has of a txid: its latest request, of one run, and its attempts.

    :param newest: its newest attempt, -1 if it has none
    """

    newest: int = -1
    live: Live | None = None
    committed: int | None = None
    is_held: bool = False
    kind: RequestKind = RequestKind.COMMIT
    status: RequestStatus = RequestStatus.OPEN
    granted_after: int = -1
    has_retried: bool = False  # its task is in a later try than the one that claimed the step


@dataclass(frozen=True, slots=True)
class World:
    """A state of the model.

    :param table: the attempts whose rows count in the target
    :param drivers: the drivers that run, by what they were granted
    :param staged: the attempts with all their rows
    """

    curr_txid: int = 1
    last_was_first: bool = False
    txids: tuple[Txid, ...] = (Txid(), Txid(), Txid())
    table: frozenset[Key] = frozenset()
    drivers: frozenset[Key] = frozenset()
    staged: frozenset[Key] = frozenset()
    faults: int = 0
    replays: int = 0
    rollbacks: int = 0
    parks: int = 0

    def of(self, txid: int) -> Txid:
        return self.txids[txid - 1]

    def numbered(self) -> Iterator[tuple[int, Txid]]:
        return zip(TXIDS, self.txids, strict=True)

    def having(self, txid: int, one: Txid, **others: object) -> World:
        """Return the state with another txid, and with other values."""
        txids = (*self.txids[: txid - 1], one, *self.txids[txid:])
        return replace(self, txids=txids, **others)  # type: ignore[arg-type]

    def position(self) -> Position:
        return Position(
            topology="model",
            curr_txid=self.curr_txid,
            last_was_first_commit=self.last_was_first,
            processed=tuple(
                Due(
                    txid=txid,
                    attempt_id=one.live.attempt_id,
                    nonce=str(one.live.attempt_id),
                    committed_attempt=one.committed,
                    staged_rows=1,
                )
                for txid, one in self.numbered()
                if one.live is not None and one.live.status is AttemptStatus.PROCESSED
            ),
        )

    def standing(self) -> Standing:
        return Standing(
            position=self.position(),
            max_spout_pending=WINDOW,
            max_replay_pending=1,
            paused=None,
            is_throttled=False,
            live={txid: live_attempt(one) for txid, one in self.numbered() if one.live is not None},
            unfrozen=frozenset(),
            held={txid: "rolled back" for txid, one in self.numbered() if one.is_held},
            skipped=frozenset(),
        )


def live_attempt(one: Txid) -> LiveAttempt:
    """Return it as the core reads it; an earlier try of the task has another name."""
    live = one.live
    assert live is not None
    claimed_by = None
    if live.is_claimed:
        claimed_by = "task" if one.has_retried else "task, this try"
    return LiveAttempt(
        attempt_id=live.attempt_id,
        status=live.status,
        request_id=REQUEST if live.is_own else None,
        lease_expired=live.lease_expired,
        steps={STEP: StepProgress(claimed_by=claimed_by, is_done=live.is_done)},
        nonce=str(live.attempt_id),
    )


def moves(world: World) -> Iterator[tuple[Move, World]]:
    """Yield all that can happen next, with the state after it."""
    standing = world.standing()
    for txid in TXIDS:
        if (after := task(world, standing, txid)) is not None:
            yield ("task", txid), after
        if (after := request_again(world, txid)) is not None:
            yield ("replay", txid), after
        yield from faults(world, txid)
        yield from people(world, txid)
    if (after := commit(world)) is not None:
        yield ("sweep", after.curr_txid), after
    for key in world.drivers:
        yield ("driver", key[0]), drive(world, key)


def task(world: World, standing: Standing, txid: int) -> World | None:
    """Let the task of a txid do its next action in one transaction; None if it waits or has ended.

    A decision that is outdated when it is carried out is decided again under the topology's lock,
    or meets the condition of a write: neither changes the ledger, so it is no move.
    """
    one = world.of(txid)
    request = Request(
        request_id=REQUEST,
        number=1,
        kind=one.kind,
        status=one.status,
        granted_after=one.granted_after,
        is_dry_run=False,
    )
    work = Work(goal=Goal.COMMITTED, task="task", steps={STEP: ()})
    match next_action(standing.snapshot(txid), request, work):
        case Begin() if one.newest + 1 < ATTEMPTS:
            live = Live(one.newest + 1, AttemptStatus.PROCESSING)
            newer = replace(one, newest=one.newest + 1, live=live, has_retried=False)
            return world.having(txid, newer)
        case Submit():
            assert one.live is not None
            claimed = replace(one, live=replace(one.live, is_claimed=True))
            drivers = world.drivers | {(txid, one.live.attempt_id)}
            return world.having(txid, claimed, drivers=drivers)
        case Seal():
            assert one.live is not None
            sealed = replace(one.live, status=AttemptStatus.PROCESSED)
            return world.having(txid, replace(one, live=sealed))
        case Commit():
            return commit(world)
    return None


def commit(world: World) -> World | None:
    """Carry out the next plan, change by change."""
    plan = next_plan(world.position())
    for change in plan:
        txid, one = change.txid, world.of(change.txid)
        assert change.attempt_id is not None
        table = world.table - {(txid, change.replaced_attempt)} | {(txid, change.attempt_id)}
        is_first = change.kind is ChangeKind.COMMIT
        satisfied = replace(
            one,
            live=None,
            committed=change.attempt_id,
            status=RequestStatus.SATISFIED if one.status is RequestStatus.OPEN else one.status,
        )
        world = world.having(
            txid,
            satisfied,
            table=table,
            curr_txid=world.curr_txid + is_first,
            last_was_first=is_first,
        )
    return world if plan else None


def drive(world: World, key: Key) -> World:
    """Let a driver stage its rows and end its step, which counts only for a live attempt (G4)."""
    txid, attempt_id = key
    one, drivers = world.of(txid), world.drivers - {key}
    live = one.live
    if live is None or not is_message_of(live, attempt_id):
        return replace(world, drivers=drivers)
    done = replace(one, live=replace(live, is_done=True))
    return world.having(txid, done, drivers=drivers, staged=world.staged | {key})


def is_message_of(live: Live, attempt_id: int) -> bool:
    """Say whether a message of an attempt's driver counts, as renew_lease and end_step do."""
    return live.attempt_id == attempt_id and live.status is AttemptStatus.PROCESSING


def faults(world: World, txid: int) -> Iterator[tuple[Move, World]]:
    """Yield what may go wrong with an attempt that is being processed.

    The task dies, with its driver or without it; or nobody renews the lease in time.
    """
    one = world.of(txid)
    live = one.live
    if world.faults == 0 or live is None or live.status not in PROCESSING:
        return
    left = world.faults - 1
    if live.is_claimed and not one.has_retried:
        retried = replace(one, has_retried=True)
        yield ("the task dies", txid), world.having(txid, retried, faults=left)
        drivers = world.drivers - {(txid, live.attempt_id)}
        if drivers != world.drivers:
            died = world.having(txid, retried, faults=left, drivers=drivers)
            yield ("the task and its driver die", txid), died
    if not live.lease_expired:
        expired = replace(one, live=replace(live, lease_expired=True))
        yield ("the lease expires", txid), world.having(txid, expired, faults=left)


def request_again(world: World, txid: int) -> World | None:
    """Clear a txid that has committed, or that was parked: a new request, as the core says."""
    one = world.of(txid)
    if world.replays == 0 or one.committed is None or one.status is RequestStatus.OPEN:
        return None
    kind = kind_of_new_request(one.committed)
    return world.having(txid, requested(one, kind), replays=world.replays - 1)


def requested(one: Txid, kind: RequestKind) -> Txid:
    return replace(
        one,
        live=None if one.live is None else replace(one.live, is_own=False),
        kind=kind,
        status=RequestStatus.OPEN,
        granted_after=one.newest,
        has_retried=False,
    )


def people(world: World, txid: int) -> Iterator[tuple[Move, World]]:
    """Yield what a person may do: park a txid, roll back to the one before it, release it."""
    one = world.of(txid)
    if world.parks and one.committed is None and not one.is_held and one.newest + 1 < ATTEMPTS:
        empty = Live(
            one.newest + 1, AttemptStatus.PROCESSED, is_own=False, is_claimed=True, is_done=True
        )
        parked = replace(one, newest=empty.attempt_id, live=empty, status=RequestStatus.PARKED)
        staged = world.staged | {(txid, empty.attempt_id)}
        yield ("park", txid), world.having(txid, parked, parks=world.parks - 1, staged=staged)
    if world.rollbacks and rollback_refusal(STATES, txid - 1, world.curr_txid, {}) is None:
        yield ("rollback to before", txid), rolled_back(world, txid - 1)
    if one.is_held:
        released = replace(requested(one, RequestKind.COMMIT), is_held=False)
        yield ("release", txid), world.having(txid, released)


def rolled_back(world: World, to_txid: int) -> World:
    """Take out what later txids have added, fence their attempts, and hold them."""
    table = frozenset(key for key in world.table if key[0] <= to_txid)
    after = replace(
        world,
        curr_txid=to_txid + 1,
        last_was_first=False,
        table=table,
        rollbacks=world.rollbacks - 1,
    )
    for txid in TXIDS[to_txid:]:
        one = after.of(txid)
        closed = replace(one, live=None, committed=None, is_held=True, status=RequestStatus.CLOSED)
        after = after.having(txid, closed)
    return after


def forgetting(world: World) -> World:
    """Return the state without rows that cannot count any more, and that nothing reads."""
    of_use = {(t, one.live.attempt_id) for t, one in world.numbered() if one.live}
    staged = world.staged & (of_use | world.table)
    return world if staged == world.staged else replace(world, staged=staged)


def check(before: World, after: World) -> None:
    """Raise AssertionError if a guarantee does not hold in a state, or between two."""
    assert after.table == {
        (txid, one.committed) for txid, one in after.numbered() if one.committed is not None
    }, "G1: the target has each committed txid once, from its committed attempt"
    committed = {txid for txid, _ in after.table}
    assert committed == set(range(1, after.curr_txid)), "G2: txids commit without a gap"
    assert after.table <= after.staged, "G1: what counts was staged whole"
    replays = 0
    for txid in TXIDS:
        was, one = before.of(txid), after.of(txid)
        assert one.newest >= was.newest, "G4: an attempt id is never used again"
        if one.live is None:
            continue
        assert one.live.attempt_id == one.newest, "G4: only the newest attempt is live"
        is_sealed = one.live.status is AttemptStatus.PROCESSED
        assert not is_sealed or (txid, one.live.attempt_id) in after.staged, (
            "V1: what is sealed was acked whole"
        )
        replays += not is_sealed and txid < after.curr_txid
        if one.newest > was.newest and not is_sealed:
            assert txid < after.curr_txid + WINDOW, "an attempt begins in the window"
    assert replays <= 1, "no more replays than may be pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The result of a search.

    :param stuck: states from which not all txids can commit any more, though attempts are left
    """

    states: int
    steps: int
    ends: int
    stuck: tuple[World, ...]


def search(start: World) -> Search:
    """Visit every state that can be reached; raise at the first that breaks a guarantee.

    :param start: with the faults, replays, rollbacks and parks that may happen
    :raises AssertionError: with the shortest way there
    """
    came_from: dict[World, tuple[World, Move] | None] = {start: None}
    backwards: dict[World, list[World]] = {}
    queue, steps = deque([start]), 0
    while queue:
        world = queue.popleft()
        for move, changed in moves(world):
            after = forgetting(changed)
            steps += 1
            backwards.setdefault(after, []).append(world)
            if after not in came_from:
                came_from[after] = (world, move)
                queue.append(after)
            try:
                check(world, after)
            except AssertionError as error:
                way = [*_way(world, came_from), move]
                raise AssertionError(f"{error}\n{way}") from None
    ends = [world for world in came_from if world.curr_txid > TXIDS[-1]]
    can_end, queue = set(ends), deque(ends)
    while queue:
        for world in backwards.get(queue.popleft(), ()):
            if world not in can_end:
                can_end.add(world)
                queue.append(world)
    stuck = tuple(
        world
        for world in came_from
        if world not in can_end
        and all(one.newest + 1 < ATTEMPTS or one.committed is not None for one in world.txids)
    )
    return Search(states=len(came_from), steps=steps, ends=len(ends), stuck=stuck)


def _way(world: World, came_from: dict[World, tuple[World, Move] | None]) -> list[Move]:
    way: list[Move] = []
    while (step := came_from[world]) is not None:
        world, move = step
        way.append(move)
    return way[::-1]
