"""History on real Postgres: horizons and compaction (H2, H5), where a row comes from, and whether
the tables are what their contributions say."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

import pytest
from psycopg2.sql import SQL

from reliability import (
    Avg,
    Count,
    First,
    History,
    Latest,
    MemorySpout,
    OpaqueState,
    State,
    Sum,
    Topology,
    TransactionalState,
    Upsert,
)
from reliability.core.errors import (
    ExplainNotPossible,
    LedgerBusy,
    LedgerCorruption,
    LedgerUnavailable,
    NotTheCoordinator,
    ReplayNotPossible,
    RollbackNotPossible,
    TopologyUnknown,
)
from reliability.ledger.locks import lock_topology
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct.rollback import release, roll_back
from reliability.transaction.inspect.explain import explain, explain_row
from reliability.transaction.inspect.verify import verify, verify_state
from reliability.transaction.maintain import compaction
from reliability.transaction.maintain.compaction import compact, fold_step
from reliability.transaction.topology.lifecycle import declare
from tests.integration.test_states import (
    BY_DAY,
    COUNTS,
    LOG,
    assert_exact,
    fold_through,
    kept,
    words,
)
from tests.integration.test_states import order_of as order
from tests.replay.shop import Shop, made, states
from tests.support.command_line import say
from tests.support.fix_postgres import execute, new_session, rows
from tests.support.one_state import OneState
from tests.support.staged import Staged

EAST = "east"


# --- what is folded ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregator", "winner"), [(Latest, "b, txid 3"), (Upsert, "b, txid 3"), (First, "a, txid 1")]
)
def test_ties_keep_their_winner(tx, aggregator, winner):
    values = {"v": aggregator("v", BY_DAY, "text")}
    one = OneState(tx, State("s", key={"k": "bigint"}, values=values))
    one.commit([order(1, 7, v="b, txid 1"), order(1, 5, v="a, txid 1")], parts=2)
    one.commit([order(1, 9, v="b, txid 2"), order(1, -8, v="a, txid 2")])
    one.commit([order(2, 1, v="later")])
    fold_through(one, 2)
    one.replay(3, [order(1, 3, v="b, txid 3"), order(1, -9, v="a, txid 3")])
    assert one.select("v") == [(winner,)]
    fold_through(one, 3)
    one.commit([])
    one.replay(4, [order(None, 1, v="unknown")])
    assert one.select("v") == [(winner,)]


def test_a_row_a_key_is_left_with_the_last_txid_that_gave_it_something(tx):
    one = OneState(tx, State("s", **COUNTS))
    one.commit(words("a", "b", None))
    one.commit([])
    one.replay(1, words("a", "a", "b", None))
    one.commit(words("a", None))
    one.commit(words("b"))
    (step,) = fold_through(one, 3)
    assert (step.through, step.txids, step.rows_before, step.rows_after) == (3, 3, 4, 2)
    assert kept(one) == [(1, 1, "b"), (3, 0, "a"), (3, 0, None), (4, 0, "b")]
    presences = [(txid, presence) for txid, presence, _ in one.headers()]
    assert presences == [*enumerate(("compacted", "empty", "compacted", "present"), start=1)]
    assert [number for *_, number in one.headers()] == [1, 0, 2, 1]
    fold_through(one, 4)
    assert one.headers()[0] == (1, "compacted", 0)
    # what accounts for the source rows is folded with the rest, whoever was replaced
    folds = "SELECT bit_xor(_x) AS x, sum(_n) AS n FROM {} WHERE (_txid, _attempt_id) <> (1, 0)"
    folded = {"x": 1 ^ 2 ^ 3 ^ 4 ^ 1 ^ 2 ^ 1, "n": 7}
    assert tx.one(SQL(folds).format(one.tables.contribution)) == folded


def test_keys_that_came_once_are_not_written_again(tx):
    one = OneState(tx, State("s", **COUNTS))
    for word in "abc":
        one.commit(words(word))
    places = SQL("SELECT ctid::text FROM {} ORDER BY 1").format(one.tables.contribution)
    before = tx.all(places)
    (step,) = fold_through(one, 3)
    assert (step.txids, step.rows_before, tx.all(places)) == (3, 0, before)


def test_a_transaction_folds_so_many_rows_and_at_least_a_txid(tx):
    one = OneState(tx, State("s", **COUNTS))
    for _ in range(5):
        one.commit(words("a", "b"))
    assert [step.through for step in fold_through(one, 5, max_rows=3)] == [2, 4, 5]
    assert fold_through(one, 5) == []
    assert kept(one) == [(5, 0, "a"), (5, 0, "b")]


def test_rows_that_are_gone_are_never_folded_away(tx):
    """H2: they would be taken for zero, and never be missed again."""
    one = OneState(tx, State("s", **COUNTS))
    one.commit(words("a", "b"))
    one.commit(words("a"))
    tx.run(SQL("DELETE FROM {} WHERE word = 'b'").format(one.tables.contribution))
    with pytest.raises(LedgerCorruption, match="1:0 is recorded with 2 rows, but 1 exist"):
        fold_through(one, 2)
    tx.run(SQL("DELETE FROM reliability.contribution WHERE txid = 1"))
    with pytest.raises(LedgerCorruption, match="1 of the txids 1 to 2 are recorded"):
        fold_through(one, 2)


def test_columns_may_have_the_ledger_s_names(tx):
    key = {"state": "text", "txid": "bigint"}
    values = {"rows": Count(), "presence": Sum("n"), "topology": Latest("t", BY_DAY, "text")}
    one = OneState(tx, State("s", key=key, values=values))
    row = {"state": "s", "txid": 9, "n": 2, "t": "x", "day": None}
    one.commit([{**row, "_x": 1}])
    one.commit([{**row, "_x": 2}])
    before = one.contents()
    fold_through(one, 2)
    assert one.contents() == before
    assert_exact(one)
    _, [only] = explain_row(tx, one.tables, {"state": "s", "txid": "9"})
    assert (only["rows"], only["presence"], only["_presence"]) == (2, 4, "compacted")


# --- which txids ---------------------------------------------------------------------------------


@pytest.fixture
def staged(connection):
    """A topology that keeps every txid, and has committed five; each adds to key 1."""
    staged = Staged(connection, "t")
    commit(staged, 5)
    return staged


def commit(staged, last):
    databases = ("", *staged.others)
    for txid in range(1, last + 1):
        staged.process(txid, {database: (1, 10 + txid) for database in databases})
    drain(staged.connection, staged.topology)


def keep(connection, *, txids=None, days=None):
    """Change every horizon of a database."""
    kept = f"keep_txids = {txids or 'NULL'}, keep_age = " + (f"'{days} days'" if days else "NULL")
    execute(connection, f"UPDATE reliability.state SET {kept}")


def compacted(connection, topology="t"):
    """Say of each state of a topology through which txid it compacts, and what holds it up."""
    return [(one.through, one.held_up_by) for one in compact(connection, topology)]


def contributions(connection, table="t__here"):
    statement = f"SELECT _txid, k, seen, _rows FROM reliability_contribution.{table} ORDER BY 1, 2"
    return rows(connection, statement)


def test_what_is_beyond_the_horizon_is_folded_once_and_what_is_within_is_replayed(
    staged, connection
):
    before = staged.seen()
    assert compact(connection, "t") == []  # for ever
    keep(connection, txids=2)
    (one,) = compact(connection, "t")
    assert (one.state, one.database, one.through, one.txids) == ("here", "", 3, 3)
    assert (one.rows_before, one.rows_after) == (3, 1)
    once = [(txid, 10 + txid, 1, 1) for txid in range(1, 6)]  # the keys that came once
    folded = [(3, 1, 3, 3), (4, 1, 1, 1), (5, 1, 1, 1)]
    assert contributions(connection) == sorted([*once, *folded])
    (again,) = compact(connection, "t")
    assert (again.through, bool(again), staged.seen()) == (3, False, before)
    keep(connection, txids=4)
    assert compacted(connection) == [(3, None)]  # what is folded stays folded
    assert verify(connection, "t")[0].is_exact
    with pytest.raises(Exception, match="only_the_committed_is_compacted"):  # nobody goes back
        execute(connection, "UPDATE reliability.topology SET curr_txid = 3")

    staged.process(3, {"": (1,)}, attempt_id=1)  # as if it had begun before
    staged.process(4, {"": (1, 1)}, attempt_id=1)
    drain(connection, "t")
    assert staged.seen() == {1: 6, 11: 1, 12: 1, 13: 1, 15: 1}
    failed = "SELECT reason_code, reason FROM reliability.attempt WHERE txid = 3 AND attempt_id = 1"
    why = "state here has compacted its history through txid 3"
    assert rows(connection, failed) == [("REPLAY_NOT_POSSIBLE", why)]

    explanation = explain(connection, "t", "here", {"k": "1"})
    assert explanation.row == {"k": 1, "seen": 6, "_rows": 6, "_txid": 5}
    found = explanation.contributions
    assert [(str(one.attempt), one.presence, one.values["seen"]) for one in found] == [
        ("3:0", "compacted", 3),
        ("4:1", "present", 2),
        ("5:0", "present", 1),
    ]
    assert {(one.dag_id, one.run_id) for one in found} == {("d", "r")}
    when = "SELECT committed_at FROM reliability.transaction WHERE txid > 2 ORDER BY txid"
    assert [(one.committed_at,) for one in found] == rows(connection, when)
    assert explain(connection, "t", "here", {"k": "99"}).contributions == ()


def test_a_horizon_in_days_looks_at_the_last_commit_of_each_txid(staged, connection):
    keep(connection, days=90)
    assert compacted(connection) == [(0, None)]
    long_ago = "committed_at = now() - interval '91 days'"
    age = f"UPDATE reliability.transaction SET {long_ago} WHERE txid IN"
    execute(connection, f"{age} (1, 2, 4)")
    assert compacted(connection) == [(2, None)]
    execute(connection, f"{age} (3, 5)")
    keep(connection, days=90, txids=1)
    assert compacted(connection) == [(4, None)]
    keep(connection, days=90)
    assert compacted(connection) == [(5, None)]


def test_what_may_still_change_is_not_passed(staged, connection):
    keep(connection, txids=1)
    under_way = "UPDATE reliability.checkpoint SET phase = {}, plan = {}"
    rollback = '[{"topology": "t", "kind": "ROLLBACK", "txid": 1, "commit_number": 6}]'
    execute(connection, under_way.format("'COMMITTING'", f"'{rollback}'"))
    with pytest.raises(LedgerBusy, match="`reliability sweep t` says why"):
        compact(connection, "t")  # other databases may have rolled back already
    said = say("compact", "t", code=1)
    assert "[LEDGER_BUSY]" in said.stderr
    assert said.stdout == "nothing was compacted\n"
    execute(connection, under_way.format("'COMMITTED'", "'[]'"))
    live = staged.grant(2, attempt_id=1)
    assert compacted(connection) == [(1, 2)]
    staged.stage(live, {"": (1,)})
    assert compacted(connection) == [(1, 2)]
    drain(connection, "t")
    for txid in (1, 3):  # the first will be refused
        execute(connection, REPLAY, txid=txid)
    assert compacted(connection) == [(2, 3)]
    execute(connection, "UPDATE reliability.request SET status = 'CLOSED', ended_at = now()")
    verdict = "UPDATE reliability.attempt SET verdict = {0}, verdict_reason = {0} WHERE txid = 4"
    execute(connection, verdict.format("'PARKED'"))
    assert compacted(connection) == [(3, 4)]
    execute(connection, verdict.format("'SKIPPED'"))  # and unskipped since
    assert compacted(connection) == [(3, 4)]
    execute(connection, SKIP)
    assert compacted(connection) == [(4, None)]


REPLAY = (
    "INSERT INTO reliability.request (topology, txid, dag_id, run_id, number, kind, granted_after)"
    " VALUES ('t', %(txid)s, 'd', 'r', 1, 'REPLAY', 0)"
)
SKIP = "INSERT INTO reliability.skip (topology, txid, skipped_by, reason) VALUES ('t', 4, 'x', 'x')"


def test_a_topology_has_to_be_known(shared_connection):
    for ask in (compact, verify):
        with pytest.raises(TopologyUnknown):
            ask(shared_connection, "nobody")
    # whoever has waited for its lock while somebody dropped it is told the same
    with pytest.raises(TopologyUnknown), shared_connection.transaction() as tx:
        lock_topology(tx, "nobody")


# --- two databases -------------------------------------------------------------------------------


@pytest.fixture
def spread(connection, east):
    staged = Staged(connection, "t", [EAST])
    commit(staged, 4)
    yield staged
    staged.participants.close()


def test_a_horizon_in_another_database_is_decided_in_the_ledger(spread, connection, east):
    """And its rows are explained and verified from there."""
    before = spread.seen(), spread.seen(EAST)
    explanation = explain(connection, "t", EAST, {"k": "12"})
    assert explanation.row is not None
    (only,) = explanation.contributions
    assert (str(only.attempt), only.run_id, explanation.row["seen"]) == ("2:0", "r", 1)
    keep(east, txids=1)
    spread.grant(3, attempt_id=1)
    [one] = compact(connection, "t")
    assert (one.database, one.through, one.held_up_by) == (EAST, 2, 3)
    assert rows(connection, "SELECT compacted_through FROM reliability.topology") == [(2,)]
    assert rows(connection, "SELECT compacted_through FROM reliability.state") == [(0,)]
    assert rows(east, "SELECT compacted_through FROM reliability.state") == [(2,)]
    assert contributions(east, "t__east")[:2] == [(1, 11, 1, 1), (2, 1, 2, 2)]
    assert len(contributions(connection)) == 8
    assert (spread.seen(), spread.seen(EAST)) == before
    assert [one.is_exact for one in verify(connection, "t")] == [True, True]
    with pytest.raises(NotTheCoordinator):
        compact(east, "t")
    execute(east, "UPDATE public.t_east SET seen = 0 WHERE k = 1")
    found = [(one.state, one.database, one.different) for one in verify(connection, "t")]
    assert found == [("here", "", 0), (EAST, EAST, 1)]


@pytest.fixture
def plain(template):
    """A session with a database in which nothing is compacted."""
    with new_session(template) as connection:
        yield connection


def two_states(elsewhere):
    """One of which a replay subtracts, here, and one that it recomputes, elsewhere."""
    return [replace(state, keep=History(txids=2)) for state in states(elsewhere)[:2]]


def live(shop, keep_house=lambda: None):
    """Commit, correct, roll back and commit again."""
    shop.commit(made(1), made(2), made(3))
    keep_house()
    shop.correct(3, made(9))
    shop.commit(made(4, rows=0), made(5))
    keep_house()
    shop.correct(4, [])
    roll_back(shop.connection, shop.name, 4, "a wrong delivery")
    release(shop.connection, shop.name)
    shop.clear(5)
    shop.makes[5] = made(8)
    shop.transact(5)
    keep_house()
    return shop.tables()


@pytest.mark.slow
def test_what_was_corrected_and_rolled_back_is_the_same_as_without_compaction(
    connection, east, plain
):
    def keep_house():
        compact(connection, "shop")
        assert all(one.is_exact for one in verify(connection, "shop"))

    shop = Shop(connection, elsewhere=EAST, kinds=two_states)
    assert live(shop, keep_house) == live(Shop(plain, kinds=two_states))
    through = "SELECT DISTINCT compacted_through FROM reliability.state ORDER BY 1"
    assert rows(connection, through) == [(3,)]
    assert rows(east, through) == [(3,)]
    before = shop.tables()
    with pytest.raises(ReplayNotPossible, match="compacted its history through txid 3"):
        shop.correct(3, made(1))
    with pytest.raises(RollbackNotPossible, match="compacted its history through txid 3"):
        roll_back(connection, "shop", 2, "too far")
    assert shop.tables() == before


def test_a_decision_binds_before_anything_is_folded(connection, east):
    """Else a replay could be prepared before, and committed after what it replaces was folded."""
    shop = Shop(connection, elsewhere=EAST, kinds=two_states)
    shop.commit_first(3)
    execute(connection, "UPDATE reliability.topology SET compacted_through = 2")
    with pytest.raises(ReplayNotPossible, match="a state of the topology has compacted"):
        shop.replay(2)
    with pytest.raises(RollbackNotPossible, match="compacted its history through txid 2"):
        roll_back(connection, "shop", 1, "too far")
    roll_back(connection, "shop", 2, "as far as it goes")


def test_who_dies_between_the_decision_and_the_folding_is_made_good(
    spread, connection, east, monkeypatch
):
    for there in (connection, east):
        keep(there, txids=1)

    def dies(tx, tables, through):
        if tables.state.name == EAST:
            raise LedgerUnavailable
        return fold_step(tx, tables, through)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "fold_step", dies)
        with pytest.raises(LedgerUnavailable, match="east"):
            compact(connection, "t")
    assert rows(connection, "SELECT compacted_through FROM reliability.topology") == [(3,)]
    assert compacted(connection) == [(3, None), (3, None)]
    spread.process(4, {"": (1,), EAST: (1, 1)}, attempt_id=1)
    drain(connection, "t")
    assert (spread.seen()[1], spread.seen(EAST)[1]) == (4, 5)
    assert [one.is_exact for one in verify(connection, "t")] == [True, True]


# --- the definition ------------------------------------------------------------------------------


def topology(keep):
    return Topology(
        "t",
        spout=MemorySpout({"word": "string"}, [["a"]], take=1),
        process=lambda batch: {"s": batch},
        states=[State("s", **COUNTS, keep=keep)],
    )


def test_a_horizon_is_written_down_and_changes_freely(connection):
    horizon = "SELECT keep_txids, extract(day FROM keep_age)::int FROM reliability.state"
    for keep, written in [
        (History(txids=100), (100, None)),
        (History(days=90), (None, 90)),
        (History(txids=7, days=0.5), (7, 0)),
        (None, (None, None)),
    ]:
        declare(connection, topology(keep))
        assert rows(connection, horizon) == [written]
    assert topology(History(txids=1)).states[0].digest() == topology(None).states[0].digest()


# --- explain -------------------------------------------------------------------------------------


def test_what_is_no_key_is_told(staged, connection):
    for state, key, why in [
        ("nowhere", {}, "no state nowhere; it has here"),
        ("here", {}, r"is k \(bigint\), but \[\] was given"),
        ("here", {"k": "1", "seen": "2"}, r"\['k', 'seen'\] was given"),
    ]:
        with pytest.raises(ExplainNotPossible, match=why):
            explain(connection, "t", state, key)
    Staged(connection, "opaque", kind=OpaqueState)
    with pytest.raises(ExplainNotPossible, match="keeps no contributions"):
        explain(connection, "opaque", "here", {"k": "1"})


def test_a_key_may_be_null_and_a_mean_is_worked_out(tx):
    key = {"day": "date", "tag": "text"}
    values = {"mean": Avg("price", "numeric(10,2)"), "first": First("price", BY_DAY, "numeric")}
    one = OneState(tx, State("s", key=key, values=values))
    price = {"day": None, "tag": "%(a)s", "price": Decimal(1)}
    one.commit([{**price, "_x": 1}, {**price, "price": Decimal(2), "_x": 2}], parts=2)
    one.commit([{**price, "price": None, "_x": 3}])
    row, contributed = explain_row(tx, one.tables, {"day": None, "tag": "%(a)s"})
    assert [(c["_txid"], c["mean"], c["first"], c["_rows"]) for c in contributed] == [
        (1, Decimal("1.50"), Decimal(1), 2),
        (2, None, None, 1),
    ]
    assert row is not None
    assert (row["mean"], row["_rows"]) == (Decimal("1.50"), 3)
    assert explain_row(tx, one.tables, {"day": "1997-01-01", "tag": "%(a)s"}) == (None, [])


def test_a_table_of_one_row_has_an_empty_key(tx):
    one = OneState(tx, State("s", values={"n": Count()}))
    one.commit(words("a", "b"))
    row, contributed = explain_row(tx, one.tables, {})
    assert row is not None
    assert (row["n"], [c["n"] for c in contributed]) == (2, [2])


def test_appended_rows_are_told_by_txid(tx):
    one = OneState(tx, LOG)
    one.commit(words("a", "b", "a"))
    one.commit(words("a"))
    row, contributed = explain_row(tx, one.tables, {"word": "a"})
    assert [(c["_txid"], c["x"]) for c in contributed] == [(1, 1), (1, 3), (2, 1)]
    assert row is None
    assert len(explain_row(tx, one.tables, {"word": "a"}, max_rows=2)[1]) == 2
    # those of some txids are looked for among all, not among the oldest
    for txids, told in (([2], [2]), ([1, 2], [1, 1]), ([], [])):
        _, own = explain_row(tx, one.tables, {"word": "a"}, max_rows=2, txids=txids)
        assert [c["_txid"] for c in own] == told


# --- verify --------------------------------------------------------------------------------------


@contextmanager
def by_hand(one, statement):
    """Do something to the table behind the back of the library, and take it back."""
    one.tx.run(SQL("SAVEPOINT by_hand"))
    one.tx.run(SQL(statement))
    yield verify_state(one.tx, one.tables)
    one.tx.run(SQL("ROLLBACK TO SAVEPOINT by_hand"))


def counts(verified):
    return verified.rows, verified.missing, verified.surplus, verified.different


BY_HAND = {  # and how many rows there are, are missing, are surplus, are different
    "UPDATE public.s SET n = 7 WHERE word IS NULL": (4, 0, 0, 1),
    "DELETE FROM public.s WHERE word IN ('a', 'c')": (2, 2, 0, 0),
    "INSERT INTO public.s VALUES ('x', 1, 1, 1)": (5, 0, 1, 0),
    "UPDATE public.s SET _txid = 1 WHERE word = 'a'": (4, 0, 0, 1),
    "UPDATE public.s SET _rows = 9; DELETE FROM public.s WHERE word = 'b'": (3, 1, 0, 3),
    "TRUNCATE public.s": (0, 4, 0, 0),
}


def test_what_somebody_did_to_a_table_is_found(tx):
    one = OneState(tx, State("s", **COUNTS))
    one.commit(words("a", "b", None))
    one.commit(words("a"))
    one.replay(1, words("a", "b", None, "c"))
    fold_through(one, 1)
    assert_exact(one)
    examples = []
    for statement, expected_counts in BY_HAND.items():
        with by_hand(one, statement) as verified:
            assert counts(verified) == expected_counts, statement
            examples.append(verified.examples)
    [changed], gone, [surplus], *_ = examples
    assert changed.key == {"word": None}
    assert changed.expected == {"n": 1, "_rows": 1, "_txid": 1}
    assert changed.found == {"n": 7, "_rows": 1, "_txid": 1}
    missing = [(e.key["word"], e.expected["n"], e.found) for e in gone]
    assert missing == [("a", 2, None), ("c", 1, None)]
    assert (surplus.key["word"], surplus.expected) == ("x", None)
    assert_exact(one)
    one.commit(words(*"defgh"))
    with by_hand(one, "UPDATE public.s SET n = n + 1") as verified:
        assert (verified.different, len(verified.examples)) == (9, 5)


def test_a_row_whose_txid_is_gone_is_found(tx):
    """C3: no later commit could compare itself with it."""
    one = OneState(tx, State("s", **COUNTS))
    one.commit(words("a"))
    gone = "ALTER TABLE public.s ALTER COLUMN _txid DROP NOT NULL; UPDATE public.s SET _txid = NULL"
    with by_hand(one, gone) as verified:
        assert counts(verified) == (1, 0, 0, 1)


WEIGHTS = State("s", key={"k": "bigint"}, values={"w": Sum("w", "double precision")})


def weights(*values):
    return [{"k": 1, "w": value, "_x": n} for n, value in enumerate(values)]


def test_the_last_digits_of_a_sum_of_floats_may_differ(tx):
    one = OneState(tx, WEIGHTS)
    for weight in (0.1, 0.2, 0.3):
        one.commit(weights(weight))
    others = ("w * 1.001", "'Infinity'", "'NaN'", "NULL")
    for wrong, different in (("w * (1 + 1e-12)", 0), *((other, 1) for other in others)):
        with by_hand(one, f"UPDATE public.s SET w = {wrong}") as verified:
            assert verified.different == different, wrong


def test_sums_of_floats_may_cancel_out(tx):
    one = OneState(tx, WEIGHTS)
    for weight in (0.1, 0.2, -0.3):
        one.commit(weights(weight))
    with by_hand(one, "UPDATE public.s SET w = 0") as verified:
        assert verified.is_exact
    one.commit(weights(float("inf")))
    assert_exact(one)
    with by_hand(one, "UPDATE public.s SET w = 5") as verified:
        assert verified.different == 1
    one.commit(weights(float("nan")))
    assert_exact(one)


def test_rows_that_were_lost_from_history_are_found(tx):
    one = OneState(tx, State("s", **COUNTS))
    one.commit(words("a", "b"))
    contribution = one.tables.contribution_name
    with by_hand(one, f"DELETE FROM {contribution} WHERE word = 'b'") as verified:
        assert verified.headers == ("attempt 1:0 is recorded with 2 rows, but 1 exist",)
        assert counts(verified) == (2, 0, 1, 0)


def test_a_committed_txid_without_a_header_is_found(staged, connection):
    execute(connection, "DELETE FROM reliability.contribution WHERE txid = 2")
    (verified,) = verify(connection, "t")
    assert verified.headers == ("attempt 2:0 has committed but is not recorded",)
    assert counts(verified) == (6, 0, 1, 1)


def test_appended_rows_are_counted_by_txid(tx):
    one = OneState(tx, LOG)
    one.commit(words("a", "b"))
    one.commit(words("a"))
    one.replay(2, words("b", "b"))
    verified = verify_state(tx, one.tables)
    assert (*counts(verified), verified.is_exact) == (4, 0, 0, None, True)
    with by_hand(one, "DELETE FROM public.s WHERE x = 1") as verified:
        assert counts(verified) == (2, 2, 0, None)
    doubled = "INSERT INTO public.s SELECT word, x, 7, 0, _x, _n FROM public.s"
    with by_hand(one, doubled) as verified:
        assert counts(verified) == (8, 0, 4, None)
        assert verified.headers == ("attempt 7:0 is recorded with 0 rows, but 4 exist",)


@pytest.mark.parametrize("kind", [OpaqueState, TransactionalState])
def test_what_keeps_nothing_can_only_be_counted(tx, kind):
    one = OneState(tx, kind("s", **COUNTS))
    one.commit(words("a", "b"))
    assert counts(verify_state(tx, one.tables)) == (2, None, None, None)
    assert verify_state(tx, one.tables).is_exact is None
