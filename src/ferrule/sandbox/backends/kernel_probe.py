"""Find out what the kernel lets this user do, by doing it: a program that prints JSON.

Run as `python -I -S kernel_probe.py [STEP…]` by `probes`, never imported by it: each question is
tried by a forked child of this single-threaded process, so that no process keeps what was tried. It
uses the standard library only. Numbers and structures: linux/uapi (sched.h, mount.h, landlock.h,
seccomp.h), seccomp(2), landlock(7), user_namespaces(7), cgroups(7).

    {"landlock_abi": 7, "user_namespaces": true, "mount": true, …, "why": {"overlay": "mount:
    EPERM"}}
"""

import ctypes
import errno
import json
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable

NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_REC = 0x4000
_PRIVATE = 0x40000
_LANDLOCK_CREATE_RULESET = 444
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_MOUNT_SETATTR = 442
_HERE = -100
_CLONE = 1
_EMPTY_PATH = 0x1000
_FROM_EMPTY_PATH = 4
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER = 1
_NEW_LISTENER = 8
_ADD_DESCRIPTOR = 0x40182103
_NO_NEW_PRIVILEGES = 38
_PARENT_DEATH = 1
_SECONDS = 5

libc = ctypes.CDLL(None, use_errno=True)
Finding = bool | int | str
Findings = dict[str, Finding]
Report = Callable[[str, Finding], None]
"""Takes the name of a finding and its value."""


class Refused(Exception):
    """The kernel refused a system call. The text names the call and the error."""


def check_answer(name: str, answer: int) -> int:
    """Return a system call's answer; raise Refused if it is an error."""
    if answer < 0:
        number = ctypes.get_errno()
        raise Refused(f"{name}: {errno.errorcode.get(number, number)}")
    return answer


def system_call(name: str, number: int, *arguments: object) -> int:
    """Make a system call by its number, for which the C library has no function."""
    libc.syscall.restype = ctypes.c_long
    return check_answer(name, libc.syscall(ctypes.c_long(number), *arguments))


def in_child(step: Callable[[Report], None]) -> tuple[Findings, str]:
    """Run a step in a forked child.

    Returns what it found before it was refused, and what refused it (empty if nothing did).
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            libc.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
            signal.alarm(_SECONDS)
            step(lambda key, value: _send(writer, key, value))
            code = 0
        except Refused as refused:
            _send(writer, "", str(refused))
        except OSError as error:
            _send(
                writer,
                "",
                f"{error.filename or 'system'}: {errno.errorcode.get(error.errno or 0, 'error')}",
            )
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = [json.loads(line) for line in pipe]
    os.waitpid(child, 0)
    findings: Findings = dict(lines)
    refusal = str(findings.pop("", ""))
    return findings, refusal


def _send(writer: int, key: str, value: Finding) -> None:
    os.write(writer, json.dumps([key, value]).encode() + b"\n")


def unshare(flags: int, name: str) -> None:
    """Put this process into new namespaces."""
    check_answer(f"unshare({name})", libc.unshare(flags))


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    """Mount a file system, or change a mount."""
    encoded = [None if word is None else word.encode() for word in (source, target, kind, data)]
    check_answer(
        f"mount({kind or target})", libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3])
    )


def enter_user_namespace() -> None:
    """Enter a user namespace in which our user and group ids stay the same."""
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_USER, "user")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def namespaces(report: Report) -> None:
    """Make the namespaces of an ordinary user, as a sandbox needs them."""
    enter_user_namespace()
    report("user_namespaces", True)
    others(report)


def probe_locks(report: Report) -> None:
    """Make a user namespace inside the current one, and copy the mounts in it."""
    enter_user_namespace()
    unshare(NEW_NS, "mount")
    report("locks", True)


def others(report: Report) -> None:
    """Make the other namespaces: with a user namespace around them, or as root."""
    unshare(NEW_NS, "mount")
    mount(None, "/", None, _REC | _PRIVATE)
    mount("none", "/tmp", "tmpfs", 0)
    _mount_by_descriptor()
    report("mount", True)
    unshare(NEW_NET | NEW_IPC | NEW_UTS, "network")
    report("network", True)
    unshare(NEW_PID, "pid")
    child = os.fork()
    if not child:
        try:
            mount("proc", "/proc", "proc", 0)
            report("pid", True)
        except Refused as refused:
            report("", str(refused))
        os._exit(0)
    os.waitpid(child, 0)


def _mount_by_descriptor() -> None:
    """Lay a read-only copy of a mount over a place (Linux 5.12), as a view is built."""
    tree = system_call("open_tree", _OPEN_TREE, _HERE, b"/tmp", ctypes.c_uint(_CLONE))
    read_only = struct.pack("QQQQ", 1, 0, 0, 0)
    size = ctypes.c_size_t(len(read_only))
    system_call(
        "mount_setattr", _MOUNT_SETATTR, tree, b"", ctypes.c_uint(_EMPTY_PATH), read_only, size
    )
    system_call(
        "move_mount", _MOVE_MOUNT, tree, b"", _HERE, b"/tmp", ctypes.c_uint(_FROM_EMPTY_PATH)
    )
    os.close(tree)
    check_answer("umount", libc.umount2(b"/tmp", 2))


def overlay(report: Report) -> None:
    """Make a copy-on-write view, in whatever namespaces there are."""
    try:
        namespaces(lambda key, value: None)
    except Refused:
        others(lambda key, value: None)
    for name in ("lower", "upper", "work", "view"):
        os.mkdir(f"/tmp/{name}")  # noqa: PTH102 - a program of few modules
    options = "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr"
    mount("overlay", "/tmp/view", "overlay", 0, options)
    report("overlay", True)


def landlock(report: Report) -> None:
    """Report the version of Landlock that the kernel has."""
    version = system_call(
        "landlock_create_ruleset", _LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1
    )
    report("landlock_abi", version)


def seccomp(report: Report) -> None:
    """Install a filter with a listener, and try to hand over descriptors with it (Linux 5.9)."""
    number = _SECCOMP.get(platform.machine())
    if number is None:
        raise Refused(f"seccomp: no table for {platform.machine()}")
    check_answer("prctl(no_new_privs)", libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    report("no_new_privileges", True)
    allow = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(allow))
    listener = system_call("seccomp(listener)", number, _SET_FILTER, _NEW_LISTENER, program)
    request = struct.pack("QIIII", 1, 0, 0, 0, 0)
    libc.ioctl(listener, ctypes.c_ulong(_ADD_DESCRIPTOR), request)
    if ctypes.get_errno() != errno.ENOENT:
        raise Refused("seccomp(add descriptor): too old a kernel")
    report("seccomp_notify", True)


def callers(report: Report) -> None:
    """Read the memory of a process that we started, without any capability.

    That is how a mediator learns names.
    """
    check_answer("capset", libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)))
    word = ctypes.create_string_buffer(b"ferrule")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    read = ctypes.create_string_buffer(8)
    here = struct.pack("PN", ctypes.addressof(read), 8)
    there = struct.pack("PN", ctypes.addressof(word), 8)
    try:
        check_answer(
            "process_vm_readv",
            libc.process_vm_readv(child, here, ctypes.c_ulong(1), there, ctypes.c_ulong(1), 0),
        )
        report("callers", True)
    finally:
        os.close(writer)
        os.waitpid(child, 0)


def cgroups(report: Report) -> None:
    """Try to make and join groups with limits for memory and processes below ours."""
    own_paths: dict[str, str] = {}
    with open("/proc/self/cgroup", encoding="utf-8") as file:  # noqa: PTH123 - a program of few modules
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            own_paths.update((name, path) for name in controllers.split(","))
    for mounted in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if "" in own_paths and _can_join(mounted + own_paths[""], ("memory.max", "pids.max")):
            report("cgroup", "v2")
            return
    found = [
        name
        for name, limit in (("memory", "memory.limit_in_bytes"), ("pids", "pids.max"))
        if _can_join(f"/sys/fs/cgroup/{name}{own_paths.get(name, '/')}", (limit,))
        or _can_join(f"/sys/fs/cgroup/{name}", (limit,))
    ]
    if len(found) == 2:
        report("cgroup", "v1")
    else:
        raise Refused("cgroup: no group with memory and pids can be made here")


def _can_join(group: str, limits: tuple[str, ...]) -> bool:
    made = f"{group.rstrip('/')}/ferrule-probe-{os.getpid()}"
    try:
        os.mkdir(made)  # noqa: PTH102 - a program of few modules
    except OSError:
        return False
    try:
        for limit in limits:
            os.stat(f"{made}/{limit}")  # noqa: PTH116 - a program of few modules
        child = os.fork()
        if not child:
            try:
                _write(f"{made}/cgroup.procs", "0")
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(child, 0)[1] == 0
    except OSError:
        return False
    finally:
        os.rmdir(made)  # noqa: PTH106 - a program of few modules


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def main() -> None:
    """Print what the steps named as arguments found, as one line of JSON.

    Without arguments all steps run but `probe_locks`.
    """
    findings: dict[str, object] = {}
    why: dict[str, str] = {}
    steps = {
        "namespaces": namespaces,
        "landlock": landlock,
        "seccomp": seccomp,
        "callers": callers,
        "cgroup": cgroups,
        "overlay": overlay,
        "locking": probe_locks,
    }
    asked = sys.argv[1:] or [name for name in steps if name != "locking"]
    for name in asked:
        found, refused = in_child(steps[name])
        findings.update(found)
        if refused:
            why[name] = refused
    if os.geteuid() == 0 and "namespaces" in asked and not findings.get("pid"):
        found, refused = in_child(others)
        findings.update(found)
        findings["as_root"] = not refused
    sys.stdout.write(json.dumps({**findings, "why": why}) + "\n")


if __name__ == "__main__":
    main()
