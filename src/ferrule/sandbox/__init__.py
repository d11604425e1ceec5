"""Run commands that the kernel confines: what a child process may see, change and reach.

To callers: a `Sandbox` (one for each session, `sandbox.py`) starts a `Command` under a
`SandboxPolicy` and returns the running command. Everything that starts a program for a model, a
tool file, a hook or an MCP server goes through it. Programs that Ferrule chooses itself start
outside it, if commands cannot write them (`unconfined_sandbox`, `trusted_process`).

Packages: `backends`, `inside`, `network`, `view`.
Modules: `attacks`, `command`, `deputies`, `launcher`, `openings`, `policy`, `preview`,
`running_command`, `sandbox`, `temporary_folder`, `trusted_process`, `unseen_programs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .backends.probes import Probes, probe
    from .backends.reduced_protection import MissingProtections
    from .backends.selection import choose_backend
    from .policy import ResourceLimits, SandboxPolicy
    from .sandbox import Sandbox

__all__ = [
    "MissingProtections",
    "Probes",
    "ResourceLimits",
    "Sandbox",
    "SandboxPolicy",
    "choose_backend",
    "probe",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".sandbox": ("Sandbox",),
        ".backends.reduced_protection": ("MissingProtections",),
        ".backends.probes": (
            "Probes",
            "probe",
        ),
        ".backends.selection": ("choose_backend",),
        ".policy": (
            "ResourceLimits",
            "SandboxPolicy",
        ),
    },
)
