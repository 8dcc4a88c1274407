"""A topology whose Spark tasks find none of their driver's files, as on another host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reliability import Count, MemorySpout, State, Topology
from reliability.spark.stage.task_address import SentKeywords


def counted(batch: Any) -> dict[str, Any]:
    """Count the words, by tasks that are told another file."""
    from reliability.spark import driver

    own: Any = driver
    address_here = own.task_address

    def address_elsewhere(spark: Any, address: Any) -> Any:
        sent = address_here(spark, address)
        assert isinstance(sent.ask, SentKeywords)
        assert sent.ask.in_file is not None
        moved = replace(sent.ask.in_file, path="/nonexistent/addresses")
        return replace(sent, ask=replace(sent.ask, in_file=moved))

    own.task_address = address_elsewhere
    return {"elsewhere": batch}


topology = Topology(
    "elsewhere",
    spout=MemorySpout(schema={"word": "string"}, partitions=[["a", "a", "b"]], take=3),
    process=counted,
    states=[State("elsewhere", key={"word": "text"}, values={"times": Count()})],
)
