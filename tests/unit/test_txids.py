"""How people write txids, and read them; sets of keys in Postgres's notation."""

from __future__ import annotations

import tracemalloc

import pytest
import typer

from reliability.cli.options import read_txids
from reliability.core.keys import covers, cut_ranges, touches
from reliability.core.spout import Interval
from reliability.core.txids import (
    format_intervals,
    format_ranges,
    format_txids,
    name_txids,
    parse_txids,
    with_noun,
    with_verb,
)

LAST = (1 << 63) - 1


@pytest.mark.parametrize(
    "text", ["", " ", "a", "3..", "5..3", "0", "-1", "1..9999999", "3 4", "3,", "²", f"{1 << 63}"]
)
def test_what_is_no_list_of_txids_is_refused(text):
    with pytest.raises(typer.BadParameter):
        read_txids(text)
    with pytest.raises(ValueError, match="txids"):
        parse_txids(text)


@pytest.mark.parametrize(("length", "end"), [(60, "x'"), (61, "x…'")])
def test_a_long_text_is_shown_in_part(length, end):
    with pytest.raises(ValueError, match="not 'x") as refused:
        parse_txids("x" * length)
    assert str(refused.value).endswith(f" '{'x' * 59}{end}")


@pytest.mark.parametrize(
    ("text", "txids"),
    [
        ("1", [1]),
        ("3..3", [3]),
        ("3..5", [3, 4, 5]),
        (" 7..9 , 3 ", [3, 7, 8, 9]),
        ("3..5,4..6,3", [3, 4, 5, 6]),
        (f"{LAST}", [LAST]),
    ],
)
def test_txids_are_read_ascending_and_once(text, txids):
    assert parse_txids(text) == txids


def test_a_short_text_of_many_ranges_makes_no_list_of_millions():
    """The limit was on each range: 655 characters made 4,000,000 txids, and took 290 MB."""
    text = ",".join(f"{n}00001..{n + 1}00000" for n in range(40))
    tracemalloc.start()
    with pytest.raises(ValueError, match="at most 100,000 txids at once") as refused:
        parse_txids(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert len(str(refused.value)) < 150  # a log and a page show it
    assert len(parse_txids("1..50000,50001..100000")) == 100_000
    with pytest.raises(ValueError, match="txids"):
        parse_txids("1..50000,50001..100001")


@pytest.mark.parametrize(
    ("txids", "text"), [([], ""), ([3], "3"), ([2, 1, 3], "1..3"), ([1, 3, 4, 6], "1,3..4,6")]
)
def test_txids_are_written_short(txids, text):
    assert format_txids(txids) == text


def test_txids_are_named_as_people_say_it():
    march, april = Interval.parse("1997-03"), Interval.parse("1997-04")
    assert format_ranges("{[3,4),[7,10)}") == "3,7..9"
    assert (with_noun("3"), with_noun("3..4")) == ("txid 3", "txids 3..4")
    assert (with_verb("3"), with_verb("3..4")) == ("txid 3 is", "txids 3..4 are")
    assert format_intervals([None]) == ""
    assert format_intervals([april, None, april]) == "1997-04"
    assert name_txids([5, 6], [april, march]) == "txids 5..6 (1997-03 to 1997-04)"
    assert format_intervals([april, Interval.parse("1997-05"), march]) == "1997-03 to 1997-05"
    assert name_txids([5], [None]) == "txid 5"


# --- ranges of keys, [first, last) ----------------------------------------------------------------

RANGES = ((1, 4), (7, 9))


@pytest.mark.parametrize(
    ("most", "pieces"),
    [
        (1, [((1, 2),), ((2, 3),), ((3, 4),), ((7, 8),), ((8, 9),)]),
        (2, [((1, 3),), ((3, 4), (7, 8)), ((8, 9),)]),
        (3, [((1, 4),), ((7, 9),)]),
        (5, [RANGES]),
        (6, [RANGES]),
    ],
)
def test_keys_are_cut_into_pieces_of_a_size(most, pieces):
    assert cut_ranges(RANGES, most) == pieces
    assert cut_ranges((), most) == []


@pytest.mark.parametrize(
    ("first", "last", "covered", "touched"),
    [
        (1, 4, True, True),
        (2, 3, True, True),
        (7, 9, True, True),
        (0, 4, False, True),
        (1, 5, False, True),
        (3, 8, False, True),  # in no range as a whole
        (0, 1, False, False),
        (4, 7, False, False),
        (9, 10, False, False),
        (3, 4, True, True),
    ],
)
def test_keys_that_are_taken_are_told_as_a_whole_or_in_part(first, last, covered, touched):
    assert covers(RANGES, first, last) is covered
    assert touches(RANGES, first, last) is touched
