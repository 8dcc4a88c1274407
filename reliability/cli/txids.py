"""`reliability txids`: the txids of a topology, with their intervals, files, runs and states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import AsJson, TopologyName, check_known, ledger, rows_of, verb
from reliability.cli.output import format_interval, print_json, print_table
from reliability.cli.select import FileOption, IntervalOption, check_selection, select_txids
from reliability.cli.terminal import say

if TYPE_CHECKING:
    from reliability.core.standing import Standing
    from reliability.ledger.connection import LedgerConnection, Row

PAGE = 1000  # rows of one query
LAST = 100
_WIDTH = 20  # of the files of a txid in the table


@verb(
    "reliability txids shop",
    "reliability txids shop --interval 2013-03",
    "reliability txids shop --file '2013-0[345].csv' --json",
)
def txids(
    topology: TopologyName,
    interval: IntervalOption = "",
    file: FileOption = "",
    last: Annotated[
        int, typer.Option(metavar="N", min=1, help="Show at most the last N of them.")
    ] = LAST,
    as_json: AsJson = False,
) -> None:
    """List txids: interval, state, rows, files and run of each.

    The table shortens files and runs; --json has all of them.
    """
    from reliability.transaction.topology.read_standing import read_standing

    check_selection("", interval, file, optional=True)
    with ledger() as connection:
        check_known(connection, topology)
        wanted = None
        if interval or file:
            wanted = select_txids(connection, topology, "", interval, file).txids
        with connection.transaction() as tx:
            standing = read_standing(tx, topology)
        found = [_plain(row, standing) for row in _rows(connection, topology, wanted, last)]
        found.reverse()
        total = len(wanted) if wanted is not None else _emitted(connection, topology)
    earlier = total - len(found)
    if as_json:
        return print_json({"topology": topology, "earlier": earlier, "txids": found})
    _print(found)
    if earlier:
        say(f"{earlier:,} earlier txids are not shown; --last {total} shows all")


def _rows(
    connection: LedgerConnection, topology: str, txids: Sequence[int] | None, last: int
) -> Iterator[Row]:
    """Yield the last txids, the latest first, a page at a time."""
    before, left = 1 << 62, last
    while left > 0:
        rows = rows_of(
            connection,
            "page_of_txids",
            topology=topology,
            txids=list(txids) if txids is not None else None,
            before=before,
            page=min(PAGE, left),
        )
        yield from rows
        if len(rows) < min(PAGE, left):
            return
        before, left = rows[-1]["txid"], left - len(rows)


def _emitted(connection: LedgerConnection, topology: str) -> int:
    (row,) = rows_of(connection, "topology_position", topology=topology)
    return int(row["next_txid"]) - 1


def _plain(row: Row, standing: Standing) -> dict[str, Any]:
    from reliability.transaction.inspect.txid_in_words import files_of, state_of_txid

    state, why = state_of_txid(row, standing)
    return {
        "txid": row["txid"],
        "interval": format_interval(row) or None,
        "state": state,
        "why": why or None,
        "replays": row["replays"],
        "rows": row["rows"],
        "files": files_of(row["items"] or ()),
        "dag_id": row["dag_id"],
        "run_id": row["run_id"],
        "emitted_at": row["emitted_at"],
        "committed_at": row["committed_at"],
    }


# --- the table -----------------------------------------------------------------------------------


def _print(found: Sequence[dict[str, Any]]) -> None:
    print_table(
        "",
        {
            "txid": "right",
            "interval": "left",
            "state": "left",
            "rows": "right",
            "files": "left",
            "run": "left",
        },
        [
            (
                str(one["txid"]),
                one["interval"],
                f"{one['state']}: {one['why']}" if one["why"] else one["state"],
                one["rows"],
                short_files(one["files"]),
                short_run(one["run_id"]),
            )
            for one in found
        ],
        empty="no txids",
        coloured=["state"],
    )


def short_files(files: Sequence[str], width: int = _WIDTH) -> str:
    """Name the first file by its end, and count the others.

    >>> short_files(["data/2013-03/a.csv", "b.csv"]), short_files(["x" * 40], 5), short_files([])
    ('a.csv +1', '…xxxx', '')
    """
    if not files:
        return ""
    more = f" +{len(files) - 1}" if len(files) > 1 else ""
    name = files[0].rpartition("/")[2]
    room = width - len(more)
    return (name if len(name) <= room else "…" + name[-room + 1 :]) + more


def short_run(run_id: str) -> str:
    """Leave out a time of midnight in UTC.

    >>> short_run("scheduled__2013-04-01T00:00:00+00:00")
    'scheduled__2013-04-01'
    """
    return run_id.removesuffix("T00:00:00+00:00")
