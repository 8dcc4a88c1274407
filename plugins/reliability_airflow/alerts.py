"""The task that tells people what they should hear of: docs/monitoring.md."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from reliability.core.errors import InvalidDefinition, ReliabilityError, TopologyUnknown
from reliability_airflow.waiting import WaitingOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from reliability.core.alert import Alert
    from reliability.ledger.connection import LedgerConnection

logger = logging.getLogger(__name__)
Channel = BaseNotifier | Callable[["Alert"], object]


class AlertOperator(WaitingOperator):
    """Look at every topology, and tell the channels what begins and what is over.

    :param channels: notifiers, whose templates and `context` have `alert`; or functions of an Alert
    :param lag_over: how long an interval may lack a commit; None for any time
    """

    def __init__(
        self, *, channels: Sequence[Channel], lag_over: timedelta | None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        for channel in channels:
            if not callable(channel):
                raise InvalidDefinition(
                    f"alerts: {channel!r} is neither a notifier nor a function",
                    remedy="give instances of airflow.sdk.BaseNotifier, or functions of an Alert.",
                )
        self.channels = channels
        self.lag_over = lag_over

    def execute(self, context: Context) -> None:
        """Record what is so; then tell. A channel that fails is tried again by the next run.

        :raises ReliabilityError: one topology could not be looked at; the others were
        """
        from reliability.transaction.inspect.alerts import channel_names, record_conditions, tell

        names = channel_names([_name_of(channel) for channel in self.channels])
        tellers = (partial(_tell, channel, context) for channel in self.channels)
        channels = dict(zip(names, tellers, strict=True))
        with self.ledger("alerts", briefly=True) as connection:
            look = partial(record_conditions, connection, lag_over=self.lag_over)
            failed = _of_each(connection, look)
            tell(connection, channels)
            if failed is not None:
                raise failed


class VerifyOperator(WaitingOperator):
    """Compare the tables of every topology with their contributions, and record the result."""

    def execute(self, context: Context) -> None:
        """Verify one topology after the other.

        :raises ReliabilityError: one could not be verified, such as in a database that is away; the
            others were
        """
        from reliability.transaction.inspect.verify import record_verified, verify

        with self.ledger("verify", briefly=True) as connection:

            def verify_one(topology: str) -> None:
                record_verified(connection, topology, verify(connection, topology))

            if (failed := _of_each(connection, verify_one)) is not None:
                raise failed


def _of_each(connection: LedgerConnection, act: Callable[[str], None]) -> ReliabilityError | None:
    """Act on every topology; return the last error."""
    from reliability.ledger.locks import unless_dropped
    from reliability.transaction.maintain.sweep import topologies

    failed = None
    for topology in topologies(connection):
        try:
            with suppress(TopologyUnknown), unless_dropped(connection, topology):
                act(topology)
        except ReliabilityError as error:
            logger.warning("%s: %s", topology, error)
            failed = error
    return failed


def _name_of(channel: Channel) -> str:
    named = type(channel) if isinstance(channel, BaseNotifier) else channel
    return getattr(named, "__qualname__", type(channel).__qualname__)


def _tell(channel: Channel, context: Context, alert: Alert) -> None:
    if not isinstance(channel, BaseNotifier):
        channel(alert)
        return
    # Rendering replaces the templates for good, and calling the notifier hides its errors.
    notifier = copy.copy(channel)
    own: Any = {**context, "alert": alert}
    own |= {name: getattr(notifier, name) for name in notifier.template_fields}
    notifier.render_template_fields(own)
    notifier.notify(own)
