"""The question to the person in the editor: which answers are offered, and what each of them
grants.

Only what the gate offered can be granted, and what is granted is what the option's name says: of
several grants the narrowest, for this session and for good. Critical risk, and doing again what may
have been done, can be allowed once only. `reject_always` refuses this very call (the same
arguments) for the rest of the session without asking again; it refuses nothing else.

A question is shown as it is, never redacted: what is approved must be what was seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ferrule.connectors.json_values import mapping_of
from ferrule.core.calls import Call, compact
from ferrule.core.invisible_characters import exact
from ferrule.permissions.approvals import Answer, ApprovalRequest, Choice
from ferrule.permissions.filesystem.workspace import Workspace

from .call_updates import kind_of, locations_of, text_content, title_of
from .diffs import ahead

ALWAYS_NO = "reject_always"
_NAME = 300


@dataclass(frozen=True, slots=True)
class Option:
    """An answer that is offered: its id, the protocol's kind, the words of the button, and what it
    means.
    """

    id: str
    kind: str
    name: str
    choice: Choice
    rule: str = ""

    def shown(self) -> dict[str, str]:
        """In the protocol's JSON."""
        return {"optionId": self.id, "kind": self.kind, "name": self.name}


def options_of(request: ApprovalRequest) -> list[Option]:
    """The answers to offer, most careful yes first."""
    found = [_once(request)]
    if request.risk != "critical" and not request.died:
        if rule := _narrowest(request, "session"):
            found.append(
                Option(
                    "session", "allow_always", f"Until this session ends: {rule}", "session", rule
                )
            )
        if rule := _narrowest(request, "remember"):
            found.append(Option("remember", "allow_always", f"Always: {rule}", "remember", rule))
    found.append(Option("reject", "reject_once", "Reject", "deny"))
    found.append(
        Option(ALWAYS_NO, ALWAYS_NO, "Reject this same call for the rest of the session", "deny")
    )
    return found


def _once(request: ApprovalRequest) -> Option:
    """Yes to this. Some questions are not about a call (`approval.question_tool`): their only yes
    says what it is for.
    """
    if request.offers and all(offer.choice != "once" for offer in request.offers):
        first = request.offers[0]
        return Option(
            "once", "allow_once", _words(f"Allow: {first.rule}"), first.choice, first.rule
        )
    name = "Allow once"
    if request.died:
        name = "Run it again"
    elif request.risk == "low":
        # The gate's own rule (`Gate.settle`): a yes to low risk holds for the session, so the
        # button must not say "once".
        name = _words(f"Allow; {request.tool.full_name} is not asked about again in this session")
    return Option("once", "allow_once", name, "once")


def _narrowest(request: ApprovalRequest, choice: Choice) -> str:
    """The gate offers the narrowest first, but for low risk the whole tool before its paths. A rule
    that a button cannot show in full is not offered.
    """
    rules = [offer.rule for offer in request.offers if offer.choice == choice and offer.rule]
    rules.sort(key=lambda rule: "(" not in rule)
    return next((rule for rule in rules if _words(rule) == rule), "")


def _words(text: str) -> str:
    return " ".join(exact(text).split())[:_NAME]


class EditorApprover:
    """`permissions.approvals.Approver` for the person at the editor. `ask_editor` puts
    `session/request_permission` and gives its result.
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

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Put the question; what is not clearly one of the options is a no."""
        if request.digest in self._refused:
            note = "denied by a person, who does not want to be asked about this call again"
            return Answer("deny", by=self._user, note=note)
        options = options_of(request)
        asked = {
            "sessionId": self._session,
            "toolCall": self._call(request),
            "options": [option.shown() for option in options],
        }
        outcome = mapping_of(mapping_of(await self._ask_editor(asked)).get("outcome"))
        chosen = outcome.get("optionId")
        option = next((one for one in options if one.id == chosen), None)
        if option is None:
            return Answer("deny", by=self._user, note="no answer was given")
        if option.id == ALWAYS_NO:
            self._refused.add(request.digest)
        note = "denied by a person" if option.choice == "deny" else ""
        return Answer(option.choice, option.rule, by=self._user, note=note)

    def _call(self, request: ApprovalRequest) -> dict[str, Any]:
        # With the arguments as they would run: hooks and defaults have been at what the model sent.
        call = Call(request.call.id, request.call.tool, compact(_plain(request.values)))
        diff = ahead(request.tool, request.values, self._workspace)
        why = f"why it asks: {request.reason}\nrisk: {request.risk}"
        if request.labels:
            why += f"\nlabels: {', '.join(request.labels)}"
        content = [text_content(exact(why))]
        if diff is not None:
            content.insert(0, diff)
        elif request.preview:
            content.insert(0, text_content(exact(request.preview)))
        return {
            "toolCallId": self._id(request),
            "title": title_of(call, request.tool),
            "kind": kind_of(request.tool),
            "status": "pending",
            "content": content,
            "locations": locations_of(call, request.tool, self._workspace),
            "rawInput": _plain(request.values),
        }

    def _id(self, request: ApprovalRequest) -> str:
        """The call's. A sub-agent's calls, which the editor has not been told of, carry its
        session.
        """
        if request.identity.session != self._session:
            return f"{request.identity.session}:{request.call.id}"
        return request.call.id


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON; what has no JSON form is spelled out."""
    return {name: value if _is_json(value) else repr(value) for name, value in values.items()}


def _is_json(value: Any) -> bool:
    try:
        compact(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
