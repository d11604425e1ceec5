"""What programs import: `ferrule` and a documented module for each area. The pages import nothing else."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest
from source import ROOT, modules
from test_documents import FENCE
from test_pages_named import INLINE, THEIRS

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


OF_AN_AGENT = (
    {"Bus", "Extensions", "Sandbox", "Workspace"}
    | {"Anthropic", "Bedrock", "Google", "Ollama", "OpenAIChat", "OpenAIResponses"}
    | {"FileArtifactStore", "ObjectArtifactStore", "PostgresArtifactStore"}
)
"""What an agent or an assembly closes with itself."""


def is_protocol(value: type) -> bool:
    return bool(getattr(value, "_is_protocol", False))


def test_what_a_program_opens_and_closes_is_a_context_manager() -> None:
    found = {
        each: getattr(import_module(module), each)
        for module in PUBLIC
        for each in import_module(module).__all__
    }
    closed = {
        name: value
        for name, value in found.items()
        if isinstance(value, type) and hasattr(value, "close") and not is_protocol(value)
    }
    assert {"Agent", "Session", "Jobs", "A2aServer", "SqliteJournal"} <= set(closed)
    wrong = [
        name
        for name, value in closed.items()
        if name not in OF_AN_AGENT
        and not (hasattr(value, "__enter__") or hasattr(value, "__aenter__"))
    ]
    assert wrong == []


EXPLAIN = {"architecture.md", "decisions.md", "field-reports.md", "promises.md", "security.md"}
"""Pages about the inside of Ferrule, or made of it."""
OTHERS = {
    "adapters.md: Command": "LangGraph",
    "adapters.md: ToolNode": "LangGraph",
    "built-in-tools.md: Model": "a program whose code is indexed",
    "file-tools.md: Cargo": "a file",
    "web.md: FastAPI": "FastAPI",
    "permissions.md: Task": "Claude Code",
    "permissions.md: Stop": "Claude Code",
    **dict.fromkeys(
        (f"{page}.md: Origin" for page in ("console", "deploy", "operators", "web")), "HTTP"
    ),
}
"""Names that pages have of other programs or protocols, and whose they are."""
RULES = {"Read", "Edit", "Write", "Delete", "Bash", "WebFetch", "Agent"}
"""What permission rules are called."""
CLASS = re.compile(r"(?<![\w.\"'/$-])([A-Z][a-z]+\w*)(?=([.(])|$)")


def classes() -> set[str]:
    """The classes and type aliases that the sources define."""
    found: set[str] = set()
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                found.add(node.name)
    return found


def test_a_class_that_a_page_names_is_public() -> None:
    """A reader who finds a class in a sentence finds it in the reference, with its module."""
    public = {name for module in PUBLIC for name in import_module(module).__all__}
    own = classes() - public
    wrong: set[str] = set()
    count = 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if page.name in EXPLAIN | {"reference.md"} or page.parent.name == "reference":
            continue
        text = page.read_text(encoding="utf-8")
        where = page.relative_to(ROOT / "docs") if "docs" in page.parts else page.name
        shown = FENCE.sub("", text)
        theirs = page.parent.name == "from"
        shown = THEIRS.sub("", shown) if theirs else shown
        known = public | RULES | set(dir(builtins)) | set(re.findall(r"class (\w+)", text))
        for code in INLINE.findall(shown):
            for name, used in CLASS.findall(code):
                count += 1
                # A name alone may be a word; one that is called or has a member is a class. Pages
                # about other systems name theirs.
                if name not in known and (name in own or (used and not theirs)):
                    wrong.add(f"{where}: {name}")
    assert count > 100
    assert wrong - OTHERS.keys() == set()
    assert OTHERS.keys() <= wrong
