"""H5: whether a topology can return to its states after a txid, and what a person is told first."""

from __future__ import annotations

import pytest

from reliability import Count, OpaqueState, State
from reliability.core.plan import ChangeKind, PlannedChange
from reliability.core.rollback_check import AgainstDates, drop_refusal, rollback_refusal
from reliability.core.spout import Interval

DAYS = State("days", values={"n": Count()})
TOTALS = OpaqueState("totals", values={"n": Count()})


@pytest.mark.parametrize(
    ("states", "to_txid", "compacted", "says"),
    [
        ([DAYS], 0, 0, None),
        ([DAYS], 6, 0, None),
        ([DAYS], 6, 6, None),  # txid 7 can be taken out
        ([DAYS], 5, 6, "state days has compacted its history through txid 6"),
        ([DAYS], 7, 0, "txid 7 is the last committed txid already"),
        ([DAYS], 8, 0, "its committed txids are 1 to 7"),
        ([DAYS], -1, 0, "its committed txids are 1 to 7"),
        ([DAYS, TOTALS], 6, 0, None),
        ([DAYS, TOTALS], 5, 0, "state totals is an OpaqueState, which can go back to txid 6 only"),
    ],
)
def test_where_a_topology_can_return_to(states, to_txid, compacted, says):
    assert rollback_refusal(states, to_txid, 8, {"days": compacted}) == says


def test_a_topology_without_a_commit_is_told_so():
    """It said: its committed txids are 1 to 0."""
    assert rollback_refusal([DAYS], 2, 1, {}) == "none of its txids has committed"


def month(number):
    return Interval.parse(f"2013-{number:02}")


def test_a_rollback_against_the_dates_is_told():
    def lines(stay, go):
        return list(AgainstDates(later_that_stay=stay, earlier_that_go=go).lines())

    head = "Txids follow the order of emission, not of dates:"
    stay, go = {month(8): [1, 2]}, {month(1): [7]}
    stays, goes = (
        "  later intervals that stay: 2013-08 (txids 1..2)",
        "  earlier intervals that go: 2013-01 (txid 7)",
    )
    assert lines({}, {}) == []
    assert lines(stay, {}) == [head, stays]
    assert lines({}, go) == [head, goes]
    assert lines(stay, go) == [head, stays, goes]
    ten = {month(number): [number] for number in range(1, 11)}
    assert lines(ten, {})[1].endswith("2013-10 (txid 10)")
    assert lines({**ten, month(11): [11], month(12): [12]}, {})[1].endswith(
        "2013-10 (txid 10) and 2 more"
    )


@pytest.mark.parametrize(
    ("change", "possible", "refused", "says"),
    [
        ({"txid": 7, "attempt_id": 0}, 6, 7, "roll back to txid 6 or earlier"),
        ({"txid": 7, "attempt_id": 0}, 5, 8, "txid 7 is decided and cannot be committed"),
        ({"txid": 7, "kind": ChangeKind.ROLLBACK}, 7, 8, "a rollback to txid 7 is decided"),
        ({"txid": 7, "kind": ChangeKind.REPAIR}, 8, None, None),
    ],
)
def test_a_decided_change_gives_way_to_a_rollback_before_it(change, possible, refused, says):
    """C6."""
    decided = (PlannedChange(topology="shop", commit_number=9, **change),)
    assert drop_refusal(decided, possible) is None
    if refused is not None:
        assert says in str(drop_refusal(decided, refused))
