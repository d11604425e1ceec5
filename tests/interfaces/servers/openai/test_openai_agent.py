"""The model `ferrule`: an agent works a client's message, and a client that keeps nothing goes on
with the session it had.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import httpx
import openai
import pytest

from ferrule.core.errors import ProviderError
from ferrule.core.events import (
    ContextAdded,
    ModelAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    Usage,
)
from ferrule.core.messages import ToolMessage
from ferrule.hooks import block, hook
from ferrule.models.scripted import Scripted, calls, fails, says
from ferrule.runtime.http.http_security import Principal
from ferrule.servers.openai import responses
from media_samples import make_png

READ = {"permissions__allow": ("Read",)}
LOOK = calls(("read_file", {"path": "plan.txt"}), text="Let me look.", usage=Usage(10, 3))


def hello(text: str = "When?") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def test_a_message_is_a_run_of_the_agent_with_its_own_tools(place: Any) -> None:
    await place.serve(LOOK, says("In May.", usage=Usage(20, 4, cached=8)), options=READ)
    client = await place.client()
    made = await client.chat.completions.create(model="ferrule", messages=hello())
    (choice,) = made.choices
    assert (choice.message.content, choice.finish_reason) == ("Let me look.\n\nIn May.", "stop")
    assert choice.message.tool_calls is None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (
        30,
        7,
        37,
    )
    assert made.usage.prompt_tokens_details.cached_tokens == 8
    (events,) = place.events()
    assert made.ferrule["session"] == events[0].session
    assert made.ferrule["calls"] == [
        {"id": "call_1_0", "tool": "read_file", "success": True, "error_type": "none"}
    ]
    kinds = [record.event.kind for record in events]
    assert kinds[1] == "run.started" and kinds[-1] == "run.finished" and "call.answered" in kinds


async def test_a_stream_holds_the_same_answer_with_calls_beside_it(place: Any) -> None:
    await place.serve(LOOK, says("In May.", usage=Usage(20, 4)), options=READ)
    client = await place.client()
    stream = await client.chat.completions.create(
        model="ferrule", messages=hello(), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Let me look.\n\nIn May."
    assert deltas[0].role == "assistant" and all(delta.tool_calls is None for delta in deltas)
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert finishes == [None] * (len(finishes) - 1) + ["stop"]
    news = [chunk.ferrule for chunk in chunks if getattr(chunk, "ferrule", None)]
    assert [(one.get("event"), one.get("tool")) for one in news[:2]] == [
        ("call", "read_file"),
        ("result", "read_file"),
    ]
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 37)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


async def test_usage_is_in_no_chunk_unless_it_was_asked_for(place: Any) -> None:
    await place.serve(says("yes"))
    client = await place.client()
    stream = await client.chat.completions.create(model="ferrule", messages=hello(), stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


async def test_no_chunk_has_a_text_that_is_null(place: Any) -> None:
    await place.serve(says("yes"))
    client = await place.client()
    stream = await client.chat.completions.create(model="ferrule", messages=hello(), stream=True)
    deltas = [chunk.choices[0].delta.model_dump(exclude_unset=True) async for chunk in stream]
    assert [delta for delta in deltas if delta.get("content", "") is None] == []
    assert deltas[-1] == {}


async def test_what_the_rules_leave_open_is_a_no_and_the_answer_says_so(place: Any) -> None:
    await place.serve(calls(("write_file", {"path": "a.txt", "content": "x"})), says("Done!"))
    client = await place.client()
    made = await client.chat.completions.create(model="ferrule", messages=hello())
    content = made.choices[0].message.content
    assert content.startswith("Done!") and "[Not done: `write_file`." in content
    assert not (place.folder / "a.txt").exists()
    assert [one["error_type"] for one in made.ferrule["calls"]] == ["permission_denied"]
    (events,) = place.events()
    (answered,) = [one.event for one in events if one.event.kind == "person.answered"]
    assert (answered.choice, answered.by) == ("deny", "openai-endpoint")
    assert "no one can be asked here" in answered.note


async def test_what_whoever_serves_said_yes_to_runs(place: Any) -> None:
    await place.serve(
        calls(("write_file", {"path": "a.txt", "content": "x"})),
        says("Done!"),
        yes_to=("write_file",),
    )
    client = await place.client()
    made = await client.chat.completions.create(model="ferrule", messages=hello())
    assert (
        made.choices[0].message.content == "Done!" and (place.folder / "a.txt").read_text() == "x"
    )


async def test_what_a_run_had_to_do_and_did_not_is_said_whatever_the_model_claims(
    place: Any,
) -> None:
    await place.serve(says("All done!"), options={"tools__required": ("write_file",)})
    client = await place.client()
    made = await client.chat.completions.create(model="ferrule", messages=hello())
    assert made.choices[0].message.content.startswith(
        "All done!\n\n[Not done: required and never successful:"
    )
    assert made.ferrule["stop"] == "failed"


async def test_a_client_that_sends_all_again_goes_on_in_the_session_and_nothing_runs_twice(
    place: Any, turns: Any
) -> None:
    await place.serve(LOOK, says("In May."), says("Broad beans."), options=READ)
    client = await place.client()
    first = await client.chat.completions.create(model="ferrule", messages=hello())
    again = turns("When?", first.choices[0].message.content, "Which?")
    second = await client.chat.completions.create(model="ferrule", messages=again)
    assert second.choices[0].message.content == "Broad beans."
    assert second.ferrule["session"] == first.ferrule["session"]
    (events,) = place.events()
    assert [one.event.text for one in events if isinstance(one.event, RunStarted)] == [
        "When?",
        "Which?",
    ]
    model_client = place.assembly.agent.model_client
    # The model reads what its own call returned, which the client never had.
    assert [m.text for m in model_client.histories[-1] if isinstance(m, ToolMessage)] == [
        "1: sow the beans in May"
    ]


async def test_a_conversation_from_elsewhere_is_told_to_a_new_session(
    place: Any, turns: Any
) -> None:
    await place.serve(says("Yes."), says("Another."))
    client = await place.client()
    told = turns("Is it May?", "It is April.", "And now?")
    await client.chat.completions.create(model="ferrule", messages=told)
    (events,) = place.events()
    assert [one.event.kind for one in events[:3]] == [
        "session.opened",
        "context.added",
        "run.started",
    ]
    context = events[1].event
    assert isinstance(context, ContextAdded)
    assert "User: Is it May?\n\nAssistant: It is April." in context.text
    # Edited by the client: not what our session said, so not our session.
    await client.chat.completions.create(
        model="ferrule", messages=turns("And now?", "Maybe.", "So?")
    )
    assert len(place.events()) == 2


async def test_who_asks_once_more_from_an_earlier_point_gets_a_fork_that_knows_what_was_done(
    place: Any, turns: Any
) -> None:
    await place.serve(
        LOOK, says("In May."), says("Broad."), says("Runner."), says("Both."), options=READ
    )
    client = await place.client()
    first = await client.chat.completions.create(model="ferrule", messages=hello())
    said = first.choices[0].message.content
    asked = {"model": "ferrule", "messages": turns("When?", said, "Which?")}
    second = await client.chat.completions.create(**asked, temperature=1)
    third = await client.chat.completions.create(**asked)
    assert [one.choices[0].message.content for one in (second, third)] == ["Broad.", "Runner."]
    assert first.ferrule["session"] == second.ferrule["session"] != third.ferrule["session"]
    # What the call returned before the fork is in its history, and what was said after that is not.
    model_client = place.assembly.agent.model_client
    assert [m.text for m in model_client.histories[-1] if isinstance(m, ToolMessage)] == [
        "1: sow the beans in May"
    ]
    assert model_client.histories[-1] == model_client.histories[-2]
    assert [one.options.temperature for one in model_client.opened] == [None, 1, None]
    opened = [one[0].event for one in place.events()]
    assert {one.forked.partition(":")[0] for one in opened} == {"", first.ferrule["session"]}
    last = turns("When?", said, "Which?", "Runner.", "Sure?")
    fourth = await client.chat.completions.create(model="ferrule", messages=last)
    assert fourth.ferrule["session"] == third.ferrule["session"]


async def test_two_at_a_time_from_one_point_do_not_share_a_session(place: Any, turns: Any) -> None:
    together = asyncio.Barrier(2)

    async def waiting(history: Any) -> Any:
        await together.wait()
        return says(history[-1].text)

    await place.serve(says("one"), waiting, waiting)
    client = await place.client()
    first = await client.chat.completions.create(model="ferrule", messages=hello("a"))
    async with asyncio.timeout(20):
        made = await asyncio.gather(
            *[
                client.chat.completions.create(model="ferrule", messages=turns("a", "one", more))
                for more in "bc"
            ]
        )
    assert [one.choices[0].message.content for one in made] == ["b", "c"]
    sessions = {one.ferrule["session"] for one in made}
    assert len(sessions) == 2 and first.ferrule["session"] in sessions


async def test_instructions_of_the_client_join_those_of_the_agent(place: Any) -> None:
    await place.serve(says("yes"))
    client = await place.client()
    messages = [{"role": "system", "content": "Speak like a sailor."}, *hello()]
    await client.chat.completions.create(model="ferrule", messages=messages)
    (events,) = place.events()
    opened = events[0].event
    assert isinstance(opened, SessionOpened)
    assert (
        "You work in a folder" in opened.system and opened.system.index("Speak like a sailor.") > 0
    )


async def test_who_asks_is_known_by_the_token_and_finds_only_sessions_of_their_own(
    place: Any, turns: Any
) -> None:
    tokens = {"token-of-ada-0123456": Principal("ada"), "token-of-bob-0123456": Principal("bob")}
    await place.serve(says("one"), says("two"), says("three"), token=tokens)
    ada, bob = [await place.client(token) for token in tokens]
    first = await ada.chat.completions.create(model="ferrule", messages=hello("a"), user="bob")
    stranger = await bob.chat.completions.create(model="ferrule", messages=turns("a", "one", "b"))
    second = await ada.chat.completions.create(model="ferrule", messages=turns("a", "one", "b"))
    assert second.ferrule["session"] == first.ferrule["session"] != stranger.ferrule["session"]
    by_session = {one[0].session: one[0].user for one in place.events()}
    assert by_session == {first.ferrule["session"]: "ada", stranger.ferrule["session"]: "bob"}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_run_which_settles(place: Any, stream: bool) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def waiting(_: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    server = await place.serve(LOOK, waiting, options=READ)
    body = {"model": "ferrule", "messages": hello(), "stream": stream}
    headers = {"authorization": "Bearer a-token-that-is-long-enough"}
    async with asyncio.timeout(20), httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.url}/v1/chat/completions"
        asking = asyncio.create_task(client.post(url, json=body, headers=headers, timeout=None))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await over.wait()
        await server.close()
    (events,) = place.events()
    assert isinstance(events[-1].event, RunFinished) and events[-1].event.stop == "cancelled"


async def test_a_server_that_closes_ends_the_runs_and_writes_them_down(place: Any) -> None:
    begun = asyncio.Event()

    async def waiting(_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    server = await place.serve(waiting)
    client = await place.client()
    async with asyncio.timeout(20):
        asking = asyncio.create_task(
            client.chat.completions.create(model="ferrule", messages=hello())
        )
        await begun.wait()
        await server.close()
        with pytest.raises(openai.APIError):
            await asking
    (events,) = place.events()
    assert isinstance(events[-1].event, RunFinished) and events[-1].event.stop == "cancelled"


async def test_a_silent_stream_sends_comments_that_clients_skip(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "HEARTBEAT", 0.01)
    go = asyncio.Event()

    async def waiting(_: Any) -> Any:
        await go.wait()
        return says("late")

    server = await place.serve(waiting, waiting)
    body = {"model": "ferrule", "messages": hello(), "stream": True}
    headers = {"authorization": "Bearer a-token-that-is-long-enough"}
    async with (
        asyncio.timeout(20),
        httpx.AsyncClient(trust_env=False) as client,
        client.stream(
            "POST", f"{server.url}/v1/chat/completions", json=body, headers=headers
        ) as answer,
    ):
        lines = answer.aiter_lines()
        async for line in lines:
            if line == ": at work":
                go.set()
                break
        left = [line async for line in lines]
    assert left[-2] == "data: [DONE]"
    go.clear()
    official = await place.client()
    async with asyncio.timeout(20):
        stream = await official.chat.completions.create(
            model="ferrule", messages=hello(), stream=True
        )
        go.set()
        text = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(text) == "late"


async def test_a_defect_is_told_to_whoever_serves_and_is_not_asked_for_again(
    place: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Any) -> Any:
        raise ZeroDivisionError("secret")

    await place.serve(broken)
    client = await place.client()
    with pytest.raises(openai.InternalServerError) as raised:
        await client.chat.completions.create(model="ferrule", messages=hello())
    assert raised.value.code == "defect" and "secret" not in str(raised.value)
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert "in broken" in caplog.text and "ZeroDivisionError: secret" in caplog.text


async def test_a_run_that_fails_is_an_error_that_no_client_answers_by_asking_again(
    place: Any,
) -> None:
    server = await place.serve(
        LOOK, fails(ProviderError("no server", code="unreachable")), options=READ
    )
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"{server.url}/v1/chat/completions",
            json={"model": "ferrule", "messages": hello()},
            headers={"authorization": "Bearer a-token-that-is-long-enough"},
        )
    assert answer.status_code == 502 and answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"] == {
        "message": "no server", "type": "server_error", "param": None, "code": "unreachable",
    }  # fmt: skip


async def test_an_error_in_the_middle_of_a_stream_is_raised_by_the_client(place: Any) -> None:
    await place.serve(LOOK, fails(ProviderError("no server", code="unreachable")), options=READ)
    client = await place.client()
    stream = await client.chat.completions.create(model="ferrule", messages=hello(), stream=True)
    text = ""
    with pytest.raises(openai.APIError, match="no server"):
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert text == "Let me look."


async def test_a_limit_is_an_error_that_names_the_session(place: Any) -> None:
    await place.serve(LOOK, options=READ | {"limits__max_turns": 1})
    client = await place.client()
    with pytest.raises(openai.UnprocessableEntityError) as raised:
        await client.chat.completions.create(model="ferrule", messages=hello())
    (events,) = place.events()
    assert raised.value.code == "limit_max_turns" and events[0].session in str(raised.value)


@pytest.mark.proves("limits.of-owners")
async def test_a_user_whose_budget_is_used_up_gets_the_answer_of_a_used_up_quota(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_LIMITS_USER_TOKENS", "13")
    ada, bo = "a-token-of-ada-herself", "a-token-of-bo-himself"
    tokens = {ada: Principal("ada"), bo: Principal("bo")}
    await place.serve(LOOK, says("In May."), says("In May."), options=READ, token=tokens)
    with pytest.raises(openai.RateLimitError) as raised:
        await (await place.client(ada)).chat.completions.create(model="ferrule", messages=hello())
    assert raised.value.code == "insufficient_quota"
    assert raised.value.response.headers["x-should-retry"] == "false"
    answer = await (await place.client(bo)).chat.completions.create(
        model="ferrule", messages=hello()
    )
    assert answer.choices[0].message.content == "In May."


@pytest.mark.proves("serve.hook-refusals")
@pytest.mark.parametrize("event", ["turn.start", "session.start", "completion.pre"])
async def test_a_hooks_refusal_is_the_clients_error_with_its_reason(place: Any, event: Any) -> None:
    await place.serve(says("never"))

    @hook(event)
    def refuse(_: Any) -> Any:
        return block("not on Sundays")

    place.assembly.agent.hooks = (refuse,)
    client = await place.client()
    for stream in (False, True):
        with pytest.raises(openai.APIError) as raised:
            answer = await client.chat.completions.create(
                model="ferrule", messages=hello(), stream=stream
            )
            async for _ in answer:
                pass
        assert "not on Sundays" in str(raised.value) and raised.value.code == "hook_blocked"
        if not stream:
            assert isinstance(raised.value, openai.PermissionDeniedError)
            assert raised.value.response.headers["x-should-retry"] == "false"


@pytest.mark.proves("serve.hook-refusals")
async def test_a_hook_that_breaks_is_the_servers_error_and_its_text_is_kept(place: Any) -> None:
    await place.serve(says("never"))

    @hook("turn.start")
    def broken(_: Any) -> None:
        raise ValueError("the password is 123")

    place.assembly.agent.hooks = (broken,)
    client = await place.client()
    with pytest.raises(openai.InternalServerError) as raised:
        await client.chat.completions.create(model="ferrule", messages=hello())
    assert raised.value.code == "hook_broken" and "123" not in str(raised.value)


async def test_after_a_failure_the_same_question_goes_on_where_the_run_ended(
    place: Any, turns: Any
) -> None:
    broken = fails(ProviderError("no server", code="unreachable"))
    await place.serve(says("one"), LOOK, broken, says("In May."), options=READ)
    client = await place.client()
    first = await client.chat.completions.create(model="ferrule", messages=hello("a"))
    again = turns("a", "one", "When?")
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="ferrule", messages=again)
    third = await client.chat.completions.create(model="ferrule", messages=again)
    assert third.ferrule["session"] == first.ferrule["session"] and len(place.events()) == 1


async def test_one_request_too_many_is_told_to_come_again(place: Any) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waiting(_: Any) -> Any:
        begun.set()
        await go.wait()
        return says("late")

    await place.serve(waiting, at_once=1)
    client = await place.client()
    async with asyncio.timeout(20):
        first = asyncio.create_task(
            client.chat.completions.create(model="ferrule", messages=hello())
        )
        await begun.wait()
        with pytest.raises(openai.RateLimitError) as raised:
            await client.chat.completions.create(model="ferrule", messages=hello())
        assert raised.value.response.headers["x-should-retry"] == "true"
        go.set()
        assert (await first).choices[0].message.content == "late"


async def test_many_at_once_are_worked_side_by_side_each_in_a_session_of_its_own(
    place: Any,
) -> None:
    count, together = 6, asyncio.Barrier(6)

    async def waiting(history: Any) -> Any:
        await together.wait()
        return says(history[-1].text)

    await place.serve(*[waiting] * count)
    client = await place.client()
    async with asyncio.timeout(30):
        made = await asyncio.gather(
            *[
                client.chat.completions.create(model="ferrule", messages=hello(f"{n}"))
                for n in range(count)
            ]
        )
    assert [one.choices[0].message.content for one in made] == [f"{n}" for n in range(count)]
    assert len({one.ferrule["session"] for one in made}) == count


async def test_settings_of_a_request_reach_the_model_and_stop_ends_the_text(
    place: Any, turns: Any
) -> None:
    await place.serve(says("one END two"), says("three"), options={"workspace": str(place.folder)})
    client = await place.client()
    made = await client.chat.completions.create(
        model="ferrule",
        messages=hello("a"),
        temperature=0.5,
        max_completion_tokens=7,
        seed=3,
        stop="END",
    )
    assert made.choices[0].message.content == "one "
    second = await client.chat.completions.create(model="ferrule", messages=turns("a", "one ", "b"))
    assert second.ferrule["session"] == made.ferrule["session"]
    model_client = place.assembly.agent.model_client
    assert isinstance(model_client, Scripted)
    options = [one.options for one in model_client.opened]
    assert [(one.temperature, one.max_tokens, one.seed) for one in options] == [
        (0.5, 7, 3),
        (None, None, None),
    ]


async def test_another_model_that_is_offered_works_as_the_agent_too(
    place: Any, tmp_path: Any
) -> None:
    script = tmp_path / "other.yaml"
    script.write_text(json.dumps([{"say": "I am another."}]))
    await place.serve(offers=[f"scripted:{script}"])
    client = await place.client()
    made = await client.chat.completions.create(
        model=f"ferrule/scripted:{script}", messages=hello()
    )
    assert made.choices[0].message.content == "I am another."
    (events,) = place.events()
    assert (
        isinstance(events[0].event, SessionOpened) and events[0].event.model == f"scripted:{script}"
    )
    assert any(isinstance(one.event, ModelAnswered) for one in events)


# ---- answers that must fit a schema

SHAPE = {
    "type": "object",
    "properties": {"month": {"type": "string"}, "day": {"type": "integer"}},
    "required": ["month", "day"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "date", "schema": SHAPE, "strict": True}}
GOOD = '{"month":"May","day":3}'


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_format_is_the_agents_output_type(place: Any, streamed: bool) -> None:
    bad = says('Here: {"month":"May","day":"third"}')
    await place.serve(LOOK, bad, says(f"So it is {GOOD}"), options=READ)
    client = await place.client()
    asked = {"model": "ferrule", "messages": hello(), "response_format": FORMAT}
    if streamed:
        stream = await client.chat.completions.create(**asked, stream=True)
        chunks = [chunk async for chunk in stream if chunk.choices]
        content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        content = (await client.chat.completions.create(**asked)).choices[0].message.content
    assert content == GOOD


async def test_without_an_answer_that_fits_it_is_an_error_with_the_reason(place: Any) -> None:
    await place.serve(*[says('{"month":"May"}')] * 3, options=READ)
    client = await place.client()
    with pytest.raises(openai.UnprocessableEntityError) as error:
        await client.chat.completions.create(
            model="ferrule", messages=hello(), response_format=FORMAT
        )
    assert error.value.code == "output_invalid"
    assert "`day`" in str(error.value) or '"day"' in str(error.value)


async def test_a_conversation_goes_on_in_text_after_a_value(place: Any) -> None:
    await place.serve(says(GOOD), says("In May."), options=READ)
    client = await place.client()
    await client.chat.completions.create(model="ferrule", messages=hello(), response_format=FORMAT)
    more = [*hello(), {"role": "assistant", "content": GOOD}, *hello("Again?")]
    made = await client.chat.completions.create(model="ferrule", messages=more)
    assert made.choices[0].message.content == "In May."


async def test_a_picture_is_part_of_the_agents_run_and_of_the_conversation(place: Any) -> None:
    await place.serve(says("a cat"), says("black"))
    client = await place.client()
    url = f"data:image/png;base64,{b64encode(make_png(3, 2)).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what?"}]
    messages: list[Any] = [{"role": "user", "content": content}]
    first = await client.chat.completions.create(model="ferrule", messages=messages)
    messages += [first.choices[0].message, {"role": "user", "content": "its colour?"}]
    await client.chat.completions.create(model="ferrule", messages=messages)
    (events,) = place.events()
    started = [one.event for one in events if isinstance(one.event, RunStarted)]
    assert [[one.mime for one in event.media] for event in started] == [["image/png"], []]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_is_told_when_to_come_again_and_with_which_status(
    place: Any, stream: bool
) -> None:
    busy = ProviderError(
        "slow down", code="rate_limited", status=429, retryable=True, retry_after=6.6
    )
    await place.serve(fails(busy))
    client = await place.client()
    with pytest.raises(openai.RateLimitError) as caught:
        await client.chat.completions.create(model="ferrule", messages=hello(), stream=stream)
    assert caught.value.response.headers["retry-after"] == "7"


async def test_what_a_client_is_not_told_is_logged_with_its_hint(
    place: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await place.serve(fails(ProviderError("no such key", code="unauthorized", hint="set it")))
    client = await place.client()
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(model="ferrule", messages=hello())
    assert "no such key" not in str(caught.value)
    assert "no such key (unauthorized); hint: set it" in caplog.text
