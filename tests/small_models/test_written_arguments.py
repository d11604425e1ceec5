"""Arguments that a model was taught to write: the text that it continues, and what is taken of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from ferrule.core.messages import UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.scripted import Scripted, says
from ferrule_local.client import Local
from ferrule_local.small_models.call_format import (
    CallableTool,
    build_text_grammar,
    render_calls,
    render_prompt,
)
from ferrule_local.small_models.exchange import open_small_model_exchange
from ferrule_local.small_models.written_arguments import TaughtCall

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


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (
            {"type": "array", "items": {"type": "string"}, "enum": ["box", "stalls"]},
            {"type": "array", "items": {"type": "string", "enum": ["box", "stalls"]}},
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "enum": ["box"]},
            {"type": "array", "items": {"type": "integer"}},
        ),
        ({"type": "array", "enum": ["box"]}, {"type": "array", "items": {"enum": ["box"]}}),
        ({"type": "integer", "enum": ["1", "2"]}, {"type": "integer"}),
        ({"type": "string", "enum": ["a", None]}, {"type": "string", "enum": ["a", None]}),
        ({"type": "number", "enum": [1, 2.5]}, {"type": "number", "enum": [1, 2.5]}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
    ],
)
def test_choices_that_no_value_of_the_type_can_be_are_left_out(
    given: dict[str, Any], kept: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": {"kinds": given}}
    assert CallableTool("book", "", schema).schema["properties"]["kinds"] == kept


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


class Taught(Scripted):
    """A model that writes what it is told to, and finds texts as likely as it is told."""

    tool_modes: ClassVar = {"constrained": open_small_model_exchange}
    writes_arguments = True
    written = ""
    prompt = ""

    def __init__(
        self, steps: Sequence[Any] = (), scores: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(steps)
        self.scores = dict(scores or {})
        self.scored: list[str] = []

    async def write_arguments(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        self.prompt = prompt
        return self.written

    async def score_arguments(self, prompt: str, text: str, *, grammar: str) -> float:
        assert grammar == build_text_grammar(text)
        whole = (prompt + text).partition("\nCall: ")[2]
        self.scored.append(whole)
        return self.scores.get(whole, 0.0)

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        raise AssertionError("the rules ask no model where it writes the arguments itself")

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        return [[1.0, 0.0] if "trip" in text.lower() else [0.0, 1.0] for text in texts]


def call_of(model: Taught, request: str = "To Marino") -> TaughtCall:
    return TaughtCall(model, CallableTool("trip", "", TRIP), request)


async def test_what_is_disputed_is_scored_among_what_the_model_wrote() -> None:
    model = Taught()
    written = {"town": "Marino", "days": 12, "guide": "Ann"}
    await call_of(model).compare(written, {"town": "Oslo", "days": 3, "when": "2027-05-03"})
    assert model.scored == [
        'trip {"town": "Marino", "days":',
        'trip {"town": "Oslo", "days":',
        'trip {"town": "Marino", "days": 12, "guide":',
        'trip {"town": "Marino", "days": 3, "guide":',
        'trip {"town": "Marino", "days": 12, "guide": "Ann"}',
        'trip {"town": "Marino", "days": 12}',
    ]


async def test_the_first_and_the_only_value_are_scored_beside_their_absence() -> None:
    model = Taught()
    await call_of(model).compare({"days": 12, "guide": "Ann"}, {})
    await call_of(model).compare({"days": 12}, {})
    assert model.scored[:2] == ['trip {"days": 12, "guide":', 'trip {"guide":']
    assert model.scored[4:] == ['trip {"days": 12}', "trip {}"]


async def test_what_both_say_is_not_asked_nor_what_is_required_and_only_the_model_says() -> None:
    model = Taught()
    assert await call_of(model).compare({"town": "Marino", "days": 12}, {"days": 12}) == {}
    assert model.scored == []


async def test_a_preference_is_the_difference_of_the_scores() -> None:
    scores = {'trip {"town": "Marino"}': -1.0, 'trip {"town": "Oslo"}': -6.0}
    call = call_of(Taught(scores=scores))
    assert await call.compare({"town": "Marino"}, {"town": "Oslo"}) == {("town",): 5.0}


async def test_a_long_value_is_not_scored_and_that_of_the_rules_stands() -> None:
    model = Taught()
    call = call_of(model)
    for written, ruled in (("Oslo", "x" * 1000), ("x" * 1000, "Oslo")):
        preferences = await call.compare({"town": written}, {"town": ruled})
        assert call.choose({"town": written}, {"town": ruled}, preferences) == {"town": ruled}
    assert model.scored == []


@pytest.mark.parametrize(
    ("written", "ruled", "preferences", "given"),
    [
        # Both fill it: the model's, if it is sure.
        ("San Marino", "Marino", {"town": 3.6}, "San Marino"),
        ("San Marino", "Marino", {"town": 3.5}, "Marino"),
        ("San Marino", "Marino", {"town": -1.0}, "Marino"),
        # One of both; what nobody disputes stands.
        ("San Marino", None, {}, "San Marino"),
        ("San Marino", None, {"town": 3.6}, "San Marino"),
        ("San Marino", None, {"town": 1.0}, None),
        (None, "Marino", {}, "Marino"),
        (None, None, {}, None),
    ],
)
def test_whose_value_is_taken(
    written: str | None, ruled: str | None, preferences: dict[str, float], given: str | None
) -> None:
    def values(town: str | None) -> dict[str, str]:
        return {} if town is None else {"town": town}

    places = {(name,): lead for name, lead in preferences.items()}
    taken = call_of(Taught()).choose(values(written), values(ruled), places)
    assert taken == values(given)


PARTY = {
    "type": "object",
    "properties": {
        "host": {"type": "string"},
        "guest": {"type": "string"},
        "room": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "size": {"type": "number"},
                "seat": {
                    "type": "object",
                    "properties": {"row": {"type": "integer"}, "kind": {"type": "string"}},
                },
            },
        },
    },
    "required": ["host", "guest"],
}


def party_of(model: Taught) -> TaughtCall:
    return TaughtCall(model, CallableTool("party", "", PARTY), "A party")


async def test_members_of_objects_are_scored_one_by_one() -> None:
    model = Taught()
    written = {
        "host": "Ann",
        "room": {"name": "Blue", "size": 3, "seat": {"row": 1, "kind": "box"}},
    }
    ruled = {"host": "Ann", "room": {"name": "Red", "seat": {"row": 2}}}
    preferences = await party_of(model).compare(written, ruled)
    assert list(preferences) == [
        ("room", "name"),
        ("room", "size"),
        ("room", "seat", "row"),
        ("room", "seat", "kind"),
    ]
    assert model.scored == [
        'party {"host": "Ann", "room": {"name": "Blue", "size":',
        'party {"host": "Ann", "room": {"name": "Red", "size":',
        'party {"host": "Ann", "room": {"name": "Blue", "size": 3, "seat":',
        'party {"host": "Ann", "room": {"name": "Blue", "seat":',
        'party {"host": "Ann", "room": {"name": "Blue", "size": 3, "seat": {"row": 1, "kind":',
        'party {"host": "Ann", "room": {"name": "Blue", "size": 3, "seat": {"row": 2, "kind":',
        'party {"host": "Ann", "room": {"name": "Blue", "size": 3, "seat": {"row": 1, "kind": "box"}',
        'party {"host": "Ann", "room": {"name": "Blue", "size": 3, "seat": {"row": 1}',
    ]


def test_members_of_objects_are_taken_one_by_one() -> None:
    preferences = {
        ("room", "name"): 1.0,
        ("room", "size"): 9.0,
        ("room", "seat", "row"): 9.0,
        ("room", "seat", "kind"): 1.0,
    }
    given = party_of(Taught()).choose(
        {"room": {"name": "Blue", "size": 3, "seat": {"row": 1, "kind": "box"}}},
        {"host": "Ann", "room": {"name": "Red", "seat": {"row": 2}}},
        preferences,
    )
    assert given == {"host": "Ann", "room": {"name": "Red", "size": 3, "seat": {"row": 1}}}


async def test_an_object_that_the_rules_leave_out_is_one_value() -> None:
    model = Taught()
    preferences = await party_of(model).compare({"room": {"name": "Blue", "size": 3}}, {})
    assert list(preferences) == [("room",)]


def test_a_value_that_both_have_is_written_as_the_rules_write_it() -> None:
    given = party_of(Taught()).choose({"room": {"size": 3}}, {"room": {"size": 3.0}}, {})
    assert repr(given) == repr({"room": {"size": 3.0}})


@pytest.mark.parametrize(
    ("host", "guest"),
    [
        # The model has Ann as the guest, so the host that the rules found is its own.
        (("Eve", "Ann", 1.0), ("Ann", "Eve", 9.0)),
        (("Eve", "Ann", 1.0), ("Ann", "Ann", None)),
    ],
)
def test_a_text_is_not_taken_for_two_parameters(
    host: tuple[str, str, float], guest: tuple[str, str, float | None]
) -> None:
    given = party_of(Taught()).choose(
        {"host": host[0], "guest": guest[0]},
        {"host": host[1], "guest": guest[1]},
        {("host",): host[2]} | ({} if guest[2] is None else {("guest",): guest[2]}),
    )
    assert given == {"host": "Eve", "guest": "Ann"}


@pytest.mark.parametrize(
    ("written", "ruled", "lead", "is_taken"),
    [
        ({"guide": "ann"}, {}, 2.1, True),
        ({"guide": "Ann"}, {}, 2.0, False),
        ({"guide": "Eve"}, {}, 2.1, False),
        ({"days": 12}, {}, 2.1, True),
        ({"days": 13}, {}, 2.1, False),
        ({"days": True}, {}, 2.1, False),
        # The rules have one as well, so it is not a question of making things up.
        ({"guide": "Ann"}, {"guide": "Rome"}, 2.1, False),
    ],
)
def test_what_the_request_says_needs_less_to_be_taken_than_what_is_made_up(
    written: dict[str, Any], ruled: dict[str, Any], lead: float, is_taken: bool
) -> None:
    call = call_of(Taught(), "To Rome with Ann for twelve days and 1 night")
    preferences = {(name,): lead for name in written}
    assert call.choose(written, ruled, preferences) == (written if is_taken else ruled)


def test_a_text_that_the_model_has_twice_stays() -> None:
    twice = {"host": "Ann", "guest": "Ann"}
    assert party_of(Taught()).choose(twice, {"host": "Ann"}, {}) == twice


def test_arguments_are_in_the_order_of_the_schema_with_required_ones_first() -> None:
    taken = call_of(Taught()).choose({"guide": "Ann", "town": "Marino"}, {"days": 3}, {})
    assert list(taken) == ["town", "days", "guide"]


@pytest.mark.parametrize("text", ['{"town": "Mar', "[1]", "", "none"])
async def test_what_was_cut_off_or_is_no_object_is_nothing_and_the_rules_stand(text: str) -> None:
    model = Taught()
    model.written = text
    assert await call_of(model).write() is None
    assert await call_of(model).fill({"town": "Oslo"}) == {"town": "Oslo"}


async def test_a_pasted_text_is_cut_for_the_model() -> None:
    model = Taught()
    await call_of(model, "To Marino " * 1000).write()
    assert len(model.prompt) < 3000


def spec(**more: Any) -> ToolSpec:
    return ToolSpec("trips::plan_trip", "plan_trip", "Plan a trip.", json.dumps(TRIP), **more)


@pytest.mark.parametrize(
    "loose", [True, False, {}, {"type": "array", "items": True}, {"anyOf": [True]}]
)
async def test_a_parameter_whose_schema_says_nothing_does_no_harm(loose: Any) -> None:
    properties = {"town": TRIP["properties"]["town"], "extra": loose}
    schema = {"type": "object", "properties": properties, "required": ["town"]}
    tool = ToolSpec("trips::plan_trip", "plan_trip", "Plan a trip.", json.dumps(schema))
    model = Taught([says("Words.")])
    model.written = '{"town": "San Marino"}'
    assert (await ask(model, tool))["town"] == "San Marino"


async def ask(model: Taught, tool: ToolSpec) -> dict[str, Any]:
    exchange = open_small_model_exchange(model, "", [tool], ModelOptions())
    answer = await exchange.ask([UserMessage("Plan a trip to San Marino for 12 days")])
    return json.loads(answer.calls[0].arguments)


async def test_a_call_has_what_the_model_is_sure_of_and_else_what_the_rules_found() -> None:
    scores = {'plan_trip {"town": "San Marino", "days": 120}': -9.0}
    model = Taught([says("Words.")], scores)
    model.written = '{"town": "San Marino", "days": 120}'
    assert await ask(model, spec(side_effect="read")) == {"town": "San Marino", "days": 12}
    model.scores = {'plan_trip {"town": "San Marino", "days": 12}': -9.0}
    assert await ask(model, spec(side_effect="read")) == {"town": "San Marino", "days": 120}
    assert model.prompt.startswith(
        "Tools:\nplan_trip: Plan a trip.\n- town (text): Name of the town"
    )
    assert model.prompt.endswith("Request: Plan a trip to San Marino for 12 days\nCall: plan_trip")


@pytest.mark.parametrize(
    ("text", "scores", "calls"),
    [
        ("San Marino, please", {"none": -6.0}, 1),
        ("San Marino, please", {}, 0),
        ("We would like to see San Marino for 12 days", {}, 1),
        ("We would like to see San Marino for 12 days", {"plan_trip": -6.0}, 0),
        # However much it wants to, a line that has nothing of the tool is small talk.
        ("How are you?", {"none": -1000.0}, 0),
    ],
)
async def test_how_much_the_model_wants_to_call_counts_beside_what_the_request_says(
    text: str, scores: dict[str, float], calls: int
) -> None:
    model = Taught([says("Words.")], scores)
    model.written = '{"town": "San Marino"}'
    exchange = open_small_model_exchange(model, "", [spec(side_effect="read")], ModelOptions())
    answer = await exchange.ask([UserMessage(text)])
    assert len(answer.calls) == calls


async def test_a_tool_with_example_requests_is_filled_by_the_rules() -> None:
    example = {"request": "Plan a trip to Rome", "arguments": {"town": "Rome"}}
    model = Taught([says("Words.")])
    model.written = '{"town": "Elsewhere"}'
    given = await ask(model, spec(side_effect="read", examples=(example,)))
    assert model.prompt == ""
    assert given["days"] == 12


async def test_requests_that_the_rules_wrote_out_are_filled_by_the_rules() -> None:
    model = Taught([says("Words.")])
    model.written = '{"town": "Elsewhere"}'
    exchange = open_small_model_exchange(model, "", [spec(side_effect="read")], ModelOptions())
    text = "Plan trips to the towns Rome and Oslo"
    answer = await exchange.ask([UserMessage(text)])
    assert json.loads(answer.calls[0].arguments) == {"town": "Rome"}
    assert model.prompt == ""


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
        call = TaughtCall(client, CallableTool("get_forecast", about, schema), text)
        written = await call.write()
        preferences = await call.compare(written or {}, {"city": "the weather", "days": 7})
        odd = ' {"city": "Tromsø \\u0001 \\" \\\\ 日本 😀 \u2028 \x7f"}'
        score = await client.score_arguments("Call: f", odd, grammar=build_text_grammar(odd))
        exchange = client.open("", (), ModelOptions(temperature=0.0, max_tokens=30))
        words = await exchange.ask([UserMessage("Name a river in Europe.")])
    finally:
        await client.close()
    assert written == {"city": "Trondheim", "days": 5}
    assert math.isfinite(score), "any text that JSON can have is scored"
    assert min(preferences["city",], preferences["days",]) > 3.5
    assert words.text
    assert "Call:" not in words.text
