"""`reliability txids`: the txids of a topology, with their intervals, files, runs and states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from reliability.cli import options
from reliability.cli.app import ledger, verb
from reliability.cli.parts import Line, Part, Table, answer
from reliability.ledger.connection import LedgerConnection
from reliability.transaction.inspect.txid_state import TxidState, page_of_txids

PAGE = 1000  # rows of one query
LAST = 100
_WIDTH = 20  # of the files of a txid in the table


@verb(
    "reliability txids shop",
    "reliability txids shop --interval 2013-03",
    "reliability txids shop --file '2013-0[345].csv' --json",
)
def txids(
    topology: options.Topology,
    contents: options.Contents,
    last: Annotated[
        int, typer.Option(metavar="N", min=1, help="Show at most the last N of them.")
    ] = LAST,
    as_json: options.AsJson = False,
) -> None:
    """List txids: interval, state, rows, files and run of each.

    The table shortens files and runs; --json has all of them.
    """
    with ledger(topology) as connection:
        wanted = contents.select(connection, topology).txids if contents else None
        listed = _last(connection, topology, wanted, last)
        total = len(wanted) if wanted is not None else _emitted(connection, topology)
    earlier = total - len(listed)
    page: list[Part] = [_table(listed)]
    if earlier:
        page.append(Line(f"{earlier:,} earlier txids are not shown; --last {total} shows all"))
    document = {"topology": topology, "earlier": earlier, "txids": listed}
    answer(document, page, as_json=as_json)


def _last(
    connection: LedgerConnection, topology: str, txids: Sequence[int] | None, last: int
) -> list[TxidState]:
    """Return the last txids, read a page at a time."""
    listed: list[TxidState] = []
    before = 1 << 62
    while len(listed) < last:
        most = min(PAGE, last - len(listed))
        with connection.transaction() as tx:
            page = page_of_txids(tx, topology, before, most, txids)
        listed += page
        if len(page) < most:
            break
        before = page[-1].txid
    return listed[::-1]


def _emitted(connection: LedgerConnection, topology: str) -> int:
    return int(connection.one("topology_position", topology=topology)["next_txid"]) - 1


# --- the table -----------------------------------------------------------------------------------


def _table(listed: Sequence[TxidState]) -> Part:
    rows = [
        (
            str(txid.txid),
            txid.interval,
            f"{txid.state}: {txid.why}" if txid.why else txid.state,
            txid.rows,
            short_files(txid.files),
            short_run(txid.run_id),
        )
        for txid in listed
    ]
    columns = (">txid", "interval", "state", ">rows", "files", "run")
    return Table(columns, rows, empty="no txids", coloured=["state"])


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
