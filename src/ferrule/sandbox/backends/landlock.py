"""The Landlock backend: no namespace and no mount.

Landlock says which folders can be reached, and a filter leaves no sockets to others. Protected
names in these folders are kept by a mediator (`sandbox/inside/mediated_supervisor.py`), which opens
every file for the command: what other backends mask, it withholds. Commands see the machine's own
paths: `/tmp` and the home are the machine's and closed; a folder of the session stands in for each,
named by `TMPDIR` and `HOME`, with links to the toolchains of the real home.

Not protected, and said by `selection`: that a file exists, how large and how old it is, can be seen
everywhere; that other processes exist, too. Different from the other backends: no loopback, no
named hosts, no preview, no terminals of its own, and each file that is opened costs a round trip to
the mediator.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ferrule.permissions.provenance import TrustedPath
from ferrule.sandbox.inside.kernel.landlock import PathRule
from ferrule.sandbox.inside.kernel.landlock_rules import device_rules, folder_rules, list_folder
from ferrule.sandbox.inside.session import SandboxRecord
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.view.layout import HELD_FOLDER, MachineFolders, SessionPaths, Step
from ferrule.sandbox.view.mount_points import clear_folders_above
from ferrule.sandbox.view.toolchains import add_shipped_programs

from .namespaces import NamespaceBackend

_PROC = "/proc"
_DROPPED_VARIABLES = frozenset(
    {
        "TEMP",
        "TMP",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
    }
)
"""Variables that name other folders than `TMPDIR` and `HOME` do.

These folders are closed, and programs such as git fail on them.
"""


class LandlockBackend(NamespaceBackend):
    """The Landlock backend: what the commands of one session share."""

    def adapt_session(self, session: SandboxRecord, found: MachineFolders) -> None:
        places = self.ensure_session_paths()
        session.backend = "landlock"
        session.steps = []
        session.command_steps = []
        session.held_folder = (HELD_FOLDER, places.held)
        shared = Path(places.home, ".shared")
        shared.mkdir(exist_ok=True)
        session.writable_folders = (
            places.tmp,
            places.home,
            str(shared),
            *map(str, self.policy.scratch),
        )
        session.landlock_rules = path_rules(self.policy, found)
        link_toolchains(found)

    def clear_places(self, steps: Iterable[Step]) -> None:
        """Do nothing: nothing is mounted, and `link_toolchains` looks for itself."""

    def _proxy_environment(self) -> dict[str, str]:
        return {}  # no command has a network of its own, so there is none to put a proxy into

    def scratch_folder(self) -> tuple[Path, str]:
        tmp = self.ensure_session_paths().tmp
        return Path(tmp), tmp

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        places = self.ensure_session_paths()
        values = {name: value for name, value in given.items() if name not in _DROPPED_VARIABLES}
        values = add_shipped_programs(values, places.home)
        return values | {"HOME": places.home, "TMPDIR": places.tmp}


def path_rules(policy: SandboxPolicy, found: MachineFolders) -> tuple[PathRule, ...]:
    """Return what can be reached.

    That is the system's folders without what they keep closed, the workspace, and the session's own
    folders.
    """
    places: SessionPaths = found.session
    shown: list[TrustedPath] = [*found.system, *(bind.path for bind in found.toolchains)]
    if found.processors is not None:
        shown.append(found.processors)
    written: list[TrustedPath] = []
    for folder in found.openings.folders:
        (shown if folder.access == "read" else written).append(folder.path)
    hidden = [*found.closed, *(f"{places.base}/{name}" for name in ("lock", "view"))]
    return (
        *device_rules(),
        *folder_rules(
            str(policy.root),
            [path for path in hidden if not path.startswith(f"{policy.root}/")],
            list_folder,
            readable=[*map(str, shown), _PROC, places.held],
            writable=(places.tmp, places.home, *map(str, written)),
        ),
    )


def link_toolchains(found: MachineFolders) -> None:
    """Link the programs of the real home into the session's home.

    The links are where the programs look for themselves.
    """
    for bind in found.toolchains:
        name = os.path.relpath(bind.shown_at, found.home)
        place = Path(found.session.home, name)
        if name.startswith(".."):
            continue
        clear_folders_above(found.session.home, name)
        if os.path.lexists(place):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(bind.path)
