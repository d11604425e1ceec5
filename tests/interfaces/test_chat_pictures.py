"""`@picture.png` in a chat: part of the message, and shown by terminals that can."""

from __future__ import annotations

import io
import re
import sys
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

from ferrule.cli.chat.pictures import encode_picture, find_protocol
from ferrule.core.events import RunStarted
from ferrule.storage import paths
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.media_types import detect_type
from media_samples import make_gif, make_png, make_wav


def encode(data: bytes, protocol: Any) -> str:
    return encode_picture(data, detect_type(data, "it"), protocol)


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-256color"}, ""),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, ""),
        ({}, ""),
    ],
)
def test_a_terminal_is_known_by_its_environment(environment: dict[str, str], protocol: str) -> None:
    assert find_protocol(environment) == protocol


def test_kitty_gets_the_png_in_chunks_and_iterm_the_file() -> None:
    picture = make_png(400, 400)
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", encode(picture, "kitty"))
    assert "f=100" in parts[0][0]
    assert [fields.rpartition("m=")[2] for fields, _ in parts] == ["1"] * (len(parts) - 1) + ["0"]
    assert b64decode("".join(chunk for _, chunk in parts)) == picture
    assert all(len(chunk) <= 4096 for _, chunk in parts)
    shown = encode(picture, "iterm")
    assert b64decode(shown.removesuffix("\a").partition(":")[2]) == picture
    assert encode(make_wav(), "iterm") == ""


def test_other_formats_are_decoded_for_kitty_and_sixel() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="pictures are decoded by Pillow")
    chunk = encode(make_gif(), "kitty").partition(";")[2].removesuffix("\x1b\\")
    assert pillow.open(io.BytesIO(b64decode(chunk))).format == "PNG"
    sixel = encode(make_png(6, 7), "sixel")
    assert sixel.startswith('\x1bPq"1;1;6;7#0;2;0;0;0')
    # Six rows of six black pixels, then one row of them.
    assert sixel.endswith("#0~~~~~~-#0@@@@@@-\x1b\\")


def test_a_picture_with_too_many_pixels_is_only_named() -> None:
    bomb = make_png()[:16] + b"\0\0\x20\0" * 2 + make_png()[24:]
    assert encode(bomb, "kitty") == encode(bomb, "sixel") == ""


def test_a_picture_named_in_a_message_goes_along_and_is_shown(
    folder: Path, script: Callable[..., str], environment: dict[str, str]
) -> None:
    (folder / "p.dat").write_bytes(make_png(3, 5))
    command = [
        str(Path(sys.executable).parent / "ferrule"),
        "chat",
        "-m",
        script({"say": "I see it"}),
    ]
    kitty = {**environment, "TERM": "xterm-kitty", "PROMPT_TOOLKIT_NO_CPR": "1"}
    kitty.pop("TMUX", None)
    chat = pexpect.spawn(command[0], command[1:], env=kitty, cwd=str(folder), timeout=30)  # pyright: ignore[reportArgumentType]
    try:
        chat.expect("›".encode())
        chat.send("look at @p.dat now\r")
        chat.expect(r"\x1b_Ga=T,f=100")
        chat.expect("I see it")
        chat.send("\x04")
        chat.expect(pexpect.EOF)
    finally:
        chat.close(force=True)
    with SqliteJournal(paths.state() / "journal.db") as journal:
        (info,) = journal.sessions()
        events = [record.event for record in journal.records(info.session)]
    (started,) = [event for event in events if isinstance(event, RunStarted)]
    assert started.text == "look at @p.dat now"
    assert [(one.mime, one.height, one.name) for one in started.media] == [
        ("image/png", 5, "p.dat")
    ]
