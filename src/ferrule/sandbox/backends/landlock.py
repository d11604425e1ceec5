"""The Landlock rung: no namespace, no mount. Landlock says which folders are in reach, a filter
leaves no sockets to others.

Names in these folders are kept by a mediator (`sandbox/inside/landlock_supervisor.py`), which opens
every file for the command: what is masked elsewhere is withheld there. Commands run where they are:
`/tmp` and the home are the machine's own and closed; a folder of the session stands in for each,
named by `TMPDIR` and `HOME`, with links to the toolchains of the real home.

Not protected, and said by `selection`: that a file is there, how large and how old it is, can be
seen everywhere; that other processes are there, too. Different from the other rungs: no loopback,
no named hosts, no preview, no terminals of its own, and each file that is opened costs a question.
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

_KERNEL = ("/proc", "/sys/devices/system/cpu")
_ELSEWHERE = frozenset(
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
"""Variables that name folders in place of `TMPDIR` and `HOME`: closed ones, on which programs fail
(git does).
"""


class Landlocked(Confinement):
    """What the commands of one session have in common."""

    def shape_session(self, session: Session, found: Surroundings) -> None:
        places = self.places()
        session.way = "landlock"
        session.steps, session.own_steps = [], []
        session.held = (HELD, places.held)
        shared = Path(places.home, ".shared")
        shared.mkdir(exist_ok=True)
        session.own_folders = (places.tmp, places.home, str(shared))
        session.wall = granted(self.policy, found)
        link_toolchains(found)

    def scratch(self) -> tuple[Path, str]:
        tmp = self.places().tmp
        return Path(tmp), tmp

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        places = self.places()
        values = {name: value for name, value in given.items() if name not in _ELSEWHERE}
        return values | {"HOME": places.home, "TMPDIR": places.tmp}


def granted(policy: Policy, found: Surroundings) -> tuple[Granted, ...]:
    """What is in reach: the system's folders without what they keep closed, the workspace, the
    session's own.
    """
    places: Places = found.places
    system = [f"/{name}" for name, target in sorted(found.top.items()) if not target]
    readable = [
        *system,
        *_KERNEL,
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
    """Have the session's home lead to the programs that the real one holds, at the places where
    they look for themselves.
    """
    for bind in found.toolchains:
        name = os.path.relpath(bind.path, found.home)
        place = Path(found.places.home, name)
        if name.startswith("..") or os.path.lexists(place):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(bind.path)
