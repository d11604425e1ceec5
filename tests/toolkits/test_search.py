"""`search_files`: what is found, what is never looked at, and that ripgrep changes nothing but the
time.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.provenance import NOTHING_WRITABLE
from ferrule.toolkits.search import search_files as search_module
from ferrule.toolkits.search.pattern import Pattern, PatternKind, read_pattern
from ferrule.toolkits.search.ripgrep import find_ripgrep
from ferrule.toolkits.search.rows import format_report
from ferrule.toolkits.search.scope import Scope
from ferrule.toolkits.search.search_files import grep_search, search, search_files, split_lines
from ferrule.tools import line_matching
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool
from ferrule.tools.line_matching import Hit, OutOfTime, find_hits

NEEDLE = "n33dle"
RIPGREP = find_ripgrep(NOTHING_WRITABLE)


def put(root: Path, name: str, content: str | bytes = f"{NEEDLE}\n") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def call(root: Path | Workspace, pattern: str, tool: Tool = search_files, **arguments: Any) -> str:
    workspace = root if isinstance(root, Workspace) else Workspace(root)
    context = Context(Identity("t", "u", "s", "r"), "call_1", resources={Workspace: workspace})
    checked = tool.arguments.check({"pattern": pattern, **arguments})
    assert not checked.problems, checked.problems
    return asyncio.run(tool.handler(**checked.values, context=context))


def files(answer: str) -> list[str]:
    """Names of the files that have rows."""
    return list(dict.fromkeys(re.findall(r"^(.+?):\d+:", answer, re.MULTILINE)))


def refusal(root: Path, pattern: str, **arguments: Any) -> ToolFailed:
    with pytest.raises(ToolFailed) as raised:
        call(root, pattern, **arguments)
    return raised.value


# ---- patterns


@pytest.mark.proves("search.wildcard")
def test_a_wildcard_is_any_text_within_a_line_and_ignores_case(tmp_path: Path) -> None:
    put(tmp_path, "a.zig", "fn init\npub FN my_INIT(\nfunction initialise\nfn x\n")
    found = call(tmp_path, "fn*init", kind="wildcard")
    assert re.findall(r"a\.zig:(\d)", found) == ["1", "2"]
    assert re.findall(r"a\.zig:(\d)", call(tmp_path, "init", kind="wildcard")) == ["1", "2", "3"]
    assert call(tmp_path, "fn*init", grep_search) == found
    assert call(tmp_path, "*fn*init*", kind="wildcard").split("\n", 1)[1] == found.split("\n", 1)[1]


@pytest.mark.proves("search.regex-default")
def test_a_pattern_is_a_regular_expression_unless_said_otherwise(tmp_path: Path) -> None:
    put(tmp_path, "a", "axb\na.b\nA.B\n")
    found = [
        ({}, ["1", "2"]),
        ({"kind": "regex"}, ["1", "2"]),
        ({"kind": "literal"}, ["2"]),
        ({"kind": "literal", "case_insensitive": True}, ["2", "3"]),
        ({"kind": "wildcard"}, ["2", "3"]),
    ]
    for arguments, rows in found:
        answer = call(tmp_path, "a.b", **arguments)
        assert re.findall(r"^a:(\d):", answer, re.MULTILINE) == rows, arguments
    assert "1 match" in call(tmp_path, r"^(.)\.B$")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": ""}, "empty"),
        ({"pattern": "**", "kind": "wildcard"}, "empty"),
        ({"pattern": "(", "kind": "regex"}, "not a regular expression"),
        ({"pattern": "(?<=a)b"}, "no look-around and no back-references"),
        ({"pattern": r"(a)\1"}, "no look-around and no back-references"),
        ({"pattern": r"a\nb"}, "one line"),
        ({"pattern": r"\pL{40}"}, "use smaller counts"),
        ({"pattern": r"a\C"}, "use `.`"),
        ({"pattern": "a" * 1025}, "1024"),
        ({"pattern": "a\nb"}, "one line"),
        ({"pattern": "x", "max_results": 0}, "from 1 to 1000, found 0"),
        ({"pattern": "x", "max_results": 1001}, "from 1 to 1000, found 1001"),
        ({"pattern": "x", "context_lines": 21}, "from 0 to 20"),
        ({"pattern": "x", "file_filter": "!*.py"}, "not a glob"),
        ({"pattern": "x", "exclude": "{a,b}{c,d}{e,f}{g,h}{i,j}{k,l}{m,n}"}, "globs"),
    ],
)
def test_bad_arguments_are_refused_with_what_was_found(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    error = refusal(tmp_path, **arguments)
    assert error.error_type is ErrorType.VALIDATION_FAILED
    assert said in error.message


# ---- where


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with everything that has gone wrong somewhere."""
    root = tmp_path / "work"
    root.mkdir()
    outside = tmp_path / "outside"
    put(outside, "o.txt")
    for name in (
        "plain.txt",
        "src/a.py",
        "src/deep/b.py",
        "with space.txt",
        "-dash",
        "a:b",
        "ünï.txt",
        ".hidden-file",
        ".config/c.txt",
        ".github/d.yml",
        "ign.log",
        "keep.log",
        "build/out.txt",
        "sub/keep/x.tmp",
        "sub/x.tmp",
        "sub/deep/y.tmp",
        "node_modules/m.js",
        ".git/config",
        ".git/info/n",
        ".hg/store",
        "back\\slash",
    ):
        put(root, name)
    put(root, ".gitignore", "*.log\n!keep.log\nbuild/\n/node_modules\n!\n\\\n")
    put(root, "sub/.gitignore", "*.tmp\n!/keep/\n")
    put(root, "sub/keep/.gitignore", "!*.tmp\n")
    for name in SECRETS:
        put(root, name)
    put(root, "bin", b"\0" + NEEDLE.encode())
    put(root, "late-nul", NEEDLE.encode() + b"\n" + b"x" * 9000 + b"\0")
    put(root, "utf16", NEEDLE.encode("utf-16"))
    put(root, "bom", b"\xef\xbb\xbf" + NEEDLE.encode())
    put(root, "crlf", f"{NEEDLE}\r\nb {NEEDLE}\r\n\r\nend\r\n")
    put(root, "latin", b"caf\xe9 " + NEEDLE.encode() + b"\n\xff\xfe" + NEEDLE.encode() + b"\xff\n")
    put(root, "empty", "")
    put(root, "long", "x" * 5000 + NEEDLE + "y" * 5000)
    put(root, "esc", f"\x1b[31m{NEEDLE}\u2028\x85\n")
    put(root, "big")
    os.truncate(root / "big", 10 * 1024 * 1024 + 1)
    put(root, "new\nline")
    (root / os.fsdecode(b"bad\xff")).write_text(NEEDLE)
    (root / "link.txt").symlink_to(outside / "o.txt")
    (root / "linkdir").symlink_to(outside)
    (root / "loop").symlink_to(".")
    os.link(outside / "o.txt", root / "hard.txt")
    os.mkfifo(root / "fifo")
    return root


SECRETS = (
    ".env",
    ".env.local",
    "prod.env",
    "sub/.ENV",
    "k.pem",
    "deep/er/k.key",
    "k.p12",
    "k.pfx",
    "id_rsa",
    "id_rsa.bak",
    ".ssh/known",
    "agents/harvey.yaml",
    "harvey.yaml",
    ".ferrule/state",
    ".harness/x",
    ".aws/credentials",
    ".npmrc",
    ".envs/x.txt",
    ".config/gcloud/token",
    "src/.git-credentials",
)

EVERYTHING = {"include_hidden": True, "ignore_gitignore": True, "max_results": 1000}


def test_hidden_folders_and_ignored_files_are_left_out_unless_asked_for(tree: Path) -> None:
    visible = {
        "-dash",
        ".hidden-file",
        "a:b",
        "bom",
        "crlf",
        "esc",
        "keep.log",
        "late-nul",
        "latin",
        "long",
        "plain.txt",
        "src/a.py",
        "src/deep/b.py",
        "sub/keep/x.tmp",
        "with space.txt",
        "ünï.txt",
    }
    assert set(files(call(tree, NEEDLE))) == visible
    hidden = call(tree, NEEDLE, include_hidden=True)
    assert "[+hidden]\n" in hidden
    assert set(files(hidden)) == visible | {".config/c.txt", ".github/d.yml"}
    ignored = call(tree, NEEDLE, ignore_gitignore=True)
    assert "[+gitignored]\n" in ignored
    assert set(files(ignored)) == visible | {
        "build/out.txt",
        "ign.log",
        "node_modules/m.js",
        "sub/deep/y.tmp",
        "sub/x.tmp",
    }


@pytest.mark.proves("search.secrets")
@pytest.mark.parametrize("kind", ["regex", "literal", "wildcard"])
@pytest.mark.parametrize("program", [RIPGREP, None], ids=["ripgrep", "python"])
def test_no_mode_shows_what_a_secret_file_holds(
    tree: Path, kind: PatternKind, program: str | None
) -> None:
    pattern = read_pattern(NEEDLE, kind, ignore_case=True)
    for scope in (
        Scope(".", hidden=True, ignored=True),
        Scope(".", include=("*", ".env", "**/*.pem"), hidden=True, ignored=True),
        Scope("sub", hidden=True, ignored=True),
        Scope(".config", hidden=True),
    ):
        found = asyncio.run(
            search(
                Workspace(tree), pattern, scope, max_results=1000, context_lines=5, ripgrep=program
            )
        )
        assert found.rows
        shown = {row.path for row in found.rows} | set(found.names)
        assert shown.isdisjoint(SECRETS)
        assert not any(
            name.startswith((".git/", ".hg/", "link", "loop", "hard", "fifo")) for name in shown
        )


@pytest.mark.proves("search.secrets")
@pytest.mark.parametrize(
    "name",
    [
        *SECRETS,
        ".git/config",
        ".git/info/n",
        ".hg/store",
        ".git",
        "agents",
        "link.txt",
        "linkdir",
        "hard.txt",
        "../outside/o.txt",
        "/etc/passwd",
        "fifo",
    ],
)
def test_naming_it_directly_does_not_open_it(tree: Path, name: str) -> None:
    try:
        answer = call(tree, NEEDLE, path=name, **EVERYTHING)
    except ToolFailed as error:
        assert error.error_type in (ErrorType.PERMISSION_DENIED, ErrorType.VALIDATION_FAILED)
    else:
        assert answer.split("\n\n")[1].startswith("0 matches")


def test_a_pipe_is_refused_and_not_waited_for(tree: Path) -> None:
    assert "not a regular file" in refusal(tree, NEEDLE, path="fifo").message


@pytest.mark.proves("search.secrets")
def test_names_that_settings_add_are_withheld_too_and_that_is_counted(tmp_path: Path) -> None:
    put(tmp_path, "mine.txt")
    put(tmp_path, "ok.txt")
    answer = call(Workspace(tmp_path, names=ProtectedNames(secret=("mine.*",))), NEEDLE)
    assert files(answer) == ["ok.txt"]
    assert "1 not searched because tools may not read it" in answer


def test_binary_large_and_odd_files_are_skipped_and_counted(tree: Path) -> None:
    answer = call(tree, NEEDLE, **EVERYTHING)
    assert not {"bin", "utf16", "big"} & set(files(answer))
    assert "1 larger than 10 MB skipped" in answer
    # Two names that no path can spell, one that holds a backslash, one hard link to the outside.
    assert "4 skipped because it cannot be opened" in answer


def test_a_folder_whose_name_is_no_path_is_not_entered_wherever_it_lies(tmp_path: Path) -> None:
    odd = ["a\\b", "line\nbreak", "bell\x07"]
    for folder in (*odd, *(f"src/{name}" for name in odd)):
        put(tmp_path, f"{folder}/a.txt")
    answer = call(tmp_path, NEEDLE)
    assert "0 matches" in answer
    assert "6 not searched because tools may not read it" in answer


def test_globs_choose_files_by_name_and_by_path(tree: Path) -> None:
    assert files(call(tree, NEEDLE, file_filter="*.py")) == ["src/a.py", "src/deep/b.py"]
    assert files(call(tree, NEEDLE, file_filter="**/*.py", exclude="deep")) == ["src/a.py"]
    assert files(call(tree, NEEDLE, file_filter=["src/**", "plain.txt"])) == [
        "plain.txt",
        "src/a.py",
        "src/deep/b.py",
    ]
    assert files(call(tree, NEEDLE, file_filter="*.{txt,js}", ignore_gitignore=True)) == [
        "build/out.txt",
        "node_modules/m.js",
        "plain.txt",
        "with space.txt",
        "ünï.txt",
    ]
    assert files(call(tree, NEEDLE, path="src", file_filter="deep/*.py")) == ["src/deep/b.py"]
    assert files(call(tree, NEEDLE, path="src", file_filter="src/a.py")) == ["src/a.py"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("node_modules", ["node_modules/m.js"]),
        ("ign.log", ["ign.log"]),
        (".config", [".config/c.txt"]),
        ("sub", ["sub/keep/x.tmp"]),
        ("sub/deep", []),
        ("src/deep/../a.py", ["src/a.py"]),
    ],
)
def test_what_is_named_is_searched_and_rules_above_still_hold(
    tree: Path, path: str, expected: list[str]
) -> None:
    assert files(call(tree, NEEDLE, path=path)) == expected


def test_a_rule_that_leaves_out_the_start_does_not_hold_below_it(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", "out*\n")
    put(tmp_path, "out/out.txt")
    assert files(call(tmp_path, NEEDLE)) == []
    assert files(call(tmp_path, NEEDLE, path="out")) == ["out/out.txt"]


def test_a_missing_start_is_not_found(tmp_path: Path) -> None:
    assert refusal(tmp_path, "x", path="nowhere").error_type is ErrorType.NOT_FOUND


# ---- how it is shown


def test_rows_are_grouped_with_context_and_counts(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "one\ntwo\nhit\nfour\nfive\nsix\nhit\n")
    put(tmp_path, "b/c.txt", "hit\n")
    assert call(tmp_path, "^hit$", context_lines=1) == (
        "searched for `^hit$` (regex) in `.`\n\n"
        "a.txt-2-two\na.txt:3:hit\na.txt-4-four\n--\na.txt-6-six\na.txt:7:hit\n\n"
        "b/c.txt:1:hit\n\n"
        "3 matches in 2 files (2 files searched)"
    )


def test_a_cut_at_the_limit_is_said_and_an_exact_fit_is_not(tmp_path: Path) -> None:
    put(tmp_path, "a", "x\n" * 5)
    put(tmp_path, "b", "x\n" * 5)
    cut = call(tmp_path, "x", max_results=7)
    assert "7 matches in 2 files" in cut
    assert "[stopped at 7 matches: there are more" in cut
    assert "stopped" not in call(tmp_path, "x", max_results=10)
    assert "[stopped at 5" in call(tmp_path, "x", max_results=5)


@pytest.mark.parametrize("tool", [search_files, grep_search], ids=lambda tool: tool.name)
def test_200_matches_are_shown_by_default_and_1000_at_the_most(tmp_path: Path, tool: Tool) -> None:
    put(tmp_path, "a", "x\n" * 1001)
    assert call(tmp_path, "x", tool).count("\na:") == 200
    assert call(tmp_path, "x", tool, max_results=1000).count("\na:") == 1000
    with pytest.raises(ToolFailed, match="from 1 to 1000"):
        call(tmp_path, "x", tool, max_results=1001)


def test_names_of_files_are_listed_apart(tmp_path: Path) -> None:
    put(tmp_path, "src/Config.py", "nothing\n")
    put(tmp_path, ".env.config", "nothing\n")
    assert "file names that match:\nsrc/Config.py\n" in call(tmp_path, "config", kind="wildcard")
    assert "file names" not in call(tmp_path, "config+")
    for number in range(20):
        put(tmp_path, f"config{number:02}", "nothing\n")
    assert "\nconfig19\n(and 1 more)\n" in call(tmp_path, "config", kind="wildcard")


def test_a_row_stays_one_row_whatever_the_line_holds(tree: Path) -> None:
    answer = call(tree, NEEDLE)
    assert "\x1b" not in answer
    assert f"esc:1:\ufffd[31m{NEEDLE}\ufffd\ufffd" in answer
    assert f"latin:1:caf\ufffd {NEEDLE}\nlatin:2:\ufffd\ufffd{NEEDLE}\ufffd" in answer
    assert f"crlf:1:{NEEDLE}\ncrlf:2:b {NEEDLE}" in answer
    (long,) = re.findall(r"^long:1:(.*)$", answer, re.MULTILINE)
    assert NEEDLE in long
    assert long.endswith("… [10,006 characters]")
    assert len(long) == 422


# ---- ripgrep and RE2 agree

PATTERNS = [
    NEEDLE,
    NEEDLE.upper(),
    "n33dle$",
    "^n33dle",
    r"\bn33dle\b",
    "n.*e",
    r"\w+",
    "[^a-z]3",
    "caf.",
    "caf. n",
    r"\S\s?n",
    ".n33",
    "(?i)N33DLE",
    r"\Qn33\Ed",
    r"[[:alpha:]]33",
    r"\pL3",
    "n{,5}",
    "[n&&d]3",
    "x|n33|",
    "n33dle.",
    "\ufeff",
    "é|n",
    "(?U)n3+",
    "(?s-i:n.)3",
    r"\x1b\[",
    "",
    "(?P<a>n)3",
    r"[\W_]3|dl",
    "n3{2,9}d",
    "[[n]",
    r"(?:n|e)\z",
    r"\x6e\063",
]


@pytest.mark.parametrize("text", PATTERNS)
def test_both_ways_give_the_same_answer_over_the_tree(tree: Path, text: str) -> None:
    assert RIPGREP is not None
    if not text:
        return
    workspace = Workspace(tree)
    pattern = read_pattern(text, "regex", ignore_case=False)
    for scope in (Scope("."), Scope(".", hidden=True, ignored=True)):
        answers = [
            format_report(
                asyncio.run(search(workspace, pattern, scope, context_lines=1, ripgrep=program)), ""
            )
            for program in (RIPGREP, None)
        ]
        assert answers[0] == answers[1]


_CHARACTERS = st.sampled_from(
    "aAbBiIkKsS\u0130\u0131\u017f\u212aéßẞǆ1_- \t.\x0b\x1c\u00a0\u2028²½\u0301\x00"
)
_RAW = st.sampled_from([b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\r"])
_LINE = st.lists(_CHARACTERS.map(str.encode) | _RAW, max_size=8).map(b"".join)
_ATOM = st.one_of(
    _CHARACTERS.map(re.escape),
    st.sampled_from([".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\pL", r"\p{Greek}", r"\PN"]),
    st.sampled_from(
        [
            "[a-k]",
            "[^a]",
            "[^é]",
            "[ß-\u0180]",
            r"[\w-]",
            r"[^\W1]",
            "[^ik]",
            "[]a]",
            "[^]^]",
            "[[a]",
            "[a&&b]",
            "[a--b]",
            "[a~~k]",
            "[[:alpha:]-]",
            "[[:^upper:]]",
            r"[^\pL]",
            r"[\t-\r]",
            r"[\x{61}-\x6b]",
            r"[\]\-a]",
            "[#-% ]",
        ]
    ),
    st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\z"]),
    st.sampled_from(
        ["(?i:i)", "(?i:s)", "(?i:é)", "(?i)", "(?s:.)", "(?U)", "(?i-s:k)", r"\Q.a\E", r"\Qa*"]
    ),
    st.sampled_from(["{,5}", "{", "}", "]", r"\x{e9}", r"\141", r"\07", r"\v", "#", r"\_", "a{2}"]),
)
_REGEX = st.recursive(
    _ATOM,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,7}", "{6,9}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda one: f"(?P<x>{one})" if "<x>" not in one else one),
        inner.map(lambda one: f"(?i:{one})"),
    ),
    max_leaves=6,
)


def find_lines_with_ripgrep(expression: str, data: bytes) -> set[int]:
    """Return the numbers of the lines that ripgrep finds."""
    assert RIPGREP is not None
    shown = subprocess.run(
        [
            RIPGREP,
            "--no-config",
            "--text",
            "--encoding=none",
            "-n",
            "-o",
            "--no-filename",
            "-e",
            expression,
            "-",
        ],
        input=data,
        capture_output=True,
        check=False,
    )
    assert shown.returncode in (0, 1), shown.stderr
    return {int(row.split(b":")[0]) for row in shown.stdout.split(b"\n") if re.match(rb"\d+:", row)}


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(_REGEX, st.booleans(), st.lists(_LINE, min_size=1, max_size=12))
def test_ripgrep_never_misses_a_line_that_re2_finds(
    text: str, ignore_case: bool, content: list[bytes]
) -> None:
    pattern = read_any(text, ignore_case=ignore_case)
    data = b"\n".join(content)
    found = find_hits(pattern.compiled, data, wanted=len(content), is_over=lambda: False)
    assert {hit.number for hit in found} <= find_lines_with_ripgrep(pattern.wider, data)


def read_any(text: str, *, ignore_case: bool) -> Pattern:
    """Read what is an expression; what is none is another example."""
    try:
        return read_pattern(text, "regex", ignore_case=ignore_case)
    except ToolFailed:
        assume(False)
        raise


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(_REGEX, st.lists(_LINE, min_size=1, max_size=12), st.sampled_from([1, 3, 262_144]))
def test_a_text_matches_as_its_lines_do(text: str, content: list[bytes], piece: int) -> None:
    """Whatever the pieces are, and wherever a match could go over a line end."""
    assume(not re.search(r"\\[Az]", text))  # The borders of a text, not of a line.
    pattern = read_any(text, ignore_case=False)
    data = b"\n".join(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_matching, "PIECE", piece)
        hits = find_hits(pattern.compiled, data, wanted=100, is_over=lambda: False)
    expected: list[tuple[int, int]] = []
    for number, line in enumerate(split_lines(data), 1):
        # RE2 takes half a character for one, we do not.
        raw = line.encode("utf-8", "surrogateescape").replace(b"\xed\xa0\x80", b"\xff" * 3)
        if match := pattern.compiled.search(raw):
            start = len(raw[: match.start()].decode("utf-8", "surrogateescape"))
            expected.append((number, start))
    assert [(hit.number, hit.start) for hit in hits] == expected


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(text=_REGEX, content=st.lists(_LINE, min_size=1, max_size=6), ignore_case=st.booleans())
def test_both_ways_give_the_same_rows_for_any_content(
    tmp_path: Path, text: str, content: list[bytes], ignore_case: bool
) -> None:
    put(tmp_path, "f", b"\n".join(content))
    put(tmp_path, "g", b"\n".join(reversed(content)) + b"\n")
    pattern = read_any(text, ignore_case=ignore_case)
    workspace = Workspace(tmp_path)
    both = [
        asyncio.run(search(workspace, pattern, Scope("."), context_lines=1, ripgrep=program)).rows
        for program in (RIPGREP, None)
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("text", "numbers"), [(r"\d", {1}), (r"[\s-]", {2}), (r"[^\w-]", {3}), (r"\W", {2, 3})]
)
def test_ripgrep_searches_for_classes_of_characters_too(text: str, numbers: set[int]) -> None:
    expression = read_pattern(text, "regex", ignore_case=False).wider
    assert find_lines_with_ripgrep(expression, b"7\n-\n!\nx\n") == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Ab", {1, 2}),
        ("(?:a|x)[bY]", {1, 2, 3}),
        ("(?i:A)b", {2}),
        ("[a-c]{2}", {1, 2}),
        ("K", {4, 5}),
        ("[k]", {4, 5}),
        ("É", {1, 2, 3, 4, 5, 6}),
    ],
)
def test_ripgrep_searches_for_letters_of_either_case(text: str, numbers: set[int]) -> None:
    expression = read_pattern(text, "regex", ignore_case="i:" not in text).wider
    data = "AB\nab\nXY\nk\n\u212a\né\n".encode()
    assert find_lines_with_ripgrep(expression, data) == numbers


def test_its_configuration_and_the_environment_do_not_reach_ripgrep(
    tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, "rgrc", "--invert-match\n--glob=!*.py\n")
    put(tree, ".rgignore", "*\n")
    put(tree, ".ignore", "*\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rgrc"))
    assert "src/a.py" in files(call(tree, NEEDLE))


# ---- time


def test_a_pattern_that_other_engines_take_years_for_is_matched_at_once(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "a" * 60 + "b\n" + "a" * 60 + "\n")
    assert "a.txt:2:" in call(tmp_path, "^(a+)+$")


def test_without_time_it_says_where_it_stopped(tmp_path: Path) -> None:
    put(tmp_path, "big.txt", "x\n" * 10)
    pattern = read_pattern("y", "regex", ignore_case=False)
    with pytest.raises(ToolFailed, match=r"at `big\.txt`; files after it") as raised:
        asyncio.run(search(Workspace(tmp_path), pattern, Scope("."), seconds=-1))
    assert raised.value.error_type is ErrorType.TIMEOUT


def test_what_was_found_before_the_time_ended_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.txt", "x\n")
    put(tmp_path, "b.txt", "x\n")
    real = search_module.find_hits

    def out_of_time(pattern: Any, content: bytes, **bounds: Any) -> list[Hit]:
        if bounds["wanted"] < 11:  # There was one before.
            raise OutOfTime
        return real(pattern, content, **bounds)

    monkeypatch.setattr(search_module, "find_hits", out_of_time)
    pattern = read_pattern("x+", "regex", ignore_case=False)
    found = asyncio.run(search(Workspace(tmp_path), pattern, Scope("."), max_results=10))
    assert [row.path for row in found.rows] == ["a.txt"]
    assert (
        "at `b.txt`; files after it were not searched: the result is incomplete"
        in (found.warnings[0])
    )


def test_a_search_that_is_over_ends_between_two_pieces() -> None:
    pattern = read_pattern("y", "regex", ignore_case=False)
    asked: list[bool] = []

    def is_over() -> bool:
        asked.append(True)
        return len(asked) > 2

    with pytest.raises(OutOfTime):
        find_hits(pattern.compiled, b"x\n" * 524_288, wanted=1, is_over=is_over)
    assert len(asked) == 3


def test_a_piece_that_takes_longer_than_there_is_time_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.txt", "x\n")
    ends = threading.Event()
    monkeypatch.setattr(search_module, "find_hits", lambda *_, **__: ends.wait(60))
    pattern = read_pattern("x", "regex", ignore_case=False)
    try:
        with pytest.raises(ToolFailed, match=r"a\.txt") as raised:
            asyncio.run(search(Workspace(tmp_path), pattern, Scope("."), seconds=0.2))
    finally:
        ends.set()
    assert raised.value.error_type is ErrorType.TIMEOUT


def test_it_declares_what_it_is() -> None:
    assert (search_files.side_effect, search_files.risk) == ("read", "low")
    assert search_files.touches["path"].kind == "read"
    assert [tool.name for tool in search_module.TOOLS] == ["search_files"]


async def test_what_the_walk_met_ahead_of_the_search_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "_BATCH_NAMES", 2)
    for name in ("a", "b", "c", "d", "e"):
        (tmp_path / f"{name}.txt").write_text("x\n" * 3)
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "d.env").write_text("x\n")
    workspace = Workspace(tmp_path)
    pattern = read_pattern("x", "literal", ignore_case=False)
    found = await search(workspace, pattern, Scope("."), max_results=2)
    assert (found.searched, found.matches, found.withheld) == (2, 2, [])
    found = await search(workspace, pattern, Scope("."), max_results=100)
    assert (found.searched, found.matches, found.withheld) == (5, 15, ["z/d.env"])


def _write_five(folder: Path) -> Workspace:
    for name in ("a", "b", "c", "d", "e"):
        (folder / f"{name}.txt").write_text("x\n")
    return Workspace(folder)


async def test_files_come_in_their_order_whichever_prefilter_ends_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[int] = []

    async def find_slowly(_: str, __: str, names: list[str], **more: Any) -> list[str]:
        at_work.append(len(asyncio.all_tasks()))
        await asyncio.sleep(0.05 if names == ["a.txt"] else 0)
        return names

    monkeypatch.setattr(search_module, "_BATCH_NAMES", 1)
    monkeypatch.setattr(search_module, "find_candidates", find_slowly)
    pattern = read_pattern("x", "literal", ignore_case=False)
    found = await search(_write_five(tmp_path), pattern, Scope("."), ripgrep="rg")
    assert [row.path[0] for row in found.rows] == ["a", "b", "c", "d", "e"]
    assert max(at_work) == 3, "two of them and the search"


async def test_a_search_that_has_what_is_wanted_ends_the_prefilter_that_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[list[str]] = []

    async def find_first(_: str, __: str, names: list[str], **more: Any) -> list[str]:
        if names != ["a.txt"]:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(names)
        return names

    monkeypatch.setattr(search_module, "_BATCH_NAMES", 1)
    monkeypatch.setattr(search_module, "find_candidates", find_first)
    pattern = read_pattern("x", "literal", ignore_case=False)
    (tmp_path / "a.txt").write_text("x\nx\n")
    workspace = Workspace(tmp_path)
    (tmp_path / "b.txt").write_text("x\n")
    found = await search(workspace, pattern, Scope("."), max_results=1, ripgrep="rg")
    assert (found.matches, found.searched) == (1, 1)
    assert ended == [["b.txt"]]
