"""Real repositories for the tests of git tools, and a way to call tools as a run does."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import git_calls
from linked_repositories import git

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.engine.dispatcher import Dispatcher, PreparedCall
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.toolkits.git.tools import git_tools
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool


class World:
    """A workspace with a repository, and calls through the whole pipeline."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools: tuple[Tool, ...] = git_tools(enabled_tools=["all"])
        self.resources: dict[type, object] = {}
        self.names: ProtectedNames = DEFAULT_NAMES
        self.call_id = "c1"
        self.session = ""

    def git(self, *arguments: str, check: bool = True) -> str:
        return git(self.root, *arguments, check=check)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, message: str, **files: str) -> str:
        """A commit by plain git. `__` in a name stands for a slash, `_` at its beginning for a
        dot.
        """
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "-Af")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def ask(self, name: str, **arguments: Any) -> ToolResult:
        return git_calls.run(self.answer(name, **arguments))

    async def answer(self, name: str, **arguments: Any) -> ToolResult:
        workspace = Workspace(self.root, names=self.names)
        gate = PermissionGate(mode="bypassPermissions", root=self.root.resolve(), names=self.names)
        dispatcher = Dispatcher(Catalog(self.tools), gate)
        prepared = dispatcher.evaluate(ToolCall(self.call_id, name, json.dumps(arguments)))
        context = git_calls.make_context(workspace, self.call_id, self.resources, self.session)
        result = await dispatcher.execute(prepared, context)
        assert not isinstance(result, PreparedCall)
        return result

    def do(self, name: str, **arguments: Any) -> dict[str, Any]:
        """A call that has to work; its value."""
        result = self.ask(name, **arguments)
        assert result.success, result.error_message
        assert isinstance(result.data, dict)
        return result.data

    def refused(self, name: str, **arguments: Any) -> tuple[ErrorType, str]:
        """A call that must not work; why it did not."""
        result = self.ask(name, **arguments)
        assert not result.success, result.data
        return result.error_type, result.error_message or ""

    def state(self) -> dict[str, bytes]:
        """All files of the workspace, `.git` included, but for the time of the index."""
        return {
            str(p.relative_to(self.root)): p.read_bytes()
            for p in self.root.rglob("*")
            if p.is_file()
        }


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three commits on main, made once."""
    root = tmp_path_factory.mktemp("template") / "work"
    root.mkdir()
    git(root, "init", "-q")
    for number, text in enumerate(("one\n", "one\ntwo\n", "one\ntwo\nthree\n"), 1):
        (root / "a.txt").write_text(text)
        (root / "b.txt").write_text("b\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"commit {number}")
    return root


@pytest.fixture(autouse=True)
def sessions() -> Iterator[None]:
    yield
    git_calls.close_sessions()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's home, with their git settings."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Person Example\n\temail = person@example.org\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture(scope="session")
def world_class() -> type[World]:
    """For tests that make workspaces of their own."""
    return World


@pytest.fixture
def world(tmp_path: Path, template: Path, home: Path) -> World:
    root = tmp_path / "work"
    shutil.copytree(template, root)
    return World(root)
