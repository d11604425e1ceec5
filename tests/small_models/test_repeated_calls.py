"""Requests that ask for one call several times: which they are, and how they are taken apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.scripted import Scripted, says
from ferrule.toolkits.files.tools import TOOLS
from ferrule_local.small_models.abstention import unquote
from ferrule_local.small_models.exchange import open_small_model_exchange
from ferrule_local.small_models.repeated_calls import find_repeated_requests
from ferrule_local.small_models.slots import read_slots


def schema(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


WEATHER = schema(city="string")
TRIANGLE = schema(base="integer", height="integer")
ROUTE = schema(start_city="string", end_city="string")
PLAY = schema(artist="string", minutes="integer")
DAY = schema(city="string", day="integer")
LOAN = schema(amount="integer", years="integer")


async def take_apart(text: str, parameters: dict[str, Any]) -> list[str]:
    return await find_repeated_requests(text, "tool", "", parameters, read_slots(parameters))


@pytest.mark.parametrize(
    ("text", "parameters", "several"),
    [
        (
            "Get the weather in Paris, Oslo and Rome",
            WEATHER,
            [f"Get the weather in {city}" for city in ("Paris", "Oslo", "Rome")],
        ),
        (
            "The first triangle has a base of 5 cm and a height of 10 cm. The second triangle has "
            "a base of 7 cm and a height of 12 cm. How large are they?",
            TRIANGLE,
            [
                "The first triangle has a base of 5 cm and a height of 10 cm. How large are they?",
                "The first triangle has a base of 7 cm and a height of 12 cm. How large are they?",
            ],
        ),
        (
            "Drive from Paris to Rome, and from Oslo to Bergen",
            ROUTE,
            ["Drive from Paris to Rome", "Drive from Oslo to Bergen"],
        ),
        (
            "Play songs by Ann Lee and Bob Ray for 10 and 20 minutes respectively",
            PLAY,
            [
                "Play songs by Ann Lee for 10 minutes respectively",
                "Play songs by Bob Ray for 20 minutes respectively",
            ],
        ),
        (
            "Compare the two triangles 3 and 4, 5 and 12",
            TRIANGLE,
            ["Compare the two triangles 3 and 4", "Compare the two triangles 5 and 12"],
        ),
        (
            "What does a loan of $900 cost over 5, 10 and 15 years?",
            LOAN,
            [f"What does a loan of $900 cost over {years} years?" for years in (5, 10, 15)],
        ),
    ],
)
async def test_values_that_come_again_make_a_request_each(
    text: str, parameters: dict[str, Any], several: list[str]
) -> None:
    assert await take_apart(text, parameters) == several


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("Get the weather in Paris, France", WEATHER),  # one place
        ("How far is it from Oslo, and to Rome?", ROUTE),  # one call has room for both
        ("Get the weather in Oslo, that city where Mr. Berg lives", WEATHER),  # not a list
        ("Get the weather in Oslo, and say hello to Berg", WEATHER),
        ("Paint 9 walls with a height of 3, where 1 pot covers about 7 doors", TRIANGLE),
        ("Get the weather in Paris and Oslo", DAY),  # a day is missing
    ],
)
async def test_a_request_for_one_call_is_left_whole(text: str, parameters: dict[str, Any]) -> None:
    assert await take_apart(text, parameters) == [text]


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ('"Show me a.txt, please"', "Show me a.txt, please"),
        ('Say "good day" and "good night"', 'Say "good day" and "good night"'),
        ('"hello"', '"hello"'),
    ],
)
def test_quotation_marks_around_a_whole_message_say_nothing(text: str, bare: str) -> None:
    assert unquote(text) == bare


class Model(Scripted):
    """A model for which all texts mean the same."""

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        return ""

    async def embed(self, texts: Any, *, keep: bool = False) -> list[list[float]]:
        return [[1.0] for _ in texts]


async def ask(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the calls for a message, each of which succeeds, and what is said in the end."""
    named = {tool.name: tool for tool in TOOLS}
    offered = [
        ToolSpec(
            tool.full_name,
            tool.name,
            tool.description,
            tool.schema_json(),
            side_effect=tool.declared_side_effect,
        )
        for tool in (named["delete_path"], named["read_file"])
    ]
    exchange = open_small_model_exchange(Model([says("Fine.")]), "", offered, ModelOptions())
    history: list[Message] = [UserMessage(text)]
    made: list[dict[str, Any]] = []
    while True:
        answer = await exchange.ask(history)
        if not answer.calls:
            return made, answer.text
        made += [{"tool": call.tool, **json.loads(call.arguments)} for call in answer.calls]
        history.append(AssistantMessage("", answer.calls))
        history += [ToolMessage(call.id, call.tool, "done") for call in answer.calls]
    return made


async def test_every_file_of_an_order_gets_a_call_of_its_own() -> None:
    """A call for one of several files, which left the others out, would not be what was ordered."""
    made, _ = await ask("Delete a.txt, b.txt and c.txt")
    assert made == [{"tool": "delete_path", "path": path} for path in ("a.txt", "b.txt", "c.txt")]
    made, _ = await ask("Do not delete a.txt and b.txt")
    assert made == []


async def test_a_message_makes_three_calls_at_most_and_the_answer_says_what_is_left() -> None:
    made, said = await ask("Delete a.txt, b.txt, c.txt and d.txt")
    assert [call["path"] for call in made] == ["a.txt", "b.txt", "c.txt"]
    assert said.endswith("Not done, as one message makes 3 calls at most: Delete d.txt")
    _, said = await ask("Delete a.txt and b.txt")
    assert "Not done" not in said
