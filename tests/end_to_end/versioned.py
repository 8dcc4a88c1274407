"""A DAG bundle that keeps its versions, as Airflow's for git does: a folder each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle, BundleVersion  # noqa: TID253 - Airflow's processes alone import this


class VersionedFolder(BaseDagBundle):
    """Reads `FOLDER/VERSION/`; the file `FOLDER/current` says which one is the latest."""

    supports_versioning = True

    def __init__(self, *, folder: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.folder = Path(folder)

    @property
    def path(self) -> Path:
        return self.folder / (self.version or self._current())

    def get_current_version(self) -> BundleVersion:
        return BundleVersion(version=self._current())

    def refresh(self) -> None:
        """All versions are there."""

    def _current(self) -> str:
        return (self.folder / "current").read_text()
