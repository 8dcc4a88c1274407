"""Emit: allocate a run's source items to txids, once and for all, and open its requests.

1. ask whether the source is ready for the next txid
2. plan without a lock: list the items that no txid has, read footers, cut, count
3. lock the topology
4. check before allocating: overlap, how many tasks Airflow can map
5. allocate txids from the topology's row and freeze each one's BatchMeta; an opaque spout's txids
   get theirs when they begin (E4)
6. open the run's requests for old and new txids alike; those for committed txids are replays

A run that names the txids to replay does the last of these alone (E9).

Each emission is recorded, above all one that fails, because it leaves no txid behind. The beginning
and a failure are transactions of their own; the success is recorded with the txids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from reliability.core.definitions import Topology
from reliability.core.errors import (
    NOT_ANSWERING,
    DataIntervalMissing,
    LedgerBusy,
    NothingToEmit,
    NothingToReplay,
    ReliabilityError,
    SourceChanged,
    SourceNotReady,
    TooManyBatches,
)
from reliability.core.periods import UTC
from reliability.core.schedule import Schedule
from reliability.core.spout import BatchMeta, Interval, SourceItem, SpoutKind, check_overlap
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection
from reliability.ledger.locks import check_coordinator, holding
from reliability.ledger.read_rows import batch_of, ends_of, interval_of, stored_batch
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.emit.requests import (
    Run,
    TaskContact,
    check_committed,
    contact_in,
    take_up_run,
)
from reliability.transaction.emit.source_items import LedgerItems, freeze, is_allocated
from reliability.transaction.topology.lifecycle import declare

MAX_PLANS = 5
logger = logging.getLogger(__name__)


def emit(
    connection: LedgerConnection,
    topology: Topology,
    interval: Interval | None,
    contact: TaskContact,
    *,
    max_batches: int,
    refreeze: bool = False,
    replay: Sequence[int] | None = None,
    schedule: Schedule | None = None,
    takes_over: bool = False,
) -> list[int]:
    """Return the txids of the run, ascending; a repeated call returns the same ones.

    :param interval: the run's data interval; ignored by an untimed spout
    :param max_batches: how many txids Airflow can map for one run
    :param refreeze: first refreeze the run's txids whose source was replaced
    :param replay: emit nothing, and look at no source: request exactly these txids, ascending
    :param schedule: of the run's DAG; recorded, so that missing intervals are noticed
    :param takes_over: one run works at a time: request what earlier ones have left, as well
    :raises SourceNotReady, NothingToEmit, SourceUnreadable, FileRefused, SourceChanged: by the
        source
    :raises IntervalOverlap, TooManyBatches: nothing was allocated
    :raises NothingToReplay: a dry run has no txid, or not all of `replay` have committed
    """
    if replay is None and topology.spout.timed and interval is None:
        interval = _recorded_interval(connection, topology.name, contact)
        if interval is None:
            raise DataIntervalMissing(
                f"run {contact.run.run_id} of {contact.run.dag_id} has no data interval",
                remedy=DataIntervalMissing.remedy.about(dag=contact.run.dag_id),
            )
    zone = topology.spout.time_zone or UTC
    interval = replace(interval, zone=zone) if interval and topology.spout.timed else None
    emission = _Emission(connection, topology, interval, contact, max_batches, takes_over)
    if replay is not None:
        return emission.ask_for_replay(replay, refreeze=refreeze)
    if contact.is_dry_run:
        return emission.ask_for_dry_run()
    with recorded_emission(connection, topology.name, contact, interval, schedule) as began_at:
        emission = replace(emission, contact=replace(contact, began_at=began_at))
        return emission.allocate_new(refreeze=refreeze)


@dataclass(frozen=True, slots=True)
class _Emission:
    """What a run asks for; `interval` is None for an untimed spout."""

    connection: LedgerConnection
    topology: Topology
    interval: Interval | None
    contact: TaskContact
    max_batches: int
    takes_over: bool

    @property
    def name(self) -> str:
        return self.topology.name

    def allocate_new(self, *, refreeze: bool) -> list[int]:
        """Give new source items to txids, and open requests for them and for earlier ones."""
        declare(self.connection, self.topology)
        self.check_ready()
        if refreeze:  # before requests are opened: a refusal must leave none open
            with self.connection.transaction() as tx:
                own = self._earlier_txids(tx)
            self._refreeze(own)
        refused: list[SourceItem] = []
        for _ in range(MAX_PLANS):
            included = self._included(self.connection)
            batches = self._plan()
            items = [item for batch in batches for item in batch.items]
            if items and items == refused:
                raise SourceChanged(
                    f"{self.name}: the spout lists {items[0].identity} again, though a txid has it "
                    "or a part of it, or something that comes with it",
                    remedy="read it by a topology with another name, which begins anew. A spout of "
                    "your own leaves out what `allocated` names.",
                )
            self._log_drift(items)
            with holding(self.connection, self.name) as (tx, locked):
                if self._included(tx) != included:
                    continue  # an item may be listed again, and the log was read past it
                # Another run may have allocated some of these items since the plan was made.
                if not is_allocated(tx, self.name, items):
                    return self._allocate(tx, batches, locked["next_txid"])
            refused = items
        raise LedgerBusy(f"other runs of {self.name} are emitting the same items")

    def _included(self, ledger: Ledger) -> int:
        return int(ledger.one("included_items", topology=self.name)["included"])

    def ask_for_dry_run(self) -> list[int]:
        """Open requests for the interval's txids; a dry run allocates none."""
        with holding(self.connection, self.name) as (tx, _):
            txids = self._earlier_txids(tx)
            if not txids:
                raise NothingToReplay(f"{self.name} has emitted nothing for {self.interval}")
            self._check_room(len(txids))
            return self._request(tx, txids)

    def ask_for_replay(self, txids: Sequence[int], *, refreeze: bool) -> list[int]:
        """Open requests for exactly these txids, or for none.

        It is no emission, and not recorded as one: no interval is emitted because of it.
        """
        self._check_room(len(txids), remedy="replay them by several runs, some by each.")
        with self.connection.transaction() as tx:  # before anything is declared or refrozen
            check_coordinator(tx, self.name)
            check_committed(tx, self.name, txids)
        if not self.contact.is_dry_run:
            declare(self.connection, self.topology)
            if refreeze:
                self._refreeze(txids)
        with holding(self.connection, self.name) as (tx, _):
            check_committed(tx, self.name, txids)  # a rollback may have come
            return self._request(tx, txids)

    def check_ready(self) -> None:
        txid = self.connection.one("topology_position", topology=self.name)["next_txid"]
        if not self.topology.spout.is_ready(txid, self.interval):
            raise SourceNotReady(f"{self.name}: the source is not ready for txid {txid}")

    def _request(self, tx: DatabaseTransaction, txids: Sequence[int]) -> list[int]:
        """Open the run's requests for the txids, and return these; harmless when repeated."""
        requests = [
            contact_in(tx, self.name, txid, self.contact, may_open_first=True) for txid in txids
        ]
        if requests:
            take_up_run(tx, requests[0])
        return list(txids)

    def _refreeze(self, txids: Sequence[int]) -> None:
        """Refreeze at most once per run.

        A cleared run keeps its parameters, so they do not ask for another refreeze.
        """
        run = self.contact.run
        reason = f"run {run.run_id} of {run.dag_id} requested it"
        key = {"topology": self.name, "reason": reason}
        own = [t for t in txids if self.connection.one("may_refreeze", txid=t, **key)["may"]]
        for txid in own:
            refreeze(self.connection, self.topology, txid, reason)

    # --- the source ------------------------------------------------------------------------------

    def _plan(self) -> list[BatchMeta]:
        spout = self.topology.spout
        try:
            new = spout.plan(self.interval, LedgerItems(self.connection, self.name))
        except NothingToEmit:
            # unless the run's txids need no source: each is skipped, or its items excluded
            with self.connection.transaction() as tx:
                row = tx.one("are_left_out", topology=self.name, txids=self._earlier_txids(tx))
            if not row["are_left_out"]:
                raise
            return []
        return [BatchMeta(items=batch, emitted=spout.count(batch)) for batch in spout.cut(new)]

    def _log_drift(self, items: Sequence[SourceItem]) -> None:
        """Log how the columns of new items differ from the declared ones, or from earlier ones."""
        spout = self.topology.spout
        differences = spout.drifted_columns(items)
        for difference in differences or ():
            logger.warning("%s", difference)
        if differences is not None or not items:
            return
        row = self.connection.first("last_committed_batch", topology=self.name)
        if row is None:
            return
        for difference in spout.changed_columns(items, batch_of(row)):
            logger.warning(
                "%s; txid %s was the last to commit. Spark reads each batch by its own columns: "
                "`reliability check %s FILE` says whether the process function takes them",
                difference, row["txid"], self.name,
            )  # fmt: skip

    # --- under the lock --------------------------------------------------------------------------

    def _allocate(
        self, tx: DatabaseTransaction, batches: list[BatchMeta], next_txid: int
    ) -> list[int]:
        own = self._earlier_txids(tx)
        metas = self._metas_to_allocate(tx, batches, has_own=bool(own))
        if self.interval is not None:
            rows = tx.all("emitted_intervals", topology=self.name, **ends_of(self.interval))
            emitted = [(interval_of(row), row["run_id"]) for row in rows]
            check_overlap(self.interval, [(own, run_id) for own, run_id in emitted if own])
        self._check_room(len(own) + len(metas))
        new = range(next_txid, next_txid + len(metas))
        if new:
            tx.one("allocate_txids", topology=self.name, count=len(new), first=next_txid)
        for txid, meta in zip(new, metas, strict=True):
            tx.one(
                "insert_transaction",
                topology=self.name,
                txid=txid,
                **stored_batch(meta),
                **self.contact.run,
                **ends_of(self.interval),
            )
            if meta:
                freeze(tx, self.name, txid, meta.items)
        left = tx.all("left_txids", topology=self.name) if self.takes_over else []
        room = self.max_batches - len(own) - len(new)  # the next run takes over what is beyond
        taken = sorted({row["txid"] for row in left} - {*own})[:room]
        txids = self._request(tx, sorted({*own, *new, *taken}))
        if tx.first("complete_emission", topology=self.name, **self.contact.run) is None:
            raise LedgerBusy(f"{self.name} was dropped while this run emitted")
        return txids

    def _metas_to_allocate(
        self, tx: DatabaseTransaction, batches: list[BatchMeta], *, has_own: bool
    ) -> list[BatchMeta | None]:
        """Return the batch of each new txid; None if it is cut when the txid begins."""
        if self.interval is None and has_own:
            return []  # a repeated run of an untimed spout requests the txids that it had (E5)
        if self.topology.spout.kind is SpoutKind.TRANSACTIONAL:
            return [*batches]
        # None of these batches is allocated yet: txids that still wait for a batch take the first.
        row = tx.one("unfrozen_txids", topology=self.name, **ends_of(self.interval))
        return [None] * max(len(batches) - row["unfrozen"], 0 if has_own else 1)

    def _earlier_txids(self, tx: DatabaseTransaction) -> list[int]:
        rows = tx.all(
            "earlier_txids",
            topology=self.name,
            takes_over=self.takes_over,
            **self.contact.run,
            **ends_of(self.interval),
        )
        return [row["txid"] for row in rows]

    def _check_room(self, wanted: int, remedy: str = "") -> None:
        if wanted > self.max_batches:
            raise TooManyBatches(
                f"{self.name}: {wanted} batches; Airflow maps at most {self.max_batches}",
                remedy=remedy,
            )


# --- the record of an emission -------------------------------------------------------------------


def _recorded_interval(
    connection: LedgerConnection, topology: str, contact: TaskContact
) -> Interval | None:
    """Return the interval that a run has emitted before it was cleared.

    Airflow's `db clean` takes away the asset event that has named it.
    """
    if not contact.this_try.clear_number:  # an earlier run may have had its id
        return None
    row = connection.first("interval_of_run", topology=topology, **contact.run)
    return interval_of(row) if row else None


def has_ended(connection: LedgerConnection, topology: str, run: Run) -> bool:
    """Say whether a run has emitted, or has failed to."""
    return bool(connection.one("emission_has_ended", topology=topology, **run)["has_ended"])


@contextmanager
def recorded_emission(
    connection: LedgerConnection,
    topology: str,
    contact: TaskContact,
    interval: Interval | None,
    schedule: Schedule | None,
) -> Iterator[datetime]:
    """Record that an emission begins, and why it fails if it does; yield when it began.

    Nothing is recorded of a ledger that does not answer: the task waits for it.

    :param schedule: the schedule of the run's DAG; not recorded for an untimed spout
    """
    run, task_id = contact.run, contact.task
    with connection.transaction() as tx:
        if schedule is not None and interval is not None:
            recorded = replace(schedule, interval_zone=interval.zone)
            tx.run("record_schedule", topology=topology, dag_id=run.dag_id, **recorded)
        begun = tx.one(
            "begin_emission", topology=topology, task_id=task_id, **run, **ends_of(interval)
        )
    try:
        yield begun["began_at"]
    except NOT_ANSWERING:
        raise
    except Exception as error:  # a spout may raise anything
        _record_failure(connection, topology, run, error)
        if isinstance(error, ReliabilityError):
            error.about(interval=str(interval) if interval else "")
        raise


def _record_failure(
    connection: LedgerConnection, topology: str, run: Run, error: Exception
) -> None:
    why = {"reason_code": type(error).__name__, "reason": str(error), "remedy": None}
    if isinstance(error, ReliabilityError):
        why = error.to_ledger()
    try:
        connection.run("fail_emission", topology=topology, **why, **run)
    except ReliabilityError as unrecorded:  # it must not hide the first error
        logger.warning("the failed emission was not recorded: %s", unrecorded)
