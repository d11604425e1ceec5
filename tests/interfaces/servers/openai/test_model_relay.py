"""A model by its own name: the client brings the tools, and a model that was never taught to call
any calls them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import openai
import pytest

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import Usage
from ferrule.core.limits import Limits
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.models.client import Capabilities
from ferrule.models.media_encoding import read_bytes
from ferrule.models.scripted import Scripted, calls, fails, says
from ferrule.servers.openai.models import OfferedModels
from media_samples import PDF, make_png

TEXT = Capabilities(tools=False, structured=False)
FORCED = Capabilities(tools=False, structured=True)
PARIS = ("get_weather", {"city": "Paris"})


def user_message(text: str = "Weather in Paris?") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def test_a_call_comes_back_for_the_client_to_make_and_its_result_goes_to_the_model(
    place: Any, weather: Any
) -> None:
    await place.serve_alone(calls(PARIS, usage=Usage(9, 2)), says("Rain."))
    client = await place.client()
    first = await client.chat.completions.create(
        model="scripted:test", messages=user_message(), tools=[weather]
    )
    (choice,) = first.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Paris"},
    )
    assert first.usage.total_tokens == 11
    answered = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees, rain"}
    messages = [*user_message(), choice.message, answered]
    second = await client.chat.completions.create(
        model="scripted:test", messages=messages, tools=[weather]
    )
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("Rain.", "stop")
    question, made, result = place.assembly.agent.model_client.histories[-1]
    assert question == UserMessage("Weather in Paris?") and isinstance(made, AssistantMessage)
    assert result == ToolMessage(call.id, "get_weather", "18 degrees, rain")
    assert place.events() == []


@pytest.mark.parametrize(
    ("capabilities", "reply", "tool_mode"),
    [
        (
            FORCED,
            {"reply": {"calls": [{"tool": "get_weather", "arguments": {"city": "Paris"}}]}},
            "constrained",
        ),
        (TEXT, {"name": "get_weather", "arguments": {"city": "Paris"}}, "text"),
    ],
)
async def test_a_model_without_a_tools_field_calls_in_the_way_that_it_manages(
    place: Any, weather: Any, capabilities: Capabilities, reply: Any, tool_mode: str
) -> None:
    said = (
        json.dumps(reply)
        if tool_mode == "constrained"
        else f"<tool_call>\n{json.dumps(reply)}\n</tool_call>"
    )
    await place.serve_alone(says(said), capabilities=capabilities)
    client = await place.client()
    made = await client.chat.completions.create(
        model="scripted:test", messages=user_message(), tools=[weather]
    )
    (call,) = made.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"Paris"}')
    assert made.ferrule["tool_mode"] == tool_mode
    model_client = place.assembly.agent.model_client
    assert model_client.opened[0].tools == () and "get_weather" in model_client.opened[0].system


async def test_calls_are_streamed_as_deltas_that_the_client_puts_together(
    place: Any, weather: Any
) -> None:
    await place.serve_alone(calls(PARIS, ("get_weather", {"city": "Ghent"}), text="Two cities."))
    client = await place.client()
    async with client.chat.completions.stream(
        model="scripted:test", messages=user_message(), tools=[weather]
    ) as stream:
        made = await stream.get_final_completion()
    (choice,) = made.choices
    assert choice.message.content == "Two cities." and choice.finish_reason == "tool_calls"
    assert [json.loads(one.function.arguments) for one in choice.message.tool_calls] == [
        {"city": "Paris"},
        {"city": "Ghent"},
    ]
    assert len({one.id for one in choice.message.tool_calls}) == 2


async def test_what_a_model_thinks_aloud_stands_beside_its_words(place: Any) -> None:
    await place.serve_alone(
        says("Rain.", reasoning="It is November."), says("Rain.", reasoning="It is November.")
    )
    client = await place.client()
    whole = await client.chat.completions.create(model="scripted:test", messages=user_message())
    message = whole.choices[0].message
    assert (message.content, message.reasoning_content) == ("Rain.", "It is November.")
    stream = await client.chat.completions.create(
        model="scripted:test", messages=user_message(), stream=True
    )
    deltas = [chunk.choices[0].delta async for chunk in stream]
    assert "".join(getattr(one, "reasoning_content", "") for one in deltas) == "It is November."
    assert "".join(one.content or "" for one in deltas) == "Rain."


async def test_no_tool_may_be_called_where_the_client_says_none(place: Any, weather: Any) -> None:
    await place.serve_alone(says("I cannot look."))
    client = await place.client()
    await client.chat.completions.create(
        model="scripted:test", messages=user_message(), tools=[weather], tool_choice="none"
    )
    (ask,) = place.assembly.agent.model_client.asks
    assert ask.tools is False


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
async def test_a_call_that_must_be_made_is_forced_where_none_comes(
    place: Any, weather: Any, choice: Any
) -> None:
    forced = {"reply": {"calls": [{"tool": "get_weather", "arguments": {"city": "Paris"}}]}}
    await place.serve_alone(says("It rains, I guess."), says(json.dumps(forced)))
    client = await place.client()
    other = {"type": "function", "function": {"name": "get_time"}}
    made = await client.chat.completions.create(
        model="scripted:test", messages=user_message(), tools=[weather, other], tool_choice=choice
    )
    message = made.choices[0].message
    assert message.content is None and [one.function.name for one in message.tool_calls] == [
        "get_weather"
    ]
    schema = place.assembly.agent.model_client.asks[-1].schema
    (form,) = schema["properties"]["reply"]["anyOf"]
    offered = [
        one["properties"]["tool"]["const"] for one in form["properties"]["calls"]["items"]["anyOf"]
    ]
    assert offered == (["get_weather", "get_time"] if choice == "required" else ["get_weather"])


async def test_a_required_call_that_no_model_made_is_an_error_and_no_answer(
    place: Any, weather: Any
) -> None:
    await place.serve_alone(says("no"), says("no"))
    client = await place.client()
    with pytest.raises(openai.InternalServerError) as raised:
        await client.chat.completions.create(
            model="scripted:test", messages=user_message(), tools=[weather], tool_choice="required"
        )
    assert raised.value.code == "no_call"


async def test_one_call_at_a_time_where_the_client_wants_it_so(place: Any, weather: Any) -> None:
    await place.serve_alone(calls(PARIS, ("get_weather", {"city": "Ghent"})))
    client = await place.client()
    made = await client.chat.completions.create(
        model="scripted:test", messages=user_message(), tools=[weather], parallel_tool_calls=False
    )
    assert [one.function.arguments for one in made.choices[0].message.tool_calls] == [
        '{"city":"Paris"}'
    ]


SHAPE = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}
FORM = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SHAPE, "strict": True}}


async def test_the_form_of_a_reply_is_given_to_the_model(place: Any) -> None:
    await place.serve_alone(says('{"rain":true}'), says("{}"))
    client = await place.client()
    made = await client.chat.completions.create(
        model="scripted:test", messages=user_message(), response_format=FORM
    )
    assert made.choices[0].message.content == '{"rain":true}'
    await client.chat.completions.create(
        model="scripted:test", messages=user_message(), response_format={"type": "json_object"}
    )
    assert [one.schema for one in place.assembly.agent.model_client.asks] == [
        SHAPE,
        {"type": "object"},
    ]


async def test_with_tools_a_form_holds_only_for_what_is_no_call(place: Any, weather: Any) -> None:
    await place.serve_alone(calls(PARIS), says("It rains."), says('{"rain":true}'))
    client = await place.client()
    asked = {
        "model": "scripted:test",
        "messages": user_message(),
        "tools": [weather],
        "response_format": FORM,
    }
    first = await client.chat.completions.create(**asked)
    assert first.choices[0].finish_reason == "tool_calls"
    second = await client.chat.completions.create(**asked)
    assert second.choices[0].message.content == '{"rain":true}'
    model_client = place.assembly.agent.model_client
    assert [(one.tools, one.schema) for one in model_client.asks] == [
        (True, None),
        (True, None),
        (False, SHAPE),
    ]


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("context_overflow", openai.BadRequestError, 400),
        ("model_not_found", openai.NotFoundError, 404),
        ("rate_limited", openai.RateLimitError, 429),
        ("overloaded", openai.InternalServerError, 503),
        ("unreachable", openai.InternalServerError, 502),
        ("unauthorized", openai.InternalServerError, 502),
    ],
)
async def test_what_a_provider_refuses_has_the_status_that_a_client_acts_on(
    place: Any, code: str, kind: type[openai.APIStatusError], status: int
) -> None:
    await place.serve_alone(
        fails(ProviderError("key sk-0123456789abcdef0123456789 is bad", code=code, retry_after=7.2))
    )
    client = await place.client()
    for stream in (False, True):
        with pytest.raises(kind) as raised:
            await client.chat.completions.create(
                model="scripted:test", messages=user_message(), stream=stream
            )
        assert raised.value.status_code == status and "sk-0123" not in str(raised.value)
        assert raised.value.response.headers["retry-after"] == "7"
        # What is between the server and its provider is not told: it may name accounts.
        assert ("key" in str(raised.value)) == (code != "unauthorized")
        place.assembly.agent.change_model(
            Scripted(
                [
                    fails(
                        ProviderError("key sk-0123456789abcdef0123456789", code=code, retry_after=7)
                    )
                ]
            )
        )


async def test_the_way_that_the_settings_name_for_a_model_is_kept(place: Any, weather: Any) -> None:
    await place.serve_alone(says("none"), options={"tool_mode": "text"})
    client = await place.client()
    made = await client.chat.completions.create(
        model="scripted:test", messages=user_message(), tools=[weather]
    )
    assert made.ferrule["tool_mode"] == "text"


async def test_tools_that_the_provider_runs_itself_are_the_agents_alone(
    place: Any, turns: Any
) -> None:
    config = place.folder.parent / "config"
    config.mkdir()
    (config / "ferrule.yaml").write_text(
        'models: {"scripted:test": {provider_tools: [{type: web_search}]}}'
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FERRULE_CONFIG", str(config))
        await place.serve_alone(says("a"), says("b"))
        client = await place.client()
        for model in ("ferrule", "scripted:test"):
            await client.chat.completions.create(model=model, messages=turns("hi"))
    opened = place.assembly.agent.model_client.opened
    assert [len(one.options.provider_tools) for one in opened] == [1, 0]


async def test_only_models_that_are_offered_can_be_asked_and_all_of_them_are_listed(
    place: Any, tmp_path: Any
) -> None:
    script = tmp_path / "other.yaml"
    script.write_text(json.dumps([{"say": "I am another."}]))
    other = f"scripted:{script}"
    await place.serve(says("no"), offers=[f"{other}#a"], direct=[other])
    client = await place.client()
    ids = [one.id async for one in client.models.list()]
    assert ids == ["ferrule", f"ferrule/{other}#a", other]
    for id_ in ids:
        assert (await client.models.retrieve(id_)).id == id_
    made = await client.chat.completions.create(model=other, messages=user_message())
    assert made.choices[0].message.content == "I am another."
    unknown = ("openai:gpt-5", "ferrule/openai:gpt-5", "http://evil.example/v1", "ferrule/", "")
    for id_ in (*unknown, "scripted:test", f"{other}#a", f"ferrule/{other}"):
        with pytest.raises((openai.NotFoundError, openai.BadRequestError)) as raised:
            await client.chat.completions.create(model=id_, messages=user_message())
        assert raised.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("openai:gpt-5")


async def test_pictures_and_files_of_a_request_reach_a_model_by_its_own_name(place: Any) -> None:
    await place.serve_alone(says("a cat"))
    client = await place.client()
    url = f"data:image/png;base64,{b64encode(make_png(3, 2)).decode()}"
    file = {"filename": "p.pdf", "file_data": b64encode(PDF).decode()}
    content = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "file", "file": file},
        {"type": "text", "text": "and say"},
    ]
    made = await client.chat.completions.create(
        model="scripted:test", messages=[{"role": "user", "content": content}]
    )
    assert made.choices[0].message.content == "a cat"
    (question,) = place.assembly.agent.model_client.histories[-1]
    assert (question.text, [one.at for one in question.media]) == ("see\nand say", [3, 3])
    assert [read_bytes(one) for one in question.media] == [make_png(3, 2), PDF]


@pytest.mark.proves("limits.of-owners")
async def test_a_model_is_alone_only_if_asked_for_and_never_beside_limits_of_users(
    place: Any,
) -> None:
    await place.serve(says("free of charge"))
    client = await place.client()
    assert [one.id async for one in client.models.list()] == ["ferrule"]
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="scripted:test", messages=user_message())
    assert place.assembly.agent.model_client.histories == []
    place.assembly.agent.limits = Limits(tenant_tokens=100)
    with pytest.raises(ConfigError, match="do not count"):
        OfferedModels(place.assembly, (), ["scripted:test"], named=False)
