"""The OpenAI Agents SDK: an agent's tools as its function tools.

    async with guard(agent) as guarded:
        helper = agents.Agent("helper", model="gpt-5.2", tools=guarded.tools)
        result = await agents.Runner.run(helper, "Tidy the notes.")

A call that waits for an approval is an interruption of the run (`result.interruptions`), which
`state.approve(...)` or `state.reject(...)` answers. It is asked before the call is made, and the
answer counts for these arguments alone: `always_approve=True` approves nothing else. The journal
then has the call twice, as not run and as run.

`guarded.input_guardrails` and `guarded.output_guardrails` are the SDK's, and trip where a hook of
the agent refuses: the message (`turn.start`), and the text (`completion.post`) or the typed value
(`output`) that a run ends with. They cannot change what they see, so a hook that would trips them.

A failure is what the model reads, as the SDK does it. Pictures and documents are the SDK's own
outputs; a sound is described.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Unpack

from ferrule.core.calls import ToolResult
from ferrule.core.extras import name_missing_extra
from ferrule.core.media import MediaReference
from ferrule.engine.agent import Agent
from ferrule.engine.hooks.events import CompletionPost, OutputPost, Payload, TurnStart, json_value
from ferrule.engine.session import Session
from ferrule.tools.definition import Tool

from .framework_approvals import PendingApproval
from .guard import GuardedTools, GuardOptions, open_guarded_session
from .guarded_session import GuardedSession

with name_missing_extra():
    from agents import Agent as AgentsAgent
    from agents import (
        FunctionTool,
        GuardrailFunctionOutput,
        InputGuardrail,
        OutputGuardrail,
        RunContextWrapper,
        ToolOutputFileContent,
        ToolOutputImage,
        TResponseInputItem,
    )
    from agents.tool import Tool as AgentsTool
    from agents.tool import ToolOutputText
    from agents.tool_context import ToolContext

__all__ = ["guard"]

FRAMEWORK = "openai-agents"


@dataclass(slots=True)
class GuardedAgentTools(GuardedTools[AgentsTool]):
    """What `guard` gives: function tools, and guardrails that ask the agent's hooks."""

    input_guardrails: list[InputGuardrail[Any]]
    output_guardrails: list[OutputGuardrail[Any]]


@asynccontextmanager
async def guard(
    agent: Agent[Any, Any], **options: Unpack[GuardOptions]
) -> AsyncGenerator[GuardedAgentTools]:
    """Open a session of an agent and give its tools as function tools.

    Raises as `guard.open_guarded_session`.
    """
    async with open_guarded_session(agent, FRAMEWORK, **options) as guarded:
        tools = [_make_tool(guarded, name, tool) for name, tool in guarded.tools.items()]
        before, after = _make_guardrails(guarded.session)
        yield GuardedAgentTools(guarded.session, [*tools], [before], [after])


def _make_guardrails(session: Session[Any]) -> tuple[InputGuardrail[Any], OutputGuardrail[Any]]:
    async def judge(payload: Payload) -> GuardrailFunctionOutput:
        refused = await session.ask_hooks(payload)
        return GuardrailFunctionOutput(refused, tripwire_triggered=bool(refused))

    async def judge_input(
        context: RunContextWrapper[Any],
        agent: AgentsAgent[Any],
        given: str | list[TResponseInputItem],
    ) -> GuardrailFunctionOutput:
        return await judge(TurnStart(_read_message(given)))

    async def judge_output(
        context: RunContextWrapper[Any], agent: AgentsAgent[Any], output: Any
    ) -> GuardrailFunctionOutput:
        if isinstance(output, str):
            return await judge(CompletionPost(text=output))
        return await judge(OutputPost(json_value(output)))

    # Beside the model the SDK would run tools before it hears that the message is refused.
    before = InputGuardrail[Any](judge_input, name="ferrule", run_in_parallel=False)
    return before, OutputGuardrail[Any](judge_output, name="ferrule")


def _read_message(given: str | list[TResponseInputItem]) -> str:
    """Return the last message of the person: those before it were judged in their own runs."""
    if isinstance(given, str):
        return given
    said = [one for one in given if one.get("role") == "user"]
    content: Any = said[-1].get("content", "") if said else ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "input_text")


def _make_tool(guarded: GuardedSession, name: str, tool: Tool) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        call_id = context.tool_call_id
        approved = context.is_tool_approved(name, call_id)
        outcome = await guarded.call(name, arguments, call_id, approved=approved)
        return await _to_output(guarded, outcome)

    async def needs_approval(
        context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        return await _ask(guarded, name, arguments, call_id)

    return FunctionTool(
        name=name,
        description=tool.description,
        params_json_schema={"type": "object", "properties": {}, **tool.arguments.schema},
        on_invoke_tool=invoke,
        # Strict schemas would be other schemas: the SDK makes each parameter required.
        strict_json_schema=False,
        needs_approval=needs_approval,
    )


async def _ask(guarded: GuardedSession, name: str, arguments: dict[str, Any], call_id: str) -> bool:
    """Return whether the SDK's person must be asked. Nothing is run."""
    if guarded.key(call_id) in guarded.pending:
        return True
    if not guarded.asks_framework:
        return False
    if guarded.session.approvals.evaluate(name, arguments).verdict != "ask":
        return False
    outcome = await guarded.call(name, arguments, call_id)
    if isinstance(outcome, PendingApproval):
        guarded.remember_asked(outcome)
    return True


async def _to_output(guarded: GuardedSession, outcome: ToolResult | PendingApproval) -> Any:
    if isinstance(outcome, PendingApproval):
        return (
            f"`{outcome.tool}` was not run: these arguments were not approved "
            f"({outcome.reason}); make the call again"
        )
    media = await guarded.load_media(outcome)
    if not media:
        return outcome.to_text()
    shown = [output for one, data in media if (output := _to_file(one, data)) is not None]
    return [ToolOutputText(text=outcome.to_text()), *shown]


def _to_file(one: MediaReference, data: bytes) -> ToolOutputImage | ToolOutputFileContent | None:
    address = f"data:{one.mime};base64,{base64.b64encode(data).decode('ascii')}"
    if one.media_kind == "image":
        return ToolOutputImage(image_url=address)
    if one.media_kind == "document":
        return ToolOutputFileContent(file_data=address, filename=one.name or "document")
    return None
