"""Pictures in a chat: which files of a message are media, and how a terminal shows a picture.

Kitty's graphics protocol (kitty, Ghostty, WezTerm), iTerm2's inline images, or sixel where the
terminal is one of those that are known to have it. The terminal is told by its environment; inside
tmux or screen, and everywhere else, the picture is only named.

Sources: https://sw.kovidgoyal.net/kitty/graphics-protocol/, https://iterm2.com/documentation-images.html,
DEC VT3xx "Graphics Programming" (sixel).
"""

from __future__ import annotations

import io
import os
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ferrule.cli.terminal import Terminal
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.media_types import MediaInvalid, MediaType, detect_type, looks_like_medium

from .chat_terminal import ChatTerminal

GraphicsProtocol = Literal["kitty", "iterm", "sixel", ""]
MAX_SHOWN = 4 << 20
"""Bytes of a picture that is sent to a terminal; a larger one is named."""
MAX_SHOWN_PIXELS = 20_000_000
_ROWS = 12
_SIXEL_SIDE = 400
_KITTY_CHUNK = 4096


def is_medium(workspace: Workspace, path: str) -> bool:
    """Return whether a file of the workspace is a picture, a sound or a PDF, by its content."""
    try:
        with workspace.open(path) as file:
            return looks_like_medium(file.read(1024))
    except (ToolFailed, OSError):
        return False


def show_picture(terminal: Terminal, workspace: Workspace, path: str) -> None:
    """Show a picture of the workspace, if the terminal can; else nothing more is written."""
    protocol = find_protocol(os.environ)
    if not isinstance(terminal, ChatTerminal) or terminal.plain or not sys.stdout.isatty():
        return
    if not protocol:
        return
    try:
        data = workspace.read(path, limit=MAX_SHOWN)
        shown = encode_picture(data, detect_type(data, path), protocol)
    except (ToolFailed, MediaInvalid, OSError):
        # The message itself says what is wrong with it.
        return
    if shown:
        terminal.write_picture(shown)


def find_protocol(environment: Mapping[str, str]) -> GraphicsProtocol:
    """Return how the terminal of an environment shows pictures; "" if that is unknown."""
    if environment.get("TMUX") or environment.get("STY"):
        return ""
    term = environment.get("TERM", "")
    program = environment.get("TERM_PROGRAM", "")
    if environment.get("KITTY_WINDOW_ID") or term == "xterm-kitty":
        return "kitty"
    if program in ("ghostty", "WezTerm") or term == "xterm-ghostty":
        return "kitty"
    if program == "iTerm.app" or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    if "sixel" in term or term.split("-")[0] in ("foot", "mlterm", "contour"):
        return "sixel"
    return ""


def encode_picture(data: bytes, found: MediaType, protocol: GraphicsProtocol) -> str:
    """Return what makes a terminal show a picture, or "" if it cannot be shown.

    Kitty takes PNG alone, and sixel pixels: other formats need Pillow.
    """
    if found.media_kind != "image" or found.width * found.height > MAX_SHOWN_PIXELS:
        return ""
    if protocol == "iterm":
        size = f"size={len(data)};height={_ROWS};preserveAspectRatio=1"
        return f"\x1b]1337;File=inline=1;{size}:{b64encode(data).decode()}\a"
    if protocol == "kitty":
        png = data if found.mime == "image/png" else _decode(data, _write_png)
        return _encode_kitty(png) if png else ""
    return _decode(data, _encode_sixel) or ""


def _encode_kitty(png: bytes) -> str:
    text = b64encode(png).decode()
    chunks = [text[at : at + _KITTY_CHUNK] for at in range(0, len(text), _KITTY_CHUNK)]
    parts: list[str] = []
    for place, chunk in enumerate(chunks):
        first = f"a=T,f=100,q=2,r={_ROWS}," if place == 0 else ""
        more = int(place < len(chunks) - 1)
        parts.append(f"\x1b_G{first}m={more};{chunk}\x1b\\")
    return "".join(parts)


def _decode(data: bytes, write: Callable[[Any], Any]) -> Any:
    """Return what `write` makes of a decoded picture; None without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=["PNG", "JPEG", "GIF", "WEBP"]) as picture:
            return write(picture)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _write_png(picture: Any) -> bytes:
    written = io.BytesIO()
    picture.save(written, format="PNG")
    return written.getvalue()


def _encode_sixel(picture: Any) -> str:
    picture.thumbnail((_SIXEL_SIDE, _SIXEL_SIDE))
    reduced = picture.convert("RGB").quantize(64)
    width, height = reduced.size
    palette = reduced.getpalette()
    pixels = reduced.tobytes()
    parts = [f'\x1bPq"1;1;{width};{height}']
    for number in range(len(palette) // 3):
        red, green, blue = (level * 100 // 255 for level in palette[3 * number : 3 * number + 3])
        parts.append(f"#{number};2;{red};{green};{blue}")
    for top in range(0, height, 6):
        rows = [pixels[row * width : (row + 1) * width] for row in range(top, min(top + 6, height))]
        parts.append("$".join(_sixel_band(rows, width)) + "-")
    return "".join(parts) + "\x1b\\"


def _sixel_band(rows: list[bytes], width: int) -> list[str]:
    """Return one line for each color that six rows of pixels have."""
    lines: list[str] = []
    for color in sorted(set(b"".join(rows))):
        cells = [
            chr(63 + sum(1 << bit for bit, row in enumerate(rows) if row[column] == color))
            for column in range(width)
        ]
        lines.append(f"#{color}{''.join(cells)}")
    return lines
