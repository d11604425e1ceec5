"""What models do wrong: one function per kind, from the call that is meant to the answer that is
sent instead.

Every kind is something that models and servers were seen to do (issues of frameworks and servers,
and what the dialects and folds of Ferrule were made from); what exactly is done is drawn from the
seed. Kinds are of two sorts:

* a *mistake* is made once, at one step that is drawn among those where it can be made;
* a *habit* (`always`) is how this model or its server writes every answer, and no error changes it.

`pair`: the mistake needs two calls in one answer, so the model makes its first two together.
    `streamed`: it exists in streams only.
`again`: how often it is made once more after the model was told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from .orders import TOOLS

NAMES = tuple(tool.__name__ for tool in TOOLS)
READS = ("find_item", "get_price", "add_up")
WITH_ARGUMENTS = (*READS, "place_order")
ORDER = ("place_order",)
OPTIONAL = {"find_item": "limit", "get_price": "currency", "place_order": "note"}
OTHER_KEYS = {
    "code": ("articleCode", "article_code", "Code"),
    "item_id": ("itemId", "item", "id"),
    "amounts": ("values", "numbers", "Amounts"),
    "total": ("totalCents", "sum", "total_price"),
    "quantity": ("qty", "amount", "Quantity"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the wire carries it. `arguments` that are no text are sent as they are; `id` None
    is left out.

    `index` is its place in a stream, None leaves it out; `renamed` puts the name into every piece.
    """

    id: str | None
    tool: str
    arguments: Any
    index: int | None = 0
    renamed: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model. `finish` empty: as it should be."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    finish: str = ""


@dataclass(slots=True)
class Meant:
    """The calls that are meant, and what chance a kind may use."""

    tools: list[tuple[str, dict[str, Any]]]
    random: Random
    ids: list[str] = field(default_factory=list)

    def calls(self) -> tuple[Call, ...]:
        """As they should be."""
        made = [(tool, json.dumps(given) if given else "{}") for tool, given in self.tools]
        ids = [f"call_{self.random.getrandbits(80):020x}" for _ in made]
        return tuple(Call(ids[i], tool, text, i) for i, (tool, text) in enumerate(made))

    @property
    def first(self) -> Call:
        return self.calls()[0]

    @property
    def arguments(self) -> dict[str, Any]:
        return self.tools[0][1]

    def named(self, name: str) -> Answer:
        """The call under another name."""
        return Answer(calls=(replace(self.first, tool=name),))

    def given(self, arguments: Any) -> Answer:
        """The call with other arguments: text as it is, values as JSON."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return Answer(calls=(replace(self.first, arguments=text),))

    def changed(self, name: str, value: Any) -> Answer:
        """The call with one argument changed."""
        return self.given({**self.arguments, name: value})

    def pick(self, *kinds: type) -> str:
        """The name of an argument of one of these types."""
        return self.random.choice(
            [n for n, value in self.arguments.items() if isinstance(value, kinds)]
        )


Habit = Callable[[Meant], Answer]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `words` is its row in the table, `steps` where it can happen."""

    words: str
    say: Habit
    steps: tuple[str, ...] = WITH_ARGUMENTS
    always: bool = False
    pair: bool = False
    streamed: bool = False
    again: int = 0


def proper(meant: Meant) -> Answer:
    """No fault."""
    return Answer(calls=meant.calls())


# ---- names


def near_name(meant: Meant) -> Answer:
    name, at = meant.first.tool, meant.random.randrange(1, len(meant.first.tool) - 2)
    made = (
        name[:at] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
        name[:at] + name[at + 1] + name[at] + name[at + 2 :],
        name + "s",
    )
    return meant.named(meant.random.choice([new for new in made if new not in NAMES]))


def prefixed_name(meant: Meant) -> Answer:
    forms = ("functions.{}", "tools.{}", "default_api.{}", "functions.{}:0", "functions::{}")
    return meant.named(meant.random.choice(forms).format(meant.first.tool))


def cased_name(meant: Meant) -> Answer:
    first, *more = meant.first.tool.split("_")
    camel = first + "".join(word.title() for word in more)
    return meant.named(
        meant.random.choice(
            (
                camel,
                camel[0].upper() + camel[1:],
                meant.first.tool.upper(),
                "-".join((first, *more)),
            )
        )
    )


def invented_name(meant: Meant) -> Answer:
    return meant.named(
        meant.random.choice(("search_web", "run_sql", "lookup", "think", "multi_tool_use.parallel"))
    )


# ---- types and keys


def number_as_text(meant: Meant) -> Answer:
    name = meant.pick(int)
    return meant.changed(name, str(meant.arguments[name]))


def text_as_number(meant: Meant) -> Answer:
    return meant.changed("code", int(meant.arguments["code"]))


def list_for_one(meant: Meant) -> Answer:
    name = meant.pick(int, str)
    return meant.changed(name, [meant.arguments[name]])


def list_as_json(meant: Meant) -> Answer:
    return meant.changed("amounts", json.dumps(meant.arguments["amounts"]))


def list_as_words(meant: Meant) -> Answer:
    return meant.changed("amounts", ", ".join(map(str, meant.arguments["amounts"])))


def null_for_optional(meant: Meant) -> Answer:
    return meant.changed(OPTIONAL[meant.first.tool], None)


def null_for_required(meant: Meant) -> Answer:
    return meant.changed(meant.random.choice(list(meant.arguments)), None)


def extra_key(meant: Meant) -> Answer:
    name, value = meant.random.choice(
        (("reason", "to go on"), ("verbose", True), ("session", 1), ("unit", "piece"))
    )
    return meant.changed(name, value)


def missing_key(meant: Meant) -> Answer:
    name = meant.random.choice(list(meant.arguments))
    return meant.given({key: value for key, value in meant.arguments.items() if key != name})


def other_key(meant: Meant) -> Answer:
    name = meant.random.choice(list(meant.arguments))
    other = meant.random.choice(OTHER_KEYS[name])
    return meant.given(
        {other if key == name else key: value for key, value in meant.arguments.items()}
    )


# ---- JSON


def cut_json(meant: Meant) -> Answer:
    """Cut inside the last value, after a key, or before the last brace; with any reason to stop."""
    text = json.dumps(meant.arguments)
    places = [len(text) - 2, len(text) - 1, text.rindex(":") + 1, text.rindex('"') - 1]
    answer = meant.given(text[: meant.random.choice(places)])
    return replace(answer, finish=meant.random.choice(("length", "tool_calls", "stop")))


def doubled_json(meant: Meant) -> Answer:
    return meant.given(meant.random.choice(("", "\n", " ")).join([json.dumps(meant.arguments)] * 2))


def trailing_comma(meant: Meant) -> Answer:
    return meant.given(
        json.dumps(meant.arguments)[:-1] + meant.random.choice((",}", ", }", ",\n}"))
    )


def single_quotes(meant: Meant) -> Answer:
    return meant.given(str(meant.arguments))


def fenced_json(meant: Meant) -> Answer:
    return meant.given(
        f"```{meant.random.choice(('json', ''))}\n{json.dumps(meant.arguments)}\n```"
    )


def more_behind(meant: Meant) -> Answer:
    rest = meant.random.choice(("}", "</tool_call>", "<|im_end|>", "\n```", ")"))
    return meant.given(json.dumps(meant.arguments) + rest)


def twice_encoded(meant: Meant) -> Answer:
    return meant.given(json.dumps(json.dumps(meant.arguments)))


def no_text(meant: Meant) -> Answer:
    return meant.given("")


def object_arguments(meant: Meant) -> Answer:
    calls = zip(meant.calls(), meant.tools, strict=True)
    return Answer(calls=tuple(replace(call, arguments=given) for call, (_, given) in calls))


# ---- calls in prose


def _object(meant: Meant) -> str:
    key = meant.random.choice(("arguments", "parameters"))
    return json.dumps({"name": meant.first.tool, key: meant.arguments})


def _python(meant: Meant) -> str:
    return f"{meant.first.tool}({', '.join(f'{name}={value!r}' for name, value in meant.arguments.items())})"


def in_fence(meant: Meant) -> Answer:
    lead = meant.random.choice(("", "I will call the tool now.\n\n", "Let me do that:\n"))
    return Answer(f"{lead}```json\n{_object(meant)}\n```")


def bare_json(meant: Meant) -> Answer:
    return Answer(_object(meant))


def in_tags(meant: Meant) -> Answer:
    lead = meant.random.choice(("", "I will call the tool now.\n"))
    return Answer(f"{lead}<tool_call>\n{_object(meant)}\n</tool_call>")


def as_python(meant: Meant) -> Answer:
    call = _python(meant)
    forms = (f"[{call}]", f"```tool_code\n{call}\n```", f"```python\nprint({call})\n```")
    return Answer(meant.random.choice(forms))


def in_own_tokens(meant: Meant) -> Answer:
    """Tokens of Llama, Mistral and Qwen that a server did not read."""
    name, text = meant.first.tool, json.dumps(meant.arguments)
    each = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in meant.arguments.items()
    )
    forms = (
        f"<|python_tag|>{_object(meant)}",
        f"<function={name}>{text}</function>",
        f'[TOOL_CALLS][{{"name": "{name}", "arguments": {text}}}]',
        f"<tool_call>\n<function={name}>\n{each}</function>\n</tool_call>",
    )
    return Answer(meant.random.choice(forms))


# ---- ids, streams, repeats, reasons to stop


def no_id(meant: Meant) -> Answer:
    return Answer(calls=tuple(replace(call, id=None) for call in meant.calls()))


def empty_id(meant: Meant) -> Answer:
    return Answer(calls=tuple(replace(call, id="") for call in meant.calls()))


def same_id(meant: Meant) -> Answer:
    return Answer(calls=tuple(replace(call, id="call_0") for call in meant.calls()))


def no_index(meant: Meant) -> Answer:
    return Answer(calls=tuple(replace(call, index=None) for call in meant.calls()))


def same_index(meant: Meant) -> Answer:
    return Answer(calls=tuple(replace(call, index=0) for call in meant.calls()))


def name_in_every_piece(meant: Meant) -> Answer:
    return Answer(calls=tuple(replace(call, renamed=True) for call in meant.calls()))


def said_twice(meant: Meant) -> Answer:
    return Answer(calls=(replace(meant.first, index=0), replace(meant.first, index=1)))


def sent_twice(meant: Meant) -> Answer:
    call = meant.first
    return Answer(calls=(call, replace(call, index=1)))


def wrong_finish(meant: Meant) -> Answer:
    return Answer(calls=meant.calls(), finish="stop")


def nothing(meant: Meant) -> Answer:
    return Answer(meant.random.choice(("", None)))


KINDS: dict[str, Kind] = {
    "none": Kind("no fault", proper, always=True),
    "near-name": Kind("a name nearly right", near_name, NAMES),
    "prefixed-name": Kind("a name with a prefix", prefixed_name, NAMES),
    "cased-name": Kind("a name in another spelling", cased_name, NAMES),
    "invented-name": Kind("an invented tool", invented_name, NAMES),
    "near-name-3": Kind("a name nearly right, three times", near_name, NAMES, again=2),
    "number-as-text": Kind('"5" for 5', number_as_text, ("get_price", "place_order")),
    "text-as-number": Kind('5 for "5"', text_as_number, ("find_item",)),
    "list-for-one": Kind("[5] for 5", list_for_one, ("find_item", "get_price", "place_order")),
    "list-as-json": Kind("a list as JSON text", list_as_json, ("add_up",)),
    "list-as-words": Kind("a list as words", list_as_words, ("add_up",)),
    "null-for-optional": Kind("null for an optional argument", null_for_optional, tuple(OPTIONAL)),
    "null-for-required": Kind("null for a required argument", null_for_required),
    "null-for-required-3": Kind(
        "null for a required argument, three times", null_for_required, again=2
    ),
    "extra-key": Kind("an argument nobody declared", extra_key),
    "missing-key": Kind("an argument left out", missing_key),
    "other-key": Kind("an argument under another name", other_key),
    "cut-json": Kind("arguments cut off", cut_json),
    "cut-json-3": Kind("arguments cut off, three times", cut_json, again=2),
    "doubled-json": Kind("arguments twice in a row", doubled_json),
    "trailing-comma": Kind("a comma too many", trailing_comma),
    "single-quotes": Kind("single quotes", single_quotes),
    "fenced-json": Kind("a fence around the arguments", fenced_json),
    "more-behind": Kind("something behind the arguments", more_behind),
    "twice-encoded": Kind("arguments encoded twice", twice_encoded),
    "no-text": Kind("empty text for no arguments", no_text, ("open_desk",)),
    "object-arguments": Kind("arguments as an object, always", object_arguments, always=True),
    "in-fence": Kind("a call in a fenced block", in_fence),
    "bare-json": Kind("a call as JSON text", bare_json),
    "in-tags": Kind("a call between tags", in_tags),
    "as-python": Kind("a call as Python", as_python),
    "in-own-tokens": Kind("a call in the model's own tokens", in_own_tokens),
    "no-id": Kind("no ids, ever", no_id, always=True),
    "empty-id": Kind("empty ids, always", empty_id, always=True),
    "same-id": Kind("one id for all calls of a run", same_id, always=True),
    "pair-one-id": Kind("two calls of an answer with one id", same_id, ("open_desk",), pair=True),
    "no-index": Kind("no index in the stream", no_index, always=True, streamed=True),
    "one-index": Kind(
        "two calls with one index", same_index, ("open_desk",), pair=True, streamed=True
    ),
    "name-repeated": Kind(
        "the name in every piece", name_in_every_piece, always=True, streamed=True
    ),
    "said-twice": Kind("a read twice in an answer", said_twice, READS),
    "order-twice": Kind("the order twice in an answer", said_twice, ORDER),
    "sent-twice": Kind("a call and its id twice in an answer", sent_twice),
    "over-again": Kind("a read again until something else comes", proper, READS),
    "order-again": Kind("the order again until something else comes", proper, ORDER),
    "wrong-finish": Kind("`stop` beside calls", wrong_finish, always=True),
    "empty": Kind("an empty answer, once", nothing, NAMES),
}
"""Every kind of fault, in the order of the table."""

AGAIN = ("over-again", "order-again")
"""Kinds in which a model that got what it asked for asks for it again."""
