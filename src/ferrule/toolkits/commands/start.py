"""What a command is started with: the sandbox, a shell or none, the program, the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.events import CallConfined
from ferrule.permissions.child_environment import ChildEnvironment, filter_environment
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import (
    CommandWritable,
    ProgramNotFound,
    find_any_program,
    find_program,
)
from ferrule.sandbox.policy import Enforcement, Protection
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.toolchains import PROGRAMS_FOLDER, SHIPPED_PROGRAMS
from ferrule.toolkits.session_folder import share_folder
from ferrule.toolkits.subfolder import find_whole_workspace
from ferrule.tools.context import Context

from .confinement import find_confinement, find_sandbox_policy
from .plan import CommandPlan, make_printable
from .policy import CommandPolicy
from .request import CommandRequest
from .session_commands import MEMORY_KEY, SessionCommands

NEVER_ASKS = {
    "GIT_EDITOR": "true",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    "NPM_CONFIG_FUND": "false",
    "NPM_CONFIG_PROGRESS": "false",
    "NO_UPDATE_NOTIFIER": "1",
}
"""No command has a terminal: with these no editor, pager or prompt waits for somebody.

`true` as the editor leaves a message as it is: an empty one ends `git commit`, a prepared one is
taken.
"""


async def get_sandbox(context: Context, commands: SessionCommands) -> Sandbox:
    """Return the sandbox for the commands of this run: a given one, else the session's own."""
    given = context.resources.get(Sandbox)
    if isinstance(given, Sandbox):
        return given
    policy = CommandPolicy.from_context(context)
    sandbox_policy = find_sandbox_policy(context.resources, policy)
    sandbox = await commands.sandbox.get(sandbox_policy, policy.on_missing_protection, context)
    if sandbox.scratch_folder is not None:
        share_folder(context, *sandbox.scratch_folder)
    return sandbox


def find_command_writable(context: Context) -> CommandWritable:
    """Return what the commands of this run can write, with what a person opened since it began."""
    root = find_whole_workspace(context.resources).root
    given = context.resources.get(Sandbox)
    if isinstance(given, Sandbox):
        policy = given.policy
    else:
        policy = find_sandbox_policy(context.resources, CommandPolicy.from_context(context))
        commands = context.memory.get(MEMORY_KEY)
        if isinstance(commands, SessionCommands):
            policy = commands.sandbox.openings.add_to(policy)
    return CommandWritable.from_folders(root, *policy.command_writable.folders)


def decide_shell(context: Context) -> CommandPolicy:
    """Return the policy of this run with `shell_allowed` decided.

    Where nobody has decided, a shell may run if the sandbox of the run enforces all that is
    required of it. A person who agrees to less has not agreed to a shell.
    """
    policy = CommandPolicy.from_context(context)
    if policy.shell_allowed is not None:
        return policy
    return replace(policy, shell_allowed=has_confinement(context))


def has_confinement(context: Context) -> bool:
    """Return whether the sandbox of this run enforces all that is required of it."""
    return find_confinement(context.resources) is not None


def record_confinement(context: Context, sandbox: Sandbox, program: str) -> None:
    """Record in the journal what confines the program that this call is about to start.

    Raises:
        JournalError: It cannot be recorded; then the program must not start.
    """
    applied = sandbox.protections()
    held = tuple(
        str(aspect) for aspect in Protection if applied.enforcement.get(aspect) is Enforcement.YES
    )
    rest = tuple(str(aspect) for aspect in Protection if str(aspect) not in held)
    shown = sandbox.take_view()
    context.record(CallConfined(context.call_id, applied.backend, held, rest, program, shown))


def make_environment(
    request: CommandRequest, policy: CommandPolicy, workspace: Workspace, folder: str
) -> ChildEnvironment:
    """Make the environment of the child.

    It is the filtered environment (`replace`: none of it), with what the request adds and without
    what it removes. The whole environment is never passed on.
    """
    # Programs trust PWD, and ours would name another folder.
    here = {"PWD": str(workspace.root / folder)} if "PWD" in os.environ else {}
    parent = dict[str, str]() if request.env_mode == "replace" else os.environ
    quiet = dict[str, str]() if request.env_mode == "replace" else NEVER_ASKS
    overrides = {**quiet, **here, **request.env}
    filtered = filter_environment(parent, add=policy.allow_env, overrides=overrides)
    values = {
        name: value for name, value in filtered.values.items() if name not in request.env_remove
    }
    withheld = tuple(name for name in filtered.withheld if name not in values)
    return ChildEnvironment(values, withheld)


def find_executable(
    plan: CommandPlan, environment: Mapping[str, str], workspace: Workspace, policy: CommandPolicy
) -> str:
    """Return the file to execute. Raises ToolFailed(not_found)."""
    name = plan.argv[0]
    if "/" in name:
        return name
    search_path = environment.get("PATH", os.defpath)
    found = find_any_program(name, search_path)
    if found is None and name in SHIPPED_PROGRAMS and not policy.safe_mode.on:
        return str(Path.home() / PROGRAMS_FOLDER / name)  # the sandbox shows it there
    if found is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"`{make_printable(name)}` was not run: there is no such program on the PATH",
        )
    if policy.safe_mode.on:
        return _find_safe_program(name, search_path, workspace)
    return found


def _find_safe_program(name: str, search_path: str, workspace: Workspace) -> str:
    """Return the program that was allowed by its name, not one that a tool could have written."""
    try:
        return find_program(name, search_path, CommandWritable.from_folders(workspace.root))
    except ProgramNotFound as error:
        message = f"`{make_printable(name)}` was not run: {error.detail}"
        raise ToolFailed(ErrorType.NOT_FOUND, message) from error
