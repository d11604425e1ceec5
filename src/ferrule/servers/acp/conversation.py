"""A session of the editor: an assembly for its folder, one prompt at a time, and its approver.

A prompt is a run. It ends with a stop reason, or with an error if the model cannot be reached.
Cancelling ends the run: programs with everything they started, unanswered questions, and every open
call with a result in the journal. A limit is also explained in words, because the protocol has a
stop reason for some limits only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Protocol

from ferrule.core.errors import ConfigError, FerruleError, LimitReached, ProviderError, RunCancelled
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.media import Content
from ferrule.engine.live_events import Live, Progress
from ferrule.engine.session import RunResult, Session
from ferrule.permissions.approvals import AllowlistApprover, Approver
from ferrule.permissions.redaction import Redactor
from ferrule.runtime.assemble import Assembly, assemble, current_user
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.locations import create_artifact_store

from .diffs import RecordedDiffs
from .outbox import Outbox, Update
from .permission import EditorApprover
from .session_options import choose_mode, config_options, list_models, mode_state
from .session_updates import SessionUpdates

_CHUNK = 100
"""Most updates of a loaded session that wait to be written."""


class Editor(Protocol):
    """The other side of the connection.

    Both methods raise ConnectionError once it is gone; `request` raises FerruleError for an error
    answer.
    """

    async def update(self, session: str, update: Update) -> None:
        """Send an update of a session."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and wait for the result."""
        ...


class SessionBusy(ConfigError):
    """The session is working on a prompt; it works on one at a time."""

    code = "busy"


class Conversation:
    """One session. Created by `begin`; `close` releases everything."""

    def __init__(
        self, assembly: Assembly, session: Session, editor: Editor, notices: list[str]
    ) -> None:
        self.assembly = assembly
        self.session = session
        self.outbox = Outbox(lambda update: editor.update(session.id, dict(update)))
        self._notices = notices
        self._loop = asyncio.get_running_loop()
        self._last_answer: ModelAnswered | None = None
        self._prompt_task: asyncio.Task[dict[str, Any]] | None = None
        self._is_stopped = False
        self._message_count = 0
        agent = assembly.agent
        settings = assembly.settings
        where, most, days = (settings[f"artifacts.{key}"] for key in ("store", "max_bytes", "days"))
        scope = Scope.from_identity(session.identity)
        kept = RecordedDiffs(
            create_artifact_store(where, max_bytes=most, days=days), scope, agent.workspace
        )
        self._updates = SessionUpdates(
            session.catalog.get,
            agent.workspace,
            kept,
            Redactor.for_environment(os.environ),
            session.history.read_media,
        )
        session.observe(self._observe)

    @property
    def is_busy(self) -> bool:
        """Whether it is working on a prompt."""
        return self._prompt_task is not None

    @property
    def mode(self) -> str:
        """The gate's mode."""
        return str(self.session.mode)

    def state(self) -> dict[str, Any]:
        """Return the modes and options that opening a session answers, with notices in `_meta`."""
        settings = self.assembly.settings
        shape: dict[str, Any] = {
            "modes": mode_state(settings, self.mode),
            "configOptions": self.options(),
        }
        return (
            {**shape, "_meta": {"ferrule/notices": list(self._notices)}} if self._notices else shape
        )

    def options(self) -> list[dict[str, Any]]:
        """Return the configuration options with their values."""
        return config_options(self.assembly.settings, self.mode, self.session.model)

    # ---- a prompt

    async def prompt(self, message: Content) -> dict[str, Any]:
        """Run a message to its end and return the protocol's answer.

        Raises:
            SessionBusy: it is working on a prompt.
            ConfigError, ProviderError: the run failed.
        """
        if self._prompt_task is not None:
            raise SessionBusy("this session is working on a prompt; wait for it, or cancel it")
        self._is_stopped = False
        turn = self._prompt_task = asyncio.create_task(
            self._run_prompt(message), name=f"acp prompt {self.session.id}"
        )
        try:
            return await turn
        except asyncio.CancelledError:
            if not self._is_stopped or not turn.cancelled():
                raise
            return {"stopReason": "cancelled"}
        finally:
            self._prompt_task = None
            await self.outbox.drain()

    def stop(self) -> None:
        """Start to cancel the prompt in progress, if there is one.

        Only the first call has an effect: a second cancellation would interrupt the settling of the
        first.
        """
        if self._prompt_task is not None and not self._is_stopped:
            self._is_stopped = True
            self._prompt_task.cancel()

    async def _run_prompt(self, message: Content) -> dict[str, Any]:
        if self._updates.window is None:
            self._updates.window = await self._find_window()
        self._send_notices()
        self._last_answer = None
        try:
            result = await self.session.run(message)
        except RunCancelled:
            return {"stopReason": "cancelled"}
        except LimitReached as error:
            self._say(
                f"{error.detail}. The session stays open; the next message continues from here."
            )
            reason = "max_tokens" if error.limit == "max_tokens" else "max_turn_requests"
            return {"stopReason": reason}
        except ProviderError as error:
            if error.code != "content_filter":
                raise
            return {"stopReason": "refusal"}
        answer: dict[str, Any] = {"stopReason": self._stop_reason(result)}
        # A provider that does not count tokens has still used some.
        return {**answer, "usage": _usage(result.usage)} if result.usage.input else answer

    def _stop_reason(self, result: RunResult) -> str:
        if result.missing:
            names = ", ".join(
                " or ".join(f"`{name}`" for name in entry) for entry in result.missing
            )
            self._say(f"Not done: {names} never succeeded.")
        if result.stop == "limit":
            return "max_turn_requests"
        stop = self._last_answer.stop if self._last_answer is not None else "end"
        return "max_tokens" if stop == "length" else "end_turn"

    async def _find_window(self) -> int | None:
        """Return the model's context window for usage updates. Asked once.

        The run itself asks again and reports what is wrong with the model.
        """
        settings = self.assembly.settings
        known = settings.for_model(self.session.model).num_ctx
        try:
            return known or (await self.assembly.agent.model_client.capabilities()).context
        except FerruleError:
            return None

    def _observe(self, item: Live) -> None:
        if isinstance(item, Progress):
            # The only item that a handler may emit from another thread.
            self._loop.call_soon_threadsafe(self._send_updates, item)
            return
        if isinstance(item, ModelAnswered):
            self._last_answer = item
        self._send_updates(item)

    def _send_updates(self, item: Live) -> None:
        try:
            for update in self._updates.from_live(item):
                self.outbox.put(update)
        except Exception as error:  # noqa: BLE001  boundary: an item that cannot be shown must not end the run; its absence is reported
            self._say(f"An event cannot be shown: {type(error).__name__}: {error}")

    def _send_notices(self) -> None:
        said, self._notices = self._notices, []
        if said:
            self._say("\n".join(f"- {one}" for one in said))

    def _say(self, text: str) -> None:
        """Send a message of Ferrule itself, apart from the model's and in no journal."""
        self._message_count += 1
        self.outbox.put({
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": f"**Ferrule**\n\n{text}\n\n"},
            "messageId": f"ferrule-{self._message_count}",
        })  # fmt: skip

    # ---- choices

    def set_mode(self, mode: str) -> None:
        """Change the mode, from the next call on. Raises ConfigError."""
        chosen = choose_mode(self.assembly.settings, self.mode, mode)
        self.session.set_mode(chosen)
        self.session.add_notice("mode", f"set to {chosen}")
        self.outbox.put({"sessionUpdate": "current_mode_update", "currentModeId": chosen})
        self.outbox.put({"sessionUpdate": "config_option_update", "configOptions": self.options()})

    async def set_model(self, model: str) -> None:
        """Change the model, from the next prompt on.

        Raises SessionBusy, ConfigError, ProviderError.
        """
        if self.is_busy:
            raise SessionBusy("the model cannot be changed while a prompt is in progress")
        if model not in list_models(self.assembly.settings, self.session.model):
            raise ConfigError(
                f"`{model[:80]}` is not among this session's models",
                hint="add it to your settings",
            )
        await self.assembly.change_model(model, self.session)
        self.session.add_notice("model", f"changed to {model}")
        self._updates.window = None

    # ---- the whole of it

    def catch_up(self) -> None:
        """Read the session's journal, so that later updates are numbered from there."""
        for record in self.assembly.agent.journal.records(self.session.id):
            self._updates.from_journal(record.event)

    async def replay(self) -> None:
        """Send the editor what the journal holds of this session, from its beginning."""
        journal = self.assembly.agent.journal
        waiting = 0
        for record in journal.records(self.session.id):
            for update in self._updates.from_journal(record.event):
                self.outbox.put(update)
                waiting += 1
            if waiting >= _CHUNK:
                waiting = 0
                await self.outbox.drain()
        for update in self._updates.end_open_calls():
            self.outbox.put(update)
        await self.outbox.drain()

    async def cancel(self) -> None:
        """Cancel the run in progress, settled and journaled."""
        self.stop()
        if self._prompt_task is not None:
            await asyncio.wait([self._prompt_task])

    async def close(self) -> None:
        """Close the session and its assembly."""
        await self.assembly.close(self.session, strict=False)


async def open_conversation(
    options: Mapping[str, Any],
    editor: Editor,
    *,
    folder: str,
    servers: Mapping[str, Any],
    session_id: str | None = None,
) -> Conversation:
    """Open a new conversation in a folder, or resume the one with this session id.

    Raises:
        ConfigError: the folder or the settings cannot be used.
        SessionNotFound: there is no such session.
        JournalError: the journal cannot be used, or another process runs the session.
    """
    notices: list[str] = []
    assembly = assemble(
        {**options, "workspace": folder},
        notice=notices.append,
        plugin_fields={"mcp": {"editor": servers}},
    )
    try:
        session = assembly.open_session(session_id)
    except BaseException:  # nobody else would close the assembly
        await assembly.close(strict=False)
        raise
    conversation = Conversation(assembly, session, editor, notices)
    asks = EditorApprover(
        session.id,
        lambda params: _ask_editor(conversation, editor, params),
        user=current_user(),
        workspace=assembly.agent.workspace,
    )
    yes_to = tuple(options.get("yes_to") or ())
    approver: Approver = AllowlistApprover(yes_to, asks) if yes_to else asks
    assembly.agent.approver = approver
    session.approvals.set_approver(approver)
    return conversation


async def _ask_editor(conversation: Conversation, editor: Editor, params: Mapping[str, Any]) -> Any:
    """Return the editor's answer.

    An editor that is gone never answers: its sessions are being closed, and this question with
    them.
    """
    await conversation.outbox.drain()
    try:
        return await editor.request("session/request_permission", params)
    except ConnectionError:
        return await asyncio.get_running_loop().create_future()


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "totalTokens": usage.input + usage.output,
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "cachedReadTokens": usage.cached,
        "cachedWriteTokens": usage.written,
        "thoughtTokens": usage.reasoning,
    }
