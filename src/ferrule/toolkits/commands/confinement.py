"""What the kernel holds commands to, as far as the gate's decisions rest on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

from ferrule.permissions.command_variables import controls_programs
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import CommandWritable, find_any_program
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import MissingProtections, SandboxBackend
from ferrule.sandbox.backends.selection import choose_backend, find_required
from ferrule.sandbox.network.allowed_hosts import AllowedHosts
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
    policy = _find_policy(resources)
    find_writable = cache(lambda: policy.command_writable)
    is_machine_program = partial(_runs_machine_program, find_writable)
    if backend not in ("namespaces", "bubblewrap", "container"):
        return Confinement(system, runs_machine_program=is_machine_program)
    hosts = AllowedHosts.parse(policy.network)
    return Confinement(
        system,
        _OWN_FOLDERS,
        shared=_SHARED_FOLDERS,
        has_loopback=backend == "namespaces" and not hosts.includes_loopback,
        runs_machine_program=is_machine_program,
    )


def _runs_machine_program(find_writable: Callable[[], CommandWritable], name: str) -> bool:
    """Return whether the PATH leads to a program that no command can have written.

    A name that is not found is a part of the shell, or nothing. An interpreter must not be told by
    variables what to load before its first line.
    """
    if name.startswith("python") and any(map(_instructs_python, os.environ)):
        return False
    search_path = os.environ.get("PATH", os.defpath)
    if not all(map(os.path.isabs, search_path.split(os.pathsep))):
        return False
    found = find_any_program(name, search_path)
    if found is None:
        return True
    return not find_writable().contains(found)


def _instructs_python(variable: str) -> bool:
    return variable.startswith("PYTHON") and controls_programs(variable)


def _find_policy(resources: Mapping[type, object]) -> SandboxPolicy:
    given = resources.get(Sandbox)
    if isinstance(given, Sandbox):
        return given.policy
    return find_sandbox_policy(resources, CommandPolicy.from_resources(resources))


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
