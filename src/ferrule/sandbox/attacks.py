"""Attacks on what a sandbox claims: the table, what it is tried on, and how one is judged.

    with make_outside(make_workspace(folder / "work")) as outside:
        came_through = await try_attempt(sandbox, "cat .env", outside)      # "" if it was held

Each attempt is a script for a real shell that prints `BROKEN` if it succeeded; what it may have
touched is looked at from outside besides. `ferrule.testing.sandbox_conformance` makes tests of it
for every backend, and `ferrule doctor --attack` tries it on a person's own machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.permissions.provenance import CommandWritable, find_program

from .command import Capture, Command, CommandResult
from .policy import Protection
from .sandbox import Sandbox
from .trusted_process import start_program

PYTHON = "/usr/bin/python3"

ATTEMPTS: Mapping[Protection, tuple[str, ...]] = {
    Protection.FILE_READS: (
        "cat {outside}/note.txt",
        "cat $PWD/../outside/note.txt",
        "ln -s {outside}/note.txt way; cat way",
        "ls {outside}",
        "cat /proc/self/cwd/../outside/note.txt",
        "cat /proc/*/root{outside}/note.txt",
        "cat /etc/shadow",
        "ln {outside}/note.txt copy.txt",
        "cp -r {outside} copy",
    ),
    Protection.FILE_WRITES: (
        "echo x > {outside}/new.txt",
        "echo x >> {outside}/note.txt",
        "rm {outside}/note.txt",
        "mv note.txt {outside}/",
        "mkdir {outside}/folder",
        "truncate -s 0 {outside}/note.txt",
        "chmod 777 {outside}/note.txt",
        "touch /usr/ferrule-made",
        "ln -s {outside} way; echo x > way/new.txt",
        "touch /etc/ferrule-made",
        "touch -d 2001-01-01 {outside}/note.txt",
        "chown 0:0 {outside}/note.txt",
        "cp -p note.txt {outside}/note.txt",
    ),
    Protection.NAMES: (
        "cat .env",
        "cat deep/.env",
        "cp .env x; cat x",
        "cat < .env",
        "tar cf - .env",
        "mv .env x",
        "echo x > .env",
        "rm .env",
        "ls .ferrule | grep settings",
        "cat .ferrule/settings",
        "rm -r .ferrule",
        "mv .ferrule x",
        "cat same.txt",
        "echo x > .vscode/tasks.json",
        "mv .vscode x",
        "cat .git/config | grep hidden",
        "echo x >> .git/config",
        "ln .env other",
        "cat /proc/self/cwd/.env",
        "mv deep deeper && cat deeper/.env",
        "chmod 666 .env",
        "touch -d 2001-01-01 .env",
        (
            f'{PYTHON} -c \'import ctypes, os; d = os.open(".ferrule/settings", os.O_PATH); '
            'ctypes.CDLL(None).linkat(-100, b"/proc/self/fd/%d" % d, -100, b"x", 0x400)\'; cat x'
        ),
        (
            f'{PYTHON} -c \'import os; d = os.open(".vscode/tasks.json", os.O_PATH); '
            'os.truncate("/proc/self/fd/%d" % d, 0)\''
        ),
    ),
    Protection.NEW_NAMES: (
        "mkdir sub/.ferrule",
        "mkdir .harness",
        "touch .harness",
        "mkdir agents",
        "ln -s sub .harness",
        "mkdir x && mv x .harness",
        "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
        "mkdir -p sub/.git/hooks",
        "cp -r sub agents",
        "touch .bashrc",
        "ln note.txt .gitmodules",
        "mkfifo .harness",
        "cd sub && mkdir ../agents",
        "echo x > sub/.git",
        "cd sub && ln -s /tmp .git",
        "mkdir -p x/y && mv x sub/.ferrule",
    ),
    Protection.EXEC: (
        "{outside}/tool",
        "cp {outside}/tool . && ./tool",
        "su -c true",
        "unshare -Ur {outside}/tool",
    ),
    Protection.NETWORK: (
        "bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'",
        "bash -c 'echo x > /dev/udp/127.0.0.1/{udp}'; false",
        "unshare -Urn true && bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'",
        "bash -c 'echo x > /dev/tcp/{address}/{port}'",
    ),
    Protection.UNIX_SOCKETS: (
        (
            f"{PYTHON} -c 'import socket; "
            f'socket.socket(socket.AF_UNIX).connect("{{outside}}/socket")\''
        ),
        f"{PYTHON} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{{abstract}}\")'",
        f"{PYTHON} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"here.socket\")'",
    ),
    Protection.SIGNALS: (
        "kill -0 {pid}",
        "kill -9 {pid}",
        "test -d /proc/{pid}/fd",
        "cat /proc/{pid}/cmdline | grep -a sleep",
        "kill -9 -1; grep -l ferrule-outside /proc/*/cmdline",
    ),
}
"""Scripts that must not succeed. `{...}` are things outside the workspace, made by the suite."""


@frozen
class Outside:
    """Things outside the workspace that must not be reached."""

    folder: Path
    tcp: socket.socket
    udp: socket.socket
    listening: tuple[socket.socket, ...]
    process: subprocess.Popen[bytes]
    abstract: str
    written: float

    def placeholders(self) -> dict[str, object]:
        return {
            "outside": self.folder,
            "port": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "address": socket.gethostbyname("localhost"),
            "abstract": self.abstract,
            "pid": self.process.pid,
        }

    def is_untouched(self) -> bool:
        """Return whether everything is unchanged and no socket was contacted."""
        here = sorted(path.name for path in self.folder.iterdir()) == ["note.txt", "socket", "tool"]
        note = self.folder / "note.txt"
        same = here and note.read_text() == "outside" and note.stat().st_mode & 0o777 == 0o644
        return (
            same
            and note.stat().st_mtime == self.written
            and self.process.poll() is None
            and not any(map(_has_visitor, (self.tcp, self.udp, *self.listening)))
        )


def _has_visitor(server: socket.socket) -> bool:
    server.setblocking(False)
    try:
        if server.type == socket.SOCK_DGRAM:
            server.recv(1)
        else:
            server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


WORKSPACE: Mapping[str, str] = {
    "note.txt": "hello\n",
    ".env": "SECRET",
    "deep/.env": "SECRET",
    ".ferrule/settings": "SECRET",
    "sub/x": "x",
    ".vscode/tasks.json": "{}",
    ".git/config": '[remote "a"]\n\turl = https://hidden@x\n',
    ".git/HEAD": "ref: refs/heads/main\n",
}
"""Ordinary, secret and reserved files."""


def make_workspace(root: Path) -> Path:
    """Make a workspace with the files that attempts are made on. Return its folder."""
    for name, text in WORKSPACE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    os.link(root / ".env", root / "same.txt")
    return root


@contextmanager
def make_outside(root: Path) -> Generator[Outside]:
    """Make what must not be reached, beside a workspace, until the end of the block."""
    folder = root.parent / "outside"
    folder.mkdir(exist_ok=True)
    (folder / "note.txt").write_text("outside")
    (folder / "note.txt").chmod(0o644)
    (folder / "tool").write_text("#!/bin/sh\necho BROKEN\n")
    (folder / "tool").chmod(0o755)
    abstract = f"ferrule-outside-{os.getpid()}-{id(root)}"
    sockets: list[socket.socket] = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        sockets.append(socket.socket(socket.AF_INET, kind))
        sockets[-1].bind(("127.0.0.1", 0))
    addresses = [folder / "socket", root / "here.socket"]
    for path in addresses:
        sockets.append(socket.socket(socket.AF_UNIX))
        _bind(sockets[-1], path)
    if os.path.isdir("/proc/self"):  # noqa: PTH112  abstract names are Linux's alone
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[-1].bind(f"\0{abstract}")
    for one in sockets:
        if one.type == socket.SOCK_STREAM:
            one.listen()
    shell = find_program("sh", os.defpath, CommandWritable.from_current_folder())
    process = start_program(
        shell, ["-c", "exec sleep 1000", "ferrule-outside"], environment=os.environ
    )
    try:
        written = (folder / "note.txt").stat().st_mtime
        listening = tuple(sockets[2:])
        yield Outside(folder, sockets[0], sockets[1], listening, process, abstract, written)
    finally:
        process.kill()
        process.wait()
        for one in sockets:
            one.close()
        for path in addresses:
            path.unlink(missing_ok=True)


def _bind(server: socket.socket, path: Path) -> None:
    """Bind a socket to a path that may be longer than an address can be."""
    try:
        server.bind(str(path))
    except OSError:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


async def try_attempt(sandbox: Sandbox, attempt: str, outside: Outside) -> str:
    """Try a row of the table. Return what came through, "" if it was held."""
    root = sandbox.policy.root
    before = _names(root)
    script = attempt.format(**outside.placeholders())
    _, said = await run_script(sandbox, f"({script}) && echo BROKEN")
    for word in ("BROKEN", "SECRET", "hidden"):
        if word in said:
            return f"it printed {word}"
    if not outside.is_untouched():
        return "something outside the workspace was reached"
    kept = all((root / name).read_text() == "SECRET" for name in (".env", ".ferrule/settings"))
    if not kept:
        return "a protected file was changed"
    made = sorted(name for name in _names(root) - before if _is_reserved(name))
    return f"it made {', '.join(made)}" if made else ""


def _names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def _is_reserved(name: str) -> bool:
    return (DEFAULT_NAMES.check(name, write=False) or "").startswith("reserved")


def make_command(
    script: str,
    directory: int,
    sink: Capture | None = None,
    *,
    stdin: bytes = b"",
    timeout: float | None = 60,
) -> Command:
    """Make a command that runs a script in a real shell."""
    output = sink or Capture(1 << 16, 0)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return Command(
        ("sh", "-c", script),
        "/bin/sh",
        directory,
        environment,
        output,
        stdin=stdin,
        timeout=timeout,
        grace=0.2,
    )


async def run_script(
    sandbox: Sandbox, script: str, stdin: bytes = b"", *, timeout: float = 60
) -> tuple[CommandResult, str]:
    """Run a script at the root of the workspace; return how it ended, and its output."""
    sink = Capture(1 << 16, 1 << 16)
    directory = os.open(sandbox.policy.root, os.O_RDONLY)
    try:
        ended = await sandbox.run(
            make_command(script, directory, sink, stdin=stdin, timeout=timeout)
        )
    finally:
        os.close(directory)
    return ended, sink.text()
