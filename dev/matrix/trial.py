"""What is tried in a combination: DAGs are read, a batch, its replay, and a batch with a kill."""

from __future__ import annotations

import datetime
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Literal

import httpx
from psycopg2.sql import SQL, Identifier

from dev.demo.backfill import Backfill, is_known
from dev.demo.faults import kill_one
from dev.errors import DevError
from dev.matrix.environments import Combination, folder_of, postgres
from dev.services.environment import Environment
from dev.services.postgres_binaries import reachable
from dev.services.processes import wait_until
from reliability.core.errors import ReliabilityError
from reliability.core.names import DISTRIBUTION
from reliability.ledger.connection import LedgerConnection

NAME = "shop_revenue"
DAYS = [datetime.date(2026, 1, day) for day in (1, 2)]
PATIENCE_SECONDS = 600
#: a kill needs a driver that is not done at once
ROWS = 200_000
CUSTOMERS = 1000
PRICE = Decimal("1.10")
TOTALS = SQL(
    "SELECT count(*) AS rows, sum(orders)::bigint AS orders, sum(revenue) AS revenue FROM {table}"
)
ATTEMPTS = SQL(
    "SELECT count(*) AS attempts, count(*) FILTER (WHERE status = 'COMMITTED') AS committed "
    "FROM reliability.attempt WHERE topology = 'shop_revenue' AND txid = %(txid)s"
)


class Trial:
    """The trial of one combination, in an environment of its own."""

    def __init__(self, combination: Combination, say: Callable[[str], None]) -> None:
        self.say = say
        self.folder = folder_of(combination)
        self.environment = Environment(self.folder, self.folder / "state", throwaway=True)
        self.environment.destroy()
        server = self.environment.postgres
        server.home.mkdir(parents=True, exist_ok=True)
        server.binaries = reachable(postgres(combination.postgres), server.home, server.account)
        archive = self.environment.spark.archive  # takes minutes, and saves seconds of each driver
        archive.parent.mkdir(exist_ok=True)
        archive.touch()
        self.environment.enter()
        self.connection = LedgerConnection("service=reliability", application_name="matrix")

    def run(self) -> Iterator[tuple[str, bool | str]]:
        """Yield each step's name and what came of it: True, or what is wrong."""
        steps = {
            "parse": self.parse,
            "batch": self.batch,
            "page": self.page,
            "replay": self.replay,
            "kill": self.kill,
        }
        try:
            self._write_orders()
            self.environment.up(self.say)
            for name, step in steps.items():
                started = time.monotonic()
                step()
                self.say(f"{name}: yes ({time.monotonic() - started:.0f} s)")
                yield name, True
        except (DevError, ReliabilityError, OSError, AssertionError) as error:
            self.say(f"no: {error}")
            yield "failure", " ".join(f"{type(error).__name__}: {error}".split())[:300]
        finally:
            self.connection.close()
            self.environment.down()

    # --- the steps -------------------------------------------------------------------------------

    def parse(self) -> None:
        api = self.environment.api()
        wait_until(lambda: is_known(api, NAME), "Airflow to read the DAG", 240)
        wait_until(lambda: is_known(api, "reliability_housekeeping"), "its housekeeping", 60)
        wrong = api.get("/api/v2/importErrors")["import_errors"]
        assert not wrong, wrong[0]["stack_trace"][-300:]
        told = self._airflow("providers", "list", "--output", "json")
        assert DISTRIBUTION in {row["package_name"] for row in json.loads(told)}, told

    def batch(self) -> None:
        self._backfill(DAYS[0])
        self._check(days=1, txid=1, attempts=1)

    def replay(self) -> None:
        self._backfill(DAYS[0], reprocess="completed")
        self._check(days=1, txid=1, attempts=2)

    def kill(self) -> None:
        killed = self._backfill(DAYS[1], kills=True)
        assert killed is not None, "no driver was seen that could be killed"
        self._check(days=2, txid=2, attempts=2)

    def page(self) -> None:
        login = {"Authorization": f"Bearer {self.environment.api().token()}"}
        for part in ("", f"dags/{NAME}", f"dags/{NAME}/txids/1"):
            address = f"{self.environment.airflow.url}/reliability/{part}"
            answer = httpx.get(address, headers=login, trust_env=False, timeout=60)
            assert answer.status_code == 200, f"/{part} of the page answers {answer.status_code}"
            assert 'id="root"' not in answer.text, "Airflow's own page is there instead"
            refused = httpx.get(address, trust_env=False, timeout=60).status_code
            assert refused == 401, f"without a login /{part} of the page answers {refused}"

    # --- how -------------------------------------------------------------------------------------

    def _write_orders(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        for day in DAYS:
            rows = {
                "customer": [f"customer {n % CUSTOMERS}" for n in range(ROWS)],
                "day": [day] * ROWS,
                "price": [PRICE] * ROWS,
            }
            folder = self.folder / "data" / "shop" / f"{day}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(rows), folder / "orders.parquet")

    def _backfill(
        self,
        day: datetime.date,
        *,
        reprocess: Literal["none", "completed"] = "none",
        kills: bool = False,
    ) -> object:
        api, at = self.environment.api(), f"{day}T00:00:00Z"
        backfill = Backfill(
            dag_id=NAME, first=at, last=at, txids=1, what=f"{day}", reprocess=reprocess
        )
        backfill.start(api)
        killed = None
        looks, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if kills and killed is None:
                killed = kill_one("driver", self.environment, self.connection, 2, NAME)
                if killed is not None:
                    self.say(str(killed))
            looks += 1
            if looks % 10 == 0 and backfill.has_succeeded(api):
                return killed
            time.sleep(0.2)
        raise DevError(f"the run of {day} is not done after {PATIENCE_SECONDS} s")

    def _check(self, *, days: int, txid: int, attempts: int) -> None:
        expected = {
            "revenue_by_customer": (CUSTOMERS, days * ROWS, days * ROWS * PRICE),
            "revenue_by_day": (days, days * ROWS, days * ROWS * PRICE),
        }
        with self.connection.transaction() as tx:
            for table, wanted in expected.items():
                found = tx.one(TOTALS.format(table=Identifier("public", table)))
                assert tuple(found.values()) == wanted, f"{table}: {dict(found)}, not {wanted}"
            made = tx.one(ATTEMPTS, txid=txid)
        assert made["attempts"] >= attempts, f"txid {txid} has {made['attempts']} attempts"

    def _airflow(self, *arguments: str) -> str:
        program = str(self.folder / ".venv" / "bin" / "airflow")
        environment = self.environment.airflow.env()
        done = subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        with suppress(ValueError):
            return done.stdout[done.stdout.index("[") :]
        raise DevError(f"airflow {arguments[0]}: {done.stderr[-300:]}")
