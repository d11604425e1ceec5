"""Calls in the legal form of each family, written as the family's own chat template writes them.

Written from the templates and not with Ferrule's own renderers: those avoid what is hard to read, a
model does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

Wanted = tuple[str, Mapping[str, Any]]
"""A tool and its arguments."""
Write = Callable[[Sequence[Wanted]], str]
WriteOne = Callable[[Wanted], str]


@dataclass(frozen=True)
class LegalForm:
    """One way in which a family writes calls.

    `several`: an answer may have more than one call. `prose`: text may stand before the calls.
    `marks`: a pattern for what could be mistaken for the form's own marks within a text, for forms
    in which text stands as it is; a form without it escapes what a text holds.
    """

    name: str
    write: Write
    several: bool = True
    prose: bool = True
    marks: str = ""


# ---- values


def dumped(value: Any) -> str:
    """JSON as the templates of Hugging Face write it."""
    return json.dumps(value, ensure_ascii=False)


def escaped(value: Any) -> str:
    """JSON as Jinja's own filter writes it: that of llama.cpp and of many templates."""
    text = json.dumps(value)
    for letter in "<>&'":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def shown(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumped(value)


def spelled(value: Any) -> str:
    """Text as it is, lists and objects as JSON, anything else in Python's spelling: Jinja's
    `string` filter.
    """
    return dumped(value) if isinstance(value, (list, dict)) else str(value)


# ---- JSON


def object_of(name: str, arguments: str, encode: Callable[[Any], str] = dumped) -> WriteOne:
    return lambda call: encode({name: call[0], arguments: dict(call[1])})


hermes = object_of("name", "arguments")
llama = object_of("name", "parameters")


def listed(calls: Sequence[Wanted]) -> str:
    return "[" + ", ".join(map(hermes, calls)) + "]"


def arguments(call: Wanted) -> str:
    return dumped(dict(call[1]))


def each(frame: str, inner: WriteOne = hermes, *, glue: str = "\n", around: str = "%") -> Write:
    """Every call in a frame of its own: `%` stands for what `inner` writes, `@` for the tool, `#`
    for its number.
    """
    opens, closes = frame.split("%")
    first, last = around.split("%")

    def write(calls: Sequence[Wanted]) -> str:
        written = [
            opens.replace("@", call[0]).replace("#", str(index)) + inner(call) + closes
            for index, call in enumerate(calls)
        ]
        return first + glue.join(written) + last

    return write


def frame_calls(frame: str, inner: Write = listed) -> Write:
    """All calls in one frame."""
    opens, closes = frame.split("%")
    return lambda calls: opens + inner(calls) + closes


# ---- Python


def python_call(call: Wanted) -> str:
    return f"{call[0]}(" + ", ".join(f"{name}={value!r}" for name, value in call[1].items()) + ")"


def python_list(calls: Sequence[Wanted]) -> str:
    return "[" + ", ".join(map(python_call, calls)) + "]"


def python_lines(calls: Sequence[Wanted]) -> str:
    return "\n".join(map(python_call, calls))


# ---- mark-up


def kind_of(value: Any) -> str:
    names = {
        bool: "boolean",
        int: "number",
        float: "number",
        str: "string",
        dict: "object",
        list: "array",
    }
    return names.get(type(value), "null")


def marked(opens: str, value: str, closes: str, render: Callable[[Any], str] = shown) -> WriteOne:
    """A call in mark-up.

    In `opens`, `@` is the tool. In `value`, `@` is the parameter, `%` its value, `~` whether it is
    text and `#` its type.
    """

    def write(call: Wanted) -> str:
        written = opens.replace("@", call[0])
        for key, given in call[1].items():
            before, after = value.replace("@", key).split("%")
            text = "true" if isinstance(given, str) else "false"
            written += (
                before.replace("~", text).replace("#", kind_of(given))
                + render(given)
                + after.replace("@", key)
            )
        return written + closes

    return write


def invocation(prefix: str, attributes: str = "", *, before: str = "") -> WriteOne:
    """`invoke` and `parameter` with what a family puts before the names of its tags."""
    return marked(
        f'{before}<{prefix}invoke name="@">\n',
        f'{before}<{prefix}parameter name="@"{attributes}>%{before}</{prefix}parameter>\n',
        f"{before}</{prefix}invoke>",
    )


QWEN = marked("<function=@>\n", "<parameter=@>\n%\n</parameter>\n", "</function>", spelled)
SEED = marked("<function=@>\n", "<parameter=@>%</parameter>\n", "</function>", spelled)
GLM = marked("@\n", "<arg_key>@</arg_key>\n<arg_value>%</arg_value>\n", "")
GLM47 = marked("@", "<arg_key>@</arg_key><arg_value>%</arg_value>", "")
HUNYUAN = marked(
    "@", "<arg_key:6124c78e>@</arg_key:6124c78e><arg_value:6124c78e>%</arg_value:6124c78e>", ""
)
M3 = "]<]minimax[>["
MINIMAX3 = marked(f'{M3}<invoke name="@">', f"{M3}<@>%{M3}</@>", f"{M3}</invoke>\n")
ARGUMENT = '<|open|>argument key="@" type="#"<|sep|>%<|close|>argument<|sep|>'
KIMI3 = marked('<|open|>call tool="@" index="1"<|sep|>', ARGUMENT, "<|close|>call<|sep|>")
DSML = "｜DSML｜"
STEP = "steptml:"
# In two pieces, so that no program that reads such tags meets one here.
ANTML = "ant" + "ml:"


def gemma(quote: str) -> Callable[[Any], str]:
    def render(value: Any) -> str:
        if isinstance(value, str):
            return quote + value + quote
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return (
                "{"
                + ",".join(f"{key}:{render(inner)}" for key, inner in sorted(members.items()))
                + "}"
            )
        if isinstance(value, list):
            return "[" + ",".join(map(render, cast("list[Any]", value))) + "]"
        return json.dumps(value)

    return render


def gemma_arguments(quote: str) -> WriteOne:
    render = gemma(quote)
    return lambda call: (
        "{" + ",".join(f"{key}:{render(value)}" for key, value in sorted(call[1].items())) + "}"
    )


# ---- the families

FUNCTION = r"</?(?:function|param)"
INVOKE = r"</?(?:invoke|parameter)"
PAIR = r"</?arg_(?:key|value)"

DEEPSEEK_CALLS = "<｜tool▁calls▁begin｜>%<｜tool▁calls▁end｜>"
KIMI_CALLS = "<|tool_calls_section_begin|>%<|tool_calls_section_end|>"
ALSO = "<|start|>assistant"

FORMS: tuple[LegalForm, ...] = (
    LegalForm("hermes", each("<tool_call>\n%\n</tool_call>")),
    LegalForm(
        "hermes, escaped",
        each("<tool_call>\n%\n</tool_call>", object_of("name", "arguments", escaped)),
    ),
    LegalForm("longcat", each("<longcat_tool_call>\n%\n</longcat_tool_call>")),
    LegalForm("llama 3", each("%", llama, glue="; "), prose=False),
    LegalForm("llama 3, python tag", each("<|python_tag|>%<|eom_id|>", llama), several=False),
    LegalForm(
        "llama 3.1 and functionary 3.1", each("<function=@>%</function>", arguments, glue="")
    ),
    LegalForm("mistral", frame_calls("[TOOL_CALLS]%")),
    LegalForm("mistral v11", each("[TOOL_CALLS]@[ARGS]%", arguments, glue="")),
    LegalForm(
        "mistral v11, ids", each("[TOOL_CALLS]@[CALL_ID]abc12345#[ARGS]%", arguments, glue="")
    ),
    LegalForm(
        "deepseek v3",
        each(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>@\n```json\n%\n```<｜tool▁call▁end｜>",
            arguments,
            around=DEEPSEEK_CALLS,
        ),
    ),
    LegalForm(
        "deepseek v3.1",
        each(
            "<｜tool▁call▁begin｜>@<｜tool▁sep｜>%<｜tool▁call▁end｜>",
            arguments,
            glue="",
            around=DEEPSEEK_CALLS,
        ),
    ),
    LegalForm(
        "kimi k2",
        each(
            "<|tool_call_begin|>functions.@:#<|tool_call_argument_begin|>%<|tool_call_end|>",
            arguments,
            glue="",
            around=KIMI_CALLS,
        ),
    ),
    LegalForm(
        "harmony",
        each(
            "<|channel|>commentary to=functions.@ <|constrain|>json<|message|>%<|call|>",
            arguments,
            glue=ALSO,
        ),
        prose=False,
    ),
    LegalForm(
        "harmony, recipient in the role",
        each(" to=functions.@<|channel|>commentary json<|message|>%<|call|>", arguments, glue=ALSO),
        prose=False,
    ),
    LegalForm(
        "cohere",
        each(
            '    {"tool_call_id": "#", "tool_name": "@", "parameters": %}',
            arguments,
            glue=",\n",
            around="<|START_ACTION|>[\n%\n]<|END_ACTION|>",
        ),
    ),
    LegalForm("granite 3", frame_calls("<|tool_call|>%")),
    LegalForm("phi 4", frame_calls("<|tool_call|>%<|/tool_call|>")),
    LegalForm("phi 4 mini", frame_calls("functools%"), prose=False),
    LegalForm("hunyuan a13b", frame_calls("<tool_calls>%</tool_calls>")),
    LegalForm("minimax m1", each("%", around="<tool_calls>\n%\n</tool_calls>")),
    LegalForm("nemotron", frame_calls("<TOOLCALL>%</TOOLCALL>")),
    LegalForm(
        "apertus",
        each('{"@": %}', arguments, glue=", ", around="<|tools_prefix|>[%]<|tools_suffix|>"),
    ),
    LegalForm(
        "internlm", each("<|action_start|><|plugin|>\n%<|action_end|>", llama), several=False
    ),
    LegalForm("functionary 3.2", each(">>>@\n%", arguments), prose=False),
    LegalForm("fenced", each("```json\n%\n```")),
    LegalForm("llama 4", python_list, prose=False),
    LegalForm("llama 4, python marks", frame_calls("<|python_start|>%<|python_end|>", python_list)),
    LegalForm("lfm 2", frame_calls("<|tool_call_start|>%<|tool_call_end|>", python_list)),
    LegalForm("olmo 3", frame_calls("<function_calls>\n%\n</function_calls>", python_lines)),
    LegalForm("gemma 3", frame_calls("```tool_code\n%\n```", python_lines)),
    LegalForm("qwen 3 coder", each("<tool_call>\n%\n</tool_call>", QWEN), marks=FUNCTION),
    LegalForm("qwen 3 coder, no wrapper", each("%", QWEN), several=False, marks=FUNCTION),
    LegalForm("seed", each("<seed:tool_call>\n%\n</seed:tool_call>", SEED), marks=FUNCTION),
    LegalForm(
        "minimax m2",
        each("%", invocation(""), around="<minimax:tool_call>\n%\n</minimax:tool_call>"),
        marks=INVOKE,
    ),
    LegalForm(
        "minimax m3",
        each("%", MINIMAX3, glue="", around=f"{M3}<tool_call>\n%{M3}</tool_call>"),
        marks=re.escape(M3),
    ),
    LegalForm(
        "deepseek v3.2",
        each(
            "%",
            invocation(DSML, ' string="~"'),
            around=f"<{DSML}function_calls>\n%\n</{DSML}function_calls>",
        ),
        marks=DSML,
    ),
    LegalForm(
        "deepseek v4",
        each(
            "%",
            invocation(DSML, ' string="~"'),
            around=f"<{DSML}tool_calls>\n%\n</{DSML}tool_calls>",
        ),
        marks=DSML,
    ),
    LegalForm(
        "invocations",
        each("%", invocation(""), around="<function_calls>\n%\n</function_calls>"),
        marks=INVOKE,
    ),
    LegalForm(
        "invocations, prefixed",
        each(
            "%", invocation(ANTML), around=f"<{ANTML}function_calls>\n%\n</{ANTML}function_calls>"
        ),
        marks=ANTML,
    ),
    LegalForm(
        "step 3",
        each(
            "<｜tool_call_begin｜>function<｜tool_sep｜>%<｜tool_call_end｜>",
            invocation(STEP),
            around="<｜tool_calls_begin｜>%<｜tool_calls_end｜>",
        ),
        marks=f"{STEP}|tool_call_end",
    ),
    LegalForm("glm 4.5", each("<tool_call>%</tool_call>", GLM), marks=PAIR),
    LegalForm("glm 4.7", each("<tool_call>%</tool_call>", GLM47, glue=""), marks=PAIR),
    LegalForm(
        "hunyuan 3", each("<tool_calls:6124c78e>%</tool_calls:6124c78e>", HUNYUAN), marks=PAIR
    ),
    LegalForm(
        "kimi k3",
        each("%", KIMI3, glue="", around="<|open|>tools<|sep|>%<|close|>tools<|sep|>"),
        marks=r"<\|(?:open|close)\|>",
    ),
    LegalForm(
        "kimi k3, one JSON block",
        each(
            '<|open|>call tool="@" index="1"<|sep|><|open|>json type="object"<|sep|>%'
            "<|close|>json<|sep|><|close|>call<|sep|>",
            arguments,
            glue="",
            around="<|open|>tools<|sep|>%<|close|>tools<|sep|>",
        ),
    ),
    LegalForm(
        "gemma 4",
        each("<|tool_call>call:@%<tool_call|>", gemma_arguments('<|"|>'), glue=""),
        marks=r'<\|"\|>',
    ),
    LegalForm(
        "functiongemma",
        each(
            "<start_function_call>call:@%<end_function_call>", gemma_arguments("<escape>"), glue=""
        ),
        marks="<escape>",
    ),
)
