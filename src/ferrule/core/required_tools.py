"""Required tools: those that must succeed for a run to count as done.

Every entry must succeed, and for an entry with alternatives one of them (requirement 001,
`require_successful_tools`; systems.md §2.1). A denied, failed or cancelled call is no success;
nested calls count. Only a run that would otherwise be done is checked, not one that reached a
limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import cast

from .errors import ConfigError

REQUIRED_TOOLS_CODE = "required_tools"
"""The error code of a run in which a required tool did not succeed."""

ALTERNATIVE_SEPARATOR = "|"
"""Separates the alternatives of an entry written as one text. No tool name contains it."""


def parse_required(given: object) -> tuple[str, ...]:
    """Return required tools in their stored form.

    `["run_command", ["read", "tail"]]` becomes `("run_command", "read|tail")`. An entry may also
    be given in the stored form.

    Raises:
        ConfigError: `given` is not a list of tool names or of lists of them.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise _invalid_entry(given)
    return tuple(
        ALTERNATIVE_SEPARATOR.join(_parse_entry(entry)) for entry in cast("Sequence[object]", given)
    )


def _parse_entry(entry: object) -> list[str]:
    given: object = entry.split(ALTERNATIVE_SEPARATOR) if isinstance(entry, str) else entry
    if not isinstance(given, (list, tuple)) or not given:
        raise _invalid_entry(entry)
    names: list[str] = []
    for item in cast("Sequence[object]", given):
        name = item.strip() if isinstance(item, str) else ""
        if not name or ALTERNATIVE_SEPARATOR in name:
            raise _invalid_entry(entry)
        names.append(name)
    return names


def _invalid_entry(given: object) -> ConfigError:
    return ConfigError(
        f"require_successful_tools: found {given!r:.80}",
        hint="use a list of tool names; of an entry that is itself a list, one tool must succeed",
    )


def find_unmet(required: Iterable[str], succeeded: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Return the entries of which no tool succeeded, each as a tuple of its alternatives."""
    entries = (tuple(entry.split(ALTERNATIVE_SEPARATOR)) for entry in required)
    return tuple(entry for entry in entries if not any(name in succeeded for name in entry))
