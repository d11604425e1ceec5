"""Tools of an agent for MCP clients: what is listed, how calls are answered, and whose they are."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from mcp.shared.exceptions import MCPError
from mcp_place import NEW, OLD, Place, text_of

from ferrule import tool
from ferrule.core.events import CallEvaluated, DirectCall, Noticed, ToolAnswered
from ferrule.core.identity import Identity
from ferrule.tools.definition import Loading, Tool

ERAS = pytest.mark.parametrize("era", [OLD, NEW])


class Book(TypedDict):
    title: str
    pages: int


@tool(side_effect="read", namespace="shop")
async def price(title: Annotated[str, "What to look for."]) -> Book:
    """Look up a book."""
    return {"title": title, "pages": 100}


@ERAS
async def test_tools_are_listed_with_api_names_schemas_and_annotations(
    place: Place, era: str
) -> None:
    async with place.client(place.server(place.agent(price)), era) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
    assert list(listed) == sorted(listed)
    assert set(listed) == {
        "ask_twice",
        "burn",
        "catalogue",
        "look",
        "shelve",
        "shop__price",
        "wait",
    }
    shop = listed["shop__price"]
    assert shop.description == "Look up a book."
    assert shop.input_schema["properties"]["title"]["description"] == "What to look for."
    assert shop.output_schema is not None and shop.output_schema["type"] == "object"
    hints = {name: one.annotations for name, one in listed.items()}
    assert hints["look"].read_only_hint and hints["look"].destructive_hint is None
    assert hints["shelve"].destructive_hint and not hints["shelve"].open_world_hint
    assert (
        hints["burn"].destructive_hint
        and hints["burn"].open_world_hint
        and not hints["burn"].read_only_hint
    )


@ERAS
async def test_the_order_is_the_same_every_time_and_long_lists_come_in_pages(
    place: Place, era: str
) -> None:
    many = [tool(lambda: "", name=f"tool_{at:03}", description="One of many.") for at in range(450)]
    async with place.client(place.server(place.agent(*many)), era) as client:
        orders: list[list[str]] = []
        for _ in range(2):
            names, cursor = list[str](), None
            while True:
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                names += [one.name for one in page.tools]
                if (cursor := page.next_cursor) is None:
                    break
            orders.append(names)
        with pytest.raises(MCPError, match="unknown cursor"):
            await client.list_tools(cursor="-1", cache_mode="bypass")
    assert orders[0] == orders[1] and len(orders[0]) == len(set(orders[0])) == 456


async def test_newer_listings_say_how_long_they_hold_and_for_whom(place: Place) -> None:
    async with place.client(place.server(), NEW) as client:
        listed = await client.list_tools()
    assert listed.ttl_ms == 60_000 and listed.cache_scope == "private"


@ERAS
async def test_what_may_not_be_used_is_neither_listed_nor_called_nor_told_from_what_is_not_there(
    place: Place, era: str
) -> None:
    done: list[str] = []

    def made(name: str, **more: Any) -> Tool:
        return tool(lambda: done.append(name), name=name, description="Not for everybody.", **more)

    from dataclasses import replace

    inner = replace(made("inner"), loading=Loading.INTERNAL)
    hidden = [inner, made("scoped", scopes=["admin"]), made("denied")]
    async with place.client(place.server(place.agent(*hidden, deny=["denied"])), era) as client:
        assert not {"inner", "scoped", "denied"} & {
            one.name for one in (await client.list_tools()).tools
        }
        said: list[str] = []
        for name in ("inner", "scoped", "denied", "absent"):
            with pytest.raises(MCPError) as raised:
                await client.call_tool(name, {})
            said.append(raised.value.message.replace(name, "it"))
    assert set(said) == {"Unknown tool: it"} and done == []
    assert len([one for one in place.events(Noticed) if "not served" in one.text]) == 4


@ERAS
async def test_deferred_tools_are_listed_and_marked_and_those_that_search_are_not(
    place: Place, era: str
) -> None:
    later = tool(
        lambda: "found",
        name="later",
        description="Rarely needed.",
        defer_loading=True,
        side_effect="none",
    )
    async with place.client(place.server(place.agent(later)), era) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        assert text_of(await client.call_tool("later", {})) == "found"
    assert (
        listed["later"].meta is not None and listed["later"].meta["ferrule/loading"] == "deferred"
    )
    assert not any("search" in name for name in listed)


@ERAS
async def test_a_call_is_answered_with_text_and_with_the_value_that_its_schema_describes(
    place: Place, era: str
) -> None:
    async with place.client(place.server(place.agent(price)), era) as client:
        result = await client.call_tool("shop__price", {"title": "Walden"})
        assert (
            json.loads(text_of(result))
            == result.structured_content
            == {"title": "Walden", "pages": 100}
        )
        assert not result.is_error


@ERAS
async def test_a_failure_is_an_error_with_the_result_object(place: Place, era: str) -> None:
    async with place.client(place.server(), era) as client:
        result = await client.call_tool("look", {"shelf": "high"})
    told = json.loads(text_of(result))
    assert (
        result.is_error and told["success"] is False and told["error_type"] == "validation_failed"
    )
    assert "shelf" in told["error_message"]


@ERAS
async def test_every_call_is_one_call_of_the_clients_own_session_in_the_journal(
    place: Place, era: str
) -> None:
    server = place.server()
    async with (
        place.client(server, era, name="Claude Code\u202e!") as first,
        place.client(server, era, name="editor") as second,
    ):
        await asyncio.gather(*(first.call_tool("look", {"shelf": at}) for at in range(5)))
        await second.call_tool("look", {"shelf": 9})
    made = place.recorded(DirectCall)
    assert [event.by for event, _ in made] == ["mcp"] * 6
    whose = {record.user: record.session for _, record in made}
    assert set(whose) == {"mcp:Claude Code_", "mcp:editor"} and len(set(whose.values())) == 2
    answered = [event.result.call_id for event in place.events(ToolAnswered)]
    assert (
        sorted(answered) == sorted(event.call.id for event, _ in made) and len(set(answered)) == 6
    )
    assert [event.text for event in place.events(Noticed) if "client `editor`" in event.text]


async def test_a_denied_call_does_nothing_and_its_reason_reaches_the_client(place: Place) -> None:
    async with place.client(place.server(place.agent(mode="plan")), NEW) as client:
        result = await client.call_tool("shelve", {"book": "Walden"})
    assert result.is_error and json.loads(text_of(result))["error_type"] == "permission_denied"
    assert place.done == [] and [event.verdict for event in place.events(CallEvaluated)] == [
        "refuse"
    ]


@ERAS
async def test_results_that_do_not_fit_their_schema_any_more_say_so(place: Place, era: str) -> None:
    class Redacting:
        async def before(self, tool: Any, arguments: Any, context: Any) -> None:
            return None

        async def after(self, tool: Any, result: Any, context: Any) -> Any:
            from dataclasses import replace

            return replace(result, data={"title": "withheld"})

    async with place.client(place.server(place.agent(price, hooks=[Redacting()])), era) as client:
        result = await client.call_tool("shop__price", {"title": "Walden"})
    assert result.structured_content == {"title": "withheld", "truncated": True}


@ERAS
async def test_a_client_may_have_256_calls_in_progress(place: Place, era: str) -> None:
    async with place.client(place.server(), era) as client:
        answers = await asyncio.gather(*(client.call_tool("look", {}) for _ in range(256)))
    assert not any(answer.is_error for answer in answers)


@ERAS
async def test_too_many_calls_at_once_are_refused_and_the_others_go_on(
    place: Place, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.servers.mcp.sessions.MAX_REQUESTS", 1)
    async with place.client(place.server(), era) as client:
        waiting = asyncio.create_task(client.call_tool("wait", {}))
        await place.begun.wait()
        with pytest.raises(MCPError, match="in progress already"):
            await client.call_tool("look", {})
        assert not waiting.done()
        waiting.cancel()
        await place.ended.wait()


@ERAS
async def test_clients_are_told_when_there_are_other_tools(place: Place, era: str) -> None:
    agent = place.agent()
    server = place.server(agent)
    told: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: Any) -> None:
        told.put_nowait(type(message).__name__)

    async with place.client(server, era, message_handler=heard) as client:
        before = {one.name for one in (await client.list_tools()).tools}
        agent.catalog.add(
            tool(lambda: "new", name="newcomer", description="New.", side_effect="none")
        )
        if era == OLD:
            await server.notify_changed()
            assert await told.get() == "ToolListChangedNotification"
        else:
            async with client.listen(tools_list_changed=True) as news:
                await server.notify_changed()
                assert "ToolsListChanged" in type(await anext(aiter(news))).__name__
        after = {one.name for one in (await client.list_tools(cache_mode="bypass")).tools}
        assert after - before == {"newcomer"}
        assert text_of(await client.call_tool("newcomer", {})) == "new"


async def test_a_call_after_which_there_are_other_tools_is_followed_by_news(place: Place) -> None:
    @tool(side_effect="none")
    async def grow() -> str:
        """Gain a tool."""
        agent.catalog.add(
            tool(lambda: "grown", name="grown", description="New.", side_effect="none")
        )
        return "grown"

    agent = place.agent(grow)
    told: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: Any) -> None:
        told.put_nowait(type(message).__name__)

    async with place.client(place.server(agent), OLD, message_handler=heard) as client:
        await client.call_tool("grow", {})
        assert await told.get() == "ToolListChangedNotification"
        assert text_of(await client.call_tool("grown", {})) == "grown"


def test_identities_are_never_blank() -> None:
    from types import SimpleNamespace

    from ferrule.servers.mcp.peer import client_name

    for name in ("", " ", "\u202e", "\u200b\u200b", "x" * 1_000, "a\nb", "../../etc", "mcp:x"):
        kept = client_name(SimpleNamespace(client_info=SimpleNamespace(name=name)))
        assert (
            Identity("local", f"mcp:{kept}", "s", "r")
            and 0 < len(kept) <= 64
            and kept.isprintable()
        )
    assert client_name(None) == "unknown"
