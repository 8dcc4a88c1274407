"""The acker: declared partitions, and emitted = acked = staged for every sink on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliability.core.acker import Sink, check_accounting, check_acked
from reliability.core.errors import AttemptIncomplete, RowsUnaccounted
from reliability.core.fold import Fold, reserved
from reliability.core.spout import Verdict
from reliability.spouts.tuple_ids import fold_rows

EMITTED = fold_rows(0, 1000)


def sink(partitions=3, acked=(0, 1, 2), unacked=None, name="totals"):
    return Sink(
        name=name,
        step="process",
        partitions=partitions,
        acked_partitions=acked,
        unacked=unacked or Fold(),
    )


def test_a_complete_sink_is_acked():
    check_acked([sink(), sink(0, ())])


@pytest.mark.parametrize(
    "incomplete",
    [
        sink(None, ()),  # its write never ended
        sink(3, (0, 2)),  # a partition is missing
        sink(3, (0, 1, 2, 3)),  # one too many
        sink(1, ()),
        sink(None, (), Fold()),  # ack_val is 0 at the start of an empty batch, and proves nothing
    ],
)
def test_an_incomplete_sink_is_not(incomplete):
    with pytest.raises(AttemptIncomplete):
        check_acked([sink(), incomplete])


def fold_of(rows):
    folds = [Fold(fold_rows(0, row + 1).xor ^ fold_rows(0, row).xor, 1) for row in rows]
    return Fold.of(folds)


@pytest.mark.parametrize(
    ("arrived", "says"),
    [
        (range(999), "1 of 1000 emitted rows did not reach it"),
        (range(996), "4 of 1000 emitted rows did not reach it"),
        # one doubled; three copies, which XOR alone does not see
        ([*range(1000), 7], "1 more rows reached it than the 1000 emitted"),
        ([*range(1000), 7, 7], "2 more rows reached it than the 1000 emitted"),
        # one lost, one doubled, which the count alone does not see; two lost, three copies
        ([*range(999), 7], "the 1000 rows that reached it are not those"),
        ([*range(998), 7, 7], "the 1000 rows that reached it are not those"),
        # four lost, four others doubled
        ([*range(4, 1000), 8, 9, 10, 11], "the 1000 rows that reached it are not those"),
    ],
)
def test_loss_and_doubling_are_found(arrived, says):
    with pytest.raises(RowsUnaccounted, match=f"totals: {says}"):
        check_accounting(EMITTED, [sink()], {"totals": fold_of(arrived)})


def test_equal_loss_in_two_states_is_found_in_each():
    """V1: over two states XOR would cancel what was lost."""
    lost = fold_of(range(999))
    assert (Fold.of([lost, lost]).xor ^ Fold.of([EMITTED, EMITTED]).xor) == 0
    with pytest.raises(RowsUnaccounted):
        check_accounting(EMITTED, [sink(name="a"), sink(name="b")], {"a": lost, "b": lost})


def test_what_was_acked_must_be_what_is_staged():
    """A table that was emptied and filled again has the rows but not the acks."""
    with pytest.raises(AttemptIncomplete, match=r"acked .*\(1 rows difference, ack_val 5\)"):
        check_accounting(EMITTED, [sink(unacked=Fold(5, 1))], {"totals": EMITTED})


def test_what_is_set_aside_counts_as_arrived():
    """V8."""
    some = replace(sink(), set_aside=fold_of(range(998, 1000)))
    check_accounting(EMITTED, [some], {"totals": fold_of(range(998))})
    with pytest.raises(RowsUnaccounted, match="2 more rows"):
        check_accounting(EMITTED, [some], {"totals": EMITTED})


def test_folds_are_added_and_subtracted():
    one, other = Fold(0b110, 3), Fold(0b011, 1)
    assert (one + other, one - other) == (Fold(0b101, 4), Fold(0b101, 2))
    assert Fold.of([one, other, one]) == Fold(0b011, 7)


def test_no_column_is_called_like_the_accounts():
    """V3."""
    assert reserved(["day", "_X", "_n", "_Reliability_a", "n"]) == ["_X", "_n", "_Reliability_a"]


@pytest.mark.parametrize(
    ("staged", "acked_less", "error", "says"),
    [
        (Fold(5, 2), Fold(5, 1), RowsUnaccounted, "totals"),
        (Fold(5, 4), Fold(5, -1), RowsUnaccounted, "totals"),
        (Fold(5, 3), Fold(6, 0), AttemptIncomplete, "acked"),  # what was acked is staged no more
    ],
)
def test_a_counted_batch_is_compared_by_count(staged, acked_less, error, says):
    """V6: nobody knows the XOR of its 3 rows."""
    of_three = Fold(0, 3), [sink(unacked=Fold(5, 0))], {"totals": Fold(5, 3)}, Verdict.COUNTED
    check_accounting(*of_three)
    with pytest.raises(error, match=says):
        check_accounting(
            Fold(0, 3), [sink(unacked=acked_less)], {"totals": staged}, Verdict.COUNTED
        )


def test_sequence_numbers_would_cancel():
    """Why ids are hashed: 0 … 999 XOR to 0."""
    xor = 0
    for number in range(1000):
        xor ^= number
    assert xor == 0
    assert EMITTED.xor != 0
