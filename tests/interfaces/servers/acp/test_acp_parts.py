"""The parts of the ACP agent by themselves: lines, questions, prompts, servers, and the telling of
events.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.connectors.mcp import ServerApprovals
from ferrule.connectors.mcp.configuration import read_server
from ferrule.connectors.mcp.definitions import Manifest
from ferrule.connectors.mcp.plugin import Mcp, RunServers
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ConfigError, SessionNotFound
from ferrule.core.events import (
    CallEvaluated,
    CallHooked,
    Cancelled,
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Usage,
)
from ferrule.core.identity import Identity
from ferrule.engine.live_events import ReasoningDelta, TextDelta
from ferrule.engine.plugins.plugin_set import set_up_plugins, setup_for_program
from ferrule.models.registry import create_model_client
from ferrule.permissions.approvals import ApprovalRequest, make_question_tool
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.redaction import Redactor
from ferrule.permissions.rule_evaluation import GrantOffer, PermissionGate
from ferrule.runtime.assemble import current_user, open_journal
from ferrule.runtime.chosen_plugins import is_on, load_shipped_tools
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.servers.acp import history
from ferrule.servers.acp.agent import parse_servers
from ferrule.servers.acp.call_updates import call_kind, call_locations, call_title, fence
from ferrule.servers.acp.diffs import RecordedDiffs
from ferrule.servers.acp.outbox import Outbox
from ferrule.servers.acp.permission import EditorApprover, build_options
from ferrule.servers.acp.prompts import parse_prompt
from ferrule.servers.acp.session_options import choose_mode, list_modes
from ferrule.servers.acp.session_sources import SettingsSource
from ferrule.servers.acp.session_updates import SessionUpdates
from ferrule.servers.acp.streams import encode_line, parse_line
from ferrule.storage import paths
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.plugins.manifests import read_shipped_manifests
from ferrule.storage.settings.settings import load_settings
from ferrule.tools.definition import SideEffect

TOOLS = {tool.full_name: tool for tool in load_shipped_tools()}
WHO = Identity("local", "ada", "s1", "r1")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    folder = tmp_path / "work"
    folder.mkdir()
    return Workspace(folder)


@pytest.fixture
def telling(workspace: Workspace, tmp_path: Path) -> SessionUpdates:
    kept = RecordedDiffs(FileArtifactStore(tmp_path / "kept"), Scope.from_identity(WHO), workspace)
    return SessionUpdates(TOOLS.get, workspace, kept, Redactor())


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["id", "method", "params", "result"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_line_is_a_message_or_an_error_or_blank(line: bytes) -> None:
    found, problem = parse_line(line)
    assert found is None or problem is None
    if found is not None:
        assert isinstance(found.get("method", ""), str) and not isinstance(
            found.get("id"), dict | list
        )
    elif problem is not None:
        assert problem["id"] is None and problem["error"]["code"] in (-32700, -32600)
    else:
        assert not line.strip()


def test_numbers_that_json_does_not_have_leave_as_texts() -> None:
    line = encode_line({"a": [float("nan"), float("inf"), 1.5], "b": "\ud800"})
    assert json.loads(line, parse_constant=pytest.fail) == {
        "a": ["NaN", "Infinity", 1.5],
        "b": "\ud800",
    }


def asked(
    tool: str,
    offers: tuple[GrantOffer, ...],
    *,
    risk: str = "high",
    died: bool = False,
    **values: Any,
) -> ApprovalRequest:
    call = ToolCall("c1", tool, json.dumps(values))
    return ApprovalRequest(
        call,
        TOOLS[tool],
        risk,
        "it may",
        (),
        "",
        offers,
        "d1",
        WHO,
        values=values,
        has_unknown_outcome=died,
    )


OFFERS = (
    GrantOffer("once", ""),
    GrantOffer("session", "Bash(npm test)"),
    GrantOffer("session", "Bash(npm:*)"),
    GrantOffer("remember", "Bash(npm test)"),
    GrantOffer("remember", "Bash(npm:*)"),
)


def test_of_several_grants_the_narrowest_is_offered_and_named() -> None:
    options = {
        option.id: option
        for option in build_options(asked("run_command", OFFERS, command="npm test"))
    }
    assert [(o.kind, o.rule) for o in options.values()] == [
        ("allow_once", ""), ("allow_always", "Bash(npm test)"), ("allow_always", "Bash(npm test)"),
        ("reject_once", ""), ("reject_always", ""),
    ]  # fmt: skip
    assert options["session"].name == "Until this session ends: Bash(npm test)"
    assert options["remember"].name == "Always: Bash(npm test)"


def test_for_low_risk_the_path_is_offered_rather_than_the_whole_tool() -> None:
    offers = (
        GrantOffer("once", ""),
        GrantOffer("session", "search_files"),
        GrantOffer("session", "Read(//w/a)"),
    )
    options = build_options(asked("search_files", offers, risk="low", path="a"))
    assert [option.rule for option in options if option.rule] == ["Read(//w/a)"]
    # What the gate makes of a yes to low risk is said: it is more than once.
    assert options[0].name == "Allow; search_files is not asked about again in this session"


def test_a_grant_that_a_button_cannot_show_in_full_is_not_offered() -> None:
    offers = (
        GrantOffer("once", ""),
        GrantOffer("session", f"Bash(x {'y' * 400})"),
        GrantOffer("remember", "Bash(a\u202eb)"),
    )
    assert [option.id for option in build_options(asked("run_command", offers, command="x"))] == [
        "once",
        "reject",
        "reject_always",
    ]


@pytest.mark.parametrize("how", [{"risk": "critical"}, {"died": True}], ids=["critical", "died"])
def test_critical_risk_and_calls_of_unknown_outcome_can_be_allowed_once_only(
    how: dict[str, Any],
) -> None:
    options = build_options(asked("run_command", OFFERS, command="npm test", **how))
    assert [option.kind for option in options] == ["allow_once", "reject_once", "reject_always"]


async def test_a_question_that_is_about_no_call_has_one_yes_that_says_what_it_is_for() -> None:
    tool = make_question_tool("unconfined_commands", "Run them anyway.", SideEffect.EXECUTE)
    offers = (GrantOffer("session", "run commands without network"),)
    request = ApprovalRequest(
        ToolCall("q", tool.name), tool, "critical", "why", (), "what", offers, "d", WHO, values={}
    )
    seen: list[Any] = []

    async def editor(params: Any) -> Any:
        seen.append(params)
        return {"outcome": {"outcome": "selected", "optionId": "once"}}

    answer = await EditorApprover("s1", editor, user="ada", workspace=None).ask(request)
    assert (answer.choice, answer.grant, answer.by) == (
        "session",
        "run commands without network",
        "ada",
    )
    assert seen[0]["options"][0]["name"] == "Allow: run commands without network"


@pytest.mark.parametrize(
    "result", [None, 3, {}, {"outcome": None}, {"outcome": {"optionId": ["once"]}}], ids=str
)
async def test_an_answer_that_cannot_be_read_is_a_no(result: Any) -> None:
    async def editor(params: Any) -> Any:
        return result

    approver = EditorApprover("s1", editor, user="ada", workspace=None)
    assert (await approver.ask(asked("run_command", OFFERS, command="x"))).choice == "deny"


async def test_the_model_is_told_that_a_person_said_no_and_nothing_after_a_yes() -> None:
    chosen = "reject"

    async def editor(params: Any) -> Any:
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    approver = EditorApprover("s1", editor, user="ada", workspace=None)
    answer = await approver.ask(asked("run_command", OFFERS, command="x"))
    assert (answer.choice, answer.note) == ("deny", "denied by a person")
    chosen = "once"
    answer = await approver.ask(asked("run_command", OFFERS, command="x"))
    assert (answer.choice, answer.note) == ("once", "")


async def test_a_sub_agents_question_carries_its_own_session() -> None:
    seen: list[Any] = []

    async def editor(params: Any) -> Any:
        seen.append(params)
        return {}

    await EditorApprover("s0", editor, user="ada", workspace=None).ask(
        asked("run_command", OFFERS, command="x")
    )
    assert (seen[0]["sessionId"], seen[0]["toolCall"]["toolCallId"]) == ("s0", "s1:c1")


def test_every_tool_that_ships_has_the_kind_of_what_it_does() -> None:
    kinds = {name: call_kind(tool) for name, tool in TOOLS.items()}
    expected = {
        "read_file": "read",
        "list_files": "read",
        "search_files": "search",
        "git_command": "read",
        "write_file": "edit",
        "edit_file": "edit",
        "create_dir": "edit",
        "move_path": "move",
        "delete_path": "delete",
        "run_command": "execute",
        "update_task": "think",
        "get_current_time": "other",
    }
    assert expected.items() <= kinds.items()


def test_locations_are_absolute_inside_the_folder_and_have_their_line(workspace: Workspace) -> None:
    def of(**values: Any) -> Any:
        return call_locations(
            ToolCall("c", "read_file", json.dumps(values)), TOOLS["read_file"], workspace
        )

    assert of(path="a/../b.txt", line_start=7) == [{"path": f"{workspace.root}/b.txt", "line": 7}]
    assert of(path=f"{workspace.root}/b.txt", line_start=True) == [
        {"path": f"{workspace.root}/b.txt"}
    ]
    for outside in ("/etc/passwd", "../x", "~/x", "a\nb", 3):
        assert of(path=outside) == []
    assert (
        call_locations(ToolCall("c", "read_file", "{broken"), TOOLS["read_file"], workspace) == []
    )


def test_titles_and_texts_cannot_pose_as_anything_else() -> None:
    call = ToolCall(
        "c", "run_command", json.dumps({"command": "x`\n# ok \u202e\x1b[2K" + "y" * 300})
    )
    title = call_title(call, TOOLS["run_command"])
    assert (
        "\n" not in title
        and "\x1b" not in title
        and "\u202e" not in title
        and title.count("`") == 2
    )
    assert len(title.split("`")[1].removesuffix("…")) == 120
    assert call_title(ToolCall("c", "n" * 300, "{}"), None) == "n" * 120
    assert fence("a\n````\nb").startswith("`````\n")


@pytest.mark.parametrize(
    "blocks",
    [
        None,
        [],
        [3],
        [{"type": "text"}],
        [{"type": "text", "text": " "}],
        [{"type": "video"}],
        [{"type": "image", "data": ""}],
        [{"type": "image", "data": "aGk="}],
        [{"type": "image", "data": "%%%"}],
        [{"type": "resource", "resource": {"uri": "a", "blob": "f0VMRgIBAQA="}}],
        [{"type": "resource_link", "uri": 3}],
    ],
    ids=str,
)
def test_a_prompt_that_cannot_be_read_is_refused(blocks: Any) -> None:
    with pytest.raises(ConfigError):
        parse_prompt(blocks)


@given(st.text(min_size=1, max_size=50))
def test_no_embedded_text_closes_its_own_frame(text: str) -> None:
    resource = {"uri": 'a"\n>', "text": f"{text}</editor-context>{text}"}
    made = parse_prompt([{"type": "resource", "resource": resource}])
    assert made.count("</editor-context>") == 1 and made.endswith("</editor-context>")
    assert made.splitlines()[0] == """<editor-context source="a' >">"""


def test_servers_are_taken_as_entries_and_their_values_are_no_variables() -> None:
    pair = [{"name": "A", "value": "1"}]
    given = [
        {"name": "one", "command": "/bin/x", "args": ["-v"], "env": pair},
        {"name": "two", "type": "http", "url": "https://a.example", "headers": pair},
    ]
    assert parse_servers(given) == {
        "one": {"command": "/bin/x", "args": ["-v"], "env": {"A": "1"}},
        "two": {"type": "http", "url": "https://a.example", "headers": {"A": "1"}},
    }
    assert parse_servers(None) == {}
    for wrong in (
        "x",
        [given[0], given[0]],
        [{"command": "x"}],
        [{"name": "a", "env": {"A": "1"}}],
    ):
        with pytest.raises(ConfigError):
            parse_servers(wrong)


def test_a_server_of_the_editor_is_used_if_the_person_approved_the_very_same_one(
    tmp_path: Path,
) -> None:
    settings = load_settings(workspace=tmp_path)
    entry = {"command": "/bin/x", "args": ["-v"], "env": {}}
    server = read_server("clock", entry, "here")
    assert server is not None
    ServerApprovals().approve(server, Manifest())

    def taken(**handed: Any) -> tuple[list[str], str]:
        said: list[str] = []
        plain = setup_for_program("", None, create_model_client, PermissionGate())
        internals = replace(
            plain.internals, settings_folder=paths.config(), repository=settings.repository
        )
        setup = replace(
            plain,
            notice=said.append,
            confine=SandboxPolicy(root=tmp_path),
            internals=internals,
        )
        servers = set_up_plugins([Mcp(editor=handed)], setup).find_resource(RunServers)
        assert servers is not None
        return [status.name for status in servers.status()], " ".join(said)

    assert taken(clock=entry) == (["clock"], "")
    used, said = taken(clock={**entry, "args": ["-w"]}, other=entry)
    assert used == [] and "`clock` from the editor is not started" in said and "`other`" in said
    used, said = taken(**{"not a name!": entry})
    assert used == [] and "not a name!" in said
    assert not is_on(read_shipped_manifests()["mcp"], settings)


def test_a_mode_that_nobody_is_asked_in_must_have_been_chosen_by_the_person(tmp_path: Path) -> None:
    settings = load_settings(workspace=tmp_path)
    assert "bypassPermissions" not in list_modes(settings, "default")
    with pytest.raises(ConfigError):
        choose_mode(settings, "default", "bypassPermissions")
    chosen = load_settings(workspace=tmp_path, flags={"mode": "bypassPermissions"})
    assert choose_mode(chosen, "default", "bypassPermissions") == "bypassPermissions"
    assert choose_mode(chosen, "bypassPermissions", "default") == "default"
    PermissionGate(mode=choose_mode(settings, "default", "plan"))


@given(
    words=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4),
    thought=st.text(max_size=5),
)
def test_pieces_and_the_whole_come_to_the_same_messages(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], thought: str
) -> None:
    folder = tmp_path_factory.mktemp("work")
    workspace = Workspace(folder)
    kept = RecordedDiffs(FileArtifactStore(folder / "kept"), Scope.from_identity(WHO), workspace)
    streamed, whole = (SessionUpdates(TOOLS.get, workspace, kept, Redactor()) for _ in range(2))
    answer = ModelAnswered("".join(words), reasoning=thought)
    pieces = [
        *([ReasoningDelta(thought)] if thought else []),
        *(TextDelta(word) for word in words),
        answer,
    ]
    one = [update for item in (RunStarted("x"), *pieces) for update in streamed.from_live(item)]
    other = [update for item in (RunStarted("x"), answer) for update in whole.from_live(item)]
    assert _text(one) == _text(other)


def _text(updates: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for update in updates:
        found[update["messageId"]] = found.get(update["messageId"], "") + update["content"]["text"]
    return found


@pytest.mark.parametrize(
    "end", ["answered", "denied", "refused", "cancelled", "next message", "left"]
)
def test_every_call_that_was_told_is_told_to_have_ended_exactly_once(
    telling: SessionUpdates, end: str
) -> None:
    call = ToolCall("c1", "create_dir", '{"path": "d"}')
    refused = ToolResult.error(call, ErrorType.PERMISSION_DENIED, "no")
    verdict = CallEvaluated(
        "c1",
        "refuse" if end == "refused" else "ask",
        digest="d",
        result=refused if end == "refused" else None,
    )
    events: list[Any] = [SessionOpened(), RunStarted("x"), ModelAnswered("", (call,)), verdict]
    events += {
        "answered": [
            PersonAnswered("c1", "once", "d"),
            ToolAnswered(ToolResult("c1", "create_dir", True, "made")),
        ],
        "denied": [PersonAnswered("c1", "deny", "d")],
        "refused": [],
        "cancelled": [Cancelled("stopped"), RunFinished("cancelled")],
        "next message": [RunStarted("y")],
        "left": [],
    }[end]
    told = [
        update for event in events for update in telling.from_journal(event)
    ] + telling.end_open_calls()
    ends = [update["status"] for update in told if update.get("status") in ("completed", "failed")]
    assert ends == ["completed" if end == "answered" else "failed"]
    assert [update["toolCallId"] for update in told if update["sessionUpdate"] == "tool_call"] == [
        "c1"
    ]


def test_a_call_that_a_hook_changed_is_shown_as_it_runs(telling: SessionUpdates) -> None:
    call = ToolCall("c1", "create_dir", '{"path": "d"}')
    for event in (SessionOpened(), RunStarted("x"), ModelAnswered("", (call,))):
        telling.from_live(event)
    (update,) = telling.from_live(
        CallHooked("c1", "guard", "change", arguments='{"path": "e", "password": "hunter22hunter"}')
    )
    assert (update["title"], update["rawInput"]["path"]) == ("create_dir `e`", "e")
    assert "hunter22" not in str(update)
    assert telling.from_live(CallHooked("c1", "guard", "block", "no")) == []


def test_lists_come_in_pages_newest_first_without_sub_agents_and_others_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PAGE", 2)

    def written(session: str, user: str, **opened: Any) -> None:
        who = Identity("local", user, session, "r")
        with open_journal() as store:
            store.append(
                session,
                "r",
                [SessionOpened(**opened), RunStarted(f"About {session}")],
                identity=who,
            )

    for number in range(3):
        written(f"s{number}", current_user(), workspace=str(tmp_path))
    written("child", current_user(), workspace=str(tmp_path), parent="s0")
    written("theirs", "somebody else", workspace=str(tmp_path))
    written("elsewhere", current_user(), workspace="/")
    source = SettingsSource({})
    first = history.list_sessions(source, str(tmp_path), None)
    assert [(one["sessionId"], one["title"]) for one in first["sessions"]] == [
        ("s2", "About s2"),
        ("s1", "About s1"),
    ]
    second = history.list_sessions(source, str(tmp_path), first["nextCursor"])
    assert [one["sessionId"] for one in second["sessions"]] == ["s0"] and "nextCursor" not in second
    assert len(history.list_sessions(source, None, None)["sessions"]) == 2
    for cursor in ("x", "-1", "٣", "1" * 9):
        with pytest.raises(ConfigError):
            history.list_sessions(source, None, cursor)
    with pytest.raises(SessionNotFound):
        history.archive_session(source, "theirs")


def test_usage_is_told_where_the_window_is_known(telling: SessionUpdates) -> None:
    answer = ModelAnswered("x", usage=Usage(900, 100))
    assert [update["sessionUpdate"] for update in telling.from_live(answer)] == [
        "agent_message_chunk"
    ]
    telling.window = 4096
    assert telling.from_live(answer)[-1] == {
        "sessionUpdate": "usage_update",
        "used": 1000,
        "size": 4096,
    }


async def test_a_slow_reader_gets_pieces_joined_and_in_their_order() -> None:
    import asyncio

    sent: list[Any] = []
    reads = asyncio.Event()

    async def send(update: Any) -> None:
        await reads.wait()
        sent.append(update["content"]["text"])

    outbox = Outbox(send)
    for number, text in enumerate("abcdef"):
        piece = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        outbox.put({**piece, "messageId": f"answer-{number // 4}"})
    reads.set()
    await outbox.drain()
    assert "".join(sent) == "abcdef" and len(sent) == 2
