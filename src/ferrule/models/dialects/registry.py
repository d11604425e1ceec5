"""The dialects, and which family of models writes which one.

Adding a dialect takes one file and one row here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.core.calls import ToolCall
from ferrule.models.capabilities import starts_in_reasoning as starts_in_reasoning

from . import functionary, gemma, harmony, mistral, parameter_tags, section_tokens, tagged_calls
from .dialect import Dialect
from .pythonic import render_json, render_json_list, render_python, render_pythonic


def _render_tagged_json(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"<tool_call>\n{render_json(call)}\n</tool_call>" for call in calls)


def _render_llama(calls: Sequence[ToolCall]) -> str:
    return "; ".join(render_json(call, key="parameters") for call in calls)


def _render_tool_code(calls: Sequence[ToolCall]) -> str:
    written = [render_python(call) for call in calls]
    if any(line is None for line in written):
        return f"```tool_code\n{render_pythonic(calls)}\n```"
    return "```tool_code\n" + "\n".join(line for line in written if line) + "\n```"


def _render_cohere(calls: Sequence[ToolCall]) -> str:
    inner = ",\n".join(
        f'    {{"tool_call_id": "{index}", "tool_name"' + render_json(call, key="parameters")[7:]
        for index, call in enumerate(calls)
    )
    return f"<|START_ACTION|>[\n{inner}\n]<|END_ACTION|>"


def _render_fenced(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"```json\n{render_json(call)}\n```" for call in calls)


_JSON = '{"name": "<tool>", "arguments": {<arguments as JSON>}}'

HERMES = Dialect(
    "hermes",
    (
        "hermes",
        "qwen",
        "qwq",
        "smollm",
        "jamba",
        "exaone",
        "granite-4",
        "granite4",
        "ernie",
        "nous",
    ),
    tagged_calls.FORMS,
    _render_tagged_json,
    f"<tool_call>\n{_JSON}\n</tool_call>",
)
QWEN_XML = Dialect(
    "qwen-xml",
    (
        "qwen3-coder",
        "qwen3coder",
        "qwen3.5",
        "qwen3.6",
        "qwen3.8",
        "nemotron-3",
        "nemotron3",
        "step-3.5",
    ),
    tagged_calls.FORMS,
    parameter_tags.render_functions,
    "<tool_call>\n<function=<tool>>\n<parameter=<name>>\n<value>\n</parameter>\n</function>\n</tool_call>",
)
SEED = Dialect(
    "seed",
    ("seed-oss", "seed_oss"),
    tagged_calls.FORMS,
    parameter_tags.render_seed,
    "<seed:tool_call>\n<function=<tool>>\n<parameter=<name>><value></parameter>\n</function>\n</seed:tool_call>",
)
LLAMA = Dialect(
    "llama",
    ("llama-3", "llama3", "llama 3"),
    (tagged_calls.PYTHON_TAG, tagged_calls.FUNCTION),
    _render_llama,
    '{"name": "<tool>", "parameters": {<arguments as JSON>}}',
)
PYTHONIC = Dialect(
    "pythonic",
    ("llama-4", "llama4", "toolace", "olmo"),
    (tagged_calls.PYTHON_START, tagged_calls.PYTHON_TAG),
    render_pythonic,
    '[<tool>(<name>="<value>", <name>=<number>)]',
)
LFM = Dialect(
    "lfm",
    ("lfm2", "lfm-2"),
    (tagged_calls.LFM,),
    lambda calls: f"<|tool_call_start|>{render_pythonic(calls)}<|tool_call_end|>",
    '<|tool_call_start|>[<tool>(<name>="<value>")]<|tool_call_end|>',
)
MISTRAL = Dialect(
    "mistral",
    ("mistral", "mixtral", "ministral", "codestral", "pixtral", "nemo"),
    (mistral.FORM,),
    mistral.render_list,
    f"[TOOL_CALLS][{_JSON}]",
)
MISTRAL_ARGS = Dialect(
    "mistral-args",
    (
        "magistral",
        "devstral",
        "mistral-small-3.2",
        "mistral-small3.2",
        "mistral-medium-3",
        "ministral-3",
    ),
    (mistral.FORM,),
    mistral.render_args,
    "[TOOL_CALLS]<tool>[ARGS]{<arguments as JSON>}",
)
DEEPSEEK = Dialect(
    "deepseek",
    ("deepseek",),
    (section_tokens.SECTION, *tagged_calls.FORMS),
    section_tokens.render_deepseek,
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜><tool>\n"
    "```json\n{<arguments as JSON>}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
)
DEEPSEEK31 = Dialect(
    "deepseek-3.1",
    ("deepseek-v3.1", "deepseek-v31", "deepseek-v3-1"),
    (section_tokens.SECTION, *tagged_calls.FORMS),
    section_tokens.render_deepseek31,
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜><tool><｜tool▁sep｜>{<arguments as JSON>}"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
)
DSML = Dialect(
    "dsml",
    ("deepseek-v3.2", "deepseek-v32", "deepseek-v4", "deepseek-v3-2"),
    (*tagged_calls.FORMS, section_tokens.SECTION),
    parameter_tags.render_dsml,
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="<tool>">\n<｜DSML｜parameter name="<name>" '
    'string="true">'
    "<value></｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
)
GLM = Dialect(
    "glm",
    ("glm-4", "glm4", "glm-5", "glm5", "chatglm", "glm"),
    tagged_calls.FORMS,
    parameter_tags.render_pairs,
    "<tool_call><tool>\n<arg_key><name></arg_key>\n<arg_value><value></arg_value>\n</tool_call>",
)
KIMI = Dialect(
    "kimi",
    ("kimi-k2", "kimi", "moonshot"),
    (section_tokens.SECTION,),
    section_tokens.render_kimi,
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.<tool>:0<|tool_call_argument_begin|>"
    "{<arguments as JSON>}<|tool_call_end|><|tool_calls_section_end|>",
)
KIMI3 = Dialect(
    "kimi-3",
    ("kimi-k3",),
    (section_tokens.XTML, section_tokens.SECTION),
    parameter_tags.render_xtml,
    '<|open|>tools<|sep|><|open|>call tool="<tool>" index="1"<|sep|><|open|>argument key="<name>" '
    'type="string"<|sep|><value><|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
)
HARMONY = Dialect(
    "harmony",
    ("gpt-oss", "gptoss"),
    (harmony.CALL,),
    harmony.render,
    (
        "<|channel|>commentary to=functions.<tool> "
        "<|constrain|>json<|message|>{<arguments as JSON>}<|call|>"
    ),
)
GEMMA = Dialect(
    "gemma",
    ("gemma-3", "gemma3", "gemma-2", "gemma2", "gemma"),
    (),
    _render_tool_code,
    '```tool_code\n<tool>(<name>="<value>")\n```',
)
GEMMA4 = Dialect(
    "gemma-4",
    ("gemma-4", "gemma4"),
    (gemma.GEMMA4,),
    gemma.render_gemma4,
    '<|tool_call>call:<tool>{<name>:<|"|><value><|"|>}<tool_call|>',
)
FUNCTION_GEMMA = Dialect(
    "functiongemma",
    ("functiongemma",),
    (gemma.FUNCTION_GEMMA,),
    gemma.render_function_gemma,
    "<start_function_call>call:<tool>{<name>:<escape><value><escape>}<end_function_call>",
)
COHERE = Dialect(
    "cohere",
    ("command-r", "command-a", "c4ai", "cohere", "aya", "north"),
    (tagged_calls.ACTION,),
    _render_cohere,
    '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "<tool>", '
    '"parameters": {<arguments as JSON>}}]<|END_ACTION|>',
)
GRANITE = Dialect(
    "granite",
    ("granite",),
    tagged_calls.FORMS,
    lambda calls: f"<|tool_call|>{render_json_list(calls)}",
    f"<|tool_call|>[{_JSON}]",
)
PHI = Dialect(
    "phi",
    ("phi-4", "phi4"),
    (tagged_calls.BARRED, tagged_calls.FUNCTOOLS),
    lambda calls: f"<|tool_call|>{render_json_list(calls)}<|/tool_call|>",
    f"<|tool_call|>[{_JSON}]<|/tool_call|>",
)
MINIMAX = Dialect(
    "minimax",
    ("minimax",),
    tagged_calls.FORMS,
    lambda calls: parameter_tags.render_invokes(calls, "minimax:tool_call"),
    '<minimax:tool_call>\n<invoke name="<tool>">\n<parameter '
    'name="<name>"><value></parameter>\n</invoke>\n'
    "</minimax:tool_call>",
)
INVOKE = Dialect(
    "invoke",
    ("claude",),
    tagged_calls.FORMS,
    lambda calls: parameter_tags.render_invokes(calls, "function_calls"),
    '<function_calls>\n<invoke name="<tool>">\n<parameter '
    'name="<name>"><value></parameter>\n</invoke>\n'
    "</function_calls>",
)
INTERNLM = Dialect(
    "internlm",
    ("internlm",),
    (tagged_calls.PLUGIN,),
    lambda calls: "\n".join(
        f"<|action_start|><|plugin|>{render_json(call, key='parameters')}<|action_end|>"
        for call in calls
    ),
    '<|action_start|><|plugin|>{"name": "<tool>", "parameters": {<arguments as JSON>}}'
    "<|action_end|>",
)
HUNYUAN = Dialect(
    "hunyuan",
    ("hunyuan", "hy-"),
    tagged_calls.FORMS,
    lambda calls: f"<tool_calls>{render_json_list(calls)}</tool_calls>",
    f"<tool_calls>[{_JSON}]</tool_calls>",
)
NEMOTRON = Dialect(
    "nemotron",
    ("nemotron",),
    tagged_calls.FORMS,
    lambda calls: f"<TOOLCALL>{render_json_list(calls)}</TOOLCALL>",
    f"<TOOLCALL>[{_JSON}]</TOOLCALL>",
)
APERTUS = Dialect(
    "apertus",
    ("apertus",),
    (tagged_calls.APERTUS,),
    lambda calls: "<|tools_prefix|>" + render_json_list(calls) + "<|tools_suffix|>",
    '<|tools_prefix|>[{"<tool>": {<arguments as JSON>}}]<|tools_suffix|>',
)
FUNCTIONARY = Dialect(
    "functionary",
    ("functionary",),
    (functionary.FORM, tagged_calls.FUNCTION),
    functionary.render,
    ">>><tool>\n{<arguments as JSON>}",
)
FENCED = Dialect("fenced", (), (), _render_fenced, f"```json\n{_JSON}\n```")
"""For models whose family is not known: every instruction-tuned model can write a JSON block."""

ALL_DIALECTS: tuple[Dialect, ...] = (
    HERMES,
    QWEN_XML,
    SEED,
    LLAMA,
    PYTHONIC,
    LFM,
    MISTRAL,
    MISTRAL_ARGS,
    DEEPSEEK,
    DEEPSEEK31,
    DSML,
    GLM,
    KIMI,
    KIMI3,
    HARMONY,
    GEMMA,
    GEMMA4,
    FUNCTION_GEMMA,
    COHERE,
    GRANITE,
    PHI,
    MINIMAX,
    INVOKE,
    INTERNLM,
    HUNYUAN,
    NEMOTRON,
    APERTUS,
    FUNCTIONARY,
    FENCED,
)
"""All dialects. Of two families with names of the same length the earlier one comes first."""


def dialects_for_model(name: str) -> tuple[Dialect, ...]:
    """Return the dialects of a model, with the one it writes best first.

    They are found by the longest family name within its name; `FENCED` if none is known.
    """
    plain = re.sub(r"[\s_]+", "-", name.lower())
    matches = [
        (len(family), -index, dialect)
        for index, dialect in enumerate(ALL_DIALECTS)
        for family in dialect.families
        if re.search(rf"(?<![a-z0-9]){re.escape(family)}", plain)
    ]
    if not matches:
        return (FENCED,)
    ranked = sorted(matches, key=lambda match: match[:2], reverse=True)
    return tuple(dict.fromkeys(dialect for _, _, dialect in ranked))
