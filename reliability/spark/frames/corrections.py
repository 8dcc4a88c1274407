"""Rows of a batch that a person has corrected: the attempt reads them instead (V9).

A row is found again by its file and its index there. The file has the ledger's name, by which it
is found wherever it lies now. Where Spark does not know the index, the row's id stands for it,
which changes with the files before its own. In either case it must have all the values that it had
when it was corrected, not only in the columns that are edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reliability.core.column import quoted
from reliability.core.errors import CorrectionRefused, CorrectionStale, SchemaMismatch
from reliability.core.fold import ACCOUNTING
from reliability.core.remedy import Remedy
from reliability.core.set_aside import MALFORMED, MASKED, Correction, QuarantinedRow
from reliability.core.texts import as_exact_json, as_json, is_same, parse_exact
from reliability.deployment.lazy import F, T
from reliability.spark.frames.accounting_columns import JSON_OPTIONS, unused_name
from reliability.spark.frames.quarantined import place_of
from reliability.spark.frames.set_aside_rows import MAX_CONTENTS
from reliability.spark.frames.values import as_text, as_typed, translate_value_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_REMEDY = "write a value of the column's type."
#: the file, and the index there or the id
Place = tuple[str | None, int]
#: gives the ledger's name of a file, from any spelling of it
NameOf = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Change:
    """A correction that was read from its JSON."""

    was: Mapping[str, Any]
    becomes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Found:
    """A row of the batch, with the values of some columns."""

    xor: int
    item: str | None
    row: int | None
    values: Mapping[str, Any]

    @property
    def place(self) -> Place:
        return _place(self.item, self.row, self.xor)


def with_corrections(
    frame: DataFrame, corrections: Sequence[Correction], name_of: NameOf
) -> DataFrame:
    """Return a batch in which these rows have other values.

    :raises CorrectionStale: a row is not there, or no longer has the values that it had
    :raises CorrectionRefused: a value is not one of its column's type
    """
    if not corrections:
        return frame
    changes = _changes(corrections, name_of)
    columns = _columns(frame)
    if unknown := {name for change in changes.values() for name in change.was} - {*columns}:
        raise CorrectionStale(f"the batch has no columns {sorted(unknown)}, as it had")
    paths = _paths(frame, name_of) if any(item for item, _ in changes) else {}
    in_spark = {
        (item and paths.get(item, item), id_): change for (item, id_), change in changes.items()
    }
    _check(frame, in_spark)
    return _replaced(frame, columns, in_spark)


def with_sources(
    rows: Sequence[QuarantinedRow],
    batch: DataFrame,
    corrections: Sequence[Correction],
    name_of: NameOf,
) -> list[QuarantinedRow]:
    """Add where the rows are in the source, and which columns have the source's values.

    Those a person may edit: the process function has made the others. A row that is not one row of
    the batch stays as it is: made by `fan_out()`, or of several rows.

    :param batch: as the process function has read it, with `_x` and `_n`
    :param corrections: what was corrected in it
    """
    rows = [replace(row, item=row.item and name_of(row.item)) for row in rows]
    single = [row for row in rows if row.fold.count == 1 and not row.is_cut]
    contents = {row.fold.xor: parse_exact(row.contents) for row in single}
    named = {name for values in contents.values() for name in values}
    names = [name for name in _columns(batch) if name in named]
    if not names:
        return rows
    ids = batch.sparkSession.createDataFrame([(xor,) for xor in contents], "id bigint")
    key = unused_name(batch.columns)
    wanted = F.broadcast(ids.withColumnRenamed("id", key))
    rows_by_id: dict[int, list[_Found]] = {}
    for row_of_batch in _read(batch.join(wanted, F.col("_x") == F.col(key)), names):
        item = row_of_batch.item and name_of(row_of_batch.item)
        rows_by_id.setdefault(row_of_batch.xor, []).append(replace(row_of_batch, item=item))
    changes = _changes(corrections, name_of)
    is_lenient = MALFORMED in batch.columns
    return [
        _with_source(row, rows_by_id.get(row.fold.xor, []), changes, is_lenient=is_lenient)
        for row in rows
    ]


def _with_source(
    row: QuarantinedRow,
    found: Sequence[_Found],
    changes: Mapping[Place, _Change],
    *,
    is_lenient: bool,
) -> QuarantinedRow:
    if row.fold.count != 1 or row.is_cut or len(found) != 1:
        return row
    [one] = found
    shown = parse_exact(row.contents)
    if is_lenient and shown.get("_record") == MASKED:
        return row  # of a malformed record that is masked, nothing is known
    source = {
        name: value
        for name, value in one.values.items()
        if name in shown and shown[name] != MASKED and is_same(shown[name], value)
    }
    if (change := changes.get(one.place)) is not None:
        source |= {name: change.was[name] for name in change.becomes if name in source}
    return replace(row, item=one.item, row=one.row, source=as_exact_json(source))


def _changes(corrections: Iterable[Correction], name_of: NameOf) -> dict[Place, _Change]:
    """Return what is corrected, by place; a dry run's correction comes last, and counts."""
    changes: dict[Place, _Change] = {}
    for correction in corrections:
        item = correction.item and name_of(correction.item)
        change = _Change(parse_exact(correction.was), parse_exact(correction.becomes))
        changes[_place(item, correction.row, correction.xor)] = change
    return changes


def _place(item: str | None, row: int | None, xor: int) -> Place:
    return (item, xor if row is None else row)


def _paths(frame: DataFrame, name_of: NameOf) -> dict[str, str]:
    paths = frame.select(_told(frame, "file_path", "string").alias("path")).distinct().collect()
    return {name_of(row["path"]): row["path"] for row in paths if row["path"]}


# --- find the rows -------------------------------------------------------------------------------


def _check(frame: DataFrame, changes: Mapping[Place, _Change]) -> None:
    names = [n for n in _columns(frame) if any(n in change.was for change in changes.values())]
    wanted = frame.sparkSession.createDataFrame([*changes], "item string, id bigint")
    present = [row for row in _read(_joined(frame, wanted, "inner"), names) if row.place in changes]
    found = {row.place for row in present}
    if len(found) < len(present):  # a feed of changes may have a file as inserted and as deleted
        raise CorrectionRefused(
            f"of {len(changes)} corrected rows, some are in the batch more than once, as rows of "
            "one file: which of them is meant is not known",
            remedy=Remedy(
                "run {forget}, which takes the txid's corrections back, and correct these rows in "
                "the source."
            ),
        )
    missing = len(changes) - len(found)
    changed = [row for row in present if not _has(row.values, changes[row.place].was)]
    if missing or changed:
        raise CorrectionStale(
            f"of {len(changes)} corrected rows, {missing} are not in the batch any more, and "
            f"{len(changed)} no longer have the values that they had"
        )


def _has(values: Mapping[str, Any], was: Mapping[str, Any]) -> bool:
    return all(name in values and is_same(values[name], was[name]) for name in was)


def _joined(frame: DataFrame, places: DataFrame, how: str) -> DataFrame:
    """Join a batch with rows whose first two columns are a place; they get unused names."""
    names = [unused_name(frame.columns) + str(n) for n in range(len(places.columns))]
    renamed = F.broadcast(places.toDF(*names))
    item, id_ = F.col(names[0]), F.col(names[1])
    index = F.coalesce(_told(frame, "row_index", "bigint"), F.col("_x"))
    return frame.join(
        renamed, item.eqNullSafe(_told(frame, "file_path", "string")) & (id_ == index), how
    )


def _read(frame: DataFrame, names: Sequence[str]) -> list[_Found]:
    """Return rows with these columns; without those that are too long for the quarantine."""
    texts = [F.to_json(F.struct(F.col(quoted(name))), JSON_OPTIONS) for name in names]
    rows = frame.select(
        F.col("_x"),
        _told(frame, "file_path", "string").alias("item"),
        _told(frame, "row_index", "bigint").alias("row"),
        F.array(*[F.when(F.length(text) <= MAX_CONTENTS, text) for text in texts]).alias("texts"),
    ).collect()
    found = []
    for row in rows:
        values: dict[str, Any] = {}
        for text in filter(None, row["texts"]):
            values |= parse_exact(text)
        found.append(_Found(row["_x"], row["item"], row["row"], values))
    return found


def _told(frame: DataFrame, field: str, type_: str) -> Column:
    return place_of(frame, field).cast(type_)


def _columns(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name not in (*ACCOUNTING, MALFORMED)]


# --- replace their values ------------------------------------------------------------------------


def _replaced(
    frame: DataFrame, columns: Sequence[str], changes: Mapping[Place, _Change]
) -> DataFrame:
    edited = {name for change in changes.values() for name in change.becomes}
    schema = T.StructType(
        [T.StructField(f.name, f.dataType) for f in frame.schema if f.name in edited]
    )
    joined = _joined(frame, _typed(frame.sparkSession, schema, changes), "left")
    names, values = (F.col(quoted(name)) for name in joined.columns[-2:])
    read = [
        F.when(F.array_contains(names, name), values.getField(name))
        .otherwise(F.col(quoted(name)))
        .alias(name)
        if name in edited
        else F.col(quoted(name))
        for name in columns
    ]
    if MALFORMED in frame.columns:  # a row that a person has corrected is well-formed
        read.append(F.when(names.isNull(), F.col(MALFORMED)).alias(MALFORMED))
    return joined.select(*read, *ACCOUNTING)


def _typed(spark: SparkSession, schema: StructType, changes: Mapping[Place, _Change]) -> DataFrame:
    """Return what is read at each place: names, and a struct of values of the columns' types.

    Spark's JSON reader changes values silently. So it reads texts, and `values` converts them.

    :raises CorrectionRefused: a value would change
    """
    rows = []
    for place, change in changes.items():
        becomes = change.becomes.items()
        texts = {name: _text(value, schema[name].dataType, name) for name, value in becomes}
        rows.append((*place, [*change.becomes], as_json(texts)))
    frame = spark.createDataFrame(rows, "item string, id bigint, names array<string>, text string")
    try:
        read = F.from_json("text", as_text(schema))
        structs = frame.select(
            F.struct("item", "id", "names").alias(key := unused_name(schema.names)),
            *[read.getField(name).alias(name) for name in schema.names],
        )
        typed = as_typed(structs, schema, is_base64=True).select(
            f"{key}.*", F.struct(*[F.col(quoted(name)) for name in schema.names])
        )
        with translate_value_errors():
            typed.write.format("noop").mode("overwrite").save()  # convert each value
    except SchemaMismatch as error:
        raise CorrectionRefused(f"a corrected value: {error.what}", remedy=_REMEDY) from error
    return typed


def _text(value: Any, type_: DataType, place: str) -> Any:
    """Return a value of JSON with a text in place of each number; its shape must be the type's."""
    match type_, value:
        case _, None:
            return None
        case T.StructType(), dict() if {*value} == {*type_.names}:
            return {f.name: _text(value[f.name], f.dataType, f"{place}.{f.name}") for f in type_}
        case T.ArrayType(), list():
            return [_text(each, type_.elementType, f"{place}[]") for each in value]
        case ((T.StructType() | T.ArrayType()), _):
            pass
        case _, str():
            return value
        case ((T.StringType() | T.BinaryType()), _):
            pass
        case _, bool():
            return as_json(value)
        case _, dict() | list():
            pass
        case _:
            return str(value)
    raise CorrectionRefused(
        f"a corrected value: column {place}: {as_exact_json(value)} is not a "
        f"{type_.simpleString()}",
        remedy=_REMEDY,
    )
