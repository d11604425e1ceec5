"""The `constrained` tool mode over a scripted model client: what is asked for, what is read, what happens to a
bad reply.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import pytest

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ProviderError
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.scripted import Scripted, says
from ferrule.models.tool_modes.constrained import open_constrained, reply_schema

READ = ToolSpec(
    "files::read",
    "files__read",
    "Read a file.",
    '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}',
)
TREE = ToolSpec(
    "tree",
    "tree",
    "A tree.",
    '{"type":"object","properties":{"root":{"$ref":"#/$defs/Node"}},"$defs":{"Node":{"type":"object",'
    '"properties":{"next":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"null"}]}}}}}',
)
ASKED = UserMessage("What is in a.txt?")


class Heard:
    def __init__(self) -> None:
        self.said: list[str] = []

    def add_text(self, piece: str) -> None:
        self.said.append(piece)

    def add_reasoning(self, piece: str) -> None: ...

    def add_arguments(self, call: int, tool: str, piece: str) -> None: ...

    def notice(self, topic: str, text: str) -> None: ...


def call(tool: str = "files__read", **arguments: Any) -> str:
    return encode_json({"reply": {"calls": [{"tool": tool, "arguments": arguments}]}})


def opened(*replies: str, tools: Sequence[ToolSpec] = (READ, TREE)) -> tuple[Scripted, Any]:
    model_client = Scripted([says(reply) for reply in replies])
    return model_client, open_constrained(model_client, "Be brief.", tools, ModelOptions())


async def test_a_reply_with_a_call_becomes_a_call_under_the_tools_full_name() -> None:
    model_client, exchange = opened(call(path="a.txt"))
    answer = await exchange.ask([ASKED])
    assert answer.calls == (ToolCall("", "files::read", '{"path":"a.txt"}'),)
    assert (answer.text, answer.stop, answer.tool_mode) == ("", "calls", "constrained")
    assert model_client.asks[0].schema == reply_schema([READ, TREE])


async def test_an_answer_in_words_reaches_the_sink_without_its_wrapping() -> None:
    _, exchange = opened('{"reply":{"answer":"It says hello."}}')
    heard = Heard()
    answer = await exchange.ask([ASKED], sink=heard)
    assert (answer.text, answer.calls, answer.stop) == ("It says hello.", (), "end")
    assert heard.said == ["It says hello."]


async def test_tools_stand_in_the_system_text_and_not_in_the_tools_field() -> None:
    model_client, _ = opened()
    assert model_client.opened[0].tools == ()
    assert model_client.opened[0].system.startswith("Be brief.")
    assert "files__read" in model_client.opened[0].system


async def test_a_reply_that_does_not_fit_is_sent_back_once_with_what_is_wrong() -> None:
    model_client, exchange = opened(call(file="a.txt"), call(path="a.txt"))
    answer = await exchange.ask([ASKED])
    assert answer.calls[0].arguments == '{"path":"a.txt"}'
    *_, bad, complaint = model_client.asks[1].history
    assert bad == AssistantMessage(call(file="a.txt"))
    assert isinstance(complaint, UserMessage)
    assert "does not fit" in complaint.text


async def test_a_call_that_never_fits_goes_to_the_dispatcher_as_it_is() -> None:
    _, exchange = opened(call(file="a.txt"), call(file="a.txt"))
    answer = await exchange.ask([ASKED])
    assert answer.calls == (ToolCall("", "files::read", '{"file":"a.txt"}'),)


async def test_a_server_that_ignores_the_schema_is_reported_so_that_the_next_way_is_tried() -> None:
    _, exchange = opened("I would read the file.", "Really, I would.")
    with pytest.raises(ProviderError) as refused:
        await exchange.ask([ASKED])
    assert refused.value.code == "schema_unsupported"


async def test_the_history_below_only_grows_also_across_a_retry() -> None:
    model_client, exchange = opened("no", call(path="a.txt"), '{"reply":{"answer":"done"}}')
    history: list[Message] = [ASKED]
    made = (await exchange.ask(history)).calls[0]
    history += [AssistantMessage("", (made,)), ToolMessage("", made.tool, "hello")]
    await exchange.ask(history)
    before, after = model_client.asks[1].history, model_client.asks[2].history
    assert after[: len(before)] == before
    assert json.loads(after[len(before)].text) == json.loads(call(path="a.txt"))


async def test_without_tools_nothing_is_forced() -> None:
    model_client, exchange = opened("Just words.")
    answer = await exchange.ask([ASKED], tools=False)
    assert (answer.text, answer.calls) == ("Just words.", ())
    assert model_client.asks[0].schema is None


def test_definitions_of_a_tool_are_found_in_the_schema_of_the_reply() -> None:
    validator = jsonschema_rs.validator_for(reply_schema([READ, TREE]))
    nested = json.loads(call("tree", root={"next": {"next": None}}))
    broken = json.loads(call("tree", root={"next": 3}))
    assert validator.is_valid(nested)
    assert not validator.is_valid(broken)


@pytest.mark.parametrize(
    "reply", ['{"reply":{"calls":[]}}', '{"reply":{"calls":[{"tool":"nope","arguments":{}}]}}']
)
def test_a_reply_must_name_a_tool_that_was_offered(reply: str) -> None:
    assert not jsonschema_rs.validator_for(reply_schema([READ])).is_valid(json.loads(reply))
