"""Run a command as another user, in another system, or with something of this one taken away.

    python launch.py '{"root": "", "user": [1000, 1000], "folder": "/", "conditions": ["offline"], …}'

Needs root, and the standard library alone. Whatever is changed is changed for this process and what
it starts: mounts, network and limits of user namespaces are in namespaces of its own.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_DETACH = 2
_GIB = 1 << 30

_REFUSED = (
    101, 134, 153, 155, 156, 159, 161, 163, 164, 165, 166, 167, 168, 169, 172, 173, 174, 175, 176,
    177, 178, 179, 180, 212, 227, 237, 238, 239, 246, 248, 249, 250, 256, 272, 279, 298, 304, 305,
    308, 312, 313, 320, 321, 323, 428, 429, 430, 431, 432, 433, 442,
)  # fmt: skip
"""System calls of x86_64 that Docker's default profile refuses to a container without capabilities,
by number: mounts, namespaces, modules, clocks, keys, tracing of the kernel.
"""
_CLONE, _CLONE3, _NAMESPACES, _UNSHARE_ALLOWED = 56, 435, 0x7E020000, 101
_KEPT_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
"""What root keeps in a container of Docker."""


def main() -> None:
    """Do what the first argument says, then become the command."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    if wanted["root"] or wanted["opened"] or _MOUNTING.intersection(wanted["conditions"]):
        _call("unshare", _NEW_MOUNTS)
        _call("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)
    if wanted["root"]:
        _enter(wanted["root"], wanted["binds"])
    if wanted["opened"]:
        _open(wanted["opened"])
    for name in wanted["conditions"]:
        _CONDITIONS[name](wanted)
    if wanted["user"]:
        user, group = wanted["user"]
        os.setgroups([group])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    os.chdir(wanted["folder"])
    os.execvpe(wanted["command"][0], wanted["command"], wanted["environment"])


def _call(name: str, *arguments: Any) -> None:
    if getattr(_LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{arguments}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    words = (os.fsencode(word) if word else None for word in (source, target, kind))
    source_bytes, target_bytes, kind_bytes = words
    _call("mount", source_bytes, target_bytes, kind_bytes, flags, options.encode() or None)


def _enter(root: str, binds: list[str]) -> None:
    """Make another system's folder ours, with this kernel's interfaces and some of our files.

    A plain `chroot` would do, but in one no user namespaces can be made.
    """
    _mount(root, root, "", _BIND)
    for name, kind in (("proc", "proc"), ("sys", ""), ("dev", "")):
        target = f"{root}/{name}"
        if kind:
            _mount(kind, target, kind)
        else:
            _mount(f"/{name}", target, "", _BIND | _RECURSIVE)
    _mount("tmpfs", f"{root}/dev/shm", "tmpfs", 0, "mode=1777")
    for place in binds:
        target = Path(root, place.lstrip("/"))
        if Path(place).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        _mount(place, str(target), "", _BIND)
    os.chdir(root)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def _open(folder: str) -> None:
    """Let everybody reach a folder that is below another's home, and nothing else of that home."""
    closed = next(above for above in reversed(Path(folder).parents) if not above.stat().st_mode & 1)
    descriptor = os.open(folder, os.O_PATH)
    _mount("tmpfs", str(closed), "tmpfs", 0, "mode=755")
    Path(folder).mkdir(parents=True)
    _mount(f"/proc/self/fd/{descriptor}", folder, "", _BIND)


def _set_up_container(wanted: dict[str, Any]) -> None:
    """As Docker begins one: /sys cannot be written, fewer capabilities, its filter of calls."""
    _hide_control_groups(wanted)
    _mount("/sys", "/sys", "", _BIND | _RECURSIVE)
    _mount("", "/sys", "", _BIND | _REMOUNT | _READ_ONLY)
    for capability in range(41):
        if capability not in _KEPT_CAPABILITIES:
            _call("prctl", 24, capability, 0, 0, 0)
    _filter_calls()
    if not wanted["user"]:
        _keep_capabilities()


def _keep_capabilities() -> None:
    """Give up what the bounding set has no more: root keeps the rest over `exec`."""
    kept = sum(1 << capability for capability in _KEPT_CAPABILITIES)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    header = struct.pack("Ii", 0x20080522, 0)
    _call("capset", header, struct.pack("6I", low, low, 0, high, high, 0))


def _filter_calls() -> None:
    """Install the filter: mounts and namespaces are refused, `clone3` is not there."""

    def step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
        return struct.pack("HBBI", code, true, false, value)

    load, equal, any_of, answer = 0x20, 0x15, 0x45, 0x06
    allow, refuse, not_there = 0x7FFF0000, 0x00050001, 0x00050026
    steps = [step(load, 4), step(equal, 0xC000003E, 1, 0), step(answer, allow), step(load, 0)]
    for number in _REFUSED:
        steps += [step(equal, number, 0, 1), step(answer, refuse)]
    steps += [step(equal, _CLONE3, 0, 1), step(answer, not_there)]
    steps += [step(equal, _CLONE, 0, 3), step(load, 16), step(any_of, _NAMESPACES, 0, 1)]
    steps += [step(answer, refuse), step(answer, allow)]
    program = b"".join(steps)
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(buffer))
    _call("prctl", 22, 2, described, 0, 0)


def _forbid_user_namespaces(wanted: dict[str, Any]) -> None:
    """Set the kernel's limit to 0, in a user namespace where users are who they are outside."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.read(ready, 1)  # until our parent, who is in the namespace by now, waits for us
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{os.getppid()}/{name}").write_text("0 0 4294967295")
        os._exit(0)
    _call("unshare", _NEW_USER)
    os.write(told, b"x")
    os.close(told)
    os.close(ready)
    if os.waitpid(child, 0)[1]:
        raise OSError("the user namespace got no users")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def _hide_control_groups(wanted: dict[str, Any]) -> None:
    if Path("/sys/fs/cgroup").is_dir():
        _mount("tmpfs", "/sys/fs/cgroup", "tmpfs", _READ_ONLY)


def _move_temporary_folder(wanted: dict[str, Any]) -> None:
    folder = Path(wanted["home"], "Temporäre Dateien")
    folder.mkdir(exist_ok=True)
    if wanted["user"]:
        os.chown(folder, *wanted["user"])
    wanted["environment"]["TMPDIR"] = str(folder)


def _close_home(wanted: dict[str, Any]) -> None:
    home = wanted["home"]
    _mount(home, home, "", _BIND)
    _mount("", home, "", _BIND | _REMOUNT | _READ_ONLY)
    _keep_models_elsewhere(wanted)


def _remove_home(wanted: dict[str, Any]) -> None:
    wanted["environment"]["HOME"] = "/nonexistent/home"
    _keep_models_elsewhere(wanted)


def _keep_models_elsewhere(wanted: dict[str, Any]) -> None:
    """Name a folder for the model, as the error of `ferrule models pull` says where HOME has none."""
    wanted["environment"]["FERRULE_MODELS"] = f"{wanted['folder']}/build/models"


def _use_plain_language(wanted: dict[str, Any]) -> None:
    wanted["environment"] |= {"LANG": "C", "LC_ALL": "C"}


def _close_new_files(wanted: dict[str, Any]) -> None:
    os.umask(0o077)


def _shrink_shared_memory(wanted: dict[str, Any]) -> None:
    _mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777,size=1m")


def _leave_network(wanted: dict[str, Any]) -> None:
    """Have a network of our own: loopback and nothing else."""
    _call("unshare", _NEW_NETWORK)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x41))


def _leave_ipv6(wanted: dict[str, Any]) -> None:
    _leave_network(wanted)
    setting = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
    if setting.exists():
        setting.write_text("1")


def _keep_one_core(wanted: dict[str, Any]) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _bound_memory(wanted: dict[str, Any]) -> None:
    """Join a control group of 2 GiB, in either version of them."""
    group, name = find_memory_group()
    group.mkdir(exist_ok=True)
    (group / name).write_text(str(2 * _GIB))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def find_memory_group() -> tuple[Path, str]:
    """Return the folder of our control group, and the name of its limit."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    above, name = (old, "memory.limit_in_bytes") if old.is_dir() else (new, "memory.max")
    return above / "ferrule-anywhere", name


_CONDITIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "container": _set_up_container,
    "no-user-namespaces": _forbid_user_namespaces,
    "no-control-groups": _hide_control_groups,
    "temporary-folder-elsewhere": _move_temporary_folder,
    "home-unwritable": _close_home,
    "home-absent": _remove_home,
    "plain-language": _use_plain_language,
    "umask-077": _close_new_files,
    "small-shared-memory": _shrink_shared_memory,
    "no-ipv6": _leave_ipv6,
    "one-core": _keep_one_core,
    "two-gib": _bound_memory,
    "offline": _leave_network,
}

_MOUNTING = {"container", "no-control-groups", "home-unwritable", "small-shared-memory"}

if __name__ == "__main__":
    main()
