"""`tools.profile`: which of the shipped tools the model gets, and who else can use the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ErrorType
from ferrule.permissions.approvals import Approver
from ferrule.runtime.assemble import Assembly, assemble
from ferrule.testing import RecordingApprover

CODING = [
    "add_task",
    "artifact_fetch",
    "artifact_read",
    "edit_file",
    "list_files",
    "list_tasks",
    "read_file",
    "run_command",
    "search_files",
    "update_task",
    "write_file",
]
"""What reads, lists, searches, edits, writes, runs commands, keeps tasks and reads large results."""
DELEGATION = ["delegate", "task_await", "task_cancel", "task_poll"]
"""What a run adds if there are agents to delegate to."""
ALL = [
    *CODING,
    "create_dir",
    "delete_path",
    "file_outline",
    "file_tree",
    "get_current_time",
    "get_working_directory",
    "git_command",
    "insert_lines",
    "move_path",
    "read_file_tail",
    "replace_lines",
]
AGENT = "---\nname: mover\ndescription: Moves files.\ntools: [move_path]\n---\nMove files.\n"


@pytest.fixture
def assembled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Assembly]:
    """An assembly for a folder of its own, from options as the command line gives them."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"FERRULE_{name}", str(tmp_path / name.lower()))
    (tmp_path / "work").mkdir()

    def make(approver: Approver | None = None, **options: Any) -> Assembly:
        given = {
            "workspace": str(tmp_path / "work"),
            "model": f"scripted:{_write_script(tmp_path)}",
            "journal__path": str(tmp_path / "journal.db"),
            **options,
        }
        return assemble(given, notice=lambda _: None, approver=approver)

    return make


def _write_script(folder: Path) -> Path:
    script = folder / "model.yaml"
    arguments = {"source": "a.txt", "target": "b.txt"}
    steps = [{"call": [{"tool": "move_path", "arguments": arguments}]}, {"say": "So be it."}]
    script.write_text(json.dumps(steps))
    return script


def _offered(assembly: Assembly) -> list[str]:
    session = assembly.open_session(None)
    return sorted(tool.full_name for tool in session.catalog if session.is_usable(tool))


@pytest.mark.proves("tools.profile")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, CODING),
        ({"tools__profile": "coding"}, CODING),
        ({"tools__profile": "all"}, ALL),
        ({"model": "local:smollm2"}, ALL),
        ({"model": "local:smollm2", "tools__profile": "coding"}, CODING),
        ({"tools__required": ("move_path|delete_path",)}, [*CODING, "delete_path", "move_path"]),
        ({"tools__allowed": ("read_file", "move_path")}, ["move_path", "read_file"]),
    ],
    ids=["default", "coding", "all", "embedded", "embedded-coding", "required", "allowed"],
)
def test_the_model_gets_one_tool_per_job_unless_more_are_asked_for(
    assembled: Callable[..., Assembly], options: dict[str, Any], names: list[str]
) -> None:
    assert _offered(assembled(**options)) == sorted(names)


@pytest.mark.proves("tools.shapes")
@pytest.mark.parametrize(
    ("options", "shaped"),
    [
        ({"model": "openai:gpt-5.2"}, True),
        ({"model": "openrouter:openai/gpt-5.2-codex"}, True),
        ({"model": "ollama:llama3.2"}, False),
        ({"model": "openai:my-own"}, False),
        ({"model": "openai:gpt-5.2", "tools__profile": "all"}, False),
        ({"model": "openai:gpt-5.2", "tools__required": ("edit_file",)}, False),
    ],
    ids=["openai", "gateway", "ollama", "another", "all", "named"],
)
def test_a_model_gets_the_shape_of_edits_that_it_was_trained_on(
    assembled: Callable[..., Assembly], options: dict[str, Any], shaped: bool
) -> None:
    offered = _offered(assembled(**options))
    assert ("apply_patch" in offered, "edit_file" not in offered) == (shaped, shaped)


@pytest.mark.proves("tools.shapes")
@pytest.mark.parametrize(
    ("model", "shaped"),
    [
        ("anthropic:claude-sonnet-5", True),
        ("anthropic:claude-opus-4-5-20251101", True),
        ("bedrock:us.anthropic.claude-sonnet-5-5", True),
        ("anthropic:claude-3-7-sonnet-latest", False),
        ("anthropic:minimax-m2", False),
    ],
)
def test_claude_gets_its_shell_and_its_editor(
    assembled: Callable[..., Assembly], model: str, shaped: bool
) -> None:
    offered = _offered(assembled(model=model))
    names = ["add_task", "artifact_fetch", "artifact_read", "bash", "list_tasks", "search_files"]
    if shaped:
        assert offered == [*names, "str_replace_based_edit_tool", "update_task"]
    else:
        assert offered == CODING


@pytest.mark.proves("tools.shapes")
@pytest.mark.parametrize(
    ("model", "has", "lacks"),
    [
        ("openai-responses:gpt-5.2", {"shell", "apply_patch", "read_file"}, {"run_command"}),
        ("openai-responses:gpt-6-codex", {"shell", "apply_patch"}, {"edit_file"}),
        ("openai-responses:codex-mini-latest", {"local_shell", "apply_patch"}, {"shell"}),
        ("openai-responses:gpt-4.1", {"apply_patch", "run_command"}, {"shell", "edit_file"}),
        ("openai:gpt-5.2", {"apply_patch", "run_command"}, {"shell"}),
        ("google:gemini-3-pro", {"replace", "run_shell_command", "glob"}, {"run_command"}),
        ("openrouter:google/gemini-2.5-flash", {"replace", "list_directory"}, {"list_files"}),
        ("ollama:gemma3", {"edit_file"}, {"replace"}),
        ("ollama:qwen3-coder:30b", {"edit", "run_shell_command", "glob"}, {"edit_file"}),
        ("openrouter:qwen/qwen3-coder-plus", {"edit"}, {"read_many_files"}),
        ("ollama:qwen3:0.6b", {"edit_file", "run_command"}, {"edit"}),
    ],
)
def test_newer_models_get_the_types_and_names_of_their_family(
    assembled: Callable[..., Assembly], model: str, has: set[str], lacks: set[str]
) -> None:
    offered = set(_offered(assembled(model=model)))
    assert has <= offered and not lacks & offered


@pytest.mark.proves("tools.shapes")
async def test_a_rule_for_a_tool_means_it_also_where_a_shape_has_its_name(
    assembled: Callable[..., Assembly], tmp_path: Path
) -> None:
    (tmp_path / "work/a.txt").write_text("a")
    rules = ("read_file(a.txt)", "Edit(b.txt)")
    assembly = assembled(model="google:gemini-3-pro", permissions__deny=rules)
    session = assembly.open_session(None)
    read = await session.call("read_file", file_path="a.txt")
    written = await session.call("write_file", file_path="b.txt", content="b")
    assert read.error_type is written.error_type is ErrorType.PERMISSION_DENIED
    assert "read_file(a.txt)" in str(read.error_message)
    await assembly.close(session)
    assembly = assembled(model="google:gemini-3-pro", permissions__allow=("write_file(c.txt)",))
    session = assembly.open_session(None)
    allowed = await session.call("write_file", file_path="c.txt", content="c")
    assert allowed.success, allowed.error_message
    await assembly.close(session)


def test_memory_is_there_where_it_is_switched_on(
    assembled: Callable[..., Assembly], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "memory" not in _offered(assembled())
    monkeypatch.setenv("FERRULE_TOOLS_MEMORY", "state")
    assert "memory" in _offered(assembled())
    assert "memory" in _offered(assembled(model="anthropic:claude-sonnet-5"))


@pytest.mark.proves("tools.shapes")
def test_the_shapes_can_be_set(
    assembled: Callable[..., Assembly], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_TOOLS_SHAPES", "gpt")
    assert "apply_patch" in _offered(assembled())
    monkeypatch.setenv("FERRULE_TOOLS_SHAPES", "own")
    assert "apply_patch" not in _offered(assembled(model="openai:gpt-5.2"))


@pytest.mark.proves("tools.profile")
async def test_what_is_outside_the_profile_is_there_for_people_and_not_for_the_model(
    assembled: Callable[..., Assembly], tmp_path: Path
) -> None:
    (tmp_path / "work/a.txt").write_text("a")
    assembly = assembled(RecordingApprover())
    session = assembly.open_session(None)
    result = await session.run("Call it b.txt.")
    assert [each.error_type for each in result.results] == [ErrorType.NOT_FOUND]
    assert "move_path`; there are" in str(result.results[0].error_message)
    moved = await session.call("move_path", source="a.txt", target="b.txt")
    assert moved.success and (tmp_path / "work/b.txt").read_text() == "a"
    await assembly.close(session)


@pytest.mark.proves("tools.profile")
def test_a_tool_that_an_agent_file_or_a_setting_names_is_offered(
    assembled: Callable[..., Assembly], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = tmp_path / "config/agents"
    agents.mkdir(parents=True)
    (agents / "mover.md").write_text(AGENT)
    monkeypatch.setenv("FERRULE_TOOLS_ALWAYS_LOADED", "git_command")
    assert _offered(assembled()) == sorted([*CODING, *DELEGATION, "git_command", "move_path"])


@pytest.mark.proves("tools.profile-tokens")
@pytest.mark.parametrize(
    "model",
    [
        "scripted:none",
        "openai:gpt-5.2",
        "openai-responses:gpt-5.2",
        "anthropic:claude-sonnet-5",
        "google:gemini-3-pro",
        "ollama:qwen3-coder:30b",
    ],
)
def test_the_default_profile_is_described_in_at_most_3000_tokens(
    assembled: Callable[..., Assembly], tmp_path: Path, model: str
) -> None:
    agents = tmp_path / "config/agents"
    agents.mkdir(parents=True)
    (agents / "helper.md").write_text(AGENT.replace("move_path", "read_file"))
    specs = assembled(model=model).agent.visible_tools.specs()
    assert {*DELEGATION, "artifact_read"} <= {spec.name for spec in specs}
    size = sum(
        len(json.dumps([spec.name, spec.description]).encode()) + len(spec.schema.encode())
        for spec in specs
    )
    # Three and a half bytes a token, as the context window counts.
    assert size / 3.5 <= 3000
