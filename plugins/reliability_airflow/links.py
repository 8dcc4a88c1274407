"""The links of a task instance in Airflow's UI: its transaction, Spark's UI, what blocks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from reliability_airflow.page.addresses import run_path, transaction_path

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


class _Link(BaseOperatorLink):
    """A link of a task that works on a txid."""

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return its address; empty if there is nothing to show."""
        txid = str(getattr(operator, "txid", ""))
        topology = getattr(operator, "topology", None)
        if topology is None or not txid.isdigit():
            return ""  # the task has ended before its txid was known
        place = self.place(operator, transaction_path(topology.name, int(txid)))
        return f"{_airflow()}{place}" if place else ""

    def place(self, operator: Any, transaction: str) -> str:
        """Return where it is, below Airflow's address.

        :param transaction: where the page shows the transaction
        """
        raise NotImplementedError


class TransactionLink(_Link):
    """The transaction that the task works on, with its attempts."""

    name = "Transaction"

    def place(self, operator: Any, transaction: str) -> str:
        """Return the page of the transaction."""
        return transaction


class SparkLink(_Link):
    """Spark's UI of the newest attempt, while that runs or by the history server."""

    name = "Spark UI"

    def place(self, operator: Any, transaction: str) -> str:
        """Return where the page looks for it."""
        return f"{transaction}/spark"


class BlockingRunLink(_Link):
    """The run of the older txid that the task waits for, if nothing works on that one."""

    name = "Blocking run"

    def place(self, operator: Any, transaction: str) -> str:
        """Return the run in Airflow; empty if nothing blocks the task."""
        run = getattr(operator, "blocking_run", None)
        return run_path(*run) if run else ""


LINKS = (TransactionLink(), SparkLink(), BlockingRunLink())


def _airflow() -> str:
    from airflow.configuration import conf

    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
