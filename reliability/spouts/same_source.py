"""A spout reads its txids again from where it has read them, or not at all.

Offsets and keys mean other rows in another topic or table, and the accounts balance all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from reliability.core.errors import SourceChanged


def check_same_source(read: Iterable[str], own: str) -> None:
    """Raise SourceChanged if txids have read another source than the spout's own.

    :param read: what they have read, in words
    :param own: what the spout reads now
    """
    for source in read:
        if source != own:
            raise SourceChanged(
                f"txids have read {source}, and the spout reads {own}",
                remedy="let the spout read what it has read. Another source, or the same one by "
                "another name or key, is read by a topology with another name, which begins anew.",
            )
