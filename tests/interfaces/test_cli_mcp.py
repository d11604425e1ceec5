"""`ferrule mcp`: servers are written down, looked at, approved, and asked again when they
changed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

PYTHON = str(Path(sys.executable).resolve())
"""The interpreter itself: a shim of a version manager looks into the home, which tests replace."""
SERVER = Path(__file__).parent.parent / "connectors/mcp/plain_server.py"


@pytest.fixture
def server(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plain server in the folder, and the person's own folders empty."""
    monkeypatch.setenv("FERRULE_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    shutil.copy(SERVER, folder)
    return folder


def add(ferrule: Any) -> None:
    ran = ferrule("mcp", "add", "plain", "--", PYTHON, "plain_server.py", "new", "good")
    assert ran.code == 0 and "ferrule mcp approve plain" in ran.err


def test_a_server_is_added_approved_tested_and_revoked(ferrule: Any, server: Path) -> None:
    add(ferrule)
    assert ferrule("mcp", "list").lines == [
        f"plain  person      not approved  {PYTHON} plain_server.py new good"
    ]
    assert ferrule("mcp", "test", "plain").code == 4
    ran = ferrule("mcp", "approve", "plain", "--yes")
    assert ran.code == 0 and "program     " in ran.err and "\ntool echo\n" in ran.err
    assert json.loads(ferrule("mcp", "list", "--json").out)[0]["state"] == "approved"
    ran = ferrule("mcp", "test", "plain")
    assert ran.code == 0 and ran.lines[0] == "plain: speaks 2026-07-28; 3 tools"
    assert "nothing changed" in ferrule("mcp", "approve", "plain").err
    ferrule("mcp", "revoke", "plain")
    assert "not approved" in ferrule("mcp", "list").out


def test_without_a_person_nothing_is_approved_or_started(ferrule: Any, server: Path) -> None:
    add(ferrule)
    ran = ferrule("mcp", "approve", "plain")
    assert ran.code == 7 and "needs a confirmation" in ran.err
    assert not (server / "seen.jsonl").exists()


def test_a_change_is_shown_as_a_difference_and_waits(ferrule: Any, server: Path) -> None:
    add(ferrule)
    ferrule("mcp", "approve", "plain", "--yes")
    (server / "behaviour.txt").write_text("rug-pull")
    ran = ferrule("mcp", "approve", "plain")
    assert ran.code == 7 and "id_rsa" in ran.err
    changed = [line for line in ran.err.splitlines() if line.startswith(("+", "-"))]
    assert changed[2] == "-  Says what it was told."
    assert all(line.startswith("+  Says what it was told. Before that") for line in changed[3:])
    assert len(changed) == 4


def test_a_folders_servers_wait_for_trust_and_then_for_approval(ferrule: Any, server: Path) -> None:
    entry = {"command": PYTHON, "args": ["plain_server.py", "old", "good"]}
    (server / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}))
    ran = ferrule("mcp", "list")
    assert ran.out == "" and "is not trusted" in ran.err
    ferrule("trust", "--yes")
    assert ferrule("mcp", "list").lines == [
        f"theirs  repository  not approved  {PYTHON} plain_server.py old good"
    ]
    assert ferrule("mcp", "approve", "theirs", "--yes").code == 0
    assert "tool echo" in ferrule("mcp", "show", "theirs").out


def test_a_name_that_is_not_there_is_said_with_the_nearest(ferrule: Any, server: Path) -> None:
    add(ferrule)
    ran = ferrule("mcp", "show", "plane")
    assert ran.code == 2 and "did you mean `plain`?" in ran.err


def test_a_server_that_cannot_be_meant_is_not_written_down(ferrule: Any, server: Path) -> None:
    ran = ferrule("mcp", "add", "docs", "--url", "http://example.com/mcp")
    assert ran.code == 2 and "in the clear" in ran.err
    assert ferrule("mcp", "list").out == ""


@pytest.mark.proves("reliability.policy-checked")
@pytest.mark.parametrize("kind", ["mcp", "a2a"])
def test_no_run_begins_with_a_policy_that_cannot_be_read(
    ferrule: Any, server: Path, tmp_path: Path, kind: str
) -> None:
    entry = {"policy": {"retry_on": ["always"]}}
    config = tmp_path / "config"
    config.mkdir(exist_ok=True)
    if kind == "mcp":
        other = {"command": PYTHON, "unknown": 1}
        named = {"plain": {"command": PYTHON, **entry}, "other": other}
        (config / "mcp.json").write_text(json.dumps({"mcpServers": named}))
    else:
        named = {"plain": {"url": "https://agent.example", **entry}}
        (config / "ferrule.yaml").write_text(json.dumps({"a2a_peers": named}))
    ran = ferrule("tools", "list")
    assert ran.code == 2
    assert "`plain`: `policy`: `retry_on`: found `always`" in ran.err
    assert "unknown key" not in ran.err
    listed = ferrule(kind, "list")
    assert listed.code != 2
    assert "found `always`" in listed.err


def test_servers_of_other_programs_are_imported_and_approved_from_one_table(
    ferrule: Any, server: Path, tmp_path: Path
) -> None:
    home = Path.home()
    # They get more than commands have, so commands may not be able to change their program.
    place = tmp_path / "programs"
    place.mkdir()
    program = shutil.copy(SERVER, place)
    block = {
        "command": f"{PYTHON} {program} new good",
        "alwaysAllow": ["echo"],
        "readable": [str(place)],
    }
    entries = {
        "one": block,
        "two": {**block, "env": {"ZONE": "UTC"}},
        "off": {**block, "disabled": True},
    }
    (home / ".claude.json").write_text(json.dumps({"mcpServers": entries}))
    asked = ferrule("mcp", "import", "claude-code", "--network", "example.com")
    assert asked.code == 7 and not (server / "seen.jsonl").exists()
    assert "\none:\n" in asked.err and "hosts       example.com" in asked.err
    assert "variables   ZONE" in asked.err and "off: switched off" in asked.err
    assert asked.err.count("`alwaysAllow` is not taken over") == 2
    # Who left the question is asked again by the same command.
    ran = ferrule("mcp", "import", "--yes")
    assert ran.code == 0 and ran.err.count("✓ ") == 2 and "echo" in ran.err
    states = {row["name"]: row["state"] for row in json.loads(ferrule("mcp", "list", "--json").out)}
    assert states == {"one": "approved", "two": "approved"}
    again = ferrule("mcp", "import")
    assert "you have a server of that name already" in again.err
    assert again.err.endswith("no MCP server waits for approval\n")
    assert ferrule("mcp", "approve").err.endswith("no MCP server waits for approval\n")


def test_a_server_that_does_not_start_says_its_last_words_and_the_others_are_approved(
    ferrule: Any, server: Path
) -> None:
    add(ferrule)
    script = "import sys; print('no such licence', file=sys.stderr); sys.exit(3)"
    ferrule("mcp", "add", "broken", "--", PYTHON, "-c", script)
    ran = ferrule("mcp", "approve", "--yes")
    assert ran.code == 1 and "✓ plain" in ran.err and "no such licence" in ran.err


def test_adding_to_a_file_that_is_broken_names_the_place_and_changes_nothing(
    ferrule: Any, server: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config/mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"mcpServers": {,}}')
    ran = ferrule("mcp", "add", "git", "--", "mcp-server-git")
    assert ran.code == 2 and "mcp.json:1:17: not JSON: " in ran.err
    assert file.read_text() == '{"mcpServers": {,}}'


def test_a_server_that_keeps_silent_is_given_up_with_its_last_words(
    ferrule: Any, server: Path, tmp_path: Path
) -> None:
    script = (
        "import sys, time; print('waiting for a key', file=sys.stderr, flush=True); time.sleep(60)"
    )
    ferrule("mcp", "add", "slow", "--", PYTHON, "-c", script)
    file = tmp_path / "config/mcp.json"
    content = json.loads(file.read_text())
    content["mcpServers"]["slow"] |= {"connect_timeout": 3, "era": "2025-11-25"}
    file.write_text(json.dumps(content))
    ran = ferrule("mcp", "approve", "slow", "--yes")
    assert ran.code == 2 and "did not answer within 3 s; it said last: waiting for a key" in ran.err
    assert "  │ slow: waiting for a key" in ran.err


def test_a_good_start_is_one_line_and_none_when_quiet(
    ferrule: Any, server: Path, script: Any
) -> None:
    for name in ("one", "two", "three"):
        ferrule("mcp", "add", name, "--", PYTHON, "plain_server.py", "new", "good")
    ran = ferrule("run", "-m", script({"say": "ok"}), "go")
    assert [line for line in ran.err.splitlines() if "MCP" in line or "server" in line] == [
        "! 3 MCP servers are not used, because nobody approved them: `one`, `two`, `three`; "
        "`ferrule mcp approve` shows what they would get"
    ]
    assert ferrule("mcp", "approve", "--yes").code == 0
    ran = ferrule("run", "-m", script({"say": "ok"}), "go")
    lines = [line for line in ran.err.splitlines() if "MCP" in line or "server" in line]
    assert len(lines) == 1 and "`one`, `two`, `three`, 12 tools" in lines[0]
    ran = ferrule("run", "-q", "-m", script({"say": "ok"}), "go")
    assert "MCP" not in ran.err and "server" not in ran.err


def test_a_server_works_where_its_entry_says(ferrule: Any, server: Path, tmp_path: Path) -> None:
    (server / "sub").mkdir()
    (server / "plain_server.py").rename(server / "sub/plain_server.py")
    add(ferrule)
    file = tmp_path / "config/mcp.json"
    content = json.loads(file.read_text())
    content["mcpServers"]["plain"]["cwd"] = "sub"
    file.write_text(json.dumps(content))
    ran = ferrule("mcp", "approve", "plain", "--yes")
    assert ran.code == 0 and (server / "sub/seen.jsonl").exists()
    content["mcpServers"]["plain"]["cwd"] = "gone"
    file.write_text(json.dumps(content))
    assert "cannot work in" in ferrule("mcp", "approve", "plain", "--yes").err


OLD_SERVER = r"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "server/discover":
        for number in range(30):
            print(f"{'Failed to validate request' if not number else 'field'}: {number}", file=sys.stderr)
        sys.stderr.flush()
        answer = {"error": {"code": -32602, "message": "Invalid request parameters"}}
    elif asked["method"] == "initialize" and sys.argv[1:] == ["dies"]:
        sys.exit(3)
    elif asked["method"] == "initialize":
        answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "old", "version": "1"}}}
    elif asked["method"] == "tools/list":
        answer = {"result": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def test_a_complaint_about_the_newer_first_question_is_not_shown(
    ferrule: Any, server: Path
) -> None:
    (server / "old_server.py").write_text(OLD_SERVER)
    ferrule("mcp", "add", "old", "--", PYTHON, "old_server.py")
    ran = ferrule("mcp", "approve", "old", "--yes")
    assert ran.code == 0 and "\ntool look\n" in ran.err
    assert "Failed to validate" not in ran.err and "field: 7" not in ran.err


def test_a_complaint_is_in_the_error_of_a_server_that_does_not_start(
    ferrule: Any, server: Path
) -> None:
    (server / "old_server.py").write_text(OLD_SERVER)
    ferrule("mcp", "add", "old", "--", PYTHON, "old_server.py", "dies")
    ran = ferrule("mcp", "approve", "old", "--yes")
    assert ran.code == 2 and "field: 29" in ran.err


def test_a_program_that_a_server_does_not_see_is_opened_for_it_alone(
    ferrule: Any, server: Path, tmp_path: Path
) -> None:
    program = tmp_path / "elsewhere/bin/server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    ferrule("mcp", "add", "far", "--", str(program))
    ran = ferrule("mcp", "approve", "far", "--yes")
    opened = f'`"readable": ["{program.parent.parent}"]` in the entry of server `far`'
    assert ran.code == 2 and opened in ran.err and "sandbox:" not in ran.err


def test_a_server_is_removed_with_its_approval_and_can_be_added_again(
    ferrule: Any, server: Path
) -> None:
    add(ferrule)
    ferrule("mcp", "approve", "plain", "--yes")
    ran = ferrule("mcp", "add", "plain", "--", PYTHON)
    assert ran.code == 2 and "`ferrule mcp remove plain`" in ran.err
    assert ferrule("mcp", "remove", "plain").code == 0
    assert ferrule("mcp", "list").out == ""
    add(ferrule)
    assert "not approved" in ferrule("mcp", "list").out


def test_an_entry_that_cannot_be_read_is_removed(
    ferrule: Any, server: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config/mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"mcpServers": {"odd": {"comand": "x"}}}')
    assert ferrule("mcp", "remove", "odd").code == 0
    assert json.loads(file.read_text()) == {"mcpServers": {}}


def test_a_server_of_the_repository_is_not_removed_and_its_place_is_named(
    ferrule: Any, server: Path
) -> None:
    (server / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": {"command": PYTHON}}}))
    ferrule("trust", "--yes")
    ran = ferrule("mcp", "remove", "theirs")
    assert ran.code == 2 and "in the repository" in ran.err
