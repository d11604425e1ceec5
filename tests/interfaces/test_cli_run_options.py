"""What a person asks of a run on the command line: tools that must succeed, how calls are joined,
how often they are tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

READ = {"tool": "read_file", "arguments": {"path": "note.txt"}}
LIST = {"tool": "file_tree", "arguments": {"path": "."}}


def step(*made: dict[str, Any]) -> dict[str, Any]:
    return {"call": list(made)}


@pytest.mark.parametrize(
    ("did", "code", "missing"),
    [
        ([READ, LIST], 0, []),
        ([READ], 3, [["file_tree", "search_files"]]),
        ([], 3, [["read_file"], ["file_tree", "search_files"]]),
    ],
)
def test_a_run_that_did_not_do_what_it_must_says_so_and_ends_with_3(
    ferrule: Any,
    folder: Path,
    script: Callable[..., str],
    did: list[dict[str, Any]],
    code: int,
    missing: Any,
) -> None:
    required = ("--require-tool", "read_file", "--require-tool", "file_tree|search_files")
    steps = [step(*did), {"say": "All done."}] if did else [{"say": "All done."}]
    ran = ferrule("run", "-m", script(*steps), *required, "--allow", "Read", "--json", "go")
    made = json.loads(ran.out)
    page = Path(__file__).parents[2] / "docs/command-line.md"
    table = page.read_text(encoding="utf-8").partition("<!-- keys of --json -->")[2]
    listed = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n`--json-stream`")[0], re.MULTILINE)
    assert [key for key in listed if key != "output"] == list(made)
    assert (ran.code, made["missing"], made["stop"]) == (
        code,
        missing,
        "failed" if missing else "done",
    )
    assert made["text"] == "All done." and made["error"] is None
    ran = ferrule("run", "-m", script(*steps), *required, "--allow", "Read", "go")
    assert (ran.code, ran.out) == (code, "All done.\n")
    assert ("! not done: " in ran.err) is bool(missing)
    assert ("`file_tree` or `search_files` never succeeded" in ran.err) is bool(missing)


def test_the_setting_has_the_name_that_people_know_and_an_unknown_tool_is_an_error(
    ferrule: Any, folder: Path, own_folders: Path, script: Callable[..., str]
) -> None:
    (own_folders / "config").mkdir()
    file = own_folders / "config/ferrule.yaml"
    file.write_text("require_successful_tools: [read_file]\n")
    assert ferrule("run", "-m", script({"say": "Done."}), "go").code == 3
    file.write_text("require_successful_tools: [read_fil]\n")
    ran = ferrule("run", "-m", script({"say": "Done."}), "go")
    assert ran.code == 2 and "there is no tool `read_fil`" in ran.err and "`read_file`" in ran.err


def test_the_calls_of_a_run_are_joined_as_the_option_says(
    ferrule: Any, folder: Path, script: Callable[..., str]
) -> None:
    # Two calls that write one file are made in their order: the second is not needed after the
    # first.
    twice = [
        {"tool": "write_file", "arguments": {"path": "a.txt", "content": text}}
        for text in ("one", "two")
    ]
    steps = (step(*twice), {"say": "Done."})
    ran = ferrule(
        "run",
        "-m",
        script(*steps),
        "--join",
        "first_success",
        "--mode",
        "acceptEdits",
        "--json",
        "go",
    )
    assert [one["error_type"] for one in json.loads(ran.out)["results"]] == ["none", "cancelled"]
    assert (folder / "a.txt").read_text() == "one"
    ran = ferrule("run", "-m", script(*steps), "--join", "any", "go")
    assert ran.code == 2 and "join = 'any'" in ran.err and "first_success" in ran.err


def test_policies_of_tools_that_are_not_there_are_pointed_out_and_wrong_ones_are_errors(
    ferrule: Any, folder: Path, own_folders: Path, script: Callable[..., str]
) -> None:
    (own_folders / "config").mkdir()
    file = own_folders / "config/ferrule.yaml"
    file.write_text("tools: {tool_policies: {read_fil: {max_attempts: 2}}}\n")
    ran = ferrule("run", "-m", script({"say": "Done."}), "go")
    assert ran.code == 0 and "the settings name a tool `read_fil`, and there is none" in ran.err
    file.write_text("tools: {policy: {retry_on: [sometimes]}}\n")
    ran = ferrule("run", "-m", script({"say": "Done."}), "go")
    assert ran.code == 2 and "found `sometimes`" in ran.err
    assert "transient, timeout, 5xx, permanent" in ran.err
