"""One poller per process and ledger serves all tasks that wait without a worker slot.

One thread reads the ledger with a few statements per topology and notifies the waiters that have
something to do. A second thread renews their runs and never blocks. A third sweeps: it may wait for
a lock, and commits overdue txids, however long that takes. None uses the threads that the triggerer
shares among all triggers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial

from reliability.core.coordinator import Begin, Blocked, Wait, Work, next_action
from reliability.core.errors import (
    PATIENCE_SECONDS,
    LedgerRefusedLogin,
    ReliabilityError,
    Terminal,
    Transient,
)
from reliability.core.request import Request, RequestStatus
from reliability.core.standing import Standing
from reliability.deployment.address import NOT_NAMED, ConnIds, address_of, using
from reliability.deployment.airflow_connections import asking_by
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.emit.requests import renew
from reliability.transaction.maintain.sweep import sweep
from reliability.transaction.topology.read_standing import read_requests, read_standing

logger = logging.getLogger(__name__)
POLL_INTERVAL_SECONDS = 0.5
RENEW_INTERVAL_SECONDS = 10.0
SWEEP_INTERVAL_SECONDS = 10.0
#: How long to leave a server alone that has refused the login: some lock an account.
LOGIN_INTERVAL_SECONDS = 10.0
#: A replay that was told to begin and has not begun within this time loses its place to the next.
CALLED_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class Waiter:
    """A task that waits for a txid's turn, or, without a topology, for the ledger to answer.

    :param notify: called once, in the poller's thread, when there is something to do
    """

    notify: Callable[[], object]
    topology: str = ""
    txid: int = 0
    request_id: int = 0
    work: Work | None = None


ThreadWork = Callable[[Callable[[], LedgerConnection], list[Waiter]], None]
"""What a thread does each time, with its session, which it opens, and the waiters."""


@dataclass
class _Topology:
    """What the poller remembers of one topology between two polls.

    :param seen: the waiters that had to wait when the topology was last read
    :param called: txid of a replay that was told to begin -> until when its place is kept
    """

    standing: Standing | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    seen: set[Waiter] = field(default_factory=set)
    called: dict[int, float] = field(default_factory=dict)


class Poller:
    """The waiters of this process for a ledger, and the threads that run while there are any.

    :param conn_ids: the connections of Airflow that lead to the ledger, and to other databases
    """

    def __init__(self, conn_ids: ConnIds = NOT_NAMED) -> None:
        self._conn_ids = conn_ids
        self._loop: asyncio.AbstractEventLoop | None = None  # of the triggerer
        self._lock = threading.Lock()
        self._waiters: set[Waiter] = set()
        self._topologies: defaultdict[str, _Topology] = defaultdict(_Topology)
        self._threads: dict[str, threading.Thread] = {}
        self._is_away = False
        self._refused_since: float | None = None
        self._ask_again_at = 0.0

    async def wait(
        self, *, topology: str = "", txid: int = 0, request_id: int = 0, work: Work | None = None
    ) -> None:
        """Return when the waiter has something to do; the result is only a hint."""
        self._loop, notified = asyncio.get_running_loop(), asyncio.Event()
        loop = self._loop
        waiter = Waiter(
            notify=lambda: loop.call_soon_threadsafe(notified.set),
            topology=topology,
            txid=txid,
            request_id=request_id,
            work=work,
        )
        self.add(waiter)
        try:
            await notified.wait()
        finally:
            self.remove(waiter)

    def add(self, waiter: Waiter) -> None:
        """Serve a waiter from now on."""
        with self._lock:
            self._waiters.add(waiter)
            self._start("poll", POLL_INTERVAL_SECONDS, lambda c, w: self.poll(c, w))
            self._start("renew", RENEW_INTERVAL_SECONDS, lambda c, w: self.renew(c(), w))
            self._start("sweep", SWEEP_INTERVAL_SECONDS, lambda c, w: self.sweep(c(), w))

    def remove(self, waiter: Waiter) -> None:
        """Forget a waiter, whether or not it was notified."""
        with self._lock:
            self._waiters.discard(waiter)

    def blocked(self, topology: str, txid: int) -> Blocked | None:
        """Return what blocks a txid, by the last reading of its topology."""
        memory = self._topologies.get(topology)
        if memory is None or memory.standing is None:
            return None
        return memory.standing.snapshot(txid).blocked

    # --- the threads -----------------------------------------------------------------------------

    def _start(self, name: str, seconds: float, work: ThreadWork) -> None:
        """Start a thread that repeats its work while there are waiters, unless it runs."""
        if name not in self._threads:
            repeat, title = partial(self._repeat, name, seconds, work), f"reliability {name}"
            self._threads[name] = threading.Thread(target=repeat, name=title, daemon=True)
            self._threads[name].start()

    def _repeat(self, name: str, seconds: float, work: ThreadWork) -> None:
        with ExitStack() as stack:
            opened = partial(open_session, f"reliability poller {name}")
            connection = cache(lambda: stack.enter_context(opened()))
            while waiters := self._left(name):
                if time.monotonic() >= self._ask_again_at:
                    with using(self._conn_ids), asking_by(self._loop):
                        _safely(lambda: work(connection, waiters))
                time.sleep(seconds)

    def _left(self, name: str) -> list[Waiter]:
        """Return the waiters; if there are none, the calling thread ends and a later one starts."""
        with self._lock:
            if not self._waiters:
                del self._threads[name]
            return list(self._waiters)

    # --- polling ---------------------------------------------------------------------------------

    def poll(self, connection: Callable[[], LedgerConnection], waiters: Iterable[Waiter]) -> None:
        """Notify waiters that have something to do; none while the ledger is unavailable.

        If the login is refused for long, notify all: each task asks with its host's credentials,
        waits for others if they are refused there too, and fails with what to do.
        """
        waiters = list(waiters)
        groups = _by_topology(waiters)
        for topology in self._topologies.keys() - groups.keys():
            del self._topologies[topology]
        for topology, group in groups.items():
            try:
                due = self._find_due(connection(), topology, group)
            except LedgerRefusedLogin as error:
                self._leave_alone()
                self._note(error)
                if self._is_refused_for_long():
                    for waiter in waiters:
                        _safely(waiter.notify)
                return
            except Transient as error:
                self._note(error)
                return
            except Terminal as error:
                # the tasks meet the same error and report it in their own logs
                logger.warning("%s: %s", topology, error)
                due = group
            for waiter in due:
                _safely(waiter.notify)
        self._note(None)

    def _is_refused_for_long(self) -> bool:
        """Say whether the login has been refused for as long as credentials may take."""
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since < PATIENCE_SECONDS:
            return False
        self._refused_since = now
        return True

    def _find_due(
        self, connection: LedgerConnection, topology: str, waiters: list[Waiter]
    ) -> list[Waiter]:
        """Return those that have something to do; all that wait for the ledger, if it answers."""
        if not topology:
            with connection.transaction(reads_only=True):
                return waiters
        memory = self._topologies[topology]
        wanted = {waiter.request_id for waiter in waiters}
        # a request that has ended may be reopened: always read it again
        known = {
            n
            for n in wanted & memory.requests.keys()
            if memory.requests[n].status is RequestStatus.OPEN
        }
        with connection.transaction(reads_only=True) as tx:
            standing = read_standing(tx, topology)
            changed = read_requests(tx, known, wanted - known)
        memory.requests = {n: memory.requests[n] for n in known}
        memory.requests |= {request.request_id: request for request in changed}
        now = time.monotonic()
        is_overdue = any(until <= now for until in memory.called.values())  # a place is free again
        if standing != memory.standing or changed or is_overdue:
            memory.seen.clear()
        memory.standing = standing
        new = [waiter for waiter in waiters if waiter not in memory.seen]
        memory.seen = set(waiters)  # until something changes, these waiters still have to wait
        return _due(standing, memory, new)

    # --- renewals and sweeps ---------------------------------------------------------------

    def renew(self, connection: LedgerConnection, waiters: Iterable[Waiter]) -> None:
        """Renew the requests of the waiting runs."""
        try:
            renew(connection, *{waiter.request_id for waiter in waiters})
        except LedgerRefusedLogin:
            self._leave_alone()
        except ReliabilityError as error:
            logger.warning("waiting runs are renewed later: %s", error)

    def sweep(self, connection: LedgerConnection, waiters: Iterable[Waiter]) -> None:
        """Sweep the topologies of the waiters."""
        for topology in _by_topology(waiters):
            try:
                if topology:
                    sweep(connection, topology)
            except LedgerRefusedLogin:
                self._leave_alone()
                return
            except ReliabilityError as error:
                logger.warning("%s is swept later: %s", topology, error)

    def _leave_alone(self) -> None:
        """Let the server that has refused the login be asked again after a while."""
        self._ask_again_at = time.monotonic() + LOGIN_INTERVAL_SECONDS

    def _note(self, error: ReliabilityError | None) -> None:
        """Log once that the ledger is unavailable, and once that it is back."""
        if error is not None and not self._is_away:
            logger.warning("the ledger does not answer; tasks keep waiting: %s", error)
        elif error is None and self._is_away:
            logger.info("the ledger answers again")
        if not isinstance(error, LedgerRefusedLogin):
            self._refused_since = None
        self._is_away = error is not None


def _due(standing: Standing, memory: _Topology, waiters: Iterable[Waiter]) -> list[Waiter]:
    """Return the waiters that have something to do; of waiting replays only as many as may begin.

    Otherwise one free place would wake every waiting replay, and all but one would wait again.
    """
    now = time.monotonic()
    memory.called = {
        txid: until
        for txid, until in memory.called.items()
        if until > now and txid not in standing.live
    }
    due: list[Waiter] = []
    replays: dict[int, list[Waiter]] = defaultdict(list)
    for waiter in waiters:
        request = memory.requests.get(waiter.request_id)
        if request is None or waiter.work is None:  # the ledger was restored and no longer has it
            due.append(waiter)
            continue
        match next_action(standing.snapshot(waiter.txid), request, waiter.work):
            case Wait():
                continue
            case Begin() if waiter.txid < standing.curr_txid:
                replays[waiter.txid].append(waiter)
            case _:
                due.append(waiter)
    for txid in standing.admitted(replays, set(memory.called)):
        memory.called[txid] = now + CALLED_SECONDS
        due += replays[txid]
    return due


def _by_topology(waiters: Iterable[Waiter]) -> dict[str, list[Waiter]]:
    groups: dict[str, list[Waiter]] = defaultdict(list)
    for waiter in waiters:
        groups[waiter.topology].append(waiter)
    return groups


def _safely(work: Callable[[], object]) -> None:
    """Keep the thread running whatever fails for one poll or one waiter."""
    try:
        work()
    except Exception:
        logger.exception("ignored an error in the poller")


def open_session(name: str) -> LedgerConnection:
    """Return a session with the ledger, or raise what is wrong with its address."""
    return LedgerConnection(address_of(), application_name=name)


_pollers: dict[ConnIds, Poller] = {}


def poller_of(ledger_conn_id: str | None, database_conn_ids: Mapping[str, str] | None) -> Poller:
    """Return this process's poller of the ledger that these connections lead to."""
    conn_ids = ConnIds.of(ledger_conn_id, database_conn_ids)
    return _pollers.setdefault(conn_ids, Poller(conn_ids))
