"""What models are told of the answer that is wanted."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from ferrule import Agent, Storage
from ferrule.core.messages import UserMessage
from ferrule.models.output_modes import OutputFormat, remind_of_output, write_form
from ferrule.models.scripted import Scripted, calls, says


class Person(BaseModel):
    name: Annotated[str, Field(description="as it is written")]
    age: int
    size: float
    married: bool
    colour: Literal["red", "blue"]


FORM = (
    '{"name": <text: as it is written>, "age": <whole number>, "size": <number>, '
    '"married": <true or false>, "colour": <"red" or "blue">}'
)
GOOD = {"name": "Ada", "age": 36, "size": 1.7, "married": True, "colour": "red"}


def is_odd(number: int) -> bool:
    """Is it odd?"""
    return number % 2 == 1


def of_people(model: Scripted, place: int) -> list[str]:
    """What a person said in one of the requests."""
    return [one.text for one in model.histories[place] if isinstance(one, UserMessage)]


def agent_with(model: Scripted, output: Any, **options: Any) -> Agent[Any, Any]:
    storage = Storage(journal=":memory:")
    return Agent(model, output_type=output, output_mode="prompt", storage=storage, **options)


async def test_a_flat_type_is_described_by_a_form_at_the_end_of_each_message() -> None:
    model = Scripted([says("no"), says(json.dumps(GOOD))])
    run = await agent_with(model, Person).run("Ada, 36, is 1.70 tall.")
    assert run.output == Person(**GOOD)
    line = f"Answer with one JSON object of this form and nothing else: {FORM}"
    assert of_people(model, 0) == [f"Ada, 36, is 1.70 tall.\n\n{line}"]
    first, sent_back = of_people(model, 1)
    assert first == of_people(model, 0)[0]
    assert sent_back.startswith("That answer does not fit:") and sent_back.endswith(f"\n\n{line}")
    assert all("Schema" not in opened.system for opened in model.opened)


async def test_what_a_form_cannot_say_is_a_schema_in_the_system_text() -> None:
    model = Scripted([says('{"value": [1]}')])
    assert (await agent_with(model, list[int]).run("One?")).output == [1]
    (opened,) = model.opened
    assert '"items":{"type":"integer"}' in opened.system
    assert of_people(model, 0) == [
        "One?\n\nAnswer with one JSON value that fits the JSON Schema above, and nothing else."
    ]


async def test_with_tools_the_line_does_not_ask_for_an_answer_before_it_is_known() -> None:
    model = Scripted([calls(("is_odd", {"number": 3})), says('{"value": true}')])
    assert (await agent_with(model, bool, tools=[is_odd]).run("Is 3 odd?")).output is True
    first, again = (of_people(model, place) for place in (0, 1))
    assert first == again
    assert first[0].startswith("Is 3 odd?\n\nOnce you know the answer, give it as one JSON object")


async def test_what_is_recorded_is_what_was_said() -> None:
    model = Scripted([says(json.dumps(GOOD))])
    session = agent_with(model, Person).session()
    await session.run("Who?")
    said = [one.text for one in session.history if isinstance(one, UserMessage)]
    await session.close()
    assert said == ["Who?"]


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "pattern": "^a"},
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": {"type": "string"}},
        {"$ref": "#/$defs/x"},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"enum": [f"item-{number}" for number in range(9)]},
        {"type": "string", "format": "date"},
        {},
    ],
)
def test_a_form_says_all_of_a_schema_or_there_is_none(field: dict[str, Any]) -> None:
    flat = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert write_form(flat) == '{"a": <text>}'
    assert write_form({**flat, "properties": {"a": field}}) == ""
    assert write_form({**flat, "required": []}) == ""
    assert write_form({**flat, "description": "Who it is."}) == ""
    assert write_form({"type": "object", "additionalProperties": {"type": "string"}}) == ""


def test_where_text_is_a_value_too_the_line_says_so() -> None:
    output = OutputFormat({"type": "object"}, '{"type":"object"}', takes_text=True)
    assert remind_of_output(output, has_tools=False).endswith(
        "\nText that is not JSON is a valid answer, too."
    )
