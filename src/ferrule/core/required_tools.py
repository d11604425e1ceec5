"""What a run must have done: tools that have to succeed for it to count as done.

Every entry must, and of an entry with alternatives one (requirement 001,
`require_successful_tools`; systems.md §2.1). A denied, failed or cancelled call is no success;
calls within calls count. Only a run that would be done is judged: one that ended at a limit ended
there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import cast

from .errors import ConfigError

REQUIRED = "required_tools"
"""The code of a run that is failed because of what it did not do."""
OR = "|"
"""Between the alternatives of an entry, where it is one text: no name of a tool holds it."""


def parse_required(given: object) -> tuple[str, ...]:
    """`["run_command", ["read", "tail"]]` as `("run_command", "read|tail")`; an entry may be
    written like that. Raises ConfigError.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise _unclear(given)
    return tuple(OR.join(_names(entry)) for entry in cast("Sequence[object]", given))


def _names(entry: object) -> list[str]:
    names: object = entry.split(OR) if isinstance(entry, str) else entry
    if not isinstance(names, (list, tuple)) or not names:
        raise _unclear(entry)
    found = [
        name.strip() if isinstance(name, str) else "" for name in cast("Sequence[object]", names)
    ]
    if not all(found) or any(OR in name for name in found):
        raise _unclear(entry)
    return found


def _unclear(given: object) -> ConfigError:
    return ConfigError(
        f"require_successful_tools: {given!r:.80}",
        hint="a list of names of tools; an entry that is a list itself asks for one of its tools",
    )


def unmet(required: Iterable[str], succeeded: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """The entries of which no tool succeeded, each as its alternatives."""
    entries = (tuple(entry.split(OR)) for entry in required)
    return tuple(entry for entry in entries if not any(name in succeeded for name in entry))
