"""Options are read as programs read them, and the tables say what the programs say."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import ferrule.permissions.command_analysis.option_parsing as options_module
from ferrule.permissions.command_analysis.hazards import find_hazards
from ferrule.permissions.command_analysis.judged_arguments import judge_arguments
from ferrule.permissions.command_analysis.option_meanings import all_programs
from ferrule.permissions.command_analysis.option_parsing import (
    OptionTable,
    parse_arguments,
    table_of,
)

ROWS = json.loads(Path(options_module.__file__).with_name("option_tables.json").read_text())
ALL = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
TABLE = OptionTable(
    "-o,--output=FILE -c,--check?HOW -n,--numeric -N,--null --null-data -d=DELIM", "getopt"
)


def said(*words: str) -> list[tuple[str, str | None]]:
    """Each argument as (first spelling or nothing, value)."""
    return [
        (a.options[0].names[0] if a.options else "", a.value) for a in parse_arguments(words, TABLE)
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--output", "x"],
        ["--output=x"],
        ["--outp", "x"],
        ["--o=x"],
        ["--ou", "x"],
        ["-o", "x"],
        ["-ox"],
        ["a", "-ox"],
        ["-nox"],
    ],
)
def test_every_spelling_of_an_option_is_that_option_with_its_value(words: list[str]) -> None:
    assert ("-o", "x") in said(*words)


def test_values_are_no_options_and_two_dashes_end_them() -> None:
    assert said("-d", "-n", "a") == [("-d", "-n"), ("", "a")]
    assert said("-d-n", "--", "-o", "x") == [("-d", "-n"), ("", "-o"), ("", "x")]
    assert said("-c", "x") == [("-c", None), ("", "x")]
    assert said("--check=x", "-cx", "-") == [("-c", "x"), ("-c", "x"), ("", "-")]


def test_an_exact_name_wins_over_longer_ones_and_nothing_is_sure_after_an_unknown_one() -> None:
    assert [a.sure for a in parse_arguments(["--null", "a"], TABLE)] == [True, True]
    assert [a.sure for a in parse_arguments(["a", "--unheard", "b"], TABLE)] == [True, False, False]
    assert [a.sure for a in parse_arguments(["--n", "b"], TABLE)] == [False, False]
    assert [a.sure for a in parse_arguments(["-nX", "b"], TABLE)] == [True, False, False]


@pytest.mark.parametrize(
    ("words", "hazard"),
    [
        (["sort", "-k2", "--field-separator", "o", "-uoout", "a"], "-uoout"),
        (["sort", "-t", "-o", "out"], "-o"),
        (["git", "log", "--author", "--output=x"], "--output=x"),
        (["git", "ls-remote", "--up", "./x", "."], "--up"),
        (["npm", "run", "x", "-script-sh=./x"], "-script-sh=./x"),
        (["go", "test", "-exec", "./x"], "-exec"),
        (["curl", "-sSLo", "x", "https://a"], "-sSLo"),
        (["uniq", "-f", "1", "a", "b"], "b"),
        (["sort", "--unheard", "a"], "--unheard"),
        (["docker", "compose", "-f", "x", "ps"], "-f"),
        (["date", "01010101"], "01010101"),
    ],
)
def test_the_word_that_does_more_is_named(words: list[str], hazard: str) -> None:
    # A value that looks like an option counts as one too: should a table be wrong, nothing hides
    # behind it.
    assert hazard in find_hazards(words)


def test_every_program_that_is_judged_has_a_table() -> None:
    listed = {key.split()[0] for key in ROWS}
    alike = {"awk", "nawk", "original-awk", "batcat", "pip3", "gmake", "nodejs", "py.test"}
    closed = {name for name, known in all_programs().items() if known.named}
    closed -= {name for name, known in all_programs().items() if known.open_ended}
    assert closed - listed - alike == set()
    judged = {"--output", "--compress-program", "--in-place", "--to-command", "--pre"}
    known = {name for key in ROWS for name in (table_of(key) or TABLE).options}
    assert judged <= known


def test_rows_say_where_they_come_from() -> None:
    for name, row in ROWS.items():
        assert row["source"] in ("getopt", "help", "documentation"), name
        assert row["version"] or row["source"] == "documentation" or name in UNVERSIONED, name
        assert "/work" not in json.dumps(row) and "/root" not in json.dumps(row)


UNVERSIONED = {"less", "time", "xxd", "zip", "ncat", "tox"}
"""Programs whose help says no version in its first line."""


def _asked(program: str, *words: str, at: Path) -> str:
    done = subprocess.run(
        [*program.split(), *words],
        cwd=at,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def _same_version(program: str, at: Path) -> bool:
    first = (_asked(program, "--version", at=at).splitlines() or [""])[0]
    # 9.10 begins with 9.1.
    return re.match(re.escape(ROWS[program]["version"]) + r"(?![.\d])", first) is not None


GETOPT = sorted(
    name for name, row in ROWS.items() if row["source"] == "getopt" and shutil.which(name)
)


def test_programs_that_are_here_list_the_options_that_stand_in_their_tables(tmp_path: Path) -> None:
    compared = 0
    for program in GETOPT:
        # `--=x` begins every long option, so getopt names them all.
        listed = set(
            re.findall(
                r"'(--[\w\-]+)'", _asked(program, "--=x", at=tmp_path).partition("possibilities")[2]
            )
        )
        if not listed or not _same_version(program, tmp_path):
            continue
        compared += 1
        table = table_of(program)
        assert table is not None
        assert listed == {name for name in table.options if name.startswith("--")}, program
    assert compared or not GETOPT or not _same_version("sort", tmp_path)


def test_options_without_a_value_refuse_one_and_others_do_not(tmp_path: Path) -> None:
    rows = [
        (program, name, option.takes)
        for program in GETOPT
        for name, option in (table_of(program) or TABLE).options.items()
        if name.startswith("--") and (program, name) != ("man", "--html")
    ]
    versions = {program for program in GETOPT if _same_version(program, tmp_path)}
    chosen = rows if ALL else random.Random(11).sample(rows, min(60, len(rows)))
    for program, name, takes in chosen:
        if program not in versions:
            continue
        refused = "doesn't allow an argument" in _asked(program, f"{name}=x", at=tmp_path)
        assert refused == (takes == ""), (program, name)


def test_git_completes_options_that_stand_in_the_tables(tmp_path: Path) -> None:
    if (
        not shutil.which("git")
        or ROWS["git log"]["version"] != _asked("git", "--version", at=tmp_path).strip()
    ):
        pytest.skip("another git than the tables were made from")
    verbs = [key for key in ROWS if key.startswith("git ")]
    for key in verbs if ALL else random.Random(3).sample(verbs, 12):
        words = _asked(key, "--git-completion-helper-all", at=tmp_path).split()
        listed = {word.rstrip("=") for word in words if re.fullmatch(r"--[a-z][\w\-]*=?", word)}
        table = table_of(key)
        assert table is not None
        if len(listed) == len(words) - words.count("--"):
            assert listed <= set(table.options), key


def test_git_verbs_are_judged_by_their_own_tables() -> None:
    assert [piece.hazard for piece in judge_arguments("git", ["-o", "x"], "archive")] == [True]
    assert [piece.hazard for piece in judge_arguments("git", ["-o"], "ls-files")] == [False]


def test_a_script_that_is_mostly_blanks_is_not_taken_for_plain() -> None:
    # Not read at all: reading it would take minutes.
    assert find_hazards(["sed", " " * 3900 + "w x", "a"])
