"""Read a hook's answer strictly: anything that is not clearly an answer counts as a broken hook.

    None                                          allow
    Action, Block, Change                         as they are
    {"action": "allow", "context": "…"}           also `message`
    {"action": "block", "reason": "…"}            also `ask`
    {"action": "modify", "payload": {…}}
    {"action": "delegate", "request": {…}}

Never an answer: True, False, a text, a list, a dictionary with a key that is not in this table. A
hook that returns `False` for "no" must not be taken for one that allows everything (systems.md
§4.1: there anything else was a yes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from .call_hooks import Ask, Block, Change
from .events import Action, NotJson, Payload, json_value

MAX_TEXT = 4096
"""Characters of a reason, a context or a message; the rest is cut, with a note."""

_KEYS: dict[str, frozenset[str]] = {
    "allow": frozenset({"context", "message"}),
    "block": frozenset({"reason", "message"}),
    "ask": frozenset({"reason", "message"}),
    "modify": frozenset({"payload", "context", "message"}),
    "delegate": frozenset({"request", "message"}),
}
_VERDICTS: dict[str, Literal["allow", "block", "ask", "delegate"]] = {
    "allow": "allow",
    "block": "block",
    "ask": "ask",
    "modify": "allow",
    "delegate": "delegate",
}


def read_answer(answer: object, payload: Payload) -> Action:
    """Return the action that an answer to `payload` means.

    Raises NotJson, saying what was found.
    """
    match answer:
        case None:
            return Action()
        case Action():
            action = answer
        case Block():
            action = Action("block", answer.reason)
        case Ask():
            action = Action("ask", answer.reason)
        case Change():
            action = Action(payload={"arguments": json_value(answer.arguments)})
        case Mapping():
            action = _from_mapping(cast("Mapping[Any, Any]", answer))
        case _:
            raise NotJson(
                f"it answered {_show(answer)}; an answer is `allow`, `block`, `modify`, "
                "`ask` or `delegate`"
            )
    return _check(action, payload)


def _from_mapping(answer: Mapping[Any, Any]) -> Action:
    verdict = answer.get("action")
    known = _KEYS.get(verdict) if isinstance(verdict, str) else None
    if known is None:
        raise NotJson(f"it answered with the action {_show(verdict)}")
    unknown = [key for key in answer if key != "action" and key not in known]
    if unknown:
        raise NotJson(f"its answer `{verdict}` has the key {_show(unknown[0])}")
    reason, context, message = (answer.get(key) or "" for key in ("reason", "context", "message"))
    change = _require_object(answer, "payload") if verdict == "modify" else None
    request = _require_object(answer, "request") if verdict == "delegate" else None
    meant = _VERDICTS[cast("str", verdict)]
    return Action(meant, reason, change, request, context, message)


def _require_object(answer: Mapping[Any, Any], key: str) -> Mapping[str, Any]:
    found = answer.get(key)
    if not isinstance(found, Mapping):
        raise NotJson(f"`{key}` of its answer must be an object, found {_show(found)}")
    return cast("Mapping[str, Any]", found)


def _check(action: Action, payload: Payload) -> Action:
    texts: dict[str, str] = {}
    for name in ("reason", "context", "message", "stop"):
        text: object = getattr(action, name)
        if not isinstance(text, str):
            raise NotJson(f"`{name}` of its answer must be a text, found {_show(text)}")
        texts[name] = text
        if len(text) > MAX_TEXT:
            texts[name] = text[:MAX_TEXT] + f" [cut: {len(text)} characters]"
    if action.verdict not in ("allow", "block", "ask", "delegate"):
        raise NotJson(f"it answered {_show(action.verdict)}")
    if action.verdict in ("block", "ask") and not texts["reason"]:
        texts["reason"] = "it gave no reason"
    change = None if action.payload is None else json_value(action.payload)
    if change is not None:
        payload.replace(change)
    request = None if action.request is None else json_value(action.request)
    if action.verdict == "delegate" and (request is None or payload.event != "tool.pre"):
        raise NotJson(
            f"it delegates at `{payload.event}`; only a call (`tool.pre`) can be delegated"
        )
    return Action(action.verdict, payload=change, request=request, **texts)


def _show(value: object) -> str:
    """Show a value in a message, short; its own text may fail too."""
    try:
        return repr(value)[:80]
    except Exception:  # noqa: BLE001  boundary: the kind is all there is to say
        return type(value).__name__
