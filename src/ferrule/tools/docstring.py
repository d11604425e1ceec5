"""What a docstring says: the description, and a line per parameter.

Reads the Google style (`Args:` with indented `name: text`) and the reST style (`:param name: text`).
Sections that are not for the model (Returns, Raises, Examples) end the description.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?|See Also):\s*$")
_FIELD = re.compile(r"^:(?:param|parameter|arg)\s+(?:[^:]*\s)?(\w+):\s*(.*)$")
_OTHER_FIELD = re.compile(r"^:(?:returns?|rtype|raises?|type)\b")
_ITEM = re.compile(r"^(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


@dataclass(slots=True)
class Documentation:
    """`description` is what the model reads of the tool; `parameters` maps names to their text."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(text: str | None) -> Documentation:
    """Value of a docstring; None and empty text give an empty one."""
    if not text:
        return Documentation()
    lines = inspect.cleandoc(text).splitlines()
    found = Documentation()
    described: list[str] = []
    section, current = "", ""
    for line in lines:
        if line.rstrip().endswith(":") and (match := _SECTION.match(line)):
            section, current = match[1], ""
        elif line.startswith(":") and (match := _FIELD.match(line)):
            section, current = "fields", match[1]
            found.parameters[current] = match[2]
        elif line.startswith(":") and _OTHER_FIELD.match(line):
            section, current = "other", ""
        elif not section:
            described.append(line)
        elif section in ("Args", "Arguments", "Parameters", "fields") and line.strip():
            current = _argument(line, section, current, found)
    found.description = "\n".join(described).strip()
    return found


def _argument(line: str, section: str, current: str, found: Documentation) -> str:
    indent = len(line) - len(line.lstrip())
    match = _ITEM.match(line.strip()) if section != "fields" and indent <= 4 else None
    if match:
        found.parameters[match[1]] = match[2]
        return match[1]
    if current:
        found.parameters[current] = f"{found.parameters[current]} {line.strip()}".strip()
    return current
