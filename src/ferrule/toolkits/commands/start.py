"""What a command is started with: the session's sandbox, the program's file, its environment, its
folder.
"""

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
    """What holds the commands of this run: a sandbox that it was given, else the session's own."""
    given = context.resources.get(Sandbox)
    if isinstance(given, Sandbox):
        return given
    policy = CommandPolicy.of(context)
    workspace = context.resource(Workspace)
    held = policy.confine or Policy(workspace.root)
    if held.root == workspace.root:
        # Here and nowhere else: whoever made the policy, the names of this run hold in its
        # commands.
        held = replace(held, names=workspace.command_names(held.names))
    return await commands.confined.sandbox(held, policy.on_gap, context)


def record_confined(context: Context, sandbox: Sandbox, program: str) -> None:
    """Say in the journal what holds the program that this call is about to start. Raises
    JournalError: then it must not.
    """
    applied = sandbox.applied()
    held = tuple(str(aspect) for aspect in Aspect if applied.holds.get(aspect) is Holds.YES)
    rest = tuple(str(aspect) for aspect in Aspect if str(aspect) not in held)
    context.record(CallConfined(context.call_id, applied.rung, held, rest, program))


def environment_of(
    request: Request, policy: CommandPolicy, workspace: Workspace, folder: str
) -> ChildEnvironment:
    """What the child gets: the filtered environment (`replace`: none of it), what the request adds,
    without what it removes. The whole environment is never handed on: that is what filters are for.
    """
    # Programs believe PWD: ours would name another folder.
    here = {"PWD": str(workspace.root / folder)} if "PWD" in os.environ else {}
    parent = dict[str, str]() if request.env_mode == "replace" else os.environ
    kept = child_environment(parent, add=policy.allow_env, overrides={**here, **request.env})
    values = {name: value for name, value in kept.values.items() if name not in request.env_remove}
    return ChildEnvironment(values, tuple(name for name in kept.withheld if name not in values))


def program_of(
    planned: Planned, environment: Mapping[str, str], workspace: Workspace, policy: CommandPolicy
) -> str:
    """The file to execute. Raises ToolFailed(not_found)."""
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
