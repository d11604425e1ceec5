"""The tables of the page of plugins: the keys of a manifest. `make_reference.py` writes them.

They come from the table of keys (`ferrule.storage.plugins.manifest_keys`); the text around them is
written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from ferrule.storage.plugins.manifest_keys import format_key_table

PAGE = Path(__file__).parent / "plugins.md"


def page() -> str:
    """`plugins.md` with the tables of today."""
    text = PAGE.read_text(encoding="utf-8")
    begin = re.search(r"<!-- keys: [^>]*-->\n", text)
    end = text.index("\n<!-- end of keys -->")
    assert begin is not None
    return f"{text[: begin.end()]}\n{format_key_table()}{text[end:]}"
