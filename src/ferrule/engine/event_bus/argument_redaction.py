"""Redact the arguments of a call while a model writes them.

Arguments are one JSON object (RFC 8259). What is shown of it are its members, one after the other:
text as people read it, without JSON's escapes, piece by piece; any other value when it is complete.
So a secret that JSON writes otherwise, or that stands under a name such as `password`, is found as
in the whole object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ferrule.core.calls import encode_json, parse_json

from .events import EventRedactor
from .live_redaction import PieceRedactor

MAX_VALUE = 8192
"""Most characters of a name, or of a value that is no text; the rest of a longer one, and what
follows it, is not shown before the call is complete.
"""

_SPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\]*')
_SURROGATES = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf"\\(?:{_SURROGATES}|u[0-9a-fA-F]{{4}}|[^u])", re.DOTALL)
_LONGEST_ESCAPE = len(r"\ud83d\ude00")
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB]")
_CLOSING = {"{": "}", "[": "]"}


class MemberPiece(NamedTuple):
    """What arrived of one member of the object.

    `kind` is `text` for a piece of text, `end` after the last one, and `value` for any other value,
    which comes whole, as JSON.
    """

    name: str
    kind: Literal["text", "end", "value"]
    text: str = ""


class ArgumentsReader:
    """Reads a JSON object that arrives in pieces.

    Anything else, and what is no JSON, yields no more than was understood.
    """

    def __init__(self) -> None:
        self._read: Callable[[], Iterator[MemberPiece] | None] = self._read_start
        self._rest = ""
        self._name = ""
        self._value: list[str] = []
        self._open: list[str] = []
        """What closes the objects and arrays that a value has opened, and a text in them."""

    def read(self, piece: str) -> Iterator[MemberPiece]:
        """Yield what a piece of the JSON text adds."""
        is_plain = '"' not in piece and "\\" not in piece
        if is_plain and piece and not self._rest and self._read == self._read_text:
            # Most pieces are a part of a long text: a file's content, a command.
            yield MemberPiece(self._name, "text", piece)
            return
        self._rest += piece
        while self._rest:
            before = (self._rest, self._read)
            yield from self._read() or ()
            if (self._rest, self._read) == before:
                return

    def _read_start(self) -> None:
        self._rest = self._rest.lstrip(_SPACE)
        if self._rest:
            self._read = self._read_separator if self._take() == "{" else self._skip

    def _read_separator(self) -> None:
        self._rest = self._rest.lstrip(_SPACE + ",")
        if self._rest:
            self._value = []
            self._read = self._read_name if self._take() == '"' else self._skip

    def _read_name(self) -> None:
        self._value += self._take_text()
        if sum(map(len, self._value)) > MAX_VALUE:
            self._read = self._skip
        elif self._rest.startswith('"'):
            self._take()
            self._name = "".join(self._value)
            self._read = self._read_colon

    def _read_colon(self) -> None:
        self._rest = self._rest.lstrip(_SPACE)
        if self._rest:
            self._read = self._read_first if self._take() == ":" else self._skip

    def _read_first(self) -> None:
        self._rest = self._rest.lstrip(_SPACE)
        if self._rest.startswith('"'):
            self._take()
            self._read = self._read_text
        elif self._rest:
            self._value = []
            self._open = []
            self._read = self._read_value

    def _read_text(self) -> Iterator[MemberPiece]:
        text = "".join(self._take_text())
        if text:
            yield MemberPiece(self._name, "text", text)
        if self._rest.startswith('"'):
            self._take()
            self._read = self._read_separator
            yield MemberPiece(self._name, "end")

    def _read_value(self) -> Iterator[MemberPiece]:
        for place, sign in enumerate(self._rest):
            if not self._open and sign in ",}":
                self._value.append(self._rest[:place])
                self._rest = self._rest[place:]
                self._read = self._read_separator if sign == "," else self._skip
                yield MemberPiece(self._name, "value", "".join(self._value).strip(_SPACE))
                return
            self._track(sign)
        self._value.append(self._rest)
        self._rest = ""
        if sum(map(len, self._value)) > MAX_VALUE:
            self._read = self._skip

    def _track(self, sign: str) -> None:
        """Keep account of what a value has open, a character at a time."""
        inner = self._open[-1] if self._open else ""
        if inner == "\\":
            self._open.pop()
        elif inner == '"' and sign in '"\\':
            self._open.pop() if sign == '"' else self._open.append("\\")
        elif inner != '"' and sign == '"':
            self._open.append('"')
        elif inner != '"' and sign in _CLOSING:
            self._open.append(_CLOSING[sign])
        elif sign == inner:
            self._open.pop()

    def _skip(self) -> None:
        self._rest = ""

    def _take(self) -> str:
        first, self._rest = self._rest[0], self._rest[1:]
        return first

    def _take_text(self) -> list[str]:
        """Take text up to its closing quotation mark, without escapes.

        An escape that is cut stays for the next piece.
        """
        parts: list[str] = []
        place = 0
        while place < len(self._rest):
            plain = _PLAIN.match(self._rest, place)
            assert plain is not None
            parts.append(plain[0])
            place = plain.end()
            if self._rest[place : place + 1] != "\\":
                break
            escape = _ESCAPE.match(self._rest, place)
            if self._is_cut(place, escape):
                break
            end = place + 1 if escape is None else escape.end()
            parts.append(_unescape(self._rest[place:end]))
            place = end
        self._rest = self._rest[place:]
        return parts

    def _is_cut(self, place: int, escape: re.Match[str] | None) -> bool:
        rest = self._rest[place : place + _LONGEST_ESCAPE]
        if len(rest) == _LONGEST_ESCAPE or '"' in rest[2:]:
            return False
        # Half of a pair of surrogates is no character yet.
        is_half = escape is not None and len(escape[0]) == len(r"\ud83d")
        return escape is None or (is_half and bool(_HIGH_SURROGATE.match(rest)))


def _unescape(escape: str) -> str:
    try:
        return parse_json(f'"{escape}"', strict=False)
    except ValueError:
        return escape


class ArgumentsRedactor:
    """The arguments of one call: `add` returns what may be shown now of which member."""

    def __init__(self, redactor: EventRedactor) -> None:
        self._redactor = redactor
        self._reader = ArgumentsReader()
        self._text = PieceRedactor(redactor)
        self._name: str | None = None
        self._shown_name = ("", "")
        """A member's name, and what is shown of it."""
        self._hidden: list[str] | None = None
        """The text of a member whose name says that it is a secret."""

    def add(self, piece: str) -> list[tuple[str, str]]:
        """Add a piece of JSON text. Return names of members, each with what its text goes on with.

        Raises whatever the redactor raises.
        """
        shown: list[tuple[str, str]] = []
        for member in self._reader.read(piece):
            text = self._redact(member)
            if text:
                shown.append((self._redact_name(member.name), text))
        return shown

    def _redact_name(self, name: str) -> str:
        # A long text comes in many pieces, all under one name.
        if self._shown_name[0] != name:
            self._shown_name = (name, self._redactor.redact_text(name))
        return self._shown_name[1]

    def _redact(self, member: MemberPiece) -> str:
        if member.kind == "value":
            try:
                value = parse_json(member.text)
            except ValueError:
                return ""
            return self._redact_member(member.name, value)
        if self._name != member.name:
            self._name = member.name
            self._hidden = [] if self._is_secret(member.name) else None
        if self._hidden is None:
            return self._text.add(member.text) if member.kind == "text" else self._end()
        self._hidden.append(member.text)
        if member.kind == "text":
            return ""
        self._name = None
        return self._redact_member(member.name, "".join(self._hidden))

    def _end(self) -> str:
        self._name = None
        return self._text.finish()

    def _is_secret(self, name: str) -> bool:
        return self._redact_member(name, _PROBE) != _PROBE

    def _redact_member(self, name: str, value: object) -> str:
        redacted = parse_json(self._redactor.redact_json(encode_json({name: value})))
        (only,) = redacted.values()
        return only if isinstance(only, str) else encode_json(only)


_PROBE = "value"
