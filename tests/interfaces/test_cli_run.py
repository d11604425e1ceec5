"""`ferrule run`: the answer alone on standard output, talk on standard error, and an exit code that
says how it went.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.terminal import Terminal

MAIN = "import sys; from ferrule.cli.entry import main; sys.argv[0] = 'ferrule'; main()"


def test_only_the_final_answer_goes_to_standard_output(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    model = script(a_call("list_files", say="Let me look."), {"say": "One file."})
    ran = ferrule("run", "-m", model, "what is here?")
    assert (ran.code, ran.out) == (0, "One file.\n")
    assert "Let me look." in ran.err
    assert "▸ list_files" in ran.err and "note.txt" in ran.err and "✓" in ran.err


def test_each_call_is_shown_with_its_arguments_how_it_ended_and_how_long_it_took(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    model = script(a_call("read_file", path="no.txt"), a_call("list_files"), {"say": "done"})
    ran = ferrule("run", "-m", model, "--allow", "Read(**)", "go")
    assert "▸ read_file no.txt\n  ✗ not_found: " in ran.err
    assert "▸ list_files \n" in ran.err or "▸ list_files\n" in ran.err
    assert " ms\n" in ran.err and ran.code == 0


def test_quiet_leaves_the_answer_and_what_must_be_known(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    model = script(a_call("list_files"), {"say": "fine"})
    assert ferrule("run", "-q", "-m", model, "go").err == ""
    model = script(a_call("write_file", path="a", content="b"), {"say": "fine"})
    ran = ferrule("run", "-q", "-m", model, "go")
    assert "no one was available" in ran.err and "▸" not in ran.err


@pytest.mark.proves("cli.exit-codes")
def test_a_failure_in_the_last_call_is_3_and_a_denial_of_all_is_4(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    failing = script(a_call("read_file", path="no.txt"), {"say": "gone"})
    assert ferrule("run", "-m", failing, "--allow", "Read(**)", "go").code == 3
    denied = script(a_call("write_file", path="a", content="b"), {"say": "no"})
    assert ferrule("run", "-m", denied, "go").code == 4
    assert not (folder / "a").exists()


@pytest.mark.usefixtures("commands_are_held")
def test_without_a_terminal_files_are_read_and_harmless_commands_run(
    folder: Path, ferrule: Any, script: Any, a_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "about.md").write_text("A lighthouse.\n")
    model = script(
        a_call("read_file", path="about.md"),
        a_call("run_command", command="cat about.md | head -5"),
        {"say": "It is about a lighthouse."},
    )
    ran = ferrule("run", "-m", model, "What is this project?")
    assert ran.code == 0 and "lighthouse" in ran.out
    model = script(a_call("read_file", path="about.md"), {"say": "no"})
    monkeypatch.setenv("FERRULE_PERMISSIONS_READS", "ask")
    assert ferrule("run", "-m", model, "What is this project?").code == 4


@pytest.mark.proves("cli.exit-codes")
def test_a_denied_call_shows_whatever_follows(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    denied = a_call("write_file", path="a", content="b")
    model = script(denied, a_call("list_files"), {"say": "no"})
    assert ferrule("run", "-m", model, "go").code == 4


@pytest.mark.proves("cli.exit-codes")
def test_a_limit_is_5_and_says_how_to_go_on(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    model = script(a_call("list_files"))
    ran = ferrule("run", "-m", model, "--max-turns", "1", "go")
    assert ran.code == 5
    assert "limit reached: max_turns = 1" in ran.err
    assert ran.err.count("continue with `ferrule run --resume ") == 1
    assert "sessions resume" not in ran.err


@pytest.mark.proves("cli.exit-codes")
def test_a_model_that_cannot_be_had_is_6_and_its_hint_is_shown(
    folder: Path, ferrule: Any, script: Any
) -> None:
    model = script(
        {"fail": {"code": "unreachable", "detail": "no server there", "hint": "start it"}}
    )
    ran = ferrule("run", "-m", model, "go")
    assert (ran.code, ran.out) == (6, "")
    assert "error: no server there\n" in ran.err


@pytest.mark.proves("cli.exit-codes")
@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "-m", "nothing", "x"],
        ["run", "-m", "opnai:x", "x"],
        ["run", "--json", "--json-stream", "x"],
        ["run", "-C", "/no/such/folder", "x"],
        ["run", "--max-turns", "0", "x"],
        ["run", "--allow", "Bash(", "x"],
        ["run", "--resume", "feed", "x"],
        ["chat"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_used_is_2(folder: Path, ferrule: Any, words: list[str]) -> None:
    ran = ferrule(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.strip()


@pytest.mark.proves("cli.exit-codes")
def test_a_defect_is_1_and_a_sentence(
    folder: Path, ferrule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise LookupError("a table is gone")

    monkeypatch.setattr("ferrule.runtime.assemble.current_user", broken)
    ran = ferrule("tools", "list")
    assert ran.code == 1
    assert ran.err.startswith("error: a defect in Ferrule: LookupError: a table is gone\nhint: ")
    monkeypatch.setenv("FERRULE_TRACEBACK", "1")
    shown = ferrule("tools", "list")
    assert shown.code == 1 and "Traceback (most recent call last)" in shown.err
    assert shown.err.endswith(ran.err)
    unknown = ferrule("sessions", "show", "nothing")
    assert (unknown.code, "SessionNotFound" in unknown.err) == (2, True)


def test_without_a_terminal_a_question_is_a_no_that_is_said(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    model = script(a_call("write_file", path="a", content="b"), {"say": "no"})
    ran = ferrule("run", "-m", model, "go")
    assert "denied: no one was available to approve it" in ran.err and "Edit(" in ran.err
    assert not (folder / "a").exists()


@pytest.mark.parametrize("pattern", ["write_file", "write_*"])
def test_yes_to_answers_for_the_named_tool_only(
    folder: Path, ferrule: Any, script: Any, a_call: Any, pattern: str
) -> None:
    steps = (
        a_call("write_file", path="a", content="b"),
        a_call("delete_path", path="note.txt"),
        {"say": "done"},
    )
    ran = ferrule("run", "-m", script(*steps), "--yes-to", pattern, "go")
    assert (folder / "a").read_text() == "b"
    assert (folder / "note.txt").exists()
    assert ran.code == 3


def test_standard_input_joins_the_prompt_as_context(
    folder: Path, ferrule: Any, script: Any
) -> None:
    model = script({"say": "ok"})
    ran = ferrule("run", "-m", model, "summarise", "this", "--json", stdin=b"line\xff\n")
    session = json.loads(ran.out)["session"]
    shown = ferrule("sessions", "show", session).out
    assert "summarise this" in shown and "<standard-input>" in shown and "line\ufffd" in shown
    alone = ferrule("run", "-m", script({"say": "ok"}), stdin=b"only this\n")
    assert alone.code == 0


def test_json_is_one_object_also_when_it_fails(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    ran = ferrule("run", "--json", "-m", script(a_call("list_files"), {"say": "ok"}), "go")
    made = json.loads(ran.out)
    assert (made["v"], made["text"], made["stop"], made["turns"], made["error"]) == (
        2,
        "ok",
        "done",
        2,
        None,
    )
    assert made["results"][0]["tool"] == "list_files" and made["results"][0]["success"] is True
    ran = ferrule(
        "run", "--json", "-m", script({"fail": {"code": "unreachable", "detail": "gone"}}), "go"
    )
    assert ran.code == 6
    assert json.loads(ran.out)["error"]["code"] == "unreachable"


@pytest.mark.proves("cli.json-stream")
def test_json_stream_is_a_line_per_event_with_version_and_kind(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    ran = ferrule(
        "run", "--json-stream", "-m", script(a_call("list_files"), {"say": "all done"}), "go"
    )
    lines = [json.loads(line) for line in ran.lines]
    assert all(line["v"] == 2 and line["kind"] for line in lines)
    kinds = [line["kind"] for line in lines]
    assert kinds[0] == "session" and lines[0]["session"]
    for kind in ("run.started", "model.answered", "call.evaluated", "call.answered", "text.delta"):
        assert kind in kinds
    assert kinds[-1] == "run.finished"
    assert "".join(line["text"] for line in lines if line["kind"] == "text.delta") == "all done"
    assert (lines[-1]["stop"], lines[-1]["text"]) == ("done", "all done")


def test_control_characters_of_a_tool_are_shown_and_not_obeyed(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    (folder / "evil.txt").write_text("a\x1b[2Jb\u202ec\n┃ [1] once\n")
    model = script(a_call("read_file", path="evil.txt"), {"say": "done"})
    err = ferrule("run", "-m", model, "--allow", "Read(**)", "go").err
    assert "\x1b" not in err and "\u202e" not in err
    assert "a\\x1b[2Jb\\u202ec" in err
    assert "┃" not in err and "│ [1] once" in err


@pytest.mark.usefixtures("commands_are_held")
def test_the_limit_of_time_is_124(folder: Path, ferrule: Any, script: Any, a_call: Any) -> None:
    model = script(a_call("run_command", command=["sleep", "60"]), {"say": "never"})
    ran = ferrule("run", "-m", model, "--yes-to", "run_command", "--max-seconds", "0.3", "go")
    assert ran.code == 124
    assert "max_seconds" in ran.err


def test_the_settings_of_an_untrusted_folder_are_noticed_and_do_nothing(
    folder: Path, ferrule: Any, script: Any, a_call: Any
) -> None:
    (folder / ".ferrule").mkdir()
    (folder / ".ferrule/ferrule.yaml").write_text("permissions: {allow: ['write_file']}\n")
    model = script(a_call("write_file", path="a", content="b"), {"say": "no"})
    ran = ferrule("run", "-m", model, "go")
    assert "is not trusted and has no effect" in ran.err
    assert not (folder / "a").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--allow", "reed_file"], "did you mean `read_file`?"),
        (["--deny", "no_such_tool"], "there is no tool `no_such_tool`"),
        (["--ask", "Reed"], "did you mean `Read`?"),
        (["--allow", "Write(src/**)"], "did you mean `Edit`?"),
        (["--deny", "Frobnicate"], "there are `Read`, `Edit`, `Bash`"),
        (["--allow-tool", "no_such_tool"], "there is no tool `no_such_tool`"),
        (["--deny-tool", "writ_file"], "did you mean `write_file`?"),
        (["--yes-to", "writ_file"], "did you mean `write_file`?"),
    ],
)
def test_a_flag_that_names_no_tool_is_refused_with_the_nearest(
    folder: Path, ferrule: Any, script: Any, words: list[str], message: str
) -> None:
    ran = ferrule("run", "-m", script({"say": "ok"}), *words, "go")
    assert (ran.code, ran.out) == (2, "") and message in ran.err


def test_settings_may_name_tools_of_other_folders(
    folder: Path, ferrule: Any, script: Any, own_folders: Path
) -> None:
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir()
    file.write_text(
        "permissions: {allow: [deploy_house, mcp__git__git_log]}\n"
        "tools: {denied: [deploy_house, writ_file]}\n"
    )
    ran = ferrule("run", "-m", script({"say": "ok"}), "go")
    assert ran.code == 0
    assert (
        "the settings name a tool `writ_file`, and there is none; did you mean `write_file`"
        in ran.err
    )
    file.write_text("permissions: {allow: [reed_file]}\n")
    ran = ferrule("run", "-m", script({"say": "ok"}), "go")
    assert ran.code == 2 and "did you mean `read_file`?" in ran.err


def test_all_mistakes_of_the_settings_are_named_at_once(
    folder: Path, ferrule: Any, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_folders / "config/ferrule.yaml"
    file.parent.mkdir()
    file.write_text(
        "modell: a:b\n"
        "limits:\n  max_turns: many\n  max_call: 3\n"
        "permissions: {allow: ['Bash(', 'Reed', Read]}\n"
        "models: {'a:b': {temprature: 1, seed: x}}\n"
        "providers: {openai: {api_key: secret}}\n"
    )
    monkeypatch.setenv("FERRULE_COMMANDS_SHELL", "perhaps")
    ran = ferrule("run", "--max-turns", "3", "--join", "all", "go")
    assert ran.code == 2
    lines = ran.err.removeprefix("error: ").splitlines()
    assert lines[-1] == "hint: correct all 9 of them; nothing was done"
    for number, words in enumerate(
        (
            "1:1: unknown setting `modell`; did you mean `model`?",
            "3:14: `limits.max_turns` = `many`",
            "4:3: unknown setting `limits.max_call`; did you mean `limits.max_calls`?",
            "6:18: unknown setting `models.a:b.temprature`",
            "6:39: `models.a:b.seed` = `x`",
            "7:22: keys must not be written in files",
            "FERRULE_COMMANDS_SHELL: `commands.shell` = `perhaps`",
            ":5:23: rule `Bash(`",
            ":5:32: rule `Reed`",
        )
    ):
        assert words in lines[number], lines[number]


def test_a_key_that_is_not_set_is_an_error_before_anything_is_sent(
    folder: Path, ferrule: Any, own_folders: Path
) -> None:
    (own_folders / "config").mkdir()
    (own_folders / "config/ferrule.yaml").write_text("providers: {openai: {api_key_env: MY_KEY}}\n")
    ran = ferrule("run", "-m", "openai:x", "go")
    assert ran.code == 2
    assert "`MY_KEY`, which is not set" in ran.err


def test_a_resumed_session_keeps_its_model(folder: Path, ferrule: Any, script: Any) -> None:
    model = script({"say": "first"})
    session = json.loads(ferrule("run", "--json", "-m", model, "go").out)["session"]
    ran = ferrule("run", "--resume", session[:10], "on")
    assert (ran.code, ran.out) == (0, "first\n")
    assert ferrule("sessions", "show", session).out.count("\n> ") == 2


# ---- real processes


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_settles_the_run_and_leaves_a_session_to_go_on_with(
    folder: Path,
    ferrule: Any,
    script: Any,
    a_call: Any,
    environment: dict[str, str],
    number: int,
    code: int,
) -> None:
    program = folder / "wait.sh"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    model = script(a_call("run_command", command=["./wait.sh"]), {"say": "never"})
    words = ["run", "-m", model, "--json-stream", "--yes-to", "run_command", "go"]
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as running:
        assert running.stdout is not None
        session = json.loads(running.stdout.readline())["session"]
        for line in running.stdout:
            if json.loads(line)["kind"] == "call.started":
                break
        running.send_signal(number)
        _, err = running.communicate(timeout=30)
    assert running.returncode == code, err
    assert f"ferrule run --resume {session}" in err
    assert ferrule("sessions", "verify", session).code == 0
    shown = ferrule("sessions", "show", session).out
    assert "cancelled" in shown
    again = ferrule("run", "-m", script({"say": "here again"}), "--resume", session, "on")
    assert (again.code, again.out) == (0, "here again\n")


def test_who_writes_for_a_reader_that_went_away_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    os.close(read)
    told: list[str] = []
    with os.fdopen(write, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        terminal = Terminal()
        terminal.on_reader_gone = lambda: told.append("gone")
        for piece in ("one ", "two ", "three"):
            terminal.stream_answer(piece)
    assert told == ["gone"]


@pytest.mark.parametrize("words", [["sessions", "list"], ["--help"], ["sessions", "list", "-h"]])
def test_a_reader_that_goes_away_is_no_error(
    folder: Path,
    ferrule: Callable[..., Any],
    script: Any,
    environment: dict[str, str],
    words: list[str],
) -> None:
    ferrule("run", "-m", script({"say": "ok"}), "go")
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("words", [["run", "go"], ["doctor"], ["--version"], ["tools", "list"]])
def test_closed_standard_streams_are_as_good_as_the_null_device(
    folder: Path, script: Any, environment: dict[str, str], words: list[str]
) -> None:
    environment["FERRULE_MODEL"] = script({"say": "ok"})
    command = [sys.executable, "-c", MAIN, *words]
    ran = subprocess.run(
        ["sh", "-c", '"$@" <&- >&-', "sh", *command],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0
    assert "error" not in ran.stderr


def test_no_file_gets_the_number_of_a_closed_standard_stream(
    folder: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    program = (
        "import os, sys; from ferrule.cli import entry; entry.main(); "
        f"file = open({str(seen)!r}, 'w'); "
        "file.write(f'{file.fileno()} {[os.get_inheritable(number) for number in range(3)]}')"
    )
    subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program, "--version"],
        env=environment,
        timeout=60,
        check=True,
    )
    assert seen.read_text() == "3 [True, True, True]"


def test_an_answer_at_a_terminal_cannot_move_the_cursor_but_a_pipe_gets_its_bytes(
    folder: Path, ferrule: Any, script: Any, environment: dict[str, str]
) -> None:
    words = ["run", "-m", script({"say": "a\x1b[2Jb"}), "go"]
    assert ferrule(*words).out == "a\x1b[2Jb\n"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as running:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        assert running.wait(timeout=30) == 0
    os.close(ours)
    assert seen == b"a\\x1b[2Jb\r\n"


def test_colour_is_drawn_when_asked_for_and_never_against_no_color(
    folder: Path, ferrule: Any, script: Any, a_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", "-m", script(a_call("list_files"), {"say": "ok"}), "go"]
    assert "\x1b[" not in ferrule(*words).err
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in ferrule(*words).err
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in ferrule(*words).err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [["policy", "--help"], ["--version"], ["models", "list"]])
def test_an_output_that_is_full_is_said_and_is_no_defect(
    arguments: list[str], unbuffered: str, environment: dict[str, str]
) -> None:
    words = [sys.executable, "-c", MAIN, *arguments]
    environment["PYTHONUNBUFFERED"] = unbuffered
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            words,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )
    assert "defect" not in ran.stderr and "Exception ignored" not in ran.stderr
    assert "the output could not be written: No space left on device" in ran.stderr
    assert "Exception ignored" not in ran.stderr
    assert ran.returncode == 1
