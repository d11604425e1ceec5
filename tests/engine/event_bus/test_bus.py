"""The event bus: who gets what, what is lost and said, where a reader goes on."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import (
    Agent,
    ConfigError,
    Host,
    Identity,
    JournalError,
    Permissions,
    Scripted,
    SessionNotFound,
    Storage,
    TextDelta,
    tool,
)
from ferrule.core.events import Noticed, RunFinished
from ferrule.engine.event_bus.bus import OPERATORS, Bus, Feed
from ferrule.engine.event_bus.event_selection import Operator, OwnSession, OwnSessions
from ferrule.engine.event_bus.events import BusEvent, CursorError, Place
from ferrule.engine.event_bus.subscription import Subscription
from ferrule.engine.live_events import Progress
from ferrule.engine.session_log import SessionLog
from ferrule.models.scripted import calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import RecordingApprover

ADA = Identity("acme", "ada", "s1", "r1")


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def numbers(events: list[BusEvent]) -> list[str]:
    return [str(event.sequence) for event in events if event.sequence is not None]


async def read(reader: Subscription, count: int) -> list[BusEvent]:
    async with asyncio.timeout(20):
        return [await anext(reader) for _ in range(count)]


async def until(reader: Subscription, kind: str) -> list[BusEvent]:
    events: list[BusEvent] = []
    async with asyncio.timeout(20):
        async for event in reader:
            events.append(event)
            if event.kind == kind:
                break
    return events


def said(feed: Feed, first: int, last: int) -> None:
    for number in range(first, last + 1):
        feed.publish(Noticed("n", str(number)))


# ---- what is published


async def test_what_a_run_journals_is_what_its_subscriber_gets_with_the_same_numbers() -> None:
    bus, journal = Bus(), SqliteJournal(":memory:")
    agent = Agent(
        Scripted([calls(("add", {"a": 2, "b": 3})), says("It is 5.")]),
        [add],
        host=Host(bus=bus),
        storage=Storage(journal=journal, user="ada"),
    )
    session = agent.session(id="s1")
    reader = bus.subscribe(
        OwnSession("local", "ada", "s1"), cursor=Place(), kinds=["*.*", "notice"]
    )
    await session.run("What is 2 + 3?")
    events = [e for e in reader.take_nowait() if not e.kind.startswith("piece.")]
    records = list(journal.records("s1"))
    assert [(e.kind, e.sequence, e.payload) for e in events] == [
        (r.event.kind, Place(r.seq), json.loads(r.body)) for r in records
    ]
    assert {
        (e.identity.tenant, e.identity.user, e.identity.session) for e in events if e.identity
    } == {("local", "ada", "s1")}
    assert events[-1].identity is not None and events[-1].identity.run == records[-1].run


async def test_words_arrive_as_they_are_said_where_somebody_wants_them_and_only_there() -> None:
    async def kinds_of(wanted: list[str] | None) -> tuple[str, bool]:
        bus = Bus()
        agent = Agent(
            Scripted([says("one two three")]),
            host=Host(bus=bus),
            storage=Storage(journal=":memory:", user="ada"),
        )
        session = agent.session(id="s1")
        reader = bus.subscribe(OwnSession("local", "ada", "s1"), kinds=wanted)
        await session.run("count")
        words = [e for e in reader.take_nowait() if e.kind == "piece.text"]
        return "".join(e.payload["text"] for e in words), session.driver.log.is_watched

    assert await kinds_of(None) == ("one two three", True)
    assert await kinds_of(["run.*"]) == ("", False)


def test_pieces_are_numbered_behind_the_event_before_them() -> None:
    bus = Bus()
    feed = bus.feed(ADA, recorded=7)
    reader = bus.subscribe(ADA)
    for item in (
        Progress("c", "a"),
        Progress("c", "b"),
        Noticed("t", "x"),
        Progress("c", "c"),
        Noticed("t", "y"),
    ):
        feed.publish(item)
    assert numbers(reader.take_nowait()) == ["7.1", "7.2", "8", "8.1", "9"]


def test_an_event_is_encoded_once_however_many_read_it() -> None:
    looks: list[str] = []

    class Counting:
        needs_whole_lines = False

        def redact_json(self, text: str) -> str:
            looks.append(text)
            return text

        def redact_text(self, text: str) -> str:
            return text

        def may_contain_secret(self, text: str) -> bool:
            return False

    bus = Bus(redactor=Counting())
    feed = bus.feed(ADA)
    readers = [bus.subscribe(ADA) for _ in range(20)] + [bus.subscribe(OwnSessions("acme", "ada"))]
    feed.publish(Noticed("t", "x"))
    taken = [reader.take_nowait() for reader in readers]
    assert [len(events) for events in taken] == [1] * 21
    assert len({id(events[0].data) for events in taken}) == 1
    assert len(looks) == 1
    encoded = json.loads(taken[0][0].data)
    assert (encoded["v"], encoded["kind"], encoded["sequence"]) == (1, "notice", "1")
    assert encoded["payload"] == taken[0][0].payload == {"topic": "t", "text": "x"}


# ---- whose events


@pytest.mark.proves("bus.identity")
@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_a_subscription_without_tenant_user_or_session_is_refused(blank: str) -> None:
    for make in (
        lambda: OwnSession("acme", "ada", blank),
        lambda: OwnSession("acme", blank, "s1"),
        lambda: OwnSession(blank, "ada", "s1"),
        lambda: OwnSessions(blank, "ada"),
        lambda: OwnSessions("acme", blank),
        lambda: Operator(blank),
        lambda: Operator("root", tenant=blank),
        lambda: Operator("root", tenant="acme", user="ada", session=blank),
    ):
        with pytest.raises(ConfigError) as refused:
            make()
        assert refused.value.code == "identity_blank"
    with pytest.raises(ConfigError):
        Operator("root", session="s1")


@pytest.mark.proves("bus.identity")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.sampled_from(["a", "b", "*", "a*"])] * 3),
        min_size=1,
        max_size=12,
        unique=True,
    )
)
def test_nobody_gets_what_is_not_in_their_scope(sessions: list[tuple[str, str, str]]) -> None:
    bus = Bus()
    feeds = {key: bus.feed(Identity(*key, "r")) for key in sessions}
    own = {key: bus.subscribe(OwnSession(*key)) for key in sessions}
    all_own = {key[:2]: bus.subscribe(OwnSessions(*key[:2])) for key in sessions}
    operators = {
        tenant: bus.subscribe(Operator("root", tenant=tenant))
        for tenant in {key[0] for key in sessions}
    }
    for key, feed in feeds.items():
        feed.publish(Noticed("who", "/".join(key)))

    def got(reader: Subscription) -> set[str]:
        return {e.payload["text"] for e in reader.take_nowait() if e.kind == "notice"}

    everything = {"/".join(key) for key in sessions}
    for key, reader in own.items():
        assert got(reader) == {"/".join(key)}
    for pair, reader in all_own.items():
        assert got(reader) == {text for text in everything if text.split("/")[:2] == list(pair)}
    for tenant, reader in operators.items():
        assert got(reader) == {text for text in everything if text.split("/")[0] == tenant}


def test_subscribing_as_an_operator_is_an_event_itself() -> None:
    bus = Bus()
    ours, watching = (
        bus.subscribe(OwnSession("acme", "ada", "s1")),
        bus.subscribe(Operator("root", "on duty")),
    )
    other = bus.subscribe(Operator("eve", "curious", tenant="acme", user="ada", session="s1"))
    bus.feed(ADA).publish(Noticed("t", "x"))
    assert [e.kind for e in ours.take_nowait()] == ["notice"]
    assert [e.kind for e in other.take_nowait()] == ["notice"]
    mine, hers, notice = watching.take_nowait()
    everybody = {"tenant": "", "user": "", "session": ""}
    assert mine.kind == hers.kind == "bus.operator"
    assert mine.payload == {"operator": "root", "reason": "on duty", **everybody}
    hers_alone = {"tenant": "acme", "user": "ada", "session": "s1"}
    assert hers.payload == {"operator": "eve", "reason": "curious", **hers_alone}
    assert notice.kind == "notice"
    with pytest.raises(ConfigError):
        bus.subscribe(OwnSessions(OPERATORS, "root"))


def test_a_reader_gets_the_kinds_it_asked_for_and_a_misspelt_one_is_refused() -> None:
    bus = Bus()
    feed, reader = bus.feed(ADA), bus.subscribe(ADA, kinds=["run.*"])
    feed.publish(Noticed("t", "x"))
    feed.publish(RunFinished("done"))
    assert [e.kind for e in reader.take_nowait()] == ["run.finished"]
    with pytest.raises(ConfigError, match=r"run\.finish\b"):
        bus.subscribe(ADA, kinds=["run.finish"])


# ---- what is lost


@pytest.mark.proves("bus.drop-oldest")
def test_a_buffer_of_four_keeps_the_newest_four_of_ten_and_says_which_six_are_lost() -> None:
    bus = Bus()
    feed, reader = bus.feed(ADA), bus.subscribe(ADA, buffer=4)
    said(feed, 1, 10)
    notice, *rest = reader.take_nowait()
    assert notice.kind == "bus.dropped"
    assert notice.payload == {
        "count": 6,
        "ranges": [
            {
                "tenant": "acme",
                "user": "ada",
                "session": "s1",
                "first": "1",
                "last": "6",
                "count": 6,
            }
        ],
    }
    assert numbers(rest) == ["7", "8", "9", "10"]
    assert reader.take_nowait() == []


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["event", "piece", "other session", "elsewhere", "read"]), st.integers(1, 9)
    ),
    max_size=40,
)


@pytest.mark.proves("bus.exactly-accounted")
@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 6), st.sampled_from([None, ["notice"], ["piece.*"]]))
def test_what_is_received_and_what_is_noticed_as_lost_is_what_was_published(
    steps: list[Step], buffer: int, kinds: list[str] | None
) -> None:
    bus = Bus()
    feeds = {
        "event": bus.feed(ADA),
        "other session": bus.feed(Identity("acme", "ada", "s2", "r")),
        "elsewhere": bus.feed(Identity("acme", "eve", "s3", "r")),
    }
    feeds["piece"] = feeds["event"]
    reader = bus.subscribe(OwnSessions("acme", "ada"), buffer=buffer, kinds=kinds)
    published: dict[str, list[str]] = {"s1": [], "s2": []}
    accounted: dict[str, list[str]] = {"s1": [], "s2": []}

    def take() -> None:
        for event in reader.take_nowait():
            if event.kind != "bus.dropped":
                assert event.identity is not None
                accounted[event.identity.session].append(str(event.sequence))
                continue
            for lost in event.payload["ranges"]:
                mine = published[lost["session"]]
                gone = mine[mine.index(lost["first"]) : mine.index(lost["last"]) + 1]
                assert len(gone) == lost["count"]
                accounted[lost["session"]] += gone

    for what, count in steps:
        if what == "read":
            take()
            continue
        for _ in range(count):
            feed = feeds[what]
            feed.publish(Progress("c", "x") if what == "piece" else Noticed("t", "x"))
            kind = "piece.progress" if what == "piece" else "notice"
            if what != "elsewhere" and (kinds is None or kind in reader.kinds):
                published[feed.key[2]].append(str(feed.place))
    take()
    assert accounted == published


def test_a_reader_that_never_reads_is_closed_and_told_what_it_missed() -> None:
    bus = Bus()
    feed, reader = bus.feed(ADA), bus.subscribe(ADA, buffer=2, patience=5)
    said(feed, 1, 20)
    lost, closed = reader.take_nowait()
    assert lost.payload["ranges"][0]["first"] == "1"
    assert (closed.kind, closed.payload) == ("bus.closed", {"reason": "stale"})
    # What came until it was closed is accounted for; what came later it was not subscribed to.
    assert lost.payload["count"] == 8
    assert bus.subscribe(ADA).take_nowait() == []


# ---- readers and runs leave each other alone


async def test_a_run_ends_whatever_its_readers_do(caplog: pytest.LogCaptureFixture) -> None:
    bus = Bus(ring=8)
    agent = Agent(
        Scripted([says("done")]),
        host=Host(bus=bus),
        storage=Storage(journal=":memory:", user="ada"),
    )
    session = agent.session(id="s1")
    scope = OwnSession("local", "ada", "s1")
    never, watching = (
        bus.subscribe(scope, buffer=1),
        bus.subscribe(Operator("root"), kinds=["bus.*"]),
    )
    heard: list[str] = []

    def broken(event: BusEvent) -> None:
        heard.append(event.kind)
        raise RuntimeError("a tap that breaks")

    bus.tap(broken)
    gone = in_another_loop(lambda: bus.subscribe(scope))
    assert (await session.run("go")).text == "done"
    assert len(heard) == 1
    removed = watching.take_nowait()[-1]
    assert (removed.kind, removed.payload) == ("bus.tap_removed", {"error": "RuntimeError"})
    assert "a tap that breaks" in caplog.text, "its author is told where it broke"
    assert [e.kind for e in never.take_nowait()] == ["bus.dropped", "run.finished"]
    assert gone.has_ended


def in_another_loop(make: Any) -> Subscription:
    """A reader that waited for an event in a loop that is closed now, without having been told."""
    made: list[Subscription] = []

    def work() -> None:
        loop = asyncio.new_event_loop()
        reader = make()
        made.append(reader)
        waiting = loop.create_task(anext(reader))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.call_soon(loop.stop)
        loop.run_forever()
        kept.append(waiting)
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # the point is that nobody cleans up
        loop.close()

    kept: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    _KEPT.extend(kept)
    return made[0]


_KEPT: list[object] = []


async def test_readers_in_other_threads_get_everything_in_order() -> None:
    bus = Bus()
    feed = bus.feed(ADA)
    results: list[list[str]] = []
    begun = threading.Barrier(4)

    async def work() -> None:
        reader = bus.subscribe(ADA, buffer=10_000)
        await asyncio.to_thread(begun.wait, 20)
        results.append(numbers(await read(reader, 500)))

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(3)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(begun.wait, 20)
    said(feed, 1, 500)
    await asyncio.gather(*(asyncio.to_thread(thread.join, 20) for thread in threads))
    assert results == [[str(n) for n in range(1, 501)]] * 3


def test_sessions_in_several_threads_share_a_bus() -> None:
    bus = Bus()
    reader = bus.subscribe(OwnSessions("acme", "ada"), buffer=10_000)
    feeds = [bus.feed(Identity("acme", "ada", f"s{n}", "r")) for n in range(8)]
    threads = [threading.Thread(target=said, args=(feed, 1, 200)) for feed in feeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    got: dict[str, list[str]] = {}
    for event in reader.take_nowait():
        assert event.identity is not None
        got.setdefault(event.identity.session, []).append(str(event.sequence))
    assert got == {f"s{n}": [str(k) for k in range(1, 201)] for n in range(8)}


async def test_closing_a_subscription_ends_its_reader_and_closing_the_bus_ends_all() -> None:
    bus = Bus()
    feed, one, two = bus.feed(ADA), bus.subscribe(ADA), bus.subscribe(ADA)
    waiting = asyncio.create_task(read(one, 1))
    await asyncio.sleep(0)
    one.close()
    one.close()
    # An ended iterator inside a coroutine: asyncio turns StopAsyncIteration of `anext` into this.
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        await waiting
    feed.publish(Noticed("t", "x"))
    bus.close()
    assert [e.kind async for e in two] == ["notice", "bus.closed"]
    feed.publish(Noticed("t", "y"))
    with pytest.raises(ConfigError, match="closed"):
        bus.subscribe(ADA)


def test_a_reader_that_was_dropped_costs_nothing_any_more() -> None:
    bus = Bus()
    feed = bus.feed(ADA)
    bus.subscribe(ADA)
    gc.collect()
    feed.publish(Noticed("t", "x"))
    assert bus._readers == {}  # type: ignore[attr-defined]  # what else would show that nothing is held


async def test_a_reader_that_is_cancelled_while_it_waits_loses_nothing() -> None:
    bus = Bus()
    feed, reader = bus.feed(ADA), bus.subscribe(ADA)
    waiting = asyncio.create_task(read(reader, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    said(feed, 1, 3)
    assert numbers(await read(reader, 3)) == ["1", "2", "3"]


async def test_a_reader_that_is_cancelled_while_it_reads_the_journal_loses_nothing(
    tmp_path: Path,
) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        journal.append("s1", "r1", [Noticed("t", str(n)) for n in range(300)], identity=ADA)
        reader = Bus(journal=journal).subscribe(ADA, cursor="0")
        got: list[str] = []
        while len(got) < 300:
            # Each time a little later: somewhere in between a page arrives.
            waiting = asyncio.ensure_future(anext(reader))
            for _ in range(len(got) % 4):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                got += numbers([waiting.result()])
            got += numbers(await read(reader, 1)) if len(got) < 300 else []
        assert got == [str(n) for n in range(1, 301)]


# ---- going on


@pytest.mark.proves("bus.cursor")
def test_replay_from_a_cursor_is_a_suffix_without_gaps() -> None:
    bus = Bus()
    feed, first = bus.feed(ADA), bus.subscribe(ADA)
    said(feed, 1, 5)
    third = first.take_nowait()[2].cursor
    second = bus.subscribe(ADA, cursor=third)
    said(feed, 6, 8)
    assert numbers(second.take_nowait()) == ["4", "5", "6", "7", "8"]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.x", "9" * 30, "1~", "１"])
def test_a_cursor_that_is_none_is_a_clear_error(cursor: str) -> None:
    bus = Bus()
    feed = bus.feed(ADA)
    said(feed, 1, 2)
    with pytest.raises(CursorError) as refused:
        bus.subscribe(ADA, cursor=cursor)
    assert refused.value.code == "cursor_unknown"


def test_a_cursor_that_is_too_old_or_from_the_future_is_a_clear_error() -> None:
    bus = Bus(ring=3)
    feed = bus.feed(ADA)
    said(feed, 1, 10)
    assert numbers(bus.subscribe(ADA, cursor=Place(7)).take_nowait()) == ["8", "9", "10"]
    with pytest.raises(CursorError) as refused:
        bus.subscribe(ADA, cursor=Place(6))
    assert refused.value.code == "cursor_too_old"
    with pytest.raises(CursorError) as refused:
        bus.subscribe(ADA, cursor=Place(11))
    assert refused.value.code == "cursor_unknown"
    with pytest.raises(CursorError):
        bus.subscribe(OwnSession("acme", "ada", "nobody"), cursor="0")
    for wrong in ({"s2": "1"}, {"s1": "1", "s2": "1"}):
        with pytest.raises(ConfigError):
            bus.subscribe(ADA, cursor=wrong)
    for scope in (OwnSessions("acme", "ada"), Operator("root")):
        with pytest.raises(ConfigError):
            bus.subscribe(scope, cursor="1")


@pytest.mark.proves("bus.cursor-journal")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 12),
    st.data(),
)
def test_a_cursor_is_gap_free_across_memory_and_journal(
    bursts: list[tuple[int, bool]], ring: int, data: st.DataObject
) -> None:
    bus, journal = Bus(ring=ring), SqliteJournal(":memory:")
    log = SessionLog(journal, ADA)
    log.outlet = feed = bus.feed(lambda: log.identity, journal=journal)
    cursors = ["0"]
    seen = bus.subscribe(ADA, buffer=1000)
    for count, flushed in bursts:
        for _ in range(count):
            log.add(Noticed("t", "x"))
            log.show(Progress("c", "p"))
        cursors += [event.cursor for event in seen.take_nowait()]
        if flushed:
            log.flush()
    log.flush()
    start = data.draw(st.sampled_from(cursors))
    place = Place.parse(start.split("~")[0])
    reader = bus.subscribe(ADA, cursor=start)
    log.add(Noticed("t", "after"))
    places = [event.sequence for event in reader.take_nowait() if event.sequence]
    assert places == sorted(set(places))
    assert [p.event for p in places if not p.piece] == list(
        range(place.event + 1, feed.place.event + 1)
    )
    assert all(p > place for p in places)


@pytest.mark.proves("bus.cursor-journal")
def test_what_was_published_and_not_written_yet_is_told_of_where_it_is_not_kept() -> None:
    bus, journal = Bus(ring=2), SqliteJournal(":memory:")
    log = SessionLog(journal, ADA)
    log.outlet = bus.feed(lambda: log.identity, journal=journal)
    for number in range(1, 9):
        log.add(Noticed("t", str(number)))
        if number == 3:
            log.flush()
    one, two, three, lost, *rest = bus.subscribe(ADA, cursor="0").take_nowait()
    assert numbers([one, two, three]) == ["1", "2", "3"]
    assert (lost.kind, lost.payload["ranges"][0]["first"], lost.payload["ranges"][0]["last"]) == (
        "bus.dropped",
        "4",
        "6",
    )
    assert numbers(rest) == ["7", "8"]


@pytest.mark.proves("bus.cursor-journal")
async def test_a_cursor_reads_the_journal_of_a_session_that_is_over(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with SqliteJournal(path) as journal:
        agent = Agent(Scripted([says("hi")]), storage=Storage(journal=journal, user="ada"))
        session = agent.session(id="s1")
        await session.run("hello")
        await session.close()
    with SqliteJournal(path) as journal:
        bus = Bus(journal=journal)
        reader = bus.subscribe(OwnSession("local", "ada", "s1"), cursor="1")
        last, _ = journal.head("s1")
        assert numbers(await read(reader, last - 1)) == [str(n) for n in range(2, last + 1)]
        for stranger in (OwnSession("local", "eve", "s1"), OwnSession("other", "ada", "s1")):
            with pytest.raises(SessionNotFound):
                bus.subscribe(stranger, cursor="0")
        with pytest.raises(CursorError, match="cursor says 99"):
            bus.subscribe(OwnSession("local", "ada", "s1"), cursor="99")


def test_a_cursor_of_a_process_that_died_skips_nothing_that_was_never_written(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    bus = Bus()
    log = SessionLog(journal, ADA)
    log.outlet = bus.feed(lambda: log.identity, journal=journal)
    reader = bus.subscribe(ADA)
    log.add(Noticed("t", "written"))
    log.flush()
    for _ in range(3):
        log.add(Noticed("t", "shown and never written"))
    cursor = reader.take_nowait()[-1].cursor
    journal.close()

    journal = SqliteJournal(tmp_path / "j.db")
    bus, log = Bus(), SessionLog(journal, ADA)
    log.outlet = bus.feed(lambda: log.identity, journal=journal, recorded=1)
    for number in range(5):
        log.add(Noticed("again", str(number)))
    log.flush()
    again = bus.subscribe(ADA, cursor=cursor).take_nowait()
    assert [e.payload["text"] for e in again] == ["0", "1", "2", "3", "4"]
    journal.close()


def test_a_session_that_goes_on_in_another_hand_is_seen_from_what_was_written() -> None:
    bus, journal = Bus(), SqliteJournal(":memory:")
    first = SessionLog(journal, ADA)
    first.outlet = bus.feed(lambda: first.identity, journal=journal)
    live = bus.subscribe(ADA)
    first.add(Noticed("t", "written"))
    first.flush()
    first.add(Noticed("t", "never written"))
    before = live.take_nowait()
    assert numbers(before) == ["1", "2"]
    second = SessionLog(journal, ADA, recorded=True)
    second.outlet = bus.feed(lambda: second.identity, journal=journal, recorded=1)
    second.add(Noticed("t", "instead"))
    second.flush()
    for reader in (live, bus.subscribe(ADA, cursor=before[-1].cursor)):
        (event,) = reader.take_nowait()
        assert (str(event.sequence), event.payload["text"]) == ("2", "instead")


def test_a_person_goes_on_in_all_their_sessions_with_one_cursor() -> None:
    bus = Bus()
    old, idle = bus.feed(ADA), bus.feed(Identity("acme", "ada", "idle", "r"))
    said(idle, 1, 3)
    reader = bus.subscribe(OwnSessions("acme", "ada"))
    said(old, 1, 4)
    assert numbers(reader.take_nowait()) == ["1", "2", "3", "4"]
    cursor = reader.cursor
    reader.close()
    said(old, 5, 6)
    new = bus.feed(Identity("acme", "ada", "new", "r"))
    said(new, 1, 2)
    assert idle.place == Place(3)
    again = bus.subscribe(OwnSessions("acme", "ada"), cursor=cursor).take_nowait()
    got = [(e.identity.session, str(e.sequence)) for e in again if e.identity]
    assert sorted(got) == [("new", "1"), ("new", "2"), ("s1", "5"), ("s1", "6")]


def test_what_is_kept_for_readers_that_come_back_is_bounded_in_number_and_bytes() -> None:
    bus = Bus(ring=1000, ring_bytes=20_000)
    feeds = [bus.feed(Identity("acme", "ada", f"s{n}", "r")) for n in range(10)]
    for feed in feeds:
        for _ in range(100):
            feed.publish(Noticed("t", "x" * 100))
    ring = bus._ring  # type: ignore[attr-defined]
    assert ring._bytes <= 20_000  # type: ignore[attr-defined]
    assert sum(len(kept.events) for kept in ring._sessions.values()) == len(ring._order)  # type: ignore[attr-defined]
    assert len(ring._sessions) == 1  # type: ignore[attr-defined]


async def test_many_slow_readers_share_what_they_hold() -> None:
    bus = Bus()
    feed = bus.feed(ADA)
    readers = [bus.subscribe(ADA, buffer=16) for _ in range(500)]
    said(feed, 1, 100)
    held = {id(event) for reader in readers for _, event in reader._buffer}  # type: ignore[attr-defined]
    assert len(held) == 16
    for reader in readers:
        notice, *rest = reader.take_nowait()
        assert (notice.payload["count"], len(rest)) == (84, 16)


@pytest.mark.proves("bus.cursor")
async def test_whoever_fails_to_resume_a_session_at_work_does_not_take_its_place_on_the_bus(
    tmp_path: Path,
) -> None:
    bus = Bus()
    path = tmp_path / "j.db"
    agent = Agent(
        Scripted([says("one"), says("two")]),
        host=Host(bus=bus),
        storage=Storage(journal=path, user="ada"),
    )
    session = agent.session(id="s1")
    await session.run("go")
    place = bus.subscribe(OwnSession("local", "ada", "s1")).cursor["s1"]
    with pytest.raises(JournalError):
        Agent(
            Scripted([]),
            host=Host(bus=bus),
            storage=Storage(journal=SqliteJournal(path), user="ada"),
        ).resume("s1")
    gc.collect()
    reader = bus.subscribe(OwnSession("local", "ada", "s1"), cursor=place)
    await session.run("go on")
    events = [e for e in reader.take_nowait() if e.sequence and not e.sequence.piece]
    assert events[0].kind == "run.started"
    assert [e.sequence.event for e in events if e.sequence] == list(
        range(int(place.split("~")[0]) + 1, events[-1].sequence.event + 1)  # type: ignore[union-attr]
    )
    await session.close()
    agent.journal.close()


# ---- asking a person


@pytest.mark.proves("bus.approval-redacted")
async def test_subscribers_see_a_question_without_secrets_and_the_approver_sees_all_of_it() -> None:
    ran: list[str] = []

    @tool(side_effect="external")
    def sign_in(user: str, password: str) -> str:
        """Sign in."""
        ran.append(password)
        return "in"

    bus, approver = Bus(), RecordingApprover()
    agent = Agent(
        Scripted(
            [calls(("sign_in", {"user": "ada", "password": "correct horse battery"})), says("ok")]
        ),
        [sign_in],
        host=Host(bus=bus),
        permissions=Permissions(approver=approver),
        storage=Storage(journal=":memory:", user="ada"),
    )
    session = agent.session(id="s1")
    reader = bus.subscribe(OwnSession("local", "ada", "s1"))
    await session.run("sign in")
    events = reader.take_nowait()
    (asked,) = [e for e in events if e.kind == "approval.requested"]
    assert asked.payload["tool"] == "sign_in"
    assert asked.payload["arguments"]["user"] == "ada"
    assert asked.payload["arguments"]["password"].startswith("[redacted sha256:")
    assert not any(b"correct horse" in event.data for event in events)
    assert approver.requests[0].values["password"] == "correct horse battery"
    assert ran == ["correct horse battery"]
    kinds = [e.kind for e in events]
    assert (
        kinds.index("call.evaluated")
        < kinds.index("approval.requested")
        < kinds.index("person.answered")
    )


def test_a_text_delta_of_nothing_is_no_event() -> None:
    bus = Bus()
    feed, reader = bus.feed(ADA), bus.subscribe(ADA)
    feed.publish(TextDelta(""))
    assert reader.take_nowait() == []
