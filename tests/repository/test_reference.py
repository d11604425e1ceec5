"""The reference has every public name with its parameters, fields and defaults, and one line in its
index; pages name only functions and modules that a reader can import.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from source import ROOT, modules
from test_documents import FENCE, PAGES, Page, anchors, load_maker
from test_pages_named import INLINE, KEYS, MADE, THEIRS, is_in_sources
from test_public_names import EXPLAIN, PUBLIC

from ferrule.storage.settings.table import ALIASES, MODEL_SETTINGS, PROVIDER_SETTINGS, SETTINGS

INDEX = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
REFERENCE = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs/reference").glob("*.md"))
}
LINE = re.compile(r"^- \[`(\w+)`\]\(reference/([a-z]+\.md)#([\w-]+)\): \S", re.MULTILINE)
DOTTED = re.compile(r"(?<![\w./-])ferrule(?:\.[a-z_]\w*)+(?![\w/-])")
FILES = (".yaml", ".yml", ".db", ".md", ".service", ".toml", ".example")
OTHERS = {
    "ferrule.approval": "an event of AG-UI",
    "ferrule.notice": "an event of AG-UI",
    "ferrule.progress": "an event of AG-UI",
    "ferrule.cdx.json": "a file of a release",
    "ferrule.engines": "a group of entry points",
    "ferrule.receipt.v1": "a format",
    "ferrule.testing.artifact_conformance": "tests for a store of one's own, run as a module",
    "ferrule.testing.journal_conformance": "tests for a journal of one's own, run as a module",
    "ferrule.testing.model_client_conformance": "tests for a client of one's own",
    "ferrule.testing.pytest_plugin": "a plugin that pytest loads by this name",
    "ferrule.toolkits.remote_mcp": "a module that a setting names",
    "task_cancel": "a function of scripts",
    **dict.fromkeys(
        (
            "ferrule.adapters",
            "ferrule.core.machine",
            "ferrule.engine.event_bus.journal_events",
            "ferrule.models.registry",
            "ferrule.storage.artifacts.objects",
            "ferrule.storage.artifacts.postgres",
            "ferrule.storage.journal.postgres",
            "ferrule.toolkits.git.tools",
            "ferrule.toolkits.stdlib.ocr",
        ),
        "a module inside, which a page names beside what it is for; this list gets shorter only",
    ),
}
"""Names that are no public module or function, and what they are."""


def section(module: str) -> str:
    """Return the part of the reference about a module; for `ferrule` all pages."""
    if module == "ferrule":
        return "\n".join(REFERENCE.values())
    page = next(text for text in REFERENCE.values() if f"\n## `{module}`\n" in text)
    return re.split(r"^## ", page.partition(f"\n## `{module}`\n")[2], flags=re.MULTILINE)[0]


def entry(module: str, name: str) -> str:
    """The heading of a name and what stands below it, up to the next one."""
    title = rf"(?:{module.rpartition('.')[2]}\.)?{name}"
    match = re.search(rf"^### `{title}`\n(.*?)(?=^#|\Z)", section(module), re.M | re.S)
    return "" if match is None else match[1]


def find_missing(module: str) -> list[str]:
    """What the reference does not say of a module."""
    wrong: list[str] = []
    library = import_module("ferrule")
    for name in import_module(module).__all__:
        value: Any = getattr(import_module(module), name)
        if name == "__version__":
            continue
        if not re.search(rf"`(?:\w+\.)?{name}`", section(module)):
            wrong.append(f"{name}: not there")
        if not inspect.isfunction(value) and (not inspect.isclass(value) or is_enum(value)):
            continue
        if module != "ferrule" and name in library.__all__ and getattr(library, name) is value:
            continue
        wrong += [f"{name}: {one}" for one in find_untold(entry(module, name), value)]
    return wrong


def is_enum(value: type) -> bool:
    return issubclass(value, Enum)


def find_untold(text: str, value: Any) -> list[str]:
    if not text:
        return ["has no entry"]
    if is_dataclass(value):
        shown = [one for one in fields(value) if not one.name.startswith("_")]
        plain = {one.name: one.default for one in shown}
        return [
            f"{one}{'' if default is MISSING else f' = {default!r}'}"
            for one, default in plain.items()
            if not re.search(rf"\b{one}: .*{'' if default is MISSING else ' = '}", text)
        ]
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return []
    return [one for one in parameters if one not in ("self", "cls") and one not in text]


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_each_name_with_its_parameters_fields_and_defaults(module: str) -> None:
    assert find_missing(module) == []


def test_the_index_has_one_line_for_each_name_and_it_leads_to_an_anchor() -> None:
    listed = LINE.findall(INDEX)
    assert len(listed) == len(set(listed))
    library = import_module("ferrule")
    for module in PUBLIC:
        for name in import_module(module).__all__:
            own = getattr(import_module(module), name)
            mark = name in ("COMMAND", "READS", "URL", "WRITES", "__version__")
            there = module == "ferrule" or getattr(library, name, None) is not own
            assert mark or not there or any(one == name for one, _, _ in listed), name
    wrong = [each for each in listed if each[2] not in anchors(ROOT / "docs/reference" / each[1])]
    assert wrong == []


def uses() -> set[str]:
    """Methods that the Python and the inline code of pages and examples use."""
    found: set[str] = set()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if page.parent.name != "reference" and page.name not in EXPLAIN | {"reference.md"}:
            found |= set(re.findall(r"`(\w+\.\w+)\b", page.read_text(encoding="utf-8")))
    return found


def test_a_method_that_the_reference_leaves_out_exists_and_no_page_names_it() -> None:
    inside = load_maker("docs/made_reference.py").INSIDE
    named = uses()
    for owner, methods in inside.items():
        modules_of = [import_module(one) for one in PUBLIC]
        classes = [getattr(one, owner) for one in modules_of if owner in one.__all__]
        assert classes, owner
        for method in methods.split():
            assert any(hasattr(one, method) for one in classes), f"{owner}.{method}"
            assert f"{owner}.{method}" not in named
            assert f"`{owner}.{method}`" not in section("ferrule")


def test_a_default_of_a_value_class_stands_in_the_reference() -> None:
    assert "max_calls_per_turn: int = 15" in entry("ferrule", "Limits")
    text = entry("ferrule", "Limits").replace("warn_at: float = 0.8", "warn_at: float")
    assert find_untold(text, import_module("ferrule").Limits) == ["warn_at = 0.8"]
    assert find_untold("", import_module("ferrule").Limits) == ["has no entry"]


@cache
def inner_functions() -> frozenset[str]:
    """Functions of ours that nobody can import, and whose names mean nothing else."""
    public = {name for module in PUBLIC for name in import_module(module).__all__}
    functions: set[str] = set()
    other: set[str] = set()
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                (other if node.decorator_list else functions).add(node.name)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.arg):
                other.add(node.arg)
            elif isinstance(node, ast.Attribute):
                other.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                other.add(node.value)
            elif isinstance(node, ast.ClassDef):
                other |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        if module.path.parent.name == "builtins":
            other |= {one.name for one in module.tree.body if isinstance(one, ast.FunctionDef)}
    return frozenset(name for name in functions - public - other if "_" in name.strip("_"))


def find_unreachable(text: str) -> list[str]:
    """Functions and modules that a page names and that cannot be imported."""
    wrong: list[str] = []
    for code in INLINE.findall(text):
        for name in DOTTED.findall(code):
            if name in OTHERS or name.endswith(FILES) or is_written(name) or resolves(name):
                continue
            wrong.append(name)
        bare = re.fullmatch(r"([a-z]\w*)(?:\(.*\))?", code)
        if bare and bare[1] in inner_functions() and bare[1] not in OTHERS:
            wrong.append(bare[1])
    return wrong


def is_written(name: str) -> bool:
    """Whether the sources have it as a text: the name of a metric, a span or an event."""
    if name.startswith("ferrule.jobs."):  # metrics, whose names are put together
        return True
    return any(f'"{name}"' in module.text for module in modules())


def resolves(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        module = ".".join(parts[:cut])
        if module in PUBLIC:
            found: Any = import_module(module)
            if cut < len(parts) and parts[cut] not in found.__all__:
                return False
            for part in parts[cut:]:
                found = getattr(found, part, None)
            return found is not None
    return False


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        if page.name not in EXPLAIN | {"reference.md"} and page.parent.name != "reference"
    ],
    ids=lambda page: f"{page.parent.name}/{page.name}",
)
def test_functions_and_modules_that_a_page_names_can_be_imported(page: Any) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    if page.parent.name == "from":
        text = THEIRS.sub("|", text)
    assert find_unreachable(text) == []


@pytest.mark.parametrize("name", ["make_session_id", "ferrule.nowhere", "ferrule.core.limits"])
def test_what_cannot_be_imported_is_found(name: str) -> None:
    assert find_unreachable(f"Call `{name}`.") == [name]


VARIABLES = {"agent", "document", "message_history", "options", "run", "servers", "session"}
"""What programs of pages call their values, beside modules of that name."""


@cache
def members() -> dict[str, frozenset[str]]:
    """The names in our modules, by the last parts of the modules' names."""
    found: dict[str, set[str]] = {}
    for module in modules():
        names = found.setdefault(module.name.rpartition(".")[2], set())
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name):
                names.add(node.id)
    return {name: frozenset(held) for name, held in found.items()}


def find_unknown_members(text: str) -> list[str]:
    """Functions that a page writes behind a module's name, and that the module does not have."""
    sections = {key.partition(".")[0] for key in KEYS} | {"ferrule"} | VARIABLES
    wrong: list[str] = []
    for code in INLINE.findall(text):
        match = re.fullmatch(r"([a-z_]+)\.([a-z_]\w*)(?:\(.*\))?", code)
        if match is None or match[1] in sections or match[1] not in members():
            continue
        name = f"{match[1]}.{match[2]}"
        known = match[2] in members()[match[1]] or match[2] == "py"
        if not known and not is_in_sources(name) and not is_text(name):
            wrong.append(name)
    return wrong


def is_text(name: str) -> bool:
    return any(name in module.text for module in modules())


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.shown not in MADE],
    ids=lambda page: page.shown,
)
def test_a_function_behind_the_name_of_a_module_is_there(page: Page) -> None:
    text = FENCE.sub("", page.path.read_text(encoding="utf-8"))
    if page.path.parent.name == "from":
        text = THEIRS.sub("|", text)
    assert find_unknown_members(text) == []


def test_a_function_that_a_module_does_not_have_is_found() -> None:
    assert find_unknown_members("Defer a set with `toolset.deferred`.") == ["toolset.deferred"]
    assert find_unknown_members("A set: `toolset.mark_deferred(tools)`.") == []


def test_every_setting_is_in_the_reference_with_its_words() -> None:
    text = load_maker("docs/made_settings.py").format_reference()
    for setting in (*SETTINGS, *MODEL_SETTINGS, *PROVIDER_SETTINGS):
        assert (
            f"| `{setting.key}` |" in text
            and setting.short in text
            and setting.short.endswith((".", "`."))
        )
    assert all(f"| `{old}` | `{new}` |" in text for old, new in ALIASES.items())


def test_the_table_of_keys_has_those_of_an_installed_plugin_alone() -> None:
    table = load_maker("docs/made_plugins.py").format_key_table()
    assert "| `needs.restricts` | true or false |" in table and "| `seconds` |" in table
    assert "`when" not in table and "`object`" not in table
