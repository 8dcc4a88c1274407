"""The links of a task instance in Airflow's UI: its transaction, Spark's UI, what blocks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from reliability_airflow.page.addresses import run_path, transaction_path

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


class TransactionLink(BaseOperatorLink):
    """The transaction that the task works on, with its attempts."""

    name = "Transaction"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return its address; empty if there is nothing to show."""
        from airflow.configuration import conf

        txid = str(getattr(operator, "txid", ""))
        topology = getattr(operator, "topology", None)
        if topology is None or not txid.isdigit():
            return ""  # the task has ended before its txid was known
        place = self.place(operator, transaction_path(topology.name, int(txid)))
        airflow = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
        return f"{airflow}{place}" if place else ""

    def place(self, operator: Any, transaction: str) -> str:
        """Return where it is, below Airflow's address.

        :param transaction: where the page shows the transaction
        """
        return transaction


class SparkLink(TransactionLink):
    """Spark's UI of the newest attempt, while that runs or by the history server."""

    name = "Spark UI"

    def place(self, operator: Any, transaction: str) -> str:
        return f"{transaction}/spark"


class BlockingRunLink(TransactionLink):
    """The run of the older txid that the task waits for, if nothing works on that one."""

    name = "Blocking run"

    def place(self, operator: Any, transaction: str) -> str:
        run = getattr(operator, "blocking_run", None)
        return run_path(*run) if run else ""


LINKS = (TransactionLink(), SparkLink(), BlockingRunLink())
