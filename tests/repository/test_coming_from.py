"""Every name in the tables of `docs/from/` exists: what a system is replaced by, and, where a row
says "the same", what both have.

A name is looked up by its form. A command line, an option, a setting or a slash command is checked
as on every page (`test_pages_named.py`). A Python expression is checked part by part: public names,
their attributes and their parameters. Any other word must be defined in the sources: a function, a
parameter, a field, or a text such as the name of a tool.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from source import ROOT, modules
from test_documents import FENCE
from test_pages_named import check_inline

import ferrule
from ferrule.cli.chat.slash_commands import COMMANDS
from ferrule.core.calls import ToolResult
from ferrule.engine.session import Session
from ferrule.models.registry import list_providers
from ferrule.storage.settings.table import ALIASES, BY_KEY, MODEL_SETTINGS

PAGES = sorted((ROOT / "docs/from").glob("*.md"))
ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)
CELL = re.compile(r"(?<!\\)\|")
NAME = re.compile(r"`([^`]+)`")
SAME = re.compile(r"(?:the same|understood)\b")
WORD = re.compile(r"[A-Za-z_]\w*")
OBJECTS: dict[str, tuple[Any, ...]] = {
    "Agent": (ferrule.Agent,),
    "agent": (ferrule.Agent,),
    "session": (Session,),
    "run": (ferrule.RunResult,),
    "result": (ferrule.RunResult, ToolResult),
    "context": (ferrule.Context,),
}
"""What the pages call an object -> its possible types."""
FREE = {
    *("model", "tools", "system", "task", "text", "id", "type", "message", "name", "description"),
    *("parameters", "handler", "specs", "one", "instructions", "event", "deps", "history", "code"),
    *("Invoice", "Deps", "SubAgent"),
}
"""Names of the examples themselves."""
FOREIGN = {
    "claude-code.md: mcp__github": "a rule's form: the name of a server",
    "claude-code.md: mcp__github__get_issue": "a rule's form: the names of a server and a tool",
    "harnesses.md: server__tool": "the form of names of tools from servers",
    "claude-code.md: 3": "the key that a person presses",
    "claude-code.md: !": "the beginning of a line",
}
"""Texts in tables that name nothing of ours."""


@cache
def defined() -> frozenset[str]:
    """Names that the sources define: functions, classes, parameters, fields, and words in texts."""
    found: set[str] = set()
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update((node.value, *WORD.findall(node.value[:80])))
    return frozenset(found)


def rows(text: str) -> Iterator[list[str]]:
    """The rows of all tables of a page, without heads."""
    for match in ROW.finditer(FENCE.sub("", text)):
        cells = [cell.strip().replace("\\|", "|") for cell in CELL.split(match[1])]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            yield cells


def names(text: str) -> Iterator[str]:
    """What a page's tables name that must exist here."""
    for cells in rows(text):
        if len(cells) < 2:
            continue
        here = [name for cell in cells[1:2] for name in NAME.findall(cell)]
        if SAME.match(cells[1]):
            here += NAME.findall(cells[0])
        yield from here


def check(name: str) -> str:
    """Why there is no such thing; "" if there is."""
    name = name.strip()
    for problem in check_inline(name):
        return problem
    if name in FOREIGN or name.startswith(("ferrule ", "-", "cat ", "make ")):
        return ""
    if name.startswith("/"):
        return "" if name[1:] in COMMANDS else f"no slash command `{name}`"
    if re.fullmatch(r"[a-z-]+:(?:[a-z0-9.-]+)?", name):
        return "" if name.partition(":")[0] in list_providers() else f"no provider `{name}`"
    if is_setting(name) or is_file(name):
        return ""
    if name.startswith("ferrule."):
        return ""
    try:
        tree = ast.parse(re.sub(r"^(?:async )?for (\w+) in (.+)$", r"\2", name.replace("…", "...")))
    except SyntaxError:
        lost = [word for word in WORD.findall(name) if word not in defined() | FREE]
        return f"`{lost[0]}` is not in the sources" if lost else ""
    return next(check_tree(tree), "")


def is_setting(name: str) -> bool:
    key = name.partition(":")[0].strip()
    per_model = {f"models.NAME.{setting.key}" for setting in MODEL_SETTINGS}
    known = {*BY_KEY, *ALIASES, *per_model}
    return key in known or any(one.startswith(f"{key}.") for one in known if "." in key)


def is_file(name: str) -> bool:
    """Whether it is a file of ours, or one of another program that the sources name."""
    if name.startswith(".ferrule") or (ROOT / "examples" / name).exists():
        return True
    if (ROOT / "examples/from_pydantic_ai" / name).exists():
        return True
    return "." in name and name in defined()


def check_tree(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owners = OBJECTS.get(node.value.id, ())
            if owners and not any(has_member(one, node.attr) for one in owners):
                yield f"`{node.value.id}` has no `{node.attr}`"
            elif not owners and node.attr not in defined():
                yield f"`{node.attr}` is not in the sources"
        elif isinstance(node, ast.Name) and node.id not in OBJECTS:
            if not hasattr(builtins, node.id) and node.id not in defined() | FREE:
                yield f"`{node.id}` is not in the sources"
        elif isinstance(node, ast.Assign):
            # `fallback=True`, written alone, is a keyword of something public.
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id not in keywords() | set(OBJECTS):
                    yield f"no public name has the parameter `{target.id}`"


def has_member(owner: Any, name: str) -> bool:
    if hasattr(owner, name) or name in getattr(owner, "__annotations__", {}):
        return True
    return f"self.{name} = " in inspect.getsource(owner)


@cache
def keywords() -> frozenset[str]:
    """The parameters of what the pages' tables are about: agents, runs, sessions and tools."""
    callables = (
        ferrule.Agent,
        ferrule.Agent.run,
        ferrule.Agent.session,
        Session.run,
        ferrule.define_tool,
        importlib.import_module("ferrule.tools.decorator").tool_from_function,
    )
    found: set[str] = set()
    for one in callables:
        found |= set(inspect.signature(one).parameters)
    # `tool` takes these by name, too (its overloads).
    found |= {"cost", "latency", "side_effect", "risk", "idempotent"}
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_in_the_tables_exists(page: Any) -> None:
    text = page.read_text(encoding="utf-8")
    found = list(names(text))
    assert found or not list(rows(text)), "a page with tables names something"
    wrong = [
        f"`{name}`: {problem}"
        for name in found
        if f"{page.name}: {name}" not in FOREIGN and (problem := check(name))
    ]
    assert not wrong, "\n".join(wrong)


WRONG = {
    "| `GetToolSchemas()` | `Agent.specs()` |": "`Agent` has no `specs`",
    "| `native_tool_fallback` | `fallback=True` |": "no public name has the parameter `fallback`",
    "| `no_such_tool_xyz` | the same |": "`no_such_tool_xyz` is not in the sources",
    "| x | `/nothing` |": "no slash command `/nothing`",
    "| x | `nobody:` |": "no provider `nobody:`",
    "| x | `ferrule.toolkits.nowhere` |": "there is no `ferrule.toolkits.nowhere`",
    "| x | `Limits(rounds=1)` |": "`Limits` has no parameter `rounds`",
}


@pytest.mark.parametrize("row", WRONG)
def test_a_name_that_there_is_not_is_found(row: str) -> None:
    (name,) = names(row)
    assert check(name) == WRONG[row]


def test_names_that_are_nothing_of_ours_are_really_there() -> None:
    shown = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(f"`{name.rpartition(': ')[2]}`" in shown for name in FOREIGN)
