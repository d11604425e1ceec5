"""Code mode: `run_code`, a tool that runs one short script, whose functions are other tools.

    agent = Agent("openai:gpt-5", tools=[*agent_read_tools(), code_tool(agent_read_tools())])

What takes a model five turns (read, look, read on) takes a script one, and what it reads does not
fill the history. The script is Python as implemented by Monty (the package `pydantic-monty`, extra
`code`): an interpreter written for this, without files, network, clock, environment or imports of
anything but a few pure modules. The rules:

* A script reaches only the tools it was given; each call of one is a call of the run: gate, hooks,
  journal (`Context.call`).
* A refused or failed call is an exception in the script; an exception that it does not catch fails
  the script, with the line and the type.
* Time, memory, depth, calls, source, printed text and the size of values are bounded
  (`CodeLimits`); exceeding a bound ends the script.
* Each script has a process of its own, which ends with it; nothing of it is kept.
* Only tools that read may be bound, unless `read_only=False`.

Not protected: a defect of Monty itself that lets a script out of its interpreter would run as this
user; the process is not confined by `sandbox`. Code mode is off unless a program gives this tool to
an Agent.

Modules: `bindings`, `data`, `failures`, `library`, `limits`, `plugin`, `script`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from ferrule.core.errors import ToolDefinitionError
from ferrule.toolkits.stdlib.typed import RecordOutput
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool_from_function
from ferrule.tools.definition import SideEffect, Tool

from .bindings import Binding, describe_functions, make_bindings
from .limits import CodeLimits
from .script import ScriptResult, run_script

__all__ = ["CodeLimits", "ScriptResult", "code_tool"]

_READS = (SideEffect.NONE, SideEffect.READ)
_GRACE_SECONDS = 10.0


def code_tool(
    tools: Iterable[Tool],
    *,
    limits: CodeLimits | None = None,
    name: str = "run_code",
    read_only: bool = True,
) -> Tool:
    """Return the tool that runs scripts over `tools`.

    The Agent must have these tools as well (their loading may be `internal`). The description lists
    the functions, sorted, and is the same for the same tools.

    Raises:
        ToolDefinitionError: A tool may do more than read while `read_only` is set, or has the name
            of this one.
    """
    bindings = make_bindings(tools)
    _check_tools(bindings, name, read_only=read_only)
    bounds = limits or CodeLimits()

    async def run_code(
        code: Annotated[str, "The script. Its value is the expression on its last line."],
        context: Context,
    ) -> Any:
        return await run_script(code, bindings, bounds, context)

    made = tool_from_function(
        run_code,
        name=name,
        description=describe_functions(bindings, bounds),
        # The calls of a script are judged one by one; the script itself does nothing.
        side_effect=SideEffect.NONE if read_only else SideEffect.UNDECLARED,
        risk="safe",
        timeout=bounds.total_seconds + _GRACE_SECONDS,
        max_attempts=1,
        parallel=False,
    )
    return replace(made, output=RecordOutput(ScriptResult))


def _check_tools(bindings: dict[str, Binding], name: str, *, read_only: bool) -> None:
    if not bindings:
        raise ToolDefinitionError(
            f"tool `{name}`: no tools were given", hint="give those that a script may call"
        )
    for binding in bindings.values():
        tool = binding.tool
        if tool.full_name == name:
            raise ToolDefinitionError(
                f"tool `{name}`: a script cannot start scripts", hint="leave it out of `tools`"
            )
        if read_only and tool.side_effect not in _READS:
            raise ToolDefinitionError(
                f"tool `{name}`: `{tool.full_name}` may do more than read ({tool.side_effect})",
                hint="leave it out, or say `read_only=False`: each of its calls still passes the "
                "gate",
            )
