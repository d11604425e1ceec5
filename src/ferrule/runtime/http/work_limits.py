"""How much a server works on at a time.

There is a bound for one person, so that nobody takes everybody's place, and one for all, so that
memory has one. A request beyond them is refused as one that may be sent again; nothing of it was
done.
"""

from __future__ import annotations

OF_ONE_PERSON = 32
"""Requests or runs of one person at a time. Whoever holds a server's only token is one person."""
IN_ALL = 1_000
"""Requests or runs of everybody at a time, and sessions that are kept open between them."""


def find_refusal(mine: int, all_: int, *, of_one_person: int = OF_ONE_PERSON) -> str | None:
    """Return why no further work is begun, or None if there is room.

    Args:
        mine: How much of this person's is in progress.
        all_: How much is in progress.
        of_one_person: The bound for `mine`.
    """
    if mine >= of_one_person:
        return f"{of_one_person} of your requests are in progress or wait for an answer already"
    if all_ >= IN_ALL:
        return f"{IN_ALL} requests are in progress already"
    return None
