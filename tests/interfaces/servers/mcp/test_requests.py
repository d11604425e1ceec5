"""Requests at work: progress, questions of tools, what happens when a client goes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from grouped_options import grouped

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

import mcp_types as types
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_place import NEW, OLD, TOKEN, Person, Place, text_of

from ferrule import tool
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError
from ferrule.core.events import DirectCall, Noticed, ToolAnswered
from ferrule.engine.event_bus.bus import Bus
from ferrule.servers.mcp import (
    Client,
    Offers,
    Prompt,
    PromptArgument,
    Resource,
    Template,
    client_of,
    image,
    sampling,
)
from ferrule.tools.context import Context

MAX_SHOWN = 4 * 1024 * 1024
ERAS = pytest.mark.parametrize("era", [OLD, NEW])


@ERAS
async def test_progress_reaches_a_client_that_asked_for_it_in_order_and_before_the_answer(
    place: Place, era: str
) -> None:
    @tool(side_effect="none")
    async def count(context: Context) -> str:
        """Count."""
        for at in range(20):
            context.progress(f"at {at}")
        return "counted"

    @tool(side_effect="none")
    def count_in_a_thread(context: Context) -> str:
        """Count elsewhere."""
        for at in range(20):
            context.progress(f"at {at}")
        return "counted"

    heard: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    server = place.server(place.agent(count, count_in_a_thread))
    async with place.client(server, era) as client:
        for name in ("count", "count_in_a_thread"):
            heard.clear()
            await client.call_tool(name, {}, progress_callback=on_progress)
            await place.until(lambda: len(heard) == 20)
            assert heard == [(at + 1.0, f"at {at}") for at in range(20)]


@ERAS
async def test_a_cancelled_call_ends_and_is_written_down(place: Place, era: str) -> None:
    async with place.client(place.server(), era) as client:
        call = asyncio.create_task(client.call_tool("wait", {}))
        await place.begun.wait()
        call.cancel()
        await place.ended.wait()
        assert not (await client.call_tool("look", {})).is_error
    results = [event.result for event in place.events(ToolAnswered)]
    assert [one.error_type for one in results] == [ErrorType.CANCELLED, ErrorType.NONE]


@ERAS
async def test_a_client_that_vanishes_in_the_middle_ends_its_call_and_nobody_elses(
    place: Place, era: str
) -> None:
    server = place.server()
    async with place.client(server, era, name="other") as other:
        with pytest.raises(asyncio.CancelledError):
            async with place.client(server, era, name="gone") as gone:
                call = asyncio.create_task(gone.call_tool("wait", {}))
                await place.begun.wait()
                call.cancel()
                await call
        await place.ended.wait()
        assert not (await other.call_tool("look", {})).is_error
    calls = {event.call.id for event in place.events(DirectCall)}
    assert {event.result.call_id for event in place.events(ToolAnswered)} == calls and len(
        calls
    ) == 2


async def test_a_server_that_closes_ends_what_is_at_work(place: Place) -> None:
    server = place.server()
    async with place.client(server, NEW) as client:
        call = asyncio.create_task(client.call_tool("wait", {}))
        await place.begun.wait()
        await server.close()
        assert place.ended.is_set()
        with pytest.raises((MCPError, asyncio.CancelledError)):
            await call
    assert [event.result.error_type for event in place.events(ToolAnswered)] == [
        ErrorType.CANCELLED
    ]


@ERAS
async def test_a_tool_asks_the_person_at_the_client_and_runs_once(
    place: Place, person: Person, era: str
) -> None:
    person.says = [{"word": "hello"}, {"word": "world"}]
    async with place.client(place.server(), era, person=person) as client:
        assert text_of(await client.call_tool("ask_twice", {})) == "hello world"
    assert place.done == ["asked"] and [one.message for one in person.asked] == [
        "First?",
        "Second?",
    ]
    assert len(place.events(DirectCall)) == len(place.events(ToolAnswered)) == 1


@ERAS
async def test_a_person_who_does_not_answer_is_a_failure_of_the_tool(
    place: Place, person: Person, era: str
) -> None:
    person.says = [{"word": "hello"}, "no"]
    async with place.client(place.server(), era, person=person) as client:
        result = await client.call_tool("ask_twice", {})
    assert result.is_error and json.loads(text_of(result))["error_type"] == "cancelled"


async def test_an_older_client_that_cannot_answer_gets_a_failure_and_a_newer_one_learns_what_it_lacks(
    place: Place,
) -> None:
    server = place.server()
    async with place.client(server, OLD) as client:
        result = await client.call_tool("ask_twice", {})
        assert result.is_error and "`elicitation`" in text_of(result)
    async with place.client(server, NEW) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("ask_twice", {})
    assert raised.value.code == -32021
    assert raised.value.data == {"requiredCapabilities": {"elicitation": {}}}


@ERAS
async def test_a_tool_asks_the_model_of_a_client_that_has_one(place: Place, era: str) -> None:
    @tool(side_effect="none")
    async def capital(context: Context) -> str:
        """Name the capital of France."""
        answers = await client_of(context).ask(answer=sampling("The capital of France?", 100))
        return str(answers["answer"]["content"]["text"])

    async def answer(context: Any, params: Any) -> Any:
        said = types.TextContent(type="text", text=f"{params.max_tokens} tokens: Paris")
        return types.CreateMessageResult(role="assistant", content=said, model="theirs")

    server = place.server(place.agent(capital))
    async with place.client(server, era, sampling_callback=answer) as client:
        assert text_of(await client.call_tool("capital", {})) == "100 tokens: Paris"


async def test_without_a_client_there_is_nobody_to_ask(place: Place) -> None:
    session = place.agent().session()
    result = await session.call("ask_twice")
    assert not result.success and "MCP client" in (result.error_message or "")
    await session.close()


@ERAS
async def test_pictures_go_beside_the_result_within_bounds_and_the_journal_says_so(
    place: Place, era: str
) -> None:
    @tool(side_effect="none")
    async def paint(size: int, context: Context) -> str:
        """Paint."""
        client_of(context).show(image(b"x" * size))
        return "painted"

    async with place.client(place.server(place.agent(paint)), era) as client:
        result = await client.call_tool("paint", {"size": 300})
        assert [part.type for part in result.content] == ["text", "image"]
        assert (await client.call_tool("paint", {"size": MAX_SHOWN})).is_error
    assert [one.text for one in place.events(Noticed) if "image/png" in one.text] == [
        "sent to the client beside the result: image image/png, 300 bytes"
    ]


@ERAS
async def test_prompts_and_resources_of_a_program_are_served(
    place: Place, person: Person, era: str
) -> None:
    async def welcome(client: Client, who: str) -> str:
        said = await client.elicit("How?", {"word": {"type": "string"}})
        return f"{said['word']}, {who}!"

    offers = Offers(
        prompts=[Prompt("welcome", "Welcome somebody.", welcome, (PromptArgument("who"),))],
        resources=[Resource("book://walden", "walden", lambda: "When I wrote the following pages")],
        templates=[
            Template("book://{title}/page/{page}", "page", lambda title, page: f"{title}, {page}")
        ],
        complete=lambda reference, name, typed: [
            one for one in ("ann", "bob") if one.startswith(typed)
        ],
    )
    person.says = [{"word": "Hello"}]
    async with place.client(place.server(offers=offers), era, person=person) as client:
        assert [one.name for one in (await client.list_prompts()).prompts] == ["welcome"]
        got = await client.get_prompt("welcome", {"who": "Ann"})
        assert got.messages[0].content.text == "Hello, Ann!"
        with pytest.raises(MCPError, match="`who` is missing"):
            await client.get_prompt("welcome", {})
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("farewell", {})
        read = await client.read_resource("book://moby%20dick/page/7")
        assert read.contents[0].text == "moby dick, 7"
        with pytest.raises(MCPError) as raised:
            await client.read_resource("book://walden/../../etc/passwd")
        assert raised.value.data == {"uri": "book://walden/../../etc/passwd"}
        reference = types.PromptReference(type="ref/prompt", name="welcome")
        completed = await client.complete(reference, {"name": "who", "value": "b"})
        assert completed.completion.values == ["bob"]


@ERAS
async def test_who_subscribed_to_a_resource_hears_that_it_changed(place: Place, era: str) -> None:
    server = place.server(
        offers=Offers(resources=[Resource("book://walden", "walden", lambda: "text")])
    )
    told: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: Any) -> None:
        told.put_nowait(str(message.params.uri))

    async with place.client(server, era, message_handler=heard) as client:
        if era == OLD:
            with pytest.warns(MCPDeprecationWarning):
                await client.subscribe_resource("book://walden")
            await server.notify_updated("book://other")
            await server.notify_updated("book://walden")
            assert await told.get() == "book://walden"
            with pytest.warns(MCPDeprecationWarning):
                await client.unsubscribe_resource("book://walden")
            await server.notify_updated("book://walden")
            assert told.empty()
        else:
            async with client.listen(resource_subscriptions=["book://walden"]) as news:
                await server.notify_updated("book://other")
                await server.notify_updated("book://walden")
                assert (await anext(aiter(news))).uri == "book://walden"


def traced(place: Place) -> tuple[Any, dict[str, Any]]:
    """What spans are collected in, and what an agent is given for it."""
    sdk = pytest.importorskip(
        "opentelemetry.sdk.trace", reason="the SDK of OpenTelemetry is not installed here"
    )
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from ferrule.engine.telemetry.telemetry import Telemetry

    exporter, provider, bus = InMemorySpanExporter(), sdk.TracerProvider(), Bus()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracer_provider=provider)
    telemetry.listen(bus)
    return exporter, {"bus": bus, "resources": [telemetry]}


@ERAS
async def test_a_call_belongs_to_the_trace_of_its_client(place: Place, era: str) -> None:
    exporter, given = traced(place)
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with place.client(place.server(place.agent(**given)), era) as client:
        await client.call_tool("look", {}, meta={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    (span,) = [one for one in exporter.get_finished_spans() if one.name == "execute_tool look"]
    assert format(span.context.trace_id, "032x") == trace


async def test_a_call_of_ours_to_a_server_takes_its_trace_along(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ferrule.connectors.mcp import McpServer, connect
    from ferrule.engine.agent import Agent
    from ferrule.permissions.approvals import AllowlistApprover

    (exporter, given), (elsewhere, theirs) = traced(place), traced(place)
    monkeypatch.setenv("LIBRARY_TOKEN", TOKEN)
    headers = {"Authorization": "Bearer ${LIBRARY_TOKEN}"}
    async with (
        place.http(place.server(place.agent(**theirs))) as url,
        connect(
            [McpServer("library", url=url, headers=headers)], workspace=place.folder
        ) as servers,
    ):
        ours = Agent(
            "scripted:none",
            servers.tools,
            **grouped(approver=AllowlistApprover(["*"]), journal=":memory:", **given),
        )
        session = ours.session()
        result = await session.call("library__look", shelf=3)
        assert result.success and result.data["shelf"] == 3
        await session.close()
    (made,) = [
        one for one in exporter.get_finished_spans() if one.name == "execute_tool library__look"
    ]
    (span,) = [one for one in elsewhere.get_finished_spans() if one.name == "execute_tool look"]
    assert span.context.trace_id == made.context.trace_id


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from ferrule.servers.mcp.handlers import require_library

    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel.server", None)
    with pytest.raises(ConfigError) as raised:
        require_library()
    assert 'pip install "ferrule[mcp]"' in raised.value.hint
