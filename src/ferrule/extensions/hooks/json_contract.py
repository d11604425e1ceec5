"""The JSON contract of command and web hooks: their input, and what their answers mean.

Source: conventions §3.4. A script written for Claude Code works unchanged: it reads
`hook_event_name`, `tool_name`, `tool_input`, … with that program's names (`Bash`, `Write`,
`file_path`), and its `updatedInput` is translated back into ours. The additional key `ferrule`
holds the payload with our own names. One deviation, which the conventions ask for: at an event that
gates something, an exit code other than 0 and 2, a timeout and an unreadable answer all block.

`transcript_path` is empty: sessions are in the journal, not in a file. `defer` counts as `ask`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import (
    Action,
    Custom,
    DelegationPost,
    DelegationPre,
    Failed,
    NotJson,
    Occasion,
    SessionEnd,
    SessionStart,
    ToolPost,
    ToolPre,
    TurnEnd,
    TurnStart,
)

EVENTS: dict[str, str] = {
    "PreToolUse": "tool.pre",
    "PostToolUse": "tool.post",
    "PostToolUseFailure": "tool.post",
    "UserPromptSubmit": "turn.start",
    "Stop": "turn.end",
    "StopFailure": "error",
    "SessionStart": "session.start",
    "SessionEnd": "session.end",
    "SubagentStart": "delegation.pre",
    "SubagentStop": "delegation.post",
}
"""Claude Code's events and ours. Our own names can be used as well."""

NOT_FIRED = (
    "PermissionRequest",
    "PermissionDenied",
    "PostToolBatch",
    "PreCompact",
    "PostCompact",
    "Notification",
    "Elicitation",
    "ConfigChange",
)
"""Claude Code's events that are never fired here. Hooks on them are reported as without effect."""


@frozen
class ContractNames:
    """A tool's name in the contract, and the names of its arguments where they differ from ours."""

    tool: str
    arguments: Mapping[str, str]


TOOLS: dict[str, ContractNames] = {
    "run_command": ContractNames("Bash", {}),
    "read_file": ContractNames("Read", {"path": "file_path"}),
    "write_file": ContractNames("Write", {"path": "file_path"}),
    "edit_file": ContractNames("Edit", {"path": "file_path"}),
    "search_files": ContractNames("Grep", {}),
    "list_files": ContractNames("LS", {}),
}


def contract_tool_name(tool: str, source: str = "") -> str:
    """Return a tool's name in the contract: `Bash`, `mcp__server__tool`, or its own."""
    if tool in TOOLS:
        return TOOLS[tool].tool
    return f"mcp__{tool}" if source.startswith("mcp") else tool


def contract_event_name(occasion: Occasion) -> str:
    """Return an event's name in the contract, or ours where it has none."""
    match occasion.payload:
        case ToolPost(success=success):
            return "PostToolUse" if success else "PostToolUseFailure"
        case _:
            return next(
                (theirs for theirs, ours in EVENTS.items() if ours == occasion.event),
                occasion.event,
            )


def build_input(occasion: Occasion) -> dict[str, Any]:
    """Build the JSON object that a command or web hook reads."""
    identity = occasion.identity
    common: dict[str, Any] = {
        "session_id": identity.session,
        "transcript_path": "",
        "cwd": occasion.workspace,
        "permission_mode": occasion.mode,
        "hook_event_name": contract_event_name(occasion),
    }
    if occasion.payload.agent_type:
        common |= {"agent_type": occasion.payload.agent_type, "agent_id": occasion.payload.agent_id}
    ours = {"event": occasion.event, "run": identity.run, "payload": occasion.payload.as_dict()}
    return {**common, **_event_fields(occasion), "ferrule": ours}


def _event_fields(occasion: Occasion) -> dict[str, Any]:
    match occasion.payload:
        case ToolPre() as call:
            return _call_fields(call, call.arguments)
        case ToolPost() as call:
            answer = {"tool_response": call.result} if call.success else {"error": call.message}
            return {**_call_fields(call, call.arguments or {}), **answer}
        case TurnStart(text=text):
            return {"prompt": text}
        case TurnEnd() as turn:
            return {"stop_hook_active": turn.continued > 0, "last_assistant_message": turn.text}
        case SessionStart(source=source, model=model):
            return {"source": source, "model": model}
        case SessionEnd(reason=reason):
            return {"reason": reason}
        case Failed() as failed:
            return {"error": failed.code, "error_details": failed.message}
        case (
            DelegationPre(agent=agent, session=session)
            | DelegationPost(agent=agent, session=session)
        ):
            return {"agent_type": agent, "agent_id": session}
        case Custom(data=data):
            return {"data": data}
        case _:
            return {}


def _call_fields(call: ToolPre | ToolPost, arguments: Mapping[str, Any]) -> dict[str, Any]:
    source = call.tool.source if call.tool is not None else ""
    names = TOOLS.get(call.name, ContractNames(call.name, {}))
    given = {names.arguments.get(key, key): value for key, value in arguments.items()}
    return {
        "tool_name": contract_tool_name(call.name, source),
        "tool_input": given,
        "tool_use_id": call.id,
    }


def translate_arguments(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Translate arguments from the contract's names into ours."""
    names = TOOLS.get(tool, ContractNames(tool, {}))
    own_names = {theirs: ours for ours, theirs in names.arguments.items()}
    return {own_names.get(key, key): value for key, value in given.items()}


# ---- answers


def parse_output(text: str, occasion: Occasion) -> Action:
    """Parse the output of a hook that succeeded. Raises NotJson.

    Output that begins with `{` is JSON. Other text is context for the model at the start of a
    session or turn, and is ignored elsewhere.
    """
    output = text.strip()
    if not output.startswith("{"):
        is_start = isinstance(occasion.payload, (SessionStart, TurnStart))
        return Action(context=output) if output and is_start else Action()
    try:
        answer: Any = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"its output begins like JSON but cannot be parsed: {error}") from error
    return parse_answer(cast("Mapping[str, Any]", answer), occasion)


def parse_answer(answer: Mapping[str, Any], occasion: Occasion) -> Action:
    """Convert an answer object to an action.

    Raises NotJson for a key of the contract whose value has the wrong type.
    """
    specific = _get(answer, "hookSpecificOutput", dict, {})
    message = _get(answer, "systemMessage", str, "")
    reason = _get(answer, "reason", str, "")
    event = _get(specific, "hookEventName", str, "")
    if event and event not in (contract_event_name(occasion), occasion.event):
        raise NotJson(
            f"it answers for `{event}`, and was asked at `{contract_event_name(occasion)}`"
        )
    decision = _get(answer, "decision", str, "")
    if decision not in ("", "approve", "block"):
        raise NotJson(f"`decision` is `{decision}`; it can be `block`")
    permission = _get(specific, "permissionDecision", str, "")
    if permission not in ("", "allow", "deny", "ask", "defer"):
        raise NotJson(
            f"`permissionDecision` is `{permission}`; it can be allow, deny, ask or defer"
        )
    why = _get(specific, "permissionDecisionReason", str, "") or reason
    context = _get(specific, "additionalContext", str, "")
    if _get(answer, "continue", bool, True) is False:
        stop = _get(answer, "stopReason", str, "") or "it gave no reason"
        return Action("block", why or stop, message=message, stop=stop)
    if permission == "deny" or decision == "block":
        return _block(occasion, why, message, context)
    verdict = "ask" if permission in ("ask", "defer") else "allow"
    return Action(
        verdict, why, payload=_changed_payload(specific, occasion), context=context, message=message
    )


def block_with_reason(text: str, occasion: Occasion) -> Action:
    """Return the action of exit code 2; `text` is the reason."""
    return _block(occasion, text.strip(), "", "")


def _block(occasion: Occasion, reason: str, message: str, context: str) -> Action:
    if isinstance(occasion.payload, ToolPost):
        # The call has already run: in the contract this is feedback for the model, and its result
        # is not withheld.
        return Action(context=" ".join(filter(None, (reason, context))), message=message)
    return Action("block", reason or "it gave no reason", message=message, context=context)


def _changed_payload(specific: Mapping[str, Any], occasion: Occasion) -> Mapping[str, Any] | None:
    payload = occasion.payload
    if isinstance(payload, ToolPre) and "updatedInput" in specific:
        return {
            "arguments": translate_arguments(payload.name, _get(specific, "updatedInput", dict, {}))
        }
    for key in ("updatedToolOutput", "updatedMCPToolOutput"):
        if isinstance(payload, ToolPost) and key in specific:
            return {"result": specific[key]}
    if "payload" in specific:
        # Ours: keys of any event's payload that the contract does not have.
        return _get(specific, "payload", dict, {})
    return None


def _get(answer: Any, key: str, kind: type, default: Any) -> Any:
    found: Any = answer.get(key)
    if found is None:
        return default
    if not isinstance(found, kind):
        raise NotJson(f"`{key}` of its answer is {type(found).__name__}, not {kind.__name__}")
    return found
