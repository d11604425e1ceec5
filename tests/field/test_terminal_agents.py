"""What users of other terminal agents reported, tried on ours: `reports/agents.yaml` names each.

A model that says what a script tells it works in a folder, with the tools that ship.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ferrule.cli.root import ferrule
from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.events import CallEvaluated, ToolAnswered
from ferrule.runtime.assemble import assemble
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.journal.sqlite import SqliteJournal


async def _work(options: dict[str, Any]) -> list[ToolResult]:
    with SqliteJournal(Path(options["workspace"]).with_name("journal.db")) as journal:
        assembly = assemble(options, notice=lambda _: None, journal=journal)
        try:
            session = assembly.agent.session()
            await session.run("go")
            await assembly.close_session(session)
            events = [record.event for record in journal.records(session.id)]
        finally:
            await assembly.close()
    results = (event.result for event in events if isinstance(event, ToolAnswered | CallEvaluated))
    return [result for result in results if result is not None]


Act = Callable[..., list[ToolResult]]


@pytest.fixture
def act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Act:
    """Make these calls, each in an answer of its own, and return their results."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FERRULE_CONFIG", str(home / ".config/ferrule"))
    if not available_backends(SandboxPolicy(work), probe()):
        pytest.skip(f"this machine confines no commands: {dict(probe().why)}")

    def act(
        *made: tuple[str, dict[str, Any]],
        deny: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None,
        folder: str = "work",
        profile: str = "all",
    ) -> list[ToolResult]:
        steps: list[dict[str, Any]] = [
            {"call": [{"tool": tool, "arguments": arguments, "id": f"c{number}"}]}
            for number, (tool, arguments) in enumerate(made)
        ]
        if settings:
            own = home / ".config/ferrule/ferrule.yaml"
            own.parent.mkdir(parents=True)
            own.write_text(json.dumps(settings))
        script = tmp_path / "script.yaml"
        script.write_text(json.dumps([*steps, {"say": "done"}]))
        options = {
            "workspace": str(tmp_path / folder),
            "model": f"scripted:{script}",
            "mode": "sandboxed",
            "permissions__deny": list(deny),
            "tools__profile": profile,
        }
        return asyncio.run(_work(options))

    return act


def run(command: str) -> tuple[str, dict[str, Any]]:
    """Return the call that runs a command."""
    return "run_command", {"command": command}


GPT = {"tools": {"shapes": "gpt"}}
"""Settings that offer `apply_patch`, in the profile `coding`."""


def patch(*lines: str) -> tuple[str, dict[str, Any]]:
    """Return the call that applies a patch of these lines."""
    return "apply_patch", {"patch": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


def test_jobs_in_the_background_of_a_command_end_with_it(act: Act) -> None:
    (result,) = act(run("for i in 1 2 3; do sleep 6071 & done; echo started"))
    assert result.success and "started" in str(result.data)
    assert "6071" not in subprocess.check_output(["ps", "-eo", "args"], text=True)


def test_a_command_that_reads_its_input_finds_its_end(act: Act) -> None:
    began = time.monotonic()
    (result,) = act(run("cat; grep x; echo over"))
    assert "over" in str(result.data) and time.monotonic() - began < 60


def test_a_change_of_folder_before_pipes_is_no_reason_to_hang(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/sub").mkdir()
    (tmp_path / "work/sub/a.txt").write_text("one\ntwo\n")
    (result,) = act(run("cd sub && grep -c one a.txt | wc -l && grep -c two a.txt | wc -l"))
    assert result.success and str(result.data).split()[:2] == ["1", "1"]


def test_text_that_is_piped_into_a_program_arrives_and_ends(act: Act) -> None:
    (result,) = act(run("cat <<'EOF' | env sh -c 'cat; echo end'\nmany\nlines\nEOF"))
    assert str(result.data).split() == ["many", "lines", "end"]


def test_an_edit_keeps_windows_line_ends(act: Act, tmp_path: Path) -> None:
    file = tmp_path / "work/a.js"
    file.write_bytes(b"let a = 1;\r\nlet b = 2;\r\nlet c = 3;\r\n")
    edit = {
        "path": "a.js",
        "old_string": "let a = 1;\nlet b = 2;",
        "new_string": "let a = 5;\nlet b = 6;",
    }
    read, edited = act(("read_file", {"path": "a.js"}), ("edit_file", edit))
    assert read.success and edited.success
    assert file.read_bytes() == b"let a = 5;\r\nlet b = 6;\r\nlet c = 3;\r\n"


def test_an_edit_changes_no_other_line_end_of_a_mixed_file(act: Act, tmp_path: Path) -> None:
    file = tmp_path / "work/a.txt"
    file.write_bytes(b"one\r\ntwo\nthree\r\nfour\r\n")
    (edited,) = act(("edit_file", {"path": "a.txt", "old_string": "three", "new_string": "3"}))
    assert edited.success and file.read_bytes() == b"one\r\ntwo\n3\r\nfour\r\n"


def test_a_file_in_utf_16_ends_nothing(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/a.txt").write_text("grüße\n", encoding="utf-16")
    read, other = act(("read_file", {"path": "a.txt"}), run("echo on"))
    assert "grüße" in str(read.data) or "UTF-16" in str(read.error_message)
    assert str(other.data).strip() == "on"


def test_a_failure_that_is_the_programs_own_is_not_put_on_the_sandbox(act: Act) -> None:
    (result,) = act(run("bash -c false"))
    assert result.exit_status == 1
    assert "sandbox" not in f"{result.data} {result.error_message} {result.notes}".casefold()


def test_git_add_and_commit_work_in_the_sandbox(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/a.txt").write_text("a\n")
    subprocess.run(["git", "init", "-q", tmp_path / "work"], check=True)
    made = act(
        run("git add . && git -c user.name=A -c user.email=a@b.example commit -qm one"),
        run("git log --oneline | wc -l"),
    )
    assert made[0].exit_status in (0, None) and str(made[1].data).split()[0] == "1", made


def test_a_denied_file_is_not_written_by_a_command_either(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/kept.txt").write_text("mine\n")
    made = act(
        ("write_file", {"path": "kept.txt", "content": "yours\n"}),
        run("echo yours > kept.txt"),
        run('python3 -c \'open("kept.txt", "w").write("yours")\''),
        run("sed -i s/mine/yours/ kept.txt"),
        deny=("Edit(kept.txt)",),
    )
    assert (tmp_path / "work/kept.txt").read_text() == "mine\n"
    assert not made or not any(one.success and not one.exit_status for one in made)


def test_a_file_outside_is_not_read_without_a_question(act: Act, tmp_path: Path) -> None:
    (tmp_path / "home/key.txt").write_text("the key\n")
    made = act(
        ("read_file", {"path": str(tmp_path / "home/key.txt")}), run(f"cat {tmp_path}/home/key.txt")
    )
    assert not any("the key" in str(one.data) for one in made)


def test_lines_that_a_patch_only_adds_go_where_its_context_says(act: Act, tmp_path: Path) -> None:
    file = tmp_path / "work/a.py"
    file.write_text("def one():\n    pass\n\n\ndef two():\n    pass\n")
    *_, made = act(
        patch("*** Update File: a.py", "@@ def one():", "+    # first"),
        settings=GPT,
        profile="coding",
    )
    text = file.read_text()
    assert made.tool == "apply_patch" and made.error_type in (
        ErrorType.NONE,
        ErrorType.NOT_FOUND,
    ), made
    assert not made.success or text.index("# first") < text.index("def two")


def test_a_login_shell_that_is_not_posix_changes_no_command(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    (result,) = act(run("cat <<EOF\n$((1 + 2))\nEOF"))
    assert str(result.data).strip() == "3"


def add_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put `greet` on the person's PATH, which says hello."""
    own = tmp_path / "work/bin"
    own.mkdir()
    (own / "greet").write_text("#!/bin/sh\necho hello\n")
    (own / "greet").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:/usr/bin:/bin")


def test_programs_of_a_persons_own_path_are_found(
    act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_own_program(tmp_path, monkeypatch)
    (result,) = act(run("greet"))
    assert str(result.data).strip() == "hello"


def test_a_session_leaves_nothing_of_its_own_in_the_folder(act: Act, tmp_path: Path) -> None:
    act(run("true"), ("read_file", {"path": "missing.txt"}))
    assert list((tmp_path / "work").iterdir()) == []


def test_a_large_file_is_read_in_part_and_says_how_to_go_on(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/big.log").write_text("a line of a log that never ends\n" * 40_000)
    read, rest = act(
        ("read_file", {"path": "big.log"}),
        ("read_file", {"path": "big.log", "start_line": 39_999}),
    )
    assert read.success and read.size < 70_000 and "40000" in str(read.data).replace(",", "")
    assert "go on at line" in str(read.data)
    assert rest.success and "39999" in str(rest.data)


def test_one_line_of_megabytes_is_read_in_part(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/one.xml").write_text("<a>" + "x" * 3_000_000 + "</a>")
    read, other = act(("read_file", {"path": "one.xml"}), run("echo on"))
    assert len(str(read.data)) < 70_000 and str(other.data).strip() == "on"


def test_a_folder_that_is_opened_for_reading_can_only_be_read_by_commands(
    act: Act, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "a.txt").write_text("the document\n")
    command = run(f"cat {shared}/a.txt; echo changed > {shared}/a.txt")
    (result,) = act(command, settings={"sandbox": {"readable": [str(shared)]}})
    assert "the document" in str(result.data) and result.exit_status == 1
    assert (shared / "a.txt").read_text() == "the document\n"


def test_a_skill_of_the_persons_home_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = tmp_path / ".claude/skills/greet/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    shown = CliRunner().invoke(ferrule, ["skills", "list", "-C", str(work)])
    assert re.search("^greet +person +How to greet", shown.output, re.MULTILINE), shown.output


def test_every_session_is_listed_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FERRULE_STATE", str(tmp_path / "state"))
    (tmp_path / "script.yaml").write_text('- {say: "hi"}\n')
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        script = f"scripted:{tmp_path / 'script.yaml'}"
        assert CliRunner().invoke(ferrule, ["run", "-m", script, f"m{number}"]).exit_code == 0
        listed = CliRunner().invoke(ferrule, ["sessions", "list"]).output
        assert [f"m{one}" in listed for one in range(number + 1)] == [True] * (number + 1)


def test_a_process_search_finds_no_shell_of_ours(act: Act) -> None:
    made = act(run("sleep 6072 &"), run("pkill -f 'sleep 6072'; pgrep -f 'sleep 6072'; echo on"))
    assert str(made[1].data).endswith("\non\n") and "was killed" in str(made[1].data), made[1]


def test_a_job_is_ended_by_its_number_in_the_line_that_started_it(act: Act) -> None:
    (result,) = act(run("sleep 6073 & sleep 0; kill %1 && echo ended"))
    assert str(result.data).split() == ["ended"]
    assert "6073" not in subprocess.check_output(["ps", "-eo", "args"], text=True)


def test_a_login_shell_that_a_model_asks_for_keeps_the_path(
    act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_own_program(tmp_path, monkeypatch)
    (result,) = act(("run_command", {"command": ["bash", "-lc", "greet | cat"]}))
    assert str(result.data).split()[0] == "hello"


def test_a_server_that_was_started_in_the_background_is_there_afterwards(act: Act) -> None:
    # An interpreter that needs nothing of the person's home.
    serve = "/usr/bin/python3 -m http.server 18765 --bind 127.0.0.1 &"
    _, asked, ended, on = act(
        run(serve),
        run(
            "for i in $(seq 50); do curl -sf http://127.0.0.1:18765/ >/dev/null && break;"
            " sleep 0.1; done; echo answers"
        ),
        run("kill %1"),
        run("echo on"),
    )
    assert "answers" in str(asked.data) and "was killed" in str(ended.data)
    assert str(on.data).strip() == "on"


def test_no_process_of_the_person_can_be_ended(act: Act) -> None:
    other = subprocess.Popen(["sleep", "6074"])
    try:
        act(run("pkill sleep; pkill -f 'sleep 6074'; killall sleep; kill -9 $PPID; echo on"))
        assert other.poll() is None
        (last,) = act(run(f"kill -9 {other.pid}; exec true"))
        assert other.poll() is None and last is not None
    finally:
        other.kill()
        other.wait()


def test_an_edit_after_a_formatter_says_what_to_read_and_works_then(
    act: Act, tmp_path: Path
) -> None:
    file = tmp_path / "work/a.py"
    file.write_text("a=1\nb=2\nc=3\n")
    edit = ("edit_file", {"path": "a.py", "old_string": "c=3", "new_string": "c = 3"})
    _, _, refused, _, edited = act(
        ("read_file", {"path": "a.py"}),
        run("sed -i s/a=1/a\\ =\\ 1/ a.py"),
        edit,
        ("read_file", {"path": "a.py", "line_start": 1, "line_end": 23}),
        edit,
    )
    assert "this edit would still fit, at line 3; call `read_file`" in str(refused.error_message)
    assert edited.success and file.read_text() == "a = 1\nb=2\nc = 3\n"


def test_an_edit_that_misses_shows_what_is_there(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/a.py").write_text("def total(self):\n    return sum(self.lines)\n")
    edit = {"path": "a.py", "old_string": "    return sum(lines)", "new_string": "    return 0"}
    (missed,) = act(("edit_file", edit))
    assert not missed.success and "return sum(self.lines)" in str(missed.error_message)


def test_a_call_that_fails_in_the_same_way_again_and_again_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    edit = {"path": "a.py", "old_string": "y = 2", "new_string": "y = 3"}
    steps = [{"call": [{"tool": "edit_file", "arguments": edit}]}] * 60
    (tmp_path / "s.yaml").write_text(json.dumps([*steps, {"say": "done"}]))
    words = ["run", "-m", f"scripted:{tmp_path / 's.yaml'}", "--mode", "acceptEdits", "go"]
    ended = CliRunner().invoke(ferrule, words)
    assert 1 <= ended.output.count("edit_file a.py") < 10, ended.output


@pytest.mark.parametrize("rule", ["Bash(mkdir*)", "Bash(mkdir", "Bash(1 <<'JSON'"])
def test_a_rule_that_cannot_be_read_is_named_and_loosens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FERRULE_CONFIG", str(tmp_path / "config"))
    work = tmp_path / "work"
    for folder in (work, tmp_path / "config"):
        folder.mkdir()
    monkeypatch.chdir(work)
    permissions = {"permissions": {"allow": [rule], "deny": ["Read(secret.txt)"]}}
    (tmp_path / "config/ferrule.yaml").write_text(json.dumps(permissions))
    (work / "secret.txt").write_text("the secret\n")
    read = {"tool": "read_file", "arguments": {"path": "secret.txt"}}
    (tmp_path / "s.yaml").write_text(json.dumps([{"call": [read]}, {"say": "done"}]))
    ended = CliRunner().invoke(ferrule, ["run", "-m", f"scripted:{tmp_path / 's.yaml'}", "go"])
    assert "the secret" not in ended.output
    said = f"{ended.output} {ended.exception}"
    assert rule in said or rule == "Bash(mkdir*)", said


def test_settings_of_claude_code_that_cannot_be_read_are_named_by_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    (work / ".claude").mkdir(parents=True)
    (work / ".claude/settings.local.json").write_text('{"permissions": {"deny": ["Read(a)"],},}x')
    monkeypatch.chdir(work)
    found = CliRunner().invoke(ferrule, ["import", "claude-code"])
    assert re.search(r"settings\.local\.json: it cannot be read.* line 1", found.output), (
        found.output
    )


# ---- a strong model's hands: `reports/hands.yaml`


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 6073 & echo over", id="holds all streams"),
        pytest.param("sleep 6074 </dev/null >/dev/null & echo over", id="holds one stream"),
        pytest.param("bash -c 'sleep 6075 &'; echo over", id="of a shell that has ended"),
        pytest.param("setsid sleep 6076 & echo over", id="in a session of its own"),
        pytest.param("setsid -f sleep 6077; echo over", id="on its own from the start"),
    ],
)
def test_a_process_that_holds_the_output_keeps_no_command_waiting(act: Act, command: str) -> None:
    began = time.monotonic()
    (result,) = act(run(command))
    assert result.success and "over" in str(result.data)
    assert time.monotonic() - began < 60
    seconds = re.findall(r"607\d", command)[0]
    assert seconds not in subprocess.check_output(["ps", "-eo", "args"], text=True)


@pytest.mark.parametrize("name", ["my-folder ", "Application Support (v24) #1 'é' $x", "a%20b;c&d"])
def test_a_folder_of_any_name_can_be_worked_in(act: Act, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "a.txt").write_text("one\n")
    results = act(
        ("read_file", {"path": "a.txt"}),
        ("read_file", {"path": f"{tmp_path}/{name}/a.txt"}),
        ("write_file", {"path": "sub dir /b.txt", "content": "two\n"}),
        run("cat a.txt 'sub dir /b.txt' && basename \"$PWD\""),
        folder=name,
    )
    assert [result.success for result in results] == [True] * 4
    assert str(results[3].data).startswith(f"one\ntwo\n{name}\n")


def test_lines_of_a_file_with_a_byte_order_mark_and_crlf_are_edited(
    act: Act, tmp_path: Path
) -> None:
    file = tmp_path / "work/a.cs"
    file.write_bytes(b"\xef\xbb\xbfclass A\r\n{\r\n\tint x;\r\n}\r\n")
    edit = {
        "path": "a.cs",
        "old_string": "class A\n{\n\tint x;",
        "new_string": "class B\n{\n\tint y;",
    }
    (result,) = act(("edit_file", edit))
    assert result.success
    assert file.read_bytes() == b"\xef\xbb\xbfclass B\r\n{\r\n\tint y;\r\n}\r\n"


def test_a_search_shows_a_part_of_a_very_long_line_and_leaves_out_what_git_ignores(
    act: Act, tmp_path: Path
) -> None:
    (tmp_path / "work/.gitignore").write_text(".sst/\n")
    (tmp_path / "work/.sst").mkdir()
    (tmp_path / "work/.sst/b.js").write_text("needle\n")
    (tmp_path / "work/a.min.js").write_text("x" * 300_000 + "needle" + "y" * 300_000 + "\n")
    (result,) = act(("search_files", {"pattern": "needle"}))
    said = str(result.data)
    assert result.success and "a.min.js" in said and "xneedley" in said
    assert ".sst" not in said and len(said) < 4_000


def test_a_patch_that_adds_a_file_replaces_none(act: Act, tmp_path: Path) -> None:
    (tmp_path / "work/a.txt").write_text("mine\n")
    *_, result = act(patch("*** Add File: a.txt", "+other"), settings=GPT, profile="coding")
    assert not result.success and "a.txt" in str(result.error_message), result
    assert (tmp_path / "work/a.txt").read_text() == "mine\n"


def test_a_patch_that_moves_a_file_to_itself_keeps_it(act: Act, tmp_path: Path) -> None:
    file = tmp_path / "work/diary.md"
    file.write_text("one\n")
    *_, result = act(
        patch("*** Update File: diary.md", "*** Move to: diary.md", "@@", "-one", "+two"),
        settings=GPT,
        profile="coding",
    )
    assert result.success, result
    assert file.read_text() == "two\n"


def test_a_patch_keeps_the_end_of_a_file_without_a_newline(act: Act, tmp_path: Path) -> None:
    file = tmp_path / "work/a.xcstrings"
    file.write_text('{\n  "a" : 1,\n  "b" : 2\n}')
    *_, result = act(
        patch("*** Update File: a.xcstrings", "@@", '-  "a" : 1,', '+  "a" : 3,'),
        settings=GPT,
        profile="coding",
    )
    assert result.success, result
    assert file.read_text() == '{\n  "a" : 3,\n  "b" : 2\n}'


def test_carriage_returns_of_a_progress_bar_hide_no_line(act: Act) -> None:
    (result,) = act(run("printf 'one\\r\\ntwo\\r\\n 10%%\\r 50%%\\r100%%\\nlast\\n'"))
    said = str(result.data)
    assert result.success
    assert said.splitlines()[:4] == ["one", "two", "100%", "last"]
