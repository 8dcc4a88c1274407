"""The arguments of spark-submit: the topology, the grant and the step, and no secret."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from reliability.core.attempt import Grant, TransactionAttempt
from reliability.core.definitions import ENGINES, SUBMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The arguments of process_batch.py."""

    module: str
    grant: Grant
    step: str
    engine: str = SUBMIT

    def arguments(self) -> list[str]:
        return [
            *("--topology", self.grant.topology),
            *("--module", self.module),
            *("--attempt", str(self.grant.attempt)),
            *("--nonce", self.grant.nonce),
            *("--step", self.step),
            *(("--engine", self.engine) if self.engine != SUBMIT else ()),
        ]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Submission:
        parser = argparse.ArgumentParser(
            description="Process one step of an attempt of a topology."
        )
        for option in ("--topology", "--module", "--attempt", "--nonce", "--step"):
            parser.add_argument(option, required=True)
        parser.add_argument("--engine", choices=ENGINES, default=SUBMIT)
        options = parser.parse_args(arguments)
        grant = Grant(
            topology=options.topology,
            attempt=TransactionAttempt.parse(options.attempt),
            nonce=options.nonce,
        )
        return cls(module=options.module, grant=grant, step=options.step, engine=options.engine)
