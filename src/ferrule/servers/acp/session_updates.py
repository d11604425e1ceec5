"""Convert what happens in a session to `session/update`s, live or from the journal.

Both take the same path, so a loaded session shows what was streamed, except for what no journal
has: pieces (their text comes as a whole) and lines of progress. A live message of the person is not
sent: the editor has it.

Ids are those of the journal, so that patching by id (version 2 of the protocol) is another name for
what is sent here: a call has its call id, a message `user-N`, `thought-N` or `answer-N`, counted in
the session.

What the machine answers by itself (a person's denial, a limit, an end that came before the call)
has no event: it is found by feeding the same events to a machine of our own, as the audit does.

Inputs and results of tools pass `permissions.redaction`, because editors keep conversations where
they like; the model's text and diffs are not redacted.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ferrule.core.call_states import CallSlot, assign_call_ids
from ferrule.core.calls import ToolCall, ToolResult, read_arguments
from ferrule.core.errors import ProviderError
from ferrule.core.events import (
    CallEvaluated,
    CallHooked,
    ContextAdded,
    DirectCall,
    FilesSeen,
    ModelAnswered,
    ModelFailed,
    Noticed,
    NoticeGiven,
    PersonAnswered,
    RunStarted,
)
from ferrule.core.machine import Machine
from ferrule.core.media import MediaReference
from ferrule.core.notices import PERSON_SOURCE
from ferrule.engine.live_events import ArgumentsDelta, Live, Progress, ReasoningDelta, TextDelta
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.redaction import Redactor
from ferrule.toolkits import tasks
from ferrule.tools.context import HIDDEN_TOPICS
from ferrule.tools.definition import Tool

from .call_updates import (
    call_kind,
    call_locations,
    call_title,
    raw_input,
    raw_output,
    result_text,
    text_content,
)
from .diffs import RecordedDiffs, first_line
from .outbox import Update

_TASK_STATES = ("pending", "in_progress", "completed")

MAX_SHOWN_MEDIA = 4 << 20
"""Bytes of a medium of a result that an editor is sent."""
MAX_PROGRESS = 2_000
"""Characters of a running call's progress that are shown; older ones are dropped."""
_OWN = (*HIDDEN_TOPICS, "mode", "model")
"""Topics of notices about what the person has just done themselves."""


@dataclass(slots=True)
class _ShownCall:
    call: ToolCall
    tool: Tool | None
    slot: CallSlot | None
    progress: str = ""
    files_seen: FilesSeen | None = None


class SessionUpdates:
    """The updates of one session.

    `find` returns a tool by its full name; `window` is the model's context window in tokens, None
    if unknown; `read_media` reads the pictures of results, which are captions without it.
    """

    def __init__(
        self,
        find: Callable[[str], Tool | None],
        workspace: Workspace | None,
        kept: RecordedDiffs,
        redactor: Redactor,
        read_media: Callable[[MediaReference], bytes] | None = None,
    ) -> None:
        self._read_media = read_media
        self._find = find
        self._workspace = workspace
        self._kept = kept
        self._redactor = redactor
        self._plan = Plan()
        self._machine = Machine()
        self._calls: dict[str, _ShownCall] = {}
        """Calls that have not ended."""
        self._asked = self._answers = self._notices = 0
        self._streamed: set[str] = set()
        self.window: int | None = None
        self._tell: dict[type, Callable[[Any], Iterator[Update]]] = {
            TextDelta: self._text,
            ReasoningDelta: self._on_reasoning_delta,
            Progress: self._progress,
            ModelAnswered: self._on_model_answered,
            ModelFailed: self._on_model_failed,
            DirectCall: self._direct,
            CallEvaluated: self._on_call_evaluated,
            CallHooked: self._on_call_hooked,
            PersonAnswered: self._person,
            FilesSeen: self._files,
            Noticed: self._notice,
        }

    def from_live(self, item: Live) -> list[Update]:
        """Return the updates for something that happens now."""
        if isinstance(item, RunStarted | ContextAdded):
            self._asked += 1
        if not isinstance(item, TextDelta | ReasoningDelta | ArgumentsDelta | Progress):
            if isinstance(item, ModelAnswered):
                # With the machine's ids: in old journals an id may be missing or used twice.
                item = assign_call_ids(item, self._machine.call_ids, self._machine.turn)
            self._machine.feed(item)
        tell = self._tell.get(type(item))
        told = [] if tell is None else list(tell(item))
        return [*told, *self._end_settled_calls()] if self._calls else told

    def from_journal(self, item: Live) -> list[Update]:
        """Return the updates for an event of the journal: as live, plus the person's messages."""
        if isinstance(item, RunStarted | ContextAdded):
            told = self.from_live(item)
            return [*told, _chunk("user_message_chunk", item.text, f"user-{self._asked}")]
        if isinstance(item, NoticeGiven) and item.source == PERSON_SOURCE:
            told = self.from_live(item)
            return [*told, _chunk("user_message_chunk", item.text, f"user-{self._asked}+")]
        return self.from_live(item)

    def end_open_calls(self) -> list[Update]:
        """Return updates that end the calls whose end the journal does not have."""
        said = "the process that ran this call ended; what the call did is unknown"
        left, self._calls = self._calls, {}
        return [_call_update(name, status="failed", content=[text_content(said)]) for name in left]

    def _end_settled_calls(self) -> Iterator[Update]:
        for shown in [*self._calls.values()]:
            if shown.slot is not None and shown.slot.result is not None:
                yield from self._end_call(shown, shown.slot.result)

    # ---- words

    def _text(self, item: TextDelta) -> Iterator[Update]:
        self._streamed.add("text")
        yield _chunk("agent_message_chunk", item.text, f"answer-{self._answers + 1}")

    def _on_reasoning_delta(self, item: ReasoningDelta) -> Iterator[Update]:
        self._streamed.add("reasoning")
        yield _chunk("agent_thought_chunk", item.text, f"thought-{self._answers + 1}")

    def _on_model_answered(self, item: ModelAnswered) -> Iterator[Update]:
        if item.reasoning and "reasoning" not in self._streamed:
            yield from self._on_reasoning_delta(ReasoningDelta(item.reasoning))
        if item.text and "text" not in self._streamed:
            yield from self._text(TextDelta(item.text))
        self._streamed.clear()
        self._answers += 1
        for call in item.calls:
            yield self._start_call(call)
        used = item.usage.input + item.usage.output
        if used and self.window:
            yield {"sessionUpdate": "usage_update", "used": used, "size": self.window}

    def _on_model_failed(self, item: ModelFailed) -> Iterator[Update]:
        # What was streamed of the failed answer stays; the next answer is sent from its beginning.
        self._streamed.clear()
        yield from ()

    def _notice(self, item: Noticed) -> Iterator[Update]:
        if item.topic not in _OWN:
            self._notices += 1
            text = self._redactor.redact_text(f"{item.topic}: {item.text}")
            yield _chunk("agent_thought_chunk", f"{text}\n", f"notice-{self._notices}")

    # ---- calls

    def _direct(self, item: DirectCall) -> Iterator[Update]:
        yield self._start_call(item.call)

    def _start_call(self, call: ToolCall) -> Update:
        tool = self._find(call.tool)
        self._calls[call.id] = _ShownCall(call, tool, self._machine.find_slot(call.id))
        return {
            "sessionUpdate": "tool_call",
            "toolCallId": call.id,
            "title": self._redactor.redact_text(call_title(call, tool)),
            "kind": call_kind(tool),
            "status": "pending",
            "locations": call_locations(call, tool, self._workspace),
            "rawInput": self._redactor.redact_value(raw_input(call)),
        }

    def _on_call_evaluated(self, item: CallEvaluated) -> Iterator[Update]:
        if item.verdict == "allow":
            yield from self._mark_running(item.call_id)

    def _on_call_hooked(self, item: CallHooked) -> Iterator[Update]:
        shown = self._calls.get(item.call_id)
        if shown is None or item.verdict != "change" or not item.arguments:
            return
        shown.call = ToolCall(shown.call.id, shown.call.tool, item.arguments)
        yield _call_update(
            item.call_id,
            title=self._redactor.redact_text(call_title(shown.call, shown.tool)),
            locations=call_locations(shown.call, shown.tool, self._workspace),
            rawInput=self._redactor.redact_value(raw_input(shown.call)),
        )

    def _person(self, item: PersonAnswered) -> Iterator[Update]:
        if item.choice != "deny":
            yield from self._mark_running(item.call_id)

    def _mark_running(self, call_id: str) -> Iterator[Update]:
        if call_id in self._calls:
            yield _call_update(call_id, status="in_progress")

    def _progress(self, item: Progress) -> Iterator[Update]:
        shown = self._calls.get(item.call_id)
        if shown is None:
            return
        before = "" if item.is_tail else shown.progress
        shown.progress = f"{before}{item.text.rstrip()}\n"[-MAX_PROGRESS:]
        yield _call_update(
            item.call_id, content=[text_content(self._redactor.redact_text(shown.progress))]
        )

    def _files(self, item: FilesSeen) -> Iterator[Update]:
        if item.when == "before" and (shown := self._calls.get(item.call_id)) is not None:
            shown.files_seen = item
        yield from ()

    def _show_media(self, result: ToolResult) -> list[Update]:
        """Return the media of a result that are small enough to be sent."""
        shown: list[Update] = []
        for one in result.media:
            if self._read_media is None or one.size > MAX_SHOWN_MEDIA:
                continue
            try:
                data = b64encode(self._read_media(one)).decode()
            except ProviderError:
                continue
            shown.append({"type": "content", "content": _media_block(one, data)})
        return shown

    def _end_call(self, shown: _ShownCall, result: ToolResult) -> Iterator[Update]:
        del self._calls[shown.call.id]
        values = _checked_arguments(shown)
        content = [text_content(self._redactor.redact_text(result_text(result)))]
        content += self._show_media(result)
        more: dict[str, Any] = {}
        diff = None
        if result.success and shown.tool is not None:
            diff = self._kept.diff(shown.tool, values, shown.files_seen)
        if diff is not None:
            content.insert(0, diff)
            more["locations"] = [{"path": diff["path"], "line": first_line(diff)}]
        yield _call_update(
            result.call_id,
            status="completed" if result.success else "failed",
            content=content,
            rawOutput=self._redactor.redact_value(raw_output(result)),
            **more,
        )
        if (plan := self._plan.update(shown.tool, values, result)) is not None:
            yield plan


def _checked_arguments(shown: _ShownCall) -> Mapping[str, Any]:
    """Return the arguments as the handler got them."""
    given = read_arguments(shown.call.arguments)
    if given is None or shown.tool is None:
        return {}
    return shown.tool.arguments.check(given).values


def _chunk(kind: str, text: str, message_id: str) -> Update:
    return {
        "sessionUpdate": kind,
        "content": {"type": "text", "text": text},
        "messageId": message_id,
    }


def _call_update(call_id: str, **changed: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **changed}


class Plan:
    """The plan an editor shows: the session's task list.

    It is built from the results of its tools and not from their memory, so that a loaded session
    shows the plan it had.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[str, str]] = {}

    def update(
        self, tool: Tool | None, values: Mapping[str, Any], result: ToolResult
    ) -> dict[str, Any] | None:
        """Return the plan as an update if this call changed it."""
        if tool is None or not result.success:
            return None
        if tool.handler is tasks.add_task.handler and isinstance(result.data, str):
            self._tasks[result.data] = (str(values.get("content", "")).strip(), "pending")
        elif tool.handler is tasks.update_task.handler:
            name = str(values.get("task_id", "")).strip()
            status = str(values.get("status", ""))
            if name not in self._tasks or status not in _TASK_STATES:
                return None
            self._tasks[name] = (self._tasks[name][0], status)
        else:
            return None
        entries = [
            {"content": content, "priority": "medium", "status": status}
            for content, status in self._tasks.values()
        ]
        return {"sessionUpdate": "plan", "entries": entries}


def _media_block(one: MediaReference, data: str) -> Update:
    """Return a picture or a sound as a block of its own, a document as an embedded resource."""
    if one.media_kind != "document":
        return {"type": one.media_kind, "mimeType": one.mime, "data": data}
    resource = {"uri": f"artifact:{one.reference}", "mimeType": one.mime, "blob": data}
    return {"type": "resource", "resource": resource}
