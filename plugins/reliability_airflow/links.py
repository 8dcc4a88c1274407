"""The links of a task instance in Airflow's UI: its transaction, Spark's UI, what blocks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

#: where the page is, below Airflow's own address
PREFIX = "/reliability"


def transaction_path(topology: str, txid: int) -> str:
    """Return where the page shows a transaction, below Airflow's address."""
    return f"{PREFIX}/dags/{quote(topology, safe='')}/txids/{txid}"


def run_path(dag_id: str, run_id: str) -> str:
    """Return where Airflow shows a run, below its address."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


class TransactionLink(BaseOperatorLink):
    """The transaction that the task works on."""

    name = "Transaction"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return its address; empty before the txid is known."""
        txid = str(getattr(operator, "txid", ""))
        topology = getattr(operator, "topology", None)
        if topology is None or not txid.isdigit():
            return ""
        return f"{_airflow()}{transaction_path(topology.name, int(txid))}"


class BlockingRunLink(BaseOperatorLink):
    """The run of the txid that this one waits for, if no run works on that one."""

    name = "Blocking run"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return its address; empty if nothing blocks the task."""
        found = getattr(operator, "blocking_run", None)
        return f"{_airflow()}{run_path(*found)}" if found else ""


class SparkLink(BaseOperatorLink):
    """The UI of the Spark application that the task has started, while that runs."""

    name = "Spark UI"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return its address; empty if the task has started none, or it has no UI."""
        return str(getattr(operator, "spark_ui", "") or "")


LINKS = [TransactionLink(), BlockingRunLink(), SparkLink()]


def query(**parameters: object) -> str:
    """Return the query of an address without its empty parameters."""
    return urlencode({name: value for name, value in parameters.items() if value not in (None, "")})


def _airflow() -> str:
    from airflow.configuration import conf

    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
