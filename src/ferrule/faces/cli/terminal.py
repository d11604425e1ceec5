"""What a person sees: answers on standard output, talk on standard error, readable without colour.

rich draws where standard error is a terminal that wants colour; everywhere else plain text says the
same. `NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` are honoured. Control characters from models and tools are
shown, not obeyed: a file must not be able to move the cursor over a permission prompt.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, TextIO

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def visible(text: str) -> str:
    """Text with control and direction-changing characters spelled out (tabs and newlines stay)."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\r\n", "\n"))


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to this stream."""
    if os.environ.get("FORCE_COLOR"):
        return True
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class Terminal:
    """Where a face writes. `quiet` drops the talk, never the answer or an error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.colour = wants_colour(sys.stderr)
        self._console: Any = None

    def answer(self, text: str, *, end: str = "\n") -> None:
        """The result of the command, for the next program in the pipe."""
        sys.stdout.write(text + end)
        sys.stdout.flush()

    def talk(self, text: str = "", *, style: str = "", end: str = "\n") -> None:
        """What a person may want to know while waiting."""
        if not self.quiet:
            self.say(text, style=style, end=end)

    def say(self, text: str, *, style: str = "", end: str = "\n") -> None:
        """Talk that `--quiet` does not silence: questions and warnings."""
        shown = visible(text)
        if self.colour and style:
            self._rich().print(self._styled(shown, style), end=end, highlight=False, soft_wrap=True)
            return
        sys.stderr.write(shown + end)
        sys.stderr.flush()

    def diff(self, text: str) -> None:
        """A unified diff (or any preview), coloured by line."""
        for line in visible(text).splitlines():
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            self.say(f"  {line}", style=style)

    def _styled(self, text: str, style: str) -> Any:
        from rich.text import Text

        return Text(text, style=style)

    def _rich(self) -> Any:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, force_terminal=True)
        return self._console
