"""IcebergSpout: the rows of a table of Iceberg, in the order of its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reliability.spouts.iceberg_log import IcebergLog
from reliability.spouts.log_item import IcebergFile, LogFile
from reliability.spouts.log_spout import LogSpout


@dataclass(frozen=True)
class IcebergSpout(LogSpout):
    """The rows that are added to a table of Iceberg; all other options are LogSpout's.

    A version is the id of a snapshot.

    :param table: with its namespaces, `shop.orders`
    :param catalog: its name in the configuration of pyiceberg, which has address and credentials
    """

    file_type: ClassVar[type[LogFile]] = IcebergFile
    table: str
    catalog: str = "default"

    def log(self) -> IcebergLog:
        return IcebergLog(self.catalog, self.table)
