"""The bubblewrap rung: the same session as with namespaces, each command started by bubblewrap.

Bounds of a process are set by the shell that starts the program inside, which every system has. The fork server
knows nothing of all this: it starts a program and ends what that started.

Not protected, besides what `bubblewrap` says: without a mediator nobody tells which secret names commands made
themselves, so those are hidden from the commands that follow. A program that is not there is an exit status
of 127, one that a signal ended one of 128 and its number.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

from .bubblewrap import bubblewrap_argv
from .command import Command
from .confinement import Confinement, folder_of, write_covers
from .inside.protocol import Launch
from .launcher import Launcher
from .layout import Surroundings, finishing, layout
from .policy import Applied, Bounds
from .probes import probe
from .running import Execution
from .surroundings import look

_SHELL = "/bin/sh"
_BLOCK, _KIB = 512, 1024


class Bubblewrapped(Confinement):
    """What the commands of one session have in common."""

    _found: Surroundings | None = None

    async def begin(self, launcher: Launcher, command: Command, applied: Applied) -> Execution:
        """Start a command in a view of its own. Raises ToolFailed."""
        places = self.places()
        found = self._found = self._found or look(os.environ, self._home, places)
        async with self._scanning:
            masks = await asyncio.to_thread(self._scanner.scan, frozenset(self._own))
        texts = write_covers(masks.items, places)
        steps = [*layout(self.policy, found), *finishing(masks.items, texts, self.policy.root)]
        words = ("sh", "-c", bounded(self.policy.bounds), "sh", command.program, *command.argv[1:])
        argv = bubblewrap_argv(
            probe().bwrap,
            steps,
            places,
            directory=folder_of(command.directory)[0],
            program=_SHELL,
            argv=words,
        )
        environment = self._environment(command.environment)
        execution = Execution(replace(command, argv=argv, program=argv[0], environment=environment), applied)
        await execution.begin(launcher, Launch(list(argv), argv[0], environment, command.grace))
        return execution


def bounded(bounds: Bounds) -> str:
    """A script for a POSIX shell that bounds itself and becomes the program that is its arguments.

    A bound that is already tighter stays. `-u` is not in POSIX: shells call it so, or `-p`.
    """
    lines = ["ulimit -c 0"]
    if bounds.file_size is not None:
        lines.append(f"ulimit -f {bounds.file_size // _BLOCK} 2>/dev/null")
    if bounds.memory is not None:
        lines.append(f"ulimit -d {bounds.memory // _KIB} 2>/dev/null")
    if bounds.processes is not None:
        lines.append(f"ulimit -u {bounds.processes} 2>/dev/null || ulimit -p {bounds.processes} 2>/dev/null")
    return "; ".join([*lines, 'exec "$@"'])
