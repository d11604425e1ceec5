"""Attacks on a person's eyes: words that are not drawn, text that turns around, names that pass for
others.

One table of characters, one of the places where a person says yes or reads what a session did, each
through its own functions.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import tool
from ferrule.cli.permission_prompt import TerminalApprover
from ferrule.cli.terminal import Terminal
from ferrule.cli.terminal import escape_invisible as terminal_visible
from ferrule.console.html import mark_invisible as console_visible
from ferrule.console.html import template_environment
from ferrule.console.questions import Question
from ferrule.console.viewer import Viewer
from ferrule.core.calls import ToolCall
from ferrule.core.events import JournalRecord, RunStarted, SessionOpened
from ferrule.core.identity import Identity
from ferrule.core.invisible_characters import (
    escape_character,
    escape_for_approval,
    escape_invisible,
)
from ferrule.extensions.untrusted_frames import frame_text
from ferrule.permissions.approvals import ApprovalRequest, GrantOffer
from ferrule.servers.acp.permission import EditorApprover
from ferrule.servers.mcp.client_approvals import build_question
from ferrule.storage.export.transcripts import write_markdown, write_screenplay, write_transcript
from ferrule.storage.trust import TrustStore
from ferrule.toolkits.files.diff import unified_diff

IGNORABLE = """
00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 1BCA0-1BCA3
1D173-1D17A E0000-E0FFF
"""
"""`Default_Ignorable_Code_Point`, from DerivedCoreProperties.txt of Unicode 16: what a renderer
draws nothing for.
"""

HIDDEN = {
    "escape": "\x1b",
    "carriage return": "\r",
    "backspace": "\x08",
    "delete": "\x7f",
    "c1 escape": "\x9b",
    "next line": "\x85",
    "soft hyphen": "\u00ad",
    "right to left override": "\u202e",
    "isolate": "\u2066",
    "arabic letter mark": "\u061c",
    "zero width space": "\u200b",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "half a character": "\ud800",
    "tag letter": "\U000e0041",
    "selector 1": "\ufe00",
    "selector 256": "\U000e01ef",
    "hangul filler": "\u3164",
    "half width filler": "\uffa0",
    "grapheme joiner": "\u034f",
    "annotation": "\ufff9",
    "musical": "\U0001d173",
}
"""Never drawn, so never passed on."""
DOUBTFUL = {
    "joiner": "\u200d",
    "non joiner": "\u200c",
    "emoji selector": "\ufe0f",
    "no break space": "\u00a0",
    "wide space": "\u3000",
    "thin space": "\u2009",
    "braille blank": "\u2800",
    "private": "\ue000",
    "unassigned": "\u0378",
}
"""Drawn, or part of what is drawn, where people write; but not in what a person approves."""


@tool
def erase(path: str) -> str:
    """Erase a file."""
    return path


def asked(text: str) -> ApprovalRequest:
    return ApprovalRequest(
        ToolCall("c1", "erase", "{}"),
        erase,
        "high",
        f"rule {text}",
        (),
        f"would erase {text}",
        (GrantOffer("once", ""),),
        "d1",
        Identity("t", "u", "s", "r"),
        values={"path": text},
    )


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def at_the_terminal(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    async def read(prompt: str) -> str:
        raise EOFError

    assert run(TerminalApprover(Terminal(), read, user="u").ask(asked(text))).choice == "deny"
    return re.sub(r"\n\S ", "", capsys.readouterr().err)


def in_the_console(text: str, *_: Any) -> str:
    async def page() -> str:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting = Question("q", "t", "u", "s", asked(text), 0, future)
        viewer = Viewer("u", operator=False, tenant="t")
        parts: Any = (
            template_environment()
            .get_template("parts.html")
            .make_module({"viewer": viewer, "root": ""})
        )
        return re.sub(r"</?span[^>]*>", "", str(parts.question(waiting)))

    return run(page())


def at_an_mcp_client(text: str, *_: Any) -> str:
    return str(build_question(asked(text)))


def in_an_editor(text: str, *_: Any) -> str:
    said: list[Any] = []

    async def editor(params: Any) -> Any:
        said.append(params["toolCall"]["content"])
        return {}

    assert (
        run(EditorApprover("s", editor, user="u", workspace=None).ask(asked(text))).choice == "deny"
    )
    return "".join(one["content"]["text"] for one in said[0])


def in_a_diff(text: str, *_: Any) -> str:
    return unified_diff("a.txt", "", f"{text}\n")


def in_what_is_to_be_trusted(text: str, tmp_path: Path, *_: Any) -> str:
    folder = tmp_path / "work" / ".ferrule"
    folder.mkdir(parents=True)
    (folder / "ferrule.yaml").write_bytes(text.encode("utf-8", "replace"))
    return "".join(change.diff for change in TrustStore(tmp_path / "trust").diff(folder.parent))


APPROVALS: list[Callable[..., str]] = [
    at_the_terminal,
    in_the_console,
    at_an_mcp_client,
    in_an_editor,
    in_a_diff,
    in_what_is_to_be_trusted,
]


@pytest.mark.parametrize("name", [*HIDDEN, *DOUBTFUL])
@pytest.mark.parametrize("medium", APPROVALS)
def test_nothing_hides_in_what_a_person_approves(
    medium: Callable[..., str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letter = {**HIDDEN, **DOUBTFUL}[name]
    if medium is in_what_is_to_be_trusted and name == "half a character":
        letter = "\u200b"  # a text file has none
    shown = medium(f"a{letter}b{letter}{letter}c", tmp_path, capsys)
    assert letter not in shown
    assert "a{0}b{0}{0}c".format(escape_character(letter)) in shown.replace("\\\\", "\\")
    assert shown.encode()


MARKS = {
    "\u00e9 = e\u0301": "e\u0301",
    "two on a letter": "e\u0302\u0301",
    "pointed Hebrew": "\u05e9\u05c1\u05b8",
    "Thai": "\u0e17\u0e35\u0e48",
    "Hindi": "\u0915\u094d\u0937",
}
HIDING_MARKS = {
    "on a blank": " \u0301",
    "on a slash": "/\u0338",
    "on a digit": "1\u0301",
    "first of all": "\u0301a",
    "a stroke": "a\u0336",
    "an enclosing circle": "a\u20dd",
    "heaped up": "a\u0301\u0302\u0303\u0304",
}


@pytest.mark.parametrize("text", MARKS.values(), ids=list(MARKS))
def test_marks_of_a_script_stay(text: str) -> None:
    assert escape_for_approval(text) == text


@pytest.mark.parametrize("text", HIDING_MARKS.values(), ids=list(HIDING_MARKS))
def test_marks_that_can_hide_what_is_below_are_spelled_out(text: str) -> None:
    shown = escape_for_approval(text)
    assert "\\u" in shown and len(shown) > len(text)


def in_a_transcript(text: str) -> str:
    events = (SessionOpened("local:m"), RunStarted(text))
    records = [
        JournalRecord("s", number, 0, "r", event, "", "t", "u")
        for number, event in enumerate(events, 1)
    ]
    return (
        "".join(write_transcript(records))
        + "".join(write_markdown(records))
        + "".join(write_screenplay(records))
    )


def on_a_page(text: str) -> str:
    return re.sub(r"</?span[^>]*>", "", str(console_visible(text)))


def in_a_frame_for_a_model(text: str) -> str:
    return frame_text("skill", text)


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize(
    "medium", [in_a_transcript, on_a_page, in_a_frame_for_a_model, terminal_visible]
)
def test_nothing_undrawn_is_passed_on_where_people_and_models_read(
    medium: Callable[[str], str], name: str
) -> None:
    shown = medium(f"a{HIDDEN[name]}b")
    assert (
        HIDDEN[name] not in shown.replace("\n", "")
        and f"a{escape_character(HIDDEN[name])}b" in shown
    )


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d💻 👁\ufe0f\u200d🗨\ufe0f ❤\ufe0f",
        "می\u200cخواهم",
        "日本\u3000語",
        "« oui\u00a0»",
        "a\tb\nc",
        "\ue0b0",
    ],
)
@pytest.mark.parametrize("medium", [in_a_transcript, in_a_frame_for_a_model])
def test_what_scripts_and_emoji_need_stays_in_prose(
    medium: Callable[[str], str], text: str
) -> None:
    assert all(line in medium(text) for line in text.splitlines())


def test_words_written_in_joiners_or_selectors_are_spelled_out_in_prose_too() -> None:
    for hidden in ("\u200c\u200d\u200c\u200d", "\ufe0f\ufe0e\ufe0f", "\ufe01\ufe02"):
        assert (
            escape_invisible(f"a{hidden}b", keep_joiners=True)
            == f"a{hidden.encode('unicode_escape').decode()}b"
        )
    assert escape_invisible("a\ufe0f\ufe0fb") == "a\\ufe0f\\ufe0fb"


def test_all_that_unicode_says_may_be_ignored_is_known() -> None:
    for given_ in IGNORABLE.split():
        first, _, last = given_.partition("-")
        for code in range(int(first, 16), int(last or first, 16) + 1):
            letter = chr(code)
            assert escape_for_approval(letter) == escape_character(letter)
            assert escape_invisible(letter) == (
                letter if letter in "\ufe0e\ufe0f" else escape_character(letter)
            )


@given(st.text(), st.booleans())
def test_spelling_out_twice_is_the_same_as_once_and_plain_text_stays(
    text: str, joiners: bool
) -> None:
    shown = escape_invisible(text, keep_joiners=joiners)
    assert escape_invisible(shown, keep_joiners=joiners) == shown and escape_for_approval(
        escape_for_approval(text)
    ) == escape_for_approval(text)
    assert all(one.isprintable() or one in "\n\t" for one in escape_for_approval(text))
    shown.encode()
    if text.isascii():
        assert escape_invisible(text) == escape_for_approval(text.replace("\r\n", "\n"))
