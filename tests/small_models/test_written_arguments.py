"""Arguments that a model was taught to write: the text that it continues, and what is taken of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from ferrule.core.messages import UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.local.client import Local
from ferrule.models.scripted import Scripted, says
from ferrule.small_models.call_format import CallableTool, render_calls, render_prompt
from ferrule.small_models.exchange import open_small_model_exchange
from ferrule.small_models.written_arguments import reconcile, write_arguments

SEATS = {
    "type": "object",
    "properties": {
        "row": {"type": ["integer", "null"], "default": 3},
        "hall": {"type": "string", "description": "Name of the\n hall"},
        "kinds": {"type": "array", "items": {"enum": ["box", "stalls"]}},
        "guest": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            ],
            "description": "Who comes",
        },
    },
    "required": ["hall"],
}


def test_a_request_is_put_to_the_model_in_the_form_that_it_learned() -> None:
    tool = CallableTool("book", "Book seats.", SEATS)
    assert render_prompt([tool, CallableTool("rest", "", {})], " Two for Rome\n") == (
        "Tools:\n"
        "book: Book seats.\n"
        "- hall (text): Name of the hall\n"
        "- row (integer, optional) Default 3.\n"
        '- kinds (list of any, optional) One of "box", "stalls".\n'
        "- guest (object, optional): Who comes\n"
        "  - name (text)\n"
        "\n"
        "rest\n"
        "\n"
        "Request: Two for Rome\n"
        "Call:"
    )


def test_calls_are_a_line_each_with_required_arguments_first() -> None:
    tool = CallableTool("book", "", SEATS)
    calls = [("book", {"row": 2, "hall": "Été"}), ("book", {"hall": 'a "b"'})]
    assert render_calls([tool], calls) == (
        ' book {"hall": "Été", "row": 2}\nCall: book {"hall": "a \\"b\\""}'
    )
    assert render_calls([tool], []) == " none"


def test_a_tool_with_many_words_is_shown_shorter() -> None:
    about = "word " * 50
    many = {f"parameter_{n}": {"type": "string", "description": about} for n in range(40)}
    tool = CallableTool("many", about, {"type": "object", "properties": many})
    assert len(tool.text) < 3000
    assert "- parameter_39 (text, optional)" in tool.text


TRIP = {
    "type": "object",
    "properties": {
        "town": {"type": "string", "description": "Name of the town"},
        "days": {"type": "integer"},
        "when": {"type": "string", "description": "Date as YYYY-MM-DD"},
        "class": {"enum": ["first", "second"]},
        "guide": {"type": "string", "description": "Who leads it"},
    },
    "required": ["town"],
}
REQUEST = "A trip to San  Marino for 12 days, on 3 May 2027, second class"


@pytest.mark.proves("small.written-arguments")
@pytest.mark.parametrize(
    ("written", "ruled", "given"),
    [
        # The request bears both: the model's.
        ({"town": "san marino"}, {"town": "Marino"}, {"town": "san marino"}),
        # It bears the model's not: that of the rules, or the model's if they have none.
        ({"town": "San Remo"}, {"town": "San Marino"}, {"town": "San Marino"}),
        ({"town": "San Remo"}, {}, {"town": "San Remo"}),
        ({}, {"town": "Marino"}, {"town": "Marino"}),
        (
            {"town": "Marino", "days": 120},
            {"town": "x", "days": 12},
            {"town": "Marino", "days": 12},
        ),
        ({"town": "Marino", "days": 12}, {"days": 3}, {"town": "Marino", "days": 12}),
        # A description that asks for a form bears any text, as do choices.
        (
            {"town": "Marino", "when": "2027-05-03", "class": "second"},
            {"when": "3 May 2027", "class": "first"},
            {"town": "Marino", "when": "2027-05-03", "class": "second"},
        ),
        # An optional one is given by both or not at all.
        ({"town": "Marino", "guide": "San Marino"}, {"days": 12}, {"town": "Marino"}),
    ],
)
def test_whose_value_is_taken(
    written: dict[str, Any], ruled: dict[str, Any], given: dict[str, Any]
) -> None:
    assert reconcile(written, ruled, TRIP, REQUEST) == given


class Taught(Scripted):
    """A model that writes what it is told to."""

    tool_modes: ClassVar = {"constrained": open_small_model_exchange}
    writes_arguments = True
    written = ""
    prompt = ""

    async def write_arguments(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        self.prompt = prompt
        return self.written

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        raise AssertionError("the rules ask no model where it writes the arguments itself")

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        return [[1.0, 0.0] if "trip" in text.lower() else [0.0, 1.0] for text in texts]


@pytest.mark.parametrize("text", ['{"town": "Mar', "[1]", "", "none"])
async def test_what_was_cut_off_or_is_no_object_is_nothing(text: str) -> None:
    model = Taught([])
    model.written = text
    assert await write_arguments(model, "trip", "", TRIP, "To Marino") == {}


async def test_a_pasted_text_is_cut_for_the_model() -> None:
    model = Taught([])
    await write_arguments(model, "trip", "", TRIP, "To Marino " * 1000)
    assert len(model.prompt) < 3000


def spec(**more: Any) -> ToolSpec:
    return ToolSpec("trips::plan_trip", "plan_trip", "Plan a trip.", json.dumps(TRIP), **more)


async def ask(model: Taught, tool: ToolSpec) -> dict[str, Any]:
    exchange = open_small_model_exchange(model, "", [tool], ModelOptions())
    answer = await exchange.ask([UserMessage("Plan a trip to San Marino for 12 days")])
    return json.loads(answer.calls[0].arguments)


async def test_a_call_has_what_the_model_wrote_as_far_as_the_request_bears_it() -> None:
    model = Taught([says("Words.")])
    model.written = '{"town": "San Marino", "days": 120, "guide": "Marino"}'
    assert await ask(model, spec(side_effect="read")) == {"town": "San Marino", "days": 12}
    assert model.prompt.startswith(
        "Tools:\nplan_trip: Plan a trip.\n- town (text): Name of the town"
    )
    assert model.prompt.endswith("Request: Plan a trip to San Marino for 12 days\nCall: plan_trip")


async def test_a_tool_with_example_requests_is_filled_by_the_rules() -> None:
    example = {"request": "Plan a trip to Rome", "arguments": {"town": "Rome"}}
    model = Taught([says("Words.")])
    model.written = '{"town": "Elsewhere"}'
    given = await ask(model, spec(side_effect="read", examples=(example,)))
    assert model.prompt == ""
    assert given["days"] == 12


@pytest.mark.model
async def test_the_adapter_writes_arguments_and_leaves_words_as_they_are() -> None:
    """A model that wrote calls in answers to people would write them here."""
    client = Local("smollm2", threads=1)
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city"},
            "days": {"type": "integer", "description": "Number of days"},
            "unit": {"enum": ["metric", "imperial"], "description": "Units of the forecast"},
        },
        "required": ["city"],
    }
    text = "How will the weather be in Trondheim over the next 5 days?"
    about = "The weather forecast of a city."
    try:
        assert client.writes_arguments
        written = await write_arguments(client, "get_forecast", about, schema, text)
        exchange = client.open("", (), ModelOptions(temperature=0.0, max_tokens=30))
        words = await exchange.ask([UserMessage("Name a river in Europe.")])
    finally:
        await client.close()
    assert written == {"city": "Trondheim", "days": 5}
    assert words.text
    assert "Call:" not in words.text
