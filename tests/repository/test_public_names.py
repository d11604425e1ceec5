"""What programs import: `ferrule` and a documented module for each area. The pages import nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
from source import ROOT

PUBLIC = (
    "ferrule",
    "ferrule.adapters.anthropic",
    "ferrule.adapters.langchain",
    "ferrule.adapters.llm",
    "ferrule.adapters.openai",
    "ferrule.adapters.openai_agents",
    "ferrule.adapters.pydantic_ai",
    "ferrule.command",
    "ferrule.connectors",
    "ferrule.evaluation",
    "ferrule.events",
    "ferrule.extensions",
    "ferrule.hooks",
    "ferrule.jobs",
    "ferrule.models",
    "ferrule.notebook",
    "ferrule.permissions",
    "ferrule.plugins",
    "ferrule.replay",
    "ferrule.sandbox",
    "ferrule.servers",
    "ferrule.storage",
    "ferrule.testing",
    "ferrule.toolkits",
    "ferrule.tools",
    "ferrule.web",
)
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs() -> Iterator[tuple[str, str]]:
    """The Python of the pages and the examples, and where it stands."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for block in BLOCK.finditer(page.read_text()):
            yield str(page.relative_to(ROOT)), block[1]
    for example in sorted((ROOT / "examples").glob("*.py")):
        yield str(example.relative_to(ROOT)), example.read_text()


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Modules and names of ours that a program imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ferrule":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names if one.name.startswith("ferrule"))


def test_pages_and_examples_import_public_names_only() -> None:
    found = [(where, *each) for where, code in programs() for each in imported(code)]
    assert len(found) > 100
    wrong = [
        f"{where}: from {module} import {name}"
        for where, module, name in found
        if module not in PUBLIC or (name and name not in import_module(module).__all__)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_the_module_lists_it(name: str) -> None:
    module: ModuleType = import_module(name)
    assert module.__doc__ and len(set(module.__all__)) == len(module.__all__)
    missing = [each for each in module.__all__ if getattr(module, each, None) is None]
    assert missing == [] and set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_the_package_itself_offers_about_sixty_names() -> None:
    assert 50 <= len(import_module("ferrule").__all__) <= 80
