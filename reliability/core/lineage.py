"""Datasets as OpenLineage names them: https://openlineage.io/docs/spec/naming."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A place of data, and what a batch reads there.

    :param namespace: of the server, such as `postgres://db:5432` or `s3://bucket`; `file` for local
        files
    :param name: `database.schema.table`, or the path of a folder
    :param rows: None if they are not known
    :param files: None if it has none
    :param bytes: stored bytes; None if they are not known
    """

    namespace: str
    name: str
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def table_dataset(
    host: str, port: int, database: str, schema: str, name: str, rows: int
) -> Dataset:
    """Return the dataset of a Postgres table.

    :param host: as the session was opened; the folder of a socket is this machine
    """
    server = "localhost" if not host or host.startswith(("/", "@")) else host
    if ":" in server:
        server = f"[{server}]"
    return Dataset(
        namespace=f"postgres://{server}:{port}", name=f"{database}.{schema}.{name}", rows=rows
    )
