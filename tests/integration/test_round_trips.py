"""How many round trips a small txid takes: over a network, they are most of its time."""

from __future__ import annotations

import traceback

import pytest
from psycopg2.sql import Composed

from benchmarks import topologies
from benchmarks.data import write_file
from benchmarks.ledger_growth import columns_of
from benchmarks.project.staging import DirectStaging
from benchmarks.project.transactions import Transactions
from reliability.ledger.connection import DatabaseTransaction, LedgerConnection
from reliability.transaction.commit.committer import drain
from reliability.transaction.emit.emission import emit
from tests.support.doomed import doomed
from tests.support.fix_postgres import execute

TXIDS = 3


@pytest.fixture
def counted(connection, tmp_path, monkeypatch):
    """A topology with a few small files, and the count of all round trips from here on."""
    monkeypatch.setenv("RELIABILITY_HOME", str(tmp_path))
    for number in range(TXIDS):
        write_file(tmp_path / f"txids/{number}.parquet", columns_of([1, 2]))
    with doomed() as fate, LedgerConnection(connection.dsn) as session:
        transactions = Transactions(session, topologies.txids, DirectStaging())
        emit(session, topologies.txids, None, transactions._contact("emit"), max_batches=TXIDS)
        yield transactions, fate


def test_begin_seal_and_a_lone_commit_take_few_round_trips(counted, monkeypatch):
    transactions, fate = counted
    submitted = []

    def submit(grant, step):
        submitted.append(fate.round_trips)
        DirectStaging()(transactions.connection, transactions.topology, grant, step)
        submitted.append(fate.round_trips)

    monkeypatch.setattr(transactions, "submit", submit)
    transactions.process(1)  # until the first commit, the definitions of the states may change
    drain(transactions.connection, "txids")
    for txid in range(2, TXIDS + 1):
        submitted.clear()
        before = fate.round_trips
        transactions.process(txid)
        sealed = fate.round_trips
        drain(transactions.connection, "txids")
        begun, staged = submitted
        assert {"begin": begun - before, "seal": sealed - staged} == {"begin": 7, "seal": 8}
        assert fate.round_trips - sealed == 4


def test_a_reader_follows_eight_calls_from_a_task_to_the_insert_of_its_commit(counted, monkeypatch):
    """The operator's `execute` calls `run_transaction`; eight functions later stands the INSERT."""
    transactions, _ = counted
    transactions.process(1)
    stacks = []
    queue = DatabaseTransaction.queue

    def noted(self, statement, **parameters):
        if isinstance(statement, Composed):
            stacks.append([(f.filename, f.name) for f in traceback.extract_stack()[:-1]])
        queue(self, statement, **parameters)

    monkeypatch.setattr(DatabaseTransaction, "queue", noted)
    transactions._go(1, topologies.txids.work("commit", None))
    [stack] = stacks
    names = [name for _, name in stack]
    own = stack[names.index("run_transaction") :]
    assert len(own) <= 8, own
    assert len({file for file, _ in own}) <= 7, own


def test_more_commits_one_by_one_share_what_is_read_once(counted, connection):
    transactions, fate = counted
    execute(connection, "UPDATE reliability.topology SET groups_commits = false")
    for txid in range(1, TXIDS + 1):
        transactions.process(txid)
    before = fate.round_trips
    assert len(drain(transactions.connection, "txids")) == TXIDS
    assert fate.round_trips - before == 1 + 3 * TXIDS
