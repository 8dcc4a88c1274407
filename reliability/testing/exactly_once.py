"""Show that a pipeline is exactly-once: whatever dies, its tables are those of a clean run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from reliability.core.definitions import Topology
from reliability.core.errors import ReplayNotPossible, RollbackNotPossible
from reliability.core.spout import Interval
from reliability.testing.faults import Fault
from reliability.testing.pipeline import Pipeline, assert_equal, session
from reliability.transaction.correct.rollback import release, roll_back


def assert_exactly_once(
    pipeline: Pipeline, topology: Topology, *intervals: str | Interval
) -> list[str]:
    """Run a topology with each fault that its runs can meet; return what was tried, a phrase each.

    Each fault has a new ledger. Then all txids are replayed, and rolled back and run again, as far
    as the states keep their history. The topology's source stays what it is.

    :param intervals: the runs, in their order; none for a spout without intervals
    :raises AssertionError: tables differ from those of a clean run, and the first row that does is
        told; or the clean run commits no rows
    :raises ReliabilityError: a run fails, with or without a fault
    """

    def run_all(own: Pipeline) -> None:
        for interval in intervals or (None,):
            own.run(topology, interval=interval)

    def replay(own: Pipeline) -> str:
        own.assert_replay_changes_nothing()
        return "a replay of each txid"

    def roll_all_back(own: Pipeline) -> str:
        expected = own.expected_tables()
        with session() as connection:
            roll_back(connection, topology.name, 0, "a test")
            release(connection, topology.name)
        own.clear()
        assert_equal(expected, own.tables(), "after a rollback and a clear of all runs")
        return "a rollback of all txids and a clear of all runs"

    tried = [str(fault) for fault in try_faults(pipeline, run_all)]
    for correct in (replay, roll_all_back):
        with pipeline.anew() as own:
            run_all(own)
            with suppress(ReplayNotPossible, RollbackNotPossible):
                tried.append(correct(own))
    return tried


def try_faults(pipeline: Pipeline, work: Callable[[Pipeline], object]) -> Sequence[Fault]:
    """Do the work in a new ledger, and again with each fault that it can meet; return these.

    :param work: runs topologies, and may assert what it likes of their tables
    :raises AssertionError: a table differs from that of the clean run, or that committed no rows
    """
    with pipeline.anew() as clean:
        work(clean)
        expected, faults = clean.expected_tables(has_committed=False), clean.faults.possible()
    for fault in faults:
        with pipeline.anew(fault) as own:
            work(own)
            assert own.faults.has_fired, f"nothing came where {fault}: runs are not repeatable"
            assert_equal(expected, own.tables(), f"where {fault}")
    return faults
