"""The identity of a batch (txid) and of one attempt at it, after Trident's TransactionAttempt."""

from __future__ import annotations

from dataclasses import dataclass

from reliability.core.statement_key import StatementKey


@dataclass(frozen=True, slots=True, order=True)
class TransactionAttempt:
    """One attempt at one txid, printed as `txid:attempt_id`.

    >>> print(TransactionAttempt(7, 2))
    7:2
    >>> TransactionAttempt.parse("1:0") == TransactionAttempt(1, 0)
    True
    >>> TransactionAttempt(0, 1)
    Traceback (most recent call last):
    ValueError: a txid starts at 1 and an attempt_id at 0, not 0:1
    >>> TransactionAttempt(1, -1)
    Traceback (most recent call last):
    ValueError: a txid starts at 1 and an attempt_id at 0, not 1:-1
    >>> TransactionAttempt.parse("7")
    Traceback (most recent call last):
    ValueError: an attempt is written txid:attempt_id, not '7'
    """

    txid: int
    attempt_id: int

    def __post_init__(self) -> None:
        if self.txid < 1 or self.attempt_id < 0:
            raise ValueError(f"a txid starts at 1 and an attempt_id at 0, not {self}")

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt_id}"

    @classmethod
    def parse(cls, text: str) -> TransactionAttempt:
        """Read `7:2`; raise ValueError for anything else."""
        txid, colon, attempt_id = text.partition(":")
        if not colon:
            raise ValueError(f"an attempt is written txid:attempt_id, not {text!r}")
        return cls(int(txid), int(attempt_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(StatementKey):
    """The result of begin_attempt; each statement about the attempt must present all of it (A1).

    >>> grant = Grant(topology="shop", attempt=TransactionAttempt(7, 2), nonce="n")
    >>> print(grant, dict(grant))
    shop 7:2 {'topology': 'shop', 'txid': 7, 'attempt_id': 2, 'nonce': 'n'}
    """

    topology: str
    attempt: TransactionAttempt
    nonce: str

    @property
    def txid(self) -> int:
        return self.attempt.txid

    @property
    def attempt_id(self) -> int:
        return self.attempt.attempt_id

    def keys(self) -> list[str]:
        return ["topology", "txid", "attempt_id", "nonce"]

    def __str__(self) -> str:
        return f"{self.topology} {self.attempt}"
