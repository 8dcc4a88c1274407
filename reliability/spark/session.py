"""The Spark SQL settings with which every batch is processed, on every host and with any conf (V7).

Settings that affect values affect what a batch adds: a replay on a host with other settings would
add other values. The driver sets these on its session before it reads the batch, and again after
the process function, for the states' aggregates. It sets them on the application too: a session
that the process function makes begins with the application's settings. They are Spark's defaults,
except for the time zone and for stricter reading of text. Settings of speed, resources, catalogs
and extensions stay unchanged.

The Python processes have UTC as their local time too. pyspark reads a datetime without a time zone
as local time: in a literal, in a MemorySpout's rows and in a Python function.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reliability.spark.driver_environment import CLASSIC
from reliability.spark.frames.jvm import set_for_new_sessions, settings_of, settings_of_new_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark warns whenever they are set, be it to what they are.
DEPRECATED = ("spark.sql.parser.escapedStringLiterals", "spark.sql.optimizer.metadataOnly")
ZONE = "TZ"
#: The settings of an application that give its Python workers the project's parent.
PARENT_OF_WORKERS: dict[str, Any] = {
    "spark.python.use.daemon": "true",
    "spark.python.daemon.module": "reliability.spark.daemon",
}
_LEGACY = ".legacy."  # settings with this in their names restore results of an older Spark

PINNED = {
    # --- arithmetic and types ---
    "spark.sql.ansi.enabled": "true",  # a sum that overflows is an error; otherwise it wraps
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",  # the scale of a product, a quotient
    "spark.sql.session.timeZone": "UTC",  # a string as timestamp, a timestamp as date
    "spark.sql.timestampType": "TIMESTAMP_LTZ",  # what `timestamp` means in a schema and a cast
    "spark.sql.timestampNanosTypes.enabled": "false",  # Postgres has microseconds
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",  # otherwise the last of equal keys wins
    "spark.sql.variant.allowDuplicateKeys": "false",  # the same for JSON that becomes a variant
    "spark.sql.chunkBase64String.enabled": "true",  # line ends in what base64() returns
    "spark.sql.function.concatBinaryAsString": "false",  # the type of concat() over bytes
    "spark.sql.function.eltOutputAsString": "false",  # the same for elt()
    "spark.sql.icu.caseMappings.enabled": "true",  # upper() and lower() beyond ASCII
    "spark.sql.readSideCharPadding": "true",  # blanks after the char(n) of a table that is joined
    # --- the meaning of names and SQL text ---
    "spark.sql.caseSensitive": "false",  # whether `Price` is the column `price`
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",  # whether "a" is a string or a column
    "spark.sql.ansi.relationPrecedence": "false",  # whether JOIN binds closer than a comma
    "spark.sql.parser.escapedStringLiterals": "false",  # backslashes in a string, as in a pattern
    "spark.sql.parser.quotedRegexColumnNames": "false",  # whether `a.*` is one column or many
    "spark.sql.variable.substitute": "true",  # ${…} in SQL text
    "spark.sql.groupByOrdinal": "true",  # GROUP BY 1: the first column, not the number
    "spark.sql.orderByOrdinal": "true",  # the same for ORDER BY
    "spark.sql.groupByAliases": "true",  # GROUP BY a name of the select list
    "spark.sql.retainGroupColumns": "true",  # whether groupBy(k).agg(…) has the column k
    "spark.sql.analyzer.failAmbiguousSelfJoin": "true",  # otherwise a.k = b.k is true of each pair
    "spark.sql.selfJoinAutoResolveAmbiguity": "true",  # the same for the older form of such a join
    # --- reading files: the batch, and what a process function joins ---
    "spark.sql.files.ignoreCorruptFiles": "false",  # otherwise rows are missing
    "spark.sql.files.ignoreMissingFiles": "false",  # the same
    "spark.sql.files.ignoredPathSegmentRegex": "^[._]",  # the names that are hidden at emission
    "spark.sql.files.ignoreInvalidPartitionPaths": "false",  # otherwise folders are left out
    "spark.sql.execution.datasources.hadoopLineRecordReader.enabled": "true",  # .zst, from 4.1 on
    "spark.sql.files.supportSecondOffsetFormat": "true",  # otherwise an offset loses its seconds
    "spark.sql.sources.default": "parquet",  # what spark.read.load(path) reads
    "spark.sql.sources.useV1SourceList": "avro,csv,json,kafka,orc,parquet,text",  # have row_index
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",  # the type of day=2024-01-01
    "spark.sql.sources.validatePartitionColumns": "true",  # otherwise invalid values become NULL
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",  # a column that Spark fills itself
    "spark.sql.csv.parser.columnPruning.enabled": "false",  # a record with too few values is found
    "spark.sql.csv.filterPushdown.enabled": "false",  # the same if a filter does not need the value
    "spark.sql.json.filterPushdown.enabled": "false",  # the same
    "spark.sql.json.enablePartialResults": "true",  # how much of a malformed object is NULL
    "spark.sql.json.enableExactStringParsing": "true",  # 1.10 as a string is 1.10, not 1.1
    "spark.sql.jsonGenerator.ignoreNullFields": "true",  # to_json() of a field that is NULL
    # --- Parquet and Avro ---
    "spark.sql.parquet.binaryAsString": "false",  # bytes are not a string
    "spark.sql.parquet.int96AsTimestamp": "true",  # the timestamps of Impala and older Sparks
    "spark.sql.parquet.int96TimestampConversion": "false",  # do not convert them to another zone
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",  # a time without a zone stays so
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # do not change days before 1582
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",  # the same
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",  # the same for Avro
    "spark.sql.parquet.mergeSchema": "false",  # a file's own columns
    "spark.sql.parquet.respectSummaryFiles": "false",  # not those of a _metadata file beside it
    "spark.sql.parquet.fieldId.read.enabled": "false",  # find columns by name, not by number
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",  # otherwise a missing one is NULL
    "spark.sql.parquet.aggregatePushdown": "false",  # read values, not a footer's statistics
    "spark.sql.parquet.recordLevelFilter.enabled": "false",  # rows keep their place in the file
    "spark.sql.parquet.ignoreVariantAnnotation": "false",  # a variant is one, not its bytes
    "spark.sql.parquet.reader.respectUnknownTypeAnnotation.enabled": "false",  # the type of NULLs
    # --- Python functions of a process function ---
    "spark.sql.execution.pandas.convertToArrowArraySafely": "true",  # otherwise numbers wrap
    "spark.sql.execution.pandas.structHandlingMode": "legacy",  # a struct is a Row
    "spark.sql.execution.pandas.inferPandasDictAsMap": "false",  # a dict is a struct
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",  # how values of other types convert
    "spark.sql.execution.pythonUDTF.arrow.enabled": "true",  # the same
    "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": "false",  # the same
    "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype": "false",  # ints beside NULL
    "spark.sql.execution.pyspark.binaryAsBytes": "true",  # bytes or bytearray
    "spark.sql.execution.arrow.pyspark.enabled": "true",  # how toPandas() and createDataFrame() map
    "spark.sql.pyspark.inferNestedDictAsStruct.enabled": "false",  # a dict in a row is a map
    # --- results that a rule of the planner would change ---
    "spark.sql.optimizer.metadataOnly": "false",  # folders without rows do not count
    "spark.sql.execution.sortBeforeRepartition": "true",  # a second run distributes rows the same
}


def session_builder(app_name: str) -> SparkSession.Builder:
    """Return a builder of a session with the project's parent of Python workers, and a JVM."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(app_name).config(map={**PARENT_OF_WORKERS, **CLASSIC})


def pin_zone() -> None:
    """Set the local time of this process, and of those that it starts, to UTC."""
    os.environ[ZONE] = "UTC"
    time.tzset()


def pin_zone_of_workers(spark: SparkSession) -> None:
    """Do the same with Python workers, whatever zone their hosts or spark.executorEnv have."""
    spark.sparkContext.environment[ZONE] = "UTC"


def pin_settings(spark: SparkSession) -> None:
    """Set these settings on a session, and reset its legacy settings to Spark's defaults."""
    found = settings_of(spark)
    for name in found:
        if _is_legacy(name, spark):
            spark.conf.unset(name)
    for name, value in _differing(found):
        spark.conf.set(name, value)


def pin_new_sessions(spark: SparkSession) -> None:
    """Do the same with what the application's new sessions begin with (`newSession()`)."""
    found = settings_of_new_sessions(spark)
    legacy = [name for name in found if _is_legacy(name, spark)]
    set_for_new_sessions(spark, dict(_differing(found)), unset=legacy)


def _differing(found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return what is to be set beside what is set: each takes a call of the JVM."""
    for name, value in PINNED.items():
        if found.get(name, value if name in DEPRECATED else None) != value:
            yield name, value


def _is_legacy(name: str, spark: SparkSession) -> bool:
    return _LEGACY in name and name.startswith("spark.sql.") and bool(spark.conf.isModifiable(name))
