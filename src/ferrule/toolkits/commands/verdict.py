"""The answer of `command_policy(request, args)`, in one form.

    None, True     run the command
    False, text    do not; the text is the reason
    mapping        `allow` (false denies), `deny` (true or the reason), `reason`, `require_approval`
                   (true: ask the person), `request` (run this one instead), `patch` (change these
                   fields), `policy_context` (kept in the result)

Any other answer, also an unknown key, is an error of the function's author: nothing runs. A request
that was changed is judged again by every check.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import field
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen

from .policy import PolicyFunction

_KEYS = ("allow", "deny", "reason", "require_approval", "request", "patch", "policy_context")


@frozen
class Verdict:
    """A decision. `changed_arguments` are the arguments to run instead."""

    denial_reason: str = ""
    approval_reason: str = ""
    changed_arguments: Mapping[str, Any] | None = None
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def ask_policy(
    policy: PolicyFunction, request: dict[str, Any], args: Mapping[str, Any]
) -> Verdict:
    """Ask the function.

    Raises:
        ConfigError: The answer is not a verdict. Errors of the function are passed on.
    """
    answer = policy(request, args)
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is None or answer is True:
        return Verdict()
    if answer is False:
        return Verdict(denial_reason=_DEFAULT_REASON)
    if isinstance(answer, str):
        return Verdict(denial_reason=answer or _DEFAULT_REASON)
    if isinstance(answer, Mapping):
        return _read_mapping(cast("Mapping[str, Any]", answer), request)
    raise ConfigError(
        f"command_policy answered with a {type(answer).__name__}",
        hint="return None or True to allow, False or a reason to deny, or a mapping",
    )


_DEFAULT_REASON = "the command policy does not allow it"


def _read_mapping(answer: Mapping[str, Any], request: Mapping[str, Any]) -> Verdict:
    for key in answer:
        if key not in _KEYS:
            raise ConfigError(
                f"command_policy answered with the key `{key}`", hint=f"known: {', '.join(_KEYS)}"
            )
    reason = str(answer.get("reason") or "")
    deny = answer.get("deny")
    context = _get_optional_mapping(answer, "policy_context") or {}
    if deny or answer.get("allow") is False:
        return Verdict(
            denial_reason=deny if isinstance(deny, str) else reason or _DEFAULT_REASON,
            context=context,
        )
    changed = _get_optional_mapping(answer, "request")
    patch = _get_optional_mapping(answer, "patch")
    if patch:
        changed = _apply_patch(changed or request, patch)
    if changed is not None:
        changed = _drop_duplicate(changed)
    ask = ""
    if answer.get("require_approval"):
        ask = reason or "the command policy asks"
    return Verdict(approval_reason=ask, changed_arguments=changed, context=context)


def _apply_patch(request: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Change some fields of a request; a patch of the words drops the text, and the reverse."""
    kept = dict(request)
    if "argv" in patch or "command" in patch:
        kept.pop("argv", None)
        kept.pop("command", None)
    return {**kept, **patch}


def _drop_duplicate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Keep one form of the command.

    The request that a function is shown says what to run twice: the words count, in a shell the
    text.
    """
    kept = dict(request)
    if "argv" in kept and "command" in kept:
        del kept["argv" if kept.get("mode") == "shell" else "command"]
    return kept


def _get_optional_mapping(answer: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = answer.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(
            f"command_policy: `{key}` is a {type(value).__name__}", hint="give a mapping of fields"
        )
    return cast("Mapping[str, Any] | None", value)
