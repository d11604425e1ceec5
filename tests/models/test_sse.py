"""Splitting streams: events and lines come out the same however the bytes were cut, and in linear
time.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ferrule.models.answer_building import AnswerBuilder
from ferrule.models.http.server_sent_events import EventSplitter, LineSplitter
from ferrule.models.openai.chat_answers import ChatStreamParser

STREAM = (
    b"\xef\xbb\xbf: hello\n\n"
    b"event: message\nid: 7\ndata: {\"a\": 1}\n\n"
    b"data:no space\r\n\r\n"
    b"data: two\ndata: lines\n\n"
    b"data\n\n"
    b"retry: 5\n\n"
    + "data: ☃ 🙂\n\n".encode()
    + b"data: [DONE]\n\n"
    b"data: no blank line after it"
)  # fmt: skip
EVENTS = [
    b'{"a": 1}',
    b"no space",
    b"two\nlines",
    b"",
    "☃ 🙂".encode(),
    b"[DONE]",
    b"no blank line after it",
]


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    ends = sorted(cuts)
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def fed(splitter: LineSplitter, pieces: Sequence[bytes]) -> list[bytes]:
    out = [item for piece in pieces for item in splitter.feed(piece)]
    return out + splitter.close()


def test_events_are_the_same_cut_at_every_byte() -> None:
    assert fed(EventSplitter(), [STREAM]) == EVENTS
    assert fed(EventSplitter(), cut(STREAM, range(1, len(STREAM)))) == EVENTS
    for at in range(len(STREAM)):
        assert fed(EventSplitter(), cut(STREAM, [at])) == EVENTS


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1).filter(
            str.strip
        )
    ),
    st.data(),
)
def test_lines_are_the_same_however_they_are_cut(lines: list[str], data: st.DataObject) -> None:
    raw = [line.encode() for line in lines]
    stream = b"\n\n".join(raw) + data.draw(st.sampled_from([b"", b"\n"]))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=9))
    kept = [line for line in raw if not line.isspace()]
    assert fed(LineSplitter(), cut(stream, cuts)) == kept


def test_closing_without_anything_open_gives_nothing() -> None:
    assert fed(EventSplitter(), [b"data: x\n\n"]) == [b"x"]
    assert LineSplitter().close() == EventSplitter().close() == []


@given(st.lists(st.integers(0, 700), max_size=12))
def test_a_streamed_call_folds_the_same_however_it_is_cut(cuts: list[int]) -> None:
    def folded(pieces: Sequence[bytes]) -> object:
        events, fold = EventSplitter(), ChatStreamParser(AnswerBuilder(), "m", tools=True)
        for piece in pieces:
            fold.add(events.feed(piece))
        fold.add(events.close())
        return fold.finish().build({})

    deltas = ['{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}']
    deltas += [
        f'{{"tool_calls":[{{"index":0,"function":{{"arguments":"{p}"}}}}]}}'
        for p in ('{\\"ü\\":', "1}")
    ]
    deltas += ['{"content":"☃"}', '{"content":"\\ud83d\\ude42"}']
    lines = [f'data: {{"choices":[{{"index":0,"delta":{delta}}}]}}\n\n' for delta in deltas]
    stream = "".join([*lines, "data: [DONE]\n\n"]).encode()
    assert folded(cut(stream, [min(c, len(stream)) for c in cuts])) == folded([stream])


def test_a_long_line_in_many_pieces_is_joined_once() -> None:
    class Counted(bytes):
        """Bytes that count how often they are copied into something larger."""

        copies = 0

        def __add__(self, other: bytes) -> bytes:
            Counted.copies += 1
            return bytes(self) + other

    lines = LineSplitter()
    for _ in range(1000):
        assert lines.feed(Counted(b"x" * 10)) == []
    assert lines.feed(b"\n") == [b"x" * 10_000]
    assert Counted.copies == 0
