"""What the last verification of each table has found, for alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reliability.ledger.connection import LedgerConnection
from reliability.transaction.inspect.verify import Verified


def record_verified(connection: LedgerConnection, topology: str, found: Sequence[Verified]) -> None:
    """Record the result of a verification in the ledger.

    :param found: of every state of the topology
    """
    with connection.transaction() as tx:
        tx.run(
            "forget_states_verified_before",
            topology=topology,
            databases=[one.database for one in found],
            states=[one.state for one in found],
        )
        for one in found:
            tx.run(
                "record_verified",
                topology=topology,
                database=one.database,
                state=one.state,
                wrong=", ".join(_what_is_wrong(one)) if one.is_exact is False else None,
            )


def record_repaired(connection: LedgerConnection, topology: str) -> None:
    """Record that nothing is known to be wrong any more."""
    with connection.transaction() as tx:
        tx.run("forget_what_was_wrong", topology=topology)


def _what_is_wrong(one: Verified) -> Iterator[str]:
    for count, kind in (
        (one.missing, "missing"),
        (one.surplus, "surplus"),
        (one.different, "different"),
    ):
        if count:
            yield f"{count:,} {kind} rows" if count > 1 else f"1 {kind} row"
    if one.headers:
        yield f"{len(one.headers)} headers" if len(one.headers) > 1 else "1 header"
