"""The built-in `delegate` of scripts: the same tool call that a model makes.

    delegate(task, agent="", tools=[…], system_prompt="", model="", verify="",
             max_verify_retries=2, wait=True)

The names are those of requirement 003. It returns `{"answer": text, "agent": …, "status": …,
"session": …}` (`engine.delegation.delegation`). A failure is an error of the script. `hooks` may be
named as in the requirement. They are checked and otherwise ignored: an agent has all hooks of its
session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.delegation.delegate_tool import ask_agent
from ferrule.engine.hooks.chain import Hooks
from ferrule.tools.context import Context


async def delegate_from_script(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """Delegate a task from a script, as `ScriptEnvironment(delegate=delegate)`.

    Raises ToolFailed.
    """
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
    listed = cast("list[Any]", names) if isinstance(names, list) else [names]
    for name in listed:
        if name not in known:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`delegate`: there is no hook `{name}` in this session to watch the agent",
            )
