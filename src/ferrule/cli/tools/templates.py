"""Make the text of a new tool from its fields: a tool file, or a Python function with a test.

The new tool works at once but only returns its arguments. A person writes the rest.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Sequence
from typing import Any

from ferrule.core.errors import ConfigError

from .fields import Field

PLACEHOLDER = "Say here what the tool does, what it does not do, and what it returns."

SAMPLE_TOOL_FILE = """\
---
parameters:
  text:
    type: string
    description: The text to look at.
    required: true
side_effect: none
timeout_ms: 2000
script: |
  def run(args):
      words = args["text"].split()
      if not words:
          fail("there is no word in `text`")
      return {"words": len(words), "longest": max(words, key = len)}
examples:
  - request: How many words has "to be or not"?
    arguments: { text: to be or not }
tests:
  - name: counts words
    arguments: { text: to be or not }
    returns: { words: 4, longest: not }
  - name: says what is wrong
    arguments: { text: " " }
    fails: there is no word
---
Count the words of a text and find the longest one.

The model reads this text to decide when to call the tool. Say what it does, what it does not do,
and what it returns.
"""
"""The tool file that is written if no fields are given."""


def render_tool_file(fields: Sequence[Field], description: str = "") -> str:
    """Return a tool file with these parameters, whose tests pass."""
    everything = {field.name: field.type.make_sample() for field in fields}
    least = {field.name: everything[field.name] for field in fields if field.required}
    unset = {field.name: field.default for field in fields if not field.required}
    lines = ["---", "parameters:" if fields else "parameters: {}"]
    for field in fields:
        lines += [
            f"  {field.name}:",
            *(f"    {key}: {_json(value)}" for key, value in _parameter(field).items()),
        ]
    lines += ["side_effect: none", "timeout_ms: 2000", "script: |", "  def run(args):"]
    # No variables: a field may be called `in` or `args`.
    lines += [
        "      return {",
        *(f'          "{field.name}": {_read(field)},' for field in fields),
        "      }",
    ]
    lines += ["tests:", "  - name: gives back what it gets"]
    lines += [f"    arguments: {_json(everything)}", f"    returns: {_json(everything)}"]
    if unset:
        lines += ["  - name: does without what is optional"]
        lines += [f"    arguments: {_json(least)}", f"    returns: {_json(least | unset)}"]
    return "\n".join([*lines, "---", description or PLACEHOLDER]) + "\n"


def _parameter(field: Field) -> dict[str, Any]:
    made = field.type.to_schema()
    if field.description:
        made["description"] = field.description
    if field.default is not None:
        made["default"] = field.default
    return made | ({"required": True} if field.required else {})


def _read(field: Field) -> str:
    if field.required:
        return f'args["{field.name}"]'
    default = "" if field.default is None else f", {_literal(field.default)}"
    return f'args.get("{field.name}"{default})'


def _literal(value: Any) -> str:
    """Write a text, number, boolean or list of them as Starlark and Python do."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"  # pyright: ignore[reportUnknownArgumentType]  a default, checked against its kind
    return _json(value) if isinstance(value, str) else repr(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---- Python


def render_python_tool(name: str, fields: Sequence[Field], description: str = "") -> str:
    """Return a module with the tool as a typed function.

    Raises:
        ConfigError: A name is not a valid name in Python.
    """
    for one in (name, *(field.name for field in fields)):
        if not one.isidentifier() or keyword.iskeyword(one):
            raise ConfigError(
                f"`{one}` cannot be a name in Python",
                hint="use letters, digits and `_`, and no keyword",
            )
    ordered = sorted(fields, key=lambda field: not field.required)
    literal = any("Literal[" in field.type.to_annotation() for field in fields)
    said = _escape_for_docstring(description or PLACEHOLDER)
    about = [
        f"        {field.name}: {_escape_for_docstring(field.description)}"
        for field in ordered
        if field.description
    ]
    docstring = [f'    """{said}', *(["", "    Args:", *about] if about else []), '    """']
    if not about:
        docstring = [f'    """{said}"""']
    values = ", ".join(f'"{field.name}": {field.name}' for field in fields)
    return "\n".join(
        [
            f'"""`{name}`: a tool."""',
            "",
            "from __future__ import annotations",
            "",
            f"from typing import Any{', Literal' if literal else ''}",
            "",
            "from ferrule import tool",
            "",
            "",
            '@tool(side_effect="none")',
            _definition(name, [_render_parameter(field) for field in ordered]),
            *docstring,
            f"    return {{{values}}}",
            "",
        ]
    )


def _definition(name: str, parameters: Sequence[str]) -> str:
    line = f"def {name}({', '.join(parameters)}) -> dict[str, Any]:"
    if len(line) <= 100:
        return line
    return "\n".join(
        [f"def {name}(", *(f"    {one}," for one in parameters), ") -> dict[str, Any]:"]
    )


def _render_parameter(field: Field) -> str:
    kind = field.type.to_annotation()
    if field.required:
        return f"{field.name}: {kind}"
    if field.default is None:
        return f"{field.name}: {kind} | None = None"
    return f"{field.name}: {kind} = {_literal(field.default)}"


def _escape_for_docstring(text: str) -> str:
    """Escape a text for a docstring."""
    return re.sub(r'"(?="|$)', r"\"", text.replace("\\", "\\\\"))


def render_python_test(name: str, fields: Sequence[Field]) -> str:
    """Return tests of that module: of the function alone, and called by a scripted model."""
    given = {field.name: field.type.make_sample() for field in fields}
    return f'''\
"""Tests of `{name}`. Run them with `python -m pytest`: no model, no network."""

from __future__ import annotations

from ferrule import Agent, Scripted, Storage
from ferrule.models.scripted import calls, says
from {name} import {name}

GIVEN = {given!r}


def test_the_function_gives_back_what_it_gets() -> None:
    found = {name}(**GIVEN)
    assert {{key: found[key] for key in GIVEN}} == GIVEN


def test_a_model_calls_it() -> None:
    model = Scripted([calls(("{name}", GIVEN)), says("Done.")])
    run = Agent(model, [{name}], storage=Storage(journal=":memory:")).run_sync("Go.")
    assert [str(result.error_type) for result in run.results] == ["none"]
'''
