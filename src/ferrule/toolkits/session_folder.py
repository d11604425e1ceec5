"""The temporary folder of a session's commands, which file tools see under the same name.

Where the sandbox gives commands a `/tmp` of their own, `read_file` with `/tmp/out/1.txt` reads what
a command has written there, and a script that `write_file` puts there can be run. The gate knows
the folder as one of those that a session has for itself (`Confinement.own`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.context import Context
from ferrule.tools.definition import Confinement

_MEMORY_KEY = "ferrule.session_folder"


@frozen
class Place:
    """A file or folder: the workspace that it lies in, and its path there.

    `above` is the name of the session's folder, empty in the run's own workspace.
    """

    workspace: Workspace
    path: str
    above: str = ""

    def name(self) -> str:
        """Return the name that the model knows it by."""
        name = self.workspace.name(self.path)
        return f"{self.above}/{name}" if self.above else name


def share_folder(context: Context, found: Path, seen: str) -> None:
    """Let file tools of this session see a folder of its commands, under the name commands use."""
    known = context.memory.get(_MEMORY_KEY)
    if not isinstance(known, Place) or known.workspace.root != Path(os.path.realpath(found)):
        context.memory[_MEMORY_KEY] = Place(Workspace(found), "", seen)


def find_session_confinement(resources: Mapping[type, object]) -> Confinement | None:
    """Return what the commands of a run are held to, for tools that use `find_place`."""
    # Imported here: commands are built on this module, and file tools are loaded without them.
    from .commands.confinement import find_confinement

    return find_confinement(resources)


def find_place(context: Context, path: str) -> Place:
    """Return where a path leads: into the session's folder, else into the workspace."""
    workspace = context.resource(Workspace)
    shared = context.memory.get(_MEMORY_KEY)
    if not isinstance(shared, Place) or f"{path}/".startswith(f"{workspace.root}/"):
        return Place(workspace, path)
    if path != shared.above and not path.startswith(f"{shared.above}/"):
        return Place(workspace, path)
    inside = path.removeprefix(shared.above).lstrip("/")
    return Place(shared.workspace, inside or ".", shared.above)
