"""Reports of libraries for agents, which nobody had looked at before, each in a few lines."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from chat_server import ask, chunk, stream, stream_call, stream_text, whole
from pydantic import BaseModel, Field

from ferrule import (
    Agent,
    ConfigError,
    Context,
    Image,
    Permissions,
    ProviderError,
    RunCancelled,
    Scripted,
    Storage,
    SubAgent,
    tool,
)
from ferrule.connectors import McpServer, connect_mcp
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.bedrock.client import Bedrock
from ferrule.models.client import ModelClient
from ferrule.models.google.client import Google
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.openai.strict_schema import compile_strict
from ferrule.plugins import Parts
from ferrule.storage import SqliteJournal
from ferrule.testing import calls, says
from ferrule.testing.http_double import HttpDouble, Reply, Request

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Address(BaseModel):
    city: str
    street: str | None = None


class Profile(BaseModel):
    name: str
    address: Address
    size: int = 3


class Tree(BaseModel):
    label: str
    children: list[Tree] = []


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None


class BuyFruit(BaseModel):
    action: Literal["buy_fruit"]
    color: str


class BuyFood(BaseModel):
    action: Literal["buy_food"]
    price: int = 1


class Actions(BaseModel):
    steps: list[Annotated[BuyFruit | BuyFood, Field(discriminator="action")]]


@dataclass
class Point:
    x: int
    y: int


class Shop:
    """Not JSON."""


@tool(side_effect="none")
def now() -> str:
    """Say what time it is."""
    return "noon"


async def converse(
    client: Callable[..., ModelClient],
    answer: Callable[[int], Reply],
    messages: list[str],
    tools: Any = (),
    *,
    streamed: bool = False,
    history: Any = (),
    **options: Any,
) -> tuple[list[Any], list[dict[str, Any]], str]:
    """Run messages against a server. Return the results, the requests and the history's JSON."""
    sent: list[dict[str, Any]] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        asked = request.json()
        if "report_ready" in json.dumps(asked):
            function = {"name": "report_ready", "arguments": "{}"}
            call = {"id": "c", "type": "function", "function": function}
            return whole({"role": "assistant", "tool_calls": [call]}, "tool_calls")
        sent.append(asked)
        return answer(len(sent))

    async with HttpDouble(reply) as server:
        agent = Agent(client("m", base_url=server.url), tools, **options)
        async with agent.session(history=history) as session:
            if streamed:
                session.observe(lambda _: None)
            results = [await session.run(message) for message in messages]
        await agent.disconnect()
    return results, sent, results[-1].messages.to_json()


anthropic = partial(Anthropic, api_key="k")
google = partial(Google, api_key="k")
responses = partial(OpenAIResponses, api_key="k")
chat = partial(OpenAIChat, api_key="k")


def events(*given: dict[str, Any], named: bool = True) -> Reply:
    pieces = [
        (f"event: {one['type']}\n" if named else "").encode()
        + f"data: {json.dumps(one)}\n\n".encode()
        for one in given
    ]
    return Reply(pieces=pieces, headers={"content-type": "text/event-stream"})


def anthropic_message(*content: dict[str, Any], stop: str = "end_turn") -> Reply:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return Reply(
        json={
            "type": "message", "role": "assistant", "content": list(content),
            "stop_reason": stop, "usage": usage,
        }
    )  # fmt: skip


def google_answer(*parts: dict[str, Any], **usage: int) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)}
    answer: dict[str, Any] = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    return {**answer, "usageMetadata": usage} if usage else answer


# ---- what providers count


async def test_tokens_of_a_streamed_answer_of_anthropic_are_counted_once() -> None:
    start = {"type": "message", "role": "assistant", "content": [], "model": "m", "id": "x"}
    reply = events(
        {"type": "message_start", "message": {**start, "usage": {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 40}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 40}},
        {"type": "message_stop"},
    )  # fmt: skip
    (result,), _, _ = await converse(anthropic, lambda _: reply, ["go"], streamed=True)
    assert (result.usage.input, result.usage.output, result.usage.cached) == (140, 7, 40)


async def test_tokens_of_a_streamed_answer_of_google_are_not_those_of_all_chunks() -> None:
    chunks = [
        google_answer({"text": word}, promptTokenCount=36, candidatesTokenCount=count)
        for count, word in enumerate(("a ", "b ", "c"), 1)
    ]
    reply = events(*chunks, named=False)
    (result,), _, _ = await converse(google, lambda _: reply, ["go"], streamed=True)
    assert (result.text, result.usage.input, result.usage.output) == ("a b c", 36, 3)


@pytest.mark.parametrize("stops", ["all", "empty"])
async def test_a_reason_to_stop_before_the_end_cuts_no_answer_of_google(stops: str) -> None:
    words = [google_answer({"text": word}, promptTokenCount=3) for word in ("a ", "b ", "c")]
    if stops == "empty":
        for word in words:
            del word["candidates"][0]["finishReason"]
        stop = google_answer(promptTokenCount=3)
        words = [stop, stop, *words, stop]
    (result,), _, _ = await converse(google, lambda _: events(*words, named=False), ["go"], streamed=True)  # fmt: skip
    assert result.text == "a b c"


async def test_an_answer_of_google_that_breaks_off_after_a_reason_to_stop_is_an_error() -> None:
    last = google_answer({"text": "b"}, promptTokenCount=3)
    del last["candidates"][0]["finishReason"]
    reply = events(google_answer(promptTokenCount=3), last, named=False)
    with pytest.raises(ProviderError) as error:
        await converse(google, lambda _: reply, ["go"], streamed=True)
    assert error.value.code == "interrupted"


async def test_cached_tokens_that_only_an_earlier_chunk_of_google_names_are_kept() -> None:
    reply = events(
        google_answer({"text": "a"}, promptTokenCount=50, cachedContentTokenCount=40),
        google_answer({"text": "b"}, promptTokenCount=50, candidatesTokenCount=2),
        named=False,
    )
    (result,), _, _ = await converse(google, lambda _: reply, ["go"], streamed=True)
    assert (result.usage.input, result.usage.cached) == (50, 40)


async def test_reasoning_tokens_of_a_streamed_answer_are_counted_once() -> None:
    usage = {
        "input_tokens": 5,
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 20},
    }
    part = {"type": "output_text", "text": "Hi", "annotations": []}
    item = {
        "id": "i",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    whole = {
        "id": "r",
        "object": "response",
        "status": "completed",
        "output": [item],
        "usage": usage,
    }
    reply = events(
        {"type": "response.created", "response": {**whole, "output": [], "status": "in_progress", "usage": None}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    )  # fmt: skip
    (result,), _, _ = await converse(responses, lambda _: reply, ["go"], streamed=True)
    assert (result.usage.output, result.usage.reasoning) == (30, 20)


async def test_input_tokens_of_bedrock_include_cached_ones() -> None:
    pytest.importorskip("botocore", reason="`botocore` is not installed: it signs requests")
    usage = {
        "inputTokens": 10, "outputTokens": 2, "totalTokens": 112,
        "cacheReadInputTokens": 80, "cacheWriteInputTokens": 20,
    }  # fmt: skip
    message = {"role": "assistant", "content": [{"text": "Hi"}]}
    reply = Reply(json={"output": {"message": message}, "stopReason": "end_turn", "usage": usage})
    bedrock = partial(Bedrock, region="eu-west-1", api_key="k")
    (result,), _, _ = await converse(bedrock, lambda _: reply, ["go"])
    assert (result.usage.input, result.usage.cached, result.usage.written) == (110, 80, 20)


# ---- histories of one provider with another


async def test_calls_without_ids_of_one_provider_have_some_for_the_next() -> None:
    def answer(number: int) -> Reply:
        call = {"functionCall": {"name": "now", "args": {}}}
        return Reply(json=google_answer(call if number == 1 else {"text": "Noon."}))

    _, _, history = await converse(google, answer, ["What time is it?"], [now])
    _, sent, _ = await converse(
        chat, lambda _: whole({"role": "assistant", "content": "Noon."}), ["Again?"], [now],
        history=history,
    )  # fmt: skip
    messages = sent[-1]["messages"]
    (call,) = next(one["tool_calls"] for one in messages if one.get("tool_calls"))
    (result,) = [one for one in messages if one["role"] == "tool"]
    assert call["id"] and result["tool_call_id"] == call["id"]


async def test_thoughts_of_another_provider_are_not_text_for_this_one() -> None:
    message = {"role": "assistant", "content": "Hi.", "reasoning_content": "a secret thought"}
    _, _, history = await converse(chat, lambda _: whole(message), ["Hello"])
    _, sent, _ = await converse(
        anthropic, lambda _: anthropic_message({"type": "text", "text": "Yes."}), ["And?"],
        history=history,
    )  # fmt: skip
    assert "secret thought" not in json.dumps(sent[-1])
    assert "Hi." in json.dumps(sent[-1])


async def test_a_thought_that_was_cut_is_not_sent_back_with_its_signature() -> None:
    start = {"type": "message", "role": "assistant", "content": [], "model": "m", "id": "x"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    cut = Reply(
        pieces=events(
            {"type": "message_start", "message": {**start, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "half a thou"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        ).pieces,
        headers={"content-type": "text/event-stream"},
        then="hold",
    )  # fmt: skip
    sent: list[str] = []

    def reply(request: Request) -> Reply:
        sent.append(request.body.decode())
        return cut if len(sent) == 1 else anthropic_message({"type": "text", "text": "Yes."})

    async with HttpDouble(reply) as server:
        agent = Agent(anthropic("m", base_url=server.url))
        async with agent.session() as session:
            shown = asyncio.Event()
            stop = session.observe(lambda _: shown.set())
            task = asyncio.ensure_future(session.run("go"))
            await server.request_received.wait()
            await shown.wait()
            task.cancel()
            with pytest.raises((asyncio.CancelledError, RunCancelled)):
                await task
            stop()
            assert (await session.run("go on")).text == "Yes."
        await agent.disconnect()
    assert "c2ln" not in sent[-1] and "signature" not in sent[-1]


# ---- streams


async def test_a_streamed_run_goes_on_after_calls_until_there_is_an_answer() -> None:
    replies = [
        stream([chunk({"role": "assistant", "content": "Let me look."}), *call_after_text()]),
        stream_text("It is noon."),
    ]
    result, requests = await ask(replies, [now])
    assert (result.text, len(requests)) == ("It is noon.", 2)


def call_after_text() -> list[Any]:
    function = {"name": "now", "arguments": "{}"}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return [chunk({"tool_calls": [call]}), chunk({}, "tool_calls")]


async def test_a_filter_that_cuts_a_text_is_an_error_all_the_same() -> None:
    cut = stream([chunk({"content": "I can not"}), chunk({}, "content_filter")])
    with pytest.raises(ProviderError) as error:
        await ask([cut])
    assert error.value.code == "content_filter"


async def test_a_filter_s_error_within_a_stream_is_named_and_not_repeated() -> None:
    text = "The response was filtered due to the prompt triggering the content management policy."
    error = {"error": {"message": text, "code": "content_filter", "status": 400}}
    with pytest.raises(ProviderError) as found:
        await ask([stream([json.dumps(error)], ends=False)])
    assert (found.value.code, found.value.retryable) == ("content_filter", False)


# ---- typed answers


async def test_a_choice_that_was_not_offered_is_asked_for_again() -> None:
    script = [
        says('{"value": {"choice": "cat", "value": {}}}'),
        says('{"value": {"choice": "Point", "value": {"x": 1, "y": 2}}}'),
    ]

    def take(point: Point) -> Point:
        return point

    agent = Agent(Scripted(script), output_type=[take, Point], output_mode="prompt")
    assert (await agent.run("go")).output == Point(1, 2)


def test_unions_and_defaults_of_a_typed_answer_fit_the_strict_subset() -> None:
    compiled = compile_strict(json.dumps(Actions.model_json_schema()))
    text = json.dumps(compiled.schema)
    assert '"oneOf"' not in text and '"default"' not in text and '"discriminator"' not in text


async def test_a_sub_agent_answers_with_a_union_too() -> None:
    steps = {"steps": [{"action": "buy_fruit", "color": "red"}, {"action": "buy_food", "price": 2}]}
    script = [
        calls(("delegate", {"agent": "shopper", "task": "Buy."})),
        says(json.dumps(steps)),
        says("Bought."),
    ]
    shopper = SubAgent("shopper", "Makes lists.", output_type=Actions)
    result = await Agent(Scripted(script), plugins=[Parts(agents=[shopper])]).run("go")
    assert result.text == "Bought."
    assert result.results[0].data["answer"] == steps


async def test_the_schema_of_the_answer_is_there_after_calls_too() -> None:
    replies = [stream_call("now", "{}"), stream_text('{"x": 1, "y": 2}')]
    result, requests = await ask(replies, [now], output_type=Point, output_mode="schema")
    assert result.output == Point(1, 2)
    assert all("response_format" in request for request in requests)


# ---- parameters of tools


def schema_of(function: Any) -> dict[str, Any]:
    return dict(json.loads(tool(function).schema_json()))


async def call_once(function: Any, arguments: dict[str, Any]) -> Any:
    agent = Agent(Scripted([calls((function.__name__, arguments)), says("done")]), [function])
    return (await agent.run("go")).results[0]


async def test_required_members_of_a_nested_model_are_required_and_checked() -> None:
    got: list[Any] = []

    def save(profile: Profile) -> str:
        """Save it."""
        got.append(profile)
        return "saved"

    assert '"required":["name","address"]' in json.dumps(schema_of(save)).replace(" ", "")
    bad = await call_once(save, {"profile": {"address": {"city": "Ghent"}}})
    assert (bad.success, str(bad.error_type), got) == (False, "validation_failed", [])
    good = await call_once(save, {"profile": {"name": "Ada", "address": {"city": "Ghent"}}})
    assert good.success and got == [Profile(name="Ada", address=Address(city="Ghent"))]


async def test_recursive_and_generic_models_are_parameters() -> None:
    got: list[Any] = []

    def plant(tree: Tree, page: Page[Address]) -> int:
        """Plant it."""
        got.extend((tree, page))
        return len(tree.children)

    tree = {"label": "a", "children": [{"label": "b", "children": [{"label": "c"}]}]}
    result = await call_once(plant, {"tree": tree, "page": {"items": [{"city": "Ghent"}]}})
    assert result.data == 1
    assert got[0].children[0].children[0].label == "c"
    assert got[1].items == [Address(city="Ghent")]


@pytest.mark.parametrize("client", [google, anthropic, responses, chat])
async def test_a_recursive_model_is_offered_to_every_provider(client: Any) -> None:
    def plant(tree: Tree) -> str:
        """Plant it."""
        return tree.label

    def answer(_: int) -> Reply:
        if client is google:
            return Reply(json=google_answer({"text": "Fine."}))
        if client is anthropic:
            return anthropic_message({"type": "text", "text": "Fine."})
        if client is chat:
            return whole({"role": "assistant", "content": "Fine."})
        part = {"type": "output_text", "text": "Fine.", "annotations": []}
        item = {"id": "i", "type": "message", "role": "assistant", "content": [part]}
        return Reply(
            json={"id": "r", "object": "response", "status": "completed", "output": [item]}
        )

    (result,), sent, _ = await converse(client, answer, ["go"], [plant])
    assert result.text == "Fine."
    assert "children" in json.dumps(sent[-1])


async def test_models_and_dataclasses_arrive_as_such() -> None:
    got: list[Any] = []

    def move(to: Point, who: Profile) -> str:
        """Move."""
        got.extend((to, who))
        return "moved"

    who = {"name": "Ada", "address": {"city": "Ghent"}}
    assert (await call_once(move, {"to": {"x": 1, "y": 2}, "who": who})).success
    assert [type(one) for one in got] == [Point, Profile]


async def test_dictionaries_and_pairs_of_bytes_are_parameters() -> None:
    got: list[Any] = []

    def draw(prompt: str, options: dict[str, str] | None = None, pictures: list[tuple[bytes, str]] | None = None) -> str:  # fmt: skip
        """Draw it."""
        got.append((options, pictures))
        return prompt

    arguments = {"prompt": "a", "options": {"k": "v"}, "pictures": [["YQ==", "png"]]}
    assert (await call_once(draw, arguments)).success
    ((options, pictures),) = got
    assert options == {"k": "v"}
    assert pictures is not None and pictures[0][1] == "png" and isinstance(pictures[0][0], bytes)


async def test_a_tool_that_yields_is_a_tool_or_an_error_that_says_so() -> None:
    async def watch(circuit: str) -> AsyncIterator[dict[str, str]]:
        """Watch a circuit."""
        yield {"circuit": circuit}
        yield {"circuit": circuit + "!"}

    try:
        result = await call_once(watch, {"circuit": "a"})
    except ConfigError as error:
        assert "watch" in error.detail
    else:
        assert result.success and "a!" in json.dumps(result.data)


async def test_the_context_is_no_argument_and_no_part_of_events() -> None:
    def sell(context: Context[Shop], profile: Profile) -> str:
        """Sell."""
        return f"{profile.name} {type(context.deps).__name__}"

    assert set(schema_of(sell)["properties"]) == {"profile"}
    arguments = {"profile": {"name": "Ada", "address": {"city": "Ghent"}}}
    agent = Agent(Scripted([calls(("sell", arguments)), says("done")]), [sell], deps_type=Shop)
    seen: list[Any] = []
    async with agent.session(deps=Shop()) as session:
        session.observe(seen.append)
        result = await session.run("go")
        written = "".join(str(record.event) for record in agent.journal.records(session.id))
    assert result.results[0].data == "Ada Shop"
    assert "Shop object" not in written + str(seen)


async def test_a_plain_function_runs_once_and_an_async_one_in_a_running_loop() -> None:
    count: list[str] = []

    def plain() -> str:
        """Run."""
        count.append("plain")
        return "a"

    async def later() -> str:
        """Run later."""
        await asyncio.sleep(0)
        count.append("later")
        return "b"

    script = [calls(("plain", {}), ("later", {})), says("done")]
    result = await Agent(Scripted(script), [plain, later]).run("go")
    assert [one.data for one in result.results] == ["a", "b"]
    assert sorted(count) == ["later", "plain"]


async def test_a_tool_without_a_description_is_taken_by_bedrock() -> None:
    pytest.importorskip("botocore", reason="`botocore` is not installed: it signs requests")

    def bare(city: str) -> str:
        return city

    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    message = {"role": "assistant", "content": [{"text": "Hi"}]}
    reply = Reply(json={"output": {"message": message}, "stopReason": "end_turn", "usage": usage})
    bedrock = partial(Bedrock, region="eu-west-1", api_key="k")
    _, sent, _ = await converse(bedrock, lambda _: reply, ["go"], [bare])
    for one in sent[0]["toolConfig"]["tools"]:
        assert one["toolSpec"].get("description", "x") != ""


# ---- pictures


@pytest.mark.parametrize("client", [anthropic, google])
async def test_a_picture_that_a_tool_returns_reaches_the_provider(client: Any) -> None:
    @tool(side_effect="none")
    def look() -> Image:
        """Look."""
        return Image(PIXEL)

    def answer(number: int) -> Reply:
        if client is google:
            call = {"functionCall": {"name": "look", "args": {}}}
            return Reply(json=google_answer(call if number == 1 else {"text": "A dot."}))
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        text = {"type": "text", "text": "A dot."}
        return anthropic_message(call, stop="tool_use") if number == 1 else anthropic_message(text)

    (result,), sent, _ = await converse(client, answer, ["go"], [look])
    assert result.text == "A dot."
    assert base64.b64encode(PIXEL).decode()[:40] in json.dumps(sent[-1])
    if client is anthropic:
        blocks = [block for one in sent[-1]["messages"] for block in one["content"]]
        assert sum(block.get("type") == "tool_result" for block in blocks if isinstance(block, dict)) == 1  # fmt: skip


# ---- sessions


async def test_calls_and_results_are_there_when_a_session_is_opened_again(tmp_path: Path) -> None:
    script = [calls(("now", {})), says("Noon."), says("As I said: noon.")]
    model = Scripted(script)
    with SqliteJournal(tmp_path / "kept.db") as journal:
        first = Agent(model, [now], storage=Storage(journal=journal))
        session = (await first.run("What time is it?")).session
        again = Agent(model, [now], storage=Storage(journal=journal))
        async with again.session(id=session, resume=True) as opened:
            assert (await opened.run("Again?")).text == "As I said: noon."
    read = str(model.asks[-1].history)
    assert "ToolCall" in read and "ToolMessage" in read and "noon" in read


async def test_a_tool_that_the_model_made_up_ends_no_session() -> None:
    script = [calls(("transfer_money", {})), says("Sorry."), says("Yes?")]
    async with Agent(Scripted(script), [now]).session() as session:
        result = await session.run("go")
        assert str(result.results[0].error_type) == "not_found"
        assert (await session.run("still there?")).text == "Yes?"


async def test_a_session_that_ended_in_a_call_goes_on(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def long() -> str:
        """Take long."""
        entered.set()
        await asyncio.Event().wait()
        return "never"

    script = [calls(("long", {})), says("Fine.")]
    model = Scripted(script)
    with SqliteJournal(tmp_path / "kept.db") as journal:
        agent = Agent(model, [long], storage=Storage(journal=journal))
        async with agent.session() as session:
            task = asyncio.ensure_future(session.run("go"))
            await entered.wait()
            task.cancel()
            with pytest.raises((asyncio.CancelledError, RunCancelled)):
                await task
        again = Agent(model, [long], storage=Storage(journal=journal))
        async with again.session(id=session.id, resume=True) as opened:
            assert (await opened.run("and now?")).text == "Fine."


async def test_who_watches_a_run_hears_that_it_was_stopped_within_a_call() -> None:
    entered = asyncio.Event()

    async def long() -> str:
        """Take long."""
        entered.set()
        await asyncio.Event().wait()
        return "never"

    seen: list[Any] = []
    async with Agent(Scripted([calls(("long", {}))]), [long]).session() as session:
        session.observe(seen.append)
        task = asyncio.ensure_future(session.run("go"))
        await entered.wait()
        task.cancel()
        with pytest.raises((asyncio.CancelledError, RunCancelled)):
            await task
    ends = [one for one in seen if getattr(one, "kind", "") == "run.finished"]
    assert [one.stop for one in ends] == ["cancelled"]


# ---- MCP

SERVER = """
import json, sys

NODE = {"type": "object", "properties": {"label": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}, "required": ["label"]}
TOOLS = {
    "bare": {"type": "object"},
    "refs": {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}},
}

for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    if "id" not in message:
        continue
    if sys.argv[1] == "leaves":
        sys.exit(4)
    result = {}
    if method == "initialize":
        about = {"name": "x", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": schema} for name, schema in TOOLS.items()]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": json.dumps(message["params"].get("arguments"))}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def make_server(folder: Path, how: str) -> McpServer:
    (folder / "server.py").write_text(SERVER)
    command = (sys.executable, str(folder / "server.py"), how)
    return McpServer("x", command=command, readable=(sys.prefix, sys.base_prefix))


async def test_references_and_bare_schemas_of_a_server_are_tools(tmp_path: Path) -> None:
    async with connect_mcp([make_server(tmp_path, "")], workspace=tmp_path) as servers:
        agent = Agent(
            Scripted([]),
            servers.tools,
            workspace=tmp_path,
            permissions=Permissions(allow=["mcp__x"]),
        )
        async with agent.session() as session:
            node = {"label": "a", "next": {"label": "b"}}
            assert (await session.call("x__refs", node=node)).data == {"node": node}
            bad = await session.call("x__refs", node={"next": {}})
            assert str(bad.error_type) == "validation_failed"
            assert (await session.call("x__bare")).success


async def test_a_server_that_leaves_while_it_is_greeted_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ended with 4"):
        async with (
            asyncio.timeout(60),
            connect_mcp([make_server(tmp_path, "leaves")], workspace=tmp_path),
        ):
            pass


async def test_a_server_that_closes_its_stream_each_time_is_not_asked_without_end(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def reply(request: Request) -> Reply:
        asked.append(request.method)
        if request.method == "GET":
            return Reply(pieces=[b": hello\n\n"], headers={"content-type": "text/event-stream"})
        message = request.json()
        if "id" not in message:
            return Reply(202)
        result: dict[str, Any] = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
        if message["method"] == "initialize":
            about = {"name": "x", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": about}  # fmt: skip
        elif message["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": "went"}]}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return Reply(json=body, headers={"content-type": "application/json", "mcp-session-id": "s"})

    async with HttpDouble(reply) as server:
        remote = McpServer("x", url=f"{server.url}/mcp")
        async with connect_mcp([remote], workspace=tmp_path) as servers:
            allowed = Permissions(allow=["mcp__x"])
            agent = Agent(Scripted([]), servers.tools, workspace=tmp_path, permissions=allowed)
            async with agent.session() as session:
                assert (await session.call("x__go")).data == "went"
                await asyncio.sleep(1)
    assert asked.count("GET") <= 5, asked.count("GET")
