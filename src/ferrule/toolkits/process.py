"""Runs programs and scripts that tools chose themselves, and ends them with all their children.

Not for commands of a model: those use the session's own sandbox. Here nothing is confined except by
the `landlock` that a caller gives, only ended (`sandbox.sandbox.unconfined_sandbox`). So only a
`TrustedProgram` is started, one that commands cannot write. The rules:

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
from collections.abc import Iterable, Sequence
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import (
    CommandWritable,
    ProgramNotFound,
    TrustedProgram,
    UntrustedPath,
    find_interpreter,
    find_program,
)
from ferrule.sandbox.command import CommandResult, TrustedCommand
from ferrule.sandbox.sandbox import unconfined_sandbox


async def run_process(command: TrustedCommand) -> CommandResult:
    """Run a program. When cancelled, the process tree is ended before the cancellation goes on.

    Args:
        command: What to start; `landlock` limits the files that it may use.

    Raises:
        ToolFailed: The program cannot be started, or was changed since it was found.
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
        TrustedCommand(
            (script.stem, "-I", "-S", "-W", "ignore", str(script)),
            program=find_interpreter(),
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


def find_installed(names: Sequence[str], writable: CommandWritable, hint: str) -> TrustedProgram:
    """Return the first of these programs that the PATH has where commands cannot write.

    Args:
        names: Names of programs, any of which will do.
        writable: What commands can write.
        hint: How to install it.

    Raises:
        ToolFailed: There is none.
    """
    missing: list[ProgramNotFound] = []
    for name in names:
        try:
            return find_program(name, os.environ.get("PATH", os.defpath), writable)
        except ProgramNotFound as error:
            missing.append(error)
    found = max(missing, key=lambda error: len(error.skipped))
    raise ToolFailed(ErrorType.NOT_FOUND, f"{found.detail}; ask the person to install it ({hint})")


def check_program(program: TrustedProgram) -> None:
    """Check that a program is the file that was found.

    Raises:
        ToolFailed: It was replaced, changed or removed meanwhile.
    """
    try:
        program.check()
    except UntrustedPath as error:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, error.detail, refused_by="sandbox") from error
