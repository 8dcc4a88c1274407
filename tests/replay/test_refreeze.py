"""A batch that was exchanged on purpose is frozen anew when a person says so (G6)."""

from __future__ import annotations

import os
from datetime import date
from decimal import Decimal

import pytest

from reliability import Count, FileSpout, MemorySpout, State, Topology
from reliability.core.errors import (
    LedgerCorruption,
    NothingToReplay,
    RefreezeNotPossible,
    RowsUnaccounted,
    SourceChanged,
)
from reliability.core.fold import Fold
from reliability.core.spout import BatchMeta, NoItems
from reliability.deployment.lazy import pa, pq
from reliability.ledger.read_rows import ends_of
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.emit.refreeze import refreeze
from reliability.transaction.inspect.source import committed_batches
from tests.replay.shop import made
from tests.support.fix_pipeline import pipeline_of, write_parquet
from tests.support.fix_postgres import execute
from tests.support.fix_shop import shop_with

origin, shop = shop_with(3)


FROZEN = (
    "SELECT txid, batch_meta, emitted_xor, emitted_count FROM reliability.transaction ORDER BY 1"
)


def exchange(shop, txid, rows):
    """A corrected delivery with another number of rows takes the place of the first one."""
    shop.source.sizes[txid - 1] = len(rows)
    shop.makes[txid] = rows


def test_a_changed_batch_is_refused_until_it_is_frozen_anew(shop):
    """E4: and a dry run shows before what that would change, and freezes nothing."""
    before, frozen = shop.tables(), shop.ask(FROZEN)
    assert shop.runner.refreeze(2, "why not") is None  # it is unchanged
    assert all(one.is_nothing for one in shop.dry_run(2, as_refrozen=True))
    exchange(shop, 2, made(9, rows=8))
    for read in (shop.replay, shop.dry_run):
        with pytest.raises(SourceChanged):
            read(2)
    would = shop.dry_run(2, as_refrozen=True)
    assert (shop.tables(), shop.ask(FROZEN)) == (before, frozen)
    assert shop.ask("SELECT * FROM reliability.refreeze") == []
    with pytest.raises(SourceChanged):  # nor does a replay read it without being asked
        shop.replay(2)
    assert shop.runner.refreeze(2, "a wrong delivery")
    later = "UPDATE reliability.refreeze SET refrozen_at = now() + interval '1 minute'"
    execute(shop.connection, later)  # the clock is set back
    done = shop.replay(2)
    assert done == would
    differences = {one.state: one for one in done}
    assert differences["all_of_it"].moved["n"] == 2
    asked = "SELECT emitted_count FROM reliability.transaction ORDER BY txid"
    assert shop.ask(asked) == [(6,), (8,), (6,)]
    asked = "SELECT txid, batch_meta -> 0 ->> 'rows', reason FROM reliability.refreeze"
    assert shop.ask(asked) == [(2, "6", "a wrong delivery")]


def test_what_is_told_of_a_txid_is_what_its_tables_count_until_its_replay_commits(shop):
    """A replay of a refrozen batch that failed was told as if it had committed."""

    def told():
        with shop.connection.transaction() as tx:
            key = {"topology": "shop", "before": None, "most": None}
            [account] = tx.all("accounts_by_interval", **key, **ends_of(None))
            [kept] = tx.all("figures_of_commits", topology="shop", commit_numbers=[2])
            batches = committed_batches(tx, "shop")
        [item] = batches[2][1].items
        return account["emitted"], kept["rows"], batches[2][1].emitted.count, item.rows

    assert told() == (18, 6, 6, 6)
    exchange(shop, 2, made(9, rows=8))
    shop.runner.refreeze(2, "a wrong delivery")
    shop.makes[2] = made(9, rows=7)  # the code loses a row
    with pytest.raises(RowsUnaccounted):
        shop.replay(2)
    assert told() == (18, 6, 6, 6)
    exchange(shop, 2, made(9, rows=5))
    shop.runner.refreeze(2, "this one was wrong, too")
    assert told() == (18, 6, 6, 6)
    shop.replay(2)
    assert told() == (17, 6, 5, 5)


def test_a_dry_run_without_a_file_that_is_gone_reads_no_corrections_of_the_others(shop):
    """V9: the refreeze would end them, though all that is left was frozen before, too."""

    def corrected():
        [(attempt_id,)] = shop.ask("SELECT max(attempt_id) FROM reliability.attempt WHERE txid = 2")
        with shop.connection.transaction() as tx:
            key = {"topology": "shop", "txid": 2, "attempt_id": attempt_id}
            return len(tx.all("corrections_of_attempt", **key))

    values = {"was": '{"k": 1}', "becomes": '{"k": 2}'}
    change = {**values, "reason": "a test", "by": "ann", "request_id": None}
    with shop.connection.transaction() as tx:
        tx.run("record_correction", topology="shop", txid=2, xor=1, item="f", row=0, **change)
    shop.dry_run(2)
    assert corrected() == 1
    shop.source.gone.add(1)
    shop.dry_run(2, as_refrozen=True)
    assert corrected() == 0


def test_only_a_dry_run_reads_what_is_not_frozen(shop):
    """E4: what commits has read the txid's batch."""
    exchange(shop, 2, made(9, rows=8))
    shop.clear(2)
    with pytest.raises(LedgerCorruption, match="is no dry run"):
        shop.transact(2, as_refrozen=True)


def test_a_run_freezes_anew_once(shop):
    """Its parameters stay with it: a clear after another exchange is no wish to accept that too."""
    who = shop.who(1)
    exchange(shop, 2, made(9, rows=8))
    shop.clear(2)
    assert shop.runner.emit(None, who, max_batches=9, refreeze=True) == [1, 2, 3]
    exchange(shop, 2, made(9, rows=7))
    assert shop.runner.emit(None, who, max_batches=9, refreeze=True) == [1, 2, 3]
    asked = "SELECT emitted_count FROM reliability.transaction WHERE txid = 2"
    assert shop.ask(asked) == [(8,)]


def test_a_delivery_that_was_rolled_back_comes_anew(shop):
    """G7: what is released has the batch that it was frozen with, until a run says otherwise."""
    roll_back(shop.connection, "shop", 2, "delivered anew")
    exchange(shop, 3, made(9, rows=8))
    release(shop.connection, "shop")
    shop.clear(3)
    shop.runner.emit(None, shop.who(3), max_batches=9, refreeze=True)
    shop.transact(3)
    assert shop.ask("SELECT n FROM all_of_it") == [(20,)]


def test_a_batch_that_is_being_processed_stays(shop):
    """Its tasks would read two different batches."""
    shop.deliver(made(4))
    request_id = shop.runner.contact(4, shop.who(4)).request_id
    shop.runner.begin(4, request_id, shop.topology.work("commit"))
    exchange(shop, 4, made(9, rows=8))
    with pytest.raises(RefreezeNotPossible, match="txid 4"):
        shop.runner.refreeze(4, "now")
    with pytest.raises(NothingToReplay):
        shop.runner.refreeze(5, "never emitted")


def test_files_that_changed_went_and_came_back(tmp_path):
    def rows(n):
        return [{"customer": i, "day": date(2026, 1, 1), "price": Decimal(i)} for i in range(n)]

    spout = FileSpout(f"{tmp_path}/*.parquet", max_files_per_batch=3)
    for name in "abc":
        write_parquet(tmp_path / f"{name}.parquet", rows(2))
    [items] = spout.cut(spout.plan(None, NoItems()))
    meta = BatchMeta(items=items, emitted=spout.count(items))
    write_parquet(tmp_path / "a.parquet", rows(5))
    os.remove(tmp_path / "b.parquet")
    found = [(item.source.rpartition("/")[2], item.rows) for item in spout.refresh(meta)]
    assert found == [("a.parquet", 5), ("c.parquet", 2)]


def test_a_piece_of_a_file_cannot_be_frozen_anew(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": list(range(8))}), path, row_group_size=2)
    spout = FileSpout(f"{tmp_path}/*.parquet", max_rows_per_batch=4)
    items = spout.cut(spout.plan(None, NoItems()))[0]
    with pytest.raises(RefreezeNotPossible, match="pieces"):
        spout.refresh(BatchMeta(items=items, emitted=Fold()))


def test_an_item_that_was_missing_twice_comes_back_once(connection):
    """G6: it was read from each of the batches that had it, and counted twice."""

    def spout(*rows):
        return MemorySpout(schema={"n": "int"}, partitions=[list(r) for r in rows], take=1)

    def of(source):
        states = [State("counted", values={"n": Count()})]
        return Topology("few", spout=source, states=states, process=dict, module=__name__)

    run = pipeline_of(of(spout([1], [2], [3])), connection)
    assert run.emit(None) == [1]
    for left in ([[1], [2]], [[1]], [[1], [2]]):
        batch = refreeze(connection, of(spout(*left)), 1, "others are there")
        assert batch is not None
        assert batch.emitted.count == len(left)
