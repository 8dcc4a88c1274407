"""The source of an opaque spout changes or goes: E4, E6, C7 on the real ledger, without Spark."""

from __future__ import annotations

import pytest

from reliability import Count, FileSpout, State, Topology
from reliability.core.errors import (
    NothingToEmit,
    ParkNotPossible,
    RequestClosed,
    SourceChanged,
    SourceMoved,
)
from reliability.core.spout import SpoutKind
from reliability.deployment.lazy import pa, pq
from reliability.transaction.correct.park import park, skip
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.source_items import freeze
from reliability.transaction.process.attempt_messages import read_batch_meta
from tests.replay.shop import Shop, made
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import rows


def delivered(connection, count, elsewhere="", committed=0):
    """An opaque topology with so many txids, of which the first are committed."""
    shop = Shop(connection, spout_kind=SpoutKind.OPAQUE, elsewhere=elsewhere)
    for txid in shop.deliver(*(made(n) for n in range(1, count + 1)))[:committed]:
        shop.transact(txid)
    return shop


def goes(shop, *batches):
    shop.source.gone |= set(batches)


def emit(shop, run):
    """What comes in a run of its own."""
    return shop.deliver(run=run)


def batches(shop):
    """Which batches each txid has; None before it is frozen."""
    asked = (
        "SELECT txid, (SELECT array_agg((item -> 'partition')::int)"
        " FROM jsonb_array_elements(batch_meta) AS item), batch_meta IS NOT NULL"
        " FROM reliability.transaction ORDER BY txid"
    )
    return {txid: (has or []) if is_frozen else None for txid, has, is_frozen in shop.ask(asked)}


def follows(shop, txid):
    asked = (
        "SELECT attempt_id, predecessor_attempt FROM reliability.attempt"
        " WHERE txid = %(txid)s ORDER BY attempt_id DESC LIMIT 1"
    )
    return shop.ask(asked, txid=txid)[0]


def counted(shop):
    [(rows, appended)] = shop.ask("SELECT n, (SELECT count(*) FROM log) FROM all_of_it") or [(0, 0)]
    assert rows == appended
    return rows


# --- C7: a txid that never had a batch -----------------------------------------------------------


@pytest.mark.parametrize("commit_empty", [park, skip])
def test_a_txid_whose_source_is_gone_can_be_passed_over(connection, commit_empty):
    """C7, E4: else the topology would wait for ever for what does not come back."""
    shop = delivered(connection, 2, committed=1)
    goes(shop, 0, 1)
    with pytest.raises(NothingToEmit, match=r"txid 2: nothing is there\. .*deliver.*park.*skip"):
        shop.process(2)
    done = commit_empty(connection, "shop", 2, "it does not come back")
    assert [str(one.attempt) for one in done] == ["2:0"]
    assert (batches(shop), follows(shop, 2)) == ({1: [0], 2: []}, (0, 0))
    assert shop.deliver(made(3), run="next") == [3]
    shop.transact(3)
    assert (batches(shop)[3], follows(shop, 3)) == ([2], (0, 0))
    assert counted(shop) == 12


@pytest.mark.parametrize("commit_empty", [park, skip])
def test_the_first_txid_can_be_passed_over_and_what_comes_back_gets_another_txid(
    connection, commit_empty
):
    """C7: txid 1 starts where nothing ended; a replay reads nothing, as its batch is frozen."""
    shop = delivered(connection, 2)
    shop.runner.contact(1, shop.who(1))  # its task came, and failed
    goes(shop, 0, 1)
    commit_empty(connection, "shop", 1, "nobody needs it")
    if commit_empty is skip:  # who asked for it has it
        assert shop.transact(1) == []
    assert follows(shop, 1) == (0, None)
    shop.source.gone.clear()
    assert all(one.is_nothing for one in shop.replay(1))
    if commit_empty is park:
        assert shop.runner.refreeze(1, "it is back") is None
    shop.transact(2)  # it takes the next batch that nobody has
    assert (batches(shop), counted(shop)) == ({1: [], 2: [0]}, 6)
    assert emit(shop, "next") == [3]


def test_txids_are_passed_over_in_their_order(connection):
    """C7, E4: where a batch starts is settled when the txid before has committed."""
    shop = delivered(connection, 3)
    shop.runner.contact(2, shop.who(2))
    goes(shop, 0, 1, 2)
    with pytest.raises(ParkNotPossible, match="txid 1 of shop has not committed") as refused:
        park(connection, "shop", 2, "too early")
    assert "park or skip txid 1" in str(refused.value)
    for txid in (1, 2, 3):
        park(connection, "shop", txid, "it does not come back")
    assert batches(shop) == {1: [], 2: [], 3: []}
    with pytest.raises(RequestClosed, match="it does not come back"):
        shop.transact(2)


def test_what_was_processed_behind_it_falls_and_begins_behind_the_empty_batch(
    connection, add_database
):
    """C7, E4: in two databases, of which either has staged what falls."""
    add_database("elsewhere")
    shop = delivered(connection, 3, "elsewhere")
    for txid in (1, 2, 3):
        shop.process(txid)
    goes(shop, 0)
    park(connection, "shop", 1, "it was wrong")  # the batch that was cut for it stays its own
    goes(shop, 1, 2)
    park(connection, "shop", 2, "that one fell with it")
    assert batches(shop) == {1: [0], 2: [], 3: None}
    shop.source.gone = {0}
    shop.transact(3)
    assert (batches(shop), counted(shop)) == ({1: [0], 2: [], 3: [1]}, 6)
    with pytest.raises(SourceChanged, match="gone"):
        shop.replay(1)
    shop.source.gone.clear()
    shop.replay(1)
    assert counted(shop) == 12


def test_after_a_rollback_and_a_release_it_can_be_passed_over(connection, add_database):
    """C7, H4: what was cut behind the attempt that was rolled back starts where it did."""
    add_database("elsewhere")
    shop = delivered(connection, 4, "elsewhere", committed=2)
    shop.process(3)
    roll_back(connection, "shop", 1, "delivered anew")
    with pytest.raises(ParkNotPossible, match="txid 2 of shop has not committed"):
        park(connection, "shop", 3, "too early")
    release(connection, "shop")
    shop.clear(2)
    shop.transact(2)
    goes(shop, 0, 1, 2, 3)
    for txid in (3, 4):
        park(connection, "shop", txid, "it does not come back")
    assert batches(shop) == {1: [0], 2: [1], 3: [2], 4: []}
    assert [follows(shop, txid) for txid in (3, 4)] == [(1, 1), (0, 1)]
    shop.source.gone.clear()
    assert emit(shop, "next") == [5]
    shop.transact(5)
    shop.replay(3)
    assert (batches(shop)[5], counted(shop)) == ([3], 24)


def test_an_empty_batch_that_is_rolled_back_stays_empty(connection):
    """C7, H4: a released txid is processed from the batch that it had."""
    shop = delivered(connection, 2, committed=1)
    goes(shop, 0, 1)
    park(connection, "shop", 2, "it does not come back")
    roll_back(connection, "shop", 0, "once more")
    release(connection, "shop")
    shop.source.gone.clear()
    for txid in (1, 2):
        shop.clear(txid)
        shop.transact(txid)
    assert (batches(shop), counted(shop)) == ({1: [0], 2: []}, 6)
    assert emit(shop, "next") == [3]
    shop.transact(3)
    assert (batches(shop)[3], counted(shop)) == ([1], 12)


# --- E4, E6: what changed ------------------------------------------------------------------------


def begun(shop, txid):
    request_id = shop.runner.contact(txid, shop.who(txid)).request_id
    work = shop.topology.work("commit", "process")
    assert shop.runner.begin(txid, request_id, work)
    grant = shop.runner.claim_step(txid, request_id, "process", work)
    assert grant
    return grant


def test_what_changes_before_its_txid_commits_is_read_anew(connection):
    """E4, E6: the next attempt cuts another batch, so it is worth a retry."""
    shop = delivered(connection, 2)
    grant = begun(shop, 1)
    goes(shop, 0)
    with pytest.raises(SourceMoved, match="batch 0 is gone"):
        shop.write(grant)
    shop.transact(1)
    assert batches(shop)[1] == [1]
    # and so at the seal
    shop.source.gone.clear()
    grant = begun(shop, 2)
    shop.write(grant)
    shop.runner.end_step(grant, "process")
    goes(shop, 0)
    with pytest.raises(SourceMoved):
        shop.runner.seal(grant, "commit")


def test_what_changes_once_its_txid_has_committed_is_a_persons_to_mend(connection):
    """E4, E6: a frozen batch is read again, and no other is cut: a retry would be for nothing."""
    shop = delivered(connection, 2, committed=2)
    goes(shop, 0)
    with pytest.raises(SourceChanged, match="batch 0 is gone") as changed:
        shop.replay(1)
    assert "refreeze" in str(changed.value)
    shop.source.gone.clear()
    shop.clear(1)
    grant = begun(shop, 1)
    shop.write(grant)
    shop.runner.end_step(grant, "process")
    goes(shop, 0)
    with pytest.raises(SourceChanged):
        shop.runner.seal(grant, "commit")
    assert shop.runner.refreeze(1, "it does not come back")
    shop.replay(1)
    assert (batches(shop)[1], counted(shop)) == ([], 6)


# --- files of which a txid has pieces ------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.parquet"
    write(path, group=2)
    return path


def write(path, group):
    pq.write_table(
        pa.table({"customer": pa.array(range(4), pa.int64())}), path, row_group_size=group
    )


@pytest.fixture
def pieces(file, connection):
    """Two txids, of which each will read half of the file."""
    topology = Topology(
        "pieces",
        spout=FileSpout(
            f"{file.parent}/*.parquet", max_rows_per_batch=2, schema="customer bigint", opaque=True
        ),
        process=lambda batch: {"totals": batch},
        states=[State("totals", values={"n": Count()})],
        max_spout_pending=3,
    )
    pipeline = pipeline_of(topology, connection)
    assert pipeline.emit(None) == [1, 2]
    return pipeline


def test_a_file_that_is_exchanged_under_an_uncommitted_piece_is_cut_anew(pieces, file, connection):
    """E4: the attempt that has the piece finds it out, and the next one reads what is there."""
    pieces.begin(1)
    write(file, group=4)
    with pytest.raises(SourceMoved, match="was emitted in pieces, and has only one now"):
        pieces.begin(2)
    write(file, group=2)
    pieces.begin(2)
    parts = "SELECT txid, batch_meta -> 0 -> 'first_row' FROM reliability.attempt ORDER BY txid"
    assert rows(connection, parts) == [(1, 0), (2, 2)]


def test_a_file_that_is_exchanged_under_a_committed_piece_is_a_persons_to_mend(
    pieces, file, connection
):
    """E4, E6: nothing that an attempt could read would be the rest of that file."""
    meta = read_batch_meta(connection, pieces.begin(1))
    with connection.transaction() as tx:
        freeze(tx, "pieces", 1, meta.items)
    for group, why in ((4, "was emitted in pieces"), (3, "has other row groups now")):
        write(file, group)
        with pytest.raises(SourceChanged, match=why):
            pieces.begin(2)
        with pytest.raises(SourceChanged, match=why):
            pieces.again("next").emit(None)
