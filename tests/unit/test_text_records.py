"""Numbered records: emission, Arrow and Python read the same ones, wherever a file is cut (V6)."""

from __future__ import annotations

import csv
import io
import json
import random

import pytest

from reliability.core.errors import SchemaMismatch, SourceUnreadable
from reliability.deployment.lazy import pa
from reliability.spouts import csv_blocks, records
from reliability.spouts.read_records import ReadRecords
from reliability.spouts.text import Csv, JsonLines

MARKS = [
    *("a", "b,", ",", '"', '""', '"', "\n", "\r\n", "\n\n", "\0", " ", "é", "\u2028", "\r"),
    *('"\n"', "\ufeff"),
]


def read(path, width, text=Csv()):  # noqa: B008
    task = ReadRecords(
        text=text, names=[f"n{number}" for number in range(width)], types=[pa.string()] * width
    )
    found = [
        tuple(row.values()) for batch in task.read((0, str(path))) for row in batch.to_pylist()
    ]
    assert [row[1] for row in found] == list(range(len(found)))
    assert text.read(str(path))[0].rows == len(found)
    return found


def python_reads(text):
    found = [record for record in csv.reader(io.StringIO(text, newline=""), strict=True) if record]
    first = next(iter(io.StringIO(text, newline="")), "")
    with_lines = csv.reader(iter([first]), strict=True)
    try:
        next(with_lines, None)
        is_windows = first.endswith("\r\n")
    except csv.Error:  # the first record goes on
        is_windows = None
    return found, is_windows


def test_arrow_reads_what_python_does_wherever_blocks_end(tmp_path, monkeypatch):
    """Arrow's own blocks lost a line feed, or a record beside a NUL."""
    dice = random.Random(0)
    path = tmp_path / "a.csv"
    kept = 0
    for number in range(800):
        text = "".join(dice.choice(MARKS) for _ in range(dice.randint(1, 25)))
        text = text.lstrip("\ufeff")  # as a byte order mark
        path.write_bytes(text.encode())
        monkeypatch.setattr(csv_blocks, "BLOCK", dice.choice([1, 3, 7, 20, 1000]))
        try:
            Csv().read(str(path))
        except SourceUnreadable:
            continue
        widths = {len(record) for record in python_reads(text)[0]}
        if len(widths) != 1:
            continue
        [width] = widths
        kept += 1
        fast = [row[6:] for row in read(path, width)]
        slow = [row[6:] for row in read(path, width, Csv(malformed="quarantine"))]
        assert fast == slow, (number, text)
        found, is_windows = python_reads(text)
        if is_windows is not None:
            wanted = [
                tuple((v.replace("\r\n", "\n") if is_windows else v) or None for v in record)
                for record in found
            ]
            assert fast == wanted, (number, text)
    assert kept > 50


def test_a_line_end_in_quotes_stays_whole_at_the_end_of_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_blocks, "BLOCK", 1 << 12)
    path = tmp_path / "a.csv"
    for place in range(-3, 3):
        rows = (csv_blocks.BLOCK + place) // 4 - 1
        before = "1,x\n" * rows
        long = "a" * (csv_blocks.BLOCK + place - len(before) - 3)
        path.write_text(f'{before}2,"{long}\r\nb"\n3,z\n', newline="")
        assert read(path, 2)[rows][7][-4:] == "a\r\nb"


def test_large_fields_and_many_blank_lines_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_blocks, "BLOCK", 1 << 12)
    path = tmp_path / "a.csv"
    path.write_text("1,x\n" * 1000 + f'2,"{"y" * 50_000}"\n' + "\n" * 50_000 + "3,z\n")
    found = read(path, 2)
    assert [row[6] for row in found[-2:]] == ["2", "3"]
    path.write_text("\n" * 50_000 + "n0,n1\n" + "\n" * 50_000 + "1,2\n")
    assert [row[6:] for row in read(path, 2, Csv(header=True))] == [("1", "2")]


def test_a_quote_inside_a_field_is_read_by_python_from_there(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_blocks, "BLOCK", 10)
    path = tmp_path / "a.csv"
    path.write_text('1,a\n2,b\n3,c\n4,5" pipe\n5,"d\nd"\n')
    values = [row[7] for row in read(path, 2)]
    assert values == ["a", "b", "c", '5" pipe', "d\nd"]
    path.write_text('1,a\n2,b\n3,c\n4,5" pipe\n5\n')
    with pytest.raises(SchemaMismatch, match=r"line 5 of .*: it has 1 fields instead of 2"):
        read(path, 2)


def test_a_text_of_unclosed_quotes_is_refused_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_GIVEN_BACK", 1 << 20)
    path = tmp_path / "a.csv"
    path.write_text('a",",x\n' * 4000)
    with pytest.raises(SourceUnreadable, match="quotes that are not closed"):
        Csv(malformed="quarantine").read(str(path))


def test_json_that_is_nested_deeply_is_read_or_malformed(tmp_path):
    path = tmp_path / "a.jsonl"
    for depth in (100, 5000):
        nested = '{"a": ' * depth + "1" + "}" * depth
        path.write_text(f'{{"n0": {nested}}}\n{{"n0": 1}}\n')
        first, second = read(path, 1, JsonLines(malformed="quarantine"))
        assert (first[3] == "NOT_JSON") == (first[6] is None)
        assert first[6] is None or json.loads(first[6]) == json.loads(nested)
        assert second[6] == "1"
