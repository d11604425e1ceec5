"""The last check before a model sees a request: large raw content belongs in an artifact.

The check wraps the conversation of any model client, runs after the hooks, and looks at each
message once, when it is new. A leak is

* a tool result of `limit` bytes or more that is not a stub (results are truncated and stored much
  earlier; this finds what got around that),
* a data URL of that size in a tool result or a user message: no model reads base64,
* a user message of that size that repeats the text of a stored result (`find_repeated_result`).

Not a leak: the user's own text of any length, and what the model itself said. Notices after a
result and notes of a tool that bounds its own output are not counted. Large content that was cut
into smaller messages is not found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ferrule.core.calls import encode_json
from ferrule.core.errors import ContextLeak
from ferrule.core.events import ModelAnswered
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.core.value_class import mutable

from .client import Exchange, Sink

LEAK_TOPIC = "llm.context_leak"
"""The topic of the notice that a leak leaves in the journal."""

_DATA_URL = compile_lazily(
    r"data:[\w.+-]{1,60}/[\w.+-]{1,90}[^,\s]{0,90};base64,([A-Za-z0-9+/=_-]*)"
)
_NOTICE_START = '\n<notice source="'
_RESULT_START = '{"success":'


@mutable
class LeakCheckedExchange:
    """An `Exchange` that raises ContextLeak instead of sending a history that contains a leak.

    `limit` is in bytes; results of the tools in `inline_tools` may be as large as any result. The
    first `checked` messages are not checked: a session that goes on checked them when they were
    new. `find_repeated_result` returns the name of the stored result that a text repeats, or "".
    """

    inner: Exchange
    limit: int
    inline_tools: frozenset[str]
    find_repeated_result: Callable[[str], str]
    notice: Callable[[str, str], None]
    notices: list[tuple[str, str]]
    checked: int = 0

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """Check the new messages, then ask; see `Exchange.ask`.

        Raises:
            ContextLeak: A message contains a leak. It was noted in the journal and nothing was
            sent.
        """
        if len(history) < self.checked:
            self.checked = 0
        for message in history[self.checked :]:
            # A character is at most four bytes, so the length alone clears most messages.
            if 4 * len(message.text) < self.limit:
                continue
            leak = self._describe_leak(message)
            if leak:
                self.notice(LEAK_TOPIC, leak)
                raise ContextLeak(
                    leak, hint="refer to the artifact by its reference; parts of it can be read"
                )
        self.checked = len(history)
        answer = await self.inner.ask(history, tools=tools, schema=schema, sink=sink)
        # It may have switched to another tool mode, and with it to another list.
        self.notices = self.inner.notices
        return answer

    def _describe_leak(self, message: Message) -> str:
        if isinstance(message, AssistantMessage):
            return ""
        size = _largest_data_url(message.text)
        if size >= self.limit:
            return f"a message contains a data URL of {size} bytes"
        if isinstance(message, ToolMessage):
            # An error is text of its own, which no artifact keeps.
            is_inline = message.tool in self.inline_tools or not message.success
            limit = 2 * OUTPUT_CAP if is_inline else self.limit
            size = _raw_size(message.text, limit)
            if size < limit:
                return ""
            return f"the result of `{message.tool}` ({message.call_id}) is {size} raw bytes"
        size = len(message.text.encode("utf-8", "replace"))
        if size < self.limit:
            return ""
        name = self.find_repeated_result(message.text)
        return f"a message of {size} bytes contains the text of {name}" if name else ""


def _largest_data_url(text: str) -> int:
    if ";base64," not in text:
        return 0
    return max((len(found[1]) for found in _DATA_URL.finditer(text)), default=0)


def _raw_size(text: str, limit: int) -> int:
    """Return the size in bytes of a tool result's own content.

    Notices are not counted; of a result object only its data is.
    """
    text = text.partition(_NOTICE_START)[0]
    size = len(text.encode("utf-8", "replace"))
    if size < limit or not text.startswith(_RESULT_START):
        return size
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return size
    if not isinstance(value, dict):
        return size
    result = cast("dict[str, Any]", value)
    if not {"error_type", "metadata"} <= result.keys():
        return size
    if not result.get("success"):
        # The text of a failure is bounded like any result, and so is its data.
        return size if size > 4 * OUTPUT_CAP else 0
    data = result.get("data")
    content = data if isinstance(data, str) else encode_json(data)
    return len(content.encode("utf-8", "replace"))
