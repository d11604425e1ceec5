"""What `command_policy(request, args)` said, in one form.

    None, True               run it
    False, text              do not; the text is the reason
    mapping                  `allow` (false denies), `deny` (true or the reason), `reason`, `require_approval` (true: ask
                             the person), `request` (run this one instead), `patch` (change these
                             fields), `policy_context` (kept in the result)

Anything else, also an unknown key, is an error of the one who wrote the function: nothing runs. A
request that was changed is judged again by everything.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ferrule.core.errors import ConfigError

from .policy import PolicyFunction

_KEYS = ("allow", "deny", "reason", "require_approval", "request", "patch", "policy_context")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`denied` is the reason for a no. `changed` are the arguments of the request to run
    instead.
    """

    denied: str = ""
    ask: str = ""
    changed: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def judge(
    policy: PolicyFunction, request: dict[str, Any], args: Mapping[str, Any]
) -> Verdict:
    """Ask the function. Raises ConfigError for an answer that means nothing, and what the function
    raises.
    """
    answer = policy(request, args)
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is None or answer is True:
        return Verdict()
    if answer is False:
        return Verdict(denied=_NO)
    if isinstance(answer, str):
        return Verdict(denied=answer or _NO)
    if isinstance(answer, Mapping):
        return _read(cast("Mapping[str, Any]", answer), request)
    raise ConfigError(
        f"command_policy answered with a {type(answer).__name__}",
        hint="return None or True to allow, False or a reason to deny, or a mapping",
    )


_NO = "the command policy does not allow it"


def _read(answer: Mapping[str, Any], request: Mapping[str, Any]) -> Verdict:
    for key in answer:
        if key not in _KEYS:
            raise ConfigError(
                f"command_policy answered with the key `{key}`", hint=f"known: {', '.join(_KEYS)}"
            )
    reason, deny = str(answer.get("reason") or ""), answer.get("deny")
    context = _mapping(answer, "policy_context") or {}
    if deny or answer.get("allow") is False:
        return Verdict(denied=deny if isinstance(deny, str) else reason or _NO, context=context)
    changed = _mapping(answer, "request")
    if patch := _mapping(answer, "patch"):
        changed = _patched(changed or request, patch)
    changed = _said_once(changed) if changed is not None else None
    ask = (reason or "the command policy asks") if answer.get("require_approval") else ""
    return Verdict(ask=ask, changed=changed, context=context)


def _patched(request: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The request with some fields changed; who changes one of words and text drops the other."""
    said = "argv" in patch or "command" in patch
    kept = {
        key: value for key, value in request.items() if not (said and key in ("command", "argv"))
    }
    return {**kept, **patch}


def _said_once(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request that a function was shown says what to run twice: the words count, in a shell the
    text.
    """
    dropped = "argv" if request.get("mode") == "shell" else "command"
    both = "argv" in request and "command" in request
    return {key: value for key, value in request.items() if not (both and key == dropped)}


def _mapping(answer: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = answer.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(
            f"command_policy: `{key}` is a {type(value).__name__}", hint="give a mapping of fields"
        )
    return cast("Mapping[str, Any] | None", value)
