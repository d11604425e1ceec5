"""Check that a `ferrule.sandbox.sandbox.Sandbox` runs commands and protects what it claims to.

    class TestMySandbox(SandboxConformance):
        def open_sandbox(self, policy: Policy) -> Sandbox:
            return Sandbox(policy, rung=...)       # the suite closes it

For each aspect that the sandbox claims to protect (`Enforcement.YES`), the suite attacks with a
real shell; an aspect that it does not claim is skipped visibly. Every attempt prints `BROKEN` if it
succeeded, and the suite also checks from outside.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.sandbox.command import Capture, Command, CommandResult
from ferrule.sandbox.policy import Enforcement, Protection, ResourceLimits, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

_PYTHON = "/usr/bin/python3"

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
            f"{_PYTHON} -c 'import socket; "
            f'socket.socket(socket.AF_UNIX).connect("{{outside}}/socket")\''
        ),
        f"{_PYTHON} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{{abstract}}\")'",
        f"{_PYTHON} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"here.socket\")'",
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


class SandboxConformance:
    """Tests of a sandbox: subclass as `Test…` and implement `open_sandbox`.

    Needs pytest-asyncio in its automatic mode.
    """

    reports_signals = True
    """Whether a program ended by a signal differs from one with exit status 128 + signal number."""

    def open_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        """Return a sandbox for this policy, on the running event loop."""
        raise NotImplementedError

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """Make a workspace with ordinary, secret and reserved files."""
        root = tmp_path / "work"
        for name, text in {
            "note.txt": "hello\n",
            ".env": "SECRET",
            "deep/.env": "SECRET",
            ".ferrule/settings": "SECRET",
            "sub/x": "x",
            ".vscode/tasks.json": "{}",
            ".git/config": '[remote "a"]\n\turl = https://hidden@x\n',
            ".git/HEAD": "ref: refs/heads/main\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        os.link(root / ".env", root / "same.txt")
        return root

    @pytest.fixture
    def outside(self, root: Path) -> Iterator[Outside]:
        folder = root.parent / "outside"
        folder.mkdir()
        (folder / "note.txt").write_text("outside")
        (folder / "note.txt").chmod(0o644)
        (folder / "tool").write_text("#!/bin/sh\necho BROKEN\n")
        (folder / "tool").chmod(0o755)
        abstract = f"ferrule-outside-{os.getpid()}-{id(root)}"
        sockets: list[socket.socket] = []
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            sockets.append(socket.socket(socket.AF_INET, kind))
            sockets[-1].bind(("127.0.0.1", 0))
        for address in (str(folder / "socket"), f"\0{abstract}"):
            sockets.append(socket.socket(socket.AF_UNIX))
            sockets[-1].bind(address)
        here = socket.socket(socket.AF_UNIX)
        sockets.append(here)
        directory = os.open(root, os.O_RDONLY)
        here.bind(f"/proc/self/fd/{directory}/here.socket")
        os.close(directory)
        for one in sockets:
            if one.type == socket.SOCK_STREAM:
                one.listen()
        process = subprocess.Popen(["sh", "-c", "exec sleep 1000", "ferrule-outside"])
        try:
            written = (folder / "note.txt").stat().st_mtime
            yield Outside(
                folder, sockets[0], sockets[1], tuple(sockets[2:]), process, abstract, written
            )
        finally:
            process.kill()
            process.wait()
            for one in sockets:
                one.close()

    @pytest.fixture
    async def open_with(self, root: Path) -> AsyncIterator[Callable[..., Sandbox]]:
        """Open sandboxes (`open_with(limits=…)`) whose policy requires nothing, for any backend."""
        made: list[Sandbox] = []

        def opens(**changes: object) -> Sandbox:
            policy = replace(SandboxPolicy(root, require=frozenset()), **changes)  # pyright: ignore[reportArgumentType]  a test's words
            made.append(self.open_sandbox(policy))
            return made[-1]

        yield opens
        for sandbox in made:
            await sandbox.close()

    # Every sandbox

    async def test_a_command_works_in_the_workspace(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        ended, said = await run_script(
            open_with(),
            "cat note.txt; echo new > made.txt; mkdir folder; mv made.txt folder/; cat",
            b"in",
        )
        assert (ended.exit_code, said, ended.leftover_processes, ended.surviving_processes) == (
            0,
            "hello\nin",
            (),
            (),
        )
        assert (root / "folder/made.txt").read_text() == "new\n"

    @pytest.mark.parametrize(
        ("script", "code", "name"), [("exit 7", 7, ""), ("kill -9 $$", None, "SIGKILL")]
    )
    async def test_how_it_ended_is_told(
        self, open_with: Callable[..., Sandbox], script: str, code: int | None, name: str
    ) -> None:
        ended, _ = await run_script(open_with(), script)
        if name and not self.reports_signals:
            code, name = 137, ""
        assert (ended.exit_code, ended.signal, ended.timed_out, ended.killed) == (
            code,
            name,
            False,
            False,
        )

    async def test_what_is_over_time_is_gone_with_all_it_started(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        holds = (
            "exec 9> held.lock; flock 9; (trap '' TERM; setsid sleep 1000 & sleep 1000) & echo "
            "started; wait"
        )
        ended, said = await run_script(open_with(), holds, timeout=3)
        assert (ended.timed_out, said, ended.surviving_processes) == (True, "started\n", ())
        assert _free(root / "held.lock")

    async def test_what_is_left_behind_is_ended(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        ended, _ = await run_script(
            open_with(), "exec 9> held.lock; flock 9; setsid sleep 1000 > /dev/null 2>&1 & exit 0"
        )
        assert ended.exit_code == 0 and ended.surviving_processes == ()
        assert _free(root / "held.lock")

    async def test_ending_is_idempotent_and_waits_agree(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        directory = os.open(root, os.O_RDONLY)
        running = await open_with().start(make_command("sleep 1000", directory))
        os.close(directory)
        first = await running.end()
        assert first.killed and await running.end() == await running.wait() == first

    def test_what_is_claimed_is_said_of_every_aspect(self, root: Path) -> None:
        # Without an event loop: the protection is known before the first command.
        applied = self.open_sandbox(SandboxPolicy(root, require=frozenset())).protections()
        assert set(applied.enforcement) == set(Protection)
        record = json.loads(json.dumps(applied.as_record()))
        assert {*record["enforced"], *record["not_enforced"]} == {
            str(aspect) for aspect in Protection
        }

    # Claimed protection

    @pytest.mark.parametrize(
        ("aspect", "attempt"),
        [(aspect, attempt) for aspect, scripts in ATTEMPTS.items() for attempt in scripts],
    )
    async def test_an_attempt_on_what_is_claimed_does_not_come_through(
        self,
        open_with: Callable[..., Sandbox],
        root: Path,
        outside: Outside,
        aspect: Protection,
        attempt: str,
    ) -> None:
        sandbox = open_with()
        _require_claim(sandbox, aspect)
        _needs_python(attempt)
        before = _names(root)
        script = attempt.format(**outside.placeholders())
        _, said = await run_script(sandbox, f"({script}) && echo BROKEN")
        assert "BROKEN" not in said and "SECRET" not in said and "hidden" not in said, said
        assert outside.is_untouched()
        assert (root / ".env").read_text() == "SECRET" and (
            root / ".ferrule/settings"
        ).read_text() == "SECRET"
        assert _select_reserved(_names(root) - before) == set()

    async def test_memory_is_bounded(self, open_with: Callable[..., Sandbox]) -> None:
        sandbox = open_with(limits=ResourceLimits(memory=64 << 20))
        _require_claim(sandbox, Protection.MEMORY)
        _needs_python(_PYTHON)
        one = (
            f"{_PYTHON} -c 'x = bytearray(40 << 20); import time; print(len(x), flush=True); "
            "time.sleep(1)'"
        )
        _, said = await run_script(sandbox, f"{one} & {one} & {one} & wait; echo over")
        assert said.count("41943040") < 3

    async def test_processes_are_bounded(self, open_with: Callable[..., Sandbox]) -> None:
        sandbox = open_with(limits=ResourceLimits(processes=20))
        _require_claim(sandbox, Protection.PROCESSES)
        _, said = await run_script(
            sandbox,
            (
                "for n in 1 2 3 4 5 6 7 8 9; do (for m in 1 2 3 4 5; do (echo one; sleep 2) & "
                "done; wait) & done; wait"
            ),
        )
        assert said.count("one\n") < 20

    async def test_a_file_cannot_grow_beyond_its_bound(
        self, open_with: Callable[..., Sandbox], root: Path
    ) -> None:
        sandbox = open_with(limits=ResourceLimits(file_size=1 << 20))
        await run_script(sandbox, "head -c 3000000 /dev/zero > large")
        if sandbox.protections().backend == "none":
            pytest.skip("this sandbox backend does not confine commands")
        assert (root / "large").stat().st_size <= 1 << 20


def _require_claim(sandbox: Sandbox, aspect: Protection) -> None:
    applied = sandbox.protections()
    if applied.enforcement.get(aspect) is not Enforcement.YES:
        pytest.skip(
            f"`{applied.backend}` does not claim {aspect}: {applied.mechanisms.get(aspect, '')}"
        )


def _needs_python(attempt: str) -> None:
    if _PYTHON in attempt and not Path(_PYTHON).exists():
        pytest.skip(f"this attempt is written in Python and there is no {_PYTHON}")


def _names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def _select_reserved(names: set[str]) -> set[str]:
    return {
        name
        for name in names
        if (DEFAULT_NAMES.check(name, write=False) or "").startswith("reserved")
    }


def _free(lock: Path) -> bool:
    """Return whether a lock is free: the process that held it is gone, whatever its id was."""
    with closing(lock.open("w")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


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
    assert sandbox.policy is not None
    sink = Capture(1 << 16, 1 << 16)
    directory = os.open(sandbox.policy.root, os.O_RDONLY)
    try:
        ended = await sandbox.run(
            make_command(script, directory, sink, stdin=stdin, timeout=timeout)
        )
    finally:
        os.close(directory)
    return ended, sink.text()
