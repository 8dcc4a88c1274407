"""Parquet files, whose columns may differ from the declared ones by a policy (E8).

- `refuse`: a file that differs in anything is refused at emission.
- `ignore`: the batch has the declared columns. What a file has beyond them is left out, and what it
  lacks is NULL. A narrower type becomes the declared one.
- `widen`: as `ignore`, but what files have beyond them stays, and a wider type widens the column.

No policy changes a value. A file is refused if its values do not fit exactly. The columns of a
batch depend on its own files and on what is declared, so a replay has the same ones.
`parquet_frame` reads such files with Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reliability.core.errors import FileRefused, InvalidDefinition, ReliabilityError
from reliability.core.types import common_type
from reliability.spouts.ddl import check_types, read_ddl
from reliability.spouts.file_format import FileFormat, refused
from reliability.spouts.file_item import FileItem, one_per_file
from reliability.spouts.file_names import locate
from reliability.spouts.footer import read_file, read_with_groups
from reliability.spouts.parquet_columns import Columns, difference, in_spark

REFUSE, IGNORE, WIDEN = POLICIES = ("refuse", "ignore", "widen")
_SCHEMA = "the spout's schema"


@dataclass(frozen=True, kw_only=True)
class Parquet(FileFormat):
    """Parquet files, which tell their columns.

    :param drift: what becomes of a file whose columns are not those of the spout's schema:
        `refuse`, `ignore` or `widen`, as docs/spouts.md has it
    """

    drift: str = REFUSE

    def __post_init__(self) -> None:
        if self.drift not in POLICIES:
            raise InvalidDefinition(f"Parquet: drift {self.drift!r} is not one of {POLICIES}")

    @property
    def needs_schema(self) -> str:
        return "" if self.drift == REFUSE else f"drift={self.drift!r}"

    def check_schema(self, schema: str) -> None:
        if self.drift == REFUSE:
            return
        declared = check_types(f"drift={self.drift!r}", schema)
        names = [name.lower() for name, _ in declared]
        if alike := [name for name, times in Counter(names).items() if times > 1]:
            raise InvalidDefinition(f"the schema has the columns {alike} more than once")

    def read(self, path: str, schema: str) -> tuple[FileItem, list[FileItem]]:
        whole, groups = read_with_groups(path)
        self.check_file(whole, schema)
        return whole, groups

    def check_file(self, item: FileItem, schema: str) -> None:
        """Raise FileRefused unless the policy reads a file of these columns by the schema."""
        if schema and self.drift == REFUSE:
            _check_equal(item, schema)
        elif schema:
            self.columns([item], schema)

    def check_batch(self, files: Sequence[FileItem], schema: str) -> None:
        if self.drift == REFUSE:
            check_one_schema(files)
            return
        try:
            self.columns(files, schema)
        except FileRefused as error:
            raise FileRefused(
                f"the files of a batch need common columns, but {error.what}",
                remedy=replace(
                    error.remedy,
                    text="give each a batch of its own with max_files_per_batch=1, or "
                    f"{error.remedy.text}",
                ),
            ) from None

    def columns(self, files: Iterable[FileItem], schema: str) -> Columns:
        """Return the columns of a batch of these files: the declared ones, then others by name.

        The policy is not `refuse`.

        :raises FileRefused: the policy has no exact type for a column, or a name differs in case
        """
        merged = _Merged(schema, self.drift)
        for item in one_per_file(files):
            if violations := merged.add(item):
                raise self._refusal(item, schema, violations)
        declared = dict(declared_in(schema))
        others = sorted(merged.types.keys() - declared.keys())
        return in_spark((name, merged.types[name][0]) for name in [*declared, *others])

    def changed_columns(self, files: Sequence[FileItem], earlier: Sequence[FileItem]) -> list[str]:
        """Say which files have other columns than the last of an earlier batch.

        Spark reads each batch by its own columns, so this is not an error.
        """
        before = [item for item in earlier if not item.is_text]
        if not before:
            return []
        try:
            last = read_file(before[-1].path)
        except ReliabilityError:
            return []  # it was archived
        return [why for item in one_per_file(files) if (why := _difference(item, last))]

    def drifted_columns(self, files: Sequence[FileItem], schema: str) -> list[str] | None:
        """Say, in a line for each file that differs from the schema, in what it does."""
        if self.drift == REFUSE:
            return None
        declared, own = declared_in(schema), f"drift={self.drift!r}"
        each = ((item.columns, locate(item.path)) for item in one_per_file(files))
        differences = (difference(c, declared, here, _SCHEMA, in_order=True) for c, here in each)
        return [f"{own}: {why}" for why in differences if why]

    def _refusal(self, item: FileItem, schema: str, violations: Sequence[str]) -> FileRefused:
        what = f"{'; '.join(violations)}: drift={self.drift!r} refuses that"
        remedy = "deliver it with the declared columns, or change the spout's schema="
        if self.drift == IGNORE and _reads(item, schema, WIDEN):
            remedy += f", or set drift={WIDEN!r}, which reads it"
        return refused(item.path, what, remedy)


def declared_in(schema: str) -> Columns:
    """Return the columns of a schema that has passed `check_schema`."""
    return read_ddl(schema) or ()


def by_columns(files: Iterable[FileItem]) -> dict[Columns, list[FileItem]]:
    """Return the files of a batch, those with the same columns together."""
    alike: dict[Columns, list[FileItem]] = {}
    for item in files:
        alike.setdefault(item.columns, []).append(item)
    return alike


def check_one_schema(files: Sequence[FileItem]) -> None:
    """Raise FileRefused if the files of a batch differ in their columns.

    Spark reads all of them by the schema of one, and reads missing columns as NULL.
    """
    each = one_per_file(files)
    for item in each[1:]:
        if why := _difference(each[0], item):
            what = f"the files of a batch need the same columns, but {why}"
            remedy = (
                "write one of the files again with the columns of the other, or give each a batch "
                "of its own with max_files_per_batch=1, or declare schema= and drift="
            )
            raise refused(item.path, what, remedy)


def _difference(item: FileItem, other: FileItem) -> str:
    columns = in_spark(item.columns), in_spark(other.columns)
    return difference(*columns, locate(item.path), locate(other.path))


def _check_equal(item: FileItem, schema: str) -> None:
    if (declared := read_ddl(schema)) is None:
        return
    own, here = in_spark(item.columns), locate(item.path)
    if why := difference(own, declared, here, _SCHEMA, in_order=True):
        remedy = "deliver it with these columns, or change the spout's schema=, or "
        raise refused(item.path, why, remedy + _other_policies(item, schema))


def _other_policies(item: FileItem, schema: str) -> str:
    """Tell which of the two other policies read a file that `refuse` refuses."""
    reads = {drift: _reads(item, schema, drift) for drift in (IGNORE, WIDEN)}
    able = [f"drift={drift!r}" for drift, is_able in reads.items() if is_able]
    unable = [f"drift={drift!r}" for drift, is_able in reads.items() if not is_able]
    if not able:
        return f"cast the columns at the source: {' and '.join(unable)} refuse it too"
    text = f"set {' or '.join(able)}, which {'read' if len(able) > 1 else 'reads'} it"
    return text + (f" ({unable[0]} does not)" if unable else "")


def _reads(item: FileItem, schema: str, drift: str) -> bool:
    try:
        Parquet(drift=drift).check_schema(schema)
    except InvalidDefinition:
        return False
    return not _Merged(schema, drift).add(item)


class _Merged:
    """The columns of a batch, while its files are looked at one after the other.

    :ivar types: name -> type, and which file or schema it comes from
    """

    def __init__(self, schema: str, drift: str) -> None:
        self._keeps = drift == WIDEN  # columns may be wider or more than the declared ones
        self.types = {name: (type_, _SCHEMA) for name, type_ in declared_in(schema)}
        self._spelled = {name.lower(): name for name in self.types}
        self._declared = frozenset(self._spelled)

    def add(self, item: FileItem) -> list[str]:
        """Take up a file's columns; return what is against the policy."""
        here = locate(item.path)
        if self._declared.isdisjoint(name.lower() for name, _ in item.columns):
            return [f"{here} has none of the columns of {_SCHEMA}"]
        violations = [self._add(name, type_, here) for name, type_ in item.columns]
        return [text for text in violations if text]

    def _add(self, name: str, type_: str, here: str) -> str:
        known = self._spelled.get(name.lower())
        if known is None:
            if self._keeps:
                self.types[name] = (type_, here)
                self._spelled[name.lower()] = name
            return ""
        other, where = self.types[known]
        if known != name:
            return f"column {name} in {here} is {known} in {where}"
        common = common_type(other, type_)
        if common is None or (common != other and not self._keeps):
            return f"column {name} is {type_} in {here}, and {other} in {where}"
        if common != other:
            self.types[name] = (common, here)
        return ""
