"""The tools that OpenAI's newer models were trained on, as the Responses API types them.

`apply_patch` is our own tool (`toolkits.files.patch_tool`); here are `shell` and, for the models
that came before it, `local_shell`. `PROVIDER_TYPE` names the type of the API, and the Responses
client turns its items into calls of these and back. Fields: the SDK's FunctionShellToolParam,
ApplyPatchToolParam, LocalShell and the items of their calls and outputs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.toolkits.commands.run_command_tool import apply_command_patch, runs_with_others
from ferrule.toolkits.files.patch_tool import apply_patch
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import PROVIDER_TYPE, Tool

from .calls import ShapeCalls

REPLACED = ("run_command", "edit_file")
"""Tools whose place these take."""

NOT_RUN = 126
"""The exit status of a command that was not run, as a shell has it."""

_CALLS = ShapeCalls({"run_command": "shell", "edit_file": "apply_patch"})
_EXIT = re.compile(r"^\[exit status (\d+)\]$", re.MULTILINE)


@tool(
    side_effect="none",
    risk="safe",
    inline=True,
    parallel=runs_with_others,
    timeout=3660,
)
async def shell(
    context: Context,
    commands: Annotated[list[str], "Command lines, run one after the other."],
    timeout_ms: Annotated[int | None, "Milliseconds after which each is ended."] = None,
    max_output_length: Annotated[int | None, "Most characters of each output."] = None,
) -> dict[str, Any]:
    """Run command lines in a shell whose folder and exported variables live on. With `&` at its end
    one goes on in the background: `jobs`, `wait %1`, `kill %1`.
    """
    if not commands or not all(command.strip() for command in commands):
        raise RetryCall("`commands` needs at least one command line, and none of them empty")
    outputs: list[dict[str, Any]] = []
    for command in commands:
        try:
            text = await _run(context, command, timeout_ms)
        except ToolFailed as failure:
            if not outputs:
                raise
            # What ran before it has happened, and the model has to know.
            outputs.append(_describe_failure(failure))
            break
        outputs.append(_describe_output(_cut(text, max_output_length)))
    return {"output": outputs}


async def _run(context: Context, command: str, timeout_ms: int | None) -> str:
    patched = await apply_command_patch(command, context)
    if patched is not None:
        return patched
    arguments: dict[str, Any] = {"command": command}
    if timeout_ms is not None:
        arguments["timeout"] = timeout_ms / 1000
    return await _CALLS.call(context, "run_command", arguments)


def _describe_output(text: str) -> dict[str, Any]:
    statuses = _EXIT.findall(text)
    outcome = {"type": "exit", "exit_code": int(statuses[-1]) if statuses else 0}
    return {"stdout": text, "stderr": "", "outcome": outcome}


def _describe_failure(failure: ToolFailed) -> dict[str, Any]:
    outcome: dict[str, Any] = {"type": "exit", "exit_code": NOT_RUN}
    if failure.error_type is ErrorType.TIMEOUT:
        outcome = {"type": "timeout"}
    return {"stdout": "", "stderr": failure.message, "outcome": outcome}


def _cut(text: str, most: int | None) -> str:
    """Return a text with its middle left out where the model asked for less."""
    if most is None or most < 0 or len(text) <= most:
        return text
    head, tail = most - most // 2, most // 2
    left_out = f"\n[{len(text) - most} of {len(text)} characters left out]\n"
    return text[:head] + left_out + (text[-tail:] if tail else "")


@tool(
    side_effect="none",
    risk="safe",
    inline=True,
    parallel=runs_with_others,
    timeout=3660,
)
async def local_shell(
    context: Context,
    command: Annotated[list[str], "The program and its arguments."],
    env: Annotated[dict[str, str] | None, "Variables to set for it."] = None,
    timeout_ms: Annotated[int | None, "Milliseconds after which it is ended."] = None,
    user: Annotated[str | None, "Not available: it runs as the person."] = None,
    working_directory: Annotated[str | None, "The folder to start in."] = None,
) -> str:
    """Run a program in the workspace."""
    if user:
        raise RetryCall(f"`user`: no command runs as `{user}`; leave it out")
    if not command:
        raise RetryCall("`command` needs a program")
    folder = working_directory or ""
    if not env:
        patched = await apply_command_patch(command, context, folder)
        if patched is not None:
            return patched
    pairs = [f"{name}={value}" for name, value in (env or {}).items()]
    words = ["env", *pairs, *command] if pairs else command
    arguments: dict[str, Any] = {"command": words, "cwd": folder}
    if timeout_ms is not None:
        arguments["timeout"] = timeout_ms / 1000
    return await _CALLS.call(context, "run_command", arguments)


def choose_shapes(model: str) -> tuple[Tool, ...]:
    """Return the tools for a model that is asked over the Responses API, none for older models.

    `apply_patch` and `shell` came with GPT-5.1; `codex-mini` knows `local_shell`.
    """
    name = model.rpartition("/")[2].partition(":")[2] or model.rpartition("/")[2]
    if name.startswith("codex-mini"):
        return (apply_patch, _give_type(local_shell, "local_shell"))
    if _KNOWS_TYPES.match(name):
        return (_give_type(apply_patch, "apply_patch"), _give_type(shell, "shell"))
    return ()


_KNOWS_TYPES = re.compile(r"gpt-(?:5\.[1-9]|[6-9]|\d\d)")


def _give_type(made: Tool, kind: str) -> Tool:
    return replace(made, annotations={PROVIDER_TYPE: kind})
