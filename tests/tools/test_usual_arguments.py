"""Arguments under names that models know from other tools."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule import tool
from ferrule.toolkits import commands
from ferrule.toolkits.files import browse
from ferrule.toolkits.files.tools import TOOLS as FILE_TOOLS
from ferrule.toolkits.files.tools import read_file
from ferrule.toolkits.model_family_tools.anthropic import bash
from ferrule.toolkits.search.search_files import TOOLS as SEARCH_TOOLS
from ferrule.tools.definition import Tool
from ferrule.tools.usual_arguments import USUAL_NAMES, accept_usual_arguments

TOOLS: dict[str, Tool] = {
    made.name: made for made in (*FILE_TOOLS, *browse.TOOLS, *SEARCH_TOOLS, *commands.TOOLS)
} | {"bash": accept_usual_arguments(bash)}


@pytest.mark.parametrize(
    ("name", "sent", "taken"),
    [
        ("read_file", {"file_path": "a"}, {"path": "a"}),
        ("read_file", {"path": "a", "start_line": 3, "end_line": 5}, {"line_start": 3}),
        ("read_file", {"path": "a", "offset": 10, "limit": 5}, {"line_start": 10, "line_end": 14}),
        ("read_file", {"path": "a", "offset": 0}, {"line_start": 1}),
        ("edit_file", {"path": "a", "old_str": "x", "new_str": "y"}, {"old_string": "x"}),
        ("edit_file", {"path": "a", "search": "x", "replace": "y"}, {"new_string": "y"}),
        ("write_file", {"filename": "a", "text": "b"}, {"path": "a", "content": "b"}),
        ("run_command", {"cmd": "ls", "workdir": "src"}, {"command": "ls", "cwd": "src"}),
        ("run_command", {"command": "x", "run_in_background": True}, {"background": True}),
        ("run_command", {"command": "x", "description": "Say why"}, {"command": "x"}),
        ("search_files", {"query": "x", "include": "*.py"}, {"pattern": "x"}),
        ("move_path", {"from": "a", "to": "b"}, {"source": "a", "target": "b"}),
        ("bash", {"command": "npm start &", "run_in_background": True}, {"command": "npm start &"}),
        ("bash", {"command": "npm start", "run_in_background": True}, {"command": "npm start &"}),
        ("bash", {"command": "npm test", "timeout": 120000}, {"command": "npm test"}),
        ("run_command", {"command": "x", "timeout_ms": 120000}, {"timeout": 120.0}),
        ("run_command", {"command": "x", "timeout": 120000}, {"timeout": 120.0}),
        ("run_command", {"command": ["bash", "-lc", "a | b"]}, {"command": "a | b"}),
        ("search_files", {"pattern": "x", "output_mode": "content", "-n": True}, {"pattern": "x"}),
    ],
)
def test_a_usual_name_costs_a_note_and_no_turn(
    name: str, sent: dict[str, Any], taken: dict[str, Any]
) -> None:
    checked = TOOLS[name].arguments.check(sent)
    assert checked.problems == []
    assert {key: checked.values[key] for key in taken} == taken
    assert checked.repairs and all(len(note) < 90 for note in checked.repairs)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("read_file", {"path": "a", "file_path": "b"}),
        ("read_file", {"file_path": "a", "filename": "b"}),
        ("read_file", {"path": "a", "line_start": 1, "offset": 4}),
        ("read_file", {"path": "a", "offset": "4"}),
        ("write_file", {"path": "a", "content": "b", "mode": "a"}),
        ("run_command", {"command": "ls", "explanation": 3}),
    ],
)
def test_what_could_mean_two_things_is_refused(name: str, sent: dict[str, Any]) -> None:
    assert TOOLS[name].arguments.check(sent).problems


def test_the_models_see_the_same_schema_and_own_tools_of_a_person_stay_strict() -> None:
    shown = TOOLS["read_file"].arguments.schema["properties"]
    assert not set(shown) & {other for others in USUAL_NAMES.values() for other in others}
    assert read_file.arguments.schema == TOOLS["read_file"].arguments.schema

    @tool
    def fetch(path: str) -> str:
        """Fetch."""
        return path

    assert fetch.arguments.check({"file_path": "a"}).problems
