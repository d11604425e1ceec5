"""`delegate` of scripts: the same call of the same tool that a model makes, with the words of
requirement 003.

    delegate(task, agent="", tools=[…], system_prompt="", model="", verify="", max_verify_retries=2,
    wait=True)

A dictionary `{"answer": text, "agent": …, "status": …, "session": …}`
(`engine.delegation.delegation`); a failure is an error of the script. `hooks` may be named as in
the requirement, and has no effect but to be checked: an agent has all hooks of its session anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.delegation.tool import ask_agent
from ferrule.engine.hooks.chain import Hooks
from ferrule.tools.context import Context


async def delegate(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """An `extensions.builtins.builtins.Delegate`: `World(delegate=delegate)`. Raises ToolFailed."""
    request = dict(given)
    _check_hooks(request.pop("hooks", None), context)
    task = request.pop("task", None)
    if not isinstance(task, str):
        raise ToolFailed(ErrorType.VALIDATION_FAILED, "`delegate`: `task` must be a text")
    return await ask_agent(context, task, **request)


def _check_hooks(names: Any, context: Context) -> None:
    if names is None:
        return
    hooks = context.resources.get(Hooks)
    known = {hook.name for hook in hooks.hooks} if isinstance(hooks, Hooks) else set[str]()
    for name in cast("list[Any]", names) if isinstance(names, list) else [names]:
        if name not in known:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                (
                    f"`delegate`: there is no hook `{name}` in this session, so it would not "
                    "watch the agent"
                ),
            )
