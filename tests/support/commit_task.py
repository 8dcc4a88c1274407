"""The operator of a txid with what it needs of Airflow, and no Spark."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from reliability.core.errors import AttemptIncomplete
from tests.replay.shop import Shop, made


def shop_with_two_txids(connection, monkeypatch) -> Shop:
    """Return a topology in this process's ledger, with two txids emitted."""
    monkeypatch.setenv("RELIABILITY_DSN", connection.dsn)
    shop = Shop(connection)
    shop.deliver(made(1), made(2))
    return shop


class CommitTask:
    """The task that commits a txid, outside Airflow; its spark-submit is this process, or fails."""

    def __init__(self, shop, monkeypatch) -> None:
        from reliability_airflow.operators import TransactionOperator

        self.shop, self.fails = shop, False
        self.context: Any = None
        monkeypatch.setattr(TransactionOperator, "check_engine", lambda _: None)
        monkeypatch.setattr(TransactionOperator, "submit", self._submit)

    def _submit(self, context, connection, grant, step):
        if self.fails:
            raise AttemptIncomplete("the driver ended")
        self.shop.write(grant)

    def run(self, txid, max_tries=2, dry_run=False):
        from reliability_airflow.operators import TransactionOperator

        task = TransactionOperator(
            task_id="commit", topology=self.shop.topology, txid=txid, step=None, retries=2
        )
        run = self.shop.run_of(txid)
        self.context = context(task, run, max_tries, dry_run)
        task.execute(self.context)


def context(task, run, max_tries, dry_run):
    dag_run = SimpleNamespace(
        dag_id=run.dag_id,
        run_id=run.run_id,
        conf={"dry_run": dry_run},
        clear_number=0,
        start_date=None,
    )
    ti = SimpleNamespace(
        dag_id=run.dag_id,
        run_id=run.run_id,
        task_id="commit",
        max_tries=max_tries,
        try_number=1,
        id=str(max_tries),
        task=task,
    )
    return {"dag_run": dag_run, "ti": ti, "params": {}, "outlet_events": OutletEvents()}


class OutletEvents:
    """What a task tells of assets through an alias, as Airflow takes it: `told`, by name."""

    def __init__(self) -> None:
        self.told: dict[str, list[Any]] = {}

    def __getitem__(self, alias: Any) -> OutletEvents:
        assert alias.name == "reliability/shop"
        return self

    def add(self, asset: Any, extra: Any) -> None:
        self.told.setdefault(asset.name, []).append(json.loads(json.dumps(extra)))
