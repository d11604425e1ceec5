"""Render a definition that a script gives as a dictionary in the form of the file it could be.

    ---
    parameters: {"text": {"type": "string"}}
    script: |2
      def run(args):
          return args["text"].upper()
    ---
    Write a text in capitals.

So files and run-time definitions share one parser and one set of checks, and a person is shown
exactly what is parsed. A script is written line by line. An invisible character is written as an
escape, in a value (YAML and JSON read it back) as well as in a script that has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_BYTES = 32_768
"""Bytes of one definition: a person must be able to read it."""


def render_definition(fields: Mapping[str, Any], body: str) -> str:
    """Return the text of a file.

    Raises:
        ValueError: It cannot be written: it is too large, not a JSON value, or has a lone
            surrogate.
    """
    lines = ["---"]
    for key, value in fields.items():
        if key == "script" and isinstance(value, str) and _is_plain(value):
            # An explicit indentation, so that no line of a script can end the block.
            lines.append("script: |2")
            lines += [f"  {line}" if line else "" for line in value.rstrip("\n").split("\n")]
        else:
            lines.append(f"{_to_json(key)}: {_to_json(value)}")
    text = "\n".join([*lines, "---", body, ""])
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character (a lone surrogate)") from None
    if size > MAX_BYTES:
        raise ValueError(f"it has {size} bytes, and {MAX_BYTES} are the most")
    return text


def _is_plain(script: str) -> bool:
    """Whether YAML reads each line back unchanged: it has more line breaks than the line feed."""
    return bool(script.strip()) and all(c.isprintable() or c in "\t\n" for c in script)


def _to_json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it holds a value that cannot be written: {error}") from None
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
