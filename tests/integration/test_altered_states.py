"""C11 on the real ledger, without Spark: a state's shape changes while it lives."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reliability import (
    Append,
    Avg,
    Count,
    History,
    Latest,
    Max,
    MemorySpout,
    OpaqueState,
    State,
    Sum,
    Topology,
    TransactionalState,
)
from reliability.core.errors import (
    AlterNotPossible,
    AttemptFenced,
    LedgerBusy,
    RollbackNotPossible,
    StateDefinitionChanged,
)
from reliability.core.graph import THE_STEP
from reliability.ledger.connection import LedgerConnection
from reliability.ledger.locks import holding_at_rest
from reliability.spark import driver
from reliability.transaction.commit.committer import drain
from reliability.transaction.correct.drop import drop_topology
from reliability.transaction.correct.park import skip
from reliability.transaction.correct.rollback import roll_back
from reliability.transaction.inspect.explain import explain
from reliability.transaction.inspect.verify import record_verified, verify
from reliability.transaction.maintain.compaction import compact
from reliability.transaction.topology import alter as altering
from reliability.transaction.topology.alter import alter, lacking_values, plan_alteration
from reliability.transaction.topology.declare import declared_tables
from reliability.transaction.topology.lifecycle import count_rows
from tests.replay.shop import Shop, made
from tests.simulation.contents import BEST
from tests.support.command_line import by_me, read, say
from tests.support.doomed import doomed
from tests.support.fix_pipeline import pipeline_of
from tests.support.fix_postgres import execute, rows, wait_until_it_waits
from tests.support.runner import TransactionRunner
from tests.support.staged import DECIDED

TEXT = "man man dog  apple man dog  dog cat cat  man cat egg"
OLD = {"times": Count()}
NEW = {
    "letters": Sum("length", "numeric(10,2)"),
    **OLD,
    "mean": Avg("length", "numeric(10,2)"),
    "known": Count("word"),
    "greatest": Max("word", "text"),
    "last": Latest("word", {"length": "bigint"}, "text"),
}
SUMS = {**OLD, "letters": Sum("length"), "known": Count("word")}
WHY = "the report needs it"
COLUMNS = (
    "SELECT attname FROM pg_attribute"
    " WHERE attrelid = 'public.words'::regclass AND attnum > 0"
    " AND NOT attisdropped ORDER BY 1"
)


class Library:
    """Counts words, three a batch, in any states; a processing phase without Spark."""

    def __init__(self, connection, *states, name="words"):
        self.connection = connection
        self.topology = Topology(
            name,
            spout=MemorySpout({"word": "string"}, [TEXT.split()], take=3),
            states=list(states),
            process=self.with_lengths,
            max_spout_pending=9,
        )
        self.pipeline = pipeline_of(self.topology, connection)
        self.run(0)

    def run(self, clears):
        """Ask for every txid as a run that was cleared so often."""
        for _ in range(clears):
            self.pipeline = self.pipeline.again()
        self.pipeline.emit(None)

    def with_lengths(self, batch):
        read = [{**row, "length": len(row["word"])} for row in batch]
        return dict.fromkeys((state.name for state in self.topology.states), read)

    def process(self, *txids):
        for txid in txids:
            self.pipeline.process(txid)

    def write(self, grant):
        self.pipeline.run_step(grant)
        self.pipeline.seal(grant)

    def commit(self, *txids):
        self.process(*txids)
        self.pipeline.runner.commit(0)

    def replay(self, *txids):
        self.run(1)
        for txid in txids:
            self.commit(txid)

    def table(self, name="words"):
        columns = [c for (c,) in rows(self.connection, COLUMNS) if not c.endswith("previous")]
        chosen = ", ".join(f'"{column}"' for column in columns)
        return rows(self.connection, f"SELECT {chosen} FROM {name} ORDER BY word")

    def statuses(self):
        asked = "SELECT txid, attempt_id, status FROM reliability.attempt ORDER BY 1, 2"
        return [f"{txid}:{n} {status}" for txid, n, status in rows(self.connection, asked)]


def words(values, kind=State, **options):
    return kind("words", key={"word": "text"}, values=values, **options)


def altered(connection, old, *states):
    """Alter the topology, and return it with the new code and the same run."""
    new = Library.__new__(Library)
    new.connection = connection
    new.topology = replace(old.topology, states=list(states), process=new.with_lengths, steps=())
    new.pipeline = replace(old.pipeline, runner=TransactionRunner(new.topology, connection))
    return new, alter(connection, new.topology, WHY)


def assert_exact(connection):
    assert [(v.is_exact, v.headers) for v in verify(connection, "words")] == [(True, ())]


# --- a value more --------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [NEW, SUMS])
def test_a_value_that_is_added_is_as_if_it_had_been_there_once_history_is_replayed(
    connection, values
):
    """C11: what was staged before has NULL or 0, which adds nothing, and a replay replaces it."""
    old = Library(connection, words(OLD))
    old.commit(1, 2, 3)
    before = rows(connection, "SELECT word, times, _txid FROM words ORDER BY 1")
    new, done = altered(connection, old, words(values))
    assert (done.counts_from, done.fillable, done.unfillable) == (4, (1, 2, 3), ())
    assert rows(connection, "SELECT word, times, _txid FROM words ORDER BY 1") == before
    assert rows(connection, "SELECT DISTINCT letters, known FROM words") == [(None, 0)]
    assert_exact(connection)
    new.commit(4)
    assert rows(connection, "SELECT word, letters, known FROM words WHERE word IN ('egg', 'dog')")
    assert_exact(connection)
    [lacking, *_] = lacking_values(connection, "words")
    assert (lacking.counts_from, lacking.fillable) == (4, (1, 2, 3))
    new.replay(2)
    assert_exact(connection)
    assert lacking_values(connection, "words")[0].fillable == (1, 3)
    new.replay(1, 3)
    assert_exact(connection)
    assert lacking_values(connection, "words") == []
    told = explain(connection, "words", "words", {"word": "man"})
    assert [one.values["known"] for one in told.contributions] == [2, 1, 1]
    twin = Library(connection, replace(words(values), table="twin"), name="twin")
    twin.commit(1, 2, 3, 4)
    assert new.table() == twin.table("twin")
    roll_back(connection, "words", 2, "as it was")
    assert_exact(connection)


def test_what_is_compacted_cannot_be_filled_in_and_holds(connection):
    """C11, H2: the answer says which txids a value will never contain."""
    old = Library(connection, words(OLD, keep=History(txids=1)))
    old.commit(1, 2, 3)
    compact(connection, "words")
    new, done = altered(connection, old, words(SUMS, keep=History(txids=1)))
    assert (done.fillable, done.unfillable) == ((3,), (1, 2))
    new.replay(3)
    new.commit(4)
    assert_exact(connection)
    compact(connection, "words")
    assert_exact(connection)
    known = {"apple": 0, "cat": 3, "dog": 1, "egg": 1, "man": 1}
    assert dict(rows(connection, "SELECT word, known FROM words")) == known
    with pytest.raises(RollbackNotPossible):
        roll_back(connection, "words", 1, "too far")


def test_what_was_rolled_back_counts_when_it_commits_again(connection):
    """C11, H4: a rollback behind the alteration leaves no trace of it but the column."""
    old = Library(connection, words(OLD))
    old.commit(1, 2)
    new, _ = altered(connection, old, words(SUMS))
    new.commit(3)
    roll_back(connection, "words", 1, "again")
    assert_exact(connection)
    assert lacking_values(connection, "words")[0].fillable == (1,)


@pytest.mark.parametrize(
    ("kind", "fillable", "unfillable", "expected"),
    [
        (OpaqueState, (2,), (1,), [("apple", 1, 5, 1), ("dog", 2, 3, 1), ("man", 3, 3, 1)]),
        (
            TransactionalState,
            (),
            (1, 2),
            [("apple", 1, None, 0), ("cat", 2, 6, 2), ("dog", 3, 3, 1), ("man", 3, None, 0)],
        ),
    ],
)
def test_a_state_without_history_counts_the_new_value_from_its_last_txid_or_the_next(
    connection, kind, fillable, unfillable, expected
):
    """C11, H5: the answer says what can be replayed; a value from before that is 0, not unknown."""
    old = Library(connection, words(OLD, kind))
    old.commit(1, 2)
    new, done = altered(connection, old, words(SUMS, kind))
    assert (done.fillable, done.unfillable) == (fillable, unfillable)
    if fillable:
        new.replay(2)
    else:
        new.commit(3)
    assert rows(connection, "SELECT word, times, letters, known FROM words ORDER BY 1") == expected


# --- a value less, a wider type ------------------------------------------------------------------


def test_a_value_that_is_removed_leaves_the_history_of_the_others(connection):
    """C11: its columns go from both tables; what is lost is named before."""
    old = Library(connection, words(NEW))
    old.commit(1, 2, 3)
    execute(connection, "CREATE INDEX by_letters ON public.words (letters)")
    planned = plan_alteration(connection, replace(old.topology, states=[words(OLD)], process=None))
    assert "value letters, which 4 rows have" in planned.states[0].goes
    assert "index public.by_letters" in planned.states[0].goes
    new, _ = altered(connection, old, words(OLD))
    assert_exact(connection)
    new.replay(1, 2, 3)
    new.commit(4)
    assert_exact(connection)
    assert [name for (name,) in rows(connection, COLUMNS)] == ["_rows", "_txid", "times", "word"]


DIGESTS = (
    "SELECT count(*) || ':' || sum(hashtextextended(ROW(word, letters, _letters_count, times, more,"
    " _rows)::text, 0)) FROM reliability_contribution.words__words WHERE _txid = 1"
)


def test_a_replay_counts_the_appended_rows_that_get_a_dropped_value_back(connection):
    """H10, C11: both attempts staged the same, so the replay filled in values and said nothing."""
    key, one = {"word": "text"}, {"length": Append("length")}
    both = State("words", key=key, values={**one, "again": Append("length", "integer")})
    library = Library(connection, both)
    library.commit(1, 2)
    library, _ = altered(connection, library, State("words", key=key, values=one))
    library, _ = altered(connection, library, both)
    library.replay(1, 2)
    changed = "SELECT rows_added, rows_removed, by_hand FROM reliability.difference"
    assert rows(connection, changed) == [(3, 3, None)] * 2
    assert rows(connection, "SELECT count(*) FROM words WHERE again = length") == [(6,)]
    library.replay(1)
    assert rows(connection, changed)[2:] == [(0, 0, None)]


def test_a_type_widens_and_each_stored_row_keeps_its_text(connection):
    """C11: digests of contributions are made of texts, so 1.10 may not become 1.1000."""

    def values(letters, more):
        return {"letters": Sum("length", letters), **OLD, "more": Sum("length", more)}

    old = Library(connection, words(values("numeric(6,2)", "bigint")))
    old.commit(1, 2)
    before = rows(connection, DIGESTS)
    execute(connection, "ALTER TABLE public.words ADD CONSTRAINT few CHECK (letters < 1000)")
    execute(connection, "CREATE INDEX by_letters ON public.words (letters)")
    for txid, letters in ((3, "numeric(9,2)"), (4, "numeric")):
        old, _ = altered(connection, old, words(values(letters, "numeric")))
        assert rows(connection, DIGESTS) == before
        old.commit(txid)
        assert_exact(connection)
    assert rows(connection, "SELECT to_regclass('by_letters') IS NOT NULL") == [(True,)]
    with pytest.raises(Exception, match="few"):
        execute(connection, "UPDATE public.words SET letters = 1000")


NARROW, WIDE = ({**OLD, "letters": Sum("length", type_)} for type_ in ("bigint", "numeric"))


def test_what_uses_a_column_that_changes_is_named_and_others_go_on(connection):
    """C11: what is somebody's own is not dropped, and nothing is fenced for a refusal."""
    old = Library(connection, words(NARROW))
    old.commit(1)
    old.process(2)
    twice = "COLUMN twice bigint GENERATED ALWAYS AS (letters * 2) STORED"
    execute(connection, f"ALTER TABLE public.words ADD {twice}")
    with pytest.raises(AlterNotPossible, match=r"column twice .*uses its column letters"):
        altered(connection, old, words(WIDE))
    planned = plan_alteration(connection, replace(old.topology, states=[words(OLD)], process=None))
    [state] = planned.states
    assert "twice" in f"{state.refusal} {state.goes}"
    execute(connection, "ALTER TABLE public.words DROP COLUMN twice, ADD known text")
    with pytest.raises(AlterNotPossible, match="has a column known of somebody's own; rename"):
        altered(connection, old, words({**NARROW, "known": Count("word")}))
    execute(connection, "ALTER TABLE public.words DROP COLUMN known")
    execute(connection, "CREATE VIEW public.mine AS SELECT word, letters FROM public.words")
    for values in (WIDE, OLD):
        with pytest.raises(AlterNotPossible, match=r"view public\.mine uses its column letters"):
            altered(connection, old, words(values))
    assert old.statuses() == ["1:0 COMMITTED", "2:0 PROCESSED"]
    altered(connection, old, words({**NARROW, "known": Count("word")}))
    assert rows(connection, "SELECT count(*) FROM public.mine") == [(2,)]


# --- what is refused -----------------------------------------------------------------------------


def test_what_no_alter_table_can_do_is_refused_with_the_way(connection):
    """C11: a row would hold two meanings; a state beside it holds one, in a table of its own."""
    old = Library(connection, words(OLD))
    old.commit(1)
    with pytest.raises(AlterNotPossible, match="aggregated in another way") as refused:
        altered(connection, old, words({"times": Count("word")}))
    assert "`reliability replay words TXIDS` fills it" in str(refused.value)
    renamed = State("tally", key={"word": "text"}, values=OLD, table="words")
    with pytest.raises(AlterNotPossible, match="belongs to state words"):
        altered(connection, old, renamed)
    assert rows(connection, "SELECT count(*) FROM words") == [(2,)]


def test_states_of_another_database_are_refused(new_world):
    """C11: an attempt could be sealed for the old shape here and the new shape there."""
    world = new_world(databases=2)
    world.work("A", 1, "process")
    world.work("A", 1, "commit")
    changed = world.with_another_value(BEST)
    with pytest.raises(AlterNotPossible, match="only states in the ledger's database"):
        alter(world.connection, changed, WHY)


# --- states that come and go ---------------------------------------------------------------------


def test_a_state_beside_the_old_one_is_filled_by_replays_and_the_old_one_goes(connection):
    """C11: the way for whatever no ALTER TABLE can do."""
    lengths = State("lengths", key={"length": "bigint"}, values={"n": Count()})
    old = Library(connection, words(OLD))
    old.commit(1, 2, 3)
    both, done = altered(connection, old, words(OLD), lengths)
    assert done.fillable == (1, 2, 3)
    assert [v.is_exact for v in verify(connection, "words")] == [True, True]
    both.commit(4)
    both.replay(1, 2, 3)
    assert rows(connection, "SELECT length, n FROM lengths ORDER BY 1") == [(3, 11), (5, 1)]
    say("verify", "words")
    verified = verify(connection, "words")
    one, done = altered(connection, both, lengths)
    assert done.states[0].goes == ("table public.words with 5 rows, and all its contributions",)
    assert rows(connection, "SELECT to_regclass('words')") == [(None,)]
    for _ in range(2):
        assert rows(connection, "SELECT state FROM reliability.verified") == [("lengths",)]
        record_verified(connection, "words", verified)  # by one that was at work meanwhile
    one.replay(4)
    roll_back(connection, "words", 1, "as it was")
    assert rows(connection, "SELECT length, n FROM lengths ORDER BY 1") == [(3, 3)]
    assert [v.is_exact for v in verify(connection, "words")] == [True]
    drop_topology(connection, "words")
    assert rows(connection, "SELECT count(*) FROM reliability.alteration") == [(0,)]


# --- what is live, and other versions of the code ------------------------------------------------


def test_live_attempts_are_fenced_and_their_tasks_begin_again_with_the_new_code(
    connection, monkeypatch
):
    """C11: what they have staged has the old shape; requests stay open.

    Rows of older code would lack the value, and the accounts would balance.
    """
    old = Library(connection, words(OLD))
    old.commit(1)
    old.process(2)
    with monkeypatch.context() as patch:  # nothing is altered under an attempt that began since
        patch.setattr(altering, "_fence", lambda databases: 0)
        with pytest.raises(LedgerBusy, match="went on beginning"):
            altered(connection, old, words(SUMS))
    assert old.statuses() == ["1:0 COMMITTED", "2:0 PROCESSED"]
    zombie = old.pipeline.begin(3)
    new, done = altered(connection, old, words(SUMS))
    assert done.fenced == 2
    assert old.statuses() == ["1:0 COMMITTED", "2:0 FENCED", "3:0 FENCED"]
    with pytest.raises(AttemptFenced):
        old.pipeline.run_step(zombie)

    for call in (lambda: old.pipeline.begin(2), lambda: old.run(1)):
        with pytest.raises(
            StateDefinitionChanged, match=r"code is older .* state words"
        ) as refused:
            call()
        assert WHY in str(refused.value)
    with pytest.raises(StateDefinitionChanged) as newer:
        Library(connection, words({**SUMS, "more": Count()}))
    assert "older" not in str(newer.value)
    assert "`reliability alter words`" in str(newer.value)
    grant = new.pipeline.begin(2)
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(applicationId="application", uiWebUrl=None)
    )
    monkeypatch.setattr(driver, "process_id", lambda _: 1)
    with pytest.raises(StateDefinitionChanged, match="code is older"):
        driver.process_with(spark, connection, old.topology, grant, THE_STEP)

    new.commit(2, 3)
    assert "3:1 COMMITTED" in new.statuses()
    assert_exact(connection)


def test_what_is_decided_meanwhile_is_not_fenced_elsewhere(connection, east, monkeypatch):
    """C6, C11: its commit could not be carried out there, and only a rollback helped."""

    def kinds(elsewhere):
        here = State("here", key={"k": "bigint"}, values={"n": Count()})
        return [here, replace(here, name="there", database=elsewhere)]

    shop = Shop(connection, elsewhere="east", kinds=kinds)
    shop.commit(made(1))
    shop.deliver(made(2))
    here, there = shop.topology.states
    more = replace(here, values={**here.values, "more": Count("k")})

    def decided_meanwhile(session, topology):
        if session.database:
            with doomed(after=DECIDED):
                skip(LedgerConnection(connection.dsn), "shop", 2, "broken")
        return holding_at_rest(session, topology)

    with monkeypatch.context() as patch:
        patch.setattr(altering, "holding_at_rest", decided_meanwhile)
        with pytest.raises(LedgerBusy, match="call it again"):
            alter(connection, replace(shop.topology, states=[more, there]), "more")
    drain(connection, "shop")
    assert rows(east, "SELECT status FROM reliability.attempt WHERE txid = 2") == [("COMMITTED",)]


def test_before_the_first_commit_nothing_is_to_be_altered(connection):
    """C11: until then the states change freely (C10)."""
    old = Library(connection, words(OLD))
    old.process(1)
    _, done = altered(connection, old, words(SUMS))
    assert done.is_free
    assert old.statuses() == ["1:0 PROCESSED"]


def test_before_the_first_commit_a_table_that_cannot_be_made_again_is_told(
    connection, add_database
):
    """C10: `alter` called it free, and the next task was refused."""
    east = add_database("east")
    old = Library(connection, words(OLD), State("far", values={"n": Count()}, database="east"))
    execute(east, "CREATE VIEW public.reader AS SELECT n FROM public.far")
    execute(connection, "CREATE TABLE public.near (n bigint)")
    far = State("far", values={"most": Max("length", "bigint")}, database="east")
    with pytest.raises(AlterNotPossible, match=r"near exists and .*far: .* view public\.reader"):
        altered(connection, old, words(OLD), State("near", values={"n": Count()}), far)


def test_databases_may_be_sorted_as_the_ledgers_server_sorts(connection, add_database):
    """C4: a batch was refused as other code's where Python sorts the names otherwise."""
    by_language = 'ALTER TABLE reliability.participant ALTER database TYPE text COLLATE "und-x-icu"'
    execute(connection, by_language)
    others = ["Zone", "east"]  # as Python sorts them
    for name in others:
        add_database(name)
    library = Library(connection, *(State(n, values={"n": Count()}, database=n) for n in others))
    library.process(1)
    assert library.statuses() == ["1:0 PROCESSED"]


def test_an_alteration_waits_for_who_verifies(connection):
    """A3, H10: both lock the contributions first; otherwise they would wait for each other."""
    old = Library(connection, words(OLD))
    old.commit(1)
    code = replace(old.topology, states=[words(SUMS)], process=None)

    with ThreadPoolExecutor() as pool, LedgerConnection(connection.dsn, "who alters") as own:
        with LedgerConnection(connection.dsn).transaction(reads_only=True) as tx:
            [tables] = declared_tables(tx, "words")
            tx.run(tables.hold_contributions())
            change = pool.submit(alter, own, code, WHY)
            wait_until_it_waits(connection, "who alters")
            assert count_rows(tx, tables) > 0
        change.result(timeout=30)
    assert_exact(connection)
    assert lacking_values(connection, "words")


# --- the command line ----------------------------------------------------------------------------


def call(connection, monkeypatch, topology, *arguments, code=0):
    """Call `reliability alter` with this topology as the code, and return what it printed."""
    monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)
    monkeypatch.setattr(f"{__name__}.topology", topology, raising=False)
    return say("alter", "words", "--module", __name__, *arguments, code=code).output


def test_the_command_shows_first_and_changes_with_yes(connection, monkeypatch):
    """C11: without --yes nothing changes; a refusal is an error, and its reason is printed."""
    old = Library(connection, words(OLD))
    old.commit(1, 2)
    old.process(3)
    code = replace(old.topology, states=[words(SUMS, keep=History(txids=9))], process=None)
    shown = call(connection, monkeypatch, code)
    for said in (
        "value letters is added: Sum(column='length', type='bigint')",
        'ALTER TABLE "public"."words" ADD COLUMN "letters" bigint',
        "counts from txid 3; `reliability replay words 1..2` fills it in",
        "keep: for ever becomes History(txids=9, days=None)",
        "1 live attempt would be fenced",
    ):
        assert said in shown
    assert plan_alteration(connection, code).fenced == 1
    call(connection, monkeypatch, code, "--yes", code=2)
    told = json.loads(call(connection, monkeypatch, code, "--yes", "--reason", WHY, "--json"))
    assert (told["is_dry_run"], told["fenced"], told["fillable"]) == (False, 1, "1..2")
    assert "as the code defines them" in call(connection, monkeypatch, code)
    [shop] = read("topologies", "words")
    assert shop["alterations"][0]["reason"] == by_me(WHY)
    lacking = {one["value"]: one["fillable"] for one in shop["lacking"]}
    assert lacking == {"letters": "1..2", "known": "1..2"}
    assert "`reliability replay words 1..2` fills it in" in say("topologies", "words").output
    assert read("show", "words/1")["lacking"] == ["words.known", "words.letters"]
    code = replace(old.topology, states=[words(OLD, OpaqueState)], process=None)
    for yes in ((), ("--yes", "--reason", WHY)):
        said = call(connection, monkeypatch, code, *yes, code=1)
        assert "not possible: its kind, table, database or key differs" in said
        assert "ALTER_NOT_POSSIBLE" in said


# --- a deployment --------------------------------------------------------------------------------


@pytest.fixture
def deployed(connection, monkeypatch):
    """Return what puts a topology's code where the command line finds it."""
    Library(connection, words(OLD)).commit(1)

    def deploy(values):
        code = Library.__new__(Library)
        code.connection = connection
        code.topology = Topology(
            "words",
            spout=MemorySpout({"word": "string"}, [TEXT.split()], take=3),
            states=[words(values)],
            process=code.with_lengths,
        )
        monkeypatch.setattr(
            "reliability.cli.alter.topology_from_code", lambda *arguments: code.topology
        )

    return deploy


def test_a_deployment_makes_what_loses_nothing_and_leaves_the_rest_to_a_person(
    connection, deployed
):
    """C11: `plan` says on the pull request what `alter --auto` does, and what the ledger lacks."""
    deployed(OLD)
    assert "as the code defines them" in say("plan", "words").stdout
    assert "is new" in say("plan", "other").stdout
    deployed(SUMS)
    assert "counts from txid 2" in say("plan", "words", code=3).stdout
    assert ("letters",) not in rows(connection, COLUMNS)
    assert "is altered" in say("alter", "words", "--auto").stdout
    assert read("plan", "words")["migrations"] == []
    deployed(OLD)
    assert "lost: value" in say("alter", "words", "--auto", code=3).stdout
    assert ("letters",) in rows(connection, COLUMNS)
    say("alter", "words", "--auto", "--dry-run", code=2)
    [(number,)] = rows(connection, "SELECT max(number) FROM reliability.migration")
    execute(connection, "DELETE FROM reliability.migration WHERE number = %(last)s", last=number)
    assert f"lacks migration {number:04d}" in say("plan", "words", code=3).stdout
