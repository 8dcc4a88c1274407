"""Parquet files whose columns differ from the declared ones: what each policy makes of them (E8).

- `refuse`: a file that differs in anything is refused at emission.
- `ignore`: the batch has the declared columns. What a file has beyond them is left out, and what it
  lacks is NULL. A narrower type becomes the declared one.
- `widen`: as `ignore`, but what files have beyond them stays, and a wider type widens the column.

No policy changes a value. A file is refused if its values do not fit exactly. The columns of a
batch depend on its own files and on what is declared, so a replay has the same ones.
`drift_frame` reads such files with Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reliability.core.errors import FileRefused, InvalidDefinition
from reliability.spouts.ddl import read_ddl
from reliability.spouts.file_item import FileItem
from reliability.spouts.file_names import locate
from reliability.spouts.parquet import refused
from reliability.spouts.parquet_columns import Columns, difference
from reliability.spouts.wider_types import VOID, common_type

REFUSE, IGNORE, WIDEN = POLICIES = ("refuse", "ignore", "widen")
_SCHEMA = "the spout's schema"
EMPTY = "int"  # the type that Spark has for a column without any value


def check_policy(drift: str, schema: str, file_format: str) -> None:
    """Raise InvalidDefinition unless the policy is one, and the schema says what it needs."""
    if drift not in POLICIES:
        raise InvalidDefinition(f"FileSpout: drift {drift!r} is not one of {POLICIES}")
    if drift == REFUSE:
        return
    if file_format != "parquet":
        raise InvalidDefinition(
            f"FileSpout: drift={drift!r} is only for Parquet; {file_format} is read by its schema"
        )
    if not schema:
        raise InvalidDefinition(
            f"FileSpout: drift={drift!r} needs a schema, from which files may differ",
            remedy='write it as Spark\'s DDL: schema="id bigint, day date".',
        )
    _check_declared(drift, read_ddl(schema))


def _check_declared(drift: str, declared: Columns | None) -> None:
    if declared is None or not all(type_ for _, type_ in declared):
        unclear = [name for name, type_ in declared or () if not type_]
        raise InvalidDefinition(
            f"FileSpout: drift={drift!r} cannot tell the types of the schema"
            + (f": {', '.join(unclear)}" if unclear else ""),
            remedy="write names and types that Parquet has, without comments, and without NOT "
            "NULL, because a column that a file lacks is NULL.",
        )
    names = [name.lower() for name, _ in declared]
    if alike := [name for name, times in Counter(names).items() if times > 1]:
        raise InvalidDefinition(f"FileSpout: the schema has the columns {alike} more than once")


def declared_columns(schema: str) -> Columns:
    """Return the columns of a schema that `check_policy` lets pass."""
    return read_ddl(schema) or ()


def columns_in(item: FileItem) -> Columns:
    """Return a file's columns; the type of one without any value is `void`."""
    return tuple(
        (name, VOID if name in item.columns_without_values else type_)
        for name, type_ in item.columns
    )


def by_columns(files: Iterable[FileItem]) -> dict[Columns, list[FileItem]]:
    """Return the files of a batch, those with the same columns together."""
    found: dict[Columns, list[FileItem]] = {}
    for item in files:
        found.setdefault(columns_in(item), []).append(item)
    return found


def check_files(items: Iterable[FileItem], schema: str, drift: str) -> None:
    """Raise FileRefused unless each file, on its own, agrees with the schema by the policy."""
    for item in {item.path: item for item in items}.values():
        if drift == REFUSE:
            _check_equal(item, schema)
        else:
            batch_columns([item], schema, drift)


def batch_columns(files: Iterable[FileItem], schema: str, drift: str) -> Columns:
    """Return the columns of a batch of these files: the declared ones, then others by name.

    :param drift: not `refuse`
    :raises FileRefused: the policy has no exact type for a column, or a name differs in case
    """
    declared = dict(declared_columns(schema))
    merged = _Merged.of(schema, drift)
    for item in {item.path: item for item in files}.values():
        if said := merged.add(item):
            raise _refused_by(item, drift, schema, said)
    others = sorted(merged.types.keys() - declared.keys())
    return tuple((name, merged.type_of(name)) for name in [*declared, *others])


@dataclass
class _Merged:
    """The columns of a batch, while its files are looked at one after the other.

    :param types: name -> type, and which file or schema it comes from
    :param keeps: whether columns may be wider or more than the declared ones
    :param spelled: name in lower case -> name
    :param declared: the names of the schema in lower case
    """

    types: dict[str, tuple[str, str]]
    keeps: bool
    spelled: dict[str, str]
    declared: frozenset[str]

    @classmethod
    def of(cls, schema: str, drift: str) -> _Merged:
        declared = declared_columns(schema)
        return cls(
            types={name: (type_, _SCHEMA) for name, type_ in declared},
            keeps=drift == WIDEN,
            spelled={name.lower(): name for name, _ in declared},
            declared=frozenset(name.lower() for name, _ in declared),
        )

    def type_of(self, name: str) -> str:
        type_, _ = self.types[name]
        return EMPTY if type_ == VOID else type_

    def add(self, item: FileItem) -> list[str]:
        """Take up a file's columns; return what is against the policy."""
        here = locate(item.path)
        if self.declared.isdisjoint(name.lower() for name, _ in item.columns):
            return [f"{here} has none of the columns of {_SCHEMA}"]
        said = [self._add(name, type_, here) for name, type_ in columns_in(item)]
        return [text for text in said if text]

    def _add(self, name: str, type_: str, here: str) -> str:
        known = self.spelled.get(name.lower())
        if known is None:
            if self.keeps:
                self.types[name] = (type_, here)
                self.spelled[name.lower()] = name
            return ""
        other, where = self.types[known]
        if known != name:
            return f"column {name} in {here} is {known} in {where}"
        common = common_type(other, type_)
        if common is None or (common != other and not self.keeps):
            return f"column {name} is {type_} in {here}, and {other} in {where}"
        if common != other:
            self.types[name] = (common, here)
        return ""


def _refused_by(item: FileItem, drift: str, schema: str, said: Sequence[str]) -> FileRefused:
    what = f"{'; '.join(said)}: drift={drift!r} refuses that"
    remedy = "deliver it with the declared columns, or change the spout's schema="
    if drift == IGNORE and _reads(item, schema, WIDEN):
        remedy += f", or set drift={WIDEN!r}, which reads it"
    return refused(item.path, what, remedy)


def check_batch(files: Sequence[FileItem], schema: str, drift: str) -> None:
    """Raise FileRefused unless the files of a batch agree with each other by the policy.

    Each agrees with the schema on its own, as `check_files` says.
    """
    try:
        batch_columns(files, schema, drift)
    except FileRefused as error:
        raise FileRefused(
            f"the files of a batch need common columns, but {error.what}",
            remedy=f"give each a batch of its own with max_files_per_batch=1, or {error.remedy}",
        ) from None


def _check_equal(item: FileItem, schema: str) -> None:
    declared = read_ddl(schema)
    if declared is None:
        return
    if why := difference(item.columns, declared, locate(item.path), _SCHEMA, in_order=True):
        remedy = "deliver it with these columns, or change the spout's schema=, or " + _policies(
            {drift: _reads(item, schema, drift) for drift in (IGNORE, WIDEN)}
        )
        raise refused(item.path, why, remedy)


def _policies(reads: Mapping[str, bool]) -> str:
    """Tell which of the two other policies read a file that `refuse` refuses."""
    able = [f"drift={drift!r}" for drift, is_able in reads.items() if is_able]
    unable = [f"drift={drift!r}" for drift, is_able in reads.items() if not is_able]
    if not able:
        return f"cast the columns at the source: {' and '.join(unable)} refuse it too"
    said = f"set {' or '.join(able)}, which {'read' if len(able) > 1 else 'reads'} it"
    return said + (f" ({unable[0]} does not)" if unable else "")


def _reads(item: FileItem, schema: str, drift: str) -> bool:
    try:
        check_policy(drift, schema, "parquet")
    except InvalidDefinition:
        return False
    return not _Merged.of(schema, drift).add(item)


def drifted(items: Iterable[FileItem], schema: str, drift: str) -> list[str]:
    """Say, in a line for each file that differs from the schema, in what it does."""
    declared = declared_columns(schema)
    by_path = {item.path: item for item in items}
    found = [
        difference(columns_in(item), declared, locate(path), _SCHEMA, in_order=True)
        for path, item in by_path.items()
    ]
    return [f"drift={drift!r}: {said}" for said in found if said]
