"""A JSON object as a row of texts: numbers as they stand in the file (V6).

Spark's `from_json` rounds a number on its way to a string.
"""

from __future__ import annotations

import json
from collections import UserString
from collections.abc import Callable, Sequence
from typing import Any

from reliability.core.texts import as_exact_json
from reliability.deployment.lazy import pa
from reliability.spouts.records import NotOneObject, check_object

_FORM = "it does not have the form of the schema"


class _Number(UserString):
    """A number as it stands in JSON: no str, so that it is not taken for one."""


class _Nested(Exception):
    """A column of strings has an object or an array."""


def row_reader(
    names: Sequence[str], types: Sequence[pa.DataType], *, lenient: bool
) -> Callable[[str], list[Any]]:
    """Return a function that reads a JSON object as a row of texts; NULL for a missing member.

    It raises NotOneObject if the line is not one object of this form.

    :param lenient: the emission has not checked the line
    """
    fast = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
    exact = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    is_flat = all(map(pa.types.is_string, types))
    are_texts = {str, type(None)}.issuperset
    columns = [(name, _texts_of(type_)) for name, type_ in zip(names, types, strict=True)]

    def read(record: str) -> list[Any]:
        if lenient:
            check_object(record)
        try:
            try:
                return row_of(fast, record)
            except _Nested:
                return row_of(exact, record)
        except NotOneObject:
            raise
        except (ValueError, RecursionError) as error:  # it may be nested too deeply
            raise NotOneObject(f"it is not one JSON object: {error}") from error

    def row_of(decoder: json.JSONDecoder, record: str) -> list[Any]:
        get = decoder.raw_decode(record)[0].get
        if is_flat:  # most values are texts by now: this line decides how fast JSON is read
            values = [*map(get, names)]
            if are_texts(map(type, values)):
                return values
        is_exact = decoder is exact
        return [None if (v := get(name)) is None else text(v, is_exact) for name, text in columns]

    return read


def _texts_of(type_: pa.DataType) -> Callable[[Any, bool], Any]:
    """Return a function that turns a value of JSON into texts of this type."""
    if pa.types.is_struct(type_):
        fields = [(f.name, _texts_of(f.type)) for f in type_]

        def struct(value: Any, is_exact: bool) -> Any:
            if not isinstance(value, dict):
                raise NotOneObject(_FORM)
            members = ((name, value.get(name), text) for name, text in fields)
            return {name: None if v is None else text(v, is_exact) for name, v, text in members}

        return struct
    if pa.types.is_list(type_):
        element = _texts_of(type_.value_type)

        def array(value: Any, is_exact: bool) -> Any:
            if not isinstance(value, list):
                raise NotOneObject(_FORM)
            return [None if v is None else element(v, is_exact) for v in value]

        return array
    return _text_of


def _text_of(value: Any, is_exact: bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if not is_exact:
        raise _Nested
    return as_exact_json(value)
