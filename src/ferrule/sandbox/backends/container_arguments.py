"""The command line that starts a session's container, for Docker and Podman alike. Pure."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.sandbox.inside.container.relay import LABEL, NAME
from ferrule.sandbox.policy import ResourceLimits

from .container_engine import ContainerEngine

PYTHON = "/usr/bin/python3"
"""The interpreter of the image."""
PROGRAM_FOLDER = "/run/ferrule"
"""Where a container has the code that starts commands."""

_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from inside.container.first_process import main; main()"
)
_VARIABLES = (
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
)
_PREFIXES = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_")
"""Variables by which the person says which engine is used, and how."""


def engine_environment(variables: Mapping[str, str], search_path: str) -> dict[str, str]:
    """Return the variables that an engine is started with.

    Args:
        variables: The person's.
        search_path: The PATH by which it finds its helpers, without what commands can write.
    """
    kept = {
        name: value
        for name, value in variables.items()
        if name in _VARIABLES or name.startswith(_PREFIXES)
    }
    return {**kept, "PATH": search_path or os.defpath}


def container_argv(
    engine: ContainerEngine,
    mounts: Iterable[tuple[str, str, bool]],
    limits: ResourceLimits,
    session: str,
) -> list[str]:
    """Return what starts a session's container. `inside.container.relay` puts the name in.

    Args:
        engine: The engine and its image.
        mounts: What is mounted: the place, what is there, and whether commands can write it.
        limits: Bounds of all commands together, where the engine takes them.
        session: The session's folder.
    """
    bounds: list[str] = []
    if engine.limits and limits.memory is not None:
        bounds += ["--memory", str(limits.memory), "--memory-swap", str(limits.memory)]
    if engine.limits and limits.processes is not None:
        bounds += ["--pids-limit", str(limits.processes)]
    mounted = [
        word
        for place, source, is_writable in mounts
        for word in ("--mount", mount_option(place, source, is_writable=is_writable))
    ]
    return [
        *(str(engine.program), "run", "--name", NAME, "--label", label_of(session)),
        *isolation_options(),
        *(engine.user, *bounds, *engine.arguments, *mounted),
        *("--entrypoint", PYTHON, engine.image),
        *("-I", "-S", "-B", "-c", _START, f"{PROGRAM_FOLDER}/sandbox"),
    ]


def label_of(session: str) -> str:
    """Return the label of a session's containers: that of all that see each other's folders."""
    above = str(Path(session).parent)
    words = f"{platform.node()}\0{os.getuid()}\0{above}"
    digest = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{LABEL}={digest[:16]}"


def isolation_options() -> tuple[str, ...]:
    """Return the options that take away what commands do not need, in both engines.

    Labels of SELinux are not set on a person's files, so that they do not confine the container.
    Without keys for detaching, standard input may contain any byte.
    """
    return (
        "--rm",
        "--interactive",
        "--detach-keys=",
        "--pull=never",
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--security-opt=label=disable",
        "--log-driver=none",
        "--stop-signal=SIGKILL",
        "--workdir=/",
    )


def mount_option(place: str, source: str, *, is_writable: bool) -> str:
    """Return the value of `--mount`: a line of comma-separated values, all in quotes.

    Raises:
        ToolFailed: A path has a carriage return, which engines do not read back as it was.
    """
    if "\r" in place or "\r" in source:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"the command was not run: {place!r} cannot be mounted in a container; rename it",
            refused_by="sandbox",
        )
    fields = ["type=bind", f"src={source}", f"dst={place}", *([] if is_writable else ["ro"])]
    quoted = (field.replace('"', '""') for field in fields)
    return ",".join(f'"{field}"' for field in quoted)
