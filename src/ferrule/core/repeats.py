"""The breaker for a model that asks the same thing again and again.

Identical means: same tool, same arguments (as JSON values), same answer. The second identical
answer carries a warning, the third is replaced by a redirect, the fourth call is refused before it
runs. Tools that poll by nature are exempt. Counts live as long as the run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from .calls import Call, ErrorType, Result


@dataclass(slots=True)
class _Seen:
    answer: str
    count: int


class Repeats:
    """Counts identical call-and-answer pairs of one run."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._keys: dict[str, tuple[str, str]] = {}

    def refusal(self, call: Call) -> Result | None:
        """The answer to a fourth identical call, or None if it may run."""
        key = self._keys[call.id] = _key(call)
        seen = self._seen.get(key)
        if seen is None or seen.count < 3:
            return None
        return Result.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` was not run: three identical calls gave the same answer. "
            "Use what you have, change the arguments, or answer now.",
        )

    def observe(self, call: Call, result: Result) -> Result:
        """The result as the model should see it, after counting it."""
        answer = result.error_message or "" if not result.success else _text(result)
        key = self._keys.pop(call.id, None) or _key(call)
        seen = self._seen.get(key)
        if seen is None or seen.answer != answer:
            self._seen[key] = _Seen(answer, 1)
            return result
        seen.count += 1
        if seen.count == 2:
            note = (
                f"[note: this is the same answer as before; calling `{call.tool}` again will not change it]"
            )
            return replace(result, notes=(*result.notes, note))
        return Result.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` gave this same answer {seen.count} times; it is in the conversation above. "
            "Do something else or answer now.",
            timestamp=result.timestamp,
        )


def _key(call: Call) -> tuple[str, str]:
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return call.tool, arguments


def _text(result: Result) -> str:
    return result.data if isinstance(result.data, str) else json.dumps(result.data, sort_keys=True)
