"""Splitting a byte stream into server-sent events, or into lines of JSON.

Sources: the WHATWG HTML standard, section 9.2 (event stream format); NDJSON. The result does not
depend on how the bytes are split. Text is not decoded here: a split may fall inside a character,
never inside a line. Not supported: line ends that are a bare carriage return, which no model server
sends.
"""

from __future__ import annotations


class LineSplitter:
    """Splits a stream into complete lines that are not blank, without their ends. For NDJSON."""

    def __init__(self) -> None:
        self._incomplete: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete."""
        lines = self._take_lines(data)
        return [line for line in lines if line and not line.isspace()]

    def close(self) -> list[bytes]:
        """Return the last line, if the stream ended without a line end."""
        return self.feed(b"\n") if self._incomplete else []

    def _take_lines(self, data: bytes) -> list[bytes]:
        # A line that comes in many pieces is joined once, at its end.
        if b"\n" not in data:
            if data:
                self._incomplete.append(data)
            return []
        if self._incomplete:
            self._incomplete.append(data)
            data = b"".join(self._incomplete)
            self._incomplete.clear()
        lines = data.split(b"\n")
        rest = lines.pop()
        if rest:
            self._incomplete.append(rest)
        return lines


class EventSplitter(LineSplitter):
    """Splits a stream into the data of complete server-sent events.

    Names, ids, comments and retry times are dropped: the formats of model servers repeat in the
    data what they need.
    """

    def __init__(self) -> None:
        super().__init__()
        self._data: list[bytes] = []
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of every event that these bytes complete.

        Several data lines of an event are joined by a line feed.
        """
        lines = self._take_lines(data)
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
        """Return the last event, if the stream ended without the blank line after it.

        The standard drops it. Model servers that forget the blank line exist, so it is kept here.
        """
        return self.feed(b"\n\n") if self._incomplete or self._data else []
