"""The source of an opaque spout changes or goes: E4, E6 on the real ledger, without Spark."""

from __future__ import annotations

import pytest

from reliability import Count, FileSpout, State, Topology
from reliability.core.errors import (
    SourceChanged,
    SourceMoved,
)
from reliability.core.spout import SpoutKind
from reliability.runner import TransactionRunner
from reliability.transaction.attempt import read_batch_meta
from reliability.transaction.taken import freeze
from tests.fix_pipeline import Pipeline
from tests.fix_postgres import rows
from tests.replay.shop import Shop, made


@pytest.fixture(params=[False, True], ids=["one database", "two databases"])
def elsewhere(request, add_database):
    if request.param:
        add_database("elsewhere")
    return "elsewhere" if request.param else ""


def delivered(door, count, elsewhere="", committed=0):
    """An opaque topology with so many txids, of which the first are committed."""
    shop = Shop(door, spout_kind=SpoutKind.OPAQUE, elsewhere=elsewhere)
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
    found = shop.ask("SELECT n, (SELECT count(*) FROM log) FROM all_of_it")
    [(rows, appended)] = found or [(0, 0)]
    assert rows == appended
    return rows


# --- E4, E6: what changed ------------------------------------------------------------------------


def begun(shop, txid):
    request_id = shop.runner.contact(txid, shop.who(txid)).request_id
    work = shop.topology.work("commit", "process")
    assert shop.runner.begin(txid, request_id, work)
    grant = shop.runner.claim_step(txid, request_id, "process", work)
    assert grant
    return grant


def test_what_changes_before_its_txid_commits_is_read_anew(door):
    """E4, E6: the next attempt cuts another batch, so it is worth a retry."""
    shop = delivered(door, 2)
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


def test_what_changes_once_its_txid_has_committed_is_a_persons_to_mend(door):
    """E4, E6: a frozen batch is read again, and no other is cut: a retry would be for nothing."""
    shop = delivered(door, 2, committed=2)
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"customer": pa.array(range(4), pa.int64())}), path, row_group_size=group
    )


@pytest.fixture
def pieces(file, door):
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
    pipeline = Pipeline(TransactionRunner(topology, door), None)
    assert pipeline.emit(None) == [1, 2]
    return pipeline


def parts(door):
    asked = "SELECT txid, batch_meta -> 0 -> 'first_row' FROM reliability.attempt ORDER BY txid"
    return rows(door, asked)


def test_a_file_that_is_exchanged_under_an_uncommitted_piece_is_cut_anew(pieces, file, door):
    """E4: the attempt that has the piece finds it out, and the next one reads what is there."""
    pieces.begin(1)
    write(file, group=4)
    with pytest.raises(SourceMoved, match="was emitted in pieces, and has only one now"):
        pieces.begin(2)
    write(file, group=2)
    pieces.begin(2)
    assert parts(door) == [(1, 0), (2, 2)]


def test_a_file_that_is_exchanged_under_a_committed_piece_is_a_persons_to_mend(pieces, file, door):
    """E4, E6: nothing that an attempt could read would be the rest of that file."""
    grant = pieces.begin(1)
    meta = read_batch_meta(door, grant)
    with door.transaction() as tx:
        freeze(tx, "pieces", 1, meta)
    for group, why in ((4, "was emitted in pieces"), (3, "has other row groups now")):
        write(file, group)
        with pytest.raises(SourceChanged, match=why):
            pieces.begin(2)
        with pytest.raises(SourceChanged, match=why):
            pieces.again("next").emit(None)
