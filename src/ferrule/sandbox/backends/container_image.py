"""Builds the image that commands run in, and finds out by trial what an engine does.

Nothing is taken for granted of an engine: containers of the image are started with a file of ours
in them, and the trial says as which user they run, whether limits are taken, and whether files are
the same ones inside as outside (they are not where a virtual machine lies in between).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ferrule.core.calls import parse_json
from ferrule.core.errors import FerruleError
from ferrule.permissions.provenance import CommandWritable, TrustedProgram, trust_search_path
from ferrule.sandbox.trusted_process import run_program

from .container_arguments import (
    PYTHON,
    engine_environment,
    isolation_options,
    mount_option,
)
from .container_engine import IMAGE_FILE, ContainerEngine, ContainerUnusable, digest_recipe

RECIPE_LABEL = "ferrule.recipe"
"""The label of images: the digest of the file that they were built from."""

_PROBE_PROGRAM = Path(__file__).with_name("kernel_probe.py")
_TRIAL_SECONDS = 120
_BUILD_SECONDS = 1800
_USERS = ("--userns=keep-id", "--user={uid}:{gid}", "--user=0:0")
"""Options by which files of the workspace are the container's user's own, in order of preference.

The first is for a Podman without root; the second for an engine that runs as root, and for virtual
machines; the last for a Docker without root, where user 0 of a container is the person.
"""


def build_image(
    program: TrustedProgram,
    writable: CommandWritable,
    arguments: Sequence[str] = (),
) -> str:
    """Build the image and return its digest. Takes minutes, and the network.

    Args:
        program: The engine.
        writable: What commands can write: nothing that lies there takes part.
        arguments: Further arguments for `build`.

    Raises:
        ContainerUnusable: It cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="ferrule-image-") as folder:
        digest_file = Path(folder, "digest")
        _run(
            program,
            writable,
            "build",
            f"--iidfile={digest_file}",
            f"--label={RECIPE_LABEL}={digest_recipe()}",
            *arguments,
            f"--file={IMAGE_FILE}",
            folder,
            timeout=_BUILD_SECONDS,
        )
        return digest_file.read_text().strip()


def try_engine(engine: ContainerEngine, writable: CommandWritable) -> ContainerEngine:
    """Start containers of the image, and return the engine with what that showed.

    Raises:
        ContainerUnusable: None can be started in which files of ours are ours.
    """
    # Not in the system's temporary folder: virtual machines share the home with containers.
    with tempfile.TemporaryDirectory(prefix=".ferrule-trial-", dir=Path.home()) as folder:
        place = Path(folder)
        (place / "file").write_text("ours")
        refused = ""
        for user in _USERS:
            option = user.format(uid=os.getuid(), gid=os.getgid())
            try:
                shown = _try_container(engine, writable, place, [option])
            except ContainerUnusable as error:
                refused = refused or error.detail
                continue
            if not shown["owned"]:
                refused = refused or "files of ours are another's in a container"
                continue
            inode = place.stat().st_ino
            return replace(
                engine,
                user=option,
                limits=_takes_limits(engine, writable, place, option),
                notify=bool(shown.get("seccomp_notify") and shown.get("callers")),
                same_files=shown["inode"] == inode,
                why="; ".join(shown["why"].values()),
            )
    raise ContainerUnusable(f"`{engine.program}` runs no container for commands: {refused}")


def _takes_limits(
    engine: ContainerEngine, writable: CommandWritable, place: Path, user: str
) -> bool:
    bounds = ["--memory=256m", "--memory-swap=256m", "--pids-limit=64"]
    try:
        return bool(_try_container(engine, writable, place, [user, *bounds])["bounded"])
    except ContainerUnusable:
        return False


_TRIAL = """
import json, os
def read(*paths):
    for path in paths:
        try:
            return open(path).read().strip()
        except OSError:
            pass
    return ""
folder = os.stat("/trial")
owned = folder.st_uid == os.geteuid() and os.access("/trial/file", os.W_OK)
bounded = read("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max") == "64"
print(json.dumps({"owned": owned, "inode": folder.st_ino, "bounded": bounded}))
"""


def _try_container(
    engine: ContainerEngine, writable: CommandWritable, place: Path, options: Sequence[str]
) -> dict[str, Any]:
    """Start a container with a folder of ours and return what it found."""
    common = [
        "run",
        *isolation_options(),
        *options,
        *engine.arguments,
        "--mount",
        mount_option("/trial", str(place), is_writable=True),
        "--entrypoint",
        PYTHON,
        engine.image,
        "-I",
        "-S",
        "-c",
    ]
    probe = _PROBE_PROGRAM.read_text()
    shown: dict[str, Any] = {}
    for program in ([probe, "seccomp", "callers"], [_TRIAL]):
        printed = _run(engine.program, writable, *common, *program)
        try:
            shown |= parse_json(printed.decode("utf-8", "replace"))
        except (ValueError, TypeError) as error:
            detail = f"`{engine.program} run` printed something else: {printed[:200]!r}"
            raise ContainerUnusable(detail) from error
    return shown


def _run(
    program: TrustedProgram,
    writable: CommandWritable,
    *arguments: str,
    timeout: float = _TRIAL_SECONDS,
) -> bytes:
    """Run an engine. Return what it printed.

    Raises:
        ContainerUnusable: It failed.
    """
    search_path = trust_search_path(os.environ.get("PATH", os.defpath), writable)
    try:
        ran = run_program(
            program,
            arguments,
            environment=engine_environment(os.environ, search_path),
            timeout=timeout,
        )
    except (OSError, FerruleError, subprocess.TimeoutExpired) as error:
        raise ContainerUnusable(f"`{program} {arguments[0]}`: {error}") from error
    if ran.returncode:
        lines = ran.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"exit status {ran.returncode}"
        raise ContainerUnusable(f"`{program} {arguments[0]}`: {why[:300]}")
    return ran.stdout
