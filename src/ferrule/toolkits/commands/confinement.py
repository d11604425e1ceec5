"""What the kernel holds commands to, as far as the gate's decisions rest on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections, SandboxBackend
from ferrule.sandbox.backends.selection import choose_backend, find_required
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.subfolder import find_whole_workspace
from ferrule.tools.definition import Confinement

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


def find_sandbox_policy(resources: Mapping[type, object], policy: CommandPolicy) -> SandboxPolicy:
    """Return what the sandbox of a run must enforce, with the protected names of the run."""
    workspace = find_whole_workspace(resources)
    confine = policy.confine or SandboxPolicy(workspace.root)
    if confine.root != workspace.root:
        return confine
    # Whoever made the policy, the protected names of this run hold for its commands.
    return replace(confine, names=workspace.names_for_commands(confine.names))


def find_confinement(resources: Mapping[type, object]) -> Confinement | None:
    """Return what the kernel holds the commands of a run to; None: to less than is required.

    Backends without a view of their own show the machine's `/tmp`, or close it.
    """
    backend = _find_backend(resources)
    if not backend or backend == "none":
        return None
    system = (*_SYSTEM_FOLDERS, *_SYSTEM_FACTS)
    if backend not in ("namespaces", "bubblewrap", "container"):
        return Confinement(system)
    return Confinement(system, _OWN_FOLDERS, shared=_SHARED_FOLDERS)


def _find_backend(resources: Mapping[type, object]) -> str:
    """Return the backend that enforces all that the run requires: of a given sandbox, or ours."""
    given = resources.get(Sandbox)
    if isinstance(given, Sandbox):
        applied = given.protections()
        return "" if applied.find_missing(find_required(given.policy)) else applied.backend
    if Workspace not in resources:
        return ""
    policy = CommandPolicy.from_resources(resources)
    backend = choose_confining_backend(find_sandbox_policy(resources, policy), policy)
    return "" if backend is None else backend.name
