"""A definition that a script gives as a dictionary, written as the file that it could be: what a
person is shown is what is read.

    ---
    parameters: {"text": {"type": "string"}}
    script: |2
      def run(args):
          return args["text"].upper()
    ---
    Write a text in capitals.

So there is one reader, and one set of checks, for files and for what comes at run time. A script
stands there line by line; a character that cannot be seen is written as an escape, in a value (YAML
and JSON read it back) as in a script that has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 32_768
"""Of one definition: a person must be able to read it."""


def written(fields: Mapping[str, Any], body: str) -> str:
    """The text of a file. Raises ValueError for what cannot be written, in words: too large, no
    JSON value, half a character.
    """
    lines = ["---"]
    for key, value in fields.items():
        if key == "script" and isinstance(value, str) and _plain(value):
            # An indentation of its own, so that no line of a script can end the block.
            lines += [
                "script: |2",
                *(f"  {line}" if line else "" for line in value.rstrip("\n").split("\n")),
            ]
        else:
            lines.append(f"{_value(key)}: {_value(value)}")
    text = "\n".join([*lines, "---", body, ""])
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character (a lone surrogate)") from None
    if size > MOST_BYTES:
        raise ValueError(f"it has {size} bytes, and {MOST_BYTES} are the most")
    return text


def _plain(script: str) -> bool:
    """Whether YAML reads each of its lines back as it is: it has more line breaks than one."""
    return bool(script.strip()) and all(c.isprintable() or c in "\t\n" for c in script)


def _value(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it holds a value that cannot be written: {error}") from None
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
