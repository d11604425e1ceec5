"""What would open an access that the sandbox refused: one folder or host, named exactly.

    opening = find_opening(refusal, policy, closed=(...))
    opening.line                    # `sandbox: {writable: ["/data/out"]}`
    opening.add_to(policy)          # the policy with it

An opening is offered to a person, who may say yes without much thought. So it is narrow: the folder
that a write was for, the installation of a program, a host with its port. Nothing is offered that
contains the workspace or a home, lies in a system folder, has a secret or reserved name in its
path, is a hidden folder of a home that programs keep their own things in, or is an address that is
not the open internet. Settings can open these too; then a person has written the line. What is
below an opened folder stays covered by name as everywhere (`view.opened_folders`).

Not protected: what else is in a folder that is opened, and what a host that is opened does with
what it is sent.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ferrule.core.value_class import frozen

from .command import Refusal
from .network.allowed_hosts import InvalidHost, is_localhost, split_authority
from .network.ip_addresses import is_public, parse_address
from .policy import SandboxPolicy
from .view.layout import SYSTEM
from .view.toolchains import TOOLCHAINS

Access = Literal["read", "write", "network"]

_KEYS: dict[Access, Literal["readable", "writable", "network"]] = {
    "read": "readable",
    "write": "writable",
    "network": "network",
}
_MACHINE = (*SYSTEM, "boot", "dev", "proc", "run", "sys", "var")
_HOMES = ("home", "Users")
_HIDDEN_FOLDERS = (*TOOLCHAINS, ".cache")
"""What of a home's hidden folders is offered: where programs are, and what can be made again."""
_HIDDEN_NAMES = (".venv", ".tox", ".nox", ".cache", ".pixi")
"""Hidden folders that are offered wherever they are."""


@frozen
class Opening:
    """One access that a person can open for commands: a folder or file, or `host:port`."""

    access: Access
    target: str

    @property
    def key(self) -> Literal["readable", "writable", "network"]:
        """The setting below `sandbox` that it belongs to."""
        return _KEYS[self.access]

    @property
    def line(self) -> str:
        """The line of a settings file that opens it."""
        return f"sandbox: {{{self.key}: {json.dumps([self.target], ensure_ascii=False)}}}"

    @property
    def name(self) -> str:
        """What it opens, in words: `writing /data/out`."""
        verb = {"read": "reading", "write": "writing in", "network": "connecting to"}[self.access]
        return f"{verb} `{self.target}`"

    def add_to(self, policy: SandboxPolicy) -> SandboxPolicy:
        """Return a policy with this opened as well."""
        known = getattr(policy, self.key)
        return (
            policy if self.target in known else replace(policy, **{self.key: (*known, self.target)})
        )


def find_opening(
    refusal: Refusal, policy: SandboxPolicy, home: str, closed: tuple[str, ...] = ()
) -> Opening | None:
    """Return what would open a refused access; None if nothing is offered.

    The answer depends on what exists on the machine: it is for a person, not for a model.

    Args:
        refusal: What was refused.
        policy: The policy that it was refused under.
        home: The person's home folder.
        closed: Folders that are never offered, nor anything in them or around them.
    """
    if refusal.is_final:
        return None
    if refusal.access == "network":
        return _find_host(refusal.target)
    place = os.path.realpath(refusal.target)
    is_written = refusal.access == "write"
    if is_written and not Path(place).is_dir():
        place = str(Path(place).parent)
    if not _is_safe_owner(place) or not os.access(place, os.W_OK if is_written else os.R_OK):
        return None  # it is missing, or not the sandbox alone stands in the way
    if not may_be_opened(place, policy, home, closed, write=is_written):
        return None
    return Opening(refusal.access, place)


def may_be_opened(
    place: str, policy: SandboxPolicy, home: str, closed: tuple[str, ...] = (), *, write: bool
) -> bool:
    """Return whether a place is one that is offered, by its path alone."""
    return (
        _is_plain(place)
        and not _holds_more(place, policy, home, closed)
        and not _is_protected(place, policy, home, write=write)
    )


def _is_safe_owner(place: str) -> bool:
    """Whether a place exists, belongs to the person or root, and nobody else can write it."""
    try:
        status = Path(place).stat()
    except OSError:
        return False
    return status.st_uid in (0, os.getuid()) and not status.st_mode & stat.S_IWOTH


def _find_host(target: str) -> Opening | None:
    try:
        host, port = split_authority(target)
    except InvalidHost:
        return None
    address = parse_address(host)
    if port is None or is_localhost(host) or (address is not None and not is_public(address)):
        return None
    if address is None and "." not in host:
        return None  # a name of the local network
    return Opening("network", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def _is_plain(place: str) -> bool:
    """Whether a place is outside the system's folders, no whole home, and printable."""
    parts = Path(place).parts
    if len(parts) <= 2 or parts[1] in _MACHINE or (len(parts) == 3 and parts[1] in _HOMES):
        return False
    return place.isprintable()


def _holds_more(place: str, policy: SandboxPolicy, home: str, closed: tuple[str, ...]) -> bool:
    """Whether more lies in a place, or around it, than may be opened by an answer."""
    path = Path(place)
    root = policy.root
    if path.is_relative_to(root) or root.is_relative_to(path) or Path(home).is_relative_to(path):
        return True
    if any(path.is_relative_to(other) for other in (*policy.writable, *policy.scratch)):
        return True  # a command could put a link there before it is opened again
    return any(path.is_relative_to(one) or Path(one).is_relative_to(path) for one in closed)


def _is_protected(place: str, policy: SandboxPolicy, home: str, *, write: bool) -> bool:
    """Whether a place, or a folder that it is in, has a name that no answer opens."""
    inside = os.path.relpath(place, home) if Path(place).is_relative_to(home) else place.lstrip("/")
    lists = policy.names.only_lists()
    if lists.check(inside, write=write) is not None:
        return True
    if any(lists.check(name, write=False) is not None for name in _names_of(inside)):
        return True
    if any(f"{inside}/".startswith(f"{known}/") for known in _HIDDEN_FOLDERS):
        return False
    return any(part.startswith(".") and part not in _HIDDEN_NAMES for part in inside.split("/"))


def _names_of(name: str) -> Iterator[str]:
    """Yield the components of a path, and its beginnings."""
    parts = name.split("/")
    for end in range(1, len(parts) + 1):
        yield parts[end - 1]
        yield "/".join(parts[:end])
