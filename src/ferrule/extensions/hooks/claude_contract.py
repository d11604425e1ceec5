"""The JSON contract of command and web hooks: their input, and what their answers mean.

Source: conventions §3.4. A script written for Claude Code works unchanged: it reads
`hook_event_name`, `tool_name`, `tool_input`, … with that program's names (`claude_tool_names`), and
its `updatedInput` is translated back into ours. The additional key `ferrule` holds the payload with
our own names. One deviation, which the conventions ask for: at an event that a hook may refuse
there, an exit code other than 0 and 2, a timeout and an unreadable answer all block. At the other
events they are reported, and nothing is withheld.

`transcript_path` is empty: sessions are in the journal, not in a file. `defer` counts as `ask`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
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

from .claude_tool_names import (
    ToolInput,
    build_tool_inputs,
    build_tool_response,
    find_contract_names,
    restore_result,
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
    "ConfigChange",
    "CwdChanged",
    "DirectoryAdded",
    "Elicitation",
    "ElicitationResult",
    "FileChanged",
    "InstructionsLoaded",
    "MessageDisplay",
    "Notification",
    "PermissionDenied",
    "PermissionRequest",
    "PostCompact",
    "PostModelSwitch",
    "PostToolBatch",
    "PreCompact",
    "PreModelSwitch",
    "Setup",
    "TaskCompleted",
    "TaskCreated",
    "TeammateIdle",
    "UserPromptExpansion",
    "WorktreeCreate",
    "WorktreeRemove",
)
"""Claude Code's events that are never fired here. Hooks on them are reported as without effect."""

OBSERVING = frozenset(
    {"PostToolUse", "PostToolUseFailure", "SessionStart", "SubagentStart", "StopFailure"}
)
"""Events of the contract at which a hook can refuse nothing there, and so does not here."""


@frozen
class HookQuestion:
    """An event as one hook is asked about it.

    Attributes:
        occasion: The event.
        event: The event's name in the hook's own file, "" if it has none of the contract.
        tool: The name by which the hook's matcher knows the call's tool, "" for the first.
        number: Which of the files that the call changes; a hook is asked once for each.
    """

    occasion: Occasion
    event: str = ""
    tool: str = ""
    number: int = 0

    def split(self) -> list[HookQuestion]:
        """Return one question for each file that a call changes."""
        payload = self.occasion.payload
        if not isinstance(payload, (ToolPre, ToolPost)):
            return [self]
        count = len(build_tool_inputs(payload, self._tool_name(payload), self.occasion.workspace))
        return [HookQuestion(self.occasion, self.event, self.tool, i) for i in range(count)]

    def build_input(self) -> dict[str, Any]:
        """Build the JSON object that a command or web hook reads."""
        occasion = self.occasion
        identity = occasion.identity
        common: dict[str, Any] = {
            "session_id": identity.session,
            "transcript_path": "",
            "cwd": occasion.workspace,
            "permission_mode": occasion.mode,
            "hook_event_name": contract_event_name(occasion),
        }
        payload = occasion.payload
        if payload.agent_type:
            common |= {"agent_type": payload.agent_type, "agent_id": payload.agent_id}
        ours = {"event": occasion.event, "run": identity.run, "payload": payload.as_dict()}
        fields = (
            self._call_fields(payload)
            if isinstance(payload, (ToolPre, ToolPost))
            else _event_fields(occasion)
        )
        return {**common, **fields, "ferrule": ours}

    def _tool_name(self, call: ToolPre | ToolPost) -> str:
        return self.tool or find_contract_names(call)[0]

    def _tool_input(self, call: ToolPre | ToolPost) -> ToolInput:
        name = self._tool_name(call)
        return build_tool_inputs(call, name, self.occasion.workspace)[self.number]

    def _call_fields(self, call: ToolPre | ToolPost) -> dict[str, Any]:
        name = self._tool_name(call)
        values = self._tool_input(call).values
        fields = {"tool_name": name, "tool_input": values, "tool_use_id": call.id}
        if not isinstance(call, ToolPost):
            return fields
        if call.success:
            return {**fields, "tool_response": build_tool_response(call, name, values)}
        return {**fields, "error": call.message, "is_interrupt": call.error == "cancelled"}

    # ---- answers

    def parse_output(self, text: str) -> Action:
        """Parse the output of a hook that succeeded. Raises NotJson.

        Output that begins with `{` is JSON. Other text is context for the model at the start of a
        session or turn, and is ignored elsewhere.
        """
        output = text.strip()
        if not output.startswith("{"):
            is_start = isinstance(self.occasion.payload, (SessionStart, TurnStart))
            return Action(context=output) if output and is_start else Action()
        try:
            answer: Any = json.loads(output)
        except (ValueError, RecursionError) as error:
            raise NotJson(f"its output begins like JSON but cannot be parsed: {error}") from error
        return self._parse_answer(cast("Mapping[str, Any]", answer))

    def _parse_answer(self, answer: Mapping[str, Any]) -> Action:
        """Convert an answer object to an action.

        Raises NotJson for a key of the contract whose value has the wrong type.
        """
        specific = _get(answer, "hookSpecificOutput", dict, {})
        message = _get(answer, "systemMessage", str, "")
        reason = _get(answer, "reason", str, "")
        event = _get(specific, "hookEventName", str, "")
        asked = contract_event_name(self.occasion)
        if event and event not in (asked, self.occasion.event):
            raise NotJson(f"it answers for `{event}`, and was asked at `{asked}`")
        decision = _choice(answer, "decision", ("approve", "allow", "block", "deny", "ask"))
        permission = _choice(specific, "permissionDecision", ("allow", "deny", "ask", "defer"))
        why = _get(specific, "permissionDecisionReason", str, "") or reason
        context = _get(specific, "additionalContext", str, "")
        if _get(answer, "continue", bool, True) is False:
            stop = _get(answer, "stopReason", str, "") or "it gave no reason"
            return Action("block", why or stop, message=message, stop=stop)
        if permission == "deny" or decision in ("block", "deny"):
            return self._block(why, message, context)
        verdict = "ask" if permission in ("ask", "defer") or decision == "ask" else "allow"
        changed = self._changed_payload(specific)
        return Action(verdict, why, payload=changed, context=context, message=message)

    def block_with_reason(self, text: str) -> Action:
        """Return the action of exit code 2; `text` is the reason."""
        return self._block(text.strip(), "", "")

    def _block(self, reason: str, message: str, context: str) -> Action:
        if isinstance(self.occasion.payload, ToolPost):
            # The call has already run: in the contract this is feedback for the model, and its
            # result is not withheld.
            return Action(context=" ".join(filter(None, (reason, context))), message=message)
        if self.event in OBSERVING:
            return Action(context=context, message=message or reason)
        return Action("block", reason or "it gave no reason", message=message, context=context)

    def _changed_payload(self, specific: Mapping[str, Any]) -> Mapping[str, Any] | None:
        payload = self.occasion.payload
        if isinstance(payload, ToolPre) and "updatedInput" in specific:
            given = _get(specific, "updatedInput", dict, {})
            sent = self._tool_input(payload)
            return {"arguments": sent.restore_arguments(given, payload.arguments)}
        for key in ("updatedToolOutput", "updatedMCPToolOutput"):
            if isinstance(payload, ToolPost) and key in specific:
                return {"result": restore_result(specific[key], payload)}
        if "payload" in specific:
            # Ours: keys of any event's payload that the contract does not have.
            return _get(specific, "payload", dict, {})
        return None


async def ask_about_each_file(
    question: HookQuestion, ask: Callable[[HookQuestion], Awaitable[Action]]
) -> Action:
    """Ask a hook once for each file that a call changes; the first refusal ends it.

    Raises NotJson if it changes the input of one file of several.
    """
    parts = question.split()
    combined = Action()
    for part in parts:
        action = await ask(part)
        if len(parts) == 1 or action.verdict == "block":
            return action
        if action.payload is not None:
            raise NotJson("it changes a call that changes several files")
        stronger = action if action.verdict != "allow" else combined
        context = " ".join(filter(None, (combined.context, action.context)))
        message = " ".join(filter(None, (combined.message, action.message)))
        combined = replace(stronger, context=context, message=message)
    return combined


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


def _event_fields(occasion: Occasion) -> dict[str, Any]:
    match occasion.payload:
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
        case DelegationPre(agent=agent, session=session):
            return {"agent_type": agent, "agent_id": session}
        case DelegationPost(agent=agent, session=session, result=result):
            said = result if isinstance(result, str) else json.dumps(result, default=str)
            about = {"agent_type": agent, "agent_id": session, "stop_hook_active": False}
            return {**about, "agent_transcript_path": "", "last_assistant_message": said}
        case Custom(data=data):
            return {"data": data}
        case _:
            return {}


def _choice(answer: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    found = _get(answer, key, str, "")
    if found and found not in known:
        raise NotJson(f"`{key}` is `{found}`; it can be {', '.join(known)}")
    return found


def _get(answer: Any, key: str, kind: type, default: Any) -> Any:
    found: Any = answer.get(key)
    if found is None:
        return default
    if not isinstance(found, kind):
        raise NotJson(f"`{key}` of its answer is {type(found).__name__}, not {kind.__name__}")
    return found
