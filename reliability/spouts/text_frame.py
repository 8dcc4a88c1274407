"""The frame of a batch of text whose records are numbered: Python reads them, Spark converts them.

A record that cannot be read, or has a value that does not fit its column, is an error that names
file and line. With `malformed="quarantine"` it stays in the frame, with its reason in the column
`_malformed`; `set_aside.set_malformed_aside` takes it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliability.core.errors import SchemaMismatch
from reliability.core.set_aside import INVALID_VALUE, MALFORMED, MASKED, check_told
from reliability.core.spout import BatchMeta
from reliability.spark.catalyst import hide
from reliability.spark.frames import METADATA, check_source_columns, with_tuple_ids
from reliability.spark.values import as_text, misfit, typed
from reliability.spouts.file_item import ordinals
from reliability.spouts.file_names import locate
from reliability.spouts.read_records import ReadRecords, names_of
from reliability.spouts.records import TextFormat

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

#: characters of a record that the quarantine shows
MAX_RECORD = 4_000
_FILES_PER_CORE = 4


def text_frame(
    spark: SparkSession, text: TextFormat, schema_ddl: str, meta: BatchMeta, *, is_masked: bool
) -> DataFrame:
    """Read a batch of text files.

    :param is_masked: a malformed record's text is not shown
    :raises SchemaMismatch: a column has a type that text has no values of
    """
    schema = spark.createDataFrame([], schema_ddl).schema
    paths = [locate(path) for path in ordinals(meta.items)]
    check_source_columns(schema.names)
    if text.lenient:
        check_told(schema.names)  # Spark reads more schemas than the spout can
    converted = _convert(_read(spark, text, schema, paths), schema, text)
    return _accounted(converted, schema, text, paths, is_masked=is_masked)


def _read(
    spark: SparkSession, text: TextFormat, schema: StructType, paths: Sequence[str]
) -> DataFrame:
    """Return the columns that `names_of` names: each column's text as t0, t1, ..."""
    from pyspark.sql import types as T

    texts = [field.dataType for field in as_text(schema)]
    task = ReadRecords(
        paths=paths, text=text, names=schema.names, types=[_arrow_type(type_) for type_ in texts]
    )
    known = [T.IntegerType(), T.LongType(), T.LongType(), *[T.StringType()] * 3]
    columns = zip(names_of(len(texts)), [*known, *texts], strict=True)
    partitions = min(len(paths), _FILES_PER_CORE * spark.sparkContext.defaultParallelism)
    return spark.range(0, len(paths), 1, partitions).mapInArrow(
        task, T.StructType([T.StructField(name, type_) for name, type_ in columns])
    )


def _arrow_type(type_: DataType) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql import types as T

    match type_:
        case T.StructType():
            return pa.struct([(f.name, _arrow_type(f.dataType)) for f in type_])
        case T.ArrayType():
            return pa.list_(_arrow_type(type_.elementType))
        case _:
            return pa.string()


def _convert(values: DataFrame, schema: StructType, text: TextFormat) -> DataFrame:
    """Add each column's value as c0, c1, ...; NULL if its text does not fit its type."""
    is_base64 = text.format != "csv"
    return values.withColumns(
        {
            f"c{n}": typed(values[f"t{n}"], f.dataType, is_base64=is_base64)
            for n, f in enumerate(schema)
        }
    )


def _accounted(
    converted: DataFrame,
    schema: StructType,
    text: TextFormat,
    paths: Sequence[str],
    *,
    is_masked: bool,
) -> DataFrame:
    from pyspark.sql import functions as F

    misfits = [
        misfit(converted[f"t{n}"], converted[f"c{n}"], f.dataType, f.name, told=not text.lenient)
        for n, f in enumerate(schema)
    ]
    why = F.coalesce("_why", *misfits)
    path = F.element_at(F.array(*map(F.lit, paths)), F.col("_ordinal") + 1)
    columns = [F.col(f"c{n}").alias(f.name) for n, f in enumerate(schema)]
    row: Column = F.col("_row")
    if text.lenient:
        if is_masked:
            columns = [
                F.when(why.isNull(), F.col(f"c{n}")).alias(f.name) for n, f in enumerate(schema)
            ]
        columns.append(F.when(why.isNotNull(), _told(why, is_masked)).alias(MALFORMED))
    else:
        # the id of a row needs all its values: one that no state uses must be valid too
        row = F.when(why.isNull(), row).otherwise(_refusal(path, why))
    if METADATA not in schema.names:
        columns.append(_place(path).alias(METADATA))
    ordinal, number = (max(("_", *schema.names), key=len) + end for end in "ab")
    frame = converted.select(*columns, F.col("_ordinal").alias(ordinal), row.alias(number))
    frame = with_tuple_ids(frame, F.col(ordinal), F.col(number)).drop(ordinal, number)
    return hide(frame, [METADATA]) if METADATA not in schema.names else frame


def _told(why: Column, is_masked: bool) -> Column:
    """Return the reason, which stands for many records, and what the quarantine shows of this."""
    from pyspark.sql import functions as F

    record = F.substring("_record", 1, MAX_RECORD)
    reason = F.coalesce("_reason", F.concat(F.lit(f"{INVALID_VALUE}: "), why))
    return F.struct(
        reason.alias("reason"),
        F.col("_line"),
        (F.lit(MASKED) if is_masked else why).alias("_why"),
        (F.lit(MASKED) if is_masked else record).alias("_record"),
    )


def _place(path: Column) -> Column:
    from pyspark.sql import functions as F

    name = F.element_at(F.split(path, "/"), -1)
    return F.struct(
        path.alias("file_path"), name.alias("file_name"), F.col("_row").alias("row_index")
    )


def _refusal(path: Column, why: Column) -> Column:
    from pyspark.sql import functions as F

    line = F.coalesce(
        F.concat(F.lit("line "), "_line"), F.concat(F.lit("record "), F.col("_row") + 1)
    )
    before = F.concat(F.lit(f"[{SchemaMismatch.code}] "), line, F.lit(" of "), path, F.lit(": "))
    return F.raise_error(F.concat(before, why)).cast("bigint")
