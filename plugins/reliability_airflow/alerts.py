"""The task that tells people what they should hear of: docs/monitoring.md."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, BaseOperator

from reliability.core.errors import InvalidDefinition, ReliabilityError
from reliability_airflow.context import mapped_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from reliability.core.alert import Alert

Channel = BaseNotifier | Callable[["Alert"], object]


class AlertOperator(BaseOperator):
    """Look at every topology, and tell the channels what begins and what is over.

    :param channels: notifiers, whose templates and `context` have `alert`; or functions of an Alert
    :param lag_over: how long an interval may lack a commit; None for any time
    :param verify_every: how often the tables are verified; None if only people do it
    """

    def __init__(
        self,
        *,
        channels: Sequence[Channel],
        lag_over: timedelta | None,
        verify_every: timedelta | None,
        **kwargs: Any,
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
        self.verify_every = verify_every

    def execute(self, context: Context) -> None:
        """Record what is so; then tell. A channel that fails is tried again by the next run.

        What a verification finds is told by the next run, too.
        """
        from reliability.transaction.inspect.alerts import (
            channel_names,
            record_conditions,
            tell,
            verify_if_due,
        )
        from reliability.transaction.maintain.sweep import topologies
        from reliability.transaction.topology.databases import open_ledger

        names = channel_names([_name_of(channel) for channel in self.channels])
        channels = {
            name: partial(_tell, channel, context)
            for name, channel in zip(names, self.channels, strict=True)
        }
        with mapped_errors(), open_ledger("alerts") as connection:
            for topology in topologies(connection):
                record_conditions(connection, topology, self.lag_over)
            tell(connection, channels)
            if self.verify_every is None:
                return
            for topology in topologies(connection):  # it may take long: last
                try:
                    verify_if_due(connection, topology, self.verify_every)
                except ReliabilityError as error:  # one of its databases may be unavailable
                    self.log.warning("%s was not verified: %s", topology, error)


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
