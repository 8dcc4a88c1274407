"""DeltaSpout: the rows of a table of Delta Lake, in the order of the versions of its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reliability.spouts.delta_log import DeltaLog
from reliability.spouts.log_item import DeltaFile, LogFile
from reliability.spouts.log_spout import LogSpout


@dataclass(frozen=True)
class DeltaSpout(LogSpout):
    """The rows that are added to a table of Delta Lake; all other options are LogSpout's.

    :param path: of the table: absolute, relative to RELIABILITY_HOME, or a URI that Spark, pyarrow
        and deltalake can read
    """

    file_type: ClassVar[type[LogFile]] = DeltaFile
    path: str

    def log(self) -> DeltaLog:
        return DeltaLog(self.path)
