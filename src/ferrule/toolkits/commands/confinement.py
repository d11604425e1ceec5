"""What the kernel holds commands to, as far as the gate's decisions rest on it."""

from __future__ import annotations

import inspect

from ferrule.permissions.call_analysis import Confinement
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections, SandboxBackend
from ferrule.sandbox.backends.selection import choose_backend
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.tools.definition import Tool

from .policy import CommandPolicy

_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/sbin")
_SYSTEM_FACTS = ("/etc/os-release", "/proc/cpuinfo", "/proc/meminfo", "/proc/version")
_SHARED_FOLDERS = ("/tmp",)
_OWN_FOLDERS = (*_SHARED_FOLDERS, "/var/tmp")
"""Folders of a session in place of the machine's, where the backend makes a view of its own."""


def choose_confining_backend(
    confine: SandboxPolicy, policy: CommandPolicy
) -> SandboxBackend | None:
    """Return the backend that enforces all that is required; None: there is or is to be none."""
    if policy.on_missing_protection == "off":
        return None
    try:
        return choose_backend(confine, probe())
    except MissingProtections:
        return None


def runs_confined(tool: Tool) -> bool:
    """Return whether a tool is one of these, which start commands by their policy alone."""
    handler = inspect.unwrap(tool.handler)
    return getattr(handler, "__module__", "").startswith(f"{__package__}.")


def find_confinement(policy: CommandPolicy) -> Confinement | None:
    """Return what the kernel holds commands of a policy to; None: to less than is required.

    Backends without a view of their own show the machine's `/tmp`, or close it.
    """
    if policy.confine is None:
        return None
    backend = choose_confining_backend(policy.confine, policy)
    if backend is None:
        return None
    system = (*_SYSTEM_FOLDERS, *_SYSTEM_FACTS)
    if backend.name not in ("namespaces", "bubblewrap", "container"):
        return Confinement(system)
    return Confinement(system, _OWN_FOLDERS, shared=_SHARED_FOLDERS)
