"""Large results: kept aside, stubs to the model, readable in parts by their owner, and nothing raw
gets past the last check.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule import Agent, Chunks, Context, ContextLeak, ErrorType, Limits, Scripted, Storage, tool
from ferrule.core.calls import ToolResult
from ferrule.core.events import Noticed, ToolAnswered
from ferrule.core.messages import ToolMessage
from ferrule.engine.session import Session
from ferrule.hooks import Action, CompletionPre, hook, modify
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import RunArtifacts, Scope
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.definition import Tool
from grouped_options import grouped

OUTPUT_CAP = 64 * 1024
THRESHOLD = 32 * 1024


@tool(side_effect="none")
def text(size: int) -> str:
    """Text of so many bytes, in lines of ten."""
    return ("123456789\n" * (size // 10 + 1))[:size]


@tool(side_effect="none")
def rows(count: int) -> dict[str, Any]:
    """A document."""
    return {"rows": [{"id": n, "name": f"row {n}"} for n in range(count)], "total": count}


@tool(side_effect="none", inline=True)
def parts(size: int) -> str:
    """A part of something that this tool reads on itself."""
    return "x" * size


@tool(side_effect="none")
def table(count: int) -> Chunks:
    """A table that is made row by row."""
    return Chunks(
        ("id,name\n" if n < 0 else f"{n},row {n}\n" for n in range(-1, count)), mime="text/csv"
    )


TOOLS = [text, rows, parts, table]


def agent(*steps: Any, tools: list[Any] | None = None, **options: Any) -> Agent:
    options.setdefault("journal", SqliteJournal(":memory:"))
    options.setdefault("artifacts", True)
    return Agent(Scripted([*steps]), tools or TOOLS, **grouped(**options))


async def one(ours: Agent, name: str, **arguments: Any) -> tuple[Session, ToolResult]:
    session = ours.session()
    return session, await session.call(name, **arguments)


# ---- what the model gets


@pytest.mark.proves("artifacts.threshold")
async def test_a_result_of_the_threshold_becomes_a_stub_and_one_byte_less_does_not() -> None:
    _, below = await one(agent(), "text", size=THRESHOLD - 1)
    assert (len(below.data), below.partial, below.notes) == (32_767, False, ())
    session, result = await one(agent(), "text", size=THRESHOLD)
    assert result.success and result.partial and result.size == 32_768
    assert list(result.data) == ["artifact", "size_bytes", "mime", "lines", "preview", "truncated"]
    assert (result.data["size_bytes"], result.data["mime"], result.data["truncated"]) == (
        32_768,
        "text/plain",
        True,
    )
    assert (
        result.data["preview"].startswith("123456789\n")
        and "lines left out" in result.data["preview"]
    )
    assert len(result.to_text()) < 2000 and "artifact_read" in result.to_text()
    fetched = await session.call(
        "artifact_fetch", artifact=result.data["artifact"], max_bytes=20_000
    )
    assert len(fetched.data["content"]) == 20_000 and not fetched.partial


@pytest.mark.proves("artifacts.threshold")
async def test_the_notes_of_a_result_count_too() -> None:
    @tool(side_effect="none")
    def pieces(size: int) -> Chunks:
        """The same in pieces."""
        return Chunks(["x" * size])

    for name in ("text", "pieces"):
        _, inline = await one(agent(tools=[text, pieces]), name, size=THRESHOLD - 1)
        assert len(inline.data) == THRESHOLD - 1
        _, result = await one(agent(tools=[text, pieces]), name, size=str(THRESHOLD - 5))
        assert result.notes and "artifact" in result.data


@pytest.mark.proves("artifacts.stub-in-history")
async def test_the_model_reads_the_stub_and_then_parts_and_the_journal_holds_the_hash() -> None:
    journal = SqliteJournal(":memory:")
    model_client = Scripted([calls(("rows", {"count": 5000})), says("ok")])
    ours = Agent(model_client, TOOLS, storage=Storage(artifacts=True, journal=journal))
    result = await ours.run("go")
    seen = model_client.histories[-1]
    told = next(message for message in seen if isinstance(message, ToolMessage))
    assert len(told.text) < 1500
    shown = json.loads(told.text.splitlines()[0])
    assert shown["preview"]["total"] == 5000 and shown["mime"] == "application/json"
    kept = [
        r.event.result.data
        for r in journal.records(result.session)
        if isinstance(r.event, ToolAnswered)
    ]
    found = FileArtifactStore().list(Scope("local", ours.user, result.session))
    assert [data["artifact"] for data in kept] == [f"art-{one.sha256}" for one in found]
    assert found[0].tool == "rows"


@pytest.mark.proves("artifacts.inline")
async def test_tools_that_read_on_themselves_are_handed_on_as_they_are() -> None:
    _, result = await one(agent(), "parts", size=60_000)
    assert result.data == "x" * 60_000
    _, cut = await one(agent(), "parts", size=70_000)
    assert (len(cut.data), cut.notes) == (
        OUTPUT_CAP,
        ("[output truncated at 65536 bytes of 70000]",),
    )


async def test_without_a_store_results_are_cut_as_ever() -> None:
    for name in ("text", "parts"):
        _, result = await one(agent(artifacts=False), name, size=70_000)
        assert (len(result.data), result.notes) == (
            OUTPUT_CAP,
            ("[output truncated at 65536 bytes of 70000]",),
        )
    ours = agent(artifacts=False)
    assert "artifact_read" not in ours.catalog
    _, small = await one(ours, "table", count=2)
    assert small.data == "id,name\n0,row 0\n1,row 1\n" and not small.partial
    _, large = await one(ours, "table", count=10_000)
    whole = len("id,name\n") + sum(len(f"{n},row {n}\n") for n in range(10_000))
    assert (len(large.data), large.size, large.partial) == (OUTPUT_CAP, whole, True)


@pytest.mark.proves("artifacts.by-default")
async def test_by_default_what_is_cut_stays_readable_for_its_owner_where_the_journal_is_a_file(
    tmp_path: Path,
) -> None:
    ours = agent(artifacts=None, journal=tmp_path / "journal.db")
    try:
        assert "artifact_read" not in ours.catalog
        session, inline = await one(ours, "text", size=OUTPUT_CAP)
        assert len(inline.data) == OUTPUT_CAP
        cut = await session.call("text", size=70_000)
        assert (
            len(cut.data) == OUTPUT_CAP
            and cut.notes[0] == "[output truncated at 65536 bytes of 70000]"
        )
        reference = cut.notes[1].split()[-1].rstrip("]")
        scope = Scope("local", ours.user, session.id)
        assert FileArtifactStore().find(scope, reference).size == 70_000
    finally:
        ours.journal.close()


def test_by_default_nothing_is_kept_beside_a_journal_in_memory() -> None:
    assert agent(artifacts=None).artifacts is None


async def test_a_model_that_may_not_read_parts_gets_the_cut_text_and_no_dead_end() -> None:
    for ours in (
        agent(deny=["artifact_read"]),
        agent(artifacts=RunArtifacts(FileArtifactStore(), threshold=None)),
    ):
        session, result = await one(ours, "text", size=70_000)
        assert len(result.data) == OUTPUT_CAP and "the whole is kept as art-" in result.notes[1]
        assert (await session.call("text", size=50_000)).notes == ()
    unread = agent(artifacts=RunArtifacts(FileArtifactStore(), threshold=None))
    for name in ("rows", "table"):
        _, result = await one(unread, name, count=20_000)
        assert len(result.data) == OUTPUT_CAP and "row 9" in result.data
        assert "the whole is kept as art-" in result.notes[1]


@pytest.mark.parametrize("cap", [256, 300, 1000, 4096])
async def test_a_stub_is_never_more_than_the_output_limit(cap: int) -> None:
    for name, arguments in (
        ("text", {"size": 90_000}),
        ("rows", {"count": 900}),
        ("table", {"count": 9000}),
    ):
        _, result = await one(agent(limits=Limits(max_output_bytes=cap)), name, **arguments)
        assert len(result.to_text().encode()) <= cap
        assert result.data["artifact"].startswith("art-")


async def test_what_cannot_be_kept_is_cut_below_the_threshold_and_says_why(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path / "a", max_bytes=50_000)
    _, result = await one(agent(artifacts=store), "text", size=60_000)
    assert result.success and result.partial and len(result.to_text()) < THRESHOLD
    assert "could not be kept" in result.to_text() and "truncated" in result.to_text()
    (tmp_path / "file").write_text("in the way")
    _, blocked = await one(agent(artifacts=tmp_path / "file" / "below"), "text", size=60_000)
    assert blocked.success and "could not be kept" in blocked.to_text()


# ---- who may read


@pytest.mark.proves("artifacts.owner-only")
async def test_another_session_user_and_tenant_get_the_answer_for_what_is_not_there(
    tmp_path: Path,
) -> None:
    session, result = await one(agent(artifacts=tmp_path, user="me"), "text", size=50_000)
    ref = result.data["artifact"]
    assert (await session.call("artifact_read", artifact=ref)).success
    for other in (
        agent(artifacts=tmp_path, user="me"),
        agent(artifacts=tmp_path, user="you"),
        agent(artifacts=tmp_path, user="me", tenant="else"),
    ):
        for name in ("artifact_fetch", "artifact_read"):
            theirs, refused = await one(other, name, artifact=ref)
            nobodys = await theirs.call(name, artifact="art-" + "0" * 64)
            assert refused.error_type is nobodys.error_type is ErrorType.NOT_FOUND
            assert (refused.error_message or "").replace(
                ref, "art-" + "0" * 64
            ) == nobodys.error_message


@pytest.mark.proves("artifacts.owner-only")
async def test_a_session_that_goes_on_reads_what_it_kept_before(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    first = agent(calls(("text", {"size": 50_000})), says("ok"), journal=journal)
    result = await first.run("go")
    session = agent(says("again"), journal=journal).resume(result.session)
    read = await session.call(
        "artifact_read", artifact=result.results[0].data["artifact"], mode="tail", count=1
    )
    assert read.data["content"] == "123456789"
    assert (await session.run("more")).text == "again"
    await session.close()
    journal.close()


@pytest.mark.proves("artifacts.fetch")
async def test_a_part_has_at_least_one_byte() -> None:
    session, result = await one(agent(mode="default"), "text", size=500_000)
    ref = result.data["artifact"]
    fetched = await session.call("artifact_fetch", artifact=ref, max_bytes=1)
    assert fetched.success and len(fetched.data["content"]) == 1
    none = await session.call("artifact_fetch", artifact=ref, max_bytes=0)
    assert not none.success and "max_bytes" in (none.error_message or "")


@pytest.mark.proves("artifacts.gate-not-again")
async def test_reading_parts_asks_nobody_and_is_never_kept_itself() -> None:
    session, result = await one(agent(mode="default"), "text", size=500_000)
    ref = result.data["artifact"]
    for arguments in ({"max_bytes": 10_000_000}, {"max_bytes": 40_000}, {}):
        fetched = await session.call("artifact_fetch", artifact=ref, **arguments)
        assert fetched.success and "content" in fetched.data and len(fetched.to_text()) < THRESHOLD
    read = await session.call("artifact_read", artifact=ref, count=1_000_000)
    assert read.success and read.data["lines"] > 1000 and len(read.to_text()) < THRESHOLD


# ---- reading


async def fetched_whole(session: Session, ref: str, most: int) -> bytes:
    data, offset = b"", 0
    while True:
        piece = (
            await session.call("artifact_fetch", artifact=ref, offset=offset, max_bytes=most)
        ).data
        assert piece["offset"] == offset
        data += piece["content"].encode()
        if not piece["truncated"]:
            return data
        assert piece["next_offset"] > offset
        offset = piece["next_offset"]


@pytest.mark.proves("artifacts.fetch")
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.text(st.sampled_from('a\u00e9\u20ac\U0001f600\n"\x01'), min_size=1, max_size=40),
    st.integers(1, 3000),
)
async def test_reading_on_leads_through_the_whole_without_splitting_a_character(
    tmp_path: Path, piece: str, most: int
) -> None:
    whole = piece * (2000 // len(piece.encode()) + 1)

    @tool(side_effect="none")
    def say() -> str:
        """Say it."""
        return whole

    ours = agent(tools=[say], artifacts=RunArtifacts(FileArtifactStore(tmp_path), threshold=1024))
    session, result = await one(ours, "say")
    assert await fetched_whole(session, result.data["artifact"], max(most, 100)) == whole.encode()


@pytest.mark.proves("artifacts.fetch")
@pytest.mark.parametrize("mime", ["text/plain", "application/octet-stream"])
async def test_an_offset_within_a_character_is_moved_to_its_beginning_in_text_and_only_there(
    mime: str,
) -> None:
    whole = "a\u00e9\u20ac\U0001f600".encode() * 200
    begins = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6]

    @tool(side_effect="none")
    def pieces() -> Chunks:
        """Bytes."""
        return Chunks([whole], mime=mime)

    ours = agent(tools=[pieces], artifacts=RunArtifacts(FileArtifactStore(), threshold=1024))
    session, result = await one(ours, "pieces")
    for offset, begin in enumerate(begins):
        fetched = await session.call(
            "artifact_fetch", artifact=result.data["artifact"], offset=offset, max_bytes=9
        )
        if mime == "text/plain":
            assert fetched.data["offset"] == begin
            content = fetched.data["content"].encode()
            assert content and whole[begin:].startswith(content)
        else:
            assert fetched.data["offset"] == offset
            assert base64.b64decode(fetched.data["content"]) == whole[offset : offset + 9]


@pytest.mark.proves("artifacts.read")
async def test_each_way_of_reading_gives_its_part() -> None:
    ours = agent()
    session, document = await one(ours, "rows", count=4000)
    ref = document.data["artifact"]
    found = await session.call(
        "artifact_read", artifact=ref, mode="json", pointer="/rows/1234/name"
    )
    assert found.data["value"] == "row 1234"
    whole = await session.call("artifact_read", artifact=ref, mode="json")
    assert whole.data["truncated"] and whole.data["value"]["total"] == 4000
    listed = await session.call("table", count=30_000)
    ref = listed.data["artifact"]
    assert (
        listed.data["preview"].startswith("id,name\n0,row 0\n")
        and listed.data["mime"] == "text/csv"
    )
    some = await session.call("artifact_read", artifact=ref, mode="rows", start=20_000, count=2)
    assert some.data["columns"] == ["id", "name"] and some.data["rows"][0] == ["19999", "row 19999"]
    assert some.data["next_start"] == 20_002
    grep = await session.call("artifact_read", artifact=ref, mode="grep", pattern="row 2999[89]$")
    assert grep.data["matches"] == [
        {"line": n + 2, "text": f"{n},row {n}"} for n in (29_998, 29_999)
    ]
    lines = await session.call("artifact_read", artifact=ref, start=3, count=2)
    assert (lines.data["content"], lines.data["next_start"]) == ("1,row 1\n2,row 2", 5)
    tail = await session.call("artifact_read", artifact=ref, mode="tail", count=2)
    assert tail.data["content"] == "29998,row 29998\n29999,row 29999"


@pytest.mark.proves("artifacts.read")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"mode": "json"}, "not JSON"),
        ({"mode": "grep"}, "`pattern` is empty"),
        ({"mode": "grep", "pattern": "("}, "not a regular expression"),
        ({"start": 0}, "`start` must be at least 1"),
        ({"count": 0}, "`count` must be at least 1"),
    ],
)
async def test_a_reading_that_cannot_be_says_why(arguments: dict[str, Any], said: str) -> None:
    session, result = await one(agent(), "text", size=50_000)
    refused = await session.call("artifact_read", artifact=result.data["artifact"], **arguments)
    assert refused.error_type is ErrorType.VALIDATION_FAILED and said in (
        refused.error_message or ""
    )


async def test_bytes_that_are_no_text_come_as_base64(tmp_path: Path) -> None:
    @tool(side_effect="none")
    def picture() -> Chunks:
        """A picture."""
        return Chunks([bytes(range(256))], mime="image/png")

    session, result = await one(agent(tools=[picture]), "picture")
    assert "lines" not in result.data and "not text" in result.data["preview"]
    fetched = await session.call("artifact_fetch", artifact=result.data["artifact"], offset=254)
    assert (fetched.data["content"], fetched.data["encoding"]) == ("/v8=", "base64")
    _, cut = await one(agent(tools=[picture], artifacts=False), "picture")
    assert cut.data == "[256 bytes of image/png, which is not text]"


# ---- results that come in pieces


async def test_pieces_that_break_fail_the_call_and_are_closed() -> None:
    class Source:
        closed = False

        def __iter__(self) -> Iterator[str]:
            yield "x" * 100_000
            raise OSError("the disk is gone")

        def close(self) -> None:
            self.closed = True

    source = Source()

    @tool(side_effect="none")
    def broken() -> Chunks:
        """Break."""
        return Chunks(source)

    session, result = await one(agent(tools=[broken]), "broken")
    assert result.error_type is ErrorType.IO_ERROR and "the disk is gone" in (
        result.error_message or ""
    )
    assert source.closed
    assert FileArtifactStore().list(Scope("local", "x", session.id)) == []


async def test_pieces_that_take_too_long_are_a_timeout_and_stop_being_read() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def slow() -> Iterator[str]:
        try:
            yield "x" * 100_000
            go_on.wait(20)
            yield "y"
            raise AssertionError("read on")
        finally:
            ended.set()

    @tool(side_effect="none", timeout=0.05, max_attempts=1)
    def crawl() -> Chunks:
        """Crawl."""
        return Chunks(slow())

    _, result = await one(agent(tools=[crawl]), "crawl")
    assert result.error_type is ErrorType.TIMEOUT
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 20)


MEMORY = """
import asyncio, json, resource, sys
from ferrule import Agent, Chunks, Scripted, Storage, tool
from ferrule.models.scripted import calls, says

MEBI = 1 << 20

@tool(side_effect="none")
def dump(mebi: int) -> Chunks:
    "Many lines."
    line = b"%0127d" % 7 + b"\\n"
    return Chunks(line * 512 for _ in range(mebi * 16))

def peak():
    # Linux carries `ru_maxrss` over from the process that started this one; the high-water mark of this memory is its own.
    try:
        with open("/proc/self/status") as status:
            return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main():
    model_client = Scripted([calls(("dump", {"mebi": 1})), calls(("dump", {"mebi": 200})), says("ok")])
    agent = Agent(model_client, [dump], storage=Storage(artifacts=True, journal=":memory:"))
    session = agent.session()
    small = await session.call("dump", mebi=1)
    await session.call("artifact_read", artifact=small.data["artifact"], mode="grep", pattern="^8")
    before = peak()
    result = (await session.run("go")).results[1]
    ref = result.data["artifact"]
    middle = await session.call("artifact_read", artifact=ref, start=800_000, count=3)
    fetched = await session.call("artifact_fetch", artifact=ref, offset=150 * MEBI, max_bytes=20_000)
    tail = await session.call("artifact_read", artifact=ref, mode="tail", count=2)
    print(json.dumps({
        "size": result.size, "stub": len(result.to_text()), "grown": peak() - before,
        "middle": middle.data["lines"], "fetched": len(fetched.data["content"]), "tail": tail.data["lines"],
    }))

asyncio.run(main())
"""


@pytest.mark.proves("artifacts.memory")
def test_a_result_of_200_mib_is_kept_and_read_in_parts_within_bounded_memory() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    print(told)
    assert told["size"] == 200 << 20
    assert told["stub"] < 20_000
    assert (told["middle"], told["fetched"], told["tail"]) == (3, 20_000, 2)
    assert told["grown"] < 32, f"{told['grown']} MiB more than before"


@pytest.mark.proves("artifacts.memory")
def test_a_text_is_kept_without_a_second_whole_copy_of_it() -> None:
    program = MEMORY.replace("-> Chunks:", "-> str:").replace(
        "return Chunks(line * 512 for _ in range(mebi * 16))",
        "return (line * 8192 * mebi).decode()",
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    print(told)
    # The text itself, and the bytes that the handler made it of.
    assert told["grown"] < 2 * 200 + 48, f"{told['grown']} MiB more than before"


# ---- hooks


class Redacting:
    """A hook on calls that takes words out of results."""

    seen = 0

    async def before(self, tool: Tool, values: Any, context: Context) -> None:
        return None

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> ToolResult | None:
        from dataclasses import replace

        if not isinstance(result.data, str):
            return None
        self.seen = len(result.data)
        return replace(result, data=result.data.replace("secret", "[gone]"))


async def test_what_is_kept_is_what_the_hooks_have_left() -> None:
    @tool(side_effect="none")
    def leaky(size: int) -> str:
        """A secret at the end."""
        return "x" * size + "secret"

    hiding = Redacting()
    session, result = await one(agent(tools=[leaky], hooks=[hiding]), "leaky", size=100_000)
    tail = await session.call("artifact_fetch", artifact=result.data["artifact"], offset=99_990)
    assert (hiding.seen, tail.data["content"]) == (100_006, "x" * 10 + "[gone]")
    # More than the hooks are shown is cut first: nothing is kept that they have not seen.
    session, result = await one(agent(tools=[leaky], hooks=[hiding]), "leaky", size=1_000_000)
    assert result.data["size_bytes"] == hiding.seen == 262_144
    assert any("truncated at 262144 bytes of 1000006" in note for note in result.notes)


@pytest.mark.proves("artifacts.inline")
async def test_with_hooks_a_tool_that_reads_on_itself_is_cut_at_the_limit_as_ever() -> None:
    _, cut = await one(agent(hooks=[Redacting()]), "parts", size=70_000)
    assert (len(cut.data), cut.notes) == (
        OUTPUT_CAP,
        ("[output truncated at 65536 bytes of 70000]",),
    )


async def test_of_pieces_only_what_hooks_have_seen_is_kept() -> None:
    hiding = Redacting()
    _, result = await one(agent(hooks=[hiding]), "table", count=100_000)
    assert result.data["size_bytes"] == hiding.seen == 262_144


# ---- the last check


def leaks(journal: SqliteJournal) -> list[str]:
    session = journal.sessions()[0].session
    noticed = [r.event for r in journal.records(session) if isinstance(r.event, Noticed)]
    return [event.text for event in noticed if event.topic == "llm.context_leak"]


@hook("completion.pre")
async def unstubbed(question: CompletionPre) -> Action:
    """Puts raw bytes where a stub was."""
    shown = [dict(message) for message in question.messages]
    for message in shown:
        if message["role"] == "tool":
            message["content"] = "x" * THRESHOLD
    return modify({"messages": shown})


@pytest.mark.proves("artifacts.context-leak")
async def test_raw_bytes_in_the_place_of_a_stub_are_not_sent_and_are_an_error_and_an_event() -> (
    None
):
    journal = SqliteJournal(":memory:")
    model_client = Scripted([calls(("text", {"size": 50_000})), says("never")])
    ours = Agent(
        model_client,
        TOOLS,
        storage=Storage(artifacts=True, journal=journal),
        plugins=[Parts(hooks=[unstubbed])],
    )
    with pytest.raises(ContextLeak) as raised:
        await ours.run("go")
    assert (raised.value.code, raised.value.exit_code) == ("context_leak", 1)
    assert "32768 raw bytes" in str(raised.value)
    assert leaks(journal) == [raised.value.detail]
    assert len(model_client.histories) == 1


@pytest.mark.proves("artifacts.context-leak")
@pytest.mark.parametrize("kind", ["kept text", "data url"])
async def test_a_message_with_the_text_of_a_kept_result_or_a_data_url_is_a_leak(kind: str) -> None:
    journal = SqliteJournal(":memory:")
    ours = Agent(
        Scripted([calls(("text", {"size": 50_000})), says("ok")]),
        TOOLS,
        storage=Storage(artifacts=True, journal=journal),
    )
    session = ours.session()
    await session.run("go")
    heavy = (
        text.handler(50_000) if kind == "kept text" else "data:image/png;base64," + "A" * THRESHOLD
    )
    with pytest.raises(ContextLeak):
        await session.run(f"What is this? {heavy} Say it.")
    assert len(leaks(journal)) == 1


async def test_a_person_s_own_words_notices_objects_and_large_failures_are_no_leaks() -> None:
    @tool(side_effect="none")
    def near(context: Context) -> str:
        """Almost the threshold, quotes that JSON doubles, and a notice behind it."""
        context.tell("n" * 5000)
        return '"' * (THRESHOLD - 1)

    @tool(side_effect="none")
    def refuse() -> str:
        """Fail at length."""
        raise ValueError('"' * 60_000)

    for results in ("value", "envelope"):
        steps = [
            calls(("near", {}), ("refuse", {}), ("parts", {"size": 70_000})),
            says("ok"),
            says("fine"),
        ]
        ours = agent(*steps, tools=[near, refuse, parts], results=results)
        session = ours.session()
        assert (await session.run("Read this: " + "my own words " * 20_000)).text == "ok"
        assert (await session.run("And?")).text == "fine"


async def test_a_session_from_before_goes_on_with_a_lower_threshold(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    before = await agent(
        calls(("text", {"size": 60_000})), says("ok"), artifacts=False, journal=journal
    ).run("go")
    session = agent(says("still here"), journal=journal).resume(before.session)
    assert (await session.run("more")).text == "still here"
    await session.close()
    journal.close()


def test_a_threshold_beyond_the_output_limit_is_refused() -> None:
    from ferrule import ConfigError

    for wrong in (0, 1023, OUTPUT_CAP + 1):
        with pytest.raises(ConfigError, match=r"artifacts\.threshold"):
            RunArtifacts(FileArtifactStore(), threshold=wrong)
