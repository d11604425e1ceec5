r"""Messages of the Language Server Protocol: JSON objects behind a header, bounded.

    Content-Length: 47\r\n
    \r\n
    {"jsonrpc": "2.0", "method": "exit", …}

A header that is none is an error with its first wrong byte: a program that writes anything else on
standard output would otherwise be waited for. Nothing after an error is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

MAX_HEADER = 1024
"""Most bytes of a header."""
MAX_MESSAGE = 16 << 20
"""Most bytes of a message."""
_START = b"content-"
"""What every line of a header starts with, in either case."""

Message = Mapping[str, Any]


class InvalidMessage(ValueError):
    """What arrived is no message. `str` says why."""


class MessageSplitter:
    """Splits what a server writes into messages and passes each on."""

    def __init__(self, accept: Callable[[Message], None]) -> None:
        self._accept = accept
        self._unread = bytearray()
        self._length: int | None = None
        """Of the message whose header was read."""

    def feed(self, data: bytes) -> None:
        """Take what has arrived.

        Raises:
            InvalidMessage: It is no header, no JSON object, or too large.
        """
        self._unread += data
        while True:
            if self._length is None and not self._read_header():
                return
            length = self._length or 0
            if len(self._unread) < length:
                return
            body = bytes(self._unread[:length])
            del self._unread[:length]
            self._length = None
            self._accept(_parse(body))

    def _read_header(self) -> bool:
        end = self._unread.find(b"\r\n\r\n", 0, MAX_HEADER)
        # Of an unfinished header the last byte may be half an end of line.
        header = bytes(self._unread[: MAX_HEADER if end < 0 else end]).removesuffix(b"\r")
        length: int | None = None
        for line in header.split(b"\r\n"):
            start = line[: len(_START)].lower()
            if not _START.startswith(start) and not start.startswith(_START):
                raise InvalidMessage(f"it wrote {_quote(line)} where a message begins")
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length" and value.strip().isdigit():
                length = int(value[:20])
        if end < 0:
            if len(header) >= MAX_HEADER:
                raise InvalidMessage(f"the header of a message has more than {MAX_HEADER} bytes")
            return False
        if length is None:
            raise InvalidMessage(f"the header {_quote(header)} gives no length")
        if length > MAX_MESSAGE:
            raise InvalidMessage(f"a message has {length} bytes, the bound is {MAX_MESSAGE}")
        del self._unread[: end + 4]
        self._length = length
        return True


def encode_message(message: Message) -> bytes:
    """Return a message with its header."""
    body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
    data = body.encode("utf-8", "surrogatepass")
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


def dig(value: object, *path: str) -> Any:
    """Return what lies at a path of keys; None where there is no object or no such key."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = cast("Message", value).get(key)
    return value


def dig_list(value: object, *path: str) -> list[Any]:
    """Return the list that lies at a path of keys; an empty one where there is none."""
    found = dig(value, *path)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _parse(body: bytes) -> Message:
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"a message is not JSON: {_quote(body)}") from error
    if not isinstance(value, dict):
        raise InvalidMessage(f"a message is not an object: {_quote(body)}")
    return cast("dict[str, Any]", value)


def _quote(data: bytes) -> str:
    return repr(data[:60].decode("utf-8", "replace"))
