"""A pipeline of the plain `run_command` answers for its producers, and keeps what filters hide."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy, run_command
from ferrule.toolkits.commands.pipe_status import make_honest
from ferrule.tools.context import Context
from unheld import share_unheld

FAIL = "{ seq 40; echo broken; exit 3; }"


def run_in_bash(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a text as it would be run, and require that it was changed."""
    honest = make_honest(text, f"{folder}/notes", f"{folder}/copy")
    assert honest is not None
    words = ["bash", "--noprofile", "--norc", "-c", honest.text]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize(
    ("text", "output", "status"),
    [
        ("bash -c 'exit 3' | tail -1", "", 3),
        ("bash -c 'echo a; exit 3' 2>&1 | head -5", "a\n", 3),
        ("bash -c 'echo a; exit 3' |& grep a", "a\n", 3),
        ("bash -c 'exit 3' | sort | tail -1", "", 3),
        ("bash -c 'exit 3' | tail -1 && echo on", "", 3),
        ("bash -c 'exit 3' | tail -1 || echo other", "other\n", 0),
        ("if bash -c 'exit 3' | cat; then echo yes; else echo no; fi", "no\n", 0),
        ("set -e; bash -c 'exit 3' | tail -1; echo on", "", 3),
        ("bash -c 'exit 3' | tail -1; echo $?", "3\n", 0),
        ("(bash -c 'exit 3' | tail -1) | tail -1", "", 3),
        ("f() { bash -c 'exit 3' | tail -1; }; f && echo on || { echo | cat; exit 9; }", "on\n", 0),
        ("cat <<X | tail -1 && bash -c 'exit 3' | tail -1\nline\nX\n", "line\n", 3),
        ("true | cat # a | b", "", 0),
        # What is not a failure.
        ("yes | head -1 && echo on", "y\non\n", 0),
        ("seq 5 | grep 9 | cat && echo on", "on\n", 0),
        ("diff /dev/null notes.txt | tail -1 && echo on", "> x\non\n", 0),
        ("ls nowhere 2>/dev/null | wc -l", "0\n", 0),
        ("timeout 0.05 sleep 5 | tail -1 && echo on", "on\n", 0),
        ("seq 5 | grep 9", "", 1),
    ],
)
def test_what_hangs_on_failure_hangs_on_the_producer(
    tmp_path: Path, text: str, output: str, status: int
) -> None:
    (tmp_path / "notes.txt").write_text("x\n")
    ended = run_in_bash(text, tmp_path)
    assert (ended.stdout, ended.stderr, ended.returncode) == (output, "", status)


@pytest.mark.parametrize(
    "text",
    [
        "bash -c 'exit 3' | grep -q x",  # what grep says is the question
        "! bash -c 'exit 3' | tail -1",
        "make",
        "make | while read line; do echo; done",
        "make | tail -1; echo ${PIPESTATUS[0]}",
        "make | tail -1 'unclosed",
        "x=$(make | tail -1)",
    ],
)
def test_anything_else_is_left_alone(text: str) -> None:
    assert make_honest(text, "/notes", "/copy") is None


_PART = st.sampled_from(["true", "false", "bash -c 'exit 3'", "yes", "seq 9", "echo a b", "cat x"])
_FILTER = st.sampled_from(["tail -1", "head -1", "grep 9", "wc -l", "sort", "cat", "sed -n 2p"])
_JOIN = st.sampled_from([" && ", " || ", "; ", "\n", " # note | x\n"])


@given(st.lists(st.tuples(_PART, st.lists(_FILTER, max_size=2), _JOIN), min_size=1, max_size=4))
def test_a_filter_gets_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, list[str], str]]
) -> None:
    """Against bash with `pipefail`, without the producers that differ from it."""
    folder = tmp_path_factory.mktemp("pipes")
    text = "".join(" | ".join([part, *filters]) + join for part, filters, join in parts)
    text = text.rstrip("&|; ").replace("yes", "seq 3")
    if "\n" not in text and text.endswith((" &&", " ||")):
        return
    honest = make_honest(text, f"{folder}/notes", f"{folder}/copy")
    if honest is None:
        return

    def answer(script: str) -> tuple[str, int]:
        words = ["bash", "--noprofile", "--norc", "-c", script]
        ended = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
        return ended.stdout, ended.returncode

    if "grep 9 |" in text:  # here it ends a pipeline without a match, which is not a failure
        return
    assert answer(honest.text) == answer(f"set -o pipefail\n{text}")


# ---- the tool


def run(folder: Path, *commands: str) -> list[str]:
    resources: dict[type, object] = {
        Sandbox: share_unheld(),
        Workspace: Workspace(folder),
        CommandPolicy: CommandPolicy(shell_allowed=True),
    }
    context = Context(Identity("t", "u", "s", "r"), "call_1", resources=resources)

    async def answer() -> list[str]:
        return [str(await run_command.handler(command, context=context)) for command in commands]

    return asyncio.run(answer())


def test_the_model_sees_the_status_and_where_the_whole_is(tmp_path: Path) -> None:
    (shown,) = run(tmp_path, f"{FAIL} 2>&1 | tail -2")
    assert shown.startswith("40\nbroken\n[exit status 3]\n[all 41 lines before `tail -2`: ")
    path = shown.rpartition(": ")[2].rstrip("]")
    assert Path(path).read_text().splitlines()[:2] == ["1", "2"]


def test_a_failure_that_the_line_goes_on_from_is_said(tmp_path: Path) -> None:
    (shown,) = run(tmp_path, "bash -c 'exit 3' | tail -2; cd . ; echo done")
    assert shown == "done\n[`bash -c 'exit 3'` ended with status 3]"


def test_folder_and_variables_still_live_on(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    _, shown = run(tmp_path, "cd sub && export A=1 && seq 3 | tail -1", "pwd; echo $A")
    assert shown == f"{tmp_path}/sub\n1\n"


def test_nothing_is_kept_or_said_where_nothing_was_hidden(tmp_path: Path) -> None:
    assert run(tmp_path, "bash -c 'echo a' | tail -5", "seq 90 | tail -1") == ["a\n", "90\n"]
