"""Pass facts about a call, such as an exit status, to the program that made the call.

The result of a tool may be a text (`run_command` in its plain form). Such a tool leaves facts here:
an exit status, not output. A script that called it then need not look for the status in a text that
the program could influence. Facts do not bypass any check: they come from a call that passed the
permissions, they hold nothing that a hook might have to withhold, and they end with the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .context import Context

MAX_CALLS = 64
"""Calls of a session whose facts are kept until they are taken; older ones are dropped."""
_MEMORY = "ferrule.facts"


def store_facts(context: Context, facts: Mapping[str, Any]) -> None:
    """Store facts about the call that this context belongs to."""
    kept: dict[str, Mapping[str, Any]] = context.memory.setdefault(_MEMORY, {})
    kept[context.call_id] = facts
    while len(kept) > MAX_CALLS:
        del kept[next(iter(kept))]


def take_facts(context: Context, call_id: str) -> Mapping[str, Any] | None:
    """Remove and return the facts of a call of the same session; None if there are none."""
    kept: dict[str, Mapping[str, Any]] = context.memory.get(_MEMORY, {})
    return kept.pop(call_id, None)
