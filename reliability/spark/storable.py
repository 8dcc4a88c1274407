"""Which rows of a frame have a value that Postgres cannot store in their state.

Types that never fit are an error of the pipeline (`reliability.core.types.fits`). Here it is about
single values: NUL in a text, a text that is no uuid or no JSON, a number with too many digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reliability.core.aggregators.column import quoted
from reliability.core.state import State
from reliability.core.types import base_type, greatest_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UUID = r"\{?[0-9a-fA-F]{4}(?:-?[0-9a-fA-F]{4}){7}\}?"
_ESCAPED_NUL = r"(?<!\\)(?:\\\\)*\\u0000"


def misfits(frame: DataFrame, state: State) -> Column | None:
    """Say what a row has that its state cannot store; NULL if it can store all.

    :returns: None if the frame's types leave nothing to look at
    """
    from pyspark.sql import functions as F

    found = [
        F.when(is_wrong, F.lit(f"column {name} is not a valid {type_}"))
        for name, type_ in state.reads_as()
        if name in frame.columns
        for is_wrong in _wrong(F.col(quoted(name)), dict(frame.dtypes)[name], type_)
    ]
    return F.coalesce(*found) if found else None


def _wrong(value: Column, spark: str, postgres: str) -> Iterator[Column]:
    from pyspark.sql import functions as F

    base, is_array = base_type(postgres)
    if is_array:
        element = spark.removeprefix("array<").removesuffix(">")
        for _ in _wrong(value, element, postgres.removesuffix("[]")):
            yield F.exists(
                value,
                lambda each: F.coalesce(
                    *_wrong(each, element, postgres.removesuffix("[]")), F.lit(False)
                ),
            )
    elif spark == "string" and base in ("text", "character varying"):
        yield F.contains(value, F.lit("\0"))
    elif spark == "string" and base == "uuid":
        yield ~value.rlike(rf"\A{UUID}\z")
    elif spark == "string" and base == "jsonb":
        is_json = F.try_parse_json(value).isNotNull()
        yield value.isNotNull() & (~is_json | value.rlike(_ESCAPED_NUL))
    elif spark.startswith("decimal(") and base == "numeric" and (most := greatest_of(postgres)):
        yield F.abs(value) > F.lit(most).cast("decimal(38,18)" if "." in most else "decimal(38,0)")
