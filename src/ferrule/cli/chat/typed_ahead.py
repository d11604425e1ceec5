"""What a person types while no prompt is there: kept as it was pressed, for the next prompt."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Generator
from contextlib import contextmanager

_MARK_PASTES = "\x1b[?2004h"
_DO_NOT_MARK_PASTES = "\x1b[?2004l"
"""Bracketed paste of xterm: a pasted text stands between marks, so that its lines are no keys."""


@contextmanager
def without_echo() -> Generator[None]:
    """Do not show keys while something runs: they would be drawn into its output.

    They are not lost: the next prompt gets them as they were pressed, Enter and the keys that
    correct what was typed among them, also if Ctrl-C stops a call after them. A text that is pasted
    meanwhile stays one text.
    """
    import termios

    try:
        before = termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError):
        yield
        return
    silent = [*before]
    silent[0] &= ~termios.ICRNL
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    silent[3] |= termios.NOFLSH
    termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, silent)
    _write_mark(_MARK_PASTES)
    try:
        yield
    finally:
        _write_mark(_DO_NOT_MARK_PASTES)
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)


def has_typed() -> bool:
    """Whether keys wait for the next prompt. Inside `without_echo`."""
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], 0)[0])
    except (OSError, ValueError):
        return False


def take_typed_lines() -> str:
    """Return what was typed until now, with Enter as the carriage return that the key sends.

    Before `without_echo` the terminal makes a line feed of it, which begins another line of a
    message. Call it inside, where an unfinished line can be read as well.
    """
    typed = b""
    try:
        descriptor = sys.stdin.fileno()
        while select.select([descriptor], [], [], 0)[0]:
            piece = os.read(descriptor, 65536)
            typed += piece
            if not piece:
                break
    except (OSError, ValueError):
        pass
    return typed.decode("utf-8", "replace").replace("\n", "\r")


def _write_mark(mark: str) -> None:
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        sys.stdout.write(mark)
        sys.stdout.flush()
