"""Read a tool's description and the descriptions of its parameters from a docstring.

Four styles are understood: Google (`Args:` with indented `name: text`), NumPy (`Parameters` with a
line of dashes below it, `name : type` with indented text), reST (`:param name: text`) and epydoc
(`@param name: text`). Sections that are not for the model (Returns, Raises, Examples) end the
description.

Line breaks inside a paragraph only follow the width of the source file, so the description joins
them: a model reads the same text however its docstring is wrapped.
"""

from __future__ import annotations

import inspect
from dataclasses import field

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import mutable

_PARAMETER_SECTIONS = frozenset(
    {
        "Args",
        "Arguments",
        "Parameters",
        "Other Parameters",
        "Keyword Args",
        "Keyword Arguments",
    }
)
_SECTIONS = _PARAMETER_SECTIONS | frozenset(
    {
        "Return",
        "Returns",
        "Raises",
        "Yields",
        "Receives",
        "Warns",
        "Example",
        "Examples",
        "Note",
        "Notes",
        "References",
        "See Also",
    }
)
_PARAMETER_FIELD = compile_lazily(
    r"[:@](?:param|parameter|arg|argument|keyword|key)\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$"
)
_OTHER_FIELD = compile_lazily(r"[:@](?:returns?|rtype|raises?|type|yields?|ytype)\b")
_UNDERLINE = compile_lazily(r"-{3,}\s*$")
_NUMPY_ITEM = compile_lazily(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_PARAMETER_ITEM = compile_lazily(r"\s{0,4}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_LIST_ITEM = compile_lazily(r"(?:[-*+•]|\d+[.)])\s")
_FENCES = ("```", "~~~")
_LAID_OUT = ("|", "#", ">", "===", "---")
"""Beginnings of lines that stay on their own: tables, headings, quotes and doctest prompts."""


@mutable
class Documentation:
    """Texts of a docstring.

    `description` is what the model reads about the tool; `parameters` maps names to their texts.
    """

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(text: str | None) -> Documentation:
    """Parse a docstring. None and empty text give empty documentation."""
    if not text:
        return Documentation()
    documentation = Documentation()
    parameters = documentation.parameters
    description: list[str] = []
    section = ""
    current: list[str] = []
    lines = inspect.cleandoc(text).splitlines()
    is_numpy = False
    for number, line in enumerate(lines):
        # Sections and fields begin at the start of a line, and most lines are neither: for those
        # no regular expression is run.
        first = line[:1]
        title = line.rstrip()
        is_underlined = title in _SECTIONS and _is_underline(lines, number + 1)
        if first in (":", "@") and (match := _PARAMETER_FIELD.match(line)):
            section = "fields"
            current = [match[1]]
            parameters[match[1]] = match[2]
        elif first in (":", "@") and _OTHER_FIELD.match(line):
            section = "other"
            current = []
        elif is_underlined or (title.removesuffix(":") in _SECTIONS and title.endswith(":")):
            section = title.removesuffix(":")
            is_numpy = is_underlined
            current = []
        elif not section:
            description.append(line)
        elif found := _read_item(section, line, is_numpy=is_numpy):
            current, begun = found
            parameters.update(dict.fromkeys(current, begun))
        elif continuation := line.strip():
            for name in current:
                parameters[name] = f"{parameters[name]} {continuation}".strip()
    documentation.description = _unwrap(description)
    return documentation


def _is_underline(lines: list[str], number: int) -> bool:
    return number < len(lines) and bool(_UNDERLINE.match(lines[number]))


def _read_item(section: str, line: str, *, is_numpy: bool) -> tuple[list[str], str] | None:
    """Return the parameters that a line of a section names, and what it says of them."""
    if section not in _PARAMETER_SECTIONS:
        return None
    if not is_numpy:
        match = _PARAMETER_ITEM.match(line.rstrip())
        return ([match[1]], match[2]) if match else None
    match = None if line[:1].isspace() else _NUMPY_ITEM.match(line.rstrip())
    return ([name.strip(" *") for name in match[1].split(",")], "") if match else None


def _unwrap(lines: list[str]) -> str:
    """Join the lines of each paragraph and list item; keep code, tables and quotes as they are."""
    if len(lines) < 2:
        return "".join(lines).strip()
    joined: list[str] = []
    fenced = False
    open_text = ""  # What the next line may continue: "", "paragraph" or "item".
    for line in lines:
        text = line.strip()
        indented = line[:1] in (" ", "\t")
        if text.startswith(_FENCES):
            fenced = not fenced
            open_text = ""
            joined.append(line)
        elif fenced or not text or text.startswith(_LAID_OUT):
            open_text = ""
            joined.append(line)
        elif (text[0] in "-*+•" or text[0].isdecimal()) and _LIST_ITEM.match(text):
            open_text = "item"
            joined.append(line)
        elif open_text == "item" or (open_text == "paragraph" and not indented):
            joined[-1] = f"{joined[-1].rstrip()} {text}"
        else:
            # An indented block (code, a table in plain text) keeps its lines.
            open_text = "" if indented else "paragraph"
            joined.append(line)
    return "\n".join(joined).strip()
