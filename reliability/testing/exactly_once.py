"""Show that a pipeline is exactly-once: whatever dies, its tables are those of a clean run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reliability.core.definitions import Topology
from reliability.core.errors import RollbackNotPossible
from reliability.core.spout import Interval
from reliability.testing.faults import Fault
from reliability.testing.pipeline import Pipeline, assert_equal, session
from reliability.transaction.correct.rollback import release, roll_back


def assert_exactly_once(
    pipeline: Pipeline, topology: Topology, *intervals: str | Interval
) -> list[str]:
    """Run a topology with each fault that its runs can meet; return what was tried, a phrase each.

    Each fault has a new ledger. Then all txids are replayed, and rolled back and run again. The
    topology's source stays what it is.

    :param intervals: the runs, in their order; none for a spout without intervals
    :raises AssertionError: tables differ from those of a clean run; the first row that does is told
    :raises ReliabilityError: a run fails, with or without a fault
    """

    def run_all(own: Pipeline) -> None:
        for interval in intervals or (None,):
            own.run(topology, interval=interval)

    def replay_and_roll_back(own: Pipeline) -> list[str]:
        own.assert_replay_changes_nothing()
        expected = own.tables()
        with session() as connection:
            try:
                roll_back(connection, topology.name, 0, "a test")
            except RollbackNotPossible:
                return ["a replay of each txid"]
            release(connection, topology.name)
        own.clear()
        assert_equal(expected, own.tables(), "after a rollback and a clear of all runs")
        return ["a replay of each txid", "a rollback of all txids and a clear of all runs"]

    tried = [str(fault) for fault in try_faults(pipeline, run_all)]
    with pipeline.anew() as own:
        run_all(own)
        tried += replay_and_roll_back(own)
    return tried


def try_faults(pipeline: Pipeline, work: Callable[[Pipeline], object]) -> Sequence[Fault]:
    """Do the work in a new ledger, and again with each fault that it can meet; return these.

    :param work: runs topologies, and may assert what it likes of their tables
    :raises AssertionError: a table differs from that of the clean run
    """
    with pipeline.anew() as clean:
        work(clean)
        expected, faults = clean.tables(), clean.faults.possible()
    for fault in faults:
        with pipeline.anew(fault) as own:
            work(own)
            assert own.faults.has_fired, f"nothing came where {fault}: runs are not repeatable"
            assert_equal(expected, own.tables(), f"where {fault}")
    return faults
