"""Media in runs: taken in by content, kept once, referred to, and given back byte for byte."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from ferrule import Agent, Audio, ConfigError, Document, Image, ProviderError, Storage, tool
from ferrule.core.compaction import Compaction
from ferrule.core.events import ContextCompacted, RunStarted, ToolAnswered, dump_event
from ferrule.core.identity import Identity
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage
from ferrule.engine.context.compaction_plan import estimate_tokens
from ferrule.engine.replay.recording import Recording
from ferrule.engine.replay.replay import replay
from ferrule.engine.replay.rerun import rerun
from ferrule.engine.session_media import SessionMedia
from ferrule.models.media_encoding import read_bytes
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.artifacts.memory import MemoryArtifactStore
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.artifact_conformance import ArtifactConformance
from ferrule.tools.media_types import MediaInvalid, detect_type
from media_samples import PDF, SVG, make_gif, make_png, make_wav


@tool
def take_picture() -> Image:
    """Take a picture."""
    return Image.from_bytes(make_png(5, 4), name="shot.png")


@tool
def scan_pages() -> list[str | Image]:
    """Scan pages."""
    return ["Page 1:", Image.from_bytes(make_png(5, 4)), "that was all"]


def seen(model: Scripted, ask: int, message: int) -> list[bytes]:
    """The bytes that a model was given with one message."""
    given = model.asks[ask].history[message]
    assert not isinstance(given, AssistantMessage)
    return [read_bytes(one) for one in given.media]


def test_a_picture_reaches_the_model_and_comes_out_of_the_journal(tmp_path: Path) -> None:
    picture = make_png(7, 3)
    (tmp_path / "p.png").write_bytes(picture)
    model = Scripted([calls(("take_picture", {})), says("a cat")])
    storage = Storage(journal=tmp_path / "j.db", artifacts=tmp_path / "artifacts")
    agent = Agent(model, [take_picture], workspace=tmp_path, storage=storage)
    run = agent.run_sync(["What is", Image.from_path("p.png"), "this?"])
    assert seen(model, 0, 0) == [picture]
    assert seen(model, 1, 2) == [make_png(5, 4)]

    records = list(agent.journal.records(run.session))
    (started,) = (one.event for one in records if isinstance(one.event, RunStarted))
    assert started.text == "What is\nthis?"
    assert [(one.at, one.width, one.name) for one in started.media] == [(7, 7, "p.png")]
    (answered,) = (one.event for one in records if isinstance(one.event, ToolAnswered))
    assert answered.result.data == "[image shot.png: image/png, 5x4, 69 bytes]"
    assert len(answered.result.media) == 1
    store = agent.find_media_store()
    scope = Scope(agent.tenant, agent.user, run.session)
    kept = [store.read(scope, one.reference, 0, one.size) for one in store.list(scope)]
    assert sorted(kept) == sorted([picture, make_png(5, 4)])
    # Replay needs none of the bytes, and no model.
    for artifact in store.list(scope):
        store.delete(scope, artifact.reference)
    assert replay(records).differences == ()


def test_a_list_of_texts_and_pictures_from_a_tool_keeps_its_order() -> None:
    model = Scripted([calls(("scan_pages", {})), says("ok")])
    run = Agent(model, [scan_pages]).run_sync("scan")
    message = run.messages[2]
    assert isinstance(message, ToolMessage)
    assert message.text == "Page 1:\n[image: image/png, 5x4, 69 bytes]\nthat was all"
    assert seen(model, 1, 2) == [make_png(5, 4)]


def test_a_session_that_is_resumed_or_forked_still_has_its_pictures(tmp_path: Path) -> None:
    model = Scripted([says("one"), says("two"), says("three")])
    storage = Storage(journal=tmp_path / "j.db", artifacts=tmp_path / "artifacts")
    agent = Agent(model, storage=storage)

    async def story() -> None:
        first = agent.session()
        await first.run([Image(make_png())])
        forked = first.fork(1)
        await first.close()
        for ask, name in enumerate((first.id, forked), 1):
            session = agent.resume(name)
            await session.run("and?")
            await session.close()
            assert seen(model, ask, 0) == [make_png()]

    asyncio.run(story())


def test_a_history_carries_its_media_or_leaves_them() -> None:
    first = Agent(Scripted([says("one")])).run_sync(["see", Image(make_png(9, 9))])
    carried = first.messages.to_json(media=True)
    for history in (first.messages, carried):
        model = Scripted([says("two")])
        Agent(model).run_sync("and?", history=history)
        assert seen(model, 0, 0) == [make_png(9, 9)]
    agent = Agent(Scripted([]))
    left = first.messages.to_json()
    assert len(left) < 400
    with pytest.raises(ConfigError, match=r"bytes of .* are not in it"):
        agent.run_sync("and?", history=left)
    changed = json.loads(carried)
    (digest,) = changed["media"]
    changed["media"][digest] = "AAAA"
    with pytest.raises(ConfigError, match="were changed"):
        agent.run_sync("and?", history=json.dumps(changed))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        pytest.param(Image(b"\x89PNG\r\n\x1a\n" + b"0" * 50_000_000), "50000008 bytes", id="50 MB"),
        pytest.param(Image(make_wav()), "is no image: its content is audio/wav", id="wrong type"),
        pytest.param(Image(PDF, name="a.png"), "application/pdf", id="wrong name"),
        pytest.param(Audio(make_png()), "is no audio", id="picture as sound"),
        pytest.param(Image(make_gif(3)), "animated", id="animated GIF"),
        pytest.param(Image(make_png(animated=True)), "animated", id="animated PNG"),
        pytest.param(Image(make_png()[:-20]), "cut off", id="truncated PNG"),
        pytest.param(Image(make_gif()[:-2]), "cut off", id="truncated GIF"),
        pytest.param(Image(b"\xff\xd8\xff\xe0\0\x10JFIF"), "cut off", id="truncated JPEG"),
        pytest.param(Document(PDF[:-8]), "cut off", id="truncated PDF"),
        pytest.param(Audio(make_wav()[:-4]), "cut off", id="truncated WAV"),
        pytest.param(Document(b"PK\x03\x04" + b"x" * 40), "cut off", id="truncated ZIP"),
        pytest.param(Image(SVG), "convert it to PNG", id="SVG with script"),
        pytest.param(
            Image(make_png(20_000, 1)[:16] + b"\0\1\0\0" * 2 + make_png()[24:]), "pixels", id="bomb"
        ),
        pytest.param(Document(b"\x7fELF\2\1\1\0\0\0"), "nothing that models take", id="program"),
        pytest.param(Image(b""), "is empty", id="empty"),
    ],
)
def test_what_cannot_be_given_to_a_model_is_a_clear_error(part: Image, said: str) -> None:
    model = Scripted([])
    with pytest.raises(ConfigError, match=said):
        Agent(model).run_sync(["see", part])
    assert model.asks == []


def encode_picture(form: str, *, frames: int = 1) -> bytes:
    """A picture as Pillow writes it: 64 x 48, of many colours."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow writes these formats")
    pictures = [pillow.effect_noise((64, 48), 50 + place) for place in range(frames)]
    written = io.BytesIO()
    more = {"save_all": True, "append_images": pictures[1:]} if frames > 1 else {}
    pictures[0].save(written, format=form, **more)
    return written.getvalue()


@pytest.mark.parametrize("form", ["JPEG", "WEBP"])
def test_pictures_that_another_program_wrote_are_taken_whole_and_refused_cut(form: str) -> None:
    whole = encode_picture(form)
    found = detect_type(whole, "it")
    assert (found.mime, found.width, found.height) == (f"image/{form.lower()}", 64, 48)
    for length in (len(whole) // 2, len(whole) - 2):
        with pytest.raises(MediaInvalid, match="cut off"):
            detect_type(whole[:length], "it")


def test_a_webp_that_moves_is_refused() -> None:
    with pytest.raises(MediaInvalid, match="animated"):
        detect_type(encode_picture("WEBP", frames=3), "it")


def test_a_link_with_a_protected_name_is_refused_whatever_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(make_png())
    (tmp_path / ".env").symlink_to(tmp_path / "p.png")
    with pytest.raises(ConfigError, match="secrets"):
        Agent(Scripted([])).run_sync([Document.from_path(tmp_path / ".env")])


def test_paths_stay_in_the_workspace_and_protected_names_are_refused(tmp_path: Path) -> None:
    inside = tmp_path / "work"
    inside.mkdir()
    (tmp_path / "out.png").write_bytes(make_png())
    (inside / "link.png").symlink_to(tmp_path / "out.png")
    (inside / ".env").write_text("KEY=1")
    (inside / "hidden.png").symlink_to(inside / ".env")
    agent = Agent(Scripted([]), workspace=inside)
    for path in ("link.png", "../out.png", str(tmp_path / "out.png"), ".env", "hidden.png"):
        with pytest.raises(ConfigError, match="cannot be read"):
            agent.run_sync([Document.from_path(path)])
    # Without a workspace a program opens what it likes, but no secrets.
    with pytest.raises(ConfigError, match="secrets"):
        Agent(Scripted([])).run_sync([Document.from_path(inside / "hidden.png")])


def test_what_tools_may_read_and_not_write_is_given_to_a_model(tmp_path: Path) -> None:
    (tmp_path / "Jenkinsfile").write_text("pipeline {}")
    (tmp_path / "build.md").symlink_to(tmp_path / "Jenkinsfile")
    for name in ("Jenkinsfile", "build.md"):
        model = Scripted([says("ok")])
        Agent(model).run_sync([Document.from_path(tmp_path / name)])
        assert seen(model, 0, 0) == [b"pipeline {}"]


def test_a_tool_that_returns_a_broken_picture_fails_with_the_reason() -> None:
    @tool
    def broken() -> Image:
        """Return half a picture."""
        return Image(make_png()[:-20])

    run = Agent(Scripted([calls(("broken", {})), says("ok")]), [broken]).run_sync("go")
    assert not run.results[0].success
    assert "cut off" in (run.results[0].error_message or "")


def test_whole_media_of_every_kind_are_known_by_their_content() -> None:
    media = SessionMedia(MemoryArtifactStore(), Identity("t", "u", "s", "r"), None)
    parts = [
        Image(make_gif()),
        Audio(make_wav()),
        Document(PDF),
        Document(b"# Title"),
        Document(SVG),
    ]
    text, found = asyncio.run(media.take_message(["look", *parts]))
    assert text == "look"
    assert [one.mime for one in found] == [
        "image/gif",
        "audio/wav",
        "application/pdf",
        "text/plain",
        "image/svg+xml",
    ]


def test_a_text_only_run_writes_what_it_wrote_before() -> None:
    journal = SqliteJournal(":memory:")
    run = Agent(Scripted([says("hi")]), storage=Storage(journal=journal)).run_sync("hello")
    bodies = [dump_event(one.event)[1] for one in journal.records(run.session)]
    assert not [body for body in bodies if '"media"' in body]
    assert '"media"' not in run.messages.to_json()


def test_compaction_keeps_a_caption_and_a_reference() -> None:
    (reference,) = asyncio.run(
        SessionMedia(MemoryArtifactStore(), Identity("t", "u", "s", "r"), None).take_message(
            [Image(make_png(), name="a.png")]
        )
    )[1]
    history = [
        UserMessage("see", (reference,)),
        AssistantMessage("seen"),
        UserMessage("go on"),
        AssistantMessage("yes"),
        UserMessage("more"),
    ]
    event = ContextCompacted(made="summary", through=4, kept=(1,), text="summary")
    sent = Compaction().apply(event, list(history))
    assert isinstance(sent[0], UserMessage)
    assert sent[0].media == ()
    assert "a.png" in sent[0].text
    assert reference.reference in sent[0].text


def test_messages_in_the_shapes_of_openai_and_anthropic_have_their_media() -> None:
    model = Scripted([calls(("take_picture", {})), says("ok")])
    run = Agent(model, [take_picture]).run_sync(["see", Image(make_png())])
    shown = run.messages.to_openai()
    assert [one["role"] for one in shown] == ["user", "assistant", "tool", "user", "assistant"]
    assert [part["type"] for part in shown[0]["content"]] == ["text", "image_url"]
    assert [part["type"] for part in shown[3]["content"]] == ["text", "image_url"]
    blocks = run.messages.to_anthropic()
    assert [part["type"] for part in blocks[0]["content"]] == ["text", "image"]
    assert [part["type"] for part in blocks[2]["content"][0]["content"]] == ["text", "image"]


def test_media_are_counted_in_tokens() -> None:
    text = estimate_tokens(UserMessage("see"))
    media = SessionMedia(MemoryArtifactStore(), Identity("t", "u", "s", "r"), None)
    _, found = asyncio.run(media.take_message([Image(make_png(1500, 1000))]))
    assert estimate_tokens(UserMessage("see", found)) == text + 2000


class TestMemoryStore(ArtifactConformance):
    """The store in memory fulfils the contract of all stores."""

    def open_store(self) -> MemoryArtifactStore:
        return MemoryArtifactStore()


def change_bytes(folder: Path, before: bytes, after: bytes) -> None:
    """Change what is kept, as somebody who can write to the disk would."""
    kept = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == before]
    assert len(kept) == 1
    kept[0].chmod(0o600)
    kept[0].write_bytes(after)


def test_bytes_that_were_changed_on_the_disk_are_neither_sent_nor_run_again(tmp_path: Path) -> None:
    storage = Storage(journal=tmp_path / "j.db", artifacts=tmp_path / "artifacts")
    model = Scripted([says("one"), says("two")])
    agent = Agent(model, storage=storage)
    whole = make_png(7, 3)

    async def story() -> str:
        session = agent.session()
        await session.run([Image(whole)])
        await session.close()
        change_bytes(tmp_path / "artifacts", whole, whole[:-1] + b"!")
        session = agent.resume(session.id)
        await session.run("and?")
        await session.close()
        return session.id

    records = list(agent.journal.records(asyncio.run(story())))
    with pytest.raises(ProviderError, match="its bytes were changed"):
        seen(model, 1, 0)
    again = Scripted([says("a dog")], model="scripted:other")
    with pytest.raises((ConfigError, ProviderError), match=r"changed|not those of its hash"):
        asyncio.run(rerun(Recording.of(records), agent, model=again))
    assert again.asks == []


def test_a_session_with_pictures_is_run_again_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(make_png(7, 3))
    storage = Storage(journal=tmp_path / "j.db", artifacts=tmp_path / "artifacts")
    script = [calls(("take_picture", {})), says("a cat")]
    agent = Agent(Scripted(script), [take_picture], workspace=tmp_path, storage=storage)
    run = agent.run_sync(["What is", Image.from_path("p.png"), "this?"])
    records = list(agent.journal.records(run.session))
    other = Scripted([calls(("take_picture", {})), says("a dog")], model="scripted:other")
    report = asyncio.run(rerun(Recording.of(records), agent, model=other))
    assert [one.text for one in report.runs] == ["a dog"]
    assert seen(other, 0, 0) == [make_png(7, 3)]
    assert seen(other, 1, 2) == [make_png(5, 4)]
    store = agent.find_media_store()
    scope = Scope(agent.tenant, agent.user, run.session)
    for artifact in store.list(scope):
        store.delete(scope, artifact.reference)
    with pytest.raises(ProviderError, match="cannot be given again"):
        asyncio.run(rerun(Recording.of(records), agent, model=Scripted([])))
