"""Start a program outside the sandbox: the one place that does, besides the fork server.

A `TrustedProgram` is asked for, and looked at again right before it is started.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from ferrule.permissions.provenance import TrustedProgram


def start_program(
    program: TrustedProgram,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: str | None = "/",
    stdin: int | None = subprocess.DEVNULL,
    output: int | None = subprocess.DEVNULL,
    inherited: Sequence[int] = (),
    is_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program, and return while it runs.

    Args:
        program: What to start.
        arguments: Its arguments, without its name.
        environment: All its variables.
        folder: Where it starts; None for the current folder.
        stdin: Where it reads, as for `subprocess.Popen`; None for where we do.
        output: Where it writes and complains; None for where we do.
        inherited: Further descriptors that it gets.
        is_session: Whether it gets a session of its own, out of reach of the terminal's signals.

    Raises:
        UntrustedPath: The program was changed since it was found.
        OSError: It cannot be started.
    """
    program.check()
    return subprocess.Popen(
        [program, *arguments],
        stdin=stdin,
        stdout=output,
        stderr=output,
        cwd=folder,
        env=environment,
        pass_fds=inherited,
        start_new_session=is_session,
    )


def run_program(
    program: TrustedProgram,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: str | None = "/",
    timeout: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input, and return what it wrote.

    Raises:
        UntrustedPath: The program was changed since it was found.
        OSError: It cannot be started.
        subprocess.TimeoutExpired: It took longer than `timeout` seconds, and was ended.
    """
    program.check()
    return subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
        cwd=folder,
        env=environment,
    )
