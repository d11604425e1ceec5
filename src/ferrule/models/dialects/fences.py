"""Fenced blocks. Calls in them count only if every fenced block of the reply is a call (requirement
000's rule).

    ```json            ```tool_code                ```xml
    {"name": …}        print(f(a=1))               <tool_call>…</tool_call>
    ```                ```                         ```

`tool_code` is Gemma 3's way and says itself that it is a call; Python in other blocks counts only
for tools on offer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from . import call_shapes, lenient_json, pythonic
from .dialect import Found, Tools
from .regions import Candidate, Item, Outcome

Nested = Callable[[str], "tuple[Found, ...]"]
"""Reads the marked calls that a block consists of; none if anything else is in it."""

_DATA = re.compile(
    r"(?:json\w*|tool\w*|function\w*|call\w*|action\w*|xml|html|text|txt|plain\w*|markdown|md)?\Z",
    re.I,
)
_CODE = ("tool_code", "tool_call", "tool_calls", "function_call")
_PYTHON = ("python", "py", "python3", "")
_WORD = re.compile(r"\s*\[?\s*(?:print\s*\(\s*)?([A-Za-z_][\w.]*)")
_INNER_END = re.compile(r"`{3,}[ \t]*$", re.MULTILINE)

OPENING = re.compile(r"[ \t]*([\w+.:/=-]*)[ \t]*([^\n]*)")
"""What follows the marks on the opening line: the language, and anything else."""


class Fence:
    """Follows a block to its end. As soon as it cannot be a call it is handed on as it arrives."""

    def __init__(
        self, mark: str, opening: str, tools: Tools, nested: Nested, *, plain: bool = False
    ) -> None:
        """`mark` is the run of ` or ~; `opening` the rest of the opening line with its line break.

        `plain`: the block is text, whatever is in it.
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
        self._plain = False
        self._hopeless = plain
        self._blank = True
        self._start = ""
        self._closing = re.compile(rf"[ \t]*{re.escape(mark[0])}{{{len(mark)},}}[ \t\r]*\Z")
        self._may_close = re.compile(rf"[ \t]*{re.escape(mark[0])}*[ \t\r]*\Z")

    def feed(self, piece: str, end: bool, cut: bool = False) -> Outcome | None:
        text, self._line = self._line + piece, ""
        fresh: list[str] = []
        at = 0
        while at < len(text):
            newline = text.find("\n", at)
            line = text[at:] if newline < 0 else text[at:newline]
            if not self._inside_line and self._closing.match(line) and (newline >= 0 or end):
                return self._closed("".join(fresh), line, text[at + len(line) :])
            if newline < 0 and not self._inside_line and self._may_close.match(line) and not end:
                self._line = line
                break
            at = len(text) if newline < 0 else newline + 1
            fresh.append(line if newline < 0 else line + "\n")
            self._inside_line = newline < 0
        return self._more("".join(fresh), end)

    def _more(self, fresh: str, end: bool) -> Outcome | None:
        if self._plain:
            return Outcome([fresh], done=end)
        self._content.append(fresh)
        if end:
            return self._ended()
        if self._blank:
            self._start += fresh
            hopeful = self._hopeful(self._start)
            if hopeful is None:
                return None
            self._blank = False
            if not hopeful:
                self._plain = True
                return Outcome(
                    [Candidate("", None), self._raw + "".join(self._content)], done=False
                )
        return None

    def _hopeful(self, start: str) -> bool | None:
        """Whether what the block starts with may become a call; None while it cannot be told."""
        text = start.lstrip()
        if self._hopeless or not text:
            return False if self._hopeless else None
        if text[0] in "{[<]" and _DATA.match(self._language):
            return True
        if self._language in _CODE:
            return True
        if self._language not in _PYTHON or not self._tools:
            return False
        word = _WORD.match(text)
        if word is None or word.end() == len(text):
            return None if len(text) < 80 else False
        name = word.group(1)
        return (
            name == "print" or self._tools.near(name.rpartition(".")[2]) or self._tools.near(name)
        )

    def _closed(self, fresh: str, line: str, rest: str) -> Outcome:
        if self._plain:
            return Outcome([fresh + line], rest)
        self._content.append(fresh)
        content = "".join(self._content)
        return Outcome([Candidate(self._raw + content + line, self.calls(content))], rest)

    def _ended(self) -> Outcome:
        """The reply ended inside the block: a whole call counts, a cut one is cut, else nothing was
        a fence.
        """
        content = "".join(self._content)
        if calls := self.calls(content):
            return Outcome([Candidate(self._raw + content, calls)])
        if inner := _INNER_END.search(content):
            calls = self.calls(content[: inner.start()])
            if calls:
                return Outcome(
                    [Candidate(self._raw + content[: inner.end()], calls)], content[inner.end() :]
                )
        if cut := self._cut(content):
            return Outcome([Candidate(self._raw + content, tuple(cut))])
        return Outcome([Candidate("", None), self._raw], content, literal=True, fences=False)

    def _cut(self, content: str) -> list[Found] | None:
        text = content.strip()
        if text.startswith(("{", "[{")) and _DATA.match(self._language):
            return call_shapes.cut_json(text, self._tools)
        if self._language == "tool_code":
            return pythonic.cut_python(text, self._tools)
        return None

    def calls(self, content: str) -> tuple[Found, ...] | None:
        """The calls that the block's content is, or None."""
        text = content.strip()
        if not text or not self._hopeful(text + "\n"):
            return None
        if text[0] in "{[" and _DATA.match(self._language):
            found = _json_calls(text)
            if found:
                return tuple(found)
        if self._language in _CODE or (self._language in _PYTHON and self._tools):
            found = pythonic.read_python(text, self._tools)
            near = found and (
                self._language in _CODE or all(self._tools.near(call.tool) for call in found)
            )
            if found and near:
                return tuple(found)
        return self._nested(text) or None


def _json_calls(text: str) -> list[Found] | None:
    """One value or several below each other, all of them calls."""
    found: list[Found] = []
    at = 0
    while at < len(text):
        value = lenient_json.value_at(text, at)
        calls = call_shapes.calls_of(value[0], narrow=True) if value else None
        if value is None or not calls:
            return None
        found += [Found(c.tool, c.arguments, c.repairs + tuple(value[2])) for c in calls]
        at = value[1]
        while at < len(text) and text[at] in " \t\r\n,;":
            at += 1
    return found


def inline(mark: str, line: str, tools: Tools, nested: Nested) -> Item | None:
    """A whole block on one line, or None if the line is no such block."""
    body, found, after = line.rpartition(mark)
    head = re.match(r"[ \t]*(\w*)(?=[ \t{\[<])", body)
    if not found or after.strip() or head is None:
        return None
    block = Fence(mark, head.group(1), tools, nested)
    calls = block.calls(body[head.end() :])
    return Candidate(mark + line, calls) if calls else None
