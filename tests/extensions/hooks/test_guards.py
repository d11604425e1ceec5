"""Each shipped guard fires on the payloads that a run really makes, and passes what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, ErrorType, Permissions, Scripted, Storage, tool
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.core.limits import Limits
from ferrule.engine.hooks.events import Action, EventHook, Occasion, ToolPre
from ferrule.extensions.hooks.guards import (
    GUARDS,
    command_policy,
    no_secrets_in_arguments,
    prefer_named_tools,
    writes_within,
)
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits import commands
from ferrule.toolkits.files import browse
from ferrule.toolkits.files import tools as files
from ferrule.toolkits.search import search_files

TOOLS = [*files.TOOLS, *browse.TOOLS, *search_files.TOOLS, *commands.TOOLS]


async def after(
    guard: EventHook, root: Path, name: str, tools: list[Any] | None = None, **arguments: Any
) -> str:
    """What a call comes to in a whole run with this guard, everything allowed: "" or the
    refusal.
    """
    steps = [calls((name, arguments)), says("done")]
    ours = Agent(
        Scripted(steps),
        tools or TOOLS,
        workspace=root,
        permissions=Permissions(allow=[t.full_name for t in tools or TOOLS]),
        plugins=[Parts(hooks=[guard])],
        storage=Storage(journal=SqliteJournal(":memory:")),
        limits=Limits(max_turns=3),
    )
    result = (await ours.run("go")).results[0]
    await ours.close()
    if result.error_type is ErrorType.PERMISSION_DENIED:
        return result.error_message or "?"
    assert "hook" not in (result.error_message or "")
    return ""


SECRET = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("cat notes.txt", "read_file"),
        ("ls -la", "list_files"),
        (["grep", "-r", "x", "."], "search_files"),
        ("cd . && cat notes.txt", "read_file"),
        ("timeout 5 cat notes.txt", "read_file"),
        ("echo a; rm notes.txt", "delete_path"),
        ("/bin/cat notes.txt", "read_file"),
        ("echo hello", ""),
        ("echo hello | grep h", ""),
    ],
)
async def test_a_command_is_refused_where_there_is_a_tool_for_it(
    command: Any, named: str, tmp_path: Path
) -> None:
    refused = await after(prefer_named_tools(), tmp_path, "run_command", command=command)
    if named:
        assert named in refused
    else:
        assert "the hook" not in refused


@pytest.mark.parametrize("guard", [prefer_named_tools(), command_policy(deny=["rm *"])])
@pytest.mark.parametrize(
    "command", ["$(echo cat) notes.txt", "cat 'unclosed", "x=cat; $x notes.txt"]
)
async def test_a_command_that_cannot_be_judged_is_refused(guard: EventHook, command: str) -> None:
    # In a run the gate asks a person about these first; the guard must not be the one that lets
    # them through.
    call = ToolPre.of("c1", commands.TOOLS[0], {"command": command})
    answer = await guard.run(Occasion(call, Identity("t", "u", "s", "r")))
    assert isinstance(answer, Action)
    assert answer.verdict == "block"


@pytest.mark.parametrize(
    "text",
    [
        f"token = {SECRET}",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "-----BEGIN RSA PRIVATE KEY-----\nMII",
        "sk-ant-" + "x" * 40,
        "https://me:hunter22@example.com/x",
        "xoxb-" + "1" * 20,
        "value of-a-secret-variable here",
        "AIza" + "b" * 35,
    ],
)
async def test_a_secret_in_an_argument_is_refused_and_not_repeated(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "of-a-secret-variable")
    refused = await after(
        no_secrets_in_arguments(), tmp_path, "write_file", path="a.txt", content=text
    )
    assert "the argument `content` holds" in refused
    assert text not in refused
    assert "of-a-secret-variable" not in refused
    assert not (tmp_path / "a.txt").exists()


async def test_secrets_are_found_wherever_they_stand_and_ordinary_text_passes(
    tmp_path: Path,
) -> None:
    guard = no_secrets_in_arguments(patterns={"a customer's number": r"CUST-\d{6}"})

    @tool(side_effect="none")
    def post(body: dict[str, Any]) -> str:
        """Post."""
        return "posted"

    for body in (
        {"a": {"b": [1, {"c": SECRET}]}},
        {SECRET: 1},
        {"words": ["AKIA", "x"], "n": "CUST-123456"},
    ):
        assert "secrets do not go into calls" in await after(
            guard, tmp_path, "post", [post], body=body
        )
    assert (
        await after(
            guard,
            tmp_path,
            "post",
            [post],
            body={"sk-": "short", "akia": "https://example.com/a:b"},
        )
        == ""
    )


@pytest.mark.parametrize(
    ("name", "arguments", "passes"),
    [
        ("write_file", {"path": "src/a.py", "content": "x"}, True),
        ("write_file", {"path": "src", "content": "x"}, True),
        ("write_file", {"path": "srcs/a.py", "content": "x"}, False),
        ("write_file", {"path": "src/../a.py", "content": "x"}, False),
        ("write_file", {"path": "./docs/x/../y", "content": "x"}, True),
        ("write_file", {"path": "a.py", "content": "x"}, False),
        ("move_path", {"source": "src/a", "target": "b"}, False),
        ("delete_path", {"path": "src/nothing"}, True),
        ("run_command", {"command": "touch src/x"}, False),
        ("read_file", {"path": "README.md"}, True),
        ("list_files", {}, True),
    ],
)
async def test_writes_stay_in_the_folders(
    name: str, arguments: Any, passes: bool, tmp_path: Path
) -> None:
    for folder in ("src", "docs/x", "srcs"):
        (tmp_path / folder).mkdir(parents=True)
    refused = await after(writes_within("src", "docs"), tmp_path, name, **arguments)
    assert ("the hook `writes_within`" in refused) is not passes


async def test_an_absolute_path_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    guard = writes_within("src")
    inside, beside = str(tmp_path / "src" / "a"), str(tmp_path) + "-src/a"
    assert await after(guard, tmp_path, "write_file", path=inside, content="x") == ""
    for path in (beside, str(tmp_path / "a"), "/etc/passwd", "~/x"):
        assert await after(guard, tmp_path, "write_file", path=path, content="x") != ""


async def test_a_tool_that_does_not_say_where_it_writes_is_refused(tmp_path: Path) -> None:
    @tool
    def anything(path: str) -> str:
        """Who knows."""
        return "ran"

    assert "it is unknown where" in await after(
        writes_within("."), tmp_path, "anything", [anything], path="src/a"
    )


async def test_commands_are_kept_to_a_policy(tmp_path: Path) -> None:
    only = command_policy(allow=["echo *", "git diff *"])
    never = command_policy(deny=["rm *", "git push *", "> *"])
    for guard, command, passes in (
        (only, "echo a", True),
        (only, "echo a && echo b", True),
        (only, "echo a && touch b", False),
        (only, "touch b", False),
        (only, "echo $(touch b)", False),
        (never, "echo a", True),
        (never, "echo a; rm -rf b", False),
        (never, "git push origin main", False),
        (never, "echo a; > b", False),
    ):
        refused = await after(guard, tmp_path, "run_command", command=command)
        assert ("the hook `command_policy`" in refused) is not passes, command
    assert not (tmp_path / "b").exists()


def test_a_guard_that_guards_nothing_is_an_error() -> None:
    for wrong in (writes_within, command_policy):
        with pytest.raises(ConfigError):
            wrong()
    for folder in ("../x", "/x", "~"):
        with pytest.raises(ConfigError):
            writes_within(folder)
    with pytest.raises(ValueError, match="regular expression"):
        no_secrets_in_arguments(patterns={"bad": "("})
    assert set(GUARDS) == {
        "prefer_named_tools",
        "no_secrets_in_arguments",
        "writes_within",
        "command_policy",
    }


@pytest.mark.model
async def test_a_guard_fires_on_a_call_of_the_real_local_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    ours = Agent(
        "local:smollm2",
        [*commands.TOOLS],
        workspace=tmp_path,
        permissions=Permissions(allow=["run_command"]),
        plugins=[Parts(hooks=[command_policy(deny=["*"])])],
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    result = await ours.run("Run the command `ls`.")
    await ours.close()
    refused = [r for r in result.results if "the hook `command_policy`" in (r.error_message or "")]
    assert refused
    assert not any(r.success for r in result.results)
