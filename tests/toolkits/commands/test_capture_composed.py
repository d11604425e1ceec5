"""Pipelines composed at random from a small grammar: whatever is captured does the same without a
copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from captured import finish_capture
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferrule.toolkits.commands.capture import NotCaptured, plan_capture
from ferrule.toolkits.commands.pipelines import FILTERS

SHELLS = [shell for shell in ("bash", "dash", "mksh") if shutil.which(shell)]
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}

words = st.sampled_from(
    ["a", "'b c'", '"d|e"', "$x", '"$x"', "${x:-f}", "$((1 + 2))", "*.txt", "g\\ h", "$?", "'$(i)'"]
)
endings = st.integers(0, 9).map(lambda code: f"sh -c 'cat; exit {code}'")
commands = st.one_of(
    words.map(lambda word: f"echo {word}"),
    st.integers(0, 20000).map(lambda count: f"seq {count}"),
    st.sampled_from(
        [
            "true",
            "false",
            "cat",
            "cat missing 2>&1",
            "cat missing",
            "sh -c 'echo o; echo e >&2; exit 3'",
        ]
    ),
    endings,
)
compounds = st.one_of(
    commands.map(lambda command: f"{{ {command}; false; }}"),
    commands.map(lambda command: f"for i in 1 2; do {command}; done"),
    commands.map(lambda command: f"if true; then {command}; fi"),
)
readers = st.one_of(
    endings,
    st.sampled_from(["cat", "sort", 'while read line; do echo "<$line>"; done', "{ cat; false; }"]),
)
# Parts behind the first read all they get: otherwise chance decides whether the part before them is
# cut short.
producers = st.builds(
    lambda first, rest: " | ".join([first, *rest]),
    st.one_of(commands, compounds),
    st.lists(readers, max_size=3),
)
filters = st.sampled_from(
    [
        "tail -2",
        "wc",
        "wc -l",
        "sort -n",
        "uniq",
        "cat",
        "cat -n",
        "nl",
        "tac",
        "rev",
        "cut -c 1-3",
        "tr 0-9 a-j",
        "grep 1",
        "grep -v 1",
        "grep -c o",
        "md5sum",
        "od -c",
        "base64",
        "fold -w 2",
        "sort 2>&1",
    ]
)
befores = st.lists(
    st.sampled_from(
        [
            "true &&",
            "false ||",
            "x=1;",
            "echo before;",
            "set -e;",
            "set -u;",
            "false;",
            "true | cat | cat &&",
        ]
    ),
    max_size=3,
).map(" ".join)
texts = st.builds(
    "{} {} | {}{}".format,
    befores,
    producers,
    filters,
    st.sampled_from(["", ";", " 2>err", " >out"]),
)


def outcome(argv: list[str], folder: Path) -> tuple[int, bytes, list[bytes], dict[str, bytes]]:
    """Lines on standard error are sorted: the parts of a pipeline run at once, so their order is
    chance.
    """
    done = subprocess.run(
        argv,
        cwd=folder,
        env=ENVIRONMENT,
        input=b"1\n2\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    errors = sorted(done.stderr.splitlines())
    return done.returncode, done.stdout, errors, {f.name: f.read_bytes() for f in folder.iterdir()}


@pytest.mark.proves("capture.changes-nothing", "capture.full-output")
@pytest.mark.parametrize("shell", SHELLS)
@given(text=texts)
@settings(max_examples=60, deadline=None)
def test_a_composed_pipeline_does_the_same_with_and_without_a_copy(shell: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, name) for name in ("captures", "without", "with")]
        for folder in folders:
            folder.mkdir()
        plan = plan_capture([shell, "-c", text], f"{folders[0]}/copy")
        if isinstance(plan, NotCaptured):
            # What the parser nests in a way that is not surely understood may be left alone, and
            # nothing else.
            if plan.reason != "where its pipes stand is not plain":
                assert (plan.reason, text.endswith(" >out")) == ("`grep` writes into a file", True)
            return
        assert outcome(list(plan.command), folders[2]) == outcome([shell, "-c", text], folders[1])
        record = finish_capture(plan)
        if record is not None:
            assert record["complete"]
            assert f"{record['producer']} | {record['filter']}" in text


@pytest.mark.proves("capture.conservative")
@given(
    text=st.text(st.sampled_from("ab |&;<>(){}$'\"`\\\n!#=-x[]*"), max_size=24),
    name=st.sampled_from(sorted(FILTERS)),
)
@example("cat <=``=", "wc")
@settings(max_examples=300, deadline=None)
def test_no_text_is_too_strange_and_what_is_captured_has_no_forbidden_sign(
    text: str, name: str
) -> None:
    whole = f"{text} | {name}"
    plan = plan_capture(whole, "/captures/copy", shell="sh")
    if isinstance(plan, NotCaptured):
        assert plan.reason
        return
    assert plan.filter.endswith(name)
    assert whole.replace(" ", "").endswith(f"{plan.producer}|{plan.filter}".replace(" ", ""))
    assert "`" not in text.replace("\\`", "").replace("'`'", "") or "'" in text
    assert "\n" not in text.strip()
