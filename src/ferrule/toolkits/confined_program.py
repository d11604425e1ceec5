"""Runs programs that a tool chose on what strangers made: pictures, documents, web pages.

Each use has a sandbox of its own, whose workspace is an empty temporary folder. A file made to
attack the program finds nothing there, and no network but what the tool opens. If this machine
cannot enforce that, the session's setting for missing protection decides
(`CommandPolicy.on_missing_protection`), as for any command.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.engine.threads import run_blocking
from ferrule.permissions.child_environment import filter_environment
from ferrule.permissions.provenance import TrustedProgram, trust_search_path
from ferrule.sandbox.command import Capture, Command, CommandResult, OutputSink
from ferrule.sandbox.network.allowed_hosts import HostRules
from ferrule.sandbox.network.proxy import ConnectionAttempt
from ferrule.sandbox.policy import ResourceLimits, SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.temporary_folder import TemporaryFolder
from ferrule.tools.context import Context

from .commands.policy import CommandPolicy
from .commands.session_sandbox import SessionSandbox
from .commands.start import find_command_writable
from .process import check_program, find_installed


@frozen
class OpenedNetwork:
    """What a program may reach besides nothing.

    Attributes:
        place: The `host:port` that it is started for.
        hosts: Decides about each host.
        on_contact: Called for every connection that it asked for.
    """

    place: str
    hosts: HostRules
    on_contact: Callable[[ConnectionAttempt], None]


@frozen
class EmptyFolder:
    """A sandbox and the folder that is its workspace."""

    sandbox: Sandbox
    path: Path
    context: Context

    async def run(
        self,
        program: TrustedProgram,
        arguments: Sequence[str],
        *,
        output: OutputSink,
        errors: OutputSink,
        seconds: float,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a program in the folder; see `Sandbox.run`.

        Raises:
            ToolFailed: It cannot be started, or was changed since it was found.
        """
        check_program(program)
        search_path = trust_search_path(
            os.environ.get("PATH", os.defpath), find_command_writable(self.context)
        )
        overrides = {"LC_ALL": "C", "PATH": search_path, **(environment or {})}
        directory = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await self.sandbox.run(
                Command(
                    (Path(program).name, *arguments),
                    program=program,
                    directory=directory,
                    environment=filter_environment(os.environ, overrides=overrides).values,
                    output=output,
                    errors=errors,
                    stdin=stdin,
                    timeout=min(seconds, 0.9 * (self.context.deadline or seconds)),
                    identity=self.context.identity,
                )
            )
        finally:
            os.close(directory)


@asynccontextmanager
async def open_empty_folder(
    context: Context, limits: ResourceLimits, network: OpenedNetwork | None = None
) -> AsyncGenerator[EmptyFolder]:
    """Make an empty folder and a sandbox around it, which are gone afterwards.

    Raises:
        ToolFailed: The machine cannot enforce it, and nobody agreed to less.
    """
    made = await run_blocking(lambda: TemporaryFolder("program"))
    folder = made.path
    confined = SessionSandbox()
    policy = SandboxPolicy(folder, limits=limits)
    if network is not None:
        confined = SessionSandbox(network.hosts, network.on_contact)
        policy = SandboxPolicy(folder, limits=limits, network=(network.place,))
    try:
        on_missing = CommandPolicy.from_context(context).on_missing_protection
        yield EmptyFolder(await confined.get(policy, on_missing, context), folder, context)
    finally:
        await confined.close()
        await run_blocking(made.remove)


def find_confined(names: Sequence[str], context: Context, hint: str) -> TrustedProgram:
    """Return the first of these programs that the PATH has where commands cannot write.

    Raises:
        ToolFailed: There is none; `hint` says how to install it.
    """
    return find_installed(names, find_command_writable(context), hint)


def describe_failure(ended: CommandResult, errors: Capture) -> str:
    """Return how a program failed, with the last line that it said."""
    how = f"signal {ended.signal}" if ended.exit_code is None else f"exit status {ended.exit_code}"
    last = errors.text().strip().splitlines()[-1:] or ["it said nothing"]
    return f"{how}: {last[0][:200]}"
