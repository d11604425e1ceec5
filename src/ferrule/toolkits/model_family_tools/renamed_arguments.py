"""Parameters under other names: the tool, its rules, hooks and record stay the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ferrule.tools.definition import Arguments, CheckedArguments, Tool


def rename_parameters(tool: Tool, names: Mapping[str, str]) -> Tool:
    """Return a tool that a model sees with other names of its parameters.

    Args:
        tool: The tool.
        names: Its own names, and the ones that are shown. Both are accepted.
    """
    examples = tuple(
        {names.get(name, name): value for name, value in example.items()}
        for example in tool.examples
    )
    return replace(tool, arguments=RenamedArguments(tool.arguments, names), examples=examples)


class RenamedArguments:
    """Arguments that are shown under other names and checked under their own."""

    def __init__(self, own: Arguments, names: Mapping[str, str]) -> None:
        self._own = own
        self._names = dict(names)
        self._back = {shown: name for name, shown in names.items()}
        self._schema = self._rename_schema()

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema with the shown names."""
        return self._schema

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments:
        """Check arguments under either name."""
        given = {self._back.get(name, name): value for name, value in arguments.items()}
        checked = self._own.check(given)
        if len(given) < len(arguments):
            twice = [name for name in self._names if {name, self._names[name]} <= set(arguments)]
            checked.problems.append(f"`{self._names[twice[0]]}` is given twice")
        checked.problems[:] = map(self._show, checked.problems)
        checked.repairs[:] = map(self._show, checked.repairs)
        return checked

    def _show(self, text: str) -> str:
        for own, shown in self._names.items():
            text = text.replace(f"`{own}`", f"`{shown}`").replace(f'"{own}"', f'"{shown}"')
        return text

    def _rename_schema(self) -> Mapping[str, Any]:
        schema = dict(self._own.schema)
        properties = cast("Mapping[str, Any]", schema.get("properties", {}))
        required = cast("list[str]", schema.get("required", []))
        schema["properties"] = {
            self._names.get(name, name): value for name, value in properties.items()
        }
        if required:
            schema["required"] = [self._names.get(name, name) for name in required]
        return schema
