"""Commands for scripts: named steps, retries, fallbacks, JSON, by the runner that the tools use.

    from ferrule.command import command_json, command_step, run_sync

    repo = await command_json(["gh", "api", "repos/owner/name"])
    step = await command_step("tests", ["pytest", "-q"], retry={"max_attempts": 2})

Without a `runner` commands start in the current folder, through one `CommandRunner` of this process
for each folder; its files stay readable until the process ends. Every function is a coroutine
function; `run_sync(...)` around a call waits for it where there is no event loop, and in a thread
of its own where there is one. Commands left in the background do not outlive the event loop they
were started in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ferrule.engine.closed_by_with import run_in_new_loop
from ferrule.toolkits.commands import json_output, script_steps
from ferrule.toolkits.commands.json_output import CommandFailed
from ferrule.toolkits.commands.retry_option import Retry
from ferrule.toolkits.commands.script_steps import (
    Spec,
    append_step,
    command_fail,
    command_ok,
    has_unrecovered_failure,
    last_failed_step,
    make_request,
    step_reference,
    unrecovered_failures,
)
from ferrule.toolkits.commands.scripts import CommandRunner, Record, Runner
from ferrule.tools.process_resources import close_at_exit

__all__ = [
    "CommandFailed",
    "CommandRunner",
    "Record",
    "Retry",
    "Runner",
    "Spec",
    "append_step",
    "command_cancel",
    "command_fail",
    "command_json",
    "command_ok",
    "command_run",
    "command_start",
    "command_step",
    "command_stream",
    "command_try",
    "command_wait",
    "has_unrecovered_failure",
    "last_failed_step",
    "run_sync",
    "step_reference",
    "unrecovered_failures",
]

T = TypeVar("T")

_runners: dict[Path, CommandRunner] = {}
close_at_exit(_runners.clear)  # a runner that nobody refers to closes what it has


def _here() -> CommandRunner:
    folder = Path.cwd()
    if folder not in _runners:
        _runners[folder] = CommandRunner(folder)
    return _runners[folder]


async def command_run(
    spec: Spec, options: Mapping[str, Any] | None = None, *, runner: Runner | None = None
) -> Record:
    """Run a command once; the record of it, as `run_command` answers. A failure is a record too."""
    return await (runner or _here())(make_request(spec, options))


async def command_step(
    name: str,
    spec: Spec,
    options: Mapping[str, Any] | None = None,
    *,
    runner: Runner | None = None,
    **more: Any,
) -> Record:
    """Run a named step.

    See `toolkits.commands.script_steps.command_step` for `retry`, `classify`, `recovery_hint`,
    `tail_bytes` and the record.
    """
    return await script_steps.command_step(name, spec, options, runner=runner or _here(), **more)


async def command_try(
    alternatives: Iterable[Mapping[str, Any]] | Mapping[str, Spec],
    *,
    runner: Runner | None = None,
    **common: Any,
) -> Record:
    """Run commands until one succeeds; see `toolkits.commands.script_steps.command_try`."""
    return await script_steps.command_try(alternatives, runner=runner or _here(), **common)


async def command_json(
    spec: Spec,
    options: Mapping[str, Any] | None = None,
    *,
    runner: Runner | None = None,
    **more: Any,
) -> Any:
    """Return the JSON that a command writes; see `toolkits.commands.json_output.command_json`.

    Raises:
        CommandFailed: The command failed, or what it wrote is no JSON.
    """
    return await json_output.command_json(spec, options, runner=runner or _here(), **more)


def command_stream(
    spec: Spec, options: Mapping[str, Any] | None = None, *, runner: CommandRunner | None = None
) -> AsyncIterator[Record]:
    """Run a command and yield its output piece by piece, its record at last.

    See `CommandRunner.stream`.
    """
    return (runner or _here()).stream(make_request(spec, options))


async def command_start(
    spec: Spec, options: Mapping[str, Any] | None = None, *, runner: CommandRunner | None = None
) -> Record:
    """Start a command in the background and return its record so far.

    The record has the `command_id` to wait for the command or end it.
    """
    return await (runner or _here())({**make_request(spec, options), "background_after_ms": 0})


async def command_wait(
    command_id: str, timeout_ms: int = 60_000, *, runner: CommandRunner | None = None
) -> Record:
    """Wait for a command in the background and return its record.

    If the time passes first, the record is returned as it is then.
    """
    return await (runner or _here()).wait(command_id, timeout_ms)


async def command_cancel(command_id: str, *, runner: CommandRunner | None = None) -> bool:
    """End a command in the background. False if it is unknown or has ended before."""
    return await (runner or _here()).cancel(command_id)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Wait for one of these functions: `run_sync(command_run(["git", "status"]))`."""
    return run_in_new_loop(lambda: work)
