"""What somebody new meets in the first hour, played in a terminal and a browser."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if shutil.which("tmux") is None or shutil.which("git") is None:
    pytest.skip("no tmux or no git on this machine", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))

import first_hour


@pytest.fixture(scope="module")
def hour() -> Iterator[first_hour.Hour]:
    with first_hour.play(why_no_server()) as played:
        yield played


def why_no_server() -> str:
    """Why no server can be fetched by `npx` here; "" if it can."""
    [server] = [one for one in first_hour.SERVERS if one.entry[0] == "everything"]
    return first_hour.why_not(server)


def test_one_question_is_asked_before_the_first_edit(hour: first_hour.Hour) -> None:
    assert hour.questions_before_edit == 1
    reading = hour.screens["a file explained"]
    assert "read_file tides.py" in reading and "allow?" not in reading


def test_everything_that_was_wanted_came(hour: first_hour.Hour) -> None:
    screens = hour.screens
    assert "the key in OPENAI_API_KEY is accepted" in screens["setup"]
    assert "It computes when the water is high." in screens["first answer"]
    edited = screens["edited and tested"]
    assert "┃   -    return hours + 6\n┃   +    return hours + 12\n" in edited
    assert "1 passed" in edited, "pytest of the activated environment outside the folder"
    assert "+    return hours + 12\n" in screens["diff"]
    assert "undone: " in screens["undone"] and "(1 file restored)" in screens["undone"]
    assert (hour.project / "tides.py").read_text() == first_hour.FILES["tides.py"]
    assert first_hour.NEXT_DAY in screens["the next day"]


def test_a_real_mcp_server_is_used(hour: first_hour.Hour) -> None:
    if "an MCP server used" not in hour.screens:
        pytest.skip(hour.mcp)
    assert "Echo: ahoy" in hour.mcp and "The server says ahoy." in hour.mcp


def test_the_same_session_is_in_the_browser(hour: first_hour.Hour) -> None:
    if first_hour.CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    for text in (
        "What does tides.py do?",
        "+hours + 12",
        "the test passes now",
        first_hour.NEXT_DAY,
    ):
        assert text in hour.page, text


def test_little_is_said_that_is_not_about_the_task(hour: first_hour.Hour) -> None:
    assert hour.count_words() < 400
    assert "Traceback" not in "".join(hour.screens.values())
