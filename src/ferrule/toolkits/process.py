"""Runs programs and scripts that tools chose themselves, and ends them with all their children.

Not for commands of a model: those use the session's own sandbox. Here nothing is confined except by
the `landlock` that a caller gives, only ended (`sandbox.sandbox.unconfined_sandbox`). The rules:

* One pipe for both outputs unless `errors` is given: only then is the order of arrival true.
* On timeout, cancellation, or a sink that has enough: SIGTERM, `grace` seconds, SIGKILL, for every
  descendant.
* What the program leaves running when it ends is ended as well, and named.
* `run_process` returns within `timeout + grace` and a few seconds, whoever keeps the pipes open.
* If our process dies, a supervisor sees its socket close and ends the tree.

Linux only (pidfd, /proc, subreaper). Not protected: what the program asks another service to do
(systemd-run, at, a container engine) is not its descendant; only a sandbox can refuse that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from ferrule.sandbox.command import Command, CommandResult
from ferrule.sandbox.sandbox import unconfined_sandbox


async def run_process(command: Command) -> CommandResult:
    """Run a program. When cancelled, the process tree is ended before the cancellation goes on.

    Args:
        command: What to start; `landlock` limits the files that it may use.

    Raises:
        ToolFailed: The program cannot be started.
    """
    return await unconfined_sandbox().run(command)


async def run_script(
    script: Path,
    pieces: Iterable[bytes],
    *,
    directory: int,
    timeout: float,
    max_output: int | None = None,
) -> tuple[list[bytes], CommandResult]:
    """Run a Python script of ours, which answers line by line and may be ended in between.

    It gets no environment, no packages and no folder of ours: what it works on comes as `pieces`.

    Args:
        script: The file, one without imports beyond the standard library.
        pieces: What it reads from standard input.
        directory: Descriptor of the folder that it runs in.
        timeout: Seconds after which it is ended.
        max_output: Bytes after which it is ended.

    Returns:
        The lines that it completed, without their ends, and how it ended.

    Raises:
        ToolFailed: It cannot be started.
    """
    answer = bytearray()

    def keep(data: bytes) -> bool:
        answer.extend(data)
        return max_output is None or len(answer) <= max_output

    ended = await run_process(
        Command(
            (script.stem, "-I", "-S", "-W", "ignore", str(script)),
            program=sys.executable,
            directory=directory,
            environment={},
            output=keep,
            errors=lambda data: True,
            stdin=b"".join(pieces),
            timeout=timeout,
            grace=0.0,
        )
    )
    return bytes(answer).split(b"\n")[:-1], ended


def frame(data: bytes) -> bytes:
    """Return data behind its length in four bytes, as scripts read it."""
    return len(data).to_bytes(4, "big") + data


def find_program(name: str, path: str, *, outside: str = "") -> str | None:
    """Return the file that `name` stands for, by the absolute folders of `path`, or None.

    Relative folders (also the empty one) are skipped, and so are folders at or below `outside`: a
    file that a tool could have written must not replace a program that was allowed by its name.
    """
    for folder in path.split(os.pathsep):
        if not folder.startswith("/") or (outside and _is_below(folder, outside)):
            continue
        candidate = os.path.join(folder, name)  # noqa: PTH118  names of programs are text, not paths of ours
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113  as above
            if outside and _is_below(candidate, outside):
                continue
            return candidate
    return None


def _is_below(path: str, folder: str) -> bool:
    real = Path(path).resolve()
    root = Path(folder).resolve()
    return real == root or root in real.parents
