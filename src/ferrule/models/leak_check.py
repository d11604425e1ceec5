"""The last check before a model sees a request: raw heavy content belongs in an artifact, not in a
message.

It stands around whatever wire a session uses, behind the hooks, and looks at each message once,
when it is new. A leak is

* a result of `limit` bytes or more that is no stub (results are bounded and kept long before: this
  finds what got around that);
* a data URL of that size in a result or in a person's message: no model reads base64;
* a person's message of that size in which the text of a kept result stands again (`repeated` knows
  those).

Not a leak: a person's own words however many, and what the model itself has said. Notices behind a
result and the notes of a tool that bounds itself are not counted. It does not find heavy content
that was cut into smaller messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.errors import ContextLeak
from ferrule.core.events import ModelAnswered
from ferrule.core.lazy_patterns import expression
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.messages import AssistantMessage, Message, ToolMessage

from .client import Exchange, Sink

TOPIC = "llm.context_leak"
"""The topic of the notice that a leak leaves in the journal."""

_DATA_URL = expression(r"data:[\w.+-]{1,60}/[\w.+-]{1,90}[^,\s]{0,90};base64,([A-Za-z0-9+/=_-]*)")
_NOTICE = '\n<notice source="'
_ENVELOPE = '{"success":'


@dataclass(slots=True)
class Guarded:
    """An `Exchange` that raises ContextLeak instead of asking with a leak in the history.

    `limit` is in bytes; results of the tools in `inline` may have as many as any result. `checked`
    messages are taken as seen: those of a session that goes on were checked when they were new.
    """

    inner: Exchange
    limit: int
    inline: frozenset[str]
    repeated: Callable[[str], str]
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
        """See `Exchange.ask`. Raises ContextLeak, and says it in the journal; nothing was sent
        then.
        """
        if len(history) < self.checked:
            self.checked = 0
        for message in history[self.checked :]:
            # No character is more than four bytes: most messages are known to be small by their
            # length.
            if 4 * len(message.text) >= self.limit and (what := self._leak(message)):
                self.notice(TOPIC, what)
                raise ContextLeak(
                    what, hint="name the artifact by its reference; parts of it can be read"
                )
        self.checked = len(history)
        answer = await self.inner.ask(history, tools=tools, schema=schema, sink=sink)
        # It may have gone over to another way of calling tools, and with it to another list.
        self.notices = self.inner.notices
        return answer

    def _leak(self, message: Message) -> str:
        if isinstance(message, AssistantMessage):
            return ""
        if (size := _largest_data_url(message.text)) >= self.limit:
            return f"a message holds a data URL of {size} bytes"
        if isinstance(message, ToolMessage):
            most = 2 * OUTPUT_CAP if message.tool in self.inline else self.limit
            size = _raw(message.text, most)
            return (
                f"the result of `{message.tool}` ({message.call_id}) is {size} raw bytes"
                if size >= most
                else ""
            )
        size = len(message.text.encode("utf-8", "replace"))
        name = self.repeated(message.text) if size >= self.limit else ""
        return f"a message of {size} bytes holds the text of {name}" if name else ""


def _largest_data_url(text: str) -> int:
    return (
        max((len(found[1]) for found in _DATA_URL.finditer(text)), default=0)
        if ";base64," in text
        else 0
    )


def _raw(text: str, most: int) -> int:
    """Bytes of what a tool said in the text of a result: without notices, of a result object its
    data.
    """
    text = text.partition(_NOTICE)[0]
    size = len(text.encode("utf-8", "replace"))
    if size < most or not text.startswith(_ENVELOPE):
        return size
    try:
        shape, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return size
    if (
        not isinstance(shape, dict)
        or not {"error_type", "metadata"} <= cast("dict[str, Any]", shape).keys()
    ):
        return size
    known = cast("dict[str, Any]", shape)
    if not known.get("success"):
        # What is said of a failure is bounded as any result is, its data besides.
        return size if size > 4 * OUTPUT_CAP else 0
    data = known.get("data")
    return len((data if isinstance(data, str) else compact(data)).encode("utf-8", "replace"))
