"""Approval questions to the person in the editor: which answers are offered, and what they grant.

Only what the gate offered can be granted, and the option's name says what that is: of several
grants the narrowest one, for this session and permanently. Calls of critical risk, and calls that
may have run before, can be allowed once only. `reject_always` denies this very call (the same
arguments) for the rest of the session without asking again; it denies nothing else.

A question is shown as it is, never redacted: what is approved must be what was seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import ApprovalChoice
from ferrule.permissions.approval_text import describe_call
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.permissions.filesystem.workspace import Workspace

from .call_updates import call_kind, call_locations, call_title, text_content
from .diffs import preview_diff

REJECT_ALWAYS = "reject_always"
_NAME = 300


@frozen
class Option:
    """An answer that is offered: its id, the protocol's kind, the button's text, its meaning."""

    id: str
    kind: str
    name: str
    choice: ApprovalChoice
    rule: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the option in the protocol's JSON."""
        return {"optionId": self.id, "kind": self.kind, "name": self.name}


def build_options(request: ApprovalRequest) -> list[Option]:
    """Return the answers to offer, the most careful approval first."""
    found = [_once_option(request)]
    if request.risk != "critical" and not request.has_unknown_outcome:
        if rule := _narrowest_rule(request, "session"):
            found.append(
                Option(
                    "session", "allow_always", f"Until this session ends: {rule}", "session", rule
                )
            )
        if (wide := _widest_edit_rule(request)) and wide != rule:
            name = f"Until this session ends: {wide}"
            found.append(Option("session-edits", "allow_always", name, "session", wide))
        if rule := _narrowest_rule(request, "remember"):
            found.append(Option("remember", "allow_always", f"Always: {rule}", "remember", rule))
    found.append(Option("reject", "reject_once", "Reject", "deny"))
    found.append(
        Option(
            REJECT_ALWAYS,
            REJECT_ALWAYS,
            "Reject this same call for the rest of the session",
            "deny",
        )
    )
    return found


def _once_option(request: ApprovalRequest) -> Option:
    """Return the approval of this call.

    Some questions are not about a call (`approval.make_question_tool`): their only approval says
    what it is for.
    """
    if all(offer.choice != "once" for offer in request.offers):
        first = request.offers[0]
        return Option(
            "once", "allow_once", _button_text(f"Allow: {first.rule}"), first.choice, first.rule
        )
    name = "Allow once"
    if request.has_unknown_outcome:
        name = "Run it again"
    elif request.risk == "low":
        # By the gate's rule (`PermissionGate.apply_answer`), an approval of low risk applies to the
        # session, so the button must not say "once".
        name = _button_text(
            f"Allow; {request.tool.full_name} is not asked about again in this session"
        )
    return Option("once", "allow_once", name, "once")


def _narrowest_rule(request: ApprovalRequest, choice: ApprovalChoice) -> str:
    """Return the narrowest rule that a button can show in full, or "".

    The gate offers the narrowest first, except for low risk: there the whole tool comes before its
    paths.
    """
    rules = [offer.rule for offer in request.offers if offer.choice == choice and offer.rule]
    rules.sort(key=lambda rule: "(" not in rule)
    return next((rule for rule in rules if _button_text(rule) == rule), "")


def _widest_edit_rule(request: ApprovalRequest) -> str:
    """Return the last offer for edits in the session, which covers the most of them, or ""."""
    rules = [offer.rule for offer in request.offers if offer.choice == "session"]
    edits = [rule for rule in rules if rule.startswith("Edit(") and _button_text(rule) == rule]
    return edits[-1] if edits else ""


def _button_text(text: str) -> str:
    return " ".join(escape_for_approval(text).split())[:_NAME]


class EditorApprover:
    """`permissions.approvals.Approver` for the person at the editor.

    `ask_editor` sends `session/request_permission` and returns its result.
    """

    asks_about_unknown = True

    def __init__(
        self,
        session: str,
        ask_editor: Callable[[Mapping[str, Any]], Awaitable[Any]],
        *,
        user: str,
        workspace: Workspace | None,
    ) -> None:
        self._session = session
        self._ask_editor = ask_editor
        self._user = user
        self._workspace = workspace
        self._refused: set[str] = set()

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask the person. Anything that is not clearly one of the options denies the call."""
        if request.digest in self._refused:
            note = "denied by a person, who asked not to see this call again in this session"
            return ApprovalAnswer("deny", by=self._user, note=note)
        options = build_options(request)
        asked = {
            "sessionId": self._session,
            "toolCall": self._call(request),
            "options": [option.to_json() for option in options],
        }
        outcome = mapping_or_empty(mapping_or_empty(await self._ask_editor(asked)).get("outcome"))
        chosen = outcome.get("optionId")
        option = next((one for one in options if one.id == chosen), None)
        if option is None:
            note = "no answer was given"
            return ApprovalAnswer("deny", by=self._user, note=note, refused_by="nobody")
        if option.id == REJECT_ALWAYS:
            self._refused.add(request.digest)
        note = "denied by a person" if option.choice == "deny" else ""
        return ApprovalAnswer(option.choice, option.rule, by=self._user, note=note)

    def _call(self, request: ApprovalRequest) -> dict[str, Any]:
        # With the arguments as they would run, which hooks and defaults may have changed.
        call = ToolCall(request.call.id, request.call.tool, encode_json(_to_json(request.values)))
        diff = preview_diff(request.tool, request.values, self._workspace)
        why = f"why it asks: {request.reason}\nrisk: {request.risk}"
        if request.labels:
            why += f"\nlabels: {', '.join(request.labels)}"
        content = [text_content(escape_for_approval(why))]
        if diff is not None:
            content.insert(0, diff)
        else:
            content.insert(0, text_content(describe_call(request)))
        return {
            "toolCallId": self._id(request),
            "title": call_title(call, request.tool),
            "kind": call_kind(request.tool),
            "status": "pending",
            "content": content,
            "locations": call_locations(call, request.tool, self._workspace),
            "rawInput": _to_json(request.values),
        }

    def _id(self, request: ApprovalRequest) -> str:
        """Return the call's id; that of a sub-agent's call gets its session as prefix."""
        if request.identity.session != self._session:
            return f"{request.identity.session}:{request.call.id}"
        return request.call.id


def _to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON, with `repr` for those that have no JSON form."""
    return {name: value if _is_json(value) else repr(value) for name, value in values.items()}


def _is_json(value: Any) -> bool:
    try:
        encode_json(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
