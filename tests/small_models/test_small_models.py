"""How a small model is led to a call: pieces of a request, slots, the choice. No model: it is
scripted or left out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ConfigError
from ferrule.core.events import AnswerStop, ModelAnswered
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.scripted import Scripted, says
from ferrule.models.tool_modes.selection import open_exchange
from ferrule.testing.model_client_conformance import RecordingSink
from ferrule_local.small_models import tool_ranking
from ferrule_local.small_models.abstention import is_called_for
from ferrule_local.small_models.argument_filling import ArgumentFiller
from ferrule_local.small_models.exchange import WholeSentences, open_small_model_exchange
from ferrule_local.small_models.request import Request
from ferrule_local.small_models.slots import read_slots
from ferrule_local.small_models.spans import find_spans, parse_number, split_atoms
from ferrule_local.small_models.tool_choice import (
    ToolChooser,
    ToolOffer,
    count_misfits,
    request_prompt,
    ridge,
)
from ferrule_local.small_models.units import is_unit_for


class Model:
    """Picks the first value the grammar allows, and says how often it was asked. Vectors: letters
    counted.
    """

    def __init__(self, *written: str) -> None:
        self.written = list(written)
        self.prompts: list[str] = []

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        self.prompts.append(prompt)
        if self.written:
            return self.written.pop(0)
        first = re.match(r'root ::= ("(?:[^"\\]|\\.)*")', grammar)
        return json.loads(first.group(1)) if first else "7,"

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        return [
            [1.0 + text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
            for text in texts
        ]


def schema(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
PLANT = schema(
    ["seed", "rows", "depth"],
    seed={**STRING, "description": "Kind of seed"},
    rows=INTEGER,
    depth=INTEGER,
)


def texts(request: str) -> list[str]:
    return [span.text for span in find_spans(request, split_atoms(request))]


@pytest.mark.parametrize(
    ("request_text", "piece"),
    [
        ("Write 'it's fine' to a/b.txt", "it's fine"),
        ("Write 'x' to a/b.txt.", "a/b.txt"),
        ("Run `make all`", "make all"),
        ("Take [1, 2,3]", "3"),
        ("Where a=2, b=6", "6"),
        ("Cut lines 12-14", "14"),
        ("It has 12,000 leaves", "12,000"),
        ("Fly to Washington D.C.", "Washington D.C."),
        ("Water the rose garden now", "rose garden"),
    ],
)
def test_a_request_is_cut_where_people_read_a_value(request_text: str, piece: str) -> None:
    assert piece in texts(request_text)


def test_a_value_neither_begins_nor_ends_with_a_function_word_or_at_a_sign() -> None:
    assert texts("Water the rose of Ann.") == [
        "Water", "Water the rose", "Water the rose of Ann", "rose", "rose of Ann", "Ann",
    ]  # fmt: skip


def test_a_value_does_not_go_on_behind_the_end_of_a_sentence() -> None:
    found = texts("Go by car. Bring maps\nand ropes; Ann")
    assert [text for text in found if " " in text or "\n" in text] == ["Go by car", "Bring maps"]


@pytest.mark.parametrize(
    ("request_text", "atoms"),
    [
        (
            "Put \"a b\" and 'it's' in ./x/y.txt, please!",
            "Put:word a b:quoted and:word it's:quoted in:word ./x/y.txt:path please:word",
        ),
        (
            "Take [1, 2,3], 1,200 (12-14) a=2; 0.5-second 3-way",
            "Take:word 1:number 2:number 3:number 1,200:number 12:number 14:number a:word "
            "2:number 0.5:number second:word 3-way:word",
        ),
        (
            "Mail ann@x.org https://a.b/c?d=1,2 to D.C., Ann's *.py",
            "Mail:word ann@x.org:url https://a.b/c?d=1,2:url to:word D.C.:word Ann:word *.py:path",
        ),
        ('```py\nx = 1\n``` `` "" “c” ‘d’', "x = 1:quoted c:quoted d:quoted"),
        ("a,b;c {,x:1,}", "a:word b:word c:word x:1:word"),
    ],
)
def test_a_request_is_cut_into_quoted_texts_addresses_paths_numbers_and_words(
    request_text: str, atoms: str
) -> None:
    found = split_atoms(request_text)
    assert " ".join(f"{atom.text}:{atom.kind}" for atom in found) == atoms
    assert all(atom.text in request_text[atom.start : atom.end] for atom in found)


@given(st.text(max_size=60))
def test_every_span_is_found_in_the_request(request_text: str) -> None:
    assert all(
        span.text in request_text for span in find_spans(request_text, split_atoms(request_text))
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,200", 1200),
        ("$5", 5),
        ("3.5%", 3.5),
        ("20kg", 20),
        ("1e-9", 1e-9),
        ("seven", 7),
        ("v2", None),
        ("-4", -4),
        ("+5", 5),
        ("-.5", -0.5),
        ("3.0", 3.0),
        ("1.5e3", 1500.0),
        ("1,200,000", 1_200_000),
        ("12,00", None),
        ("3rd", 3),
        ("20km/h", 20),
        ("5°C", 5),
        ("$5k", 5000),
        ("€1.5M", 1_500_000),
        ("£2bn", 2_000_000_000),
        ("$5x", 5),
        ("10abcde", None),
        ("Twelve", 12),
        ("zero", 0),
        ("fifty", 50),
        ("hundred", 100),
        ("thousand", 1000),
        ("dozen", 12),
        ("e3", None),
        (".", None),
    ],
)
def test_numbers_are_read_with_their_units(text: str, value: float | None) -> None:
    found = parse_number(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("unit", "words", "fits"),
    [
        ("minute", {"seconds", "minute"}, True),
        ("crate", {"crate", "count"}, True),
        ("crate", {"count"}, None),
        ("", {"count"}, None),
        ("minute", {"count"}, None),
    ],
)
def test_a_word_is_a_unit_of_a_parameter_that_names_it(
    unit: str, words: set[str], fits: bool | None
) -> None:
    assert is_unit_for(unit, frozenset(words)) is fits


async def test_what_the_request_settles_alone_needs_no_model() -> None:
    model = Model()
    filled = await ArgumentFiller(model, "grow", "Plant seeds.", PLANT).fill(
        "Plant 'kale' in 4 rows at a depth of 7 cm"
    )
    assert filled == {"seed": "kale", "rows": 4, "depth": 7}
    assert model.prompts == []


async def test_where_several_pieces_would_do_one_of_them_is_copied() -> None:
    text = "Cook some green soup with bread today"
    filled = await ArgumentFiller(Model(), "cook", "Cook.", schema(["dish"], dish=STRING)).fill(
        text
    )
    assert filled["dish"]
    assert filled["dish"] in text


async def test_a_piece_is_not_used_twice() -> None:
    both = schema(["path", "text"], path=STRING, text=STRING)
    filled = await ArgumentFiller(Model(), "note", "Note.", both).fill(
        "Note 'be kind' in days/monday.txt"
    )
    assert filled == {"path": "days/monday.txt", "text": "be kind"}


async def test_an_optional_slot_nobody_spoke_of_is_left_out() -> None:
    find = schema(["dish"], dish=STRING, hot={"type": "boolean", "default": False}, limit=INTEGER)
    assert await ArgumentFiller(Model(), "find", "Find.", find).fill("Find 'soup'") == {
        "dish": "soup"
    }
    assert await ArgumentFiller(Model(), "find", "Find.", find).fill(
        "Find hot 'soup', limit 5"
    ) == {
        "dish": "soup",
        "hot": True,
        "limit": 5,
    }


async def test_a_switch_that_is_denied_stays_off() -> None:
    find = schema(["dish"], dish=STRING, hot={"type": "boolean", "default": False})
    assert await ArgumentFiller(Model(), "find", "Find.", find).fill("Find 'soup', not hot") == {
        "dish": "soup"
    }


ENDLESS = re.compile(r"[*+]|\{\d*,\}")
LITERALS = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]')
LEAVES = st.sampled_from(
    [STRING, INTEGER, {"type": "number"}, {"type": "boolean"}, {"enum": ["a", "b"]}, {}]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.dictionaries(st.sampled_from(["path", "date", "to", "size"]), inner, min_size=1).map(
            lambda parts: schema(list(parts), **parts)
        ),
    ),
    max_leaves=5,
)


class Watching(Model):
    """Keeps the grammars and bounds that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.grammars: list[str] = []
        self.most = 0

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        self.grammars.append(grammar)
        self.most = max(self.most, max_tokens, len(prompt) // 100)
        return await super().complete(prompt, grammar=grammar, max_tokens=max_tokens)


@given(
    part=SCHEMAS,
    words=st.lists(
        st.sampled_from(["to", "Rome", "7", "green", "and", "a/b", "'x y'"]), max_size=30
    ),
)
async def test_nothing_can_run_away_whatever_the_schema_and_the_request(
    part: dict[str, Any], words: list[str]
) -> None:
    model = Watching()
    filled = await ArgumentFiller(model, "go", "Go.", schema(["a"], a=part)).fill(" ".join(words))
    assert not [g for g in model.grammars if ENDLESS.search(LITERALS.sub("", g))]
    assert model.most <= 64
    assert len(json.dumps(filled)) < 2000


@pytest.mark.parametrize("part", [STRING, INTEGER, {"type": "number"}])
async def test_a_value_the_request_does_not_hold_is_bounded_by_its_grammar(
    part: dict[str, Any],
) -> None:
    model = Watching()
    await ArgumentFiller(model, "go", "Go.", schema(["a"], a=part)).fill("to it")
    assert len(model.grammars) == 1
    assert re.search(r"\{\d,\d+\}", model.grammars[0])


async def test_a_pasted_text_makes_neither_grammar_nor_prompt_without_end() -> None:
    model = Watching()
    text = " ".join(f"green{n} and tall trees of the north" for n in range(400))
    await ArgumentFiller(model, "go", "Go.", schema(["a"], a=STRING)).fill(text)
    assert all(len(grammar) < 20_000 for grammar in model.grammars)
    assert model.most <= 64


def test_ridge_tells_apart_what_it_was_shown() -> None:
    weights = ridge([[1.0, 0.0], [0.0, 1.0]], [0, 1], 2, 1.0)
    assert weights[0][0] > weights[0][1]
    assert weights[1][1] > weights[1][0]


async def test_names_in_a_request_do_not_change_what_it_is_about() -> None:
    assert request_prompt("Water 'roses' in a/b.txt") == request_prompt(
        "Water 'tulips and more' in x/y.md"
    )


async def test_a_tool_that_needs_what_the_request_lacks_comes_after_one_that_fits() -> None:
    plant = ToolOffer("plant", "Handle a garden.", tuple(read_slots(PLANT)))
    visit = ToolOffer("visit", "Handle a garden.", ())
    chooser = ToolChooser([plant, visit])
    chooser.use_weights(chooser.compute_weights(await Model().embed(chooser.prompts())))
    request = Request("Handle the garden")
    ranked = chooser.rank(request, (await Model().embed([request_prompt(request.text)]))[0])
    names = [offer.name for _, offer in ranked if offer]
    assert names == ["visit", "plant"]


async def test_the_verb_that_opens_a_request_speaks_for_the_tool_that_is_named_by_it() -> None:
    offers = [ToolOffer(f"{verb}_plant", "A plant.", (), ("x",)) for verb in ("water", "cut")]
    chooser = ToolChooser(offers)
    alike = [[1.0, 1.0] for _ in chooser.prompts()]
    chooser.use_weights(chooser.compute_weights(alike))
    scores = {o.name: s for s, o in chooser.rank(Request("Cut the water lily"), [1.0, 1.0]) if o}
    assert scores["cut_plant"] > scores["water_plant"]


def test_a_file_is_not_found_in_a_request_that_has_only_an_identifier() -> None:
    path = {**STRING, "description": "Path of the file"}
    offer = ToolOffer("read", "Read.", tuple(read_slots(schema(["path"], path=path))))
    named = count_misfits(Request("Where is manual defined?"), offer)
    assert count_misfits(Request("Where is load_data defined?"), offer)[1] == named[1] + 1


@pytest.mark.parametrize(
    ("request_text", "is_called"),
    [
        ("Where is load_data used?", True),  # an identifier
        ("Where is Brazil?", False),
        ("How far is the harvest?", True),  # a choice that the tool needs
        ("Harvest is when?", False),  # only its first word
    ],
)
def test_a_value_that_small_talk_hardly_has_lets_a_smaller_lead_do(
    request_text: str, is_called: bool
) -> None:
    season = {"enum": ["harvest", "sowing"]}
    parameters = schema(["season", "what"], season=season, what=STRING)
    offer = ToolOffer("look_up", "Look up.", tuple(read_slots(parameters)), ("x",))
    assert is_called_for(Request(request_text), offer, 0.2, 0.0) is is_called


@pytest.mark.parametrize(
    ("request_text", "is_called"),
    [
        ("Mail Ann 'see you at noon'", True),
        ("What is the weather in Oslo?", False),
        ("Put on 'Blue Train'", False),
    ],
)
def test_without_examples_the_words_and_the_values_that_fit_show_whether_a_tool_is_called_for(
    request_text: str, is_called: bool
) -> None:
    parameters = schema(
        ["to", "text"],
        to={**STRING, "description": "Who gets it."},
        text={**STRING, "description": "What it says."},
    )
    offer = ToolOffer("send_mail", "Send a mail to a person.", tuple(read_slots(parameters)))
    assert is_called_for(Request(request_text), offer, 0.0, 0.0) is is_called


async def test_a_choice_that_only_the_opening_verb_names_is_made_by_the_examples() -> None:
    model = Model()
    filler = ArgumentFiller(
        model,
        "garden",
        "The garden.",
        schema(["view"], view={"enum": ["show", "diary"]}),
        [("Earlier harvests", '{"view": "diary"}'), ("The newest picture", '{"view": "show"}')],
    )
    assert await filler.fill("Show the harvests of earlier years") == {"view": "diary"}
    assert await filler.fill("Let me see the show") == {"view": "show"}
    assert model.prompts == []
    await filler.fill("Show the roses")
    await filler.fill("Show the earlier picture")
    assert len(model.prompts) == 2  # The examples say nothing of it, or both.


class SmallScripted(Scripted):
    """A scripted model client with the powers of a small model."""

    tool_modes: ClassVar = {"constrained": open_small_model_exchange}
    powers = Model()

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        return await self.powers.complete(prompt, grammar=grammar, max_tokens=max_tokens)

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        return await self.powers.embed(texts, keep=keep)


def spec(name: str, description: str, parameters: dict[str, Any]) -> ToolSpec:
    return ToolSpec(f"garden::{name}", name, description, json.dumps(parameters))


async def test_a_message_becomes_one_call_and_results_become_words_with_the_fact() -> None:
    model_client = SmallScripted([says("28 seeds were planted.")])
    tools = [
        spec("plant", "Plant seeds in rows.", PLANT),
        spec("weather", "Tell the weather.", schema([])),
    ]
    exchange = open_small_model_exchange(model_client, "", tools, ModelOptions())
    question = UserMessage("Plant 'kale' in 4 rows at a depth of 7 cm")
    first = await exchange.ask([question])
    assert [c.tool for c in first.calls] == ["garden::plant"]
    result = ToolMessage("c1", "garden::plant", "28 seeds are in the ground")
    second = await exchange.ask([question, AssistantMessage("", first.calls), result])
    assert second.calls == ()
    assert "28 seeds are in the ground" in second.text
    assert second.text.startswith("28 seeds were planted.")


@pytest.mark.parametrize(
    ("request_text", "tool", "arguments"),
    [
        ("Make a file a.txt with the text 'hello'", "write_file", {"path": "a.txt"}),
        ("Create a file named todo with the content 'hello'", "write_file", {"path": "todo"}),
        ("Read the text of a.txt", "read_file", {"path": "a.txt"}),
    ],
    ids=["path", "named", "only-read"],
)
async def test_what_a_request_begins_by_ordering_goes_before_what_reads_and_fits_as_well(
    request_text: str, tool: str, arguments: dict[str, str]
) -> None:
    path = {**STRING, "description": "path of the file"}
    told = {**STRING, "description": "the text"}
    reads = ToolSpec(
        "read_file",
        "read_file",
        "Read a file with its content, lines of a text.",
        json.dumps(schema(["path"], path=path)),
        side_effect="read",
    )
    writes = ToolSpec(
        "write_file",
        "write_file",
        "Keeps what is said.",
        json.dumps(schema(["path", "content"], path=path, content=told)),
        side_effect="write",
    )
    exchange = open_small_model_exchange(
        SmallScripted([says("ok")]), "", [reads, writes], ModelOptions()
    )
    answer = await exchange.ask([UserMessage(request_text)])
    (call,) = answer.calls
    wanted = arguments | ({"content": "hello"} if tool == "write_file" else {})
    assert (call.tool, json.loads(call.arguments)) == (tool, wanted)


async def test_a_client_with_a_tool_mode_of_its_own_opens_it_for_that_mode_alone() -> None:
    model_client, tools = SmallScripted([says("`/rest`")]), [spec("rest", "Rest.", schema([]))]
    question = UserMessage("Rest")
    helped, _ = await open_exchange(model_client, "constrained", "", tools)
    assert [call.tool for call in (await helped.ask([question])).calls] == ["garden::rest"]
    assert not model_client.asks
    plain, _ = await open_exchange(model_client, "commands", "", tools)
    await plain.ask([question])
    assert len(model_client.asks) == 1


async def test_help_for_a_client_that_completes_no_raw_prompts_is_refused() -> None:
    tools = [spec("rest", "Rest.", schema([]))]
    with pytest.raises(ConfigError, match="completes no raw prompts"):
        open_small_model_exchange(Scripted([]), "", tools, ModelOptions())


async def test_a_set_of_tools_is_learned_once_for_all_exchanges_of_a_model_client() -> None:
    texts: list[str] = []

    class Counting(SmallScripted):
        async def embed(self, texts_: Sequence[str], *, keep: bool = False) -> list[list[float]]:
            texts.extend(texts_)
            return await self.powers.embed(texts_, keep=keep)

    model_client, tools = (
        Counting([]),
        [spec("plant", "Plant seeds.", PLANT), spec("rest", "Rest.", schema([]))],
    )
    for _ in range(2):
        await open_small_model_exchange(model_client, "", tools, ModelOptions()).ask(
            [UserMessage("Plant 'kale' in 4 rows, 7 cm deep")]
        )
    assert len(texts) - len(set(texts)) == 1  # the request itself


async def test_a_long_result_is_cut_for_the_model_and_says_so() -> None:
    model_client = SmallScripted([says("Much.")])
    exchange = open_small_model_exchange(
        model_client, "", [spec("read", "Read.", schema([]))], ModelOptions()
    )
    await exchange.ask(
        [UserMessage("Read"), AssistantMessage(""), ToolMessage("c", "garden::read", "x" * 50_000)]
    )
    seen = model_client.asks[0].history[-1].text
    assert len(seen) < 2500
    assert "more characters" in seen


async def test_without_tools_a_small_model_just_talks() -> None:
    model_client = SmallScripted([says("Hello.")])
    exchange = open_small_model_exchange(
        model_client, "", [spec("read", "Read.", schema([]))], ModelOptions()
    )
    answer = await exchange.ask([UserMessage("Read it")], tools=False)
    assert (answer.text, answer.calls) == ("Hello.", ())


@pytest.mark.parametrize(
    ("said", "stop", "text"),
    [
        (
            "The sea is 3.5 km deep. It is blue! A tapestry",
            "length",
            "The sea is 3.5 km deep. It is blue!",
        ),
        ("The sea is blue. A tapestry", "end", "The sea is blue. A tapestry"),
        ("A tapestry woven from", "length", "A tapestry woven from"),
        ("1. blue\n2. gre", "length", "1. blue"),
    ],
)
async def test_an_answer_that_ran_into_its_limit_ends_with_a_whole_sentence(
    said: str, stop: AnswerStop, text: str
) -> None:
    sink = RecordingSink()
    whole = WholeSentences(sink, [])
    for character in said:
        whole.add_text(character)
    answer = whole.end(ModelAnswered(said, stop=stop))
    assert answer.text == text and "".join(sink.pieces).rstrip() == text
    assert [topic for topic, _ in sink.notices] == (["model"] if text != said else [])
    assert answer.stop == ("end" if text != said else stop)


@pytest.mark.parametrize("is_slow", [True, False])
async def test_reading_tools_is_said_only_where_it_takes_long(
    is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = asyncio.Event()

    class Slow(SmallScripted):
        async def embed(self, texts_: Sequence[str], *, keep: bool = False) -> list[list[float]]:
            if keep and is_slow:
                await heard.wait()
            return await self.powers.embed(texts_, keep=keep)

    class Listening(RecordingSink):
        def notice(self, topic: str, text: str) -> None:
            super().notice(topic, text)
            heard.set()

    monkeypatch.setattr(tool_ranking, "SILENT_SECONDS", 0.0)
    sink = Listening()
    tools = [spec("rest", "Rest.", schema([]))]
    conversation = open_small_model_exchange(Slow([]), "", tools, ModelOptions())
    await asyncio.wait_for(conversation.ask([UserMessage("Rest")], sink=sink), 10)
    assert sink.notices == [("model", tool_ranking.READING_TOOLS)] * is_slow


async def test_a_failure_is_told_as_it_is_and_the_model_is_not_asked() -> None:
    model_client = SmallScripted([])
    exchange = open_small_model_exchange(
        model_client, "", [spec("read", "Read.", schema([]))], ModelOptions()
    )
    failed = ToolMessage(
        "c", "garden::read", '{"success":false,"error_message":"not found: x"}', success=False
    )
    answer = await exchange.ask([UserMessage("Read"), AssistantMessage(""), failed])
    assert answer.text == "`garden::read` failed: not found: x"


async def test_words_that_say_nothing_of_the_result_are_left_out() -> None:
    model_client = SmallScripted([says("I have no access to gardens.")])
    exchange = open_small_model_exchange(
        model_client, "", [spec("read", "Read.", schema([]))], ModelOptions()
    )
    answer = await exchange.ask(
        [UserMessage("Read"), AssistantMessage(""), ToolMessage("c", "garden::read", "rain")]
    )
    assert answer.text == "`garden::read` returned:\nrain"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("The port in it is 8080.", "The port in it is 8080.\n\n`read_file` returned:\nport: 8080"),
        # A number, a path or an address from elsewhere, or mostly other words: not of the result.
        ("The port is 8081 on 8080.", "`read_file` returned:\nport: 8080"),
        ("The port 8080 is at https://ports.example.", "`read_file` returned:\nport: 8080"),
        ("8080 lighthouses shine over winter storms", "`read_file` returned:\nport: 8080"),
        # What is a piece of the result is shown once.
        ("port: 8080", "`read_file` returned:\nport: 8080"),
    ],
)
async def test_the_models_words_are_shown_only_where_the_result_bears_them(
    said: str, answer: str
) -> None:
    tool = spec("read_file", "Read a file.", schema(["path"], path=STRING))
    exchange = open_small_model_exchange(SmallScripted([says(said)]), "", [tool], ModelOptions())
    result = ToolMessage("1", "read_file", "port: 8080")
    told = await exchange.ask([UserMessage("What does it say?"), AssistantMessage(""), result])
    assert told.text == answer


async def test_what_was_shown_of_results_is_not_read_again_in_later_turns() -> None:
    client = SmallScripted([says("You are welcome.")])
    exchange = open_small_model_exchange(client, "", [], ModelOptions())
    shown = "The port is 8080.\n\n`read_file` returned:\nport: 8080\nkeeper: Ines"
    await exchange.ask([UserMessage("Read it"), AssistantMessage(shown), UserMessage("Thanks!")])
    seen = [message.text for message in client.asks[0].history]
    assert seen == ["Read it", "The port is 8080.", "Thanks!"]
