"""Calls that need a yes: the person at the client is asked, and a yes is for exactly that call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_place import NEW, OLD, Person, Place, text_of

from ferrule import tool
from ferrule.core.events import CallStarted, DirectCall, PersonAnswered, ToolAnswered
from ferrule.engine.hooks.call_hooks import Change
from ferrule.tools.context import Context

MAX_MESSAGE = 16_000
ERAS = pytest.mark.parametrize("era", [OLD, NEW])
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


async def sent(
    client: Client, arguments: Any, state: str | None = None, answers: Any = None
) -> Any:
    """One exchange of the newer version, as it is: the client does not answer questions by
    itself.
    """
    return await client.session.call_tool(
        "shelve", arguments, request_state=state, input_responses=answers, allow_input_required=True
    )


def yes(asked: Any) -> dict[str, Any]:
    return {
        name: types.ElicitResult(action="accept", content={"run": True})
        for name in asked.input_requests
    }


@ERAS
async def test_a_yes_of_the_person_at_the_client_lets_the_call_run_once(
    place: Place, person: Person, era: str
) -> None:
    person.says = ["yes"]
    async with place.client(place.server(), era, person=person) as client:
        result = await client.call_tool("shelve", {"book": "Walden"})
    assert text_of(result) == "Walden is on its shelf" and place.done == ["Walden"]
    (asked,) = person.asked
    assert "`shelve`" in asked.message and '{"book":"Walden"}' in asked.message
    choices = [(event.choice, event.by) for event in place.events(PersonAnswered)]
    asked_before = [("deny", "mcp client")] if era == NEW else []
    assert choices == [*asked_before, ("once", "mcp client")]
    assert len(place.events(DirectCall)) == len(choices) and len(place.events(ToolAnswered)) == 1


@ERAS
@pytest.mark.parametrize("said", ["no", "cancel", {"run": False}, {"run": "true"}, {}])
async def test_everything_but_a_clear_yes_is_a_no(
    place: Place, person: Person, era: str, said: Any
) -> None:
    person.says = [said]
    async with place.client(place.server(), era, person=person) as client:
        result = await client.call_tool("shelve", {"book": "Walden"})
    assert result.is_error and json.loads(text_of(result))["error_type"] == "permission_denied"
    assert len(person.asked) == 1 and place.done == [] and place.events(CallStarted) == []
    is_clear = said in ("no", "cancel", {"run": False})
    answered = [event for event in place.events(PersonAnswered) if event.refused_by != "nobody"]
    assert [event.refused_by for event in answered] == ["person" if is_clear else "error"]


@ERAS
async def test_a_client_that_cannot_ask_gets_a_no_that_names_the_rule(
    place: Place, era: str
) -> None:
    async with place.client(place.server(), era) as client:
        result = await client.call_tool("shelve", {"book": "Walden"})
    said = json.loads(text_of(result))["error_message"]
    assert result.is_error and place.done == []
    assert "cannot ask" in said and "`shelve`" in said and "permissions.allow" in said


@ERAS
async def test_what_is_critical_is_never_asked_of_a_client(
    place: Place, person: Person, era: str
) -> None:
    person.says = ["yes"]
    async with place.client(place.server(), era, person=person) as client:
        result = await client.call_tool("burn", {})
    assert result.is_error and place.done == [] and person.asked == []
    assert "where the server runs" in text_of(result)


@ERAS
async def test_named_tools_need_nobodys_yes(place: Place, person: Person, era: str) -> None:
    async with place.client(place.server(yes_to=["shel*", "burn"]), era, person=person) as client:
        assert not (await client.call_tool("shelve", {"book": "Walden"})).is_error
        assert (await client.call_tool("burn", {})).is_error
    assert place.done == ["Walden"] and person.asked == []


@ERAS
async def test_a_yes_is_for_one_call_and_the_next_one_asks_again(
    place: Place, person: Person, era: str
) -> None:
    person.says = ["yes", "no"]
    async with place.client(place.server(), era, person=person) as client:
        assert not (await client.call_tool("shelve", {"book": "Walden"})).is_error
        assert (await client.call_tool("shelve", {"book": "Walden"})).is_error
    assert len(person.asked) == 2 and place.done == ["Walden"]


async def test_the_answer_to_one_call_opens_no_other(place: Place, person: Person) -> None:
    async with place.client(place.server(), NEW, person=person) as client:
        asked = await sent(client, {"book": "Walden"})
        state = asked.request_state
        for arguments, wrong in (
            ({"book": "Moby Dick"}, state),
            ({}, state),
            ({"book": "Walden"}, f"{state}x"),
            ({"book": "Walden"}, ""),
            ({"book": "Walden"}, "v1.AAAA"),
        ):
            with pytest.raises(MCPError, match="requestState"):
                await sent(client, arguments, wrong, yes(asked))
        assert place.done == []
        assert (
            text_of(await sent(client, {"book": "Walden"}, state, yes(asked)))
            == "Walden is on its shelf"
        )
        with pytest.raises(MCPError, match="requestState"):
            await sent(client, {"book": "Walden"}, state, yes(asked))
    assert place.done == ["Walden"]


async def test_answers_without_a_question_or_to_another_one_are_no_answer(
    place: Place, person: Person
) -> None:
    async with place.client(place.server(), NEW, person=person) as client:
        first = await sent(client, {"book": "Walden"})
        # What was asked is known: an answer ahead of the question, by its name, counts for nothing.
        again = await sent(client, {"book": "Walden"}, None, yes(first))
        assert again.input_requests and place.done == []
        other = {"approve_0000": types.ElicitResult(action="accept", content={"run": True})}
        asked = await sent(client, {"book": "Walden"}, first.request_state, other)
        assert (
            asked.input_requests and asked.request_state != first.request_state and place.done == []
        )
        await sent(client, {"book": "Walden"}, asked.request_state, yes(asked))
    assert place.done == ["Walden"]


async def test_another_client_cannot_answer(place: Place, person: Person) -> None:
    server = place.server()
    async with (
        place.client(server, NEW, person=person, name="one") as one,
        place.client(server, NEW, person=person, name="two") as two,
    ):
        asked = await sent(one, {"book": "Walden"})
        with pytest.raises(MCPError, match="requestState"):
            await sent(two, {"book": "Walden"}, asked.request_state, yes(asked))
    assert place.done == []


async def test_a_question_that_nobody_comes_back_to_holds_nobody_up(
    place: Place, person: Person
) -> None:
    person.says = ["yes"]
    async with place.client(place.server(), NEW, person=person) as client:
        await sent(client, {"book": "Moby Dick"})
        assert not (await client.call_tool("shelve", {"book": "Walden"})).is_error
    assert place.done == ["Walden"]
    choices = [event.choice for event in place.events(PersonAnswered)]
    assert choices == ["deny", "deny", "once"], "asked, asked, answered"


async def test_a_question_that_nobody_answers_in_time_is_a_no(
    place: Place, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.servers.mcp.requests.ANSWER_SECONDS", 0.01)
    async with place.client(place.server(), NEW, person=person) as client:
        left = await sent(client, {"book": "Moby Dick"})
        await place.until(lambda: len(place.events(PersonAnswered)) == 2)
        with pytest.raises(MCPError, match="requestState"):
            await sent(client, {"book": "Moby Dick"}, left.request_state, yes(left))
    assert place.done == [] and "took too long" in place.events(PersonAnswered)[1].note


@ERAS
async def test_calls_side_by_side_are_asked_about_one_after_another_and_each_gets_its_own_answer(
    place: Place, person: Person, era: str
) -> None:
    books = [f"book {at}" for at in range(6)]
    person.says = [{"run": True}, "no"] * 3
    async with place.client(place.server(), era, person=person) as client:
        results = await asyncio.gather(
            *(client.call_tool("shelve", {"book": one}) for one in books)
        )
    asked = [json.loads(one.message.partition("\n")[2])["book"] for one in person.asked]
    assert sorted(asked) == books
    allowed = {book for at, book in enumerate(asked) if at % 2 == 0}
    assert set(place.done) == allowed
    assert {
        book for book, result in zip(books, results, strict=True) if not result.is_error
    } == allowed


@ERAS
async def test_a_call_within_a_call_is_asked_about_too_and_the_outer_one_runs_once(
    place: Place, person: Person, era: str
) -> None:
    begun: list[str] = []

    @tool(side_effect="none")
    async def tidy(context: Context) -> str:
        """Put two books away."""
        begun.append("tidy")
        assert context.call is not None
        results = [await context.call("shelve", {"book": one}) for one in ("Walden", "Moby Dick")]
        return ", ".join(str(one.success) for one in results)

    person.says = ["yes", "no"]
    async with place.client(place.server(place.agent(tidy)), era, person=person) as client:
        assert text_of(await client.call_tool("tidy", {})) == "True, False"
    assert begun == ["tidy"] and place.done == ["Walden"] and len(person.asked) == 2


@ERAS
async def test_a_client_that_takes_its_call_back_while_its_person_is_asked_gets_nothing_done_and_the_next_is_asked(
    place: Place, person: Person, era: str
) -> None:
    person.says = ["nothing", "yes"]
    async with place.client(place.server(), era, person=person) as client:
        first = asyncio.create_task(client.call_tool("shelve", {"book": "Walden"}))
        await person.begun.wait()
        second = asyncio.create_task(client.call_tool("shelve", {"book": "Moby Dick"}))
        await client.call_tool("look", {})  # the second one is there now, and waits
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        async with asyncio.timeout(20):
            assert not (await second).is_error
    assert place.done == ["Moby Dick"]


@ERAS
@pytest.mark.parametrize("second", ["yes", "no"])
async def test_arguments_that_a_hook_changed_after_the_yes_are_another_question(
    place: Place, person: Person, era: str, second: str
) -> None:
    class Correcting:
        async def before(self, tool: Any, arguments: Any, context: Any) -> Any:
            return Change({"book": "Moby Dick"})

        async def after(self, tool: Any, result: Any, context: Any) -> None:
            return None

    person.says = ["yes", second]
    async with place.client(
        place.server(place.agent(hooks=[Correcting()])), era, person=person
    ) as client:
        result = await client.call_tool("shelve", {"book": "Walden"})
    assert ["Walden" in person.asked[0].message, "Moby Dick" in person.asked[1].message] == [
        True,
        True,
    ]
    assert len(person.asked) == 2 and result.is_error is (second == "no")
    assert place.done == (["Moby Dick"] if second == "yes" else [])


async def test_a_question_that_is_too_long_says_what_it_leaves_out(
    place: Place, person: Person
) -> None:
    person.says = ["no"]
    async with place.client(place.server(), NEW, person=person) as client:
        await client.call_tool("shelve", {"book": "x" * 2 * MAX_MESSAGE})
    (asked,) = person.asked
    assert f"[shown: {MAX_MESSAGE} of " in asked.message and len(asked.message) < MAX_MESSAGE + 500
