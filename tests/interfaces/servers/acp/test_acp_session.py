"""Sessions of an editor over real streams: the official client package and `ferrule serve acp`."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp
import pytest

from ferrule.core.events import RunStarted
from ferrule.storage.journal.sqlite import SqliteJournal
from media_samples import PDF, make_png

pytestmark = pytest.mark.asyncio(loop_scope="module")

EDIT = {"path": "note.txt", "old_string": "two", "new_string": "three"}
COMMAND = "exec 3>alive; echo up >&3; sleep 600"
"""Holds a named pipe open (`pipe_in`) as long as anything of it is left."""
Step = Callable[..., dict[str, Any]]


async def test_words_thoughts_calls_and_the_plan_arrive_as_they_happen(
    served: Any, a_call: Step
) -> None:
    talk = await served.talk(
        {
            **a_call("add_task", say="Let me look.", content="Look around"),
            "reasoning": "Where to begin?",
        },
        a_call("update_task", task_id="task_1", status="completed"),
        a_call("list_files"),
        {"say": "All done."},
    )
    assert await talk.prompt() == "end_turn"
    assert talk.text("agent_thought_chunk") == "Where to begin?"
    assert talk.text() == "Let me look.All done."
    assert [one["entries"][0]["status"] for one in talk.of("plan")] == ["pending", "completed"]
    assert talk.of("plan")[0]["entries"][0]["content"] == "Look around"
    kinds = [(one["title"], one["kind"], one["status"]) for one in talk.of("tool_call")]
    assert kinds == [
        ("add_task", "think", "pending"),
        ("update_task", "think", "pending"),
        ("list_files", "read", "pending"),
    ]
    listed = talk.call(2)
    assert listed["status"] == "completed" and "note.txt" in listed["content"][0]["content"]["text"]


async def test_pieces_of_one_message_share_an_id_and_messages_do_not(
    served: Any, a_call: Step
) -> None:
    talk = await served.talk(a_call("list_files", say="one two three"), {"say": "four five six"})
    await talk.prompt()
    ids = list(dict.fromkeys(one["messageId"] for one in talk.of("agent_message_chunk")))
    assert ids == ["answer-1", "answer-2"]


async def test_an_edit_is_shown_as_a_diff_and_made_once_allowed(served: Any, a_call: Step) -> None:
    talk = await served.talk(a_call("edit_file", **EDIT), {"say": "Changed."})
    turn = asyncio.ensure_future(talk.prompt())
    question = await served.editor.question()
    note = talk.folder / "note.txt"
    diff = {"type": "diff", "path": str(note), "oldText": "one\ntwo\n", "newText": "one\nthree\n"}
    assert question.call["content"][0] == diff
    assert question.call["toolCallId"] == talk.of("tool_call")[0]["toolCallId"]
    assert (question.call["kind"], question.call["rawInput"]["new_string"]) == ("edit", "three")
    assert note.read_text() == "one\ntwo\n"
    question.answer.set_result("once")
    assert await turn == "end_turn"
    assert note.read_text() == "one\nthree\n"
    done = talk.call()
    assert done["status"] == "completed" and done["content"][0] == diff
    assert done["locations"] == [{"path": str(note), "line": 2}]


@pytest.mark.parametrize(
    ("tool", "arguments", "before", "after"),
    [
        ("write_file", {"path": "new.txt", "content": "fresh\n"}, None, "fresh\n"),
        ("write_file", {"path": "note.txt", "content": "other\n"}, "one\ntwo\n", "other\n"),
        (
            "insert_lines",
            {"path": "note.txt", "line_start": 2, "new_content": "1.5\n"},
            "one\ntwo\n",
            "one\n1.5\ntwo\n",
        ),
        (
            "replace_lines",
            {"path": "note.txt", "line_start": 1, "line_end": 2, "new_content": "x\n"},
            "one\ntwo\n",
            "x\n",
        ),
    ],
    ids=["new", "replaced", "inserted", "lines"],
)
async def test_each_editing_tool_has_the_diff_of_what_it_did(
    served: Any, a_call: Step, tool: str, arguments: dict[str, Any], before: str | None, after: str
) -> None:
    talk = await served.talk(
        a_call(tool, **arguments), {"say": "Done."}, mode="acceptEdits", tools={"profile": "all"}
    )
    await talk.prompt()
    (diff,) = (part for part in talk.call()["content"] if part["type"] == "diff")
    assert (diff.get("oldText"), diff["newText"]) == (before, after)
    assert Path(diff["path"]).read_text() == after


async def test_always_grants_what_the_button_said_and_nothing_wider(
    served: Any, a_call: Step
) -> None:
    again = {"path": "note.txt", "old_string": "three", "new_string": "four"}
    other = {"path": "other.txt", "content": "x"}
    talk = await served.talk(
        a_call("edit_file", **EDIT),
        a_call("edit_file", **again),
        a_call("write_file", **other),
        {"say": "ok"},
    )
    turn = asyncio.ensure_future(talk.prompt())
    first = await served.editor.question()
    kinds = {name: option["kind"] for name, option in first.options.items()}
    assert kinds == {
        "once": "allow_once", "session": "allow_always", "remember": "allow_always",
        "session-edits": "allow_always", "reject": "reject_once", "reject_always": "reject_always",
    }  # fmt: skip
    assert f"Edit(/{talk.folder}/note.txt)" in first.options["session"]["name"]
    assert f"Edit(/{talk.folder}/**)" in first.options["session-edits"]["name"]
    first.answer.set_result("session")
    second = await served.editor.question()
    assert second.call["rawInput"]["path"] == "other.txt"
    second.answer.set_result("reject")
    assert await turn == "end_turn"
    assert (talk.folder / "note.txt").read_text() == "one\nfour\n"
    assert not (talk.folder / "other.txt").exists()


async def test_a_rejected_call_does_not_run_and_always_means_this_call_is_not_asked_again(
    served: Any, a_call: Step
) -> None:
    talk = await served.talk(
        a_call("edit_file", **EDIT),
        a_call("edit_file", **EDIT),
        a_call("write_file", path="d/e.txt", content="e"),
        {"say": "Then not."},
    )
    served.editor.says = lambda question: "reject_always"
    assert await talk.prompt() == "end_turn"
    assert [question.call["title"] for question in served.editor.asked] == [
        "edit_file `note.txt`",
        "write_file `d/e.txt`",
    ]
    assert (talk.folder / "note.txt").read_text() == "one\ntwo\n"
    assert [talk.call(number)["status"] for number in range(3)] == ["failed"] * 3
    assert "permission_denied" in talk.call(1)["content"][0]["content"]["text"]
    assert "who asked not to see this call again" in talk.call(1)["content"][0]["content"]["text"]


@pytest.mark.parametrize("answer", ["cancelled", "no such option"])
async def test_an_answer_that_is_none_of_the_options_is_a_no(
    served: Any, a_call: Step, answer: str
) -> None:
    talk = await served.talk(a_call("edit_file", **EDIT), {"say": "Then not."})
    served.editor.says = lambda question: answer
    await talk.prompt()
    assert (talk.folder / "note.txt").read_text() == "one\ntwo\n"
    assert talk.call()["status"] == "failed"


async def test_cancelling_ends_a_running_command_with_all_it_started(
    served: Any, a_call: Step, pipe_in: Any
) -> None:
    talk = await served.talk(a_call("run_command", command=COMMAND), {"say": "Next."})
    pipe = pipe_in(talk.folder)
    served.editor.says = lambda question: "once"
    turn = asyncio.ensure_future(talk.prompt())
    await pipe.up()
    await served.agent.cancel(session_id=talk.id)
    assert await turn == "cancelled"
    await pipe.gone()
    assert (
        talk.call()["status"] == "failed"
        and "cancelled" in talk.call()["content"][0]["content"]["text"]
    )
    assert await talk.prompt("go on") == "end_turn"
    assert talk.text() == "Next."


async def test_cancelling_withdraws_a_question_and_nothing_runs(served: Any, a_call: Step) -> None:
    talk = await served.talk(a_call("edit_file", **EDIT), {"say": "Next."})
    turn = asyncio.ensure_future(talk.prompt())
    question = await served.editor.question()
    await served.agent.cancel(session_id=talk.id)
    assert await turn == "cancelled"
    question.answer.set_result("once")  # Too late: nobody waits for it any more.
    assert await talk.prompt("go on") == "end_turn"
    assert (talk.folder / "note.txt").read_text() == "one\ntwo\n"


async def test_a_prompt_that_is_cancelled_before_it_began_ends_cancelled(
    served: Any, a_call: Step
) -> None:
    talk = await served.talk(a_call("edit_file", **EDIT), {"say": "Next."})
    blocks = [acp.text_block("go")]
    turn = asyncio.ensure_future(served.agent.prompt(session_id=talk.id, prompt=blocks))
    # The request is on its way, and the cancellation right behind it. Should that be slow, a
    # question waits for it.
    await asyncio.sleep(0)
    await served.agent.cancel(session_id=talk.id)
    assert (await turn).stop_reason == "cancelled"
    await served.agent.cancel(session_id=talk.id)  # Of nothing: nobody's error.
    await served.agent.cancel(session_id="no such session")
    served.editor.says = lambda question: "reject"
    assert await talk.prompt("again") == "end_turn"


async def test_a_loaded_session_is_told_as_it_was_streamed(served: Any, a_call: Step) -> None:
    talk = await served.talk(
        {**a_call("add_task", say="First.", content="Edit"), "reasoning": "Hm."},
        a_call("edit_file", **EDIT),
        a_call("read_file", path="gone.txt"),
        a_call("create_dir", path="d"),
        {"say": "Done with it."},
    )
    served.editor.says = lambda question: (
        "reject" if "create_dir" in question.call["title"] else "once"
    )
    await talk.prompt("Please edit.")
    streamed = _folded(talk.told)
    talk.told.clear()
    loaded = await served.agent.load_session(
        cwd=str(talk.folder), session_id=talk.id, mcp_servers=[]
    )
    assert loaded.modes.current_mode_id == "default"
    assert talk.of("user_message_chunk")[0]["content"]["text"] == "Please edit."
    assert (
        _folded([one for one in talk.told if one["sessionUpdate"] != "user_message_chunk"])
        == streamed
    )
    assert any(part["type"] == "diff" for part in streamed["calls"]["call_2_0"]["content"])


def _folded(updates: list[dict[str, Any]]) -> dict[str, Any]:
    """What an editor shows in the end: messages by id, calls by id, the plan."""
    folded: dict[str, Any] = {"messages": {}, "calls": {}, "plan": None}
    for update in updates:
        match update["sessionUpdate"]:
            case "tool_call" | "tool_call_update":
                known = folded["calls"].setdefault(update["toolCallId"], {})
                known.update({**update, "sessionUpdate": "tool_call"})
            case "plan":
                folded["plan"] = update
            case kind:
                key = (kind, update["messageId"])
                folded["messages"][key] = (
                    folded["messages"].get(key, "") + update["content"]["text"]
                )
    return folded


async def test_a_session_goes_on_after_it_was_resumed_and_its_calls_have_new_ids(
    served: Any, a_call: Step
) -> None:
    talk = await served.talk(a_call("list_files", say="First."), {"say": "Looked."})
    await talk.prompt()
    await served.agent.resume_session(cwd=str(talk.folder), session_id=talk.id, mcp_servers=[])
    before = len(talk.told)
    assert await talk.prompt("again") == "end_turn"
    assert len({one["toolCallId"] for one in talk.of("tool_call")}) == 2
    ids = {
        one["messageId"]
        for one in talk.told[before:]
        if one["sessionUpdate"] == "agent_message_chunk"
    }
    assert ids == {"answer-3", "answer-4"}


async def test_sessions_are_listed_closed_and_deleted_into_an_archive(
    served: Any, a_call: Step
) -> None:
    talk = await served.talk({"say": "Hello."})
    await talk.prompt("A question\nwith two lines")
    listed = await served.agent.list_sessions(cwd=str(talk.folder))
    assert [(one.session_id, one.cwd, one.title) for one in listed.sessions] == [
        (talk.id, str(talk.folder), "A question with two lines")
    ]
    await served.agent.close_session(session_id=talk.id)
    with pytest.raises(acp.RequestError) as closed:
        await talk.prompt()
    assert closed.value.code == -32002
    deleted = await served.request("session/delete", sessionId=talk.id)
    assert Path(deleted["_meta"]["ferrule/archive"]).is_file()
    assert (await served.agent.list_sessions(cwd=str(talk.folder))).sessions == []
    with pytest.raises(acp.RequestError, match="no session"):
        await served.agent.load_session(cwd=str(talk.folder), session_id=talk.id, mcp_servers=[])


async def test_modes_are_the_gates_and_hold_from_the_next_call_on(
    served: Any, a_call: Step
) -> None:
    again = {"path": "note.txt", "old_string": "three", "new_string": "four"}
    talk = await served.talk(
        a_call("edit_file", **EDIT),
        {"say": "Refused."},
        a_call("edit_file", **EDIT),
        a_call("edit_file", **again),
        {"say": "Edited."},
    )
    offered = {mode.id for mode in talk.opened.modes.available_modes}
    assert offered == {"default", "acceptEdits", "plan", "dontAsk"}
    await served.agent.set_session_mode(session_id=talk.id, mode_id="plan")
    assert talk.of("current_mode_update")[-1]["currentModeId"] == "plan"
    await talk.prompt()
    assert "mode plan" in talk.call()["content"][0]["content"]["text"]
    changed = await served.agent.set_config_option(
        config_id="mode", session_id=talk.id, value="acceptEdits", type="select"
    )
    assert {one.id: one.current_value for one in changed.config_options}["mode"] == "acceptEdits"
    await talk.prompt()
    assert (talk.folder / "note.txt").read_text() == "one\nfour\n"
    assert served.editor.asked == []


async def test_bypassing_permissions_is_offered_only_where_the_person_chose_it(
    served: Any, a_call: Step
) -> None:
    talk = await served.talk({"say": "x"})
    for mode in ("bypassPermissions", "nonsense", ""):
        with pytest.raises(acp.RequestError):
            await served.agent.set_session_mode(session_id=talk.id, mode_id=mode)
    chosen = await served.talk({"say": "x"}, mode="bypassPermissions")
    assert chosen.opened.modes.current_mode_id == "bypassPermissions"


async def test_a_session_takes_another_model_that_the_settings_name(
    served: Any, a_call: Step
) -> None:
    other = served.script({"say": "I am the other one."})
    talk = await served.talk({"say": "I am the first."}, models={other: {"temperature": 0.5}})
    (option,) = (one for one in talk.opened.config_options if one.id == "model")
    assert [one.value for one in option.options][1:] == [other]
    await served.agent.set_config_option(
        config_id="model", session_id=talk.id, value=other, type="select"
    )
    await talk.prompt()
    assert talk.text() == "I am the other one."
    with pytest.raises(acp.RequestError, match="not among"):
        await served.agent.set_config_option(
            config_id="model", session_id=talk.id, value="openai:x", type="select"
        )


async def test_a_session_works_on_one_prompt_and_sessions_work_beside_each_other(
    served: Any, a_call: Step
) -> None:
    waiting = await served.talk(a_call("edit_file", **EDIT), {"say": "Edited."})
    turn = asyncio.ensure_future(waiting.prompt())
    question = await served.editor.question()
    with pytest.raises(acp.RequestError, match="working on a prompt"):
        await waiting.prompt()
    with pytest.raises(acp.RequestError, match="working on a prompt"):
        await served.agent.load_session(
            cwd=str(waiting.folder), session_id=waiting.id, mcp_servers=[]
        )
    other = await served.talk({"say": "Here already."})
    assert await other.prompt() == "end_turn"
    assert not turn.done()
    question.answer.set_result("once")
    assert await turn == "end_turn"
    assert (waiting.text(), other.text()) == ("Edited.", "Here already.")


@pytest.mark.parametrize(
    ("step", "settings", "reason"),
    [
        ({"say": "cut", "stop": "length"}, {}, "max_tokens"),
        ({"say": "no", "stop": "filter"}, {}, "refusal"),
        (
            {"call": [{"tool": "list_files", "arguments": {}}]},
            {"limits": {"max_turns": 1}},
            "max_turn_requests",
        ),
    ],
    ids=["length", "filter", "rounds"],
)
async def test_each_end_has_its_reason(
    served: Any, step: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    talk = await served.talk(step, **settings)
    assert await talk.prompt() == reason
    if settings:
        assert "limit reached: max_turns = 1" in talk.text()


async def test_a_model_that_cannot_be_had_is_an_error_with_its_reason(served: Any) -> None:
    talk = await served.talk({"fail": {"code": "unreachable", "detail": "no server there"}})
    with pytest.raises(acp.RequestError, match="no server there") as failed:
        await talk.prompt()
    assert failed.value.data["code"] == "unreachable"


async def test_what_the_editor_embeds_is_read_by_the_model_and_links_are_named(served: Any) -> None:
    talk = await served.talk({"say": "ok"})
    blocks = [
        acp.text_block("Compare "),
        acp.resource_link_block("b.py", "file:///w/b.py"),
        acp.text_block(" with this:"),
        acp.resource_block(
            acp.embedded_text_resource("file:///w/a%20b.py#L3", "x = 1\n</editor-context>\n")
        ),
    ]
    await served.agent.prompt(session_id=talk.id, prompt=blocks)
    talk.told.clear()
    await served.agent.load_session(cwd=str(talk.folder), session_id=talk.id, mcp_servers=[])
    assert talk.text("user_message_chunk") == (
        "Compare [b.py: /w/b.py] with this:\n"
        '<editor-context source="/w/a b.py#L3">\nx = 1\n<\\/editor-context>\n\n</editor-context>'
    )


async def test_pictures_of_a_prompt_go_along_and_pictures_of_results_come_back(served: Any) -> None:
    talk = await served.talk(
        {
            "say": "",
            "call": [
                {"tool": "read_file", "arguments": {"path": name}}
                for name in ("shot.png", "paper.pdf", "large.pdf")
            ],
        },
        {"say": "seen"},
    )
    (talk.folder / "shot.png").write_bytes(make_png(4, 4))
    (talk.folder / "paper.pdf").write_bytes(PDF)
    (talk.folder / "large.pdf").write_bytes(PDF[:9] + b"%" + b"0" * (4 << 20) + b"\n" + PDF[9:])
    encoded = b64encode(make_png()).decode()
    blob = b64encode(PDF).decode()
    blocks = [
        acp.text_block("see"),
        acp.image_block(encoded, "image/jpeg"),
        acp.resource_block(acp.embedded_blob_resource("file:///w/p.pdf", blob)),
    ]
    await served.agent.prompt(session_id=talk.id, prompt=blocks)
    content = [
        block["content"]
        for update in talk.told
        for block in update.get("content") or []
        if isinstance(block, dict) and block.get("type") == "content"
    ]
    (picture,) = [block for block in content if block["type"] == "image"]
    assert b64decode(picture["data"]) == make_png(4, 4)
    (paper,) = [block["resource"] for block in content if block["type"] == "resource"]
    assert (b64decode(paper["blob"]), paper["mimeType"]) == (PDF, "application/pdf")
    with SqliteJournal(served.home / "state" / "journal.db") as journal:
        events = [record.event for record in journal.records(talk.id)]
    (started,) = [event for event in events if isinstance(event, RunStarted)]
    found = [(one.mime, one.name) for one in started.media]
    assert found == [("image/png", ""), ("application/pdf", "p.pdf")]


async def test_a_broken_picture_is_refused_before_anything_begins(served: Any) -> None:
    talk = await served.talk({"say": "never"})
    half = b64encode(make_png()[:-20]).decode()
    with pytest.raises(acp.RequestError, match="cut off"):
        await served.agent.prompt(session_id=talk.id, prompt=[acp.image_block(half, "image/png")])
    assert talk.told == []


async def test_a_server_that_nobody_approved_is_not_started_and_the_person_is_told_how(
    served: Any, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    server = acp.schema.McpServerStdio(
        name="editors", command=sys.executable, args=["-c", f"open({str(started)!r}, 'w')"], env=[]
    )
    talk = await served.talk({"say": "Hello."}, servers=[server])
    await talk.prompt()
    (notice,) = talk.opened.field_meta["ferrule/notices"]
    assert (
        "`editors` from the editor is not started" in notice
        and "ferrule mcp approve editors" in notice
    )
    assert notice in talk.text() and talk.text().endswith("Hello.")
    assert not started.exists()


async def test_secrets_in_what_tools_say_are_taken_out_and_a_question_is_shown_as_it_is(
    served: Any, a_call: Step
) -> None:
    secret = "ghp_" + "a1B2" * 9
    talk = await served.talk(
        a_call("write_file", path="a.txt", content=f"token={secret}"), {"say": "ok"}
    )
    served.editor.says = lambda question: "once"
    await talk.prompt()
    assert secret not in str(talk.of("tool_call"))
    assert secret in served.editor.asked[0].call["rawInput"]["content"]


async def test_a_repository_that_is_not_trusted_decides_nothing(served: Any, a_call: Step) -> None:
    folder = served.home / "clone"
    (folder / ".ferrule").mkdir(parents=True)
    (folder / ".ferrule" / "ferrule.yaml").write_text("permissions: {allow: [Edit]}\n")
    (folder / ".mcp.json").write_text(
        '{"mcpServers": {"theirs": {"command": "touch", "args": ["x"]}}}'
    )
    served.settings(model=served.script(a_call("write_file", path="a", content="b"), {"say": "ok"}))
    served.editor.says = lambda question: "reject"
    served.editor.asked.clear()
    opened = await served.agent.new_session(cwd=str(folder), mcp_servers=[])
    assert "ferrule trust" in str(opened.field_meta)
    await served.agent.prompt(session_id=opened.session_id, prompt=[acp.text_block("go")])
    assert len(served.editor.asked) == 1
    assert not (folder / "a").exists()


async def test_a_session_is_not_loaded_into_another_folder_nor_by_half_its_id(
    served: Any, tmp_path: Path
) -> None:
    talk = await served.talk({"say": "Hello."})
    await talk.prompt()
    await served.agent.close_session(session_id=talk.id)
    with pytest.raises(acp.RequestError, match="another folder"):
        await served.agent.load_session(cwd=str(tmp_path), session_id=talk.id, mcp_servers=[])
    with pytest.raises(acp.RequestError, match="no session"):
        await served.agent.load_session(
            cwd=str(talk.folder), session_id=talk.id[:12], mcp_servers=[]
        )
    link = tmp_path / "link"
    link.symlink_to(talk.folder)
    await served.agent.load_session(cwd=str(link), session_id=talk.id, mcp_servers=[])
    assert talk.told[-1]["content"]["text"] == "Hello."
