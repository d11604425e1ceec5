"""What a command is started with: the sandbox, the program's file and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.events import CallConfined
from ferrule.permissions.child_environment import ChildEnvironment, child_environment
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.policy import Aspect, Holds, Policy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.process import find_program
from ferrule.tools.context import Context

from .plan import Planned, printable
from .policy import CommandPolicy
from .request import Request
from .session_commands import Commands


async def sandbox_of(context: Context, commands: Commands) -> Sandbox:
    """Return the sandbox for the commands of this run: a given one, else the session's own."""
    given = context.resources.get(Sandbox)
    if isinstance(given, Sandbox):
        return given
    policy = CommandPolicy.of(context)
    workspace = context.resource(Workspace)
    sandbox_policy = policy.confine or Policy(workspace.root)
    if sandbox_policy.root == workspace.root:
        # Whoever made the policy, the protected names of this run hold for its commands.
        names = workspace.command_names(sandbox_policy.names)
        sandbox_policy = replace(sandbox_policy, names=names)
    return await commands.confined.sandbox(sandbox_policy, policy.on_gap, context)


def record_confined(context: Context, sandbox: Sandbox, program: str) -> None:
    """Record in the journal what confines the program that this call is about to start.

    Raises:
        JournalError: It cannot be recorded; then the program must not start.
    """
    applied = sandbox.applied()
    held = tuple(str(aspect) for aspect in Aspect if applied.holds.get(aspect) is Holds.YES)
    rest = tuple(str(aspect) for aspect in Aspect if str(aspect) not in held)
    context.record(CallConfined(context.call_id, applied.rung, held, rest, program))


def environment_of(
    request: Request, policy: CommandPolicy, workspace: Workspace, folder: str
) -> ChildEnvironment:
    """Make the environment of the child.

    It is the filtered environment (`replace`: none of it), with what the request adds and without
    what it removes. The whole environment is never passed on.
    """
    # Programs trust PWD, and ours would name another folder.
    here = {"PWD": str(workspace.root / folder)} if "PWD" in os.environ else {}
    parent = dict[str, str]() if request.env_mode == "replace" else os.environ
    filtered = child_environment(parent, add=policy.allow_env, overrides={**here, **request.env})
    values = {
        name: value for name, value in filtered.values.items() if name not in request.env_remove
    }
    withheld = tuple(name for name in filtered.withheld if name not in values)
    return ChildEnvironment(values, withheld)


def program_of(
    planned: Planned, environment: Mapping[str, str], workspace: Workspace, policy: CommandPolicy
) -> str:
    """Return the file to execute. Raises ToolFailed(not_found)."""
    name = planned.argv[0]
    if "/" in name:
        return name
    outside = str(workspace.root) if policy.safe_mode.on else ""
    found = find_program(name, environment.get("PATH", os.defpath), outside=outside)
    if found is None:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"`{printable(name)}` was not run: there is no such program on the PATH",
        )
    return found
