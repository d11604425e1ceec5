"""`ferrule tools check|test|new|promote` and `ferrule validate`: what they print, what they write,
and how they end.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from ferrule.cli.tools.command_to_tool import (
    ParameterWord,
    RecordedCommand,
    find_parameters,
    read_recorded_command,
    render_tool_file,
    suggest_name,
)
from ferrule.cli.validation_report import SCHEMA
from ferrule.core.errors import ConfigError
from ferrule.extensions.tool_files.tool_file import parse_tool
from ferrule.storage import paths
from ferrule.storage.trust import TrustStore

BAD = (
    "---\nparameters: { path: { type: string, required: true } }\nscript: |\n  def run(args):\n  "
    "    return fs.raed(args['pth'])\n---\nBad.\n"
)
SECRET = "ghp_" + "a1B2" * 9


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


# ---- new


def test_a_new_tool_is_valid_and_passes_its_own_tests(ferrule: Any, folder: Path) -> None:
    made = ferrule("tools", "new", "count_words")
    assert (made.code, made.out) == (0, "")
    assert "wrote .ferrule/tools/count_words.md" in made.err
    checked = ferrule("tools", "check", "--strict")
    assert (checked.code, checked.out, checked.err) == (0, "", "1 file, 0 errors, 0 warnings\n")
    tested = ferrule("tools", "test", "count_words")
    assert (tested.code, [line[:4] for line in tested.lines]) == (0, ["ok  ", "ok  ", "ok  "])
    assert "running 3 tests and examples of 1 tool, each in its own empty folder" in tested.err
    assert TrustStore().state(folder) == "untrusted"


def test_a_new_tool_replaces_nothing_and_follows_no_link(
    ferrule: Any, folder: Path, tmp_path: Path
) -> None:
    put(folder, ".ferrule/tools/mine.md", "kept")
    ran = ferrule("tools", "new", "mine")
    assert (ran.code, (folder / ".ferrule/tools/mine.md").read_text()) == (2, "kept")
    assert "exists; nothing was written" in ran.err
    (folder / ".ferrule/tools/link.md").symlink_to(tmp_path / "outside.md")
    assert ferrule("tools", "new", "link").code == 2
    assert not (tmp_path / "outside.md").exists()
    for name in ("../up", "a b", "a/b", ""):
        assert ferrule("tools", "new", name).code == 2, name
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / ".ferrule").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in ferrule("tools", "new", "t", "-C", str(other)).err
    assert list((tmp_path / "elsewhere").iterdir()) == []


# ---- check and test


@pytest.mark.proves("tools-check.exit-codes")
def test_check_says_everything_and_fails(ferrule: Any, folder: Path) -> None:
    put(folder, ".ferrule/tools/bad.md", BAD)
    put(folder, ".ferrule/hooks/h.md", "---\nevents: [tool.pos]\nscript: x\n---\n")
    ran = ferrule("tools", "check")
    assert ran.code == 1
    assert (
        ".ferrule/tools/bad.md:5: error: there is no built-in `fs.raed`; did you mean `fs.read`?"
        in ran.lines
    )
    assert any("`pth`, which is not a parameter" in line for line in ran.lines)
    assert any(line.startswith(".ferrule/hooks/h.md:2:10: error: ") for line in ran.lines)
    assert ran.err == "2 files, 3 errors, 1 warning\n"
    assert [line for line in ferrule("tools", "check", "h").lines if "bad.md" in line] == []
    assert ferrule("tools", "check", "nosuch").code == 2
    assert "did you mean `bad`?" in ferrule("tools", "check", "bed").err


@pytest.mark.proves("tools-check.exit-codes")
def test_warnings_fail_only_if_asked_to(ferrule: Any, folder: Path) -> None:
    put(folder, ".ferrule/tools/t.md", "---\nscript: |\n  def run(args): return 1\n---\n")
    assert ferrule("tools", "check").code == 0
    assert ferrule("tools", "check", "--strict").code == 1


def test_a_file_anywhere_can_be_checked_and_tested_by_its_path(ferrule: Any, folder: Path) -> None:
    put(
        folder,
        "drafts/t.md",
        "---\nscript: |\n  def run(args): return 1\ntests: [{ returns: 2 }]\n---\nx\n",
    )
    assert ferrule("tools", "check", "drafts/t.md").code == 0
    ran = ferrule("tools", "test", "drafts/t.md")
    assert ran.code == 1
    assert ran.lines[0].startswith("FAIL t: test")
    assert "the test returned 1, not 2" in ran.out


def test_a_tool_within_a_bundle_is_found_by_its_name(ferrule: Any, folder: Path) -> None:
    text = (
        "---\nname: b\ndescription: d\ntools:\n  - name: inner\n    description: x\n    script: "
        "|\n      def run(args): return 1\n    tests: [{ returns: 1 }]\n---\n"
    )
    put(folder, ".ferrule/plugins/b.md", text)
    assert ferrule("tools", "test", "inner").out == "ok   inner: test b.md:9:13\n"


def test_a_tool_of_a_folder_that_is_not_trusted_is_named_as_such(
    ferrule: Any, folder: Path
) -> None:
    put(folder, ".ferrule/tools/t.md", "---\nscript: |\n  def run(args): return 1\n---\nx\n")
    ran = ferrule("tools", "call", "t")
    assert ran.code == 2 and "have not trusted yet: `ferrule trust` shows it" in ran.err


def test_broken_json_is_named_by_its_line_in_words_of_json(ferrule: Any, folder: Path) -> None:
    put(folder, ".mcp.json", '{"mcpServers":\n  {"a": 1,}}')
    put(folder, ".ferrule/hooks.json", '{"hooks" []}')
    ran = ferrule("validate")
    # Python 3.13 names the comma, others what comes after it.
    assert re.search(r"^\.mcp\.json:2:1[01]: error: not JSON: ", ran.out, re.MULTILINE)
    assert ".ferrule/hooks.json:1:10: error: not JSON: expecting ':' delimiter" in ran.out


def test_tests_of_files_that_nobody_trusts_run_in_a_folder_of_their_own_and_nothing_else_does(
    ferrule: Any, folder: Path
) -> None:
    script = (
        "  def run(args):\n      fs.write('note.txt', 'theirs')\n      return fs.read('note.txt')\n"
    )
    put(
        folder,
        ".ferrule/tools/t.md",
        f"---\nscript: |\n{script}tests: [{{ returns: theirs }}]\n---\nx\n",
    )
    put(
        folder,
        ".ferrule/hooks.json",
        json.dumps(
            {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch ran"}]}]}}
        ),
    )
    ran = ferrule("tools", "test")
    assert ran.code == 0, ran
    assert (folder / "note.txt").read_text() == "one\ntwo\n"
    assert not (folder / "ran").exists()
    assert TrustStore().state(folder) == "untrusted"


# ---- validate


@pytest.mark.proves("validate.exit-codes")
def test_validate_says_everything_at_once_and_fails(ferrule: Any, folder: Path) -> None:
    put(
        folder,
        ".ferrule/ferrule.yaml",
        "model: 3\njournal: { path: x }\npermissions: { deny: [NoSuchTool] }\n",
    )
    put(folder, ".ferrule/tools/bad.md", BAD)
    put(folder, ".mcp.json", '{"mcpServers": {"a": {"command": "a", "agrs": []}, "b": {}}}')
    ran = ferrule("validate")
    assert ran.code == 1
    for words in (
        "`model` = `3`",
        "cannot be set by a repository",
        "can never match",
        "fs.raed",
        ".mcp.json: error: `a`: unknown key `agrs`; did you mean `args`?",
        ".mcp.json: error: server `b` has neither `command` nor `url`; name one of them",
    ):
        assert words in ran.out
    assert ferrule("validate", "-C", str(folder.parent)).code == 0


@pytest.mark.proves("validate.exit-codes")
def test_validate_finds_nothing_wrong_with_what_init_and_new_write(
    ferrule: Any, folder: Path
) -> None:
    ferrule("init", "--settings-only")
    ferrule("tools", "new", "count_words")
    ran = ferrule("validate", "--strict")
    assert (ran.code, ran.out, ran.err) == (0, "", "2 files, 0 errors, 0 warnings\n")


@pytest.mark.parametrize("words", [["validate"], ["tools", "check"], ["tools", "test"]])
def test_json_fits_the_schema_that_is_shown(words: list[str], ferrule: Any, folder: Path) -> None:
    put(folder, ".ferrule/tools/bad.md", BAD)
    put(
        folder,
        ".ferrule/tools/t.md",
        (
            "---\nscript: |\n  def run(args): return 1\ntests: [{ returns: 1 }, "
            "{ returns: 2 }]\n---\nx\n"
        ),
    )
    assert json.loads(ferrule("validate", "--schema").out) == SCHEMA
    ran = ferrule(*words, "--json")
    shown = json.loads(ran.out)
    jsonschema_rs.validator_for(SCHEMA).validate(shown)
    assert (ran.code, shown["ok"]) == (1, False)
    assert {one["file"] for one in shown["problems"]} == {".ferrule/tools/bad.md"}
    passed = [one["passed"] for one in shown["outcomes"]]
    assert passed == ([True, False] if words[-1] == "test" else [])


# ---- promote


COMMANDS = [
    ["head", "-n", "1", "note.txt"],
    "head -n 1 note.txt",
    ["echo", "--token=abcdef", "x"],
    ["echo", SECRET],
    ["echo", "one two", "src/a.py"],
]


@pytest.fixture
def session(ferrule: Any, folder: Path, script: Any, a_call: Any) -> str:
    """A session in which these commands were run, and one failed."""
    steps = [
        *(a_call("run_command", command=one) for one in (*COMMANDS, ["false"])),
        {"say": "done"},
    ]
    assert ferrule("run", "-q", "-m", script(*steps), "--allow", "run_command", "go").code in (0, 3)
    return json.loads(ferrule("sessions", "list", "--json").out)[0]["session"]


@pytest.mark.parametrize("number", ["1", "2"])
def test_a_command_of_a_session_becomes_a_tool_that_passes_its_tests(
    number: str, ferrule: Any, folder: Path, session: str
) -> None:
    shown = ferrule("tools", "promote", session, number, "--name", "first_lines")
    assert shown.code == 0, shown.err
    assert not (folder / ".ferrule").exists()
    assert "not written; --write" in shown.err
    tool = parse_tool(shown.out.encode(), "first_lines.md")
    assert tool.schema["properties"].keys() == {"n", "path"}
    assert tool.cases[0].asks == {"exec.run": ["head", ["-n", "1", "note.txt"]]}
    assert tool.cases[0].returns == "one\n"
    written = ferrule("tools", "promote", session, number, "--name", "first_lines", "--write")
    assert written.code == 0
    assert (folder / ".ferrule/tools/first_lines.md").read_text() == shown.out
    assert ferrule("tools", "check", "--strict").code == 0
    assert ferrule("tools", "test").code == 0
    TrustStore().trust(folder)
    words = (
        "tools",
        "call",
        "first_lines",
        "n=2",
        "path=note.txt",
        "--allow",
        "first_lines",
        "--allow",
        "run_command",
    )
    assert ferrule(*words).out == "one\ntwo\n"
    assert "would be read as an option" in ferrule(*words[:3], "n=2", "path=--help", *words[5:]).err
    assert (
        ferrule("tools", "promote", session, number, "--name", "first_lines", "--write").code == 2
    )


def test_a_person_chooses_which_words_vary(ferrule: Any, session: str) -> None:
    shown = ferrule("tools", "promote", session, "1", "--param", "count=1")
    assert parse_tool(shown.out.encode(), "t.md").schema["properties"].keys() == {"count"}
    assert (
        "is not a word of the command"
        in ferrule("tools", "promote", session, "1", "--param", "x=gone").err
    )
    assert "is the program" in ferrule("tools", "promote", session, "1", "--param", "x=head").err
    assert ferrule("tools", "promote", session, "1", "--param", "x").code == 2


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("3", "the value of `--token` looks like a secret"),
        ("4", "the argument `command[1]` holds a GitHub token"),
    ],
)
def test_a_command_with_a_secret_becomes_no_file(
    number: str, why: str, ferrule: Any, folder: Path, session: str
) -> None:
    ran = ferrule("tools", "promote", session, number, "--write")
    assert ran.code == 2
    assert f"cannot be written to a file: {why}" in ran.err
    assert SECRET not in ran.out + ran.err
    assert not (folder / ".ferrule").exists()


def test_a_secret_in_the_output_is_left_out(
    ferrule: Any, folder: Path, script: Any, a_call: Any
) -> None:
    put(folder, "page.txt", f"token {SECRET}\n")
    steps = [a_call("run_command", command=["cat", "page.txt"]), {"say": "done"}]
    ferrule("run", "-q", "-m", script(*steps), "--allow", "run_command", "go")
    session = json.loads(ferrule("sessions", "list", "--json").out)[0]["session"]
    ran = ferrule("tools", "promote", session)
    assert ran.code == 0, ran.err
    assert SECRET not in ran.out + ran.err
    assert "the test leaves the output out" in ran.err


def test_where_more_than_one_command_could_be_meant_they_are_listed(
    ferrule: Any, session: str
) -> None:
    ran = ferrule("tools", "promote", session)
    assert ran.code == 2
    assert '1  command=["head", "-n", "1", "note.txt"]' in ran.err
    assert "false" not in ran.err or ferrule("tools", "promote", session, "6").code == 2


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["git", "log", "-n", "5"], {"n": "5"}),
        (["git", "log", "-5"], {"number": "5"}),
        (["git", "log", "--max-count=5", "src/a.py"], {"max_count": "5", "path": "src/a.py"}),
        (["cp", "a.txt", "b.txt"], {"path": "a.txt", "path_2": "b.txt"}),
        (["cp", "a.txt", "a.txt"], {"path": "a.txt"}),
        (["grep", "two words", "."], {"text": "two words"}),
        (["python3", "-c", "print( 1 )"], {}),
        (["make", "all"], {}),
    ],
)
def test_words_that_look_as_if_they_vary_become_parameters(
    words: list[str], made: dict[str, str]
) -> None:
    assert {
        one.name: one.value for one in find_parameters(words, {}) if isinstance(one, ParameterWord)
    } == made


@pytest.mark.parametrize(
    "words",
    [
        ["printf", "%s\\n", 'say "hi" \\ `x` $y', "ü\u2028\x7f\x85\U0001f600\ufeff"],
        ["echo", "---", "a: b", "{x}", "# no comment", "- item"],
        ["tool", "line one\nline two", "-x", "--out=a b.txt", "tab\there"],
    ],
)
async def test_any_words_make_a_file_that_asks_for_the_same_command(words: list[str]) -> None:
    from ferrule.extensions.checks.tool_cases import CaseEnvironment, run_cases
    from ferrule.extensions.checks.tool_file import check_tool

    seen = RecordedCommand(tuple(words), "sub dir", 5000, 'said "so"\n---\n\x85')
    text = render_tool_file(seen, find_parameters(words, {}), with_output=True)
    assert [one for one in await check_tool(text.encode(), "t.md") if one.level == "error"] == []
    ran = await run_cases(parse_tool(text.encode(), "t.md"), CaseEnvironment())
    assert [one.said for one in ran if one.kind == "test"] == [""] * len(
        [one for one in ran if one.kind == "test"]
    )
    assert ran[0].name == "runs the command that was seen"


@pytest.mark.parametrize(
    ("arguments", "data", "said"),
    [
        ({"command": "make"}, "no rule\n[exit status 2]", "did not succeed"),
        ({"command": ["make"]}, {"exit_code": 2, "stdout": ""}, "did not succeed"),
        ({"command": "a | b"}, "", "more than one program"),
        ({"command": "a > b"}, "", "more than one program"),
        ({"command": "a $(b)"}, "", "more than one program"),
        ({"command": "a b", "shell": True}, "", "more than one program"),
    ],
)
def test_only_a_single_command_that_worked_can_become_a_tool(
    arguments: Any, data: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read_recorded_command(arguments, data)


def test_a_tool_is_named_after_its_command() -> None:
    assert suggest_name(find_parameters(["/usr/bin/git", "log", "-5"], {})) == "git_log"
    assert suggest_name(["make"]) == "make"


# ---- what other systems' files say


@pytest.mark.proves("cli.call-shows-prints")
def test_what_a_tool_and_its_hooks_print_is_shown_by_a_call(ferrule: Any, folder: Path) -> None:
    script = "script: |\n  def run(args):\n      print('from the tool')\n      return 1\n"
    put(folder, ".harness/tools/shout.md", f"---\n{script}---\nShout.\n")
    hook = script.replace("run(args)", "handle(event, payload)").replace(
        "return 1", "return allow()"
    )
    hook = hook.replace("from the tool", "from the hook")
    put(folder, ".harness/hooks/watch.md", f"---\nevents: [tool.pre]\n{hook}---\nWatch.\n")
    TrustStore().trust(folder)
    ran = ferrule("tools", "call", "shout", "--allow", "shout")
    assert (ran.code, ran.out) == (0, "1\n")
    assert "from the tool" in ran.err and "from the hook" in ran.err


@pytest.mark.proves("file.foreign-keys")
def test_a_key_of_harness_md_without_effect_is_a_warning(ferrule: Any, folder: Path) -> None:
    put(
        folder, "harness.md", "---\nname: demo\ntools_policy: { deny: [x] }\nmodel: y\n---\nText.\n"
    )
    checked = ferrule("validate")
    assert checked.code == 0
    assert "harness.md:3:1: warning: `tools_policy` of harness.md has no effect" in checked.out
    assert "`permissions`, `tools.allowed` and `tools.denied`" in checked.out
    assert "harness.md:4:1: warning: `model` of harness.md has no effect" in checked.out
    assert "`name`" not in checked.out


def test_validate_reads_the_servers_in_a_persons_own_settings(
    ferrule: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "config", lambda: tmp_path / "own")
    put(
        tmp_path / "own",
        "ferrule.yaml",
        "mcp_servers:\n  - {name: y, url: 'https://e.com', policy: {retry_on: [often]}}\n"
        "  - {name: z, colour: red}\n"
        "a2a_peers:\n  - {name: p, url: 'https://e.com', policy: {max_attempts: 0}}\n",
    )
    checked = ferrule("validate")
    own = tmp_path / "own/ferrule.yaml"
    assert checked.code == 1
    assert f"{own}: error: mcp_servers: `y`: `policy`: `retry_on`: found `often`" in checked.out
    assert f"{own}: warning: mcp_servers: `z`: " in checked.out
    assert f"{own}: error: a2a_peers: `p`: `policy`" in checked.out
