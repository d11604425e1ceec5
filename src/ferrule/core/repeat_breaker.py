"""The breaker for a model that asks the same thing again and again.

Identical means: same tool, same arguments (as JSON values), same answer. The second identical
answer carries a warning, the third is replaced by a redirect, the fourth call is refused before it
runs. Tools that poll by nature are exempt. Counts live as long as the run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from .calls import Call, ErrorType, Result

_sorted = json.JSONEncoder(sort_keys=True).encode


@dataclass(slots=True)
class Repeats:
    """Counts identical call-and-answer pairs of one run.

    `seen` is the last answer and how often it came, by tool and arguments; `keys` those of the
    calls under way.
    """

    seen: dict[tuple[str, str], tuple[str, int]] = field(
        default_factory=dict[tuple[str, str], tuple[str, int]]
    )
    keys: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def refusal(self, call: Call) -> Result | None:
        """The answer to a fourth identical call, or None if it may run. To be asked once, before
        `observe`.
        """
        try:
            arguments = _sorted(json.loads(call.arguments))
        except (ValueError, RecursionError):
            arguments = call.arguments
        key = self.keys[call.id] = (call.tool, arguments)
        if self.seen.get(key, ("", 0))[1] < 3:
            return None
        return Result.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` was not run: three identical calls gave the same answer. "
            "Use what you have, change the arguments, or answer now.",
        )

    def observe(self, call: Call, result: Result) -> Result:
        """The result as the model should see it, after counting it."""
        answer = result.data if result.success else result.error_message or ""
        if not isinstance(answer, str):
            answer = _sorted(answer)
        key = self.keys.pop(call.id)
        before, count = self.seen.get(key, ("", 0))
        count = count + 1 if before == answer else 1
        self.seen[key] = (answer, count)
        if count == 1:
            return result
        if count == 2:
            note = (
                f"[note: this is the same answer as before; calling `{call.tool}` again will not "
                "change it]"
            )
            return replace(result, notes=(*result.notes, note))
        return Result.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` gave this same answer {count} times; it is in the conversation above. "
            "Do something else or answer now.",
            timestamp=result.timestamp,
        )
