"""Histories in and out: as JSON, in OpenAI's and Anthropic's shapes, and given to a new session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from anthropic.types import MessageParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from ferrule import Agent, ConfigError, MessageHistory, Scripted, Storage, ToolCall, tool
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.replay import replay
from ferrule.engine.replay.rerun import rerun
from ferrule.models.scripted import Step, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal

TALK = (
    UserMessage("How many?"),
    AssistantMessage("Let me look.", (ToolCall("c1", "store::count", '{"item": "bolt"}'),)),
    ToolMessage("c1", "store::count", "7"),
    AssistantMessage("Seven."),
)


@tool
def count(item: str) -> int:
    """Count what is left."""
    return 7


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    texts = st.text(max_size=20)
    messages: list[Message] = []
    for turn in range(draw(st.integers(0, 4))):
        messages.append(UserMessage(draw(texts)))
        ids = [f"c{turn}.{number}" for number in range(draw(st.integers(0, 3)))]
        made = tuple(ToolCall(one, draw(texts), draw(texts)) for one in ids)
        raw = draw(st.none() | texts)
        messages.append(AssistantMessage(draw(texts), made, draw(texts), raw))
        for call in draw(st.permutations(made)):
            messages.append(ToolMessage(call.id, call.tool, draw(texts), draw(st.booleans())))
    return tuple(messages)


@given(histories())
def test_every_history_comes_back_from_its_json(messages: tuple[Message, ...]) -> None:
    history = MessageHistory(messages)
    assert MessageHistory.from_json(history.to_json()) == history
    assert MessageHistory.parse(history.to_json()) == history
    assert MessageHistory.parse(list(messages)) == history


async def test_the_next_session_goes_on_where_the_first_ended() -> None:
    def tell_history(history: Sequence[Message]) -> Step:
        return says(" | ".join(message.text for message in history))

    first = await Agent(
        Scripted([calls(("count", {"item": "bolt"}, "c1")), says("Seven.")]), tools=[count]
    ).run("How many?")
    assert [type(message) for message in first.messages] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    for history in (first.messages, first.messages.to_json(), list(first.messages)):
        agent = Agent(Scripted([tell_history]), tools=[count])
        run = await agent.run("And now?", history=history)
        assert run.text == "How many? |  | 7 | Seven. | And now?"
    assert len(run.messages) == 6


async def test_a_call_with_an_id_of_the_history_gets_another_one() -> None:
    journal = SqliteJournal(":memory:")
    model = Scripted([calls(("count", {"item": "bolt"}, "c1")), says("Seven again.")])
    agent = Agent(model, tools=[count], storage=Storage(journal=journal))
    session = agent.session(history=TALK)
    run = await session.run("And now?")
    made = [
        call.id for one in run.messages if isinstance(one, AssistantMessage) for call in one.calls
    ]
    assert len(made) == len(set(made)) == 2
    records = list(journal.records(session.id))
    assert replay(records).same
    again = Scripted([calls(("count", {"item": "bolt"})), says("Seven again.")])
    assert (await rerun(Recording.of(records), agent, model=again)).same
    await session.close()
    resumed = agent.resume(session.id)
    assert tuple(resumed.history) == run.messages.messages


def test_the_shape_of_openai_is_typed_by_its_sdk_and_comes_back() -> None:
    history = MessageHistory((*TALK, UserMessage("Thanks."), AssistantMessage("")))
    shape = history.to_openai(system="Be exact.")
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(shape, strict=True)
    assert shape[0] == {"role": "system", "content": "Be exact."}
    assert shape[2]["tool_calls"] == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "store__count", "arguments": '{"item": "bolt"}'},
        }
    ]
    back = MessageHistory.from_openai(json.loads(json.dumps(shape)))
    assert back.system == "Be exact."
    assert back.to_openai() == history.to_openai()


def test_the_shape_of_anthropic_is_typed_by_its_sdk_and_comes_back() -> None:
    two = (ToolCall("a", "count", "{}"), ToolCall("b", "count", "no object"))
    history = MessageHistory(
        (
            *TALK,
            UserMessage("Both?"),
            AssistantMessage("", two),
            ToolMessage("b", "count", "no such item", success=False),
            ToolMessage("a", "count", "3"),
            UserMessage("Go on."),
            AssistantMessage("Done."),
        )
    )
    shape = history.to_anthropic()
    TypeAdapter(list[MessageParam]).validate_python(shape)
    roles = "user assistant user assistant user assistant user user assistant"
    assert [one["role"] for one in shape] == roles.split()
    assert shape[6]["content"] == [
        {"type": "tool_result", "tool_use_id": "b", "content": "no such item", "is_error": True},
        {"type": "tool_result", "tool_use_id": "a", "content": "3"},
    ]
    back = MessageHistory.from_anthropic(json.loads(json.dumps(shape)), system="Be exact.")
    assert back.system == "Be exact."
    assert back.to_anthropic() == shape


def test_a_recorded_conversation_of_anthropic_is_read_without_its_thinking() -> None:
    recorded = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Look:"},
                {"type": "tool_use", "id": "t1", "name": "count", "input": {"item": "bolt"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "7"}],
                },
                {"type": "text", "text": "and?"},
            ],
        },
    ]
    history = MessageHistory.from_anthropic(
        recorded, system=[{"type": "text", "text": "Be exact."}]
    )
    assert history.messages == (
        UserMessage("Hi\n\nyou"),
        AssistantMessage("Look:", (ToolCall("t1", "count", '{"item":"bolt"}'),)),
        ToolMessage("t1", "count", "7"),
        UserMessage("and?"),
    )
    assert history.system == "Be exact."


CALL = {"role": "assistant", "calls": [{"id": "c1", "tool": "t"}]}
RESULT = {"role": "tool", "call_id": "c1", "tool": "t", "text": ""}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nothing", "not JSON"),
        ("[]", "no `messages`"),
        ('{"messages": []}', "version None is not known"),
        ('{"version": 2, "messages": []}', "version 2 is not known"),
        ('{"version": 1, "messages": {}}', "`messages` is dict, not a list"),
        ([7], "message 1 is int, not an object"),
        ([{"text": "Hi"}], "message 1 has no `role`"),
        ([{"role": "system", "text": "Hi"}], "role `system`"),
        ([{"role": "user", "text": 7}], "`text` of message 1 is int, not str"),
        ([{"role": "user", "text": None}], "`text` of message 1 is null"),
        ([{"role": "user", "text": "", "image": ""}], "has `image`, which is not known"),
        ([CALL], "call `c1` of `t` has no result before message 2"),
        ([CALL, {"role": "user", "text": ""}], "no result before message 2"),
        ([RESULT], "message 1 answers the call `c1`"),
        ([CALL, RESULT, RESULT], "message 3 answers the call `c1`"),
        ([CALL, RESULT, CALL, RESULT], "message 3 has a call with the id `c1`"),
        ([{"role": "assistant", "calls": [7]}], "a call of message 1 is int"),
        ([{"role": "assistant", "calls": [{"id": "c1"}]}], "a call of message 1 has no `tool`"),
    ],
)
def test_what_is_no_history_is_refused_by_name(given: Any, said: str) -> None:
    text = given if isinstance(given, str) else json.dumps({"version": 1, "messages": given})
    with pytest.raises(ConfigError, match=said):
        Agent("scripted:x").session(history=text)


def test_what_a_history_cannot_hold_is_named() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    with pytest.raises(ConfigError, match="message 1 has content of the type 'image_url'"):
        MessageHistory.from_openai([{"role": "user", "content": [picture]}])
    with pytest.raises(ConfigError, match="message 1 has the role 'function'"):
        MessageHistory.from_openai([{"role": "function", "content": ""}])
    custom = {"id": "c", "type": "custom", "custom": {}}
    with pytest.raises(ConfigError, match="message 1 has a call of the type 'custom'"):
        MessageHistory.from_openai([{"role": "assistant", "tool_calls": [custom]}])
    with pytest.raises(ConfigError, match="answers the call 'c9', which nobody made"):
        MessageHistory.from_openai([{"role": "tool", "tool_call_id": "c9", "content": ""}])
    with pytest.raises(ConfigError, match="message 1 has content of the type 'image'"):
        MessageHistory.from_anthropic([{"role": "user", "content": [{"type": "image"}]}])
    with pytest.raises(ConfigError, match="message 1 has NoneType where a list belongs"):
        MessageHistory.from_anthropic([{"role": "user"}])
    shapes: Any = [{"role": "user", "content": "Hi"}]
    with pytest.raises(ConfigError, match="message 1 is dict") as told:
        Agent("scripted:x").session(history=shapes)
    assert "from_openai" in (told.value.hint or "")
