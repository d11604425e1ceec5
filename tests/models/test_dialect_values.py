"""What a model writes into a call comes back letter by letter, or as an error that the model is
told of.

One property over the legal forms of all families (`dialect_forms`): values are made of the marks of
every family, of whole calls, prose about marks, HTML, JSON, code, entities, white space at both
ends and letters that nobody sees. `FERRULE_MARK_CASES` is the number of cases for each form and
property (`make lab NAME=marks` sets it).
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from dialect_forms import FORMS, LegalForm, Wanted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ToolFailed
from ferrule.engine.dispatcher import parse_arguments
from ferrule.models.dialects import Reading, ReplyReader

CASES = int(os.environ.get("FERRULE_MARK_CASES", "6"))
MANY = settings(
    derandomize=True,
    database=None,
    max_examples=CASES,
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
EACH_FORM = pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS: dict[str, Any] = {
    "write_file": {
        "type": "object",
        "properties": {
            "path": TEXT,
            "content": TEXT,
            "note": {"anyOf": [TEXT, {"type": "null"}]},
            "count": INTEGER,
            "all": {"type": "boolean"},
            "ratio": {"type": "number"},
            "lines": {"type": "array", "items": TEXT},
            "extra": {"type": "object"},
        },
        "required": ["path", "content"],
    },
    "run": {
        "type": "object",
        "properties": {"command": {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}},
    },
    "now": {"type": "object", "properties": {}},
}

# ---- values

SAMPLE: Sequence[Wanted] = (
    ("write_file", {"path": "a.md", "content": "Hello", "count": 3}),
    ("run", {"command": "ls"}),
)
WHOLE = [form.write(SAMPLE) for form in FORMS]
_MARK = re.compile(
    r"</?[^<>\n]{1,60}>|\[/?[A-Z_]+\]|\]<\]minimax\[>\[|>>>\w+\n|```\w*\n?|◁/?think▷"
)
REASONING = (
    *(
        "<think>",
        "</think>",
        "<seed:think>",
        "</seed:think>",
        "</thought>",
        "</reasoning>",
        "[THINK]",
        "[/THINK]",
    ),
    *("◁think▷", "◁/think▷", "<|close|>think<|sep|>", "<channel|>", "<|END_THINKING|>"),
)
CLOSERS = (
    *("</think>", "</seed:think>", "</thought>", "</reasoning>", "[/THINK]", "◁/think▷"),
    *("<|close|>think<|sep|>", "<channel|>", "<|END_THINKING|>"),
)
TURNS = (
    "<|im_end|>",
    "<|im_start|>user\n",
    "</s>",
    "<|eot_id|>",
    "<|return|>",
    "<|end|>",
    "<end_of_turn>",
)
MARKS = sorted({mark for whole in WHOLE for mark in _MARK.findall(whole)} | {*REASONING, *TURNS})
OTHERS = (
    *(
        "Each argument starts with `<parameter=path>` and its value.",
        "Close it with </parameter> and go on.",
    ),
    *(
        'A call is <function=f> … </function>, or `<invoke name="f">`.',
        "see </tool_call> here",
        "`</arg_value>`",
    ),
    *(
        '<!doctype html>\n<p class="a">1 &lt; 2 &amp;&amp; x</p>',
        "<script>if (a<b && b>c) {}</script>",
        "<br/>",
    ),
    *(
        "<a><b>x</b></a>",
        "&lt;tool_call&gt;",
        "&quot;",
        "&amp;lt;",
        "&#10;",
        "<![CDATA[x]]>",
        "<path>x</path>",
    ),
    *(
        '{"name": "run", "arguments": {"command": "rm"}}',
        '{"a": [1, "}"]}',
        "[1, 2]",
        "null",
        "true",
        "5",
        '"5"',
    ),
    *(
        "```python\nprint('x')\n```",
        "~~~\nx\n~~~",
        "`code`",
        "run(command='ls')",
        "[run(command='ls')]",
        "None",
    ),
    *(
        "\\n",
        "\\",
        "\\u003c",
        "'",
        '"',
        "''",
        "}",
        "{",
        "]",
        "[",
        "<",
        ">",
        "</",
        "<|",
        "|>",
        "|",
        "$x",
        "%",
        "#",
    ),
    *(
        "\n",
        "\r\n",
        "\r",
        "\t",
        " ",
        "  \n",
        "\n\n",
        "\x0b",
        "\x0c",
        "\x85",
        "\u2028",
        "\xa0",
        "\u3000",
    ),
    *(
        "\ufeff",
        "\u200b",
        "\u202e",
        "\U000e0041",
        "\x00",
        "\x1b[31m",
        "\x7f",
        "é",
        "e\u0301",
        "ﬁ",
        "東京",
        "😀",
    ),
)
WORDS = ("word", "two words", "x = 1", "a.md")
LETTERS = "ab \n\t<>&/=\"'`{}[]|:é\u200b😀"


class Draw:
    """Values at random. One seed is one case: Hypothesis chooses the seeds, and says the one that
    failed.
    """

    def __init__(self, form: LegalForm, seed: int) -> None:
        self._form = form
        self._own = _MARK.findall(form.write(SAMPLE)) or ["{"]
        self._random = random.Random(seed)

    def calls(self) -> list[Wanted]:
        most = 3 if self._form.several else 1
        return [self._call() for _ in range(self._random.randint(1, most))]

    def prose(self) -> str:
        return self._random.choice(PROSE) if self._form.prose else ""

    def cuts(self, reply: str) -> list[int]:
        return [self.place(reply) for _ in range(self._random.randint(0, 6))]

    def place(self, reply: str) -> int:
        return self._random.randint(0, len(reply))

    def _call(self) -> Wanted:
        tool = self._random.choice(["write_file", "write_file", "run", "now"])
        if tool == "now":
            return tool, {}
        if tool == "run":
            return tool, {"command": self._random.choice([self._text, self._texts])()}
        given = {
            "path": self._random.choice([self._text(), self._random.choice(WORDS)]),
            "content": self._text(),
        }
        optional: dict[str, Callable[[], Any]] = {
            "note": self._text,
            "count": lambda: self._random.randint(-(2**53), 2**53),
            "all": lambda: self._random.random() < 0.5,
            "ratio": lambda: self._random.choice([0.5, -1e-9, 3.0, 1e300]),
            "lines": self._texts,
            "extra": lambda: {self._random.choice(["k", "path"]): self._value(2)},
        }
        for name, draw in optional.items():
            if self._random.random() < 0.2:
                given[name] = draw()
        order = list(given)
        self._random.shuffle(order)
        return tool, {name: given[name] for name in order}

    def _value(self, depth: int) -> Any:
        kind = self._random.randrange(8 if depth else 5)
        if kind < 3:
            return self._text()
        if kind < 5:
            return self._random.choice([None, True, False, 0, -7, 2**60, 1.5])
        if kind == 5:
            return {self._random.choice(["k", "path"]): self._value(depth - 1)}
        return [self._value(depth - 1) for _ in range(kind - 5)]

    def _texts(self) -> list[str]:
        return [self._text() for _ in range(self._random.randint(0, 2))]

    def _text(self) -> str:
        return "".join(self._piece() for _ in range(self._random.randint(0, 5)))

    def _piece(self) -> str:
        kind = self._random.randrange(8)
        if kind < 2:
            return self._random.choice(OTHERS)
        if kind == 2:
            return self._random.choice(MARKS)
        if kind == 3:
            return self._part(self._random.choice(WHOLE))
        if kind == 4:
            return self._part(self._form.write(SAMPLE))
        if kind == 5:
            # Marks of the form itself, in any order: the hardest to tell from the call around them.
            glue = self._random.choice(["", "\n", " ", "x", "\nx\n"])
            return glue.join(self._random.choices(self._own, k=self._random.randint(1, 6)))
        if kind == 6:
            return self._part(self._form.write(self._plain_calls()))
        return "".join(
            self._random.choices(LETTERS, k=self._random.randint(0, 8))
        ) + self._random.choice(WORDS)

    def _plain_calls(self) -> list[Wanted]:
        """Other calls than the sample: without arguments, with empty ones, in any number."""
        possible: tuple[Wanted, ...] = (
            ("now", {}),
            ("run", {"command": self._random.choice(["ls", "a b", ""])}),
            ("write_file", {"path": "p", "content": self._random.choice(["c", "\n", "x\ny"])}),
        )
        return self._random.choices(
            possible, k=self._random.randint(1, 3) if self._form.several else 1
        )

    def _part(self, whole: str) -> str:
        """A whole answer or a part of it: what could be taken for the rest of a call."""
        start, stop = self.place(whole), self.place(whole)
        return self._random.choice([whole, whole[:stop], whole[start:], whole[start:stop]])


PROSE = ("", "I'll look.", "Two lines.\n\nOf prose: a < b.", "A list:\n- one\n- two")
SEEDS = st.integers(0, 2**32)


# ---- reading


def read(
    reply: str, cuts: Sequence[int] = (), *, cut: bool = False, **options: Any
) -> tuple[Reading, str]:
    """The reading of a reply that arrives in pieces, and what was shown while it arrived."""
    reader = ReplyReader(tools=TOOLS, **options)
    bounds = [0, *sorted(min(at, len(reply)) for at in cuts), len(reply)]
    given_out = "".join(reader.feed(reply[a:b]) for a, b in itertools.pairwise(bounds))
    return reader.finish(cut=cut), given_out


def meant(call: ToolCall) -> Wanted | None:
    """What the dispatcher takes a call for; None if it answers with an error that the model is told
    of.
    """
    try:
        return call.tool, parse_arguments(call.arguments)[0]
    except ToolFailed:
        return None


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner: list[Any] = []
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        inner = [*mapping, *mapping.values()]
    elif isinstance(value, list):
        inner = cast("list[Any]", value)
    return [text for one in inner for text in strings(one)]


def has_marks(form: LegalForm, calls: Sequence[Wanted]) -> bool:
    """Whether a value holds what could be a mark of the form itself."""
    return bool(form.marks) and any(
        re.search(form.marks, text) for _, given in calls for text in strings(given)
    )


def is_ambiguous(form: LegalForm, calls: Sequence[Wanted]) -> bool:
    """Whether a form that writes text as it is has no way to say whether a value is text or
    something else.
    """
    if not form.marks or "string" in form.name or form.name in TYPED:
        return False
    return any(
        tool == "run" or (isinstance(given.get("note"), str) and given["note"].strip() == "null")
        for tool, given in calls
    )


TYPED = ("deepseek v3.2", "deepseek v4", "kimi k3", "gemma 4", "functiongemma")
"""Forms whose marks say of each value whether it is text."""
_FRAME = re.compile(
    r"\s+|</?(?:[a-z]+:|｜DSML｜)?(?:tool_calls?|function_calls)(?::\w+)?>|\]<\]minimax\[>\[(?=</?tool_call>)"
)


def is_letter_by_letter(form: LegalForm, reply: str, calls: Sequence[Wanted]) -> bool:
    """Whether a reply is exactly what the family writes for other calls, in whose values there is
    no mark.

    Then nothing in it says that the model meant anything else: a value ends where these marks say
    it does.
    """
    if has_marks(form, calls):
        return False
    return _FRAME.sub("", form.write(calls)) == _FRAME.sub("", reply)


def complaint(
    form: LegalForm, wanted: Sequence[Wanted], prose: str, reply: str, reading: Reading
) -> str:
    got = [meant(call) for call in reading.calls]
    if got == [(tool, dict(given)) for tool, given in wanted]:
        kept = (reading.text, reading.reasoning) == (prose, "")
        return "" if kept else f"the text is {reading.text!r}, the reasoning {reading.reasoning!r}"
    if not has_marks(form, wanted):
        if is_ambiguous(form, wanted) and len(got) == len(wanted) and None not in got:
            return ""  # what a value reads as counts; `test_what_may_be_text...` has the table
        return f"read as {got}"
    if None not in got:
        plain = [one for one in got if one is not None]
        same = has_marks(form, wanted) and is_letter_by_letter(form, reply[len(prose) :], plain)
        return "" if same else f"changed without a word: {got}"
    left = [(tool, dict(given)) for tool, given in wanted]
    for one in got:
        if one is not None and one not in left:
            return f"an error, and a call that nobody wrote: {got}"
    return ""


@EACH_FORM
@MANY
@given(seed=SEEDS)
def test_a_value_comes_back_as_it_was_written_or_as_an_error(form: LegalForm, seed: int) -> None:
    draw = Draw(form, seed)
    wanted, prose = draw.calls(), draw.prose()
    reply = f"{prose}\n\n{form.write(wanted)}" if prose else form.write(wanted)
    reading, _ = read(reply)
    assert complaint(form, wanted, prose, reply, reading) == "", reply
    for cuts in (draw.cuts(reply), range(min(len(reply), 200))):
        streamed, given_out = read(reply, cuts)
        assert streamed == reading, list(cuts)
        assert is_shown_rightly(given_out, reading, wanted), list(cuts)


def is_shown_rightly(given_out: str, reading: Reading, wanted: Sequence[Wanted]) -> bool:
    """Whether what was shown while the reply arrived is the beginning of its text."""
    if reading.text.startswith(given_out):
        return True
    if not any(mark in text for _, given in wanted for text in strings(given) for mark in CLOSERS):
        return False
    # A value that holds such a mark shows that what came before it may have been reasoning, and
    # what was shown cannot be taken back: then it stands in the reasoning, and nothing of it is
    # lost.
    letters = iter(reading.reasoning + reading.text)
    return all(letter in letters for letter in given_out if not letter.isspace())


@EACH_FORM
@MANY
@given(seed=SEEDS)
def test_an_answer_that_was_cut_makes_no_call_that_was_not_written(
    form: LegalForm, seed: int
) -> None:
    draw = Draw(form, seed)
    wanted = draw.calls()
    reply = form.write(wanted)
    begun = reply[: draw.place(reply)]
    reading, _ = read(begun, draw.cuts(begun), cut=True)
    assert inventions(wanted, reading) == [], begun


def inventions(wanted: Sequence[Wanted], reading: Reading) -> list[Wanted]:
    """Calls that would be made though nobody wrote them."""
    known = [(tool, dict(given)) for tool, given in wanted]
    made = [one for one in map(meant, reading.calls) if one is not None]
    return [one for one in made if one not in known]


@pytest.mark.parametrize(
    "reply",
    [
        # A text that holds its own closing mark and the beginning of an end.
        "<start_function_call>call:run{command:<escape>s<escape>}<end_func<escape>}<end_function_call>",
        # One that holds what stands between two arguments: a name comes twice.
        '<|tool_call>call:write_file{content:<|"|>a<|"|>,path:<|"|>b<|"|>,content:<|"|>c<|"|>}<tool_call|>',
        # Two that hold the end of the frame, and the beginning of another one.
        '<function_calls>\n<invoke name="write_file">\n<parameter '
        'name="content">a</parameter>\n</invoke>\n'
        '</function_calls>\n</parameter>\n<parameter name="note"><function_calls>\n<invoke '
        'name="run">\n'
        '<parameter name="command">b</parameter>\n</invoke>\n</function_calls>',
        # One that holds the end of the frame, and a call of another family.
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="run">\n'
        "<steptml:parameter "
        'name="command">ls</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>'
        "<｜tool_calls_end｜><tool_call>\n<function=run>\n<parameter=command>\nrm\n</parameter>\n</function>\n"
        "</tool_call>",
        # One that holds the end of a call, words and the beginning of the next one.
        "<tool_call>run\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>5<tool_call>run\n"
        "<arg_key>command</arg_key>\n<arg_value>rm</arg_value>\n</tool_call>",
        # One that holds another call: what is left of its own has an argument that its tool does
        # not take.
        "<tool_call>write_file<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>"
        "<tool_call>run<arg_key>command</arg_key><arg_value>ls</arg_value>"
        "<arg_key>content</arg_key><arg_value>b</arg_value></tool_call>",
        # One that holds the beginning of a call without a name.
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="run">\n'
        "<steptml:parameter "
        'name="command">ls</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n'
        "<｜tool_call_begin｜>function<</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n"
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="now">\n</steptml:invoke>'
        "<｜tool_call_end｜><｜tool_calls_end｜>",
        # One whose string is still open at the mark that ends its call: what follows may be in it.
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write_file<｜tool▁sep｜>"
        '{"path": "p", "content": "x<｜tool▁call▁end｜><｜tool▁call▁begin｜>run<｜tool▁sep｜>'
        '{"command": "ls"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ],
    ids=[
        *("text", "repeated name", "two frames", "two families"),
        *("words between calls", "an argument of another tool", "no name", "an open string"),
    ],
)
def test_a_call_that_may_go_on_behind_its_end_is_refused(reply: str) -> None:
    reading, _ = read(reply)
    assert reading.calls and [meant(call) for call in reading.calls] == [None] * len(reading.calls)


def test_a_mark_that_begins_a_longer_one_is_not_taken_out_alone() -> None:
    mark = "]<]minimax[>["
    call = f'{mark}<tool_call>\n{mark}<invoke name="now">{mark}</invoke>\n{mark}</tool_call>'
    reply = f"{call}word{mark}</path>{mark}</invoke>"
    for place in range(len(call), len(reply)):
        assert read(reply, [place])[0] == read(reply)[0], place


def test_no_call_whose_values_are_raw_text_is_made_in_a_reply_that_was_cut() -> None:
    form = next(form for form in FORMS if form.name == "qwen 3 coder")
    reading, _ = read(form.write(SAMPLE), cut=True)
    assert list(map(meant, reading.calls)) == [None, None]


@pytest.mark.parametrize("form", [form for form in FORMS if form.prose], ids=lambda form: form.name)
def test_a_call_that_was_drafted_in_reasoning_is_made(form: LegalForm) -> None:
    call = form.write(SAMPLE[:1])
    reading, _ = read(f"<think>\nI will send {call} then.\n</think>\n\n{call}")
    assert list(map(meant, reading.calls)) == [(tool, dict(given)) for tool, given in SAMPLE[:1]]
    assert reading.text == "" and "I will send" in reading.reasoning


# ---- values that may be text or something else

EITHER = {
    "put": {
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "string"]},
            "b": {"type": ["string", "null"]},
            "c": {"anyOf": [{"type": "string"}, {"type": "array"}]},
            "d": {"anyOf": [{"type": "array"}, {"type": "null"}]},
            "e": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            "n": {"type": "integer"},
        },
    }
}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a", "5", 5),
        ("a", "five", "five"),
        ("a", "5 apples", "5 apples"),
        ("a", "null", "null"),
        ("b", "null", None),
        ("b", "none", "none"),
        ("b", "5", "5"),
        ("c", '["x"]', ["x"]),
        ("c", "[x", "[x"),
        ("c", "x", "x"),
        ("d", '["x"]', ["x"]),
        ("d", "null", None),
        ("e", '{"city": "Paris"}', {"city": "Paris"}),
        ("n", "2026-01-15", "2026-01-15"),
    ],
)
def test_what_may_be_text_or_something_else_is_what_it_reads_as(
    name: str, text: str, value: Any
) -> None:
    reader = ReplyReader(tools=EITHER, marked=True)
    reader.feed(
        f"<tool_call>\n<function=put>\n<parameter={name}>\n{text}\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    [call] = reader.finish().calls
    assert parse_arguments(call.arguments)[0] == {name: value}


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_json_object_whose_end_is_clear_needs_no_closing_tag(end: str) -> None:
    for body in ('{"name": "put", "arguments": {"a": 1}}', 'put\n{"a": 1}'):
        reader = ReplyReader(tools=EITHER, marked=True)
        reader.feed(f"<tool_call>{body}{end}")
        [call] = reader.finish().calls
        assert (call.tool, parse_arguments(call.arguments)[0]) == ("put", {"a": 1})
