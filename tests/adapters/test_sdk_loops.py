"""Tools for loops with the real SDKs of OpenAI and Anthropic, against stub servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from adapter_place import READ, THE_RUN, WHAT_THE_JOURNAL_SAYS, WRITE, Place, outcomes
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import TypeAdapter

from ferrule import ConfigError, tool
from ferrule.adapters import anthropic as for_anthropic
from ferrule.adapters import openai as for_openai
from ferrule.adapters.sdk_loops import ApprovalsPending
from ferrule.testing import RecordingApprover, calls, says
from provider_double import ProviderDouble


@dataclass
class Loop:
    """A loop with one SDK: what it sends, and the answers of its server."""

    server: ProviderDouble
    guarded: Any
    messages: list[Any]

    first: ClassVar[Any] = None

    async def ask(self) -> Any:
        """Ask the model, append its message, and return what is dispatched."""
        raise NotImplementedError

    async def run(self, approve: bool | None = None) -> str:
        while True:
            message, text = await self.ask()
            try:
                added = await self.guarded.dispatch(message)
            except ApprovalsPending as pending:
                if approve is None:
                    raise
                answers = {one.call_id: approve for one in pending.approvals}
                added = await self.guarded.dispatch(message, approvals=answers)
            if not added:
                return text
            self.messages += added


class ChatLoop(Loop):
    first: ClassVar[Any] = {"role": "user", "content": "go"}

    async def ask(self) -> Any:
        async with AsyncOpenAI(api_key="k", base_url=f"{self.server.url}/v1") as client:
            answer = await client.chat.completions.create(
                model="m", messages=self.messages, tools=self.guarded.tools
            )
        message = answer.choices[0].message
        self.messages.append(message)
        return message, message.content


class ResponsesLoop(Loop):
    first: ClassVar[Any] = {"role": "user", "content": "go"}

    async def ask(self) -> Any:
        async with AsyncOpenAI(api_key="k", base_url=f"{self.server.url}/v1") as client:
            response = await client.responses.create(
                model="m", input=self.messages, tools=self.guarded.tools, store=False
            )
        self.messages += [one.model_dump(exclude_none=True) for one in response.output]
        return response, response.output_text


class MessagesLoop(Loop):
    first: ClassVar[Any] = {"role": "user", "content": [{"type": "text", "text": "go"}]}

    async def ask(self) -> Any:
        async with AsyncAnthropic(api_key="k", base_url=self.server.url) as client:
            message = await client.messages.create(
                model="m", max_tokens=100, messages=self.messages, tools=self.guarded.tools
            )
        content = [one.model_dump(exclude_none=True) for one in message.content]
        self.messages.append({"role": "assistant", "content": content})
        return message, "".join(one.text for one in message.content if one.type == "text")


KINDS: dict[str, tuple[type[Loop], Callable[..., Any], str]] = {
    "chat": (ChatLoop, for_openai.guard, "openai"),
    "responses": (ResponsesLoop, for_openai.guard_responses, "openai"),
    "messages": (MessagesLoop, for_anthropic.guard, "anthropic"),
}
ALL = pytest.mark.parametrize("kind", list(KINDS))


@asynccontextmanager
async def opened(kind: str, place: Place, *steps: Any, **options: Any) -> AsyncIterator[Loop]:
    made, guard, _ = KINDS[kind]
    agent = options.pop("agent", None) or place.agent()
    async with ProviderDouble(list(steps)) as server, guard(agent, session="s") as guarded:
        yield made(server, guarded, [made.first])
        assert server.refusals == []


@ALL
async def test_a_run_reads_writes_with_approval_is_refused_and_times_out(
    place: Place, kind: str
) -> None:
    steps = [*(calls(one) for one in THE_RUN), says("done")]
    async with opened(kind, place, *steps) as loop:
        assert await loop.run(approve=True) == "done"
        sent = [str(one) for one in loop.server.requests]
        offered = loop.server.requests[0]["tools"]
    assert "buy bolts" in sent[1] and "permission_denied" in sent[3] and "timeout" in sent[4]
    assert len(offered) == len(loop.guarded.tools)
    assert place.written() == "all of it"
    made = place.calls("s")
    assert outcomes(made) == WHAT_THE_JOURNAL_SAYS
    assert made[1].by == made[2].by and made[1].by.startswith(KINDS[kind][2] + " ")
    assert place.approved_by("s") == [KINDS[kind][2]]


@ALL
async def test_a_picture_goes_back_as_the_provider_takes_it(place: Place, kind: str) -> None:
    async with opened(kind, place, calls(("draw", {})), says("a square")) as loop:
        assert await loop.run() == "a square"
        sent = str(loop.server.requests[1])
    assert "iVBORw0KGgo" in sent


@ALL
async def test_what_ran_before_an_approval_does_not_run_again(place: Place, kind: str) -> None:
    made: list[str] = []

    @tool(side_effect="read")
    async def count(word: str) -> str:
        """Count."""
        made.append(word)
        return f"counted {word}"

    steps = [calls(("count", {"word": "one"}), WRITE), says("done")]
    async with opened(kind, place, *steps, agent=place.agent(count)) as loop:
        assert await loop.run(approve=True) == "done"
        assert "counted one" in str(loop.server.requests[1])
    assert made == ["one"] and place.written() == "all of it"


@ALL
async def test_another_process_that_opens_the_session_goes_on(place: Place, kind: str) -> None:
    loop_type, guard, _ = KINDS[kind]
    async with ProviderDouble([calls(READ, WRITE), says("done")]) as server:
        async with guard(place.agent(), session="s") as guarded:
            loop = loop_type(server, guarded, [loop_type.first])
            message, _ = await loop.ask()
            with pytest.raises(ApprovalsPending) as pending:
                await guarded.dispatch(message)
            (asked,) = pending.value.approvals
        kept = message.model_dump(mode="json")
        async with guard(place.agent(), session="s") as guarded:
            loop.guarded = guarded
            loop.messages += await guarded.dispatch(kept, approvals={asked.call_id: True})
            assert await loop.run() == "done"
        assert server.refusals == []
    assert [call.tool for call in place.calls("s")].count("read_file") == 1
    assert place.written() == "all of it"


@ALL
async def test_a_no_is_told_to_the_model(place: Place, kind: str) -> None:
    async with opened(kind, place, calls(WRITE), says("sorry")) as loop:
        assert await loop.run(approve=False) == "sorry"
        assert "denied by the person" in str(loop.server.requests[1])
    assert place.written() is None


async def test_only_true_is_a_yes_and_only_for_what_was_asked(place: Place) -> None:
    async with opened("chat", place, calls(WRITE)) as loop:
        message, _ = await loop.ask()
        call_id = message.tool_calls[0].id
        with pytest.raises(ApprovalsPending):
            # Nobody was asked: an answer that comes with the first dispatch counts for nothing.
            await loop.guarded.dispatch(message, approvals={call_id: True})
        (no,) = await loop.guarded.dispatch(message, approvals={call_id: "yes"})
        assert "permission_denied" in no["content"]
        with pytest.raises(ConfigError, match="no call `x`"):
            await loop.guarded.dispatch(message, approvals={"x": True})
        with pytest.raises(ConfigError, match="dispatch: str"):
            await loop.guarded.dispatch("write it")
    assert place.written() is None


async def test_a_call_that_is_asked_about_can_be_changed_by_nobody(place: Place) -> None:
    async with opened("chat", place, calls(WRITE)) as loop:
        message, _ = await loop.ask()
        with pytest.raises(ApprovalsPending):
            await loop.guarded.dispatch(message)
        call = message.tool_calls[0]
        call.function.arguments = call.function.arguments.replace("done.txt", "other.txt")
        with pytest.raises(ApprovalsPending) as again:
            await loop.guarded.dispatch(message, approvals={call.id: True})
    assert again.value.approvals[0].arguments["path"] == "other.txt"
    assert place.written("other.txt") is None


async def test_a_message_without_calls_adds_nothing(place: Place) -> None:
    async with opened("chat", place) as loop:
        assert await loop.guarded.dispatch({"role": "assistant", "content": "hello"}) == []


async def test_what_is_no_json_and_what_does_not_exist_has_its_result(place: Place) -> None:
    made = [
        {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"pa'}},
        {"id": "2", "type": "function", "function": {"name": "read_flie", "arguments": "{}"}},
    ]
    async with opened("chat", place) as loop:
        cut, unknown = await loop.guarded.dispatch({"role": "assistant", "tool_calls": made})
    assert "parse_error" in cut["content"] and "`read_file`" in unknown["content"]
    assert len(place.calls("s")) == 2


async def test_the_agents_own_approver_is_asked_and_waited_for(place: Place) -> None:
    approver = RecordingApprover(["once"])
    agent = place.agent(approver=approver)
    async with opened("chat", place, calls(WRITE), says("done"), agent=agent) as loop:
        assert await loop.run() == "done"
    assert len(approver.requests) == 1 and place.written() == "all of it"


async def test_the_tools_fit_the_types_of_the_sdks(place: Place) -> None:
    from anthropic.types import ToolParam
    from openai.types.chat import ChatCompletionFunctionToolParam
    from openai.types.responses import FunctionToolParam

    for (_, guard, _), shape in zip(
        KINDS.values(),
        (ChatCompletionFunctionToolParam, FunctionToolParam, ToolParam),
        strict=True,
    ):
        async with guard(place.agent()) as guarded:
            TypeAdapter(list[shape]).validate_python(guarded.tools)  # type: ignore[valid-type]


async def test_calls_from_another_event_loop_are_refused_with_the_way_to_go(place: Place) -> None:
    async with opened("chat", place) as loop:
        call = {"id": "1", "type": "function", "function": {"name": "draw", "arguments": "{}"}}
        message = {"role": "assistant", "tool_calls": [call]}
        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(loop.guarded.dispatch(message)))
