"""Text files at emission: what Spark would read otherwise than it is counted is refused (V6)."""

from __future__ import annotations

import gzip

import pytest

from reliability.core.errors import SourceUnreadable
from reliability.spouts.text import Csv, JsonLines, line_end


def written(tmp_path, text, name="a.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def as_spark(path, format="jsonl", header=False):
    """Text that Spark's own readers are to read."""
    csv = Csv(header=header, counted=True)
    text = csv if format == "csv" else JsonLines(counted=True)
    return text.read(path)[0]


def json_rows(tmp_path, text):
    return as_spark(written(tmp_path, text)).rows


def csv_rows(tmp_path, text, header=False):
    return as_spark(written(tmp_path, text, "a.csv"), "csv", header=header).rows


# --- JSON lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a": 1}{"a": 2}', '{"a": 2}\' follows the object'),
        ('{"a": 1} {"a": 2}', "follows the object"),
        ('{"a": 1},', "',' follows the object"),
        ('{"a": 1} // no comment', "follows the object"),
        ('[{"a": 1}, {"a": 2}]', r"it starts with '\[\{"),
        ("[]", "it starts with"),
        ("null", "it starts with 'null'"),
        ('"{}"', "it starts with"),
        ('{"a": 1, "b": 2, "a": 3}', "it has 'a' twice"),
        ('{"a": {"b": 1, "b": null}}', "it has 'b' twice"),
        (r'{"a": "\ud800"}', "half of a surrogate pair"),
        (r'{"\udc00": 1}', "half of a surrogate pair"),
        ('{"a": 1', "Expecting"),
        ("{'a': 1}", "Expecting property name"),
        ('{"a": 01}', "Expecting ',' delimiter"),
        ('{"a": +INF}', "Expecting value"),
        ('{"a": "\t"}', "Invalid control character"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
        ("\f", "Expecting value"),
        ("\xa0", "Expecting value"),
        ("\ufeff{}", "Expecting value"),
    ],
)
def test_a_line_that_is_not_one_object_is_refused_with_its_number(tmp_path, line, said):
    """Spark reads the first object of a line alone, and an array as several records."""
    with pytest.raises(
        SourceUnreadable, match=rf"(?s)a\.jsonl .*line 4: it is not one JSON object: .*{said}"
    ):
        json_rows(tmp_path, f'{{"a": 1}}\n\n{{"a": 2}}\n{line}\n{{"a": 3}}\n')


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        ' \t{"a": 1}\t ',
        '{"a": NaN, "b": Infinity, "c": -Infinity}',
        r'{"a": "\ud83d\ude00", "b": "\\ud800", "c": "\u0000"}',
        '{"a": "\u2028\u2029\x85\x7f"}',
        '{"a": ' + "1" * 10_000 + "}",
        '{"a": 1e999}',
        '{"a": {"a": {"a": 1}}, "A": 2}',
        '{"a": "' + "x" * 1_000_000 + '"}',
    ],
)
def test_a_line_that_is_one_object_counts_once(tmp_path, line):
    assert json_rows(tmp_path, f"{line}\n{line}") == 2


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    assert json_rows(tmp_path, "\ufeff{}\n{}\n") == 2
    assert csv_rows(tmp_path, "\ufeffa,b\n1,2\n", header=True) == 1


def test_a_byte_order_mark_alone_is_refused(tmp_path):
    """Spark reads it as a record of one value, the character U+0000."""
    with pytest.raises(SourceUnreadable, match="byte order mark alone"):
        csv_rows(tmp_path, "\ufeff")
    assert csv_rows(tmp_path, "\ufeff\n") == csv_rows(tmp_path, "") == 0


# --- CSV -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "end"),
    [
        ("a\rb\r", 1, r"\\r'"),
        ("a\nb\rc\n", 2, r"\\r'"),
        ("a\nb\r\nc\n", 2, r"\\r\\n'"),
        ("a\r\nb\nc\r\n", 2, r"\\n'"),
        ("a\n\r\nc\n", 2, r"\\r\\n'"),
        ('"a\r\nb"\n"c"\r\n', 3, r"\\r\\n'"),
    ],
)
def test_records_that_end_differently_are_refused(tmp_path, text, line, end):
    """Spark takes what it finds first for the end, and keeps the rest of others in the values."""
    with pytest.raises(SourceUnreadable, match=rf"a\.csv .*line {line}: it ends in '{end}"):
        csv_rows(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "rows", "end"),
    [
        ("", 0, "\n"),
        ("a", 1, "\n"),
        ("a\nb", 2, "\n"),
        ("a\r\nb", 2, "\r\n"),
        ('"a\r\nb\rc"\nd\n', 2, "\n"),
        ('"a\nb\rc"\r\nd\r\n', 2, "\r\n"),
        ("\r\n\r\na\r\n", 1, "\r\n"),
    ],
)
def test_line_ends_inside_quotes_may_be_any(tmp_path, text, rows, end):
    assert csv_rows(tmp_path, text) == rows
    assert line_end(str(tmp_path / "a.csv")) == end


def test_broken_quotes_and_a_nul_are_refused_with_their_line(tmp_path):
    """Spark loses a quote behind a NUL."""
    for broken in ('1,"never closed', '"a"b\n'):
        with pytest.raises(SourceUnreadable, match=r"a\.csv .*line 3: "):
            csv_rows(tmp_path, f"1,2\n1,2\n{broken}")
    for text in ('"a\0""b",1\n', "\0\n"):
        with pytest.raises(SourceUnreadable, match=r"a\.csv .*line 2: .*U\+0000"):
            csv_rows(tmp_path, f"1,2\n{text}")


def test_a_compression_that_only_spark_reads_is_refused(tmp_path):
    """Spark reads a plain text of such a name as no rows, or runs out of memory."""
    for name in ("a.csv.lz4", "a.snappy", "a.csv.deflate", "a.zstd"):
        with pytest.raises(SourceUnreadable, match="compressed files are"):
            as_spark(written(tmp_path, "1\n", name), "csv")


def test_several_members_of_a_compressed_file_are_one_text(tmp_path):
    path = written(tmp_path, gzip.compress(b"1\n") + gzip.compress(b"2\n"), "a.csv.gz")
    assert as_spark(path, "csv").rows == 2
