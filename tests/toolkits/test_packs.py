"""Packs of tools: the options of requirement 001, driven through the dispatcher and its gate."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.engine.dispatcher import Dispatcher, PreparedCall
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.toolkits.packs import (
    agent_command_tools,
    agent_edit_tools,
    agent_host_tools,
    agent_read_tools,
)
from ferrule.tools import toolset
from ferrule.tools.catalog import Catalog
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

READ = [
    "read_file",
    "read_file_tail",
    "list_directory",
    "get_file_outline",
    "search_files",
    "git_inspect",
]
EDIT = ["write_file", "edit_file", "create_directory", "delete_path"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a folder `sub`, something beside it and something outside."""
    root = tmp_path / "work"
    (root / "sub/logs").mkdir(parents=True)
    (root / "sub/a.py").write_text(
        "def alpha():\n    return 1\n\n\ndef beta():\n    return alpha()\n"
    )
    (root / "sub/logs/a.py").write_text("alpha in a log\n")
    (root / "sub/gen.py").write_text("alpha made\n")
    (root / "beside.py").write_text("alpha beside\n")
    (root / "sub/.env").write_text("alpha=secret\n")
    (tmp_path / "outside.py").write_text("alpha outside\n")
    (root / "sub/link.py").symlink_to(tmp_path / "outside.py")
    return root


def ask(root: Path, tools: tuple[Tool, ...], name: str, **arguments: Any) -> ToolResult:
    """One call through the whole pipeline, everything allowed that rules can allow."""

    async def run() -> ToolResult:
        workspace = Workspace(root)
        gate = PermissionGate(mode="bypassPermissions", root=root.resolve())
        dispatcher = Dispatcher(Catalog(tools), gate)
        prepared = dispatcher.evaluate(ToolCall("c1", name, json.dumps(arguments)))
        context = Context(Identity("t", "u", "s", "r"), "c1", resources={Workspace: workspace})
        result = await dispatcher.execute(prepared, context)
        assert not isinstance(result, PreparedCall)
        return result

    return asyncio.run(run())


def named(tools: tuple[Tool, ...]) -> list[str]:
    return [tool.full_name for tool in tools]


def test_the_read_pack_only_reads_and_the_edit_pack_is_apart() -> None:
    assert named(agent_read_tools()) == READ
    assert {str(tool.side_effect) for tool in agent_read_tools()} == {"read"}
    assert {toolset.tool_groups(tool) for tool in agent_read_tools()} == {("read",)}
    assert named(agent_edit_tools()) == EDIT
    assert {str(tool.side_effect) for tool in agent_edit_tools()} == {"write"}
    assert not set(EDIT) & set(named(agent_host_tools()))


def test_every_tool_of_the_read_pack_answers(root: Path) -> None:
    tools = agent_read_tools(root)
    subprocess.run(["git", "-c", "init.defaultBranch=main", "init", "-q"], cwd=root, check=True)
    assert "def alpha" in ask(root, tools, "read_file", path="sub/a.py").data
    assert (
        "return alpha()" in ask(root, tools, "read_file_tail", path="sub/a.py", line_count=1).data
    )
    assert "sub/" in ask(root, tools, "list_directory").data
    assert "5: def beta()" in ask(root, tools, "get_file_outline", path="sub/a.py").data
    assert (
        ask(root, tools, "search_files", pattern="beside").data["matches"][0]["path"] == "beside.py"
    )
    assert "No commits yet" in ask(root, tools, "git_inspect", subcommand="status").data


def test_every_tool_of_the_edit_pack_works(root: Path) -> None:
    tools = agent_edit_tools(root)
    assert ask(root, tools, "create_directory", path="new").success
    assert ask(root, tools, "write_file", path="new/f.txt", content="one\n").success
    assert ask(
        root, tools, "edit_file", path="new/f.txt", old_string="one", new_string="two"
    ).success
    assert (root / "new/f.txt").read_text() == "two\n"
    assert ask(root, tools, "delete_path", path="new", recursive=True).success
    assert not (root / "new").exists()


# ---- root


@pytest.mark.parametrize("spelling", ["sub", "sub/", "./sub", "{root}/sub"])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "beside.py"}),
        ("read_file", {"path": "sub/../beside.py"}),
        ("read_file_tail", {"path": "{root}/beside.py"}),
        ("get_file_outline", {"path": "subway.py"}),
        ("list_directory", {"path": "logs"}),
        ("search_files", {"pattern": "alpha", "path": "beside.py"}),
        ("read_file", {"path": "../outside.py"}),
        ("read_file", {"path": "sub/../../outside.py"}),
        ("read_file", {"path": "sub/link.py"}),
        ("read_file", {"path": "sub/.env"}),
    ],
)
def test_what_lies_outside_of_the_root_is_a_refused_result(
    root: Path, spelling: str, tool: str, arguments: dict[str, str]
) -> None:
    filled = {key: value.replace("{root}", str(root)) for key, value in arguments.items()}
    result = ask(root, agent_read_tools(spelling.replace("{root}", str(root))), tool, **filled)
    assert not result.success
    assert result.error_type in (ErrorType.PERMISSION_DENIED, ErrorType.VALIDATION_FAILED)
    assert "alpha" not in str(result.error_message).replace("`alpha`", "")


def test_what_a_call_leaves_open_means_the_root(root: Path) -> None:
    tools = agent_read_tools(root / "sub")
    assert "beside" not in ask(root, tools, "list_directory").data
    found = ask(root, tools, "search_files", pattern="alpha").data["matches"]
    assert {row["path"] for row in found} == {"sub/a.py", "sub/logs/a.py", "sub/gen.py"}
    assert ask(root, tools, "read_file", path="sub/a.py").success


@pytest.mark.parametrize("where", ["..", "/etc", "{root}/../elsewhere", "sub/../.."])
def test_a_root_outside_of_the_workspace_refuses_every_call(root: Path, where: str) -> None:
    tools = agent_read_tools(where.replace("{root}", str(root)))
    for name, arguments in (
        ("read_file", {"path": "beside.py"}),
        ("list_directory", {}),
        ("git_inspect", {"subcommand": "status"}),
    ):
        result = ask(root, tools, name, **arguments)
        assert (result.success, result.error_type) == (False, ErrorType.PERMISSION_DENIED)


def test_edits_are_kept_to_the_root(root: Path) -> None:
    tools = agent_edit_tools("sub")
    assert ask(root, tools, "write_file", path="sub/new.txt", content="x").success
    for name, arguments in (
        ("write_file", {"path": "new.txt", "content": "x"}),
        ("delete_path", {"path": "beside.py"}),
        ("create_directory", {"path": "other"}),
    ):
        assert ask(root, tools, name, **arguments).error_type is ErrorType.PERMISSION_DENIED
    assert sorted(os.listdir(root)) == ["beside.py", "sub"]


async def test_a_preview_of_a_call_outside_of_the_root_shows_nothing(root: Path) -> None:
    (edit,) = agent_edit_tools("sub", enabled_tools=["edit_file"])
    context = Context(Identity("t", "u", "s", "r"), "c1", resources={Workspace: Workspace(root)})
    assert edit.preview is not None
    values = {"path": "beside.py", "old_string": "alpha", "new_string": "x", "replace_all": False}
    with pytest.raises(ToolFailed, match="lies outside of `sub/`"):
        await edit.preview(values, context)
    assert "+def x():" in await edit.preview(
        {
            **values,
            "path": "sub/a.py",
            "old_string": "alpha():\n    return 1",
            "new_string": "x():\n    return 1",
        },
        context,
    )


def test_git_looks_at_the_repository_of_the_root(root: Path) -> None:
    for folder in (root, root / "sub"):
        subprocess.run(
            ["git", "-c", "init.defaultBranch=main", "init", "-q"], cwd=folder, check=True
        )
    answer = ask(
        root, agent_read_tools("sub"), "git_inspect", subcommand="status", args=["--short"]
    ).data
    assert "?? a.py" in answer
    assert "beside" not in answer


@pytest.mark.parametrize("where", ["sub", "./sub/", "{root}/sub"])
def test_every_name_that_a_pack_lists_can_be_given_to_its_other_tools(
    root: Path, where: str
) -> None:
    subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "init", "-q"], cwd=root / "sub", check=True
    )
    tools = agent_read_tools(where.replace("{root}", str(root)))
    listed = ask(root, tools, "list_directory").data
    status = ask(root, tools, "git_inspect", subcommand="status", args=["--short", "-uall"]).data
    rows = ask(root, tools, "search_files", pattern="alpha").data["matches"]
    names = {row["path"] for row in rows}
    for text in (listed, status):
        said = re.search(r"write them as `(.+)/NAME`", text)
        assert said, text
        found = re.findall(r"^(?:FILE .* |\?\? )([\w./]+)$", text, re.M)
        assert "a.py" in found
        names |= {f"{said[1]}/{name}" for name in found}
    for name in sorted(names - {"sub/.env", "sub/link.py"}):
        assert ask(root, tools, "read_file", path=name).success, name
    assert "`sub/a.py`" in str(ask(root, tools, "read_file", path="a.py").error_message)
    # A folder that the call named is one whose names the model knows how to write; nothing is added
    # there.
    assert "NAME" not in ask(root, tools, "list_directory", path="sub").data
    assert "NAME" not in ask(root, agent_read_tools(), "list_directory").data


def test_rules_of_the_workspace_hold_in_a_repository_of_a_folder(root: Path) -> None:
    from ferrule.permissions.protected_names import DEFAULT_NAMES
    from ferrule.toolkits.subfolder import open_subfolder

    inner = open_subfolder(
        Workspace(root, names=DEFAULT_NAMES.extend(secret=("sub/gen.py",))), "sub"
    )
    assert inner.names.check("gen.py", write=False)
    assert inner.names.check("agents/x", write=False)
    assert inner.names.check("a.py", write=False) is None


# ---- search


def test_rows_have_path_line_column_text_and_context(root: Path) -> None:
    tools = agent_read_tools("sub", exclude_globs=["logs/**"])
    answer = ask(
        root, tools, "search_files", pattern="alpha", glob="a.py", context_before=1, context_after=2
    ).data
    assert answer == {
        "matches": [
            {
                "path": "sub/a.py", "line": 1, "column": 5, "text": "def alpha():",
                "context_before": [], "context_after": ["    return 1", ""],
            },
            {
                "path": "sub/a.py", "line": 6, "column": 12, "text": "    return alpha()",
                "context_before": ["def beta():"], "context_after": [],
            },
        ],
        "truncated": False,
        "files_searched": 1,
        "notes": ["1 not searched, since tools may not read it or what is in it"],
    }  # fmt: skip


def test_excluded_globs_of_a_call_are_added_to_those_of_the_pack(root: Path) -> None:
    tools = agent_read_tools("sub", exclude_globs=["logs/**"])

    def paths(**arguments: Any) -> set[str]:
        return {
            row["path"]
            for row in ask(root, tools, "search_files", pattern="alpha", **arguments).data[
                "matches"
            ]
        }

    assert paths() == {"sub/a.py", "sub/gen.py"}
    assert paths(exclude_globs=["gen.py"]) == {"sub/a.py"}
    assert paths(exclude_globs="a.py") == {"sub/gen.py"}
    assert paths(exclude_globs=[]) == {"sub/a.py", "sub/gen.py"}


def test_matches_are_capped_by_the_pack_and_a_call_may_ask_for_another_cap(root: Path) -> None:
    (root / "many.txt").write_text("word\n" * 70)
    usual = ask(root, agent_read_tools(), "search_files", pattern="word").data
    assert (len(usual["matches"]), usual["truncated"]) == (50, True)
    tools = agent_read_tools(search_max_matches=3)
    assert len(ask(root, tools, "search_files", pattern="word").data["matches"]) == 3
    exact = ask(root, tools, "search_files", pattern="word", max_matches=70).data
    assert (len(exact["matches"]), exact["truncated"]) == (70, False)
    assert (
        ask(root, tools, "search_files", pattern="word", max_matches=0).error_type
        is ErrorType.VALIDATION_FAILED
    )


def test_fixed_strings_case_and_hidden_folders(root: Path) -> None:
    (root / ".hidden").mkdir()
    (root / ".hidden/x.txt").write_text("A.B\n")
    (root / "x.txt").write_text("aXb\nA.B\n")
    tools = agent_read_tools()

    def lines(**arguments: Any) -> list[str]:
        rows = ask(root, tools, "search_files", **arguments).data["matches"]
        return [f"{row['path']}:{row['text']}" for row in rows]

    assert lines(pattern="a.b", glob="*.txt") == ["x.txt:aXb"]
    assert lines(pattern="a.b", fixed_strings=True, case_insensitive=True) == ["x.txt:A.B"]
    assert lines(pattern="A.B", fixed_strings=True, include_hidden=True) == [
        ".hidden/x.txt:A.B",
        "x.txt:A.B",
    ]


# ---- options


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: agent_read_tools(search_max_match=3), "`search_max_matches`"),  # pyright: ignore[reportCallIssue]
        (lambda: agent_edit_tools(enabled_tool=["x"]), "`enabled_tools`"),  # pyright: ignore[reportCallIssue]
        (lambda: agent_read_tools(names={"read_fil": "x"}), "`read_file`"),
        (lambda: agent_read_tools(enabled_tools=["red"]), "`read`"),
        (lambda: agent_read_tools(exclude_globs="*.py"), "['*.py']"),
        (
            lambda: agent_read_tools(search_max_matches=3, max_search_matches=4),
            "`search_max_matches`",
        ),
        (lambda: agent_read_tools(search_max_matches=0), "1000"),
    ],
)
def test_a_wrong_option_is_refused_when_the_pack_is_made(
    make: Callable[[], Any], hint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        make()
    assert hint in raised.value.hint


def test_names_are_logical_and_a_formatter_is_told_which_tool_it_formats(root: Path) -> None:
    tools = agent_read_tools(
        names={"list_directory": "dir"},
        namespace="look",
        enabled_tools=["list_directory", "read_file"],
        annotations={"*": {"phase": "audit"}},
        formatters={"read_file": lambda tool, value: f"<{toolset.logical_key(tool)}>"},
        output_format="json",
    )
    assert named(tools) == ["look::read_file", "look::dir"]
    assert [tool.annotations["phase"] for tool in tools] == ["audit", "audit"]
    assert ask(root, tools, "look::read_file", path="beside.py").data == "<read_file>"
    assert "beside.py" in json.loads(ask(root, tools, "look__dir").data)


# ---- commands


COMMANDS = ["run_command", "read_command_output", "read_command_output_tail"]


def ran(
    root: Path, tools: tuple[Tool, ...], command: list[str], name: str = "run_command", **more: Any
) -> dict[str, Any]:
    result = ask(root, tools, name, command=command, **more)
    assert result.success, result.error_message
    return json.loads(result.data) if isinstance(result.data, str) else result.data


def test_the_command_pack_runs_and_the_host_pack_is_both(root: Path) -> None:
    assert named(agent_command_tools()) == COMMANDS
    assert named(agent_host_tools()) == READ + COMMANDS
    runner = agent_command_tools()[0]
    assert runner.annotations["result_readers"] == COMMANDS[1:]
    assert ran(root, agent_command_tools(root), ["ls", "sub"])["stdout"].split() == [
        "a.py",
        "gen.py",
        "link.py",
        "logs",
    ]


@pytest.mark.parametrize("where", ["..", "/etc", "{root}/.."])
def test_a_command_does_not_start_outside_of_the_root(root: Path, where: str) -> None:
    result = ask(
        root,
        agent_command_tools("sub"),
        "run_command",
        command=["ls"],
        cwd=where.replace("{root}", str(root)),
    )
    assert not result.success
    assert result.error_type is ErrorType.PERMISSION_DENIED
    beside = ask(root, agent_command_tools("sub"), "run_command", command=["ls"], cwd=".")
    assert not beside.success or "beside.py" not in str(beside.data)
    assert not ask(root, agent_command_tools(".."), "run_command", command=["ls"]).success


def test_prefixes_policy_and_the_cap_are_passed_on(root: Path) -> None:
    tools = agent_command_tools(
        root, allow_argv_prefixes=[["echo", "a"], "ls"], max_inline_bytes=40
    )
    assert ran(root, tools, ["echo", "a", "b"])["stdout"] == "a b\n"
    blocked = ran(root, tools, ["echo", "b"])
    assert (blocked["blocked"], blocked["status"]) == (True, "blocked")
    long = ran(root, tools, ["echo", "a", "x" * 200], capture={"max_inline_bytes": 1000})
    assert long["stdout"].count("x") <= 40
    seen: list[list[str]] = []

    def only_git(request: dict[str, Any], _args: Any) -> Any:
        seen.append(request["argv"])
        return True if request["argv"][0] == "echo" else "only echo is allowed in this harness"

    for options in ({"command_policy": only_git}, {"allow_command": only_git}):
        tools = agent_command_tools(root, **options)  # pyright: ignore[reportArgumentType]
        assert ran(root, tools, ["echo", "x"])["stdout"] == "x\n"
        assert "only echo" in json.dumps(
            ask(root, tools, "run_command", command=["ls"]).to_envelope()
        )
    assert seen == [["echo", "x"], ["ls"]] * 2


def test_the_release_example_of_the_requirement_works_as_it_stands(root: Path) -> None:
    subprocess.run(["git", "-c", "init.defaultBranch=main", "init", "-q"], cwd=root, check=True)

    def policy(request: dict[str, Any], _args: Any) -> Any:
        if request["mode"] == "argv" and request["argv"][0] == "git":
            return True
        return "only git inspection commands are allowed in this harness"

    tools = agent_host_tools(
        root=root,
        cwd=root,
        max_inline_bytes=12000,
        search_max_matches=50,
        exclude_globs=[".harn-runs/**", "sub/logs/**"],
        names={"run_command": "release_run", "read_command_output_tail": "release_log_tail"},
        descriptions={"run_command": "Run one bounded release inspection command."},
        enabled_tools=["read", "command"],
        disabled_tools=["git_inspect"],
        annotations={"run_command": {"workflow_phase": "release_audit"}},
        namespace="release",
        defer_loading=True,
        output_format="json",
        command_policy=policy,
    )
    assert named(tools) == [
        *(f"release::{name}" for name in READ[:-1]),
        "release::release_run",
        "release::read_command_output",
        "release::release_log_tail",
    ]
    runner = next(tool for tool in tools if toolset.logical_key(tool) == "run_command")
    assert runner.description == "Run one bounded release inspection command."
    assert runner.annotations["workflow_phase"] == "release_audit"
    assert runner.annotations["result_readers"] == [
        "release::read_command_output",
        "release::release_log_tail",
    ]
    assert all(tool.annotations["defer_loading"] is True for tool in tools)
    assert "main" in ran(root, tools, ["git", "status"], "release::release_run")["stdout"]
    assert "only git inspection" in json.dumps(
        ask(root, tools, "release__release_run", command=["ls"]).to_envelope()
    )
    found = json.loads(ask(root, tools, "release::search_files", pattern="alpha").data)
    assert {row["path"] for row in found["matches"]} == {"sub/a.py", "sub/gen.py", "beside.py"}


def test_what_a_result_tells_to_read_is_called_what_the_reader_is_called(root: Path) -> None:
    tools = agent_command_tools(
        root, names={"read_command_output": "more"}, max_inline_bytes=10, enabled_tools=["command"]
    )
    said = json.dumps(ran(root, tools, ["echo", "x" * 100]))
    assert "more" in said and "read_command_output" not in said.replace(
        "read_command_output_tail", ""
    )
