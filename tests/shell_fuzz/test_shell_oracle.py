"""Bash is asked what a few hundred programs do; what it did must be within what was said of
them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.permissions.command_analysis.analysis import analyse_command

sys.path.insert(0, str(Path(__file__).parents[1]))

from shell_fuzz.compare import compare_block, slipped
from shell_fuzz.judge import HOME, ROOT, judge
from shell_fuzz.oracle import Bash, CannotRun, Event

BLOCKS = int(os.environ.get("FERRULE_TEST_SHELL_BLOCKS", "2"))
"""Of 200 programs each. `make lab NAME=fuzz` runs a thousand."""


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bash]:
    oracle = Bash(tmp_path_factory.mktemp("shell") / "world")
    try:
        with oracle:
            next(iter(oracle.run([":"])))
            yield oracle
    except CannotRun as why:
        pytest.skip(str(why))


def events_of(bash: Bash, program: str) -> list[Event]:
    return next(iter(bash.run([program])))[1]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_bash_does_is_within_what_was_said(bash: Bash, block: int) -> None:
    findings, counts = compare_block(bash, 1, block)
    assert findings == []
    # Not empty: most programs start something, and most of what runs without an error is read.
    assert counts["started"] > 100
    assert counts["clear"] + counts["doubt"] > 80


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("touch a b", ("E", "/tmp/fuzz/stubs/touch", "touch", "a", "b")),
        ("echo $(touch x)", ("E", "/tmp/fuzz/stubs/touch", "touch", "x")),
        ("nice touch x", ("E", "/tmp/fuzz/stubs/touch", "touch", "x")),
        ("env -i touch x", ("E", "/usr/bin/touch", "touch", "x")),
        ("bash -c 'touch x'", ("E", "/tmp/fuzz/stubs/touch", "touch", "x")),
        (
            "trap - DEBUG; unset FUZZ_STUBS LD_PRELOAD; touch x & ",
            ("E", "/tmp/fuzz/stubs/touch", "touch", "x"),
        ),
        ("/usr/bin/touch x", ("E", "/usr/bin/touch", "/usr/bin/touch", "x")),
        (": > out", ("W", "out")),
        (": > /etc/passwd", ("W", "/etc/passwd")),
        ("read x < data", ("R", "data")),
        (": > /dev/tcp/host/80", ("N", "host", "80")),
        ("enable -f ./x.so x", ("L", "./x.so")),
        ("e'va'l export A=1", ("B", "export", "A=1")),
        ("echo $((N))", ("E", "/tmp/fuzz/stubs/from_value", "from_value")),
    ],
)
def test_the_oracle_sees_what_happens(bash: Bash, program: str, expected: tuple[str, ...]) -> None:
    assert Event(expected[0], expected[1:]) in events_of(bash, program)
    assert not (bash.folder / "box" / "x").exists()


def test_a_reading_that_leaves_something_out_is_a_finding(bash: Bash) -> None:
    """The comparison itself: one command's events against another's reading."""
    events = events_of(bash, "touch x > out")
    for wrong in ("touch y > out", "touch > out", "rm x > out", "touch x", "echo touch x > out"):
        assert judge(analyse_command(wrong, root=ROOT, home=HOME), events).unsaid, wrong
    assert judge(analyse_command("touch x > out", root=ROOT, home=HOME), events).unsaid == ()
    assert list(slipped("ls x", events)) == [
        "allowed, and did /tmp/fuzz/stubs/touch",
        "touch is denied, and ran",
    ]
