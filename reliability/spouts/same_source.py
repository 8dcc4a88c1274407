"""A spout reads its txids again from where it has read them, or not at all.

Offsets and keys mean other rows in another topic or table, and the accounts balance all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from reliability.core.errors import SourceChanged
from reliability.core.spout import SourceItem, only

_Item = TypeVar("_Item", bound=SourceItem)


def of_same_source(
    item_type: type[_Item], items: Iterable[SourceItem], read: Callable[[_Item], str], own: str
) -> list[_Item]:
    """Return the items of a class; raise SourceChanged if one is of another source than the spout.

    :param read: says in words what an item was read from
    :param own: what the spout reads now
    """
    found = only(item_type, items)
    for item in found:
        source = read(item)
        if source != own:
            raise SourceChanged(
                f"txids have read {source}, and the spout reads {own}",
                remedy="let the spout read what it has read. Another source, or the same one by "
                "another name or key, is read by a topology with another name, which begins anew.",
            )
    return found
