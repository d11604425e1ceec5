"""Facts of a call: what its result says in words for a reader, as values for the program that made
the call.

A tool whose value is text (`run_command` in its plain form) leaves here how things stand: an exit
status, not output. So a script that called it need not find the status in a text that the program
had a say in. Facts are no second way to a tool: they come of a call that passed the gate, they hold
nothing that a hook may have been made to withhold, and they end with the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .context import Context

KEPT = 64
"""Calls of a session whose facts nobody has taken yet; older ones are forgotten."""
_MEMORY = "ferrule.facts"


def leave(context: Context, facts: Mapping[str, Any]) -> None:
    """Keep the facts of the call that this context belongs to."""
    kept: dict[str, Mapping[str, Any]] = context.memory.setdefault(_MEMORY, {})
    kept[context.call_id] = facts
    while len(kept) > KEPT:
        del kept[next(iter(kept))]


def take(context: Context, call_id: str) -> Mapping[str, Any] | None:
    """The facts of a call of the same session, once; None if its tool left none."""
    kept: dict[str, Mapping[str, Any]] = context.memory.get(_MEMORY, {})
    return kept.pop(call_id, None)
