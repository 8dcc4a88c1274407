"""Verify the tables of a topology against its contributions, to detect foreign writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from reliability.core.checkpoint import COORDINATOR
from reliability.core.difference import Differing
from reliability.core.progress import UNSEEN, StateProgress
from reliability.core.statement_key import StateKey
from reliability.ledger.connection import DatabaseTransaction, Ledger, LedgerConnection
from reliability.states.headers import format_header, wrong_headers
from reliability.states.kinds import StoredState
from reliability.states.verify_table import differing_rows, examples
from reliability.transaction.commit.saved_checkpoint import check_reached, find_checkpoint
from reliability.transaction.topology.databases import TopologyDatabases
from reliability.transaction.topology.declare import declared_tables

MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result for one state's table; None means that it cannot be determined.

    :param rows: how many rows the table has
    :param missing: how many rows its contributions have and the table lacks, and so on
    :param examples: some of these rows
    :param headers: what is wrong with the record of its contributions
    :param compares_values: False if only the number of each txid's rows can be compared
    :param is_exact: nothing is wrong, as far as that can be determined; None if it cannot
    """

    state: str
    database: str
    rows: int
    missing: int | None = None
    surplus: int | None = None
    different: int | None = None
    examples: tuple[Differing, ...] = ()
    headers: tuple[str, ...] = ()
    compares_values: bool = True
    is_exact: bool | None = field(init=False)

    def __post_init__(self) -> None:
        is_wrong = self.missing or self.surplus or self.different or self.headers
        is_exact = False if is_wrong else None if self.missing is None else True
        object.__setattr__(self, "is_exact", is_exact)


def verify(
    connection: LedgerConnection,
    topology: str,
    progress: StateProgress = UNSEEN,
    *,
    not_repaired_only: bool = False,
) -> list[Verified]:
    """Compute every row of every state from the kept contributions, and compare.

    Each database is read in one snapshot, without blocking other sessions. Before the snapshot, the
    contributions are locked: a merge between both would hide their rows from it (H10).

    :param not_repaired_only: only states that a repair does not compare
    :raises CheckpointMismatch: a database lacks commits, as it was restored; its tables may still
        agree with its own contributions
    """

    def states_of(database: Ledger) -> list[StoredState]:
        states = declared_tables(database, topology)
        return [one for one in states if not (not_repaired_only and one.keeps_contributions)]

    results: list[Verified] = []
    applied: int | None = None
    with TopologyDatabases.of_known(connection, topology) as databases:
        for database in databases.all:
            known = states_of(database)
            with database.transaction(reads_only=True) as tx:
                tx.queue("isolate_source")
                for tables in known:
                    if tables.keeps_contributions:
                        tx.queue(tables.hold_contributions())
                there = find_checkpoint(tx, topology)
                reached = min(there.state.participants_at) if there is not None else 0
                applied = reached if applied is None else applied
                check_reached(reached, applied)
                states = states_of(tx)
                progress.more(len(states))
                for state in states:
                    progress.now(state.name)
                    results.append(verify_state(tx, state, database.database))
    return results


def verify_state(
    tx: DatabaseTransaction, state: StoredState, database: str = COORDINATOR
) -> Verified:
    """Verify one state's table.

    Appended rows are their own contribution: only their number per txid can be compared.
    """
    verified = Verified(
        state=state.name,
        database=database,
        rows=tx.one(state.count())["rows"],
        headers=tuple(
            f"attempt {row['txid']}:{row['attempt_id']} has committed but is not recorded"
            for row in tx.all("txids_without_header", **StateKey(state.topology, state.name))
        ),
        compares_values=not state.state.is_append,
    )
    if state.keeps_contributions:
        rows = tx.all(differing_rows(state), most=MAX_EXAMPLES)
        verified = replace(
            verified,
            missing=rows[0]["missing"],
            surplus=rows[0]["surplus"],
            different=rows[0]["different"],
            examples=tuple(examples(state, rows)),
        )
    if not state.has_headers:
        return verified
    wrong = wrong_headers(tx, state)
    verified = replace(verified, headers=(*verified.headers, *map(format_header, wrong)))
    if (counted := state.missing_by_header(wrong)) is not None:
        verified = replace(verified, missing=counted[0], surplus=counted[1])
    return verified


# --- for alerts ----------------------------------------------------------------------------------


def record_verified(
    connection: LedgerConnection, topology: str, results: Sequence[Verified]
) -> None:
    """Record the result of a verification in the ledger.

    :param results: of every state of the topology, but for those that were repaired
    """
    with connection.transaction() as tx:
        tx.run(
            "forget_states_verified_before",
            topology=topology,
            databases=[state.database for state in results],
            states=[state.state for state in results],
        )
        for state in results:
            tx.run(
                "record_verified",
                topology=topology,
                database=state.database,
                state=state.state,
                wrong=", ".join(_what_is_wrong(state)) if state.is_exact is False else None,
            )


def _what_is_wrong(state: Verified) -> Iterator[str]:
    counts = {
        "missing row": state.missing,
        "surplus row": state.surplus,
        "different row": state.different,
        "header": len(state.headers),
    }
    for what, count in counts.items():
        if count:
            yield f"{count:,} {what}{'s' * (count > 1)}"
