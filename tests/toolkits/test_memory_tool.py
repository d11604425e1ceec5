"""`memory`: six commands below `/memories`, and nothing outside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import MemoryTool20250818Param
from anthropic.types.beta import BetaMemoryTool20250818Command
from pydantic import TypeAdapter

from ferrule import Agent, ConfigError, Permissions, Scripted
from ferrule.core.calls import ErrorType
from ferrule.models.anthropic.client import _EncodedPrefix
from ferrule.models.client import ModelOptions
from ferrule.plugins import Memory
from ferrule.toolkits.model_family_tools.memory import make_memory_tool


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "kept/notes"
    made.mkdir(parents=True)
    (tmp_path / "kept/outside.txt").write_text("outside")
    return made


def make_agent(folder: Path, **permissions: Any) -> Agent[Any, Any]:
    return Agent(
        Scripted([]),
        [make_memory_tool(folder)],
        permissions=Permissions(**(permissions or {"allow": ["memory"]})),
    )


async def test_notes_are_kept_in_a_folder_of_their_own(folder: Path) -> None:
    session = make_agent(folder).session()
    steps: list[tuple[dict[str, Any], str]] = [
        ({"command": "view", "path": "/memories"}, "[no files yet]"),
        ({"command": "create", "path": "/memories/a/b.md", "file_text": "one\ntwo\n"}, "created"),
        ({"command": "view", "path": "/memories"}, "/memories/a/b.md (8 B)"),
        ({"command": "view", "path": "/memories/a/b.md"}, "1: one\n2: two"),
        ({"command": "view", "path": "/memories/a/b.md", "view_range": [2, -1]}, "2: two"),
        (
            {
                "command": "str_replace",
                "path": "/memories/a/b.md",
                "old_str": "two",
                "new_str": "2",
            },
            "edited",
        ),
        (
            {"command": "insert", "path": "/memories/a/b.md", "insert_line": 0, "insert_text": "0"},
            "after line 0",
        ),
        (
            {"command": "rename", "old_path": "/memories/a/b.md", "new_path": "/memories/c.md"},
            "is `/memories/c.md` now",
        ),
        ({"command": "view", "path": "/memories/c.md"}, "1: 0\n2: one\n3: 2"),
        ({"command": "delete", "path": "/memories/a"}, "deleted"),
    ]
    for arguments, said in steps:
        TypeAdapter(BetaMemoryTool20250818Command).validate_python(arguments)
        result = await session.call("memory", **arguments)
        assert result.success and said in str(result.data), (arguments, result)
    assert [path.name for path in folder.rglob("*")] == ["c.md"]
    assert (folder / "c.md").read_text() == "0\none\n2\n"
    await session.close()


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [("a\nb", 2, "a\nb\nnew\n"), ("a\nb", 1, "a\nnew\nb"), ("a\nb\n", 2, "a\nb\nnew\n")],
)
async def test_what_is_inserted_is_a_line_of_its_own(
    folder: Path, before: str, line: int, after: str
) -> None:
    (folder / "a").write_text(before)
    session = make_agent(folder).session()
    result = await session.call(
        "memory", command="insert", path="/memories/a", insert_line=line, insert_text="new"
    )
    assert result.success and (folder / "a").read_text() == after
    await session.close()


@pytest.mark.parametrize(
    "path",
    [
        "/memories/../outside.txt",
        "/memories/a/../../outside.txt",
        "/memories/./a",
        "/memories//etc/passwd",
        "/memories/a//outside.txt",
        "/memoriesx/a",
        "/etc/passwd",
        "../outside.txt",
        "outside.txt",
        "memories/a",
        "",
        "/",
        "/memories/link",
        "/memories/out/outside.txt",
        "/memories/.env",
        "/memories/id_rsa",
        "/memories/a\0b",
        "/memories/~/../../outside.txt",
    ],
)
async def test_nothing_outside_is_read_or_written_under_any_spelling(
    folder: Path, path: str
) -> None:
    (folder / "link").symlink_to(folder.parent / "outside.txt")
    (folder / "out").symlink_to(folder.parent)
    (folder / ".env").write_text("KEY")
    (folder / "id_rsa").write_text("KEY")
    before = sorted(os.walk(folder.parent))
    session = make_agent(folder).session()
    for arguments in (
        {"command": "view", "path": path},
        {"command": "create", "path": path, "file_text": "x"},
        {"command": "str_replace", "path": path, "old_str": "outside", "new_str": "x"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "x"},
        {"command": "rename", "old_path": path, "new_path": "/memories/taken"},
        {"command": "rename", "old_path": "/memories/taken", "new_path": path},
    ):
        result = await session.call("memory", **arguments)
        assert not result.success, (arguments, result)
        assert "outside" not in str(result.data)
    assert sorted(os.walk(folder.parent)) == before
    assert (folder.parent / "outside.txt").read_text() == "outside"
    assert (folder / ".env").read_text() == "KEY"
    await session.close()


async def test_mistakes_are_named_and_change_nothing(folder: Path) -> None:
    session = make_agent(folder).session()
    (folder / "a").write_text("one\none\n")
    for arguments, said in (
        ({"command": "view"}, "`view` needs `path`"),
        ({"command": "create", "path": "/memories/b"}, "`create` needs `file_text`"),
        ({"command": "create", "path": "/memories/a", "file_text": ""}, "exists"),
        ({"command": "rename", "old_path": "/memories/a"}, "`rename` needs `new_path`"),
        ({"command": "str_replace", "path": "/memories/a", "old_str": "one"}, "2"),
        ({"command": "insert", "path": "/memories/a", "insert_line": 9, "insert_text": ""}, "2 l"),
        ({"command": "delete", "path": "/memories"}, "itself stays"),
        ({"command": "view", "path": "/memories/a", "view_range": [0]}, "`view_range`"),
    ):
        result = await session.call("memory", **arguments)
        assert not result.success and said in str(result.error_message), (arguments, result)
    assert (folder / "a").read_text() == "one\none\n"
    for number in range(1000):
        (folder / f"{number}").touch()
    full = await session.call("memory", command="create", path="/memories/b", file_text="")
    assert full.error_type is ErrorType.LIMIT
    await session.close()


async def test_the_first_use_is_a_question(folder: Path) -> None:
    session = make_agent(folder, allow=[]).session()
    refused = await session.call("memory", command="view", path="/memories")
    assert refused.error_type is ErrorType.PERMISSION_DENIED
    await session.close()


def test_the_api_gets_its_own_type(folder: Path) -> None:
    specs = make_agent(folder).visible_tools.specs()
    prefix = _EncodedPrefix("", specs, ModelOptions(), "", typed=True)
    sent = json.loads(f"{{{prefix.tools.decode()[1:]}}}")["tools"]
    assert sent == [{"type": "memory_20250818", "name": "memory"}]
    TypeAdapter(MemoryTool20250818Param).validate_python(sent[0])


def test_the_setting_names_a_folder_outside_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()

    def make(folder: str) -> tuple[str, ...]:
        agent = Agent(Scripted([]), workspace=work, plugins=[Memory(folder)])
        return tuple(agent.catalog.names())

    assert make("") == make("no") == ()
    assert make("state") == ("memory",) and len(list((tmp_path / "state/memory").iterdir())) == 1
    make(str(tmp_path / "notes"))
    assert (tmp_path / "notes").is_dir()
    (tmp_path / "in").symlink_to(work)
    for wrong in ("notes", str(work / "notes"), str(tmp_path), str(tmp_path / "in")):
        with pytest.raises(ConfigError, match=r"tools\.memory"):
            make(wrong)
