"""The tables of the page of plugins: the keys of a manifest. `make_reference.py` writes them.

They come from the table of keys (`ferrule.storage.plugins.manifest_keys`); the text around them is
written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ferrule.storage.plugins.manifest_keys import MANIFEST_KEYS, PLUGIN_KINDS, KeyType

PAGE = Path(__file__).parent / "plugins.md"
_SHOWN_TYPES: Mapping[KeyType, str] = {
    "text": "text",
    "flag": "true or false",
    "names": "list of names",
    "texts": "list of texts",
    "number": "number",
    "object": "`module:name`",
    "kind": "a kind",
    "value": "a value of the kind",
    "table": "a table",
}


def page() -> str:
    """`plugins.md` with the tables of today."""
    text = PAGE.read_text(encoding="utf-8")
    begin = re.search(r"<!-- keys: [^>]*-->\n", text)
    end = text.index("\n<!-- end of keys -->")
    assert begin is not None
    return f"{text[: begin.end()]}\n{format_key_table()}{text[end:]}"


def format_key_table() -> str:
    """Return the keys of a manifest and the kinds of settings as Markdown."""
    lines = ["| key | value | |", "|---|---|---|"]
    for one in MANIFEST_KEYS:
        if not one.ships:
            shown = one.key.replace("*", "NAME")
            required = "; required" if one.is_required else ""
            lines.append(f"| `{shown}` | {_SHOWN_TYPES[one.type]}{required} | {one.help} |")
    lines += ["", "| kind | a value is |", "|---|---|"]
    lines += [f"| `{name}` | {kind.help} |" for name, kind in PLUGIN_KINDS.items()]
    return "\n".join(lines) + "\n"
