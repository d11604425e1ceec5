"""The JSON contract of command and web hooks: what they read, and what their answers mean
(conventions §3.4).

A script written for Claude Code works unchanged: it reads `hook_event_name`, `tool_name`,
`tool_input`, … in that program's names (`Bash`, `Write`, `file_path`) and its `updatedInput` is
taken back into ours. Beside them stands `ferrule`, the payload in our own names. The deviation that
conventions ask for: at an event that gates something, an exit code other than 0 and 2, time that
ran out and an answer that cannot be read are a no.

`transcript_path` is empty: sessions are in the journal, not in a file. `defer` counts as `ask`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ferrule.engine.hooks.events import (
    Action,
    Custom,
    DelegationPost,
    DelegationPre,
    Failed,
    Garbage,
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
"""Their events and ours. Our own names can be written as well."""

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
"""Theirs that nothing here fires. A hook on one is said to be without effect."""


@dataclass(frozen=True, slots=True)
class Names:
    """A tool of ours as the contract names it: the tool's name there, and its arguments' names
    where they differ.
    """

    tool: str
    arguments: Mapping[str, str]


TOOLS: dict[str, Names] = {
    "run_command": Names("Bash", {}),
    "read_file": Names("Read", {"path": "file_path"}),
    "write_file": Names("Write", {"path": "file_path"}),
    "edit_file": Names("Edit", {"path": "file_path"}),
    "search_files": Names("Grep", {}),
    "list_files": Names("LS", {}),
}


def contract_name(tool: str, source: str = "") -> str:
    """A tool's name in the contract: `Bash`, `mcp__server__tool`, or its own."""
    if tool in TOOLS:
        return TOOLS[tool].tool
    return f"mcp__{tool}" if source.startswith("mcp") else tool


def event_name(occasion: Occasion) -> str:
    """An event's name in the contract; ours where it has none."""
    match occasion.payload:
        case ToolPost(success=success):
            return "PostToolUse" if success else "PostToolUseFailure"
        case _:
            return next(
                (theirs for theirs, ours in EVENTS.items() if ours == occasion.event),
                occasion.event,
            )


def told(occasion: Occasion) -> dict[str, Any]:
    """What a command or web hook reads."""
    who = occasion.identity
    common: dict[str, Any] = {
        "session_id": who.session,
        "transcript_path": "",
        "cwd": occasion.workspace,
        "permission_mode": occasion.mode,
        "hook_event_name": event_name(occasion),
    }
    if occasion.payload.agent_type:
        common |= {"agent_type": occasion.payload.agent_type, "agent_id": occasion.payload.agent_id}
    ours = {"event": occasion.event, "run": who.run, "payload": occasion.payload.as_dict()}
    return {**common, **_own(occasion), "ferrule": ours}


def _own(occasion: Occasion) -> dict[str, Any]:
    match occasion.payload:
        case ToolPre() as call:
            return _call(call, call.arguments)
        case ToolPost() as call:
            answer = {"tool_response": call.result} if call.success else {"error": call.message}
            return {**_call(call, call.arguments or {}), **answer}
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


def _call(call: ToolPre | ToolPost, arguments: Mapping[str, Any]) -> dict[str, Any]:
    source = call.tool.source if call.tool is not None else ""
    names = TOOLS.get(call.name, Names(call.name, {}))
    given = {names.arguments.get(key, key): value for key, value in arguments.items()}
    return {
        "tool_name": contract_name(call.name, source),
        "tool_input": given,
        "tool_use_id": call.id,
    }


def own_arguments(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in the contract's names as ours."""
    back = {theirs: ours for ours, theirs in TOOLS.get(tool, Names(tool, {})).arguments.items()}
    return {back.get(key, key): value for key, value in given.items()}


# ---- answers


def read_output(text: str, occasion: Occasion) -> Action:
    """What a hook that succeeded has said. Raises Garbage.

    JSON if it begins with `{`; other text is context for the model at the start of a session or a
    turn, and means nothing elsewhere.
    """
    said = text.strip()
    if not said.startswith("{"):
        at_start = isinstance(occasion.payload, (SessionStart, TurnStart))
        return Action(context=said) if said and at_start else Action()
    try:
        answer: Any = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise Garbage(f"its output begins like JSON and is none: {error}") from error
    return read_answer(cast("Mapping[str, Any]", answer), occasion)


def read_answer(answer: Mapping[str, Any], occasion: Occasion) -> Action:
    """The action that an answer object means. Raises Garbage for a key of the contract with the
    wrong kind of value.
    """
    specific = _part(answer, "hookSpecificOutput", dict, {})
    message = _part(answer, "systemMessage", str, "")
    reason = _part(answer, "reason", str, "")
    named = _part(specific, "hookEventName", str, "")
    if named and named not in (event_name(occasion), occasion.event):
        raise Garbage(f"it answers for `{named}`, and was asked at `{event_name(occasion)}`")
    decided = _part(answer, "decision", str, "")
    if decided not in ("", "approve", "block"):
        raise Garbage(f"`decision` is `{decided}`; it can be `block`")
    permission = _part(specific, "permissionDecision", str, "")
    if permission not in ("", "allow", "deny", "ask", "defer"):
        raise Garbage(
            f"`permissionDecision` is `{permission}`; it can be allow, deny, ask or defer"
        )
    why = _part(specific, "permissionDecisionReason", str, "") or reason
    context = _part(specific, "additionalContext", str, "")
    if _part(answer, "continue", bool, True) is False:
        stop = _part(answer, "stopReason", str, "") or "it said so"
        return Action("block", why or stop, message=message, stop=stop)
    if permission == "deny" or decided == "block":
        return _refused(occasion, why, message, context)
    verdict = "ask" if permission in ("ask", "defer") else "allow"
    return Action(
        verdict, why, payload=_change(specific, occasion), context=context, message=message
    )


def refused_by(text: str, occasion: Occasion) -> Action:
    """What exit code 2 means: `text` is the reason."""
    return _refused(occasion, text.strip(), "", "")


def _refused(occasion: Occasion, reason: str, message: str, context: str) -> Action:
    if isinstance(occasion.payload, ToolPost):
        # The call has run: in the contract this is a word to the model about it, and withholds
        # nothing.
        return Action(context=" ".join(part for part in (reason, context) if part), message=message)
    return Action("block", reason or "it gave no reason", message=message, context=context)


def _change(specific: Mapping[str, Any], occasion: Occasion) -> Mapping[str, Any] | None:
    payload = occasion.payload
    if isinstance(payload, ToolPre) and "updatedInput" in specific:
        return {"arguments": own_arguments(payload.name, _part(specific, "updatedInput", dict, {}))}
    for key in ("updatedToolOutput", "updatedMCPToolOutput"):
        if isinstance(payload, ToolPost) and key in specific:
            return {"result": specific[key]}
    if "payload" in specific:
        # Ours: any event's own keys, where the contract has no word for them.
        return _part(specific, "payload", dict, {})
    return None


def _part(answer: Any, key: str, kind: type, default: Any) -> Any:
    found: Any = answer.get(key)
    if found is None:
        return default
    if not isinstance(found, kind):
        raise Garbage(f"`{key}` of its answer is {type(found).__name__}, not {kind.__name__}")
    return found
