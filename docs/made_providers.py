"""The tables of the page of providers: who has a name of its own, and who takes which option.
`make_reference.py` writes them.

They come from the table of providers (`ferrule.models.registry`); the text around them is written
by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from ferrule.models.client import ModelOptions
from ferrule.models.openai.differences import ChatDifferences
from ferrule.models.registry import PROVIDERS, UNIVERSAL_OPTIONS, Provider, list_providers

PAGE = Path(__file__).parent / "providers.md"
_SWITCHES = {
    "type": "reasoning is switched by `thinking: {type: …}`",
    "field": "reasoning is switched by `enable_thinking`",
    "template": "reasoning is switched by `chat_template_kwargs`",
}


def page() -> str:
    """`providers.md` with the tables of today."""
    text = PAGE.read_text(encoding="utf-8")
    for name, rows in {"presets": _presets(), "options": _options()}.items():
        begin = re.search(rf"<!-- {name}: [^>]*-->\n", text)
        end = text.index(f"\n<!-- end of {name} -->")
        assert begin is not None
        text = f"{text[: begin.end()]}\n{chr(10).join(rows)}\n{text[end:]}"
    return text


def _presets() -> Iterator[str]:
    yield "| name | address | key | known differences |"
    yield "|---|---|---|---|"
    for name, row in PROVIDERS.items():
        if row.is_preset:
            yield f"| `{name}:` | {_address(row)} | {_key(row)} | {_differences(row)} |"


def _address(row: Provider) -> str:
    if not row.base_url:
        return f"`{row.address_variable}`, with `{row.api_path}` behind it"
    moved = f", or `{row.address_variable}`" if row.address_variable else ""
    return f"`{row.base_url}`{moved}"


def _key(row: Provider) -> str:
    return f"`{row.key_variable}`{'' if row.needs_key else ', if it wants one'}"


def _differences(row: Provider) -> str:
    told = ChatDifferences(**row.differences)
    said = [row.remark] if row.remark else []
    if row.replay_reasoning and "reasoning back" not in row.remark:
        said.append("wants its reasoning back")
    said += [f"`{name}` is `{theirs}`" for name, theirs in told.option_names.items()]
    if not told.stream_usage:
        said.append("no `stream_options`")
    if told.thinking_switch in _SWITCHES and row.needs_key and "thinking" in row.options:
        said.append(_SWITCHES[told.thinking_switch])
    return "; ".join(said)


def _options() -> Iterator[str]:
    yield "| option | is known to |"
    yield "|---|---|"
    names = [item.name for item in fields(ModelOptions) if item.name not in UNIVERSAL_OPTIONS]
    providers = {**PROVIDERS, "local": list_providers()["local"]}
    for option in names:
        able = [name for name, row in providers.items() if option in row.options]
        missing = [name for name in providers if name not in able]
        if not missing:
            told = "all"
        elif len(missing) < len(able):
            told = f"all but {_list(missing)}"
        else:
            told = _list(able)
        yield f"| `{option}` | {told} |"


def _list(names: list[str]) -> str:
    return ", ".join(f"`{name}:`" for name in names)
