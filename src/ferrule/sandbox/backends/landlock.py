"""The Landlock backend: no namespace and no mount.

Landlock says which folders can be reached, and a filter leaves no sockets to others. Protected
names in these folders are kept by a mediator (`sandbox/inside/landlock_supervisor.py`), which opens
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
from collections.abc import Mapping
from pathlib import Path

from ferrule.sandbox.inside.kernel.landlock import Granted
from ferrule.sandbox.inside.kernel.landlock_rules import devices, grants, listing
from ferrule.sandbox.inside.session import Session
from ferrule.sandbox.policy import Policy
from ferrule.sandbox.view.layout import HELD, Places, Surroundings

from .namespaces import Confinement

_KERNEL_FOLDERS = ("/proc", "/sys/devices/system/cpu")
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


class Landlocked(Confinement):
    """The Landlock backend: what the commands of one session share."""

    def shape_session(self, session: Session, found: Surroundings) -> None:
        places = self.places()
        session.backend = "landlock"
        session.steps = []
        session.command_steps = []
        session.held_folder = (HELD, places.held)
        shared = Path(places.home, ".shared")
        shared.mkdir(exist_ok=True)
        session.writable_folders = (places.tmp, places.home, str(shared))
        session.landlock_rules = granted(self.policy, found)
        link_toolchains(found)

    def scratch(self) -> tuple[Path, str]:
        tmp = self.places().tmp
        return Path(tmp), tmp

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        places = self.places()
        values = {name: value for name, value in given.items() if name not in _DROPPED_VARIABLES}
        return values | {"HOME": places.home, "TMPDIR": places.tmp}


def granted(policy: Policy, found: Surroundings) -> tuple[Granted, ...]:
    """Return what can be reached.

    That is the system's folders without what they keep closed, the workspace, and the session's own
    folders.
    """
    places: Places = found.places
    system = [f"/{name}" for name, target in sorted(found.top.items()) if not target]
    readable = [
        *system,
        *_KERNEL_FOLDERS,
        *(bind.path for bind in found.toolchains),
        *policy.readable,
        places.held,
    ]
    hidden = [*found.closed, *(f"{places.base}/{name}" for name in ("lock", "view"))]
    return (
        *devices(),
        *grants(
            str(policy.root),
            [path for path in hidden if not path.startswith(f"{policy.root}/")],
            listing,
            readable=readable,
            writable=(places.tmp, places.home, *policy.writable),
        ),
    )


def link_toolchains(found: Surroundings) -> None:
    """Link the programs of the real home into the session's home.

    The links are where the programs look for themselves.
    """
    for bind in found.toolchains:
        name = os.path.relpath(bind.path, found.home)
        place = Path(found.places.home, name)
        if name.startswith("..") or os.path.lexists(place):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(bind.path)
