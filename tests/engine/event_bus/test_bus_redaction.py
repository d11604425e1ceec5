"""Secrets on the bus: taken out before anybody sees them, and nothing shown where that fails."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Identity, ReasoningDelta, TextDelta
from ferrule.core.calls import ToolCall
from ferrule.core.events import DirectCall, ModelAnswered, ModelFailed, Noticed
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.live_redaction import PieceRedactor
from ferrule.engine.live_events import Progress
from ferrule.permissions.redaction import Redactor

MAX_HELD = 8 * 1024

ADA = Identity("acme", "ada", "s1", "r1")
KEY = "ghp_" + "a1B2" * 9
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEpAIBAAKCAQEAx\n" * 20
    + "-----END RSA PRIVATE KEY-----"
)


def test_no_payload_on_the_bus_holds_a_secret() -> None:
    bus = Bus(redactor=Redactor())
    feed, reader = bus.feed(ADA), bus.subscribe(ADA)
    feed.publish(Noticed("t", f"the token is {KEY}"))
    feed.publish(
        DirectCall(
            ToolCall("c", "sign_in", f'{{"user":"ada","password":"hunter2 hunter2","x":"{KEY}"}}')
        )
    )
    feed.publish(
        ModelAnswered(
            "ok", (ToolCall("d", "fetch", '{"url":"https://ada:pa55word@example.org/"}'),)
        )
    )
    feed.publish(Progress("c", f"export GITHUB_TOKEN={KEY}"))
    events = reader.take_nowait()
    for event in events:
        for secret in (KEY, "hunter2", "pa55word"):
            assert secret.encode() not in event.data
    assert b"[redacted sha256:" in events[0].data
    assert '"user":"ada"' in events[1].payload["call"]["arguments"]
    assert "https://ada:[redacted]@example.org/" in events[2].payload["calls"][0]["arguments"]


class Broken:
    """A redactor with a bug."""

    needs_whole_lines = False

    def redact_json(self, text: str) -> str:
        raise ValueError(f"cannot handle {text}")

    redact_text = redact_json

    def may_contain_secret(self, text: str) -> bool:
        return False


def test_a_payload_that_cannot_be_redacted_is_withheld_and_that_is_an_event() -> None:
    bus = Bus(redactor=Broken())
    feed, reader = bus.feed(ADA), bus.subscribe(ADA, kinds=["notice", "piece.*"])
    feed.publish(Noticed("t", KEY))
    feed.publish(TextDelta(f"{KEY} "))
    feed.publish(Progress("c", KEY))
    feed.publish(Noticed("t", KEY))
    events = reader.take_nowait()
    assert [e.kind for e in events] == ["audit.redaction_failed"] * 4
    assert [str(e.sequence) for e in events] == ["1", "1.1", "1.2", "2"]
    assert events[0].payload == {"of": "notice", "error": "ValueError"}
    assert events[1].payload["of"] == "piece.text"
    assert all(KEY.encode() not in event.data for event in events)


def test_an_event_that_is_no_json_is_withheld_too() -> None:
    bus = Bus()
    feed, reader = bus.feed(ADA), bus.subscribe(ADA)
    feed.publish(Noticed("t", object()))  # type: ignore[arg-type]
    (event,) = reader.take_nowait()
    assert (event.kind, event.payload["error"]) == ("audit.redaction_failed", "TypeError")


def test_text_that_utf_8_cannot_hold_arrives() -> None:
    bus = Bus()
    feed, reader = bus.feed(ADA), bus.subscribe(ADA)
    feed.publish(Noticed("t", "half a pair: \ud83d"))
    (event,) = reader.take_nowait()
    assert event.payload["text"] == "half a pair: \ud83d"


SAMPLES = [
    f"my key {KEY} is here",
    f"Authorization: Bearer {KEY[4:]} and more\nnext",
    "the password: correct-horse-battery then on",
    f"before\n{PEM}\nafter",
    f"url https://u:longsecretword@h/x and {KEY}\n",
    'say {"api_key": "a b c d e f g h"} now',
    "plain words, nothing else",
    "漢字だけの文章です" + KEY + "終わり",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=3).map("\n".join), st.data())
def test_however_text_is_cut_into_pieces_no_secret_shows(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    pieces = PieceRedactor(Redactor())
    shown = "".join(pieces.add(part) for part in parts) + pieces.finish()
    for secret in (KEY, KEY[4:], "correct-horse", "MIIEpAI", "longsecretword", "b c d e"):
        assert secret not in shown
    if "redacted" not in Redactor().redact_text(text):
        assert shown == text
    else:
        assert "[redacted" in shown


def test_words_that_can_be_no_secret_are_shown_at_once() -> None:
    pieces = PieceRedactor(Redactor())
    assert [pieces.add(part) for part in ("one ", "two thr", "ee. ")] == ["one ", "two ", "three. "]
    assert [pieces.add(part) for part in ("my pass", "word is x", "yz\nok ")] == [
        "my ",
        "",
        "password is xyz\nok ",
    ]


def test_what_is_held_too_long_is_left_out_up_to_its_end() -> None:
    pieces = PieceRedactor(Redactor())
    pem = (
        "-----BEGIN PRIVATE KEY-----\n"
        + "MIIEpAIBAAKCAQEAx\n" * 2000
        + "-----END PRIVATE KEY-----\nand on "
    )
    shown = "".join(pieces.add(pem[n : n + 37]) for n in range(0, len(pem), 37)) + pieces.finish()
    assert "MIIE" not in shown
    assert shown.startswith("[redacted sha256:")
    assert shown.endswith("and on ")
    word = "token=" + "x" * (MAX_HELD * 2)
    shown = (
        "".join(pieces.add(word[n : n + 100]) for n in range(0, len(word), 100)) + pieces.finish()
    )
    assert "xxx" not in shown


def test_words_that_are_held_when_an_answer_breaks_off_are_not_shown() -> None:
    bus = Bus(redactor=Redactor())
    feed, reader = bus.feed(ADA), bus.subscribe(ADA)
    feed.publish(TextDelta("look: "))
    feed.publish(TextDelta(KEY[:20]))
    feed.publish(ReasoningDelta("hm "))
    feed.publish(ModelFailed("timeout", "no answer"))
    feed.publish(TextDelta("again"))
    feed.publish(ModelAnswered("again"))
    shown = [(e.kind, e.payload.get("text", "")) for e in reader.take_nowait()]
    assert shown == [
        ("piece.text", "look: "),
        ("piece.reasoning", "hm "),
        ("model.failed", ""),
        ("piece.text", "again"),
        ("model.answered", "again"),
    ]
