"""Stops a model that makes the same call again and again.

Calls are identical if they have the same tool, the same arguments (as JSON values) and the same
answer. The second identical answer carries a warning, the third is replaced by an error that asks
for something else, and the fourth call is refused before it runs. Tools that poll are exempt.
Counts last for one run.
"""

from __future__ import annotations

import json
from dataclasses import field, replace

from .calls import ErrorType, ToolCall, ToolResult, decode_arguments
from .value_class import mutable

_encode_sorted = json.JSONEncoder(sort_keys=True).encode


@mutable
class RepeatBreaker:
    """Counts identical calls and answers of one run.

    Attributes:
        seen: The last answer and how often it came in a row, by tool and arguments.
        keys: Tool and arguments of the calls that have no answer yet, by call id.
    """

    seen: dict[tuple[str, str], tuple[str, int]] = field(
        default_factory=dict[tuple[str, str], tuple[str, int]]
    )
    keys: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def refuse_repeat(self, call: ToolCall) -> ToolResult | None:
        """Return the error for a fourth identical call, or None if the call may run.

        Must be called once per call, before `count_result`.
        """
        try:
            arguments = _encode_sorted(decode_arguments(call.arguments)[0])
        except (ValueError, RecursionError):
            arguments = call.arguments
        key = (call.tool, arguments)
        self.keys[call.id] = key
        if self.seen.get(key, ("", 0))[1] < 3:
            return None
        return ToolResult.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` was not run: three identical calls gave the same answer. "
            "Use what you have, change the arguments, or answer now.",
        )

    def count_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Count a result and return it as the model should see it."""
        answer = result.data if result.success else result.error_message or ""
        if not isinstance(answer, str):
            answer = _encode_sorted(answer)
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
        return ToolResult.error(
            call,
            ErrorType.LIMIT,
            f"`{call.tool}` gave this same answer {count} times; it is in the conversation above. "
            "Do something else or answer now.",
            timestamp=result.timestamp,
        )
