"""Command and web hooks: scripts written for the known contract, run in the sandbox, and every way
to fail is a no.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, Permissions, Scripted, Storage
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.engine.hooks.answers import read_answer as read_own
from ferrule.engine.hooks.events import (
    Action,
    EventHook,
    NotJson,
    Occasion,
    SessionStart,
    ToolPost,
    ToolPre,
    TurnStart,
)
from ferrule.extensions.hooks.claude_contract import HookQuestion
from ferrule.extensions.hooks.claude_settings import HookAccess, parse_hook_settings
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.extensions.hooks.web_hooks import WebHook
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.settings.yaml_tree import parse_yaml
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.toolkits.files import tools

MANY = int(os.environ.get("FERRULE_FUZZ", "250"))
"""Examples per property; a nightly run sets more."""

WHO = Identity("t", "u", "s1", "r1")
PRE = Occasion(ToolPre("c1", "write_file", {"path": "a.txt", "content": "x"}), WHO, "/w", "default")

GUARD = """\
import json, sys
given = json.load(sys.stdin)
assert given["hook_event_name"] == "PreToolUse", given
path = given["tool_input"]["file_path"]
if given["tool_name"] == "Write" and path.endswith(".lock"):
    print("lock files are made by the tools", file=sys.stderr)
    sys.exit(2)
if path.endswith("/old.txt"):
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow",
        "updatedInput": {**given["tool_input"], "file_path": path.replace("old", "new")}}}))
if path.endswith("crash.txt"):
    raise SystemExit(1)
if path.endswith("half.txt"):
    print('{"decision": ')
"""


def build_input(occasion: Occasion) -> dict[str, Any]:
    return HookQuestion(occasion).build_input()


def parse_output(text: str, occasion: Occasion) -> Action:
    return HookQuestion(occasion).parse_output(text)


def configured(
    root: Path, event: str, hook: dict[str, Any], matcher: str = "", **copies: bytes
) -> tuple[EventHook, HookCommandRunner]:
    table = {
        "hooks": {
            event: [{"matcher": matcher, "hooks": [{"type": "command", "name": "guard", **hook}]}]
        }
    }
    commands = HookCommandRunner(
        root, {name.replace("_", "."): data for name, data in copies.items()}
    )
    read = parse_hook_settings(
        parse_yaml(json.dumps(table).encode(), "hooks.json"), HookAccess(commands)
    )
    return read.hooks[0], commands


async def written(hook: EventHook, root: Path, path: str) -> str:
    """What writing a file comes to: the refusal, or ""."""
    steps = [calls(("write_file", {"path": path, "content": "x"})), says("ok")]
    ours = Agent(
        Scripted(steps),
        tools.TOOLS,
        workspace=root,
        plugins=[Parts(hooks=[hook])],
        permissions=Permissions(allow=["write_file"]),
        storage=Storage(journal=SqliteJournal(":memory:")),
    )
    result = (await ours.run("go")).results[0]
    await ours.close()
    return result.error_message or ""


async def test_a_script_for_the_known_contract_works_unchanged(tmp_path: Path) -> None:
    hook, commands = configured(
        tmp_path,
        "PreToolUse",
        {"command": 'python3 "$FERRULE_HOOKS/guard.py"'},
        "Write|Edit",
        guard_py=GUARD.encode(),
    )
    try:
        assert await written(hook, tmp_path, "a.txt") == ""
        refused = await written(hook, tmp_path, "x.lock")
        assert "the hook `guard`: lock files are made by the tools" in refused
        assert await written(hook, tmp_path, "old.txt") == ""
        for path, words in (("crash.txt", "ended with 1"), ("half.txt", "begins like JSON")):
            assert words in await written(hook, tmp_path, path)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "new.txt"]
    finally:
        await commands.close()


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ({"command": "no-such-program-here"}, "127"),
        ({"command": "/etc/passwd"}, "126"),
        ({"command": "no-such-program-here", "args": ["x"]}, "no program"),
        ({"command": "/etc/passwd", "args": ["x"]}, "it failed"),
        ({"command": "exit 3"}, "ended with 3"),
        ({"command": "echo no disk >&2; exit 3"}, "ended with 3: no disk"),
        ({"command": "kill -9 $$"}, "SIGKILL"),
        ({"command": "exec sleep 600", "timeout": 0.3}, "no answer within"),
        ({"command": "head -c 70000 /dev/zero"}, "the bound is"),
        ({"command": "C:\\\\hooks\\\\guard.exe"}, "127"),
    ],
)
async def test_a_command_that_cannot_judge_blocks(
    hook: dict[str, Any], words: str, tmp_path: Path
) -> None:
    guard, commands = configured(tmp_path, "PreToolUse", hook)
    try:
        refused = await written(guard, tmp_path, "a.txt")
        assert "the hook `guard`: it failed" in refused
        assert words in refused
        assert not (tmp_path / "a.txt").exists()
    finally:
        await commands.close()


async def test_a_command_sees_no_secrets_of_the_process_and_no_reserved_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "xyzzy-secret")
    (tmp_path / ".ferrule").mkdir()
    (tmp_path / ".ferrule" / "inner").write_text("hidden")
    look = "env >&2; ls -A .ferrule >&2; cat .ferrule/inner >&2; exit 2"
    guard, commands = configured(tmp_path, "PreToolUse", {"command": look})
    try:
        refused = await written(guard, tmp_path, "a.txt")
        assert "FERRULE_EVENT=tool.pre" in refused
        assert "xyzzy-secret" not in refused
        assert "hidden" not in refused
    finally:
        await commands.close()


@pytest.mark.parametrize(
    ("matcher", "asked"),
    [
        ("", True),
        ("*", True),
        ("Write", True),
        ("write_file", True),
        ("Bash|Write", True),
        ("Bash, Write", True),
        ("Wri.*", True),
        ("^(Edit|Write)$", True),
        ("Writ", False),
        ("Bash", False),
        ("mcp__.*", False),
        ("write", False),
    ],
)
def test_a_matcher_is_compared_with_both_names_of_a_tool(
    matcher: str, asked: bool, tmp_path: Path
) -> None:
    guard, _ = configured(tmp_path, "PreToolUse", {"command": "true"}, matcher)
    assert guard.when is not None
    assert guard.when(PRE) is asked


def test_what_a_hook_reads_has_the_names_of_the_contract_and_our_own() -> None:
    given = build_input(PRE)
    assert {key: given[key] for key in given if key != "ferrule"} == {
        "session_id": "s1",
        "transcript_path": "",
        "cwd": "/w",
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": "Write",
        "tool_input": {"file_path": "/w/a.txt", "content": "x"},
        "tool_use_id": "c1",
    }
    assert given["ferrule"]["payload"]["arguments"] == {"path": "a.txt", "content": "x"}
    failed = build_input(
        Occasion(ToolPost("c1", "run_command", False, None, "io_error", "gone"), WHO)
    )
    assert (failed["hook_event_name"], failed["tool_name"], failed["error"]) == (
        "PostToolUseFailure",
        "Bash",
        "gone",
    )


def specific(**keys: Any) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **keys}})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("", Action()),
        ("all well", Action()),
        ("{}", Action()),
        ('{"suppressOutput": true, "somethingNew": 1}', Action()),
        ('{"decision": "approve"}', Action()),
        ('{"decision": "block", "reason": "r"}', Action("block", "r")),
        ('{"systemMessage": "m"}', Action(message="m")),
        ('{"continue": false, "stopReason": "s"}', Action("block", "s", stop="s")),
        (specific(permissionDecision="allow"), Action()),
        (specific(permissionDecision="deny", permissionDecisionReason="r"), Action("block", "r")),
        (specific(permissionDecision="ask", permissionDecisionReason="r"), Action("ask", "r")),
        (specific(permissionDecision="defer"), Action("ask")),
        (specific(additionalContext="c"), Action(context="c")),
        (specific(updatedInput={"file_path": "b"}), Action(payload={"arguments": {"path": "b"}})),
    ],
)
def test_an_answer_of_the_contract_means_what_it_means_there(text: str, action: Action) -> None:
    assert parse_output(text, PRE) == action


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"decision": "blok"}',
        '{"decision": true}',
        '{"continue": "false"}',
        '{"hookSpecificOutput": []}',
        specific(permissionDecision="denied"),
        specific(updatedInput="x"),
        specific(additionalContext=1),
        '{"hookSpecificOutput": {"hookEventName": "Stop"}}',
        "{" * 100_000,
    ],
)
def test_an_answer_that_cannot_be_read_is_garbage(text: str) -> None:
    with pytest.raises(NotJson):
        parse_output(text, PRE)


def test_text_is_context_where_a_session_or_a_turn_begins() -> None:
    for payload in (SessionStart(), TurnStart("x")):
        assert parse_output("branch: main\n", Occasion(payload, WHO)) == Action(
            context="branch: main"
        )


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["allow", "deny", "block", "ask", "tool.pre", ""])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "action",
                    "reason",
                    "payload",
                    "arguments",
                    "decision",
                    "continue",
                    "hookSpecificOutput",
                    "permissionDecision",
                    "updatedInput",
                    "request",
                    "context",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=MANY, deadline=None)
@given(JSON)
def test_whatever_a_hook_answers_is_an_action_or_garbage(answer: Any) -> None:
    for read in (
        lambda: read_own(answer, PRE.payload),
        lambda: parse_output(json.dumps(answer), PRE),
    ):
        try:
            action = read()
        except NotJson:
            continue
        assert action.verdict in ("allow", "block", "ask", "delegate")
    if isinstance(answer, (bool, int, str, list)):
        with pytest.raises(NotJson):
            read_own(answer, PRE.payload)


@settings(max_examples=MANY, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["id", "name", "arguments", "args", "risk", "event", "zzz"]),
        JSON,
        max_size=4,
    )
)
def test_no_answer_changes_anything_of_a_call_but_its_arguments(change: dict[str, Any]) -> None:
    call = PRE.payload
    assert isinstance(call, ToolPre)
    try:
        changed = call.replace(change)
    except NotJson:
        return
    assert {**changed.as_dict(), "arguments": 0, "args": 0} == {
        **call.as_dict(),
        "arguments": 0,
        "args": 0,
    }
    assert isinstance(changed.arguments, dict)


# ---- web hooks


async def test_a_server_judges_a_call() -> None:
    def answer(request: Request) -> Reply:
        path = request.json()["tool_input"]["file_path"]
        return Reply(json={"decision": "block", "reason": f"not {path}"})

    async with HttpDouble(answer) as server:
        hook = WebHook(f"{server.url}/judge", ("127.0.0.1",), headers={"x-key": "k"})
        assert await hook.ask(HookQuestion(PRE), 5) == Action("block", "not /w/a.txt")
        assert (server.requests[0].method, server.requests[0].headers["x-key"]) == ("POST", "k")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=500),
        Reply(status=404),
        Reply(pieces=[b"{broken"]),
        Reply(drop_head=True),
        Reply(hold_head=True),
        Reply(pieces=[b"x" * 70_000]),
        Reply(status=302, headers={"location": "http://localhost:1/elsewhere"}),
        Reply(status=307, headers={"location": "http://example.com/elsewhere"}),
    ],
)
async def test_a_server_that_does_not_answer_properly_is_a_broken_hook(reply: Reply) -> None:
    async with HttpDouble(lambda request: reply) as server:
        hook = WebHook(f"{server.url}/judge", ("127.0.0.1", "localhost", "example.com"))
        with pytest.raises(Exception) as broken:
            await hook.ask(HookQuestion(PRE), 0.5)
        assert not isinstance(broken.value, AssertionError)
        assert len(server.requests) == 1


def test_a_server_that_nobody_allowed_is_refused_before_anything_is_sent() -> None:
    for url, hosts in (
        ("https://example.com/x", ()),
        ("https://evil.test/x", ("example.com",)),
        ("http://127.0.0.1/x", ("example.com",)),
    ):
        with pytest.raises(ConfigError, match="is refused"):
            WebHook(url, hosts)
