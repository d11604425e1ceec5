"""What a docstring says: the description, and a line per parameter.

Reads the Google style (`Args:` with indented `name: text`) and the reST style (`:param name:
text`). Sections that are not for the model (Returns, Raises, Examples) end the description.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?|See Also):\s*$"
)
_FIELD = re.compile(r":(?:param|parameter|arg)\s+(?:[^:]*\s)?(\w+):\s*(.*)$")
_OTHER_FIELD = re.compile(r":(?:returns?|rtype|raises?|type)\b")
_ITEM = re.compile(r"\s{0,4}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_ITEMS = frozenset({"Args", "Arguments", "Parameters"})


@dataclass(slots=True)
class Documentation:
    """`description` is what the model reads of the tool; `parameters` maps names to their text."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(text: str | None) -> Documentation:
    """Value of a docstring; None and empty text give an empty one."""
    if not text:
        return Documentation()
    found = Documentation()
    described: list[str] = []
    section, current = "", ""
    for line in inspect.cleandoc(text).splitlines():
        # Sections and fields begin where a line does, and most lines are not one: those cost no
        # expression.
        first = line[:1]
        if first == ":" and (match := _FIELD.match(line)):
            section, current = "fields", match[1]
            found.parameters[current] = match[2]
        elif first == ":" and _OTHER_FIELD.match(line):
            section, current = "other", ""
        elif first != " " and ":" in line and (match := _SECTION.match(line)):
            section, current = match[1], ""
        elif not section:
            described.append(line)
        elif section in _ITEMS and (match := _ITEM.match(line.rstrip())):
            current = match[1]
            found.parameters[current] = match[2]
        elif current and (more := line.strip()):
            found.parameters[current] = f"{found.parameters[current]} {more}".strip()
    found.description = "\n".join(described).strip()
    return found
