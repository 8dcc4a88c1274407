"""What a format of files says of a file at emission: Parquet, Csv and JsonLines are formats.

How Spark reads the files of a batch is in a module for each: `parquet_frame`, `text_frame`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from reliability.core.errors import FileRefused
from reliability.core.remedy import Remedy
from reliability.spouts.file_item import FileItem


class FileFormat(ABC):
    """A format, as a frozen dataclass of the options that it alone has."""

    @property
    @abstractmethod
    def needs_schema(self) -> str:
        """Return what needs the spout's `schema=`; empty if nothing does."""

    @abstractmethod
    def check_schema(self, schema: str) -> None:
        """Raise InvalidDefinition unless the spout's schema, which may be empty, suits it."""

    @abstractmethod
    def read(self, path: str, schema: str) -> tuple[FileItem, list[FileItem] | None]:
        """Describe a file, and each of its pieces that has rows; None if it is never cut.

        :raises SourceUnreadable: it is missing, or not of this format, or maybe not yet
        :raises FileRefused: it can never be read as it is, or does not agree with the schema
        """

    def check_batch(self, files: Sequence[FileItem], schema: str) -> None:  # noqa: B027
        """Raise FileRefused unless the files of a batch agree with each other."""

    def changed_columns(self, files: Sequence[FileItem], earlier: Sequence[FileItem]) -> list[str]:
        return []

    def drifted_columns(self, files: Sequence[FileItem], schema: str) -> list[str] | None:
        return None


def refused(path: str, what: str, remedy: str) -> FileRefused:
    """Return the error for a file; the remedy goes on with how to leave the file out."""
    text = "{first}, or leave it out with {exclude}; then run {resume_runs}."
    return FileRefused(what, remedy=Remedy(text, {"first": remedy, "file": path}))
