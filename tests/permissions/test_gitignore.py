"""Ignore files, held against git itself: the same names, whatever stands in the file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferrule.permissions.filesystem.gitignore import IgnoreFile, PathPatterns

GIT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "XDG_CONFIG_HOME": os.devnull,
}
PIECES = st.sampled_from(
    [
        "*",
        "**",
        "?",
        "/",
        "a",
        "b",
        "A",
        ".",
        "-",
        " ",
        "ä",
        "!",
        "#",
        "\\",
        "[ab]",
        "[!a]",
        "[^a-b]",
        "[",
        "]",
        "[]a]",
        "[a-]",
        "[[:alpha:]]",
        "[[:no:]]",
        "[!/]",
        "[a\\]]",
        "[b-a]",
        "[\\",
        "\t",
        "\x0b",
        "\r",
        "a/",
        "/b",
        "**/",
        "/**",
        "{a,b}",
        "+",
        "$",
    ]
)
PATTERNS = st.lists(PIECES, min_size=1, max_size=6).map("".join)
NAMES = (
    "a",
    "b",
    "A",
    "ab",
    "ba",
    "aa",
    "ä",
    "a b",
    "a.b",
    "-",
    "!a",
    "#a",
    "a ",
    "]",
    "\\a",
    "a/b",
    "b/a",
    "a/b/a",
    "b/a/b",
    "a/a/a/b",
    "{a,b}",
    "a+",
    "a\tb",
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q"], cwd=root, env=GIT, check=True)
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    return root


def walked(file: IgnoreFile, name: str, root: Path) -> bool:
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        one = "/".join(parts[:depth])
        if file.check(one, folder=depth < len(parts) or (root / one).is_dir()):
            return True
    return False


@given(st.lists(PATTERNS, min_size=1, max_size=3))
@example(["\\/**"])
@example(["a**/*"])
@example(["/a**"])
@example(["a**/b"])
@example(["a\\/**"])
@example(["a\\/**/b", "!a\\/b"])
@settings(max_examples=int(os.environ.get("FERRULE_FUZZ", "150")))
def test_names_are_ignored_as_git_ignores_them(repository: Path, patterns: list[str]) -> None:
    data = "\n".join(patterns).encode()
    (repository / ".gitignore").write_bytes(data)
    asked = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=repository,
        env=GIT,
        input=b"".join(os.fsencode(name) + b"\0" for name in NAMES),
        capture_output=True,
        check=False,
    )
    theirs = {os.fsdecode(name) for name in asked.stdout.split(b"\0") if name}
    file = IgnoreFile(data)
    assert {name for name in NAMES if walked(file, name, repository)} == theirs


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("*.py", ["a.py", "x/a.py", "x.py/a"], ["a.pyc", "py"]),
        ("/a", ["a", "a/b"], ["b/a"]),
        ("a/", ["a/b", "x/a/b"], ["a", "x/a"]),
        ("a/*", ["a/b", "a/b/c"], ["a", "x/a/b"]),
        ("a/**", ["a/b", "a/b/c"], ["a"]),
        ("**/a", ["a", "x/y/a", "a/b"], ["ab"]),
        ("/*", ["a", ".env"], ["a/b"]),
        ("/**", ["a", "a/b"], []),
        ("[!a]", ["b", "b/c"], ["a", "ab", "a/aa"]),
        ("a[!b]c", ["axc"], ["a/c", "abc"]),
        ("?", ["é", "x/é"], ["éé"]),
        ("#x", ["#x"], ["x"]),
        ("!x", ["!x"], ["x"]),
        ("a b ", ["a b"], ["a b c"]),
    ],
)
def test_a_path_matches_with_all_that_is_below_it(
    pattern: str, matched: list[str], others: list[str]
) -> None:
    patterns = PathPatterns([pattern])
    assert [path for path in (*matched, *others) if patterns.match(path)] == matched


def test_a_pattern_that_matches_nothing_is_named() -> None:
    assert PathPatterns(["a", "[b", "[[:none:]]"]).unusable == ["[b", "[[:none:]]"]


def test_no_pattern_of_a_repository_takes_long() -> None:
    """Going back would take longer than anyone waits."""
    file = IgnoreFile(("*a" * 60 + "*b\n" + "**/" * 40 + "x\n").encode())
    assert file.check("a" * 250, folder=False) is None
    assert file.check("a" * 250 + "b", folder=False) is True
    assert file.check("a/" * 120 + "y", folder=False) is None
