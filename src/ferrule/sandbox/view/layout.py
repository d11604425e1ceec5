"""The view of a command, as steps: what it sees of the machine, where, and what it may write. Pure.

    steps = layout(policy, surroundings)           # for a session, done ahead of its commands
    last = finishing(masks, surroundings, ...)     # for one command, done when it comes

`inside.kernel.mounts` carries the steps out in order. Nothing is in the view that is not named
here:

* system folders, read-only, without what only their owner may read (`/etc/shadow`);
* `/dev` with the harmless devices, a new `/proc` (read-only: user 0 may write settings of the
  kernel through it, capabilities or not) and the processors' part of `/sys`;
* `/tmp` and the home: folders of the session. Toolchains in the home are there, read-only;
* the workspace at its own path, writable; further folders as the policy opens them.

Decided here: `/var` is empty but for `/var/tmp`, which is `/tmp`; `/run` is empty.

Not protected: what is world-readable in the system folders; when run as root, files in `/opt` and
`/usr` that only root may read (of `/etc` they are covered).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath

from ferrule.core.value_class import frozen
from ferrule.permissions.provenance import TrustedPath
from ferrule.sandbox.inside.kernel.landlock import ALL_RIGHTS, READ_RIGHTS
from ferrule.sandbox.policy import SandboxPolicy

from .masks import Mask, MaskKind
from .openings import Openings
from .toolchains import ReadOnlyBind

Step = tuple[str, str, str]

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix", "gnu")
"""Folders of the root that commands see, read-only; links as they are."""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

PROC_SECRETS = (
    "kcore",
    "keys",
    "key-users",
    "kpagecount",
    "kpageflags",
    "kpagecgroup",
    "sched_debug",
    "timer_list",
)
"""Files of /proc that anybody may read and that tell something of everybody's processes.

Those that only their owner may read are covered as well (`machine_folders.find_closed_proc`): to
user 0 the kernel shows some of them without asking for a capability.
"""

PROC_FOLDERS = ("bus",)

HELD_FOLDER = "/.held"
"""Where the session's own things are until the view is finished."""


@frozen
class SessionPaths:
    """Folders of a session, made by `SessionFolder`. `base` contains all the others."""

    base: str

    @property
    def tmp(self) -> str:
        return f"{self.base}/tmp"

    @property
    def home(self) -> str:
        return f"{self.base}/home"

    @property
    def view(self) -> str:
        return f"{self.base}/view"

    @property
    def held(self) -> str:
        return f"{self.base}/held"


@frozen
class MachineFolders:
    """What there is on this machine, looked at once for a session (`inspect_machine`).

    `system`: folders of the root that `SYSTEM` names; `system_links`: links of these names, with
    where they lead. `processors`: what of /sys commands see. `closed`: files and folders in the
    system's that are to be covered (True: a folder). `proc`: names directly in /proc that are to
    be covered, likewise. `devices`: names in /dev. `read_only`: toolchains in what commands can
    write.
    """

    session: SessionPaths
    home: str
    openings: Openings
    system: tuple[TrustedPath, ...] = ()
    system_links: Mapping[str, str] = field(default_factory=dict[str, str])
    closed: Mapping[str, bool] = field(default_factory=dict[str, bool])
    proc: Mapping[str, bool] = field(default_factory=dict[str, bool])
    devices: frozenset[str] = frozenset()
    toolchains: tuple[ReadOnlyBind, ...] = ()
    read_only: tuple[str, ...] = ()
    processors: TrustedPath | None = None


def session_steps(
    policy: SandboxPolicy, found: MachineFolders, placeholders: tuple[Step, ...] = ()
) -> tuple[Step, ...]:
    """Return the steps that all commands of a session share.

    `placeholders`: what is mounted around the workspace (`siblings`).
    """
    return (
        *_system_steps(found),
        *_device_steps(found),
        ("proc", "/proc", ""),
        *_kernel_steps(found),
        *_private_steps(found),
        *sorted((*placeholders, *_opened_steps(policy, found)), key=_depth),
        *_cover_session_folder(policy, found),
        ("read", HELD_FOLDER, found.session.held),
        ("write", f"{HELD_FOLDER}/previews", f"{found.session.held}/previews"),
        ("seal", "/", ""),
    )


def _system_steps(found: MachineFolders) -> Iterator[Step]:
    for folder in found.system:
        yield _show(folder)
    for name, target in sorted(found.system_links.items()):
        yield ("link", f"/{name}", target)
    # What toolchains hide is not there yet: it is covered with them.
    later = {hidden for bind in found.toolchains for hidden in bind.hidden}
    for path, folder in sorted(found.closed.items()):
        if path in later:
            continue
        yield ("cover", path, f"{found.session.held}/{_cover_name(folder)}")


def _cover_name(folder: bool) -> str:
    return "empty" if folder else "closed"


def _device_steps(found: MachineFolders) -> Iterator[Step]:
    yield ("tmpfs", "/dev", "mode=755,size=64k,nr_inodes=64")
    for name in DEVICES:
        if name in found.devices:
            yield ("device", f"/dev/{name}", f"/dev/{name}")
    yield ("folder", "/dev/pts", "755")
    yield ("link", "/dev/ptmx", "pts/ptmx")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        yield ("link", f"/dev/{name}", f"/proc/self/fd{target}")
    yield ("folder", "/dev/shm", "1777")
    yield ("seal", "/dev", "")


def command_steps(found: MachineFolders) -> Iterator[Step]:
    """Yield the steps that each command adds to the session's, done before the command is known."""
    yield ("proc", "/proc", "")
    for name, folder in sorted(found.proc.items()):
        yield ("cover", f"/proc/{name}", f"{HELD_FOLDER}/{_cover_name(folder)}")
    yield ("seal", "/proc", "")
    yield ("pts", "/dev/pts", "")
    yield ("tmpfs", "/dev/shm", "mode=1777")


def _kernel_steps(found: MachineFolders) -> Iterator[Step]:
    if found.processors is not None:
        yield _show(found.processors)


def _private_steps(found: MachineFolders) -> Iterator[Step]:
    yield ("write", "/tmp", found.session.tmp)
    yield ("write", "/var/tmp", found.session.tmp)
    yield ("folder", "/run", "755")


def _opened_steps(policy: SandboxPolicy, found: MachineFolders) -> Iterator[Step]:
    """Yield home, toolchains, the workspace and what else a person opened, in any order.

    They are to be carried out parents first.
    """
    root = found.openings.root
    if found.home not in ("", "/", root):
        yield ("write", found.home, found.session.home)
    for bind in found.toolchains:
        yield _show(bind.path, bind.shown_at)
        for hidden in bind.hidden:
            yield ("cover", hidden, f"{found.session.held}/{_cover_name(found.closed[hidden])}")
    for folder in found.openings.folders:
        is_written = folder.access == "scratch" or (folder.access == "write" and not policy.preview)
        yield _open(folder.path) if is_written else _show(folder.path)
    yield _open(root)


def _show(path: TrustedPath, place: str = "") -> Step:
    """Return the step that shows a file or folder of the machine, read-only."""
    return ("read", place or str(path), str(path))


def _open(path: TrustedPath) -> Step:
    """Return the step that lets commands write a folder of the machine."""
    return ("write", str(path), str(path))


def _depth(step: Step) -> tuple[int, str]:
    return len(PurePosixPath(step[1]).parts), step[1]


def _cover_session_folder(policy: SandboxPolicy, found: MachineFolders) -> Iterator[Step]:
    """Cover our own folder, where something that was opened would show it."""
    base = PurePosixPath(found.session.base)
    for path in (str(policy.root), *policy.readable, *policy.writable):
        if base.is_relative_to(path):
            yield ("cover", str(base), f"{found.session.held}/empty")
            return


def final_steps(
    masks: Iterable[Mask], covers: Mapping[str, str], root: Path, preview: str = ""
) -> list[Step]:
    """Return the steps for one command.

    Args:
        masks: Protected names of the workspace.
        covers: The names of files in `held/covers`, by the path that each is laid over.
        root: The workspace.
        preview: The name of a folder in `held/previews` that takes what the command changes.
    """
    steps: list[Step] = []
    if preview:
        steps.append(("overlay", str(root), f"{HELD_FOLDER}/previews/{preview}"))
    for mask in masks:
        if mask.kind is MaskKind.READ_ONLY:
            steps.append(("hold", mask.path, ""))
        elif mask.path in covers:
            steps.append(("cover", mask.path, f"{HELD_FOLDER}/covers/{covers[mask.path]}"))
        else:
            steps.append(
                (
                    "cover",
                    mask.path,
                    f"{HELD_FOLDER}/{_cover_name(mask.kind is MaskKind.EMPTY_FOLDER)}",
                )
            )
    return [*steps, ("drop", HELD_FOLDER, "")]


def landlock_rules(
    policy: SandboxPolicy, found: MachineFolders
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return what Landlock grants in the finished view.

    It is the same as the mounts once more, should a mount not be what we take it for.
    """
    own = ("/tmp", "/var/tmp", "/dev/shm", found.home)
    writable = (*own, str(policy.root), *policy.writable, *policy.scratch)
    partly_writable = (
        ("/dev", (*READ_RIGHTS, "write", "device")),
        ("/proc", (*READ_RIGHTS, "write")),
    )
    return (
        ("/", READ_RIGHTS),
        *partly_writable,
        *((str(path), ALL_RIGHTS) for path in dict.fromkeys(writable) if path),
    )


def process_limits(policy: SandboxPolicy, grouped: frozenset[str]) -> dict[str, int | None]:
    """Return limits for each process.

    Where a control group (`grouped`: `memory`, `processes`) limits all together, there is none.
    """
    bounds = policy.limits
    return {
        "FSIZE": bounds.file_size,
        "DATA": None if "memory" in grouped else bounds.memory,
        "NPROC": None if "processes" in grouped else bounds.processes,
    }
