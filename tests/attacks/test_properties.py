"""What must hold for all rules, all paths, all approvals and all answers of a model, with the tools
that ship.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_calls import BY_NAME, TOOLS
from hostile_world import COMMANDS, PATHS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.events import CallStarted
from ferrule.core.limits import Limits
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.engine.hooks.call_hooks import Change
from ferrule.models.client import ModelOptions
from ferrule.models.dialects import ALL_DIALECTS
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.scripted import Scripted, Step, says
from ferrule.permissions.approvals import ApprovalAnswer
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.rule_evaluation import MODES, PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.plugins import Parts
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import RecordingApprover
from ferrule.tools.definition import Tool
from ferrule.tools.reliability import Reliability

# ---- deny rules

PATH_TEXTS = st.one_of(
    st.sampled_from([row.path for row in PATHS] + [row.twin for row in PATHS]),
    st.lists(
        st.sampled_from(["a", "b", "..", ".", ".env", "src", "~", "*", "x.py", ""]),
        min_size=1,
        max_size=5,
    ).map("/".join),
)
COMMAND_TEXTS = st.one_of(
    st.sampled_from([row.command for row in COMMANDS] + [row.twin for row in COMMANDS]).map(
        lambda command: command if isinstance(command, str) else list(command)
    ),
    st.lists(
        st.sampled_from(["git", "rm", "ls", " ", "x", "-f", "&&", ">", "a/b", "|", "'"]), max_size=8
    ).map(" ".join),
)
SPECIFIERS = st.sampled_from(
    ["", "(src/**)", "(**)", "(*.py)", "(git *)", "(rm:*)", "(//etc/**)", "(~/x)", "(./a)", "(ls)"]
)
RULES = st.builds(
    lambda name, specifier: name + specifier,
    st.sampled_from(["Read", "Edit", "Bash", *BY_NAME]),
    SPECIFIERS,
)


def values_for(tool: Tool) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            name: COMMAND_TEXTS if touch.kind == "command" else PATH_TEXTS
            for name, touch in tool.touches.items()
        }
    )


CALLS = st.sampled_from(TOOLS).flatmap(
    lambda tool: values_for(tool).map(lambda values: (tool, values))
)
ORDER = {"deny": 0, "ask": 1, "allow": 2}


def rule_set(**lists: list[str]) -> RuleSet | None:
    try:
        return RuleSet.parse(root="/work/project", **lists)
    except ConfigError:
        return None  # Not a rule: no person could have written it.


@settings(max_examples=300)
@given(
    CALLS,
    st.lists(RULES, max_size=4),
    st.lists(RULES, max_size=2),
    st.lists(RULES, max_size=2),
    RULES,
    st.sampled_from(MODES),
)
def test_adding_a_deny_rule_never_allows_more(
    call: tuple[Tool, dict[str, Any]],
    allow: list[str],
    ask: list[str],
    deny: list[str],
    more: str,
    mode: Any,
) -> None:
    before, after = (
        rule_set(allow=allow, ask=ask, deny=deny),
        rule_set(allow=allow, ask=ask, deny=[*deny, more]),
    )
    if before is None or after is None:
        return
    verdicts = [
        PermissionGate(rules, mode=mode, root=Path("/work/project"), home=Path("/home/person"))
        .decide(*call)
        .verdict
        for rules in (before, after)
    ]
    assert ORDER[verdicts[1]] <= ORDER[verdicts[0]], (verdicts, more)


# ---- paths


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """A workspace full of links, with something beside it."""
    with tempfile.TemporaryDirectory() as base:
        root = Path(base, "project")
        (root / "a/b").mkdir(parents=True)
        Path(base, "outside").mkdir()
        Path(base, "outside/x").write_text("outside")
        for name in ("x", "a/x", "a/b/x"):
            (root / name).write_text("inside")
        for name, target in {
            "out": "../outside",
            "a/out": "../../outside",
            "up": "..",
            "a/up": "..",
            "abs": f"{base}/outside",
            "file": "../outside/x",
            "a/b/self": "self",
            "in": "a",
        }.items():
            (root / name).symlink_to(target)
        yield root


PARTS = st.sampled_from(
    [
        "a",
        "b",
        "x",
        "..",
        ".",
        "",
        "out",
        "up",
        "abs",
        "file",
        "in",
        "self",
        "project",
        "outside",
        "new",
    ]
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, min_size=1, max_size=7), absolute=st.sampled_from(["", "/", "root"]))
def test_whatever_the_workspace_opens_lies_beneath_its_root(
    tree: Path, parts: list[str], absolute: str
) -> None:
    path = "/".join(parts)
    path = {"": path, "/": f"/{path}", "root": f"{tree}/{path}"}[absolute]
    workspace = Workspace(tree)
    with contextlib.suppress(ToolFailed), workspace.open(path) as file:
        real = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
        assert real.is_relative_to(tree) and file.read() == b"inside"
    with contextlib.suppress(ToolFailed):
        descriptor = workspace.open_descriptor(path)
        try:
            assert Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(tree)
        finally:
            os.close(descriptor)
    with contextlib.suppress(ToolFailed):
        workspace.write(path, b"inside")
    assert Path(tree.parent, "outside/x").read_text() == "outside"
    assert os.listdir(tree.parent / "outside") == ["x"] and sorted(os.listdir(tree.parent)) == [
        "outside",
        "project",
    ]
    workspace.close()


# ---- approvals


class Changes:
    """A hook that puts other arguments in after the yes."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments

    async def before(self, tool: Any, values: Any, context: Any) -> Any:
        return Change(self._arguments)

    async def after(self, tool: Any, result: Any, context: Any) -> Any:
        return None


@settings(max_examples=40, deadline=None)
@given(
    approved=st.sampled_from(["a.txt", "b.txt"]),
    put=st.sampled_from(["a.txt", "b.txt", "c/d.txt", ".env"]),
    late=st.sampled_from(["once", "deny"]),
)
def test_what_runs_is_what_was_approved(approved: str, put: str, late: Any) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: Any) -> ApprovalAnswer:
        asked.append(dict(json.loads(request.call.arguments)))
        return ApprovalAnswer("once" if len(asked) == 1 else late, by="test")

    async def work() -> tuple[Any, list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            ours = Agent(
                Scripted([]), TOOLS, workspace=folder, permissions=Permissions(approver=RecordingApprover(answer)),
                storage=Storage(journal=SqliteJournal(":memory:")), plugins=[Parts(hooks=[Changes({"path": put, "content": "new"})])],
            )  # fmt: skip
            result = await ours.session().call("write_file", path=approved, content="new")
            return result, sorted(
                str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file()
            )

    result, made = asyncio.run(work())
    if put == ".env":
        assert not result.success and made == []
    elif put == approved or late == "once":
        assert len(asked) == (1 if put == approved else 2) and made == [put]
    else:
        assert not result.success and made == [] and len(asked) == 2


# ---- a model that answers anything

JSONISH = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "",
            "{}",
            "{",
            "[]",
            "null",
            '"x"',
            '{"path": 1}',
            '{"path": ".env"}',
            '{"path": "x"',
            "[" * 5000,
            "{'path': 'x'}",
            '{"path": "\\ud800"}',
        ]
    ),
    st.dictionaries(
        st.sampled_from(["path", "content", "x"]),
        st.one_of(st.text(max_size=5), st.integers(), st.none()),
        max_size=3,
    ).map(json.dumps),
)
MADE = st.builds(
    ToolCall,
    st.sampled_from(["", "call_1", "call_1", "call_2", "x" * 100, "\ud800", "é"]),
    st.one_of(
        st.sampled_from([*BY_NAME, "READ_FILE", "nothing", "", "a.b::c"]), st.text(max_size=12)
    ),
    JSONISH,
)
ANSWERS = st.builds(
    lambda text, made, stop: Step(text, tuple(made), "", Step().usage, stop),
    st.one_of(
        st.text(max_size=40),
        st.builds(
            lambda dialect, call: dialect.render([call]),
            st.sampled_from(ALL_DIALECTS),
            st.builds(
                ToolCall,
                st.just(""),
                st.sampled_from(["read_file", "nothing"]),
                st.just('{"path": "x"}'),
            ),
        ),
        st.sampled_from(
            [
                "`/read .env`",
                "```path=../x\ny\n```",
                "<tool_call>",
                '<tool_call>{"name": "read_file", "arg',
            ]
        ),
    ),
    st.lists(MADE, max_size=4),
    st.sampled_from(["", "length", "filter", "calls", "end"]),
)


def calm(tool: Tool) -> Tool:
    """The tool without its waits between attempts."""
    from dataclasses import replace

    return replace(tool, reliability=Reliability(max_attempts=1))


# Those that start a process take too long for hundreds of examples; the dispatcher treats all
# alike.
QUICK = [
    calm(tool) for tool in TOOLS if tool.name not in ("run_command", "git_command", "search_files")
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ANSWERS, min_size=1, max_size=5), st.sampled_from(["native", "text", "commands"]))
def test_any_answer_of_a_model_leaves_one_result_per_call_and_a_history_every_provider_takes(
    answers: list[Step], way: str
) -> None:
    history, started = asyncio.run(converse(answers, way))
    check_pairs(history)
    ids = [call.id for m in history if isinstance(m, AssistantMessage) for call in m.calls]
    assert len(set(ids)) == len(ids) and all(ids) and started <= set(ids)
    check_openai(
        asyncio.run(
            encoded(OpenAIChat("m", base_url="http://127.0.0.1:9/v1", api_key="k"), history)
        )
    )
    check_ollama(asyncio.run(encoded(Ollama("m", base_url="http://127.0.0.1:9"), history)))


async def converse(answers: list[Step], way: str) -> tuple[list[Message], set[str]]:
    journal = SqliteJournal(":memory:")
    with tempfile.TemporaryDirectory() as folder:
        ours = Agent(
            Scripted([*answers, *[says("done")] * 10]),
            QUICK,
            workspace=folder,
            tool_calling=way,
            storage=Storage(journal=journal),
            permissions=Permissions(mode="bypassPermissions"),
            limits=Limits(max_turns=4, max_calls_per_turn=3),
        )
        session = ours.session()
        from ferrule.core.errors import FerruleError

        for _ in range(3):
            with contextlib.suppress(FerruleError):
                await session.run("go")
        started = {
            r.event.call_id for r in journal.records(session.id) if isinstance(r.event, CallStarted)
        }
        return list(session.driver.machine.history), started


def check_pairs(history: list[Message]) -> None:
    waiting: list[str] = []
    for message in history:
        if isinstance(message, ToolMessage):
            assert waiting.pop(0) == message.call_id
        else:
            assert waiting == []
            waiting = (
                [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
            )
    assert waiting == []


async def encoded(model_client: Any, history: list[Message]) -> list[dict[str, Any]]:
    """The messages as this model client sends them: an exchange's own encoder, without a request."""
    from ferrule.models.request_encoding import EncodedHistory

    exchange = model_client.open("system", (), ModelOptions())
    transcript = EncodedHistory("system", exchange._encode_message)
    transcript.extend(history)
    await model_client.close()
    return json.loads(b"[" + bytes(transcript.json) + b"]")


def check_openai(messages: list[dict[str, Any]]) -> None:
    """The rules of chat completions: results follow their calls, by id, all of them and no
    other.
    """
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert waiting and waiting.pop(0) == message["tool_call_id"]
            assert isinstance(message["content"], str)
            continue
        assert waiting == []
        for call in message.get("tool_calls", ()):
            waiting.append(call["id"])
            name = call["function"]["name"]
            assert (
                name
                and len(name) <= 64
                and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
            )
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        assert message.get("tool_calls") != []
    assert waiting == []


def check_ollama(messages: list[dict[str, Any]]) -> None:
    """Ollama's: results in the order of the calls, by name; arguments are objects."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert waiting and waiting.pop(0) == message["tool_name"]
            continue
        assert waiting == []
        for call in message.get("tool_calls", ()):
            waiting.append(call["function"]["name"])
            assert isinstance(call["function"]["arguments"], dict)
    assert waiting == []


# ---- the parser of commands


def test_a_character_that_the_parser_cannot_read_does_not_end_the_process() -> None:
    """It depends on where memory lies: each process is another chance."""
    program = (
        "from ferrule.permissions.command_analysis.analysis import analyse_command\n"
        "for code in range(0x300, 0x110000, 0x3000):\n"
        "    if not 0xD800 <= code < 0xE000:\n"
        "        for text in ('{', 'echo {1..', 'cat .env {12', '{1..9'):\n"
        "            analyse_command(text + chr(code) + '}', root='/w')\n"
    )
    for _ in range(3):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    named = analyse_command("cat .env {\U0005630e", root="/w")
    assert named.findings, "the name in it must still be seen"
