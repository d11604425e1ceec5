"""Media from a URL, scaled, and read by OCR: what is asked for happens, and nothing else."""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ferrule import Agent, ConfigError, Document, Image, Permissions, ProviderError, Scripted, tool
from ferrule.core.events import DirectCall
from ferrule.core.media import LoadedMedia, MediaOptions
from ferrule.core.messages import AssistantMessage
from ferrule.models.client import Capabilities
from ferrule.models.media_encoding import read_bytes, write_as_text
from ferrule.plugins import Parts
from ferrule.testing import calls, says
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.toolkits.stdlib.ocr import ocr
from ferrule.toolkits.stdlib.recognizer import Recognized, Recognizer, Word
from ferrule.tools.context import Context
from media_samples import make_gif, make_png

HERE = MediaOptions(domains=("127.0.0.1", "localhost"))


def pictures_of(model: Scripted, ask: int = 0) -> list[bytes]:
    return [
        read_bytes(one)
        for message in model.asks[ask].history
        if not isinstance(message, AssistantMessage)
        for one in message.media
    ]


def serve(answers: Mapping[str, Reply]) -> Callable[[Request], Reply]:
    return lambda request: answers[request.target]


# ---- from a URL


def test_at_most_32_mib_of_a_url_are_read() -> None:
    from ferrule.tools import media_types

    assert media_types.MAX_BYTES == 32 * 1024 * 1024


async def test_a_url_is_fetched_once_without_credentials_and_judged_by_its_content() -> None:
    picture = make_png(4, 4)
    answers = {
        "/cat.png?size=2": Reply(
            pieces=[picture], headers={"Content-Type": "text/html", "Set-Cookie": "a=1"}
        ),
        "/page": Reply(pieces=[b"<html>"]),
    }
    async with HttpDouble(serve(answers)) as server:
        model = Scripted([says("a cat"), says("the same")])
        agent = Agent(model, plugins=[Parts(resources=[HERE])])
        session = agent.session()
        await session.run(["see", Image.from_url(f"{server.url}/cat.png?size=2")])
        await session.run("again?")
        await session.close()
        assert pictures_of(model) == [picture]
        assert len(server.requests) == 1
        headers = {name.lower() for name in server.requests[0].headers}
        assert not headers & {"cookie", "authorization", "referer"}
        with pytest.raises(ConfigError, match="is no image: its content is text/plain"):
            await agent.run(["see", Image.from_url(f"{server.url}/page")])


async def test_a_url_reaches_only_what_a_script_would_reach() -> None:
    answers: dict[str, Reply] = {"/x.png": Reply(pieces=[make_png()])}
    async with HttpDouble(serve(answers)) as server:
        port = server.url.rpartition(":")[2]
        model = Scripted([])
        closed = Agent(model)
        listed = Agent(model, plugins=[Parts(resources=[MediaOptions(domains=("localhost",))])])
        for agent, url in (
            (closed, f"http://127.0.0.1:{port}/x.png"),
            (closed, f"http://localhost:{port}/x.png"),
            (closed, "http://169.254.169.254/latest/meta-data"),
            (closed, "file:///etc/passwd"),
            (closed, "http://user:key@example.com/x.png"),
            (listed, f"http://127.0.0.1:{port}/x.png"),
        ):
            with pytest.raises(ConfigError, match="cannot be fetched: network sandbox"):
                await agent.run(["see", Image.from_url(url)])
        assert server.requests == []
        answers["/away"] = Reply(status=302, headers={"Location": f"http://127.0.0.1:{port}/x.png"})
        with pytest.raises(ConfigError, match="cannot be fetched: network sandbox"):
            await listed.run(["see", Image.from_url(f"http://localhost:{port}/away")])
        assert [one.target for one in server.requests] == ["/away"]
        assert model.asks == []


async def test_what_a_url_sends_is_bounded_and_a_refusal_is_an_error() -> None:
    answers = {
        "/large": Reply(pieces=[b"x" * (1 << 20)] * 34),
        "/gone": Reply(status=404, pieces=[make_png()]),
    }
    async with HttpDouble(serve(answers)) as server:
        agent = Agent(Scripted([]), plugins=[Parts(resources=[HERE])])
        with pytest.raises(ConfigError, match="sends more than 33554432 bytes"):
            await agent.run([Document.from_url(f"{server.url}/large")])
        with pytest.raises(ConfigError, match="status 404"):
            await agent.run([Image.from_url(f"{server.url}/gone")])


async def test_a_tool_may_return_a_url_by_the_same_rules() -> None:
    answers = {"/x.png": Reply(pieces=[make_png(3, 3)])}
    async with HttpDouble(serve(answers)) as server:

        @tool
        def show() -> Image:
            """Show it."""
            return Image.from_url(f"{server.url}/x.png")

        model = Scripted([calls(("show", {})), says("ok")])
        await Agent(model, [show], plugins=[Parts(resources=[HERE])]).run("go")
        assert pictures_of(model, 1) == [make_png(3, 3)]
        run = await Agent(Scripted([calls(("show", {})), says("ok")]), [show]).run("go")
        assert "network sandbox" in (run.results[0].error_message or "")


# ---- scaled


def test_a_picture_is_scaled_only_where_it_was_asked_for() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="scaling needs Pillow")
    large = Image(make_png(400, 100))
    small = Image(make_png(50, 50))
    sizes: list[list[tuple[int, int]]] = []
    for content, options in (
        ([large], []),
        ([large.scale_down(100), small.scale_down(100)], []),
        ([large], [MediaOptions(max_side=40)]),
    ):
        model = Scripted([says("ok")])
        Agent(model, plugins=[Parts(resources=options)]).run_sync(content)
        sizes.append([pillow.open(io.BytesIO(one)).size for one in pictures_of(model)])
    assert sizes == [[(400, 100)], [(100, 25), (50, 50)], [(40, 10)]]
    assert large.max_side == 0


@pytest.mark.parametrize(
    ("written", "sent"),
    [("PNG", "PNG"), ("JPEG", "JPEG"), ("WEBP", "WEBP"), ("GIF", "PNG")],
)
def test_a_scaled_picture_keeps_its_format_but_a_gif_becomes_a_png(written: str, sent: str) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="scaling needs Pillow")
    data = io.BytesIO()
    pillow.new("RGB", (80, 40), "red").save(data, format=written)
    model = Scripted([says("ok")])
    Agent(model).run_sync([Image(data.getvalue()).scale_down(20)])
    (picture,) = [pillow.open(io.BytesIO(one)) for one in pictures_of(model)]
    assert (picture.format, picture.size) == (sent, (20, 10))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(
            # Its screen has 300 x 1 pixels and its only picture 300 x 60000.
            b"GIF89a"
            + struct.pack("<HHBBB", 300, 1, 0x80, 0, 0)
            + bytes(6)
            + b","
            + struct.pack("<HHHHB", 0, 0, 300, 60_000, 0)
            + b"\x02\x01\x00\x00;",
            "two different sizes",
            id="two sizes",
        ),
        pytest.param(
            make_png()[:16] + b"\0\0\x22\0" * 2 + make_png()[24:], "at most 50000000", id="bomb"
        ),
        pytest.param(
            make_png()[:16] + b"\0\0\x10\0" * 2 + make_png()[24:], "cannot be scaled", id="lies"
        ),
        pytest.param(make_png(100, 100, animated=True), "animated", id="animated"),
    ],
)
def test_a_picture_that_would_fill_the_memory_is_not_decoded(data: bytes, said: str) -> None:
    pytest.importorskip("PIL.Image", reason="scaling needs Pillow")
    model = Scripted([])
    with pytest.raises(ConfigError, match=said):
        Agent(model).run_sync([Image(data).scale_down(50)])
    assert model.asks == []


# ---- for models that see nothing


class Blind(Scripted):
    """A scripted model that says it sees no pictures."""

    async def capabilities(self) -> Capabilities:
        return replace(await super().capabilities(), vision=False)


class Reader(Recognizer):
    """Finds the same words in every picture."""

    def __init__(self) -> None:
        self.read: list[bytes] = []

    async def recognize(self, image: bytes, language: str, context: Context) -> Recognized:
        self.read.append(image)
        words = (
            Word("TOTAL", (0, 0, 5, 5), 90.0, (1,), (1,)),
            Word("99", (6, 0, 5, 5), 90.0, (1,), (1,)),
        )
        return Recognized(words, "reader", "1")


def test_a_model_without_vision_gets_the_text_of_a_picture_through_the_gate(
    tmp_path: Path,
) -> None:
    reader = Reader()
    model = Blind([says("99"), says("still 99")])
    agent = Agent(
        model,
        [ocr],
        workspace=tmp_path,
        plugins=[Parts(resources=[reader, MediaOptions(ocr=True)])],
        permissions=Permissions(allow=["vision::ocr"]),
    )

    async def story() -> None:
        session = agent.session()
        await session.run(["How much?", Image(make_png(), name="bill.png")])
        await session.run("again?")
        await session.close()
        events = [one.event for one in agent.journal.records(session.id)]
        made = [one.call.tool for one in events if isinstance(one, DirectCall)]
        assert made == ["vision::ocr"]

    asyncio.run(story())
    assert reader.read == [make_png()]
    (shown,) = model.asks[1].history[0].media  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
    assert isinstance(shown, LoadedMedia)
    refusal = ProviderError("no pictures")
    assert write_as_text("How much?", [shown], refusal).endswith("TOTAL 99\n</document>")


@pytest.mark.parametrize("vision", [True, None])
def test_a_model_that_may_see_is_shown_the_picture_itself(
    tmp_path: Path, vision: bool | None
) -> None:
    reader = Reader()
    model = Scripted([says("ok")], capabilities=Capabilities(True, True, vision=vision))
    agent = Agent(
        model,
        [ocr],
        workspace=tmp_path,
        plugins=[Parts(resources=[reader, MediaOptions(ocr=True)])],
        permissions=Permissions(allow=["vision::ocr"]),
    )
    agent.run_sync([Image(make_png())])
    assert reader.read == []
    assert pictures_of(model) == [make_png()]


def test_where_no_text_can_be_read_the_run_ends_before_the_request() -> None:
    model = Blind([])
    agent = Agent(model, plugins=[Parts(resources=[MediaOptions(ocr=True)])])
    with pytest.raises(ProviderError, match="no tool `vision::ocr`"):
        agent.run_sync([Image(make_png())])
    assert model.asks == []


def test_a_picture_of_a_tool_that_cannot_be_shown_is_named_with_the_reason() -> None:
    seen = LoadedMedia("image", "image/gif", "0" * 64, 30, 4, "a.gif", 1, 1, make_gif, True)
    refusal = ProviderError("this model takes only text")
    shown = write_as_text("shot", [seen], refusal)
    assert shown == "shot\n\n[not shown: this model takes only text]"
    with pytest.raises(ProviderError, match="only text"):
        write_as_text("shot", [replace(seen, in_result=False)], refusal)
