"""Splitting a byte stream into what it carries: server-sent events, or lines of JSON.

Sources: the WHATWG HTML standard, section 9.2 (event stream format); NDJSON. The result does not
depend on how the bytes are cut. Text is not decoded here: a cut may fall inside a character, never
inside a line. Not supported: line ends that are a bare carriage return, which no model server
sends.
"""

from __future__ import annotations


class Lines:
    """Complete lines that are not blank, without their ends. For NDJSON."""

    def __init__(self) -> None:
        self._open: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Lines that these bytes complete."""
        lines = self._complete(data)
        return [line for line in lines if line and not line.isspace()]

    def close(self) -> list[bytes]:
        """The last line, if the stream ended without a line end."""
        return self.feed(b"\n") if self._open else []

    def _complete(self, data: bytes) -> list[bytes]:
        # A line that comes in many pieces is joined once, at its end: never piece by piece.
        if b"\n" not in data:
            if data:
                self._open.append(data)
            return []
        if self._open:
            self._open.append(data)
            data = b"".join(self._open)
            self._open.clear()
        lines = data.split(b"\n")
        if rest := lines.pop():
            self._open.append(rest)
        return lines


class Events(Lines):
    """The data of complete server-sent events. Names, ids, comments and retry times are dropped:
    the formats of model servers repeat in the data what they need.
    """

    def __init__(self) -> None:
        super().__init__()
        self._data: list[bytes] = []
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every event that these bytes complete; several data lines are joined by a
        line feed.
        """
        lines = self._complete(data)
        if lines and not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        events: list[bytes] = []
        held = self._data
        for line in lines:
            if line[-1:] == b"\r":
                line = line[:-1]
            if line[:6] == b"data: ":
                held.append(line[6:])
            elif not line:
                if held:
                    events.append(held[0] if len(held) == 1 else b"\n".join(held))
                    held.clear()
            elif line[:5] == b"data:":
                held.append(line[5:])
            elif line == b"data":
                held.append(b"")
        return events

    def close(self) -> list[bytes]:
        """The last event, if the stream ended without the blank line after it.

        The standard drops it; servers of models that forget the blank line exist, so it is kept
        here.
        """
        return self.feed(b"\n\n") if self._open or self._data else []
