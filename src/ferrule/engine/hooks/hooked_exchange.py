"""An exchange with a model, with hooks around each request and each answer.

A change that a hook makes to a request applies to that request only. Model clients encode a history
once and expect it to grow, so a request that is no longer an extension of the last one goes to an
exchange of its own: that costs what the history costs, and the provider's cache. An answer is shown
to nobody before the hooks have seen it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message, UserMessage
from ferrule.models.client import Exchange, Sink

from .chain import Hooks, Outcome
from .events import CompletionPost, CompletionPre, NotJson
from .messages import messages_to_objects, objects_to_messages


class _HoldingSink:
    """A sink that shows nothing of an answer, only notices."""

    def __init__(self, sink: Sink) -> None:
        self.notice = sink.notice

    def add_text(self, piece: str) -> None:
        """Hold it back until the hooks have seen the whole answer."""

    def add_reasoning(self, piece: str) -> None:
        """Hold it back."""

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        """Hold it back."""


class HookedExchange:
    """The exchange of one session.

    `turn` says which turn of the run it is; `tell(text, hook, at_once)` gives the model the text of
    a hook, before this request or before the next.
    """

    def __init__(
        self,
        opened: Exchange,
        again: Callable[[], Awaitable[Exchange]],
        hooks: Hooks,
        tell: Callable[[str, str, bool], None],
        turn: Callable[[], int],
    ) -> None:
        self._inner = opened
        self._tell = tell
        self._again = again
        self._hooks = hooks
        self._sent: list[Message] = []
        self._own = False
        """Whether the exchange now has something else than the session's history."""
        self._turn = turn
        self._refused = ""
        self.notices = opened.notices

    def take_refusal(self) -> str:
        """Return why the calls of the last answer must not run, once; "" if they may."""
        reason = self._refused
        self._refused = ""
        return reason

    async def _prepare(self, history: Sequence[Message], tools: bool) -> Sequence[Message]:
        """Return what will be asked: the history itself if nothing was changed.

        Raises ProviderError.
        """
        before = list(history)
        payload = CompletionPre(self._turn(), messages_to_objects(before), tools)
        outcome = await self._hooks.fire(payload)
        if outcome.blocked:
            raise refusal_error("the question to the model was blocked", outcome)
        changed = outcome.payload
        assert isinstance(changed, CompletionPre)
        asked: list[Message] | None = None
        if changed.messages != payload.messages:
            try:
                asked = objects_to_messages(changed.messages, before)
            except NotJson as garbage:
                message = f"a hook changed the question into an invalid one: {garbage}"
                raise ProviderError(message, code="hook_broken", retryable=False) from garbage
        for name, text in outcome.context:
            self._tell(text, name, True)
        if asked is None:
            return history
        # The hooks' texts are in the history, behind what the hooks have seen of it.
        if asked[-1] == before[-1]:
            return [*asked[:-1], *history[len(before) - 1 :]]
        return [*asked, *(UserMessage(f"[hook {name}] {text}") for name, text in outcome.context)]

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        self._refused = ""
        asked = (
            await self._prepare(history, tools)
            if self._hooks.for_event("completion.pre")
            else history
        )
        await self._fit_exchange(asked, asked is not history)
        watched = sink is not None and bool(self._hooks.for_event("completion.post"))
        held = _HoldingSink(sink) if watched and sink is not None else sink
        answer = await self._inner.ask(asked, tools=tools, schema=schema, sink=held)
        if self._hooks.for_event("completion.post"):
            answer = await self._judge(answer)
            if sink is not None and answer.text:
                sink.add_text(answer.text)
        return answer

    async def _fit_exchange(self, asked: Sequence[Message], own: bool) -> None:
        if not own and not self._own:
            return
        if list(asked[: len(self._sent)]) != self._sent or (own and not self._own):
            self._inner = await self._again()
            self.notices = self._inner.notices
        self._sent = list(asked)
        self._own = own

    async def _judge(self, answer: ModelAnswered) -> ModelAnswered:
        calls = tuple({"id": c.id, "name": c.tool, "arguments": c.arguments} for c in answer.calls)
        used = answer.usage
        payload = CompletionPost(
            self._turn(), answer.text, calls, answer.stop, used.input, used.output
        )
        outcome = await self._hooks.fire(payload)
        for name, text in outcome.context:
            self._tell(text, name, False)
        if outcome.blocked:
            if not answer.calls:
                # Its tokens are in no event: a failed request has none.
                self._hooks.notice(
                    "hook", f"the withheld answer took {used.input} + {used.output} tokens"
                )
                raise refusal_error("the answer of the model was withheld", outcome)
            self._refused = outcome.blocked
            withheld = f"[withheld: {outcome.blocked}]" if answer.text else ""
            return replace(answer, text=withheld, reasoning="", raw=None)
        changed = outcome.payload
        assert isinstance(changed, CompletionPost)
        if (changed.text, changed.calls) == (payload.text, payload.calls):
            return answer
        kept = _keep_calls(changed.calls, answer.calls)
        stop = "end" if answer.calls and not kept else answer.stop
        return replace(answer, text=changed.text, calls=kept, reasoning="", raw=None, stop=stop)


def refusal_error(what: str, outcome: Outcome) -> ProviderError:
    """Build the error that ends a run after a hook's refusal."""
    code = "hook_broken" if outcome.broken else "hook_blocked"
    return ProviderError(f"{what} by {outcome.blocked}", code=code, retryable=False)


def _keep_calls(
    shown: Sequence[Mapping[str, Any]], calls: Sequence[ToolCall]
) -> tuple[ToolCall, ...]:
    """Return the calls that a hook kept, in their order, with its arguments.

    Whether it kept their ids and names was checked before.
    """
    kept: list[ToolCall] = []
    left = list(calls)
    for one in shown:
        while left and (left[0].id, left[0].tool) != (one.get("id"), one.get("name")):
            left.pop(0)
        arguments = one.get("arguments")
        if not left or not isinstance(arguments, str):
            raise ProviderError(
                "a hook changed the calls of an answer into others", code="hook_broken"
            )
        kept.append(replace(left.pop(0), arguments=arguments))
    return tuple(kept)
