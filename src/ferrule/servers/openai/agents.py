"""The models `ferrule` and `ferrule/provider:model`: an agent answers with its own tools.

A request is a run; its calls pass the agent's gate and are journaled. No one is there to be asked:
calls that need approval are denied, which the model reads as the call's result and which the answer
reports below the model's text. The client's system text is added to the agent's instructions and
grants no rights.

The answer's text is all that the model says in the run, with a blank line between turns; calls and
their results are sent as news beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ferrule.core.calls import ToolResult
from ferrule.core.errors import FerruleError
from ferrule.core.events import (
    CallEvaluated,
    ModelAnswered,
    Noticed,
    PersonAnswered,
    RunFinished,
    ToolAnswered,
)
from ferrule.core.media import Content, Media, split_content
from ferrule.core.messages import AssistantMessage, Message, UserMessage
from ferrule.engine.agent import Agent
from ferrule.engine.live_events import Live, Progress, ReasoningDelta, TextDelta
from ferrule.engine.session import RunResult, Session
from ferrule.models.client import ModelOptions
from ferrule.models.media_encoding import read_bytes
from ferrule.permissions.approvals import (
    AllowlistApprover,
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
)
from ferrule.runtime.http.http_security import Visitor
from ferrule.storage.artifacts.store import ArtifactStore

from .answer_parts import AnswerEnd, Emit, NewsPiece, TextPiece, ThinkingPiece, cut_at_stop
from .conversations import Conversation, Conversations, Leave, conversation_point, render_history
from .errors import RequestRefused, redact
from .messages import ParsedMessages
from .requests import ChatRequest

MAX_NEWS = 200
"""Characters of a line of news."""


class UnattendedApprover:
    """Approver of an endpoint where no one can be asked.

    `refused` lists the tools it denied.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Implement `Approver.ask`."""
        self.refused.append(request.tool.full_name)
        wider = next((offer.rule for offer in request.offers if offer.rule), "")
        step = (
            f"whoever runs the server can allow it with the rule `{wider}`"
            if wider
            else "do without it"
        )
        reason = f"this needs a person's approval ({request.reason})"
        note = f"{reason}, and no one can be asked here; {step}"
        return ApprovalAnswer("deny", by="openai-endpoint", note=note, refused_by="nobody")


class AgentRunner:
    """Agents at work for clients, and the conversations that can continue (`Conversations`)."""

    def __init__(self, leave: Leave, store: ArtifactStore, yes_to: tuple[str, ...] = ()) -> None:
        self._leave = leave
        self._conversations = Conversations(store)
        self._yes_to = yes_to

    async def run(
        self,
        agent: Agent[Any, Any],
        options: ModelOptions,
        visitor: Visitor,
        asked: ChatRequest,
        emit: Emit,
    ) -> AnswerEnd:
        """Run a request's last message to its end. Raises Refused, FerruleError."""
        told = asked.messages
        message = told.history[-1]
        before = told.history[:-1]
        who = (visitor.tenant, visitor.user)
        point = conversation_point(who, asked.model, told.system, before)
        # A schema is no part of the point: what has one is neither continued nor kept.
        is_kept = asked.schema is None
        if asked.schema is not None:
            agent = agent.copy_for_output(asked.schema)
        conversation = await self._find_conversation(point) if before and is_kept else None
        if conversation is None:
            conversation = _start_conversation(agent, options, told, before)
            conversation.leave = self._leave
        try:
            if conversation.options != options:
                conversation.agent.change_model(conversation.agent.model_client, options=options)
                conversation.options = options
                conversation.open_session().reset_model()
            gives_value = agent.output is not None
            run = _Run(conversation.open_session(), self._approvers(), emit, gives_value)
            try:
                ended = await run.work(_to_content(message))
            finally:
                conversation.runs += run.is_over
            said = cut_at_stop(run.text, asked.sampling.stop)
            before = told.history
            point = conversation_point(who, asked.model, told.system, told.history, said)
            return ended
        finally:
            # Also after a failure, so that a retry continues where the run ended.
            if before and is_kept:
                self._conversations.put(point, conversation)
            else:
                await conversation.close()

    async def close(self) -> None:
        """Close all conversations."""
        await self._conversations.close()

    async def _find_conversation(self, point: str) -> Conversation | None:
        try:
            conversation = await self._conversations.take(point)
            if conversation is None:
                conversation = self._conversations.branch(point)
            if conversation is not None:
                conversation.open_session()
        except FerruleError:
            # Archived, or open in another process: treated like a conversation we never had.
            return None
        return conversation

    def _approvers(self) -> tuple[UnattendedApprover, Approver]:
        nobody = UnattendedApprover()
        return nobody, AllowlistApprover(self._yes_to, nobody) if self._yes_to else nobody


def _to_content(message: Message) -> Content:
    """Return a user's message for a run: its text, or texts and media in order."""
    if isinstance(message, AssistantMessage) or not message.media:
        return message.text
    parts = split_content(message.text, message.media)
    return [
        part if isinstance(part, str) else Media(read_bytes(part), name=part.name) for part in parts
    ]


def check_agent_request(asked: ChatRequest) -> None:
    """Raise Refused unless a request is one that an agent can answer."""
    if asked.tools:
        raise RequestRefused(
            (
                f"`{asked.model}` uses its own tools; choose one of the other models for "
                "calls of your tools"
            ),
            param="tools",
        )
    history = asked.messages.history
    if not history or not isinstance(history[-1], UserMessage):
        raise RequestRefused("the last message must be the user's", param="messages")
    if any(getattr(message, "calls", ()) for message in history):
        raise RequestRefused(
            f"`{asked.model}` has made no calls of a client's tools", param="messages"
        )


def _start_conversation(
    agent: Agent[Any, Any], options: ModelOptions, told: ParsedMessages, before: tuple[Message, ...]
) -> Conversation:
    instructions = agent.instructions
    if told.system:
        said = f"The program that asks says of its task:\n{told.system}"
        instructions = f"{instructions}\n\n{said}" if instructions else said
    mine = agent.copy(instructions=instructions)
    mine.change_model(agent.model_client, options=options)
    session = mine.session()
    if before:
        session.history.add_context(render_history(before))
    return Conversation(mine, session.id, session, options)


@dataclass(slots=True)
class _Run:
    """One run, emitted in pieces; with `gives_value` its JSON alone, once it was checked."""

    session: Session[Any]
    approvers: tuple[UnattendedApprover, Approver]
    emit: Emit
    gives_value: bool = False
    text: str = ""
    _starts_turn: bool = True
    _finished: RunFinished | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended in its journal, in whatever way."""
        return self._finished is not None

    async def work(self, message: Content) -> AnswerEnd:
        nobody, approver = self.approvers
        self.session.approvals.set_approver(approver)
        stop_observing = self.session.observe(self._observe)
        try:
            result = await self.session.run(message)
        finally:
            stop_observing()
        if result.text and not self.text:
            self._say(result.text)
        if self.gives_value:
            return self._make_end(result)
        if nobody.refused:
            named = ", ".join(dict.fromkeys(f"`{name}`" for name in nobody.refused))
            self._add_line(f"{named}. It needs a person's approval, and no one can be asked here.")
        if result.missing and self._finished is not None:
            self._add_line(f"{self._finished.detail}.")
        return self._make_end(result)

    def _observe(self, item: Live) -> None:
        match item:
            case TextDelta(text):
                if not self.gives_value:
                    self._say(text)
            case ReasoningDelta(text):
                self.emit(ThinkingPiece(text))
            case ModelAnswered():
                self._starts_turn = True
            case RunFinished():
                self._finished = item
            case _:
                news = self._describe_news(item)
                if news is not None:
                    self.emit(NewsPiece(news))

    def _say(self, text: str) -> None:
        if self._starts_turn and self.text and text:
            text = f"\n\n{text.lstrip()}"
        self._starts_turn = self._starts_turn and not text.strip()
        self.text += text
        self.emit(TextPiece(text))

    def _add_line(self, why: str) -> None:
        """Add a line below the model's text that it cannot influence."""
        self._starts_turn = True
        self._say(f"[Not done: {why}]")

    def _describe_news(self, item: Live) -> dict[str, Any] | None:
        match item:
            case CallEvaluated(call_id, verdict):
                call = self.session.history.find_call(call_id)
                return {
                    "event": "call",
                    "id": call_id,
                    "tool": call.tool if call else "",
                    "verdict": verdict,
                }
            case PersonAnswered(call_id, choice):
                return {"event": "approval", "id": call_id, "choice": choice}
            case ToolAnswered(result):
                return {"event": "result", **_outcome(result)}
            case Progress(call_id, text, is_tail=False):
                return {"event": "progress", "id": call_id, "text": redact(text[:MAX_NEWS])}
            case Noticed(topic, text):
                return {"event": "notice", "topic": topic, "text": redact(text[:MAX_NEWS])}
            case _:
                return None

    def _make_end(self, result: RunResult[Any]) -> AnswerEnd:
        finished = self._finished or RunFinished(result.stop)
        more = {
            "session": self.session.id,
            "stop": result.stop,
            "detail": finished.detail,
            "turns": result.turns,
            "calls": [_outcome(one) for one in result.results],
        }
        early = result.stop == "limit" or finished.code == "length"
        return AnswerEnd("length" if early else "stop", result.usage, more)


def _outcome(result: ToolResult) -> dict[str, Any]:
    """Return a call and its outcome, without its result."""
    failed = str(result.error_type)
    return {
        "id": result.call_id,
        "tool": result.tool,
        "success": result.success,
        "error_type": failed,
    }
