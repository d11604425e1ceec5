"""Deputies: the programs that Ferrule starts for itself, and the rights that each has.

A deputy either has rights of its own, then it starts and loads nothing that commands can write, or
it has the rights of commands and no more: what they see, their variables, their network. A table of
the documentation says for each which of the two; tests compare it with what is started.
"""

from __future__ import annotations

from enum import StrEnum


class DeputyRights(StrEnum):
    """What a program may do that Ferrule starts besides commands."""

    OWN = "own"
    """More than commands: it and all that it loads lie where commands cannot write."""
    COMMANDS = "commands"
    """What commands may do, and no more: it may lie anywhere."""
    EITHER = "either"
    """`OWN` if all that it starts is trusted, else `COMMANDS`."""
