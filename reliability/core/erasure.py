"""Erased persons: which rows are theirs, and how they are known again without the key (H12).

A person is a value of a column, such as customer 17. The ledger keeps a salted hash of its text.
Rows of later attempts are compared with the hashes, so the text must be the same in Spark, Postgres
and JSON: only integers, texts and uuids have one. What has the form of a uuid is one person in all
notations, whatever the type of the column: another state may give it another one.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from reliability.core.aggregators import Append, First, Latest, Max, Min, Upsert
from reliability.core.column import hidden
from reliability.core.errors import EraseNotPossible
from reliability.core.state import State, StateKind
from reliability.core.texts import parse_exact
from reliability.core.types import base_type

#: why a row is set aside
ERASED = "erased"
INTEGERS = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying")
_UUID = re.compile("[0-9a-f]{32}")
_BIGINTS = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Person:
    """A value of a column: rows that have it are erased.

    :param value: as `person_of` writes it
    """

    column: str
    value: str = field(repr=False)  # for no log

    @property
    def text(self) -> str:
        """Return what is compared and hashed."""
        return comparable(self.value)

    def hashed(self, salt: str) -> str:
        return hash_of(salt, self.text)

    def is_in(self, values: Mapping[str, object]) -> bool:
        """Say whether a JSON object has the value in this column, written in whatever case."""
        return any(
            name.lower() == self.column.lower() and _text_of(value) == self.text
            for name, value in values.items()
        )

    def has(self, row: Quarantined) -> bool | None:
        """Say whether a quarantined row is this person's; None if nobody can say.

        That is if the row does not show the column, but has the value in another one, such as a
        malformed record; or if it was cut before the column.

        >>> ann = Person("name", "ann")
        >>> whole = ('{"name":"ann"}', '{"name":"bob"}', '{"_record":"ann,1"}')
        >>> [ann.has(Quarantined.of(contents, is_cut=False)) for contents in whole]
        [True, False, None]
        >>> cut = ('{"name":"ann","x":"', '{"name":"bob","x":"', '{"x":"')
        >>> [ann.has(Quarantined.of(contents, is_cut=True)) for contents in cut]
        [True, False, None]
        """
        if self.is_in(row.values):
            return True
        if self.column.lower() in row.shown:
            return False
        word = rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(_in_json(self.text))))})(?!\w)"
        text = row.contents if self.text == self.value else _without_dashes(row.contents)
        return None if row.is_cut or re.search(word, text, re.IGNORECASE) else False


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The contents of a row of the quarantine.

    :param values: those that it has whole, and `shown` the names of those that are not NULL
    """

    contents: str
    is_cut: bool
    values: Mapping[str, object]
    shown: frozenset[str]

    @classmethod
    def of(cls, contents: str, *, is_cut: bool) -> Quarantined:
        values = _beginning(contents) if is_cut else parse_exact(contents)
        shown = {name.lower() for name, value in values.items() if value is not None}
        return cls(contents, is_cut, values, frozenset(shown))


class Persons:
    """Persons who are looked for together: each row costs the same, however many they are.

    >>> persons = Persons([Person("name", "ann"), Person("name", "Bo Li"), Person("id", "17")])
    >>> whole = ('{"Name":"ann"}', '{"name":"x","id":1}', '{"_record":"bo li,1"}', '{"x":"li"}')
    >>> [persons.have(Quarantined.of(contents, is_cut=False)) for contents in whole]
    [True, False, None, False]
    >>> [persons.have(Quarantined.of(contents, is_cut=True)) for contents in ('{"id":17,', '{"')]
    [True, None]
    """

    def __init__(self, persons: Iterable[Person]) -> None:
        self._texts: set[tuple[str, str]] = set()
        self._columns: set[str] = set()
        self._by_word: dict[str, list[Person]] = {}
        for person in persons:
            self._texts.add((person.column.lower(), person.text))
            self._columns.add(person.column.lower())
            for first in {"".join(_words(text)[:1]) for text in _in_json(person.text)}:
                self._by_word.setdefault(first, []).append(person)

    def are_in(self, values: Mapping[str, object]) -> bool:
        """Say whether `Person.is_in` is true for one of them."""
        return any((name.lower(), _text_of(value)) in self._texts for name, value in values.items())

    def have(self, row: Quarantined) -> bool | None:
        """Say whether `Person.has` is true for one of them, and otherwise None for one of them."""
        if self.are_in(row.values):
            return True
        if row.is_cut:
            return False if self._columns <= row.shown else None
        words = {"", *_words(row.contents), *_words(_without_dashes(row.contents))}
        persons = (person for word in words for person in self._by_word.get(word, ()))
        return None if any(person.has(row) is None for person in persons) else False


def _in_json(text: str) -> set[str]:
    """Return a text as it is, and as it stands in JSON, and in a record that JSON has in it."""
    once = json.dumps(text, ensure_ascii=False)[1:-1]
    return {text, once, json.dumps(once, ensure_ascii=False)[1:-1]}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _text_of(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    return comparable(str(value))


def _beginning(contents: str) -> dict[str, object]:
    """Read the columns that a cut JSON object has whole."""
    values, decoder = dict[str, object](), json.JSONDecoder(parse_float=Decimal)
    place = 1
    try:
        while contents[place : place + 1] == '"':
            name, place = decoder.raw_decode(contents, place)
            value, place = decoder.raw_decode(contents, place + 1)
            if contents[place : place + 1] != ",":  # a number may be cut
                break
            values[name] = value
            place += 1
    except ValueError:
        pass
    return values


def comparable(text: str) -> str:
    """Return what is the same for all notations of one value: a uuid may have dashes anywhere.

    >>> comparable("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}")
    'a0eebc999c0b4ef8bb6d6bb9bd380a11'
    >>> comparable("Bo-Li")
    'Bo-Li'
    """
    digits = _without_dashes(text).lower()
    return digits if _UUID.fullmatch(digits) else text


def _without_dashes(text: str) -> str:
    return re.sub("[-{}]", "", text)


def hash_of(salt: str, text: str) -> str:
    """Return the hash that the ledger keeps; Spark computes the same."""
    return hashlib.sha256(f"{salt}{text}".encode()).hexdigest()


# --- which rows of a state -----------------------------------------------------------------------


def type_of_person(state: State, column: str) -> str | None:
    """Return the type of the column if each row of a state is of one person by it, otherwise None.

    That is a column of the key, and of appended rows any.
    """
    if column in state.key:
        return base_of(state.key[column])
    value = state.values.get(column)
    return base_of(value.type) if isinstance(value, Append) else None


def base_of(type_: str) -> str:
    base, is_array = base_type(type_)
    return f"{base}[]" if is_array else base


def shown_in(state: State, column: str) -> Mapping[str, str]:
    """Return the columns in which a row shows the value of one of several rows.

    That is a value such as the latest one, or what it is the latest by, and what it was before.
    What the other rows have added cannot be told from what this person's has.

    :return: name -> the column in the frame for the state; none if its rows are the person's
    """
    if type_of_person(state, column):
        return {}
    value = state.values.get(column)
    shown = {each.name: column for each in state.columns() if each.orders_by == column}
    if isinstance(value, First | Latest | Upsert | Min | Max):
        shown[column] = value.column
    if state.kind is StateKind.OPAQUE:
        shown = {hidden(name, "previous"): read for name, read in shown.items()} | shown
    return shown


def column_in_spark(state: State, column: str) -> str:
    """Return the name of the column in the frame for the state by which a row is a person's."""
    value = state.values.get(column)
    return value.column if isinstance(value, Append) else column


def person_of(states: Iterable[State], column: str, value: str) -> Person:
    """Return a person whose value a user has written, as their states write it.

    :raises EraseNotPossible: the column has a type whose values have several notations; or the
        value is none of its type

    >>> from reliability import Count
    >>> days = State("days", key={"customer": "bigint"}, values={"n": Count()})
    >>> person_of([days], "customer", "017").value
    '17'
    """
    types = {type_ for state in states if (type_ := type_of_person(state, column))}
    wrong = types - {*INTEGERS, *_TEXTS, "uuid"}
    if wrong or ("uuid" in types and not types.isdisjoint(INTEGERS)):
        raise EraseNotPossible(
            f"column {column} is {' and '.join(sorted(types))}, and only an integer, a text or a "
            "uuid tells a person",
            remedy="name another column that tells the person.",
        )
    try:
        value.encode()  # half of a surrogate pair: what was typed is not in the terminal's encoding
        if types.isdisjoint(INTEGERS) and _UUID.fullmatch(comparable(value)):
            return Person(column, str(uuid.UUID(comparable(value))))
        if "uuid" in types:
            return Person(column, str(uuid.UUID(value)))
        if not types.isdisjoint(INTEGERS):
            number = int(value)
            if number not in _BIGINTS or not re.fullmatch("[+-]?[0-9]+", value.strip()):
                raise ValueError
            value = str(number)
    except ValueError:
        raise EraseNotPossible(
            f"a value for {column} is no {' or '.join(sorted(types)) or 'text'}",
            remedy="write it as the table shows it.",
        ) from None
    if not value:
        raise EraseNotPossible(f"the value for {column} is empty", remedy="write a value.")
    return Person(column, value)


# --- what an attempt leaves out ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErasedKeys:
    """The hashes of a topology's erased persons.

    :param hashes: column -> salt -> hashes
    """

    hashes: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, str]]) -> ErasedKeys:
        hashes: dict[str, dict[str, frozenset[str]]] = {}
        for row in rows:
            of_column = hashes.setdefault(row["column_name"], {})
            of_column[row["salt"]] = of_column.get(row["salt"], frozenset()) | {row["key_hash"]}
        return cls(hashes)

    def columns_of(self, state: State) -> list[str]:
        """Return the columns by which rows of a state are left out."""
        return [column for column in self.hashes if type_of_person(state, column)]

    def shown_in(self, state: State) -> Mapping[str, Sequence[str]]:
        """Return the columns of a state's frame that show persons, with what each is erased as."""
        shown: dict[str, list[str]] = {}
        for name in self.hashes:
            for column in {*shown_in(state, name).values()} - {*state.key}:
                shown.setdefault(column, []).append(name)
        return shown

    def has(self, column: str, value: object) -> bool:
        """Say whether a value of a column is an erased person; Spark decides the same."""
        text = _text_of(value)
        return text is not None and any(
            hash_of(salt, text) in hashes for salt, hashes in self.hashes[column].items()
        )


NOBODY = ErasedKeys()
