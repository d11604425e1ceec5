"""Which calls the table of paths makes, and what must come of each. The parameters are found in the
catalog.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hostile_world import PATHS, World

import ferrule.toolkits
from ferrule.core.calls import ErrorType, ToolResult
from ferrule.tools.definition import Tool

REFUSED = ("outside", "reserved", "secret")
"""Kinds of rows that are refused before anything happens, whoever allows what."""

FOREIGN = ("~", "./~", "src/../~", "C:", "c:", "\\", "../<name>/src")
"""Spellings of places outside that a program takes as names, and that tools refuse when they look
at the path: the gate does not know them. They are denied, and nothing is opened, but the call has
begun by then.
"""

ON_THE_ENTRY = {("delete_path", "path"), ("move_path", "source")}
"""Parameters that name an entry itself: a link or a pipe may be deleted or moved, what it leads to
may not.
"""

EVERY_NINTH = {
    ("search_files", "pattern"), ("search_files", "exclude"), ("run_command", "stdin"),
    ("write_file", "content"), ("edit_file", "old_string"), ("edit_file", "new_string"),
    ("replace_lines", "new_content"), ("insert_lines", "new_content"),
}  # fmt: skip
"""Parameters that hold text and no name, and whose calls take long: they get a sample of the rows.
A tool or parameter that is not here gets all of them.
"""


def _tools() -> list[Tool]:
    """Every tool that ships: what the modules of `ferrule.toolkits` export."""
    found: dict[str, Tool] = {}
    for module in pkgutil.walk_packages(ferrule.toolkits.__path__, "ferrule.toolkits."):
        for tool in getattr(import_module(module.name), "TOOLS", ()):
            found[tool.full_name] = tool
    return [found[name] for name in sorted(found)]


TOOLS = _tools()
BY_NAME = {tool.full_name: tool for tool in TOOLS}


@dataclass(frozen=True, slots=True)
class Attack:
    """One call. `must` is `refused` (by the gate: nothing happened), `denied`, `fail`, or empty (it
    may work, harmlessly).
    """

    row: Any
    tool: Tool
    arguments: dict[str, Any]
    must: str

    def complaints(self, result: ToolResult, started: bool) -> list[str]:
        """What is wrong with the outcome."""
        what = f"{self.row.id}: {self.tool.name} {str(self.arguments)[:200]} -> {result.to_text()[:200]}"
        if self.must and result.success:
            return [f"worked: {what}"]
        early = self.must == "refused" and started
        if early or (
            self.must in ("refused", "denied")
            and result.error_type is not ErrorType.PERMISSION_DENIED
        ):
            return [f"not refused before it began: {what}"]
        return []


def must(row: Any, tool: Tool, parameter: str) -> str:
    """What must come of a call whose `parameter` is the path of this row."""
    touch = tool.touches.get(parameter)
    if touch is None or touch.kind not in ("read", "write"):
        return ""
    if row.kind in REFUSED or (row.kind == "protected" and touch.kind == "write"):
        return "denied" if row.path.startswith(FOREIGN) else "refused"
    entry = (tool.name, parameter) in ON_THE_ENTRY
    if row.kind in ("link", "special"):
        return "" if entry else "fail"
    if row.kind == "holder":
        return "fail" if entry else ""
    # A search works, and says that it skipped the file.
    hard = row.kind == "hard" and touch.kind == "read" and tool.name != "search_files"
    return "fail" if hard else ""


def attacks(tool: Tool, world: World) -> Iterator[Attack]:
    """Every row through every parameter of a tool that takes text. Commands have a test of their
    own.
    """
    for parameter, schema in tool.arguments.schema.get("properties", {}).items():
        touch = tool.touches.get(parameter)
        kinds = set(_kinds(schema))
        if not kinds & {"string", "array"} or (touch is not None and touch.kind == "command"):
            continue
        for index, row in enumerate(PATHS):
            if (tool.name, parameter) in EVERY_NINTH and index % 9:
                continue
            path = world.text(row.path)
            for value in [path] if "string" in kinds else _lists(row, path, index):
                for others in _others(
                    tool, parameter, index, every=row.kind in REFUSED and value[0] == "--"
                ):
                    arguments = {**others, parameter: value}
                    yield Attack(
                        row, tool, arguments, must(row, tool, parameter) or _git(row, arguments)
                    )


def _kinds(schema: Any) -> Iterator[str]:
    if "type" in schema:
        yield schema["type"]
    for choice in schema.get("anyOf", ()):
        yield from _kinds(choice)


def _lists(row: Any, path: str, index: int) -> list[list[str]]:
    """Lists of arguments: behind the end of the options, as it stands, as a file of a commit.

    Each takes a process or two unless it is refused, so the forms take turns, and of rows that need
    not be refused every second one is left out.
    """
    forms = [["--", path], [path], [f"HEAD:{path}"]]
    if row.kind in REFUSED:
        return [forms[0], forms[1 + index % 2]] if index % 2 == index // 2 % 2 else forms[:1]
    return [] if index % 2 else [forms[index // 2 % 3]]


def _git(row: Any, arguments: dict[str, Any]) -> str:
    """`git_command` gives back no content of a file that may not be read; `status` gives none at
    all.
    """
    content = arguments.get("subcommand", "status") != "status"
    return "fail" if content and "args" in arguments and row.kind in REFUSED else ""


_OTHERS = {"target": "moved/x", "command": "true"}


def _others(tool: Tool, tried: str, index: int, *, every: bool) -> Iterator[dict[str, Any]]:
    """Harmless values for the other parameters, with everything switched on. Choices take turns, or
    `every` is tried.
    """
    schema = tool.arguments.schema
    values: dict[str, Any] = {}
    choices: dict[str, list[Any]] = {}
    for name, shape in schema.get("properties", {}).items():
        kinds = set(_kinds(shape))
        touch = tool.touches.get(name)
        needed = name in schema.get("required", ())
        if name == tried:
            continue
        if name in _OTHERS:
            values[name] = _OTHERS[name]
        elif "enum" in shape:
            choices[name] = shape["enum"]
        elif touch is not None:
            values[name] = "src/a.txt" if needed else "holder"
        elif "boolean" in kinds:
            values[name] = True
        elif needed:
            # As a pattern it fits every line, also one with a canary.
            values[name] = "." if "string" in kinds else 1
    if not choices:
        yield values
        return
    ((name, options),) = choices.items()
    for option in options if every else [options[index % len(options)]]:
        yield {**values, name: option}


# ---- what every interface is asked

SIX = ("read_file", "write_file", "list_files", "search_files", "run_command", "git_command")


def six(world: World) -> list[Attack]:
    """Every row through six tools. Commands only where their text is enough to refuse them, see
    `test_interfaces`.
    """
    found: list[Attack] = []
    for index, row in enumerate(PATHS):
        path = world.text(row.path)
        found += [
            Attack(row, BY_NAME[name], arguments, must(row, BY_NAME[name], "path"))
            for name, arguments in (
                ("read_file", {"path": path}),
                ("write_file", {"path": path, "content": "x"}),
                ("list_files", {"path": path, "show_hidden": True}),
                ("search_files", {"pattern": ".", "path": path}),
            )
        ]
        if row.kind in REFUSED:
            spelled = row.path.startswith(FOREIGN) or row.path.startswith("/dev/")
            found.append(
                Attack(
                    row,
                    BY_NAME["run_command"],
                    {"command": ["cat", path]},
                    "" if spelled else "refused",
                )
            )
        if row.kind in REFUSED or index % 6 == 0:
            arguments = {"subcommand": "diff", "args": ["--", path]}
            found.append(Attack(row, BY_NAME["git_command"], arguments, _git(row, arguments)))
    return found
