"""Hooks that were written for Claude Code: found where people have them, and used as they are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import pytest

from ferrule import COMMAND, WRITES, tool
from ferrule.core.errors import ConfigError
from ferrule.core.identity import Identity
from ferrule.engine.hooks.events import (
    Action,
    DelegationPre,
    EventHook,
    Failed,
    NotJson,
    Occasion,
    Payload,
    SessionStart,
    ToolPost,
    ToolPre,
    TurnStart,
)
from ferrule.extensions.hooks.claude_contract import HookQuestion
from ferrule.extensions.hooks.claude_settings import HookAccess, parse_hook_settings
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.extensions.hooks.loading import LoadedHooks, load_hooks
from ferrule.runtime.assemble import assemble
from ferrule.storage.settings.yaml_tree import parse_yaml
from ferrule.storage.trust import TrustStore
from ferrule.toolkits.commands.run_command_tool import run_command
from ferrule.toolkits.files import tools as file_tools
from ferrule.toolkits.git.tools import git_tools
from ferrule.tools.definition import Tool

WHO = Identity("t", "u", "s1", "r1")
TOOLS: dict[str, Tool] = {
    one.name: one
    for one in (
        *file_tools.TOOLS,
        run_command,
        *git_tools(enabled_tools=["git_commit", "git_pull_ff_only"]),
    )
}

EVENTS_OF_TODAY = """
SessionStart SessionEnd Setup UserPromptSubmit UserPromptExpansion PreToolUse PostToolUse
PostToolUseFailure PostToolBatch PermissionRequest PermissionDenied Notification Stop StopFailure
SubagentStart SubagentStop PreCompact PostCompact Elicitation ElicitationResult TeammateIdle
TaskCreated TaskCompleted InstructionsLoaded CwdChanged FileChanged ConfigChange WorktreeCreate
WorktreeRemove PreModelSwitch PostModelSwitch MessageDisplay DirectoryAdded
"""


def pre(name: str, **arguments: Any) -> Occasion:
    return Occasion(ToolPre.of("c1", TOOLS[name], arguments), WHO, "/w", "default")


def post(name: str, result: Any, **arguments: Any) -> Occasion:
    payload = ToolPost("c1", name, result=result, arguments=arguments, tool=TOOLS[name])
    return Occasion(payload, WHO, "/w", "default")


def parsed(
    table: dict[str, Any], *, is_foreign: bool = True, commands: HookCommandRunner | None = None
) -> tuple[list[EventHook], list[str]]:
    """Return hooks and warnings. Who runs a hook closes the `commands`."""
    tree = parse_yaml(json.dumps({"hooks": table}).encode(), "settings.json")
    access = HookAccess(commands or HookCommandRunner("."))
    found = parse_hook_settings(tree, access, is_foreign=is_foreign)
    return found.hooks, [str(one) for one in (*found.warnings, *found.idle)]


def group(command: str, matcher: str = "", **keys: Any) -> dict[str, Any]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **keys}]}


# ---- what a hook is told


@pytest.mark.parametrize(
    ("occasion", "matcher", "told", "expected"),
    [
        (pre("write_file", path="a/b", content="x"), "Write", "Write", {"file_path": "/w/a/b"}),
        (
            pre("edit_file", path="a", old_string="o", new_string="n"),
            "Write|Edit",
            "Edit",
            {"file_path": "/w/a", "old_string": "o", "new_string": "n"},
        ),
        (
            pre("edit_file", path="a", old_string="o", new_string="n", more_edits=[{"k": "v"}]),
            "MultiEdit",
            "MultiEdit",
            {"edits": [{"old_string": "o", "new_string": "n"}, {"k": "v"}]},
        ),
        (
            pre("replace_lines", path="a", line_start=1, line_end=2, new_content="n"),
            "Write|Edit",
            "Edit",
            {"file_path": "/w/a", "new_string": "n"},
        ),
        (
            pre("insert_lines", path="a", line_start=1, new_content="n"),
            "Edit",
            "Edit",
            {"file_path": "/w/a", "new_string": "n", "old_string": ""},
        ),
        (pre("delete_path", path="a"), "Write|Edit", "Write", {"file_path": "/w/a", "content": ""}),
        (pre("delete_path", path="a"), "^(Edit|MultiEdit)$", "Edit", {"file_path": "/w/a"}),
        (pre("create_dir", path="a"), "", "Write", {"file_path": "/w/a"}),
        (pre("read_file", path="a", line_start=3, line_end=4), "Read", "Read", {"offset": 3}),
        (pre("run_command", command=["rm", "a b"]), "Bash", "Bash", {"command": "rm 'a b'"}),
        (pre("run_command", command="ls", timeout=2), "", "Bash", {"timeout": 2000}),
        (pre("git_commit", message="a b"), "Bash", "Bash", {"command": "git commit 'a b'"}),
        (pre("git_pull_ff_only"), "Bash", "Bash", {"command": "git pull --ff-only"}),
        (pre("write_file", path="a", content="x"), "write_file", "write_file", {"path": "a"}),
    ],
)
def test_a_guard_sees_its_own_tools_and_inputs(
    occasion: Occasion, matcher: str, told: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    seen: list[HookQuestion] = []

    async def ask(command: object, question: HookQuestion, timeout: float) -> Action:
        seen.append(question)
        return Action()

    tree = parse_yaml(json.dumps({"hooks": {"PreToolUse": [group("x", matcher)]}}).encode(), "s")
    commands = HookCommandRunner(tmp_path)
    commands.ask = ask
    (hook,) = parse_hook_settings(tree, HookAccess(commands)).hooks
    assert hook.when is not None
    assert hook.when(occasion)
    asyncio.run(hook.run(occasion))
    given = seen[0].build_input()
    assert given["tool_name"] == told
    assert {key: given["tool_input"].get(key) for key in expected} == expected
    assert isinstance(given["tool_input"], dict)


def test_a_tool_of_ones_own_that_changes_files_or_runs_programs_is_seen_too() -> None:
    @tool(side_effect="write")
    def save(where: Annotated[str, WRITES], body: str) -> str:
        """Save it."""
        return body

    @tool(side_effect="execute")
    def deploy(line: Annotated[str, COMMAND]) -> str:
        """Deploy it."""
        return line

    saved = Occasion(ToolPre.of("c", save, {"where": "a", "body": "x"}), WHO, "/w")
    hooks, _ = parsed({"PreToolUse": [group("x", "Write|Edit"), group("x", "Bash")]})
    ran = Occasion(ToolPre.of("c", deploy, {"line": "rm x"}), WHO, "/w")
    assert [hook.when(saved) for hook in hooks if hook.when] == [True, False]
    assert [hook.when(ran) for hook in hooks if hook.when] == [False, True]
    assert HookQuestion(saved, tool="Write").build_input()["tool_input"]["file_path"] == "/w/a"
    assert HookQuestion(ran, tool="Bash").build_input()["tool_input"]["command"] == "rm x"


async def test_a_call_that_changes_two_files_is_judged_for_each(tmp_path: Path) -> None:
    command = (
        'python3 -c \'import json,sys; p = json.load(sys.stdin)["tool_input"]["file_path"]; '
        'sys.exit(p + " is kept" if p.endswith("/kept") else 0)\' || exit 2'
    )
    commands = HookCommandRunner(tmp_path)
    (hook,), _ = parsed({"PreToolUse": [group(command, "Edit")]}, commands=commands)
    answers: list[Action] = []
    for source, target in (("a", "kept"), ("kept", "a"), ("a", "b")):
        answers.append(await hook.run(pre("move_path", source=source, target=target)))
    await commands.close()
    assert [one.verdict for one in answers] == ["block", "block", "allow"]


@pytest.mark.parametrize(
    ("occasion", "expected"),
    [
        (post("run_command", "out", command="ls"), {"stdout": "out", "stderr": ""}),
        (post("write_file", "ok", path="a", content="x"), {"filePath": "/w/a", "content": "x"}),
        (
            post("edit_file", "ok", path="a", old_string="o", new_string="n"),
            {"filePath": "/w/a", "oldString": "o", "newString": "n"},
        ),
        (post("git_commit", {"sha": "1"}, message="m"), {"sha": "1", "stdout": ""}),
        (post("read_file", "1: x", path="a"), {"type": "text"}),
        (post("read_file", None, path="a"), {}),
    ],
)
def test_a_response_is_an_object(occasion: Occasion, expected: dict[str, Any]) -> None:
    response = HookQuestion(occasion).build_input()["tool_response"]
    assert isinstance(response, dict)
    assert {key: response[key] for key in expected} == expected


def updated(occasion: Occasion, name: str, **changes: Any) -> Action:
    question = HookQuestion(occasion, tool=name)
    given = {**question.build_input()["tool_input"], **changes}
    specific = {"hookEventName": "PreToolUse", "updatedInput": given}
    return question.parse_output(json.dumps({"hookSpecificOutput": specific}))


def test_a_changed_input_is_translated_back() -> None:
    ran = pre("run_command", command=["rm", "-f", "a"], timeout=2.0)
    same = {"command": ["rm", "-f", "a"], "timeout": 2.0}
    assert updated(ran, "Bash").payload == {"arguments": same}
    assert updated(ran, "Bash", command="rm a", timeout=1500).payload == {
        "arguments": {"command": ["rm", "a"], "timeout": 1.5}
    }
    edit = pre("replace_lines", path="a", line_start=1, line_end=1, new_content="n")
    assert updated(edit, "Edit", new_string="m", file_path="/w/b").payload == {
        "arguments": {"path": "b", "line_start": 1, "line_end": 1, "new_content": "m"}
    }
    with pytest.raises(NotJson, match="no argument"):
        updated(edit, "Edit", old_string="m")
    changed = HookQuestion(post("run_command", "out", command="ls")).parse_output(
        '{"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": '
        '{"stdout": "***", "stderr": ""}}}'
    )
    assert changed.payload == {"result": "***"}


# ---- what is in settings


def test_every_event_of_today_is_known_and_said_in_one_line_if_it_never_happens() -> None:
    table = {event: [group("true")] for event in (*EVENTS_OF_TODAY.split(), "EventOfTomorrow")}
    hooks, warnings = parsed(table)
    assert {one.events[0] for one in hooks} >= {"tool.pre", "tool.post", "turn.start", "turn.end"}
    (line,) = warnings
    assert all(name in line for name in ("TeammateIdle", "Setup", "EventOfTomorrow"))
    assert "`Stop`" not in line
    with pytest.raises(ConfigError, match="no such event"):
        parsed({"EventOfTomorrow": [group("true")]}, is_foreign=False)


async def test_what_cannot_be_used_does_not_end_the_run() -> None:
    prompt = {"hooks": [{"type": "prompt", "prompt": "Is it good?"}]}
    broken = {"matcher": "Bash", "hooks": [{"type": "command"}]}
    hooks, warnings = parsed({"PreToolUse": [prompt, broken, group("true", timeout=60_000)]})
    assert [line.partition(": ")[2] for line in warnings] == [
        "a hook of the type `command`; what it guards is refused",
        "hooks of the type `prompt` are not run here",
    ]
    refusing, running = hooks
    assert refusing.when is not None
    assert refusing.when(pre("run_command", command="ls"))
    assert not refusing.when(pre("read_file", path="a"))
    with pytest.raises(NotJson, match="it cannot be read"):
        await refusing.run(pre("run_command", command="ls"))
    assert (refusing.on_error, running.on_error) == ("block", "block")
    assert running.timeout < 3600


@pytest.mark.parametrize(
    ("event", "on_error"),
    [
        ("PreToolUse", "block"),
        ("UserPromptSubmit", "block"),
        ("PostToolUse", "allow"),
        ("SessionStart", "allow"),
        ("SubagentStart", "allow"),
    ],
)
def test_a_broken_hook_withholds_nothing_where_the_contract_cannot_refuse(
    event: str, on_error: str
) -> None:
    ((hook,), _) = parsed({event: [group("true")]})
    assert hook.on_error == on_error


def test_a_refusal_is_a_word_to_the_person_where_the_contract_cannot_refuse() -> None:
    started = HookQuestion(Occasion(SessionStart(), WHO), event="SessionStart")
    assert started.block_with_reason("no") == Action(message="no")
    asked = HookQuestion(Occasion(TurnStart("x"), WHO), event="UserPromptSubmit")
    assert asked.block_with_reason("no").verdict == "block"
    assert asked.parse_output('{"decision": "allow"}').verdict == "allow"
    assert asked.parse_output('{"decision": "deny"}').verdict == "block"


@pytest.mark.parametrize(
    ("payload", "matcher", "asked"),
    [
        (TurnStart("x"), "Write", True),
        (SessionStart("resume"), "startup", False),
        (SessionStart("resume"), "startup|resume", True),
        (DelegationPre("reader"), "reader", True),
        (DelegationPre("reader"), "writer", False),
        (Failed("run", "rate_limit"), "rate_limit", True),
        (Failed("run", "rate_limit"), "server_error", False),
    ],
)
def test_a_matcher_means_what_the_event_has(payload: Payload, matcher: str, asked: bool) -> None:
    events = {"turn.start": "UserPromptSubmit", "session.start": "SessionStart"}
    event = events.get(payload.event, "SubagentStart")
    event = "StopFailure" if isinstance(payload, Failed) else event
    ((hook,), _) = parsed({event: [group("true", matcher)]})
    assert hook.when is not None
    assert hook.when(Occasion(payload, WHO)) is asked


@pytest.mark.parametrize(
    ("rule", "occasion", "asked"),
    [
        ("Bash(git *)", pre("run_command", command="git push"), True),
        ("Bash(git push:*)", pre("run_command", command="ls && A=1 git push x"), True),
        ("Bash(git *)", pre("run_command", command='sh -c "$(git push)"'), True),
        ("Bash(git *)", pre("run_command", command="ls"), False),
        ("Edit(src/**)", pre("edit_file", path="src/a", old_string="", new_string=""), True),
        ("Edit(src/**)", pre("edit_file", path="b", old_string="", new_string=""), False),
        ("Edit", pre("run_command", command="ls"), False),
    ],
)
def test_a_hook_with_a_rule_is_asked_about_the_calls_that_it_matches(
    rule: str, occasion: Occasion, asked: bool
) -> None:
    ((hook,), _) = parsed({"PreToolUse": [group("true", **{"if": rule})]})
    assert hook.when is not None
    assert hook.when(occasion) is asked


async def test_once_and_async(tmp_path: Path) -> None:
    table = {
        "PreToolUse": [
            group("echo asked >> once.txt", once=True),
            group("sleep 0.2; echo told > late.txt; exit 2", **{"async": True}),
        ]
    }
    tree = parse_yaml(json.dumps({"hooks": table}).encode(), "settings.json")
    commands = HookCommandRunner(tmp_path)
    once, late = parse_hook_settings(tree, HookAccess(commands), is_foreign=True).hooks
    occasion = pre("read_file", path="a")
    assert [await once.run(occasion), await once.run(occasion)] == [Action(), Action()]
    assert await late.run(occasion) == Action()
    assert not (tmp_path / "late.txt").exists()
    async with asyncio.timeout(20):
        while not (tmp_path / "late.txt").exists():
            await asyncio.sleep(0.02)
    await commands.close()
    assert (tmp_path / "once.txt").read_text() == "asked\n"


# ---- where it is found


def settings_file(folder: Path, command: str, **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "settings.json"
    file.write_text(json.dumps({"hooks": {"PreToolUse": [group(command, "Edit")]}, **more}))
    return file


def loaded(root: Path, claude: Path | None, **options: Any) -> LoadedHooks:
    return load_hooks(TrustStore().read(root), claude_folder=claude, **options)


def test_a_repository_s_hooks_wait_for_trust_with_their_scripts(tmp_path: Path) -> None:
    root = tmp_path / "work"
    settings_file(root / ".claude", ".claude/hooks/guard.sh")
    (root / ".claude/hooks").mkdir()
    script = root / ".claude/hooks/guard.sh"
    script.write_text("exit 0\n")
    nobody = tmp_path / "nobody"
    waiting = loaded(root, nobody)
    assert (waiting.hooks, waiting.inert) == ((), (".claude/settings.json",))
    TrustStore().trust(root)
    assert len(loaded(root, nobody).hooks) == 1
    assert loaded(root, None).hooks == ()
    script.write_text("exit 1\n")
    assert TrustStore().read(root).state == "changed"


def test_settings_without_hooks_are_no_configuration(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text('{"permissions": {"allow": ["Bash(ls)"]}}')
    (tmp_path / ".claude/hooks").mkdir()
    (tmp_path / ".claude/hooks/x.sh").write_text("exit 1\n")
    assert TrustStore().read(tmp_path).state == "absent"


@pytest.mark.parametrize(
    ("more", "works"),
    [({}, True), ({"disableAllHooks": True}, False)],
)
async def test_the_person_s_hooks_run_with_what_they_need(
    more: dict[str, Any], works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = tmp_path / "claude"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude))
    monkeypatch.setenv("GUARD_MODE", "strict")
    monkeypatch.setenv("GUARD_API_KEY", "xyzzy")
    monkeypatch.setenv("OTHER_API_KEY", "xyzzy")
    claude.mkdir()
    (claude / "reason.txt").write_text("kept")
    (claude / ".credentials.json").write_text('{"token": "hidden"}')
    look = (
        f"[[ 1 ]] && echo $(cat {claude}/reason.txt) $GUARD_MODE $OF_FILE $GUARD_API_KEY "
        f"[$OTHER_API_KEY] $(cat {claude}/.credentials.json) >&2; exit 2"
    )
    settings_file(claude, look, env={"OF_FILE": "of-file"}, **more)
    work = tmp_path / "work"
    work.mkdir()
    told: list[str] = []
    options = {"workspace": str(work), "permissions__allow": ("insert_lines",)}
    monkeypatch.setenv("FERRULE_ENV_ALLOW", "GUARD_API_KEY")
    assembly = assemble(options, notice=told.append, needs_model=False)
    (work / "a.txt").write_text("x\n")
    session = assembly.open_session(None)
    result = await session.call_tool(
        "insert_lines", {"path": "a.txt", "line_start": 1, "new_content": "y"}
    )
    await assembly.close(session)
    assert result.success is not works
    if works:
        assert "kept strict of-file xyzzy []" in (result.error_message or "")
        assert "hidden" not in (result.error_message or "")
    assert told == []


async def test_what_has_no_effect_is_said_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    file = settings_file(tmp_path / "claude", "true")
    said: list[list[str]] = []
    for event in ("Notification", "Notification", "PreCompact"):
        file.write_text(json.dumps({"hooks": {event: [group("true")]}}))
        told: list[str] = []
        options = {"workspace": str(tmp_path)}
        await assemble(options, notice=told.append, needs_model=False).close()
        said.append(["no effect" in one for one in told])
    assert said == [[True], [], [True]]


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    settings_file(tmp_path / "claude", "true").chmod(0o666)
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(ConfigError, match="others can write it"):
        loaded(work, tmp_path / "claude")


def test_comments_in_the_person_s_settings_lose_no_hook(tmp_path: Path) -> None:
    claude = tmp_path / "home"
    file = settings_file(claude, "exit 0")
    file.write_text("// mine\n" + file.read_text())
    assert len(loaded(tmp_path, claude).hooks) == 1


def test_settings_that_cannot_be_read_are_named_with_their_line_and_end_nothing(
    tmp_path: Path,
) -> None:
    claude = tmp_path / "home"
    file = settings_file(claude, "exit 0")
    file.write_text(file.read_text() + "\n]")
    found = loaded(tmp_path, claude)
    assert not found.hooks
    (warning,) = found.warnings
    assert warning.where.startswith("~/.claude/settings.json:")
    assert "not JSON" in warning.message and "its hooks are left out" in warning.message
