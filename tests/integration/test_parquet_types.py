"""What emission says of a Parquet file's columns, compared with what Spark does with the file."""

from __future__ import annotations

import base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from reliability import FileSpout
from reliability.core.errors import FileRefused
from reliability.core.spout import BatchMeta, NoItems
from reliability.deployment.lazy import pa, pq
from reliability.spark.session import pin_settings
from reliability.spouts.parquet_columns import in_spark

NOON = datetime(2013, 3, 1, 12)


def types():
    """Return columns by name; Spark decides in the test which of them are readable."""

    def column(value, type_):
        return {"v": pa.array([value, None], type_)}

    return {
        **{
            f"timestamp_{unit}": column(NOON, pa.timestamp(unit))
            for unit in ("s", "ms", "us", "ns")
        },
        "timestamp_us_utc": column(NOON, pa.timestamp("us", "UTC")),
        "timestamp_ns_utc": column(NOON, pa.timestamp("ns", "UTC")),
        **{
            f"{sign}int{bits}": column(1, getattr(pa, f"{sign}int{bits}")())
            for sign in ("", "u")
            for bits in (8, 16, 32, 64)
        },
        "float16": column(1.0, pa.float16()),
        "float32": column(1.0, pa.float32()),
        "float64": column(1.0, pa.float64()),
        "boolean": column(True, pa.bool_()),
        "binary": column(b"a", pa.binary()),
        "fixed_binary": column(b"ab", pa.binary(2)),
        "string": column("a", pa.string()),
        "large_string": column("a", pa.large_string()),
        "dictionary": {"v": pa.array(["a", None]).dictionary_encode()},
        "null": {"v": pa.nulls(2)},
        "date32": column(date(2013, 3, 1), pa.date32()),
        "date64": column(date(2013, 3, 1), pa.date64()),
        "time_ms": column(time(1), pa.time32("ms")),
        "time_us": column(time(1), pa.time64("us")),
        "time_ns": column(time(1), pa.time64("ns")),
        "duration": column(timedelta(1), pa.duration("us")),
        "decimal128": column(Decimal("1.1"), pa.decimal128(38, 2)),
        "decimal256": column(Decimal("1.1"), pa.decimal256(20, 2)),
        "decimal_of_40_digits": column(Decimal("1.1"), pa.decimal256(40, 2)),
        "list": column([1], pa.list_(pa.int64())),
        "list_of_nanos": column([NOON], pa.list_(pa.timestamp("ns"))),
        "struct": column({"a": 1, "b": "x"}, pa.struct([("a", pa.int64()), ("b", pa.string())])),
        "struct_of_nanos": column({"a": NOON}, pa.struct([("a", pa.timestamp("ns"))])),
        "struct_of_time": column({"a": time(1)}, pa.struct([("a", pa.time64("us"))])),
        "nested": column(
            {"a": [{"b c": [(1, [True])]}], "d": Decimal("1.1"), "e": None},
            pa.struct(
                [
                    ("a", pa.list_(pa.struct([("b c", pa.map_(pa.int8(), pa.list_(pa.bool_())))]))),
                    ("d", pa.decimal128(5, 2)),
                    ("e", pa.uint32()),
                ]
            ),
        ),
        "fixed_size_list": column([1, 2], pa.list_(pa.int16(), 2)),
        "large_list": column([NOON], pa.large_list(pa.timestamp("us"))),
        "map": column([("a", 1)], pa.map_(pa.string(), pa.int64())),
        "map_of_nanos": column([("a", NOON)], pa.map_(pa.string(), pa.timestamp("ns"))),
        "names_with_dots": {"a.b": [1, 2], "a b": [1, 2], "c,;{}()=": [1, 2]},
        "names_differ_in_case": {"day": [1, 2], "Day": [1, 2]},
        "fields_differ_in_case": column(
            [{"a": 1, "A": 2}], pa.list_(pa.struct([("a", pa.int8()), ("A", pa.int8())]))
        ),
        "interval": column(bytes(12), pa.binary(12)),
    }


REFUSED = {
    "timestamp_ns": "column v is INT64 TIMESTAMP(NANOS), which Spark does not read",
    "timestamp_ns_utc": "column v is INT64 TIMESTAMP(NANOS)",
    "float16": "column v is FIXED_LEN_BYTE_ARRAY FLOAT16",
    "time_ms": "column v is INT32 TIME(MILLIS)",
    "time_us": "column v is INT64 TIME(MICROS)",
    "time_ns": "column v is INT64 TIME(NANOS)",
    "decimal_of_40_digits": "column v is FIXED_LEN_BYTE_ARRAY DECIMAL(40,2)",
    "list_of_nanos": "column v.list.element is INT64 TIMESTAMP(NANOS)",
    "struct_of_nanos": "column v.a is INT64 TIMESTAMP(NANOS)",
    "struct_of_time": "column v.a is INT64 TIME(MICROS)",
    "map_of_nanos": "column v.key_value.value is INT64 TIMESTAMP(NANOS)",
    "fields_differ_in_case": "Spark does not tell its fields ['v.element.a', 'v.element.A'] apart",
    "interval": "column v is FIXED_LEN_BYTE_ARRAY INTERVAL",
    "names_differ_in_case": "Spark does not tell its columns ['day', 'Day'] apart",
}


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def make_interval(path):
    """Say in a file's footer that its column v is an interval, which pyarrow does not write."""
    whole = Path(path).read_bytes()
    begin = len(whole) - 8 - pq.read_metadata(path).serialized_size
    footer = whole[begin:-8].replace(b"\x18\x01v\x00", b"\x18\x01v\x25\x2a\x00", 1)
    end = len(footer).to_bytes(4, "little") + b"PAR1"
    Path(path).write_bytes(whole[:begin] + footer + end)


def planned(pattern, **options):
    spout = FileSpout(pattern, **options)
    items = spout.plan(None, NoItems())
    return spout, [BatchMeta(items=batch, emitted=spout.count(batch)) for batch in spout.cut(items)]


@pytest.mark.slow
def test_emission_refuses_exactly_the_types_that_spark_refuses(spark, tmp_path):
    pin_settings(spark)
    for name, columns in types().items():
        path = write(tmp_path / f"{name}.parquet", columns)
        if name == "interval":
            make_interval(path)
        if name in REFUSED:
            with pytest.raises(FileRefused) as refused:
                planned(path)
            assert f"{name}.parquet: {REFUSED[name]}" in str(refused.value)
            with pytest.raises(Exception, match=r"ILLEGAL|SUPPORTED|EXCEEDS|ALREADY_EXISTS"):
                spark.read.parquet(path).collect()
            continue
        spout, [meta] = planned(path)
        frame = spout.frame(spark, meta)
        assert len(frame.collect()) == 2, name
        assert [*in_spark(meta.items[0].columns)] == frame.dtypes[:-2]


PAIRS = {
    "dictionary": ("dictionary", "string"),
    "other_order": ({"a": ["x", "y"], "b": [1, 2]}, {"b": [3, 4], "a": ["z", "z"]}),
    "milliseconds_and_microseconds": ("timestamp_ms", "timestamp_us"),
    "names_of_elements": ("list", "list"),
}
REFUSED_PAIRS = {
    "int_and_bigint": ("int32", "int64", "v is int in .* and bigint in"),
    "bigint_and_decimal": ("int64", "decimal128", r"v is bigint in .* and decimal\(38,2\) in"),
    "zoned_and_not": ("timestamp_us", "timestamp_us_utc", "_ntz in .* timestamp in"),
    "missing": ({"a": [1, 2], "b": [1, 2]}, {"a": [1, 2]}, "two.parquet has no column b"),
    "extra": ({"a": [1, 2]}, {"a": [1, 2], "b": [1, 2]}, "one.parquet has no column b"),
    "case": ({"Price": [1, 2]}, {"price": [1, 2]}, "column Price in .* is price in"),
}


def two_files(folder, one, two):
    """Write two files of different writers; return their rows, sorted as text, by column."""
    written = []
    for name, columns in (("one", one), ("two", two)):
        columns = types()[columns] if isinstance(columns, str) else columns
        write(folder / f"{name}.parquet", columns, use_compliant_nested_type=name == "one")
        written += pa.table(columns).to_pylist()
    return sorted(str(sorted(row.items())) for row in written)


@pytest.mark.parametrize("name", PAIRS)
def test_spark_reads_both_files_of_a_batch_that_emission_lets_pass(spark, tmp_path, name):
    written = two_files(tmp_path, *PAIRS[name])
    pin_settings(spark)
    spout, [meta] = planned(f"{tmp_path}/*.parquet", max_files_per_batch=2)
    read = spout.frame(spark, meta).drop("_x", "_n").collect()
    assert sorted(str(sorted(row.asDict().items())) for row in read) == written


@pytest.mark.parametrize("name", REFUSED_PAIRS)
def test_a_batch_of_files_with_different_columns_is_refused_at_emission(tmp_path, name):
    *files, said = REFUSED_PAIRS[name]
    two_files(tmp_path, *files)
    with pytest.raises(FileRefused, match=said):
        planned(f"{tmp_path}/*.parquet", max_files_per_batch=2)
    assert len(planned(f"{tmp_path}/*.parquet")[1]) == 2  # each is right on its own


def test_a_schema_is_compared_as_the_driver_does(spark, tmp_path):
    path = write(tmp_path / "a.parquet", {"id": [1], "tags": [[1]], "day": [date(2013, 3, 1)]})
    pin_settings(spark)
    spout, [meta] = planned(path, schema="id long, `tags` array<bigint>, day: date")
    assert spout.frame(spark, meta).count() == 1
    for schema, said in {
        "id int, tags array<bigint>, day date": "id is bigint in .* and int in the spout's schema",
        "id bigint, tags array<bigint>": "the spout's schema has no column day",
        "id bigint, tags array<bigint>, day date, x int": "a.parquet has no column x, which the",
        "tags array<bigint>, id bigint, day date": "not in the same order",
    }.items():
        with pytest.raises(FileRefused, match=said):
            planned(path, schema=schema)


def test_a_file_in_a_folder_that_looks_like_a_partition_has_its_own_columns(spark, tmp_path):
    folder = tmp_path / "day=2013-03-01"
    folder.mkdir()
    path = write(folder / "a.parquet", {"id": [1]})
    pin_settings(spark)
    spout, [meta] = planned(path, schema="id bigint")
    assert spout.frame(spark, meta).columns == ["id", "_x", "_n"]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_file_is_refused_and_does_not_end_the_process(tmp_path, plaintext_footer):
    from pyarrow.parquet import encryption as pe

    class Keys(pe.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key, master):
            return base64.b64encode(key)

        def unwrap_key(self, key, master):
            return base64.b64decode(key)

    factory = pe.CryptoFactory(lambda _: Keys())
    encryption = factory.file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(
            "footer", column_keys={"key": ["v"]}, plaintext_footer=plaintext_footer
        ),
    )
    table = pa.table({"id": [1], "v": [2]})
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table.schema, encryption_properties=encryption) as writer:
        writer.write_table(table)
    with pytest.raises(FileRefused, match=r"a\.parquet is encrypted"):
        planned(str(path))
