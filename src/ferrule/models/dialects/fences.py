"""Fenced blocks. Calls in them count only if every fenced block of the reply is a call.

    ```json            ```tool_code                ```xml
    {"name": …}        print(f(a=1))               <tool_call>…</tool_call>
    ```                ```                         ```

`tool_code` is Gemma 3's notation and says itself that it is a call. Python in other blocks counts
only for tools on offer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from . import call_shapes, lenient_json, pythonic
from .dialect import FoundCall
from .offered_tools import OfferedTools
from .regions import FencedBlock, Item, RegionOutcome

Nested = Callable[[str], "tuple[FoundCall, ...]"]
"""Reads the marked calls that a block consists of. Returns none if anything else is in it."""

_DATA = re.compile(
    r"(?:json\w*|tool\w*|function\w*|call\w*|action\w*|xml|html|text|txt|plain\w*|markdown|md)?\Z",
    re.I,
)
_CODE = ("tool_code", "tool_call", "tool_calls", "function_call")
_PYTHON = ("python", "py", "python3", "")
_FIRST_NAME = re.compile(r"\s*\[?\s*(?:print\s*\(\s*)?([A-Za-z_][\w.]*)")
_INNER_END = re.compile(r"`{3,}[ \t]*$", re.MULTILINE)

OPENING = re.compile(r"[ \t]*([\w+.:/=-]*)[ \t]*([^\n]*)")
"""What follows the marks on the opening line: the language, and anything else."""


class FenceRegion:
    """Follows a block to its end. Once it cannot be a call, its text is handed on as it arrives."""

    def __init__(
        self, mark: str, opening: str, tools: OfferedTools, nested: Nested, *, plain: bool = False
    ) -> None:
        """Begin a block.

        Args:
            mark: The run of back-ticks or tildes that opens the block.
            opening: The rest of the opening line, with its line break.
            tools: The tools on offer.
            nested: Reads marked calls inside the block.
            plain: Whether the block is text, whatever is in it.
        """
        head = OPENING.match(opening)
        self._mark = mark
        self._raw = mark + opening
        self._language = head.group(1).lower() if head else ""
        self._tools = tools
        self._nested = nested
        self._content: list[str] = []
        self._line = ""
        self._inside_line = False
        self._is_plain = False
        self._never_calls = plain
        self._is_undecided = True
        self._start = ""
        self._closing = re.compile(rf"[ \t]*{re.escape(mark[0])}{{{len(mark)},}}[ \t\r]*\Z")
        self._may_close = re.compile(rf"[ \t]*{re.escape(mark[0])}*[ \t\r]*\Z")

    def feed(self, piece: str, end: bool, cut: bool = False) -> RegionOutcome | None:
        text = self._line + piece
        self._line = ""
        fresh: list[str] = []
        at = 0
        while at < len(text):
            newline = text.find("\n", at)
            is_whole_line = newline >= 0
            line = text[at:newline] if is_whole_line else text[at:]
            if not self._inside_line:
                if self._closing.match(line) and (is_whole_line or end):
                    return self._close("".join(fresh), line, text[at + len(line) :])
                if self._may_close.match(line) and not is_whole_line and not end:
                    self._line = line
                    break
            at = newline + 1 if is_whole_line else len(text)
            fresh.append(line + "\n" if is_whole_line else line)
            self._inside_line = not is_whole_line
        return self._take("".join(fresh), end)

    def _take(self, fresh: str, end: bool) -> RegionOutcome | None:
        """Take text of the block that does not close it."""
        if self._is_plain:
            return RegionOutcome([fresh], done=end)
        self._content.append(fresh)
        if end:
            return self._end_unclosed()
        if not self._is_undecided:
            return None
        self._start += fresh
        may_be_call = self._may_be_call(self._start)
        if may_be_call is None:
            return None
        self._is_undecided = False
        if may_be_call:
            return None
        self._is_plain = True
        return RegionOutcome(
            [FencedBlock("", None), self._raw + "".join(self._content)], done=False
        )

    def _may_be_call(self, start: str) -> bool | None:
        """Return whether a block with this beginning may be a call; None while nobody knows."""
        if self._never_calls:
            return False
        text = start.lstrip()
        if not text:
            return None
        if text[0] in "{[<]" and _DATA.match(self._language):
            return True
        if self._language in _CODE:
            return True
        if self._language not in _PYTHON or not self._tools:
            return False
        word = _FIRST_NAME.match(text)
        if word is None or word.end() == len(text):
            return None if len(text) < 80 else False
        name = word.group(1)
        return (
            name == "print"
            or self._tools.has_similar(name.rpartition(".")[2])
            or self._tools.has_similar(name)
        )

    def _close(self, fresh: str, line: str, rest: str) -> RegionOutcome:
        if self._is_plain:
            return RegionOutcome([fresh + line], rest)
        self._content.append(fresh)
        content = "".join(self._content)
        return RegionOutcome(
            [FencedBlock(self._raw + content + line, self.read_calls(content))], rest
        )

    def _end_unclosed(self) -> RegionOutcome:
        """End a block that the reply ended in.

        A whole call counts, and a cut one is a cut call. Otherwise this was no fence at all.
        """
        content = "".join(self._content)
        calls = self.read_calls(content)
        if calls:
            return RegionOutcome([FencedBlock(self._raw + content, calls)])
        inner = _INNER_END.search(content)
        calls = self.read_calls(content[: inner.start()]) if inner else None
        if inner and calls:
            raw = self._raw + content[: inner.end()]
            return RegionOutcome([FencedBlock(raw, calls)], content[inner.end() :])
        cut_calls = self._read_cut(content)
        if cut_calls:
            return RegionOutcome([FencedBlock(self._raw + content, tuple(cut_calls))])
        return RegionOutcome(
            [FencedBlock("", None), self._raw], content, literal=True, fences=False
        )

    def _read_cut(self, content: str) -> list[FoundCall] | None:
        text = content.strip()
        if text.startswith(("{", "[{")) and _DATA.match(self._language):
            return call_shapes.read_cut_json(text, self._tools)
        if self._language == "tool_code":
            return pythonic.read_cut_python(text, self._tools)
        return None

    def read_calls(self, content: str) -> tuple[FoundCall, ...] | None:
        """Return the calls that the block's content consists of, or None."""
        text = content.strip()
        if not text or not self._may_be_call(text + "\n"):
            return None
        found = None
        if text[0] in "{[" and _DATA.match(self._language):
            found = _read_json_calls(text)
        if not found:
            found = self._read_python(text)
        return tuple(found) if found else self._nested(text) or None

    def _read_python(self, text: str) -> list[FoundCall] | None:
        if self._language in _CODE:
            return pythonic.read_python(text, self._tools)
        if self._language not in _PYTHON or not self._tools:
            return None
        found = pythonic.read_python(text, self._tools)
        if found and all(self._tools.has_similar(call.tool) for call in found):
            return found
        return None


def _read_json_calls(text: str) -> list[FoundCall] | None:
    """Read one value or several below each other, all of which must be calls."""
    found: list[FoundCall] = []
    at = 0
    while at < len(text):
        value = lenient_json.decode_leniently_at(text, at)
        if value is None:
            return None
        decoded, at, repairs = value
        calls = call_shapes.read_call_value(decoded, narrow=True)
        if not calls:
            return None
        found += [FoundCall(c.tool, c.arguments, c.repairs + tuple(repairs)) for c in calls]
        while at < len(text) and text[at] in " \t\r\n,;":
            at += 1
    return found


def read_inline_block(mark: str, line: str, tools: OfferedTools, nested: Nested) -> Item | None:
    """Read a whole block on one line; None if the line is no such block, or the block no call."""
    body, closing, after = line.rpartition(mark)
    head = re.match(r"[ \t]*(\w*)(?=[ \t{\[<])", body)
    if not closing or after.strip() or head is None:
        return None
    block = FenceRegion(mark, head.group(1), tools, nested)
    calls = block.read_calls(body[head.end() :])
    return FencedBlock(mark + line, calls) if calls else None
