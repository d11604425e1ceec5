"""The file tools as a model uses them: arguments checked by their schema, then the handler."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.core.messages import ToolMessage
from ferrule.models.media_encoding import read_bytes
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.testing import calls, says
from ferrule.toolkits.files import tools
from ferrule.tools.context import Context
from ferrule.tools.definition import Risk, SideEffect, Tool
from media_samples import PDF, SVG, make_gif, make_png

READ_LIMIT = 10 * 1024 * 1024

TOOLS = {tool.name: tool for tool in tools.TOOLS}
WRITERS = ["write_file", "edit_file", "replace_lines", "insert_lines", "create_dir", "delete_path"]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {},
    "read_file_tail": {},
    "write_file": {"content": "x"},
    "edit_file": {"old_string": "TOKEN", "new_string": "x"},
    "replace_lines": {"line_start": 1, "line_end": 1, "new_content": "x"},
    "insert_lines": {"line_start": 1, "new_content": "x"},
    "create_dir": {},
    "delete_path": {"recursive": True},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"one\ntwo\nthree\n")
    return folder


@pytest.fixture
def context(root: Path) -> Context:
    return session(root)


def session(root: Path) -> Context:
    identity = Identity("tenant", "user", "session", "run")
    return Context(identity, "call-1", resources={Workspace: Workspace(root)})


def call(tool: str, context: Context, **arguments: Any) -> Any:
    checked = TOOLS[tool].arguments.check(arguments)
    assert not checked.problems, checked.problems
    return TOOLS[tool].handler(**checked.values, context=context)


def refused(use: Callable[[], object]) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        use()
    return failure.value


def previewed(tool: str, context: Context, **arguments: Any) -> str:
    preview = TOOLS[tool].preview
    assert preview is not None
    return asyncio.run(preview(TOOLS[tool].arguments.check(arguments).values, context))


# What the tools are


def test_each_tool_says_what_it_does_to_the_world_and_which_paths_it_touches() -> None:
    def facts(tool: Tool) -> tuple[SideEffect, Risk, dict[str, str]]:
        return (
            tool.side_effect,
            tool.risk,
            {name: touch.kind for name, touch in tool.touches.items()},
        )

    read, write = SideEffect.READ, SideEffect.WRITE
    assert {name: facts(tool) for name, tool in TOOLS.items()} == {
        "read_file": (read, Risk.MEDIUM, {"path": "read"}),
        "read_file_tail": (read, Risk.MEDIUM, {"path": "read"}),
        "write_file": (write, Risk.HIGH, {"path": "write"}),
        "edit_file": (write, Risk.HIGH, {"path": "write"}),
        "replace_lines": (write, Risk.HIGH, {"path": "write"}),
        "insert_lines": (write, Risk.HIGH, {"path": "write"}),
        "create_dir": (write, Risk.MEDIUM, {"path": "write"}),
        "move_path": (write, Risk.HIGH, {"source": "write", "target": "write"}),
        "delete_path": (write, Risk.HIGH, {"path": "write"}),
    }


@pytest.mark.proves("files.bad-arguments")
@pytest.mark.parametrize(
    "arguments",
    [{}, {"path": True}, {"path": None}, {"path": ["a.txt"]}, {"path": "a", "file": "b"}],
)
def test_arguments_of_the_wrong_kind_are_named_and_do_not_reach_the_handler(
    arguments: dict[str, Any],
) -> None:
    problems = TOOLS["read_file"].arguments.check(arguments).problems
    assert problems
    assert "path" in problems[0] or "file" in problems[0]


def test_a_run_without_a_workspace_is_told_to_pass_one() -> None:
    lonely = Context(Identity("t", "u", "s", "r"), "call-1")
    with pytest.raises(ConfigError, match="workspace"):
        call("read_file", lonely, path="a.txt")


@pytest.mark.proves("files.same-refusal")
@pytest.mark.parametrize(
    "path",
    [".env", "src/K.PEM", "agents/harvey.yaml", ".git/config", "../out.txt", "/etc/passwd", "~/x"],
)
@pytest.mark.parametrize("tool", ARGUMENTS)
def test_what_the_workspace_refuses_every_tool_refuses(
    context: Context, root: Path, tool: str, path: str
) -> None:
    for name in (".env", "src/K.PEM", "agents/harvey.yaml", ".git/config"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("TOKEN\n")
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert (
        refused(lambda: call(tool, context, path=path, **ARGUMENTS[tool])).error_type
        is ErrorType.PERMISSION_DENIED
    )
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before
    assert not list(root.rglob("*.tmp"))
    preview = TOOLS[tool].preview
    if preview is not None:
        with pytest.raises(ToolFailed) as caught:
            asyncio.run(preview({"path": path, **ARGUMENTS[tool]}, context))
        assert "TOKEN" not in str(caught.value)


@pytest.mark.proves("files.same-refusal")
@pytest.mark.parametrize(
    ("source", "target"),
    [(".env", "x"), ("a.txt", ".env"), ("a.txt", "../x"), ("a.txt", "agents/x")],
)
def test_moving_cannot_launder_a_name(
    context: Context, root: Path, source: str, target: str
) -> None:
    (root / ".env").write_text("TOKEN")
    failure = refused(
        lambda: call("move_path", context, source=source, target=target, overwrite=True)
    )
    assert failure.error_type is ErrorType.PERMISSION_DENIED
    assert sorted(os.listdir(root)) == [".env", "a.txt"]


# Reading


def test_lines_are_numbered_from_one(context: Context) -> None:
    assert call("read_file", context, path="a.txt") == "1: one\n2: two\n3: three"


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (2, 2, "2: two\n[lines 2-2 of 3]"),
        (2, None, "2: two\n3: three\n[lines 2-3 of 3]"),
        (None, 1, "1: one\n[lines 1-1 of 3]"),
        (1, 3, "1: one\n2: two\n3: three"),
        (2, 99, "2: two\n3: three\n[lines 2-3 of 3]"),
        (1, 99, "1: one\n2: two\n3: three\n[lines 1-3 of 3]"),
    ],
)
def test_a_range_is_read_and_says_what_it_is_part_of(
    context: Context, first: int | None, last: int | None, text: str
) -> None:
    assert call("read_file", context, path="a.txt", line_start=first, line_end=last) == text


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (4, None, "3 lines"),
        (9, 12, "3 lines"),
        (3, 2, "before"),
        (0, 1, "from 1"),
        (-1, None, "from 1"),
    ],
)
def test_a_range_that_is_not_in_the_file_is_refused_with_the_reason(
    context: Context, first: int, last: int | None, words: str
) -> None:
    failure = refused(
        lambda: call("read_file", context, path="a.txt", line_start=first, line_end=last)
    )
    assert failure.error_type is ErrorType.VALIDATION_FAILED
    assert words in failure.message


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "[the file is empty]"),
        (b"\n", "1: "),
        (b"a", "1: a"),
        (b"a\n\nb", "1: a\n2: \n3: b"),
        (b"a\r\nb\r\n", "1: a\n2: b"),
        (b"a\x0cb\n", "1: a\x0cb"),
        ("\ufeffa\n".encode(), "1: a"),
        ("\u20ac \U0001f600\n".encode(), "1: \u20ac \U0001f600"),
        ("real \ufffd\n".encode(), "1: real \ufffd"),
    ],
)
def test_unusual_files_read_as_expected(
    context: Context, root: Path, data: bytes, text: str
) -> None:
    (root / "f").write_bytes(data)
    assert call("read_file", context, path="f") == text


def test_bytes_that_are_not_utf8_are_marked_with_a_note_and_kept_by_edits(
    context: Context, root: Path
) -> None:
    (root / "latin").write_bytes(b"caf\xe9\nplain\n")
    shown = call("read_file", context, path="latin")
    assert shown.startswith("1: caf\ufffd\n2: plain\n[some bytes are not UTF-8")
    call("edit_file", context, path="latin", old_string="plain", new_string="deja")
    assert (root / "latin").read_bytes() == b"caf\xe9\ndeja\n"


@pytest.mark.parametrize(
    ("tool", "values"),
    [
        ("edit_file", {"old_string": "plain", "new_string": "déjà"}),
        ("replace_lines", {"line_start": 2, "line_end": 2, "new_content": "déjà"}),
        ("insert_lines", {"line_start": 2, "new_content": "déjà"}),
    ],
)
def test_no_edit_puts_characters_of_utf8_into_a_file_of_another_encoding(
    context: Context, root: Path, tool: str, values: dict[str, Any]
) -> None:
    """Programs would read them wrong: the file has one encoding, which is not known."""
    (root / "latin").write_bytes(b"caf\xe9\nplain\n")
    call("read_file", context, path="latin")
    with pytest.raises(ToolFailed, match=r"is not UTF-8, so `é` cannot be written.*iconv"):
        call(tool, context, path="latin", **values)
    assert (root / "latin").read_bytes() == b"caf\xe9\nplain\n"


def test_a_whole_file_that_was_not_utf8_is_replaced_and_that_is_said(
    context: Context, root: Path
) -> None:
    (root / "latin").write_bytes(b"caf\xe9\n")
    call("read_file", context, path="latin")
    said = call("write_file", context, path="latin", content="café\n")
    assert "was not UTF-8 and is now" in said
    assert (root / "latin").read_text() == "café\n"


@pytest.mark.parametrize("tool", ["read_file", "read_file_tail", "edit_file", "replace_lines"])
@pytest.mark.parametrize("data", [b"\x7fELF\0\0", "text".encode("utf-16"), "漢字".encode("utf-16")])
def test_a_binary_file_is_a_parse_error(
    context: Context, root: Path, tool: str, data: bytes
) -> None:
    (root / "f").write_bytes(data)
    assert (
        refused(lambda: call(tool, context, path="f", **ARGUMENTS[tool])).error_type
        is ErrorType.PARSE_ERROR
    )
    assert (root / "f").read_bytes() == data


def test_of_a_large_file_a_part_can_be_read(context: Context, root: Path) -> None:
    count, dots = 500_000, "." * 86
    (root / "big.log").write_bytes(
        b"".join(b"line %07d %s\n" % (n, b"." * 86) for n in range(1, count + 1))
    )
    assert (root / "big.log").stat().st_size > 49_000_000
    shown = call("read_file", context, path="big.log")
    assert len(shown) < 21_000
    assert re.search(rf"\n\[lines 1-(\d+) of {count}; go on at line \d+\]$", shown)
    assert call("read_file", context, path="big.log", line_start=300_000, line_end=300_001) == (
        f"300000: line 0300000 {dots}\n300001: line 0300001 {dots}\n[lines 300000-300001 of "
        f"{count}]"
    )
    tail = call("read_file_tail", context, path="big.log", line_count=2)
    assert tail == (
        f"line 0499999 {dots}\nline 0500000 {dots}\n[the last 2 lines of a large file, "
        "without numbers]"
    )
    edit = {"path": "big.log", "old_string": "line 0000001", "new_string": "x"}
    assert refused(lambda: call("edit_file", context, **edit)).error_type is ErrorType.LIMIT


def test_one_endless_line_is_refused_only_if_it_is_asked_for(context: Context, root: Path) -> None:
    (root / "min.js").write_bytes(b"// head\n" + b"x" * (READ_LIMIT + 100) + b"\n// tail\n")
    assert call("read_file", context, path="min.js", line_start=3) == "3: // tail\n[lines 3-3 of 3]"
    failure = refused(lambda: call("read_file", context, path="min.js", line_start=2, line_end=2))
    assert failure.error_type is ErrorType.LIMIT


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "3: three\n[lines 3-3 of 3]"),
        (2, "2: two\n3: three\n[lines 2-3 of 3]"),
        (50, "1: one\n2: two\n3: three"),
    ],
)
def test_the_tail_keeps_line_numbers(context: Context, count: int, text: str) -> None:
    assert call("read_file_tail", context, path="a.txt", line_count=count) == text


@pytest.mark.parametrize("count", [0, -1, 2001])
def test_the_tail_has_bounds(context: Context, count: int) -> None:
    failure = refused(lambda: call("read_file_tail", context, path="a.txt", line_count=count))
    assert failure.error_type is ErrorType.VALIDATION_FAILED


@pytest.mark.proves("files.not-found")
def test_a_missing_file_is_not_found_and_named(context: Context) -> None:
    for tool in (
        "read_file",
        "read_file_tail",
        "edit_file",
        "replace_lines",
        "insert_lines",
        "delete_path",
    ):
        failure = refused(
            lambda tool=tool: call(tool, context, path="config.txt", **ARGUMENTS[tool])
        )
        assert failure.error_type is ErrorType.NOT_FOUND
        assert "`config.txt`" in failure.message


# Writing


def test_writing_makes_folders_and_says_how_much(context: Context, root: Path) -> None:
    assert (
        call("write_file", context, path="new/deep/x.txt", content="é\n")
        == "wrote `new/deep/x.txt`: new, 3 bytes, 1 line"
    )
    assert (root / "new/deep/x.txt").read_bytes() == "é\n".encode()
    assert (
        call("write_file", context, path="a.txt", content="")
        == "wrote `a.txt`: replaced, 0 bytes, 0 lines"
    )


def test_what_cannot_be_written_leaves_nothing_behind(context: Context, root: Path) -> None:
    before = sorted(root.rglob("*"))
    for path, content, kind in (
        ("d/", "x", ErrorType.VALIDATION_FAILED),
        ("", "x", ErrorType.VALIDATION_FAILED),
        ("new/x", "\ud800", ErrorType.VALIDATION_FAILED),
        ("new/x", "x" * (READ_LIMIT + 1), ErrorType.VALIDATION_FAILED),
        ("new/x", "é" * (READ_LIMIT // 2 + 1), ErrorType.VALIDATION_FAILED),
        ("a.txt/x", "x", ErrorType.VALIDATION_FAILED),
    ):
        failure = refused(
            lambda path=path, content=content: call(
                "write_file", context, path=path, content=content
            )
        )
        assert failure.error_type is kind, failure
    assert sorted(root.rglob("*")) == before


def test_a_link_is_not_written_through(context: Context, root: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    (root / "l").symlink_to(tmp_path / "out")
    for tool in ("write_file", "edit_file", "replace_lines"):
        failure = refused(lambda tool=tool: call(tool, context, path="l", **ARGUMENTS[tool]))
        assert failure.error_type is ErrorType.PERMISSION_DENIED
    assert (tmp_path / "out").read_text() == "mine"


# Editing


def test_an_edit_must_match_exactly_once(context: Context, root: Path) -> None:
    (root / "f").write_text("x = 1\ny = 1\n")
    failure = refused(lambda: call("edit_file", context, path="f", old_string="1", new_string="2"))
    assert failure.error_type is ErrorType.VALIDATION_FAILED
    assert "lines 1, 2" in failure.message
    assert (root / "f").read_text() == "x = 1\ny = 1\n"
    (root / "blank").write_text("\na\n\na\n")
    failure = refused(
        lambda: call("edit_file", context, path="blank", old_string="a", new_string="b")
    )
    assert "lines 2, 4" in failure.message
    assert "line 2" in call("edit_file", context, path="f", old_string="y = 1", new_string="y = 2")
    done = call("edit_file", context, path="f", old_string=" = ", new_string=": ", replace_all=True)
    assert done == "replaced 2 occurrences; `f` has 2 lines now"
    assert (root / "f").read_text() == "x: 1\ny: 2\n"


def test_an_edit_keeps_mode_and_line_ends(context: Context, root: Path) -> None:
    (root / "run.sh").write_bytes(b"#!/bin/sh\r\necho a\r\n")
    (root / "run.sh").chmod(0o755)
    call("edit_file", context, path="run.sh", old_string="echo a", new_string="echo b\necho c")
    assert (root / "run.sh").read_bytes() == b"#!/bin/sh\r\necho b\r\necho c\r\n"
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755


def test_an_edit_that_fits_loosely_says_how_in_its_result_and_in_its_preview(
    context: Context, root: Path
) -> None:
    (root / "f").write_bytes(b"def f():\r\n\tone()  \r\n\ttwo('a')\r\n")
    edit = {"path": "f", "old_string": "    one()\n    two(‘a’)", "new_string": "    one()\n    2"}
    note = "`old_string` fits apart from its indentation, which the new text was given too"
    shown = previewed("edit_file", context, **edit)
    assert shown.startswith(f"[{note}]\n--- f\n+++ f\n")
    done = call("edit_file", context, **edit)
    assert done == f"replaced the text at line 2; {note}; `f` has 3 lines now"
    assert (root / "f").read_bytes() == b"def f():\r\n\tone()  \r\n\t2\r\n"


def test_several_edits_of_a_file_are_made_by_one_call_or_none_is(
    context: Context, root: Path
) -> None:
    before = (root / "a.txt").read_bytes()
    edit = {"path": "a.txt", "old_string": "one", "new_string": "1"}
    three = {"old_string": "three", "new_string": "3"}
    missing = {"old_string": "four", "new_string": "4"}
    failure = refused(lambda: call("edit_file", context, **edit, more_edits=[three, missing]))
    assert "`old_string` of edit 3 was not found" in failure.message
    assert (root / "a.txt").read_bytes() == before
    done = call("edit_file", context, **edit, more_edits=[three])
    assert done.startswith("replaced the text at line 1; replaced the text at line 3; `a.txt` has")
    assert (root / "a.txt").read_text() == "1\ntwo\n3\n"
    impossible = TOOLS["edit_file"].impossible
    assert impossible is not None
    for wrong in ({"old": "two", "new": "2"}, {"old_string": "two"}):
        problems = impossible({**edit, "more_edits": [wrong]})
        assert "`more_edits[0]` must have `old_string` and `new_string`" in problems[0]
        assert refused(lambda: call("edit_file", context, **edit, more_edits=[wrong]))  # noqa: B023


@pytest.mark.proves("files.replace-lines")
def test_lines_are_replaced_and_again_without_change(context: Context, root: Path) -> None:
    arguments = {"path": "a.txt", "line_start": 2, "line_end": 3, "new_content": "2\n3"}
    assert (
        call("replace_lines", context, **arguments)
        == "replaced lines 2-3 by 2 lines; `a.txt` has 3 lines now"
    )
    once = (root / "a.txt").read_bytes()
    assert once == b"one\n2\n3\n"
    assert "no change" in call("replace_lines", context, **arguments)
    assert (root / "a.txt").read_bytes() == once


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [(0, 1, "from 1"), (2, 1, "insert_lines"), (2, 4, "has 3 lines"), (4, 4, "has 3 lines")],
)
def test_lines_that_are_not_there_are_not_replaced(
    context: Context, root: Path, first: int, last: int, words: str
) -> None:
    arguments = {"path": "a.txt", "line_start": first, "line_end": last, "new_content": "x"}
    failure = refused(lambda: call("replace_lines", context, **arguments))
    assert (failure.error_type, words in failure.message) == (ErrorType.VALIDATION_FAILED, True)
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"


@pytest.mark.proves("files.insert-lines")
@pytest.mark.parametrize(
    ("line", "end", "result"),
    [
        (1, None, b"new\none\ntwo\nthree\n"),
        (3, 3, b"one\ntwo\nnew\nthree\n"),
        (4, 4, b"one\ntwo\nthree\nnew\n"),
    ],
)
def test_lines_are_inserted_before_a_line_or_appended(
    context: Context, root: Path, line: int, end: int | None, result: bytes
) -> None:
    call("insert_lines", context, path="a.txt", line_start=line, line_end=end, new_content="new")
    assert (root / "a.txt").read_bytes() == result


@pytest.mark.proves("files.insert-lines")
@pytest.mark.parametrize(
    ("line", "end", "new"), [(2, 3, "x"), (5, 5, "x"), (0, 0, "x"), (2, 2, "")]
)
def test_an_insertion_that_makes_no_sense_is_refused(
    context: Context, root: Path, line: int, end: int, new: str
) -> None:
    arguments = {"path": "a.txt", "line_start": line, "line_end": end, "new_content": new}
    assert (
        refused(lambda: call("insert_lines", context, **arguments)).error_type
        is ErrorType.VALIDATION_FAILED
    )
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"


# Nobody's change is lost


EDITS = ["write_file", "edit_file", "replace_lines", "insert_lines"]
EDIT_ARGUMENTS = {**ARGUMENTS, "edit_file": {"old_string": "one", "new_string": "1"}}


@pytest.mark.parametrize("tool", EDITS)
def test_a_file_that_changed_since_it_was_read_is_not_overwritten(
    context: Context, root: Path, tool: str
) -> None:
    call("read_file", context, path="a.txt")
    (root / "a.txt").write_text("one, by a person\n")
    failure = refused(lambda: call(tool, context, path="a.txt", **EDIT_ARGUMENTS[tool]))
    assert failure.error_type is ErrorType.IO_ERROR
    assert "changed since it was read" in failure.message
    assert "ead it again" in failure.message
    assert (root / "a.txt").read_text() == "one, by a person\n"
    call("read_file", context, path="a.txt")
    call(tool, context, path="a.txt", **EDIT_ARGUMENTS[tool])
    assert (root / "a.txt").read_text() != "one, by a person\n"


def test_of_a_file_that_changed_it_is_said_whether_the_edit_would_still_fit(
    context: Context, root: Path
) -> None:
    call("read_file", context, path="a.txt")
    (root / "a.txt").write_text("zero\none\nthree\n")
    fits = {"path": "a.txt", "old_string": "one", "new_string": "1"}
    message = refused(lambda: call("edit_file", context, **fits)).message
    assert "this edit would still fit, at line 2; call `read_file` with `line_start: 1" in message
    gone = {"path": "a.txt", "old_string": "one\ntwo", "new_string": "1"}
    message = refused(lambda: call("edit_file", context, **gone)).message
    assert "this edit would not fit" in message
    assert "2: one\n3: three" in message


@pytest.mark.parametrize("tool", EDITS)
def test_a_file_that_was_never_read_may_be_edited(context: Context, root: Path, tool: str) -> None:
    call(tool, context, path="a.txt", **EDIT_ARGUMENTS[tool])
    assert (root / "a.txt").read_bytes() != b"one\ntwo\nthree\n"


def test_the_sessions_own_edits_do_not_count_as_changes(context: Context) -> None:
    call("read_file", context, path="a.txt")
    call("replace_lines", context, path="a.txt", line_start=1, line_end=1, new_content="1")
    call("edit_file", context, path="./a.txt", old_string="two", new_string="2")
    call("move_path", context, source="a.txt", target="b/c.txt")
    call("insert_lines", context, path="b/c.txt", line_start=1, new_content="0")
    call("delete_path", context, path="b", recursive=True)
    call("write_file", context, path="b/c.txt", content="anew")


def test_another_session_sees_the_change(context: Context, root: Path) -> None:
    other = session(root)
    call("read_file", other, path="a.txt")
    call("edit_file", context, path="a.txt", old_string="one", new_string="1")
    failure = refused(
        lambda: call("edit_file", other, path="a.txt", old_string="two", new_string="2")
    )
    assert failure.error_type is ErrorType.IO_ERROR


def test_a_renamed_file_is_still_known(context: Context, root: Path) -> None:
    call("create_dir", context, path="old")
    call("write_file", context, path="old/a.txt", content="one\n")
    call("move_path", context, source="old", target="new")
    (root / "new/a.txt").write_text("by somebody else: one\n")
    failure = refused(
        lambda: call("edit_file", context, path="new/a.txt", old_string="one", new_string="2")
    )
    assert failure.error_type is ErrorType.IO_ERROR


def test_a_deleted_file_may_be_written_anew(context: Context, root: Path) -> None:
    call("read_file", context, path="a.txt")
    (root / "a.txt").unlink()
    call("write_file", context, path="a.txt", content="again")
    assert (root / "a.txt").read_text() == "again"


def test_parallel_edits_of_one_file_lose_nothing_and_report_honestly(root: Path) -> None:
    (root / "f").write_text("".join(f"<{n}>\n" for n in range(12)))
    shared = Workspace(root)
    start = threading.Barrier(12)
    done: list[int] = []

    def edit(number: int) -> None:
        own = Context(Identity("t", "u", f"s{number}", "r"), "call", resources={Workspace: shared})
        start.wait(timeout=10)
        try:
            call("edit_file", own, path="f", old_string=f"<{number}>", new_string=f"done {number}")
        except ToolFailed as failure:
            assert failure.error_type is ErrorType.IO_ERROR
        else:
            done.append(number)

    threads = [threading.Thread(target=edit, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert done
    expected = "".join(f"done {n}\n" if n in done else f"<{n}>\n" for n in range(12))
    assert (root / "f").read_text() == expected


# Folders, moving, deleting


def test_folders_files_and_moves(context: Context, root: Path) -> None:
    assert call("create_dir", context, path="x/y") == "folder `x/y/` exists"
    assert (
        call("move_path", context, source="a.txt", target="x/new/b.txt")
        == "moved `a.txt` to `x/new/b.txt`"
    )
    assert call("move_path", context, source="x", target="z") == "moved `x` to `z`"
    assert (root / "z/new/b.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert (
        refused(lambda: call("delete_path", context, path="z")).error_type
        is ErrorType.VALIDATION_FAILED
    )
    assert call("delete_path", context, path="z", recursive=True) == "deleted `z`"
    assert list(root.iterdir()) == []


def test_a_move_that_fails_makes_no_folders_for_a_missing_source(
    context: Context, root: Path
) -> None:
    assert (
        refused(lambda: call("move_path", context, source="no", target="x/y")).error_type
        is ErrorType.NOT_FOUND
    )
    assert (
        refused(lambda: call("move_path", context, source="a.txt", target="a.txt/b")).error_type
        is ErrorType.VALIDATION_FAILED
    )
    assert [p.name for p in root.iterdir()] == ["a.txt"]


# Previews


def test_a_preview_shows_exactly_the_change_and_makes_none(context: Context, root: Path) -> None:
    shown = previewed("edit_file", context, path="a.txt", old_string="two", new_string="2\n2b")
    assert shown == "--- a.txt\n+++ a.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three"
    shown = previewed("insert_lines", context, path="a.txt", line_start=4, new_content="four")
    assert shown == "--- a.txt\n+++ a.txt\n@@ -1,3 +1,4 @@\n one\n two\n three\n+four"
    shown = previewed(
        "replace_lines", context, path="a.txt", line_start=1, line_end=1, new_content=""
    )
    assert shown == "--- a.txt\n+++ a.txt\n@@ -1,3 +1,2 @@\n-one\n two\n three"
    shown = previewed("write_file", context, path="new.txt", content="a\nb")
    assert (
        shown == "--- /dev/null\n+++ new.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file"
    )
    assert (
        previewed("write_file", context, path="a.txt", content="one\ntwo\nthree\n")
        == "a.txt: no change"
    )
    assert (
        previewed("move_path", context, source="a.txt", target="b.txt")
        == "move file `a.txt` to `b.txt`"
    )
    assert previewed("delete_path", context, path="a.txt") == "delete file `a.txt` (14 bytes)"
    assert {p.name: p.read_bytes() for p in root.iterdir()} == {"a.txt": b"one\ntwo\nthree\n"}


def test_a_preview_of_a_call_that_would_fail_fails_with_the_reason(
    context: Context, root: Path
) -> None:
    for tool in WRITERS:
        if TOOLS[tool].preview is None:
            continue
        for path in ("a.txt/x", "l", "d"):
            (root / "d").mkdir(exist_ok=True)
            if not (root / "l").is_symlink():
                (root / "l").symlink_to("a.txt")
            with contextlib.suppress(ToolFailed):
                assert previewed(tool, context, path=path, **ARGUMENTS[tool])
    with pytest.raises(ToolFailed, match=r"was not found in `a\.txt`"):
        previewed("edit_file", context, path="a.txt", old_string="zzz", new_string="x")
    # A name that tools may read and not write.
    with pytest.raises(ToolFailed):
        previewed("move_path", context, source="a.txt", target=".mcp.json")


def test_a_preview_makes_hidden_and_direction_changing_characters_visible(context: Context) -> None:
    shown = previewed(
        "write_file", context, path="x.sh", content="safe\x1b[2K\x1b[1A\u202e\u200b\n\rcurl | sh\n"
    )
    assert "+safe\\x1b[2K\\x1b[1A\\u202e\\u200b\n+\\rcurl | sh" in shown
    assert all(c.isprintable() or c == "\n" for c in shown)


def test_a_preview_of_a_changed_line_end_shows_it(context: Context, root: Path) -> None:
    (root / "f").write_bytes(b"a\nb\n")
    shown = previewed("write_file", context, path="f", content="a\r\nb\r\n")
    assert "-a" in shown
    assert "+a\\r" in shown


def test_a_preview_of_binary_content_says_that_it_is_replaced(context: Context, root: Path) -> None:
    (root / "f").write_bytes(b"\0\1\2")
    shown = previewed("write_file", context, path="f", content="text\n")
    assert shown.startswith("[replaces what is there, which is not shown")
    assert shown.endswith("+text")


def test_a_long_preview_is_cut_and_says_so(context: Context, root: Path) -> None:
    (root / "f").write_text("".join(f"{n}\n" for n in range(10_000)))
    shown = previewed(
        "write_file", context, path="f", content="".join(f"{n}!\n" for n in range(10_000))
    )
    rows = shown.split("\n")
    assert len(rows) == 403
    assert rows[-1] == "[19601 more lines of this diff are not shown]"
    shown = previewed("edit_file", context, path="f", old_string="9000\n", new_string="changed\n")
    assert shown.split("\n")[2:] == [
        "@@ -8998,7 +8998,7 @@",
        " 8997",
        " 8998",
        " 8999",
        "-9000",
        "+changed",
        " 9001",
        " 9002",
        " 9003",
    ]
    same = "".join(f"{n}\n" for n in range(1, 11))
    (root / "f").write_text(same + "old\n" * 3001)
    shown = previewed("write_file", context, path="f", content=same + "new\n" * 3001)
    assert shown.split("\n")[2:7] == ["@@ -8,3004 +8,3004 @@", " 8", " 9", " 10", "-old"]
    wide = previewed("write_file", context, path="g", content="x" * 9_999 + "\n")
    assert wide.endswith(f"+{'x' * 499}[9500 more characters]")


def test_a_preview_of_deleting_a_folder_lists_what_goes(context: Context, root: Path) -> None:
    (root / "d").mkdir()
    for n in range(25):
        (root / "d" / f"f{n:02}").write_text("")
    shown = previewed("delete_path", context, path="d", recursive=True)
    assert shown.startswith("delete folder `d` with 25 entries below it\n  `d/f00`")
    assert shown.endswith("and 5 more")


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("shot.txt", make_png(3, 3), "image/png"),
        ("paper", PDF, "application/pdf"),
        ("note.png", b"only text", "1: only text"),
        ("a.svg", SVG, "1: " + SVG.decode()),
    ],
)
def test_read_file_shows_pictures_and_pdfs_by_their_content(
    root: Path, name: str, data: bytes, kind: str
) -> None:
    (root / name).write_bytes(data)
    model = Scripted([calls(("read_file", {"path": name})), says("seen")])
    agent = Agent(
        model, TOOLS.values(), workspace=root, permissions=Permissions(allow=["read_file"])
    )
    run = agent.run_sync("look")
    shown = model.asks[1].history[2]
    assert isinstance(shown, ToolMessage)
    if "/" in kind and not kind.startswith("1:"):
        assert [(one.mime, read_bytes(one)) for one in shown.media] == [(kind, data)]
        assert f"{name}: {kind}" in run.results[0].data
    else:
        assert (run.results[0].data, shown.media) == (kind, ())


@pytest.mark.parametrize(
    ("name", "said"),
    [("link.png", "symbolic link"), ("half.png", "cut off"), ("moves.gif", "animated")],
)
def test_a_broken_picture_or_a_link_out_is_an_error_of_read_file(
    root: Path, name: str, said: str
) -> None:
    (root.parent / "shot.png").write_bytes(make_png())
    (root / "link.png").symlink_to(root.parent / "shot.png")
    (root / "half.png").write_bytes(make_png()[:-20])
    (root / "moves.gif").write_bytes(make_gif(3))
    assert said in refused(lambda: call("read_file", session(root), path=name)).message


def test_a_whole_file_keeps_its_line_ends(context: Context, root: Path) -> None:
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    call("read_file", context, path="dos.txt")
    answer = call("write_file", context, path="dos.txt", content="one\nthree\n")
    assert (root / "dos.txt").read_bytes() == b"one\r\nthree\r\n"
    assert "with the CRLF line ends that it had" in answer
    call("write_file", context, path="new.txt", content="one\n")
    assert (root / "new.txt").read_bytes() == b"one\n"
