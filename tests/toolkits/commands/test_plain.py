"""`run_command`: what may run, how, and what is told."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.safe_mode import SafeMode
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy, run_command
from ferrule.toolkits.commands.plan import check_plan, read_command
from ferrule.toolkits.commands.start import NEVER_ASKS
from ferrule.tools.context import Context
from ferrule.tools.result_facts import take_facts
from unheld import share_unheld

OPEN = CommandPolicy(safe_mode=SafeMode(on=False))
SHELL = CommandPolicy(shell_allowed=True, safe_mode=SafeMode(on=False))
SAFE = CommandPolicy(safe_mode=SafeMode())
SAFE_SHELL = CommandPolicy(shell_allowed=True, safe_mode=SafeMode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "agents").mkdir()
    (tmp_path / ".config/gcloud").mkdir(parents=True)
    return tmp_path


def context(folder: Path, policy: CommandPolicy | None) -> Context:
    resources: dict[type, object] = {Sandbox: share_unheld(), Workspace: Workspace(folder)}
    if policy is not None:
        resources[CommandPolicy] = policy
    return Context(Identity("t", "u", "s", "r"), "call_1", resources=resources)


def run(folder: Path, command: object, policy: CommandPolicy | None = OPEN, **more: Any) -> str:
    checked = run_command.arguments.check({"command": command, **more})
    assert not checked.problems, checked.problems
    return asyncio.run(run_command.handler(**checked.values, context=context(folder, policy)))


def test_a_program_learns_the_exit_status_beside_the_text(folder: Path) -> None:
    around = context(folder, OPEN)
    asyncio.run(run_command.handler([sys.executable, "-c", "raise SystemExit(3)"], context=around))
    facts = take_facts(around, "call_1")
    assert facts is not None and facts["exit_code"] == 3


def refusal(
    folder: Path, command: object, policy: CommandPolicy | None = OPEN, **more: Any
) -> ToolFailed:
    with pytest.raises(ToolFailed) as raised:
        run(folder, command, policy, **more)
    return raised.value


# ---- two ways to say it


@pytest.mark.proves("command.two-forms-agree")
def test_text_and_list_run_the_same_program(folder: Path) -> None:
    assert run(folder, "cat 'a.txt'") == run(folder, ["cat", "a.txt"]) == "one\ntwo\n"


@pytest.mark.proves("command.two-forms-agree")
@given(
    st.lists(
        st.text(st.characters(min_codepoint=32, max_codepoint=0x17F, exclude_characters="\x7f")),
        min_size=1,
        max_size=4,
    )
)
def test_text_is_run_as_its_words_or_not_at_all(words: list[str]) -> None:
    workspace = Workspace("/usr/share")
    try:
        planned = read_command(shlex.join(words), shell=False, workspace=workspace)
        check_plan(planned, policy=OPEN, resources={Workspace: workspace}, folder="")
    except ToolFailed:
        return
    assert planned.argv == tuple(words)


@pytest.mark.parametrize(
    "word",
    [
        "; touch pwned",
        "$(touch pwned)",
        "`touch pwned`",
        "| touch pwned",
        "> pwned",
        "&& touch pwned",
        "\ntouch pwned",
    ],
)
def test_shell_text_in_a_list_is_an_argument(folder: Path, word: str) -> None:
    assert run(folder, ["echo", word]) == word + "\n"
    assert not (folder / "pwned").exists()


@pytest.mark.parametrize(
    "text",
    [
        "cat a.txt | wc",
        "cat a.txt > out",
        "cat < a.txt",
        "cat a.txt; ls",
        "cat a.txt && ls",
        "ls &",
        "ls $HOME",
        "ls ${HOME}",
        "echo $(ls)",
        "echo `ls`",
        'echo "$(ls)"',
        'echo "$HOME"',
        "ls ~",
        "X=1 ls",
        "(ls)",
        "{ ls; }",
        "ls\nls",
        "! ls",
        "echo $'a'",
        "cat <<< x",
        "ls # all",
        "for f in *; do ls; done",
        "echo 'open",
    ],
)
def test_text_that_needs_a_shell_is_refused_with_the_way_to_say_it(folder: Path, text: str) -> None:
    error = refusal(folder, text)
    assert error.error_type is ErrorType.VALIDATION_FAILED
    assert '["grep"' in error.message
    assert sorted(os.listdir(folder)) == [".config", "a.txt", "agents", "sub"]


def test_wildcards_without_a_shell_stay_as_they_are_and_a_failure_says_so(folder: Path) -> None:
    answer = run(folder, "ls *.nothing")
    assert "[exit status 2]" in answer
    assert "`*.nothing` was passed as it is" in answer


# ---- shells


def test_a_shell_runs_text_that_needs_one_where_it_is_allowed(folder: Path) -> None:
    assert run(folder, "cat a.txt | wc -l; echo $((1+1))", SHELL).split() == ["2", "2"]


@pytest.mark.proves("command.no-shell-unless-allowed")
@pytest.mark.parametrize(
    ("command", "more"),
    [
        (["sh", "-c", "echo hi"], {}),
        ("bash -c 'echo hi'", {}),
        (["env", "sh", "-c", "echo hi"], {}),
        (["/bin/dash", "-c", "echo hi"], {}),
        (["timeout", "5", "sh", "-c", "echo hi"], {}),
        (["find", ".", "-exec", "sh", "-c", "echo hi", ";"], {}),
    ],
)
def test_no_option_leads_to_a_shell_that_is_not_allowed(
    folder: Path, command: object, more: Mapping[str, Any]
) -> None:
    error = refusal(folder, command, OPEN, **more)
    assert error.error_type is ErrorType.PERMISSION_DENIED
    assert "no shell" in error.message


def test_no_shell_reads_a_list_or_text_that_means_the_same_without_one(folder: Path) -> None:
    assert run(folder, ["echo", "a|b", "$HOME"], SHELL) == "a|b $HOME\n"
    for text, reads in (("printenv BASHPID x", False), ("echo ${BASHPID:+yes}; type cd", True)):
        assert ("yes" in run(folder, text, SHELL)) is reads


@pytest.mark.parametrize("text", ["vim a.txt", "cat a.txt && nano a.txt", "timeout 9 htop", "top"])
def test_a_program_that_would_wait_for_keys_is_refused_at_once(folder: Path, text: str) -> None:
    error = refusal(folder, text, SHELL)
    assert error.error_type is ErrorType.VALIDATION_FAILED
    assert "needs a terminal" in error.message
    assert "top" not in run(folder, "top -b -n 1 | head -c 0; echo vim nano", SHELL)


# ---- safe mode


def test_safe_mode_runs_its_programs_and_no_others(folder: Path) -> None:
    assert run(folder, "cat a.txt", SAFE) == "one\ntwo\n"
    error = refusal(folder, "touch x", SAFE)
    assert error.error_type is ErrorType.PERMISSION_DENIED
    assert "safe mode" in error.message


@pytest.mark.proves("command.no-shell-unless-allowed")
def test_without_settings_there_is_no_shell(folder: Path) -> None:
    assert run(folder, "cat a.txt", None) == "one\ntwo\n"
    assert "no shell" in refusal(folder, "ls | wc", None).message


REFUSED_IN_SAFE_MODE = [
    ["rm", "a.txt"],
    ["./ls"],
    ["sub/ls"],
    ["/bin/ls"],
    ["python3", "-c", "1"],
    ["env", "ls"],
    ["timeout", "1", "ls"],
    ["xargs", "ls"],
    ["nice", "ls"],
    ["find", ".", "-delete"],
    ["find", ".", "-exec", "ls", ";"],
    ["LS"],
    ["find", ".", "-execdir", "rm", "{}", "+"],
    ["find", ".", "-fprint", "x"],
    ["find", ".", "-ok", "ls", ";"],
    ["bat", "--pager", "sh", "a.txt"],
    ["bat", "--pager=sh", "a.txt"],
    ["htmlq", "-o", "x"],
    ["htmlq", "-po", "x"],
    ["htmlq", "--output=x"],
    ["jq", "-f", "x", "a.txt"],
]


@pytest.mark.proves("command.safe-mode-same-everywhere")
@pytest.mark.parametrize("words", REFUSED_IN_SAFE_MODE, ids=shlex.join)
def test_safe_mode_refuses_the_same_in_every_form(folder: Path, words: list[str]) -> None:
    for command in (words, shlex.join(words), f"cat a.txt; {shlex.join(words)}"):
        error = refusal(folder, command, SAFE_SHELL)
        assert error.error_type is ErrorType.PERMISSION_DENIED, error.message
        assert "safe mode" in error.message


@pytest.mark.proves("command.safe-mode-same-everywhere")
@pytest.mark.parametrize(
    "text",
    [
        "ls; rm a.txt",
        "ls && rm a.txt",
        "ls | tee out",
        "cat $(rm a.txt)",
        "cat `rm a.txt`",
        "ls > out",
        "ls >> a.txt",
        "X=1 ls",
        "LD_PRELOAD=x ls",
        "ls & rm a.txt",
        "(rm a.txt)",
        "$PROGRAM a.txt",
        "cat a.txt | sh",
        "f() { rm a.txt; }; f",
        "ls\nrm a.txt",
        "eval rm a.txt",
        "cd sub && rm x",
        "export X=1",
        "cat <(rm a.txt)",
    ],
)
def test_safe_mode_sees_every_part_of_a_shell_line(folder: Path, text: str) -> None:
    refusal(folder, text, SAFE_SHELL)
    assert (folder / "a.txt").read_text() == "one\ntwo\n"
    assert not (folder / "out").exists()


def test_safe_mode_lets_its_programs_be_joined_in_a_shell(folder: Path) -> None:
    assert run(folder, "cat a.txt | grep -c o 2>/dev/null", SAFE_SHELL) == "2\n"


def test_a_program_planted_in_the_workspace_does_not_take_an_allowed_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = folder / "cat"
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:.:{os.environ['PATH']}")
    assert run(folder, "cat a.txt", SAFE) == "one\ntwo\n"


# ---- what a child gets


@pytest.mark.proves("command.environment")
def test_a_child_sees_path_and_language_and_no_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {
        **keep,
        "OPENAI_API_KEY": "sk-1",
        "HARVEY_TOKEN": "t",
        "LD_PRELOAD": "",
        "MY_VAR": "v",
    }.items():
        monkeypatch.setenv(name, value)
    shown = dict(line.split("=", 1) for line in run(folder, "env").splitlines())
    assert shown == {**NEVER_ASKS, **keep}
    allowed = run(folder, "env", CommandPolicy(safe_mode=SafeMode(on=False), allow_env=("MY_VAR",)))
    assert "MY_VAR=v" in allowed.splitlines()


@pytest.mark.proves("command.withheld-is-said")
def test_a_failure_says_which_variable_was_withheld(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "secret-value")
    policy = CommandPolicy(shell_allowed=True, safe_mode=SafeMode(on=False))
    answer = run(folder, "echo please set ACME_API_KEY; exit 1", policy)
    assert "[not passed on from the environment: ACME_API_KEY;" in answer
    assert "secret-value" not in answer
    assert "ACME" not in run(folder, "true", policy)


def test_standard_input_is_given_or_empty(folder: Path) -> None:
    assert run(folder, "cat", stdin="héllo") == "héllo"
    assert run(folder, "cat") == "(no output)"


def test_it_starts_in_the_workspace_or_a_folder_of_it(folder: Path) -> None:
    assert run(folder, "pwd") == f"{folder}\n"
    assert run(folder, "pwd", cwd="sub") == f"{folder}/sub\n"
    assert run(folder, "sh -c 'echo $PWD'", SHELL, cwd="sub") == f"{folder}/sub\n"


@pytest.mark.parametrize(
    "cwd", ["..", "/", "/etc", "agents", "sub/../agents", ".git/hooks", "link", "link/x", "missing"]
)
def test_it_starts_nowhere_else(folder: Path, cwd: str) -> None:
    (folder / "link").symlink_to("/etc")
    error = refusal(folder, "pwd", cwd=cwd)
    assert error.error_type in (ErrorType.PERMISSION_DENIED, ErrorType.NOT_FOUND)


def test_names_are_judged_from_the_folder_it_starts_in(folder: Path) -> None:
    (folder / ".config/gcloud/token").write_text("secret")
    assert "secrets" in refusal(folder, "cat gcloud/token", cwd=".config").message
    assert refusal(folder, "cat ../../x", cwd="sub").error_type is ErrorType.PERMISSION_DENIED


# ---- what is told


def test_output_comes_in_order_with_the_exit_status(folder: Path) -> None:
    answer = run(folder, "echo out; echo err >&2; exit 3", SHELL)
    assert answer == "out\nerr\n[exit status 3]"
    assert run(folder, "true") == "(no output)"
    assert run(folder, "kill -SEGV $$", SHELL) == "(no output)\n[ended by SIGSEGV]"


def test_binary_output_becomes_text(folder: Path) -> None:
    (folder / "b").write_bytes(b"a\xff\x00b\n")
    assert run(folder, "cat b") == "a\ufffd\x00b\n"


def test_huge_output_is_bounded_and_the_status_comes_first(folder: Path) -> None:
    policy = CommandPolicy(shell_allowed=True, safe_mode=SafeMode(on=False), kept_bytes=40_000)
    answer = run(folder, "head -c 3000000 /dev/zero | tr '\\0' x; exit 4", policy)
    assert "\n[exit status 4]\n" in answer
    assert "[all 1 lines: " in answer
    assert len(answer) < 7_000


def test_a_long_output_is_shown_by_both_ends_and_kept_in_a_file(folder: Path) -> None:
    answer = run(folder, "seq 1 30000", SHELL)
    assert len(answer) < 7_000
    rows = answer.splitlines()
    gap = next(number for number, row in enumerate(rows) if row.startswith("[... "))
    assert rows[:gap] == [str(number) for number in range(1, gap + 1)]
    assert rows[gap] == f"[... {30000 - len(rows) + 2} lines left out ...]"
    assert rows[-2] == "30000"
    path = re.fullmatch(r"\[all 30000 lines: (/\S+)\]", rows[-1])
    assert path is not None
    assert Path(path[1]).read_text().splitlines() == [str(n) for n in range(1, 30001)]
    whole = "".join(f"{number}\n" for number in range(3000))
    assert run(folder, "seq 0 2999", SHELL) == whole


def test_running_out_of_time_is_a_timeout_with_what_was_said_so_far(folder: Path) -> None:
    error = refusal(folder, "echo started; sleep 1000", SHELL, timeout=1)
    assert error.error_type is ErrorType.TIMEOUT
    assert "started" in error.message
    assert not error.is_transient


def test_a_command_has_300_seconds_where_neither_call_nor_settings_say_more(folder: Path) -> None:
    def preview(policy: CommandPolicy, **more: Any) -> str:
        assert run_command.preview is not None
        shown = run_command.preview({"command": "true", **more}, context(folder, policy))
        return asyncio.run(shown)  # type: ignore[arg-type]

    assert "at most 300 s" in preview(OPEN)
    assert "at most 7 s" in preview(OPEN, timeout=7)
    brief = CommandPolicy(safe_mode=SafeMode(on=False), timeout=1)
    assert "at most 1 s" in preview(brief)
    assert refusal(folder, "sleep 1000", brief).error_type is ErrorType.TIMEOUT


@pytest.mark.parametrize("timeout", [0, -1, 0.0001, 3600.5])
def test_a_timeout_outside_its_bounds_is_refused(folder: Path, timeout: float) -> None:
    assert "from 0.001 to 3600 seconds" in refusal(folder, "true", timeout=timeout).message


def test_what_was_left_running_is_named(folder: Path) -> None:
    answer = run(folder, "setsid sleep 1000 >/dev/null 2>&1 & echo done", SHELL)
    assert answer.startswith("done\n[ended what it had left running: sleep (")
    assert "; to keep it, start it in the background by a call of its own]" in answer


def test_an_unknown_program_is_not_found(folder: Path) -> None:
    assert refusal(folder, "no-such-program").error_type is ErrorType.NOT_FOUND


@pytest.mark.parametrize("command", ["", " ", [], [""], ["a\0b"], "x" * 5000])
def test_what_names_no_program_is_refused(folder: Path, command: object) -> None:
    assert refusal(folder, command).error_type is ErrorType.VALIDATION_FAILED


def test_the_preview_shows_the_exact_command_line(folder: Path) -> None:
    assert run_command.preview is not None

    def preview(values: dict[str, Any]) -> str:
        assert run_command.preview is not None
        return asyncio.run(run_command.preview(values, context(folder, SHELL)))

    hidden = ["echo", "a b", "\x1b[2Kls", "x" * 3000]
    shown = preview({"command": hidden, "cwd": "sub", "timeout": 5})
    assert shown.startswith("echo 'a b' '\\x1b[2Kls' " + "x" * 3000 + "\n")
    assert "`sub`" in shown
    assert "5 s" in shown
    assert preview({"command": "ls | wc"}).startswith("ls | wc\n(in `.`, in a shell")
    assert "rm everything" in preview({"command": "cat", "stdin": "rm everything"})


def test_it_declares_what_it_is() -> None:
    assert (run_command.side_effect, run_command.risk) == ("execute", "high")
    assert run_command.touches["command"].kind == "command"
    assert run_command.touches["cwd"].kind == "read"
    assert run_command.reliability.total_attempts(repeatable=run_command.is_repeatable) == 1
