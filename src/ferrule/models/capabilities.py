"""What a model can do, read from what its server says about it: yes, no, or unknown.

Sources: Ollama's `/api/show` (its list of capabilities is authoritative; without one, markers in
the chat template), llama.cpp's `/props` (`chat_template_caps`), the entries of `/models` as
OpenRouter and vLLM extend them, and a small table for providers that say nothing. The functions
are pure: they take what was received.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ferrule.core.lazy_patterns import compile_lazily

from .client import Capabilities

_TOOL_MARKERS = compile_lazily(
    r"\{%-?\s*(if|elif|for)[^%]*\btools?\b"  # Jinja conditionals and loops on tools
    r"|\{\{-?\s*(if|range|with)[^}]*\.Tools?\b"  # the same in Go templates
    r"|\[(AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"  # Mistral
    r"|<tool_call>|<\|?tool_call|<function_calls>|<function=|✿FUNCTION✿",
    re.I,
)
"""Signs that a chat template knows tools (systems.md 1.1, "Model capability detection")."""

_KNOWN_PROVIDERS: tuple[tuple[str, str, Capabilities], ...] = (
    (
        "https://api.openai.com/",
        r"gpt-3\.5|gpt-[4-9]|o[134]\b|chatgpt",
        Capabilities(True, True, structured_with_tools=True),
    ),
    ("https://api.deepseek.com", r"deepseek", Capabilities(True, False)),
    ("https://api.groq.com/", r"llama-[34]|gpt-oss|qwen|kimi", Capabilities(True)),
    (
        "https://api.mistral.ai/",
        r"mistral|ministral|codestral|devstral|magistral",
        Capabilities(True, True),
    ),
    ("https://api.x.ai/", r"grok", Capabilities(True, True)),
    ("https://api.anthropic.com/", r"claude-3-", Capabilities(True, False, 200_000)),
    (
        "https://api.anthropic.com/",
        r"claude-",
        Capabilities(True, True, 200_000, True, structured_with_tools=True),
    ),
)
"""Servers that do not describe their models: start of the URL, models, their capabilities."""

_HAS_TOOL_SEARCH = compile_lazily(
    r"(.*/)?gpt-(5\.([4-9]|\d\d)|[6-9]|1\d)(?!\d)"
    r"|claude-(opus|sonnet)-([4-9]|\d\d)(?!\d)"
    r"|claude-haiku-(4-([5-9]|\d\d)(?!\d)|([5-9]|\d\d)(?!\d))"
)
"""Models that search deferred tools themselves (requirement 001, "Provider support").

Routers put a provider before the name.
"""


def has_tool_search(model: str) -> bool:
    """Return whether a model, by its name, can use its provider's tool search."""
    return _HAS_TOOL_SEARCH.match(model) is not None


def find_known_provider(base_url: str, model: str) -> Capabilities | None:
    """Return the capabilities from the table of providers, or None."""
    for start, models, capabilities in _KNOWN_PROVIDERS:
        if base_url.startswith(start) and re.match(models, model):
            tool_search = has_tool_search(model) if model.startswith("claude-") else None
            return replace(capabilities, source="provider table", tool_search=tool_search)
    return None


def read_llama_props(props: Mapping[str, Any]) -> Capabilities | None:
    """Read llama.cpp's `/props`. Return None if this is not its answer.

    llama.cpp turns schemas into grammars for every model, so `structured` is always true. It takes
    either a grammar or tools.
    """
    generation = _as_object(props.get("default_generation_settings"))
    if not generation and "chat_template" not in props:
        return None
    context = _positive_int(generation.get("n_ctx"))
    caps = _as_object(props.get("chat_template_caps"))
    tools = caps.get("supports_tools")
    if isinstance(tools, bool):
        can_call = tools and caps.get("supports_tool_calls") is not False
        return Capabilities(
            can_call,
            True,
            context,
            source="/props chat_template_caps",
            structured_with_tools=False,
        )
    template = props.get("chat_template")
    if isinstance(template, str) and template:
        tools = template_knows_tools(template)
        return Capabilities(
            tools, True, context, source="template markers", structured_with_tools=False
        )
    return Capabilities(None, True, context, source="/props", structured_with_tools=False)


def read_ollama_show(show: Mapping[str, Any]) -> Capabilities:
    """Read Ollama's `/api/show`. Every model there can be constrained to a schema (`format`).

    A constrained model cannot call tools: its calls would have to fit the schema.
    """
    return replace(_read_show(show), structured_with_tools=False)


def _read_show(show: Mapping[str, Any]) -> Capabilities:
    listed = show.get("capabilities")
    info = _as_object(show.get("model_info"))
    architecture = str(info.get("general.architecture", ""))
    context = _positive_int(info.get(f"{architecture}.context_length"))
    if isinstance(listed, list):
        names = {str(name) for name in cast(list[Any], listed)}
        structured = "completion" in names or not names
        return Capabilities(
            "tools" in names,
            structured,
            context,
            "thinking" in names,
            "/api/show capabilities",
            vision="vision" in names,
        )
    template = show.get("template")
    if isinstance(template, str) and template and template_knows_tools(template):
        return Capabilities(True, True, context, source="template markers")
    return Capabilities(None, True, context)


def template_knows_tools(template: str) -> bool | None:
    """Return True if the template has markers of tools, else None.

    Never False: some servers handle tools outside the template.
    """
    return True if _TOOL_MARKERS.search(template) else None


def read_models_entry(model: str, entries: list[dict[str, Any]]) -> Capabilities:
    """Read the entry for `model` in `/models`.

    Understands OpenRouter's `supported_parameters`, and context windows under any of their names.
    """
    entry = next((entry for entry in entries if entry.get("id") == model), None)
    if entry is None:
        return Capabilities()
    context = _positive_int(entry.get("max_model_len")) or _positive_int(
        entry.get("context_length")
    )
    supported = entry.get("supported_parameters")
    if isinstance(supported, list):
        names = {str(name) for name in cast(list[Any], supported)}
        structured = bool(names & {"structured_outputs", "response_format"})
        return Capabilities(
            "tools" in names,
            structured,
            context,
            "reasoning" in names,
            "/models",
            vision=_reads_pictures(entry),
        )
    return Capabilities(context=context, source="/models" if context else "unknown")


def _reads_pictures(entry: Mapping[str, Any]) -> bool | None:
    listed = _as_object(entry.get("architecture")).get("input_modalities")
    return "image" in cast(list[Any], listed) if isinstance(listed, list) else None


def read_anthropic_model(entry: Mapping[str, Any]) -> Capabilities | None:
    """Read `GET /v1/models/{id}` in Anthropic's format, or return None if it says nothing.

    Tools are part of the format, so `tools` is always true.
    """
    listed = entry.get("capabilities")
    context = _positive_int(entry.get("max_input_tokens"))
    if entry.get("type") != "model" or not isinstance(listed, dict):
        return None
    caps = cast(dict[str, Any], listed)
    structured = _as_object(caps.get("structured_outputs")).get("supported")
    thinking = _as_object(caps.get("thinking")).get("supported")
    return Capabilities(
        True,
        bool(structured),
        context,
        bool(thinking),
        "/v1/models",
        structured_with_tools=bool(structured),
    )


def _as_object(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _positive_int(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


_STARTS_IN_REASONING = compile_lazily(
    r"deepseek[-_.:]?r1|r1-distill|qwq|thinking|minimax[-_]?m[23]|reasoner|deepseek[-_]?v(?:3[.-]?2|[4-9])"
    r"|kimi[-_]?k(?:2[.-][5-9]|[3-9])|qwen-?3[.-][5-9]|glm-?(?:4[.-][7-9]|[5-9])|step-?3[.-][5-9]|nemotron-?3"
)
"""Families whose chat templates end the prompt with the mark that opens reasoning.

They are recognised by name, since servers do not report it. If the server itself separates
reasoning from text, that takes precedence.
"""


def starts_in_reasoning(name: str) -> bool:
    """Return whether a model is known to begin its reply inside reasoning opened by the prompt."""
    return bool(_STARTS_IN_REASONING.search(name.lower()))
