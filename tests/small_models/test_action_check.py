"""A tool that changes something is called only if the request orders it and says its values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ferrule.models.client import ToolSpec
from ferrule.models.tool_modes.text import parameter_schema
from ferrule.toolkits import COMMAND_TOOLS, FILE_TOOLS
from ferrule.tools.definition import Tool
from ferrule_local.small_models.abstention import split_request
from ferrule_local.small_models.action_check import (
    find_order_for,
    find_problem,
    is_only_asked_about,
    may_change,
)
from ferrule_local.small_models.request import Request
from ferrule_local.small_models.slots import read_slots

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = {tool.name: tool for tool in (*FILE_TOOLS, *COMMAND_TOOLS)}


def spec(tool: Tool) -> ToolSpec:
    return ToolSpec(
        tool.name,
        tool.name,
        tool.description,
        tool.schema_json(),
        side_effect=tool.declared_side_effect,
    )


def problem(name: str, request: str, **arguments: object) -> str:
    offered = spec(TOOLS[name])
    slots = read_slots(parameter_schema(offered))
    return find_problem(offered, slots, arguments, Request(request))


ORDERED = [
    ("delete_path", "Please throw away src/legacy.py", {"path": "src/legacy.py"}),
    ("delete_path", "I no longer need a.log, delete it", {"path": "a.log"}),
    ("move_path", "Rename old.py to new.py", {"source": "old.py", "target": "new.py"}),
    ("write_file", "Could you write 'hi' to a.txt?", {"path": "a.txt", "content": "hi"}),
    (
        "edit_file",
        "In a.md, change 'x' to 'y'",
        {"path": "a.md", "old_string": "x", "new_string": "y"},
    ),
    ("create_dir", "Make a new directory src/parts", {"path": "src/parts"}),
    ("run_command", "Run npm test", {"command": "npm test"}),
    ("delete_path", "Delete Makefile", {"path": "Makefile"}),
    ("create_dir", "Create a folder called notes", {"path": "notes"}),
    (
        "insert_lines",
        "At line 5 of a.txt insert 'x'",
        {"path": "a.txt", "line_start": 5, "new_content": "x"},
    ),
    ("write_file", "I need a file a.txt that says 'x'", {"path": "a.txt", "content": "x"}),
    ("write_file", "Put the line 'x' into a new file a.txt", {"path": "a.txt", "content": "x"}),
]

NOT_ORDERED = [
    ("delete_path", "What happens if I delete a.log?", {"path": "a.log"}),
    ("delete_path", "Delete the last line of a.log", {"path": "a.log"}),
    (
        "move_path",
        "Put yourself in the place of the author of a.py",
        {"source": "a.py", "target": "yourself"},
    ),
    ("write_file", "Put 'buy milk' on the task list", {"path": "task", "content": "buy milk"}),
    (
        "insert_lines",
        "Append the line 'x' to a.txt",
        {"path": "a.txt", "line_start": 1, "new_content": "x"},
    ),
    ("run_command", "Run python3 --version", {"command": "python3"}),
    ("delete_path", "Please do not delete a.log", {"path": "a.log"}),
    ("delete_path", "The manual says: delete a.log", {"path": "a.log"}),
    ("write_file", "Change one word in a.css", {"path": "a.css", "content": "word"}),
    ("write_file", "Write 'x' at the end of a.txt", {"path": "a.txt", "content": "x"}),
    ("write_file", "Put the line 'x' into a.txt", {"path": "a.txt", "content": "x"}),
    ("write_file", "Write a poem about a.txt", {"path": "a.txt", "content": "poem"}),
    ("write_file", "Replace 'x' with 'y' in a.txt", {"path": "a.txt", "content": "x"}),
    ("write_file", "Save 'x' to a.txt and b.txt", {"path": "a.txt", "content": "x"}),
    ("create_dir", "Create docs/index.md", {"path": "docs/index.md"}),
    ("move_path", "Move a.txt somewhere", {"source": "a.txt", "target": "b.txt"}),
    (
        "edit_file",
        "Substitute 'y' for 'x' in a.md",
        {"path": "a.md", "old_string": "y", "new_string": "x"},
    ),
    ("run_command", "Run me through the code", {"command": "me through the code"}),
]


@pytest.mark.parametrize(("tool", "request_text", "arguments"), ORDERED)
def test_an_order_with_its_values_is_carried_out(
    tool: str, request_text: str, arguments: dict[str, object]
) -> None:
    assert problem(tool, request_text, **arguments) == ""


@pytest.mark.parametrize(("tool", "request_text", "arguments"), NOT_ORDERED)
def test_what_is_not_ordered_or_not_said_is_refused(
    tool: str, request_text: str, arguments: dict[str, object]
) -> None:
    assert problem(tool, request_text, **arguments) != ""


def test_no_tool_that_changes_something_passes_in_300_requests_that_ask_for_no_change() -> None:
    """Whatever was chosen and filled in: the values are all that the request holds."""
    data = yaml.safe_load((REPOSITORY / "evals" / "small_requests.yaml").read_text())
    requests = [text.format(f=f) for text in data["no_change"] for f in data["files"]]
    assert len(requests) >= 300
    called: list[tuple[str, str]] = []
    for request in requests:
        quoted = [a.text for a in Request(request).atoms if a.kind in ("quoted", "path")]
        for name, tool in TOOLS.items():
            slots = read_slots(parameter_schema(spec(tool)))
            texts = iter([*quoted[::-1], *quoted, "x"])
            arguments = {s.name: next(texts, "x") for s in slots if s.kind == "string"}
            if may_change(spec(tool)) and not problem(name, request, **arguments):
                called.append((name, request))
    assert called == []


def test_a_tool_that_declares_nothing_is_judged_by_its_name() -> None:
    def undeclared(name: str) -> ToolSpec:
        return ToolSpec(name, name, "Handle a user.", json.dumps({"type": "object"}))

    assert may_change(undeclared("delete_user"))
    assert may_change(undeclared("deleteUser"))
    assert not may_change(undeclared("get_user"))


@pytest.mark.parametrize(
    ("tool", "request_text", "is_asked"),
    [
        ("add_task", "Should I add a task about the garden?", True),
        ("add_task", "What is there to add", True),
        ("add_task", "Never add that", True),
        ("update_task", "Is task_5 done?", True),
        ("add_task", "Could you add a task to call Anna?", False),
        ("add_task", "Don't let me forget to water the plants", False),
        ("add_task", "What a day. Add a task: call Anna", False),
        ("list_tasks", "What is there to do?", False),
    ],
)
def test_a_question_has_nothing_kept_in_the_session(
    tool: str, request_text: str, is_asked: bool
) -> None:
    offered = ToolSpec(tool, tool, "", "{}", side_effect="none")
    assert is_only_asked_about(offered, Request(request_text)) is is_asked


def test_a_tool_of_no_known_kind_is_ordered_by_its_own_verb() -> None:
    send = ToolSpec("send_mail", "send_mail", "Send a mail.", "{}", side_effect="external")
    assert find_order_for(send, Request("Send 'hello' to Ann"))
    assert not find_order_for(send, Request("Did you send 'hello' to Ann?"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Read a.txt and then delete it", ["Read a.txt", "delete a.txt"]),
        ("1. Read a.txt\n2. Read b.txt", ["Read a.txt", "Read b.txt"]),
        ("Write 'now; then go' to a.txt", ["Write 'now; then go' to a.txt"]),
        ("Search for TODO", ["Search for TODO"]),
    ],
)
def test_a_message_is_cut_where_one_request_ends(text: str, parts: list[str]) -> None:
    assert split_request(text) == parts
