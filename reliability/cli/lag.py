"""`reliability lag`: emitted uncommitted txids, and items of the source without a txid."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reliability.cli.app import (
    FOUND,
    AsJson,
    OneOrAll,
    ledger,
    names,
    rows_of,
    topology_from_code,
    verb,
)
from reliability.cli.output import format_value, print_json, print_table
from reliability.core.errors import NothingToEmit, ReliabilityError
from reliability.core.spout import SpoutKind
from reliability.core.statement_key import TxidKey
from reliability.core.txids import format_txids

if TYPE_CHECKING:
    from reliability.core.definitions import Topology
    from reliability.core.spout import AllocatedItems, Interval
    from reliability.ledger.connection import LedgerConnection


@verb(
    "reliability lag",
    "reliability lag shop --json",
    "reliability lag --fail-after 3600",
)
def lag(
    topology: OneOrAll = "",
    fail_after: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="Exit with 3 if the oldest uncommitted txid is older than this, or an item of a "
            "closed interval has no txid.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how far every topology is behind its emission and behind its source.

    The source is read if the pipeline's module can be imported: it shows the items without a txid
    in past intervals, or, with an untimed spout, everything that is not emitted yet.
    """
    with ledger() as connection:
        found = [_lag_of(connection, name) for name in names(connection, topology)]
    if as_json:
        print_json(found)
    else:
        _print(found)
    if fail_after is not None and any(_is_late(one, fail_after) for one in found):
        raise typer.Exit(FOUND)


def _lag_of(connection: LedgerConnection, topology: str) -> dict[str, Any]:
    (row,) = rows_of(connection, "lag", topology=topology)
    without_txid, error = _look_at_source(connection, topology)
    return {
        "topology": topology,
        "uncommitted": row["uncommitted"],
        "txids": format_txids(range(row["curr_txid"], row["next_txid"])),
        "oldest_emitted_at": row["emitted_at"],
        "oldest_age_seconds": row["age"].total_seconds() if row["age"] else None,
        "without_txid": without_txid,
        "source_error": error,
    }


def _is_late(one: dict[str, Any], fail_after: int) -> bool:
    # what an untimed spout has not emitted is left to the next run
    overdue = any(found["interval"] for found in one["without_txid"] or ())
    return overdue or (one["oldest_age_seconds"] or 0) > fail_after


def _print(found: list[dict[str, Any]]) -> None:
    print_table(
        "",
        {
            "topology": "left",
            "uncommitted": "right",
            "txids": "left",
            "oldest": "right",
            "items without txid": "right",
        },
        [
            (
                one["topology"],
                one["uncommitted"],
                one["txids"],
                _age(one["oldest_age_seconds"]),
                _count(one["without_txid"]),
            )
            for one in found
        ],
    )
    for one in found:
        if one["source_error"]:
            typer.echo(f"{one['topology']}: its source could not be read: {one['source_error']}")
        for open_ in one["without_txid"] or ():
            where = f"interval {open_['interval']}" if open_["interval"] else "not emitted yet"
            typer.echo(
                f"{one['topology']}: {where}: {format_value(open_['rows'])} rows in "
                f"{format_value(len(open_['items']))} items, the first {open_['items'][0]}"
            )


def _age(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=int(seconds))


def _count(without_txid: list[dict[str, Any]] | None) -> int | str:
    return "?" if without_txid is None else sum(len(one["items"]) for one in without_txid)


# --- the source ----------------------------------------------------------------------------------


def _look_at_source(
    connection: LedgerConnection, topology: str
) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Return the items without a txid, or the error."""
    try:
        return list(_without_txid(connection, topology_from_code(connection, topology))), None
    except ReliabilityError as error:
        return None, str(error)


def _without_txid(connection: LedgerConnection, topology: Topology) -> Iterator[dict[str, Any]]:
    allocated = _allocated(connection, topology)
    for interval in _closed_intervals(connection, topology):
        try:
            items = topology.spout.plan(interval, allocated)
        except NothingToEmit:  # all its files were archived
            continue
        if items:
            yield {
                "interval": str(interval) if interval else None,
                "items": [item.identity for item in items],
                "rows": sum(item.rows for item in items),
            }


def _closed_intervals(connection: LedgerConnection, topology: Topology) -> list[Interval | None]:
    from reliability.ledger.records import interval_of

    if not topology.spout.timed:
        return [None]
    return [
        interval_of(row) for row in rows_of(connection, "closed_intervals", topology=topology.name)
    ]


def _allocated(connection: LedgerConnection, topology: Topology) -> AllocatedItems:
    """Return the allocated items; an opaque batch belongs to its attempt until it commits."""
    from reliability.ledger.records import batch_of
    from reliability.transaction.emit.source_items import LedgerItems, with_batches

    committed = LedgerItems(connection, topology.name)
    if topology.spout.kind is SpoutKind.TRANSACTIONAL:
        return committed
    (row,) = rows_of(connection, "topology_details", topology=topology.name)
    key = TxidKey(topology.name, row["next_txid"])
    live = rows_of(connection, "uncommitted_batches_before", **key)
    return with_batches(committed, [batch_of(row) for row in live])
