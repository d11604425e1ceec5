"""What commands see of the machine, for people: each place with why it is shown and who decided.

    for shown in describe_view(policy):
        print(shown.line)

`ferrule doctor --view` prints it, and the record of a session's first command lists it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.permissions.provenance import Origin, TrustedPath
from ferrule.sandbox.policy import SandboxPolicy

from .layout import MachineFolders
from .machine_folders import inspect_machine
from .openings import resolve_openings
from .session_folder import SessionFolder


@frozen
class ShownPath:
    """A place of the machine that commands see, or one that was opened and that they do not see.

    Attributes:
        path: The place, as commands see it.
        access: `read`, `write`, or `none` for what is left out.
        origin: Who decided that it is shown.
        reason: Why.
    """

    path: str
    access: str
    origin: str
    reason: str

    @property
    def line(self) -> str:
        """The place in one line."""
        return f"{self.access} {self.path} ({self.origin}: {self.reason})"


def describe_view(policy: SandboxPolicy) -> tuple[ShownPath, ...]:
    """Return what commands of a policy would see now, and what they would not."""
    folder = SessionFolder()
    home = os.path.realpath(Path.home())
    try:
        openings = resolve_openings(policy, policy.command_writable)
        return list_shown(inspect_machine(os.environ, home, folder.make(), openings))
    finally:
        folder.remove()


def list_shown(found: MachineFolders) -> tuple[ShownPath, ...]:
    """Return what a view shows of the machine, with what is left out at the end."""
    shown = (*_list_system(found), *_list_opened(found), *_list_read_only(found))
    left_out = (
        ShownPath(one.path, _LEFT[one.access], Origin.PERSON, one.why)
        for one in found.openings.left_out
    )
    return (*sorted(shown, key=lambda one: one.path), *left_out)


_LEFT = {"read": "none", "write": "read"}
"""What remains of a path whose reading or writing is left out."""


def _list_system(found: MachineFolders) -> Iterator[ShownPath]:
    for folder in found.system:
        yield _show(folder, "read")
    for name, target in found.system_links.items():
        yield ShownPath(f"/{name}", "read", Origin.MACHINE, f"a link of the system to `{target}`")
    for bind in found.toolchains:
        yield _show(bind.path, "read", bind.shown_at)


def _list_opened(found: MachineFolders) -> Iterator[ShownPath]:
    yield _show(found.openings.root, "write")
    for folder in found.openings.folders:
        yield _show(folder.path, "read" if folder.access == "read" else "write")


def _list_read_only(found: MachineFolders) -> Iterator[ShownPath]:
    """Yield what lies in a folder that is written, and is read-only there."""
    for path in found.openings.writable.sealed:
        yield ShownPath(path, "read", Origin.MACHINE, "Ferrule itself runs from it")
    for path in found.openings.read_only:
        yield ShownPath(path, "read", Origin.PERSON, "opened for reading")
    for path in found.read_only:
        yield ShownPath(path, "read", Origin.MACHINE, "programs in the home")


def _show(path: TrustedPath, access: str, place: str = "") -> ShownPath:
    seen_at = place or str(path)
    reason = path.reason if seen_at == path else f"{path.reason}; it is `{path}`"
    return ShownPath(seen_at, access, path.origin, reason)
