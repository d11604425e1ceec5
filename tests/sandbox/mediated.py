"""Runs a program under the filter with a mediator, in user, mount and process namespaces: a sandbox
with no view of its own.

As a program: `mediated.py REPORT RECORD WORDS…`. RECORD is JSON: `roots`, and optionally
`reserved`, `secret`, `protected`, `mediate`, `unix_only`, `connect`, `masks` (files to cover by an
unreadable one). REPORT is written at the end: `code`, `refused`, `made`. The program's output is
ours.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "ferrule" / "sandbox"))

from inside.kernel import seccomp
from inside.kernel.libc import call_libc
from inside.mediator import mediator as creation
from inside.mediator import name_rules, raw_calls

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
MS_REC, MS_PRIVATE, MS_BIND = 16384, 1 << 18, 4096
PR_SET_DUMPABLE = 4


def enter() -> None:
    """New namespaces, the same user in them."""
    user, group = os.getuid(), os.getgid()
    call_libc("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def first_process(report: int, record: dict[str, object], words: list[str]) -> None:
    call_libc("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    call_libc("mount", b"proc", b"/proc", b"proc", 0, None)
    for masked in record.get("masks", ()):
        empty = f"/tmp/.empty-{os.getpid()}-{os.getppid()}"
        Path(empty).touch(mode=0)
        call_libc("mount", empty.encode(), os.fsencode(masked), None, MS_BIND, None)
        os.unlink(empty)
    call_libc("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    keys = ("reserved", "secret", "protected")
    rules = name_rules.NameRules(
        tuple(record["roots"]), *(tuple(record.get(key, ())) for key in keys)
    )
    mediate = bool(record.get("mediate", True))
    unix_only, connect = bool(record.get("unix_only", False)), bool(record.get("connect", True))
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        raw_calls.keep_capabilities(0)
        listener = seccomp.install_filter(unix_only, mediate, connect=connect)
        if listener is not None:
            socket.send_fds(theirs, [b"l"], [listener])
            theirs.recv(1)
        os.execvp(words[0], words)
    mediator = None
    if mediate:
        descriptors = array.array("i")
        _, found, _, _ = socket.recv_fds(ours, 1, 1)
        descriptors.extend(found)
        creation.drop_file_capabilities()
        lock = os.open(record["lock"], os.O_RDWR) if "lock" in record else os.memfd_create("lock")
        mediator = creation.Mediator(found[0], rules, lock)
        ours.send(b"g")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = serve(child, mediator)
    result: dict[str, object] = {"code": code}
    if mediator is not None:
        result["refused"] = mediator.refused_names
        result["made"] = [(made.identity, made.name) for made in mediator.created_files]
    os.write(report, json.dumps(result).encode())


def serve(child: int, mediator: creation.Mediator | None) -> int:
    watched = select.poll()
    ended = os.pidfd_open(child)
    watched.register(ended, select.POLLIN)
    if mediator is not None:
        watched.register(mediator, select.POLLIN)
    while True:
        for descriptor, _ in watched.poll():
            if descriptor == ended:
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert mediator is not None
            mediator.handle_one()


def main() -> None:
    report = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    record = json.loads(sys.argv[2])
    enter()
    first = os.fork()
    if first == 0:
        try:
            first_process(report, record, sys.argv[3:])
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))


if __name__ == "__main__":
    main()
