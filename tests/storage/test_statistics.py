"""Numbers of tools, models and refusals are those of the journal, whoever's they are, and are made
of what is new.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, Permissions, Scripted, Storage, tool
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ConfigError, LimitReached
from ferrule.core.events import (
    Access,
    CallConfined,
    CallEvaluated,
    CallStarted,
    ContextCompacted,
    Event,
    JournalRecord,
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Usage,
)
from ferrule.core.identity import Identity
from ferrule.core.limits import Limits
from ferrule.core.vocabulary import Refuser
from ferrule.models.scripted import calls as asks
from ferrule.models.scripted import says
from ferrule.storage.audit import audit
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.statistics.finished_calls import CallReader
from ferrule.storage.statistics.incremental import JournalStatistics, ReadingProgress
from ferrule.storage.statistics.spending import add_up
from ferrule.storage.statistics.timeline import build_timeline
from ferrule.storage.statistics.tools import OTHER_NAMES, Newest, percentile
from ferrule.testing.fakes import RecordingApprover

MAX_SPANS = 300
MAX_NAMES = 1000

DAY = 86_400_000
ADA, BOB = ("local", "ada"), ("local", "bob")


@tool
def double(number: int) -> int:
    """Twice a number."""
    if number < 0:
        raise ValueError("negative")
    return 2 * number


@tool(side_effect="write", risk="high")
def note(text: str) -> str:
    """Write something down."""
    return text


def answered(
    name: str, ms: int, *, tool: str = "look", error: ErrorType = ErrorType.NONE
) -> list[Event]:
    """A model's question for a tool, and how it went."""
    call = ToolCall(name, tool, "{}")
    good = error is ErrorType.NONE
    result = ToolResult(
        name, tool, good, "x" if good else None, error, None if good else "broke", ms, 10
    )
    judged = CallEvaluated(name, "allow", "fits", "", "d", "read", "low", Access())
    return [
        ModelAnswered("", (call,), usage=Usage(100, 10, 60), stop="calls"),
        judged,
        ToolAnswered(result),
    ]


def write(
    journal: SqliteJournal,
    session: str,
    events: Sequence[Event],
    *,
    user: str = "ada",
    at: int = DAY,
    model: str = "m:one",
) -> None:
    everything = [SessionOpened(model=model), RunStarted("go", model), *events]
    identity = Identity("local", user, session, "r1")
    journal.append(session, "r1", everything, identity=identity, times=[at] * len(everything))


async def test_calls_failures_and_latency_of_a_tool_are_those_that_happened() -> None:
    with SqliteJournal(":memory:") as journal:
        script = [
            asks(("double", {"number": 1}), ("double", {"number": -1}), ("note", {"text": "a"})),
            says("ok"),
        ]
        agent = Agent(
            Scripted(script),
            [double, note],
            storage=Storage(journal=journal, user="ada"),
            permissions=Permissions(deny=["note"]),
        )
        await agent.run("go")
        tools, reading = JournalStatistics(journal).query(lambda numbers: numbers.tools.tools())
    assert reading.is_complete
    assert tools["double"].outcomes == Counter(success=1, internal_error=1)
    assert (tools["double"].calls, tools["double"].failures) == (2, 1)
    assert (
        tools["note"].outcomes == Counter(permission_denied=1)
        and tools["note"].failures == 0
        and tools["note"].latency(0.5) is None
    )
    assert [call.outcome for call in tools["double"].recent] == ["internal_error", "success"]


@pytest.mark.parametrize("days", [(3, 2), (2, 3)])
def test_a_tool_was_last_used_when_anybody_used_it_last(days: tuple[int, int]) -> None:
    broken = answered("b", 5, error=ErrorType.TOOL_ERROR)
    with SqliteJournal(":memory:") as journal:
        write(journal, "hers", answered("a", 5), at=days[0] * DAY)
        write(journal, "his", broken, user="bob", at=days[1] * DAY)
        use, _ = JournalStatistics(journal).query(lambda numbers: numbers.tools.tool("look"))
    assert (use.calls, use.last, use.last_failed) == (2, 3 * DAY, days[1] * DAY)


async def test_a_refusal_is_counted_for_whoever_refused(
    recorded_refusals: Callable[..., SqliteJournal],
) -> None:
    with recorded_refusals() as journal:
        numbers = JournalStatistics(journal)
        stopped, _ = numbers.query(lambda numbers: numbers.tools.count_stopped())
        last = numbers.tools.list_stopped()
    assert stopped == {"1970-01-02": Counter(rule=1, gate=1, person=1, tool=1, sandbox=1)}
    assert [call.stopped_by for call in last] == ["sandbox", "tool", "person", "gate", "rule"]
    assert last[2].message == "denied by ada: not today"


@pytest.fixture
def recorded_refusals() -> Callable[..., SqliteJournal]:
    def made() -> SqliteJournal:
        journal = SqliteJournal(":memory:")
        names: list[Refuser] = ["rule", "gate", "person", "tool", "sandbox"]
        asked = [ToolCall(name, "act", "{}") for name in names]
        refused = {
            name: ToolResult.refusal(call, name, "no")
            for name, call in zip(names, asked, strict=True)
        }
        seen = ToolResult("sandbox", "act", True, "made\n[not created, as no tool may: `.env`]")
        events: list[Event] = [
            ModelAnswered("", tuple(asked), stop="calls"),
            CallEvaluated("rule", "refuse", "no", "act(x)", result=refused["rule"]),
            CallEvaluated("gate", "refuse", "no", "", result=refused["gate"]),
            CallEvaluated("person", "ask"),
            PersonAnswered("person", "deny", by="ada", note="not today"),
            CallEvaluated("tool", "allow"),
            ToolAnswered(refused["tool"]),
            CallEvaluated("sandbox", "allow"),
            CallStarted("sandbox"),
            CallConfined("sandbox", "namespaces"),
            ToolAnswered(seen),
            RunFinished("done"),
        ]
        write(journal, "s1", events)
        return journal

    return made


def test_numbers_of_one_person_hold_nothing_of_another() -> None:
    with SqliteJournal(":memory:") as journal:
        write(journal, "hers", [*answered("a", 5), *answered("b", 7)])
        write(journal, "his", answered("c", 900, tool="secret"), user="bob")
        numbers = JournalStatistics(journal)
        numbers.query(lambda _: None)
    assert numbers.tools.tools(BOB).keys() == {"secret"} and numbers.tools.tools(ADA).keys() == {
        "look"
    }
    assert numbers.tools.tool("secret", ADA).calls == 0
    assert numbers.tools.tools().keys() == {"look", "secret"}
    assert sum(one.answers for one in numbers.spending.totals_by_day_and_model(ADA).values()) == 2
    assert [one.session for one in numbers.spending.sessions(BOB)] == ["his"]


def test_tokens_are_added_up_by_day_and_model_and_money_only_where_there_is_a_price() -> None:
    prices = {"m:one": lambda usage: Decimal(usage.input) / 100}
    with SqliteJournal(":memory:") as journal:
        write(journal, "s1", [*answered("a", 1), *answered("b", 1)])
        write(journal, "s2", answered("c", 1), at=2 * DAY, model="m:two")
        counted = [ModelAnswered("x", usage=Usage(1, cost=5))]
        write(journal, "s3", counted, at=2 * DAY, model="m:two")
        numbers = JournalStatistics(journal, price_of=prices.get)
        slots, _ = numbers.query(lambda numbers: numbers.spending.totals_by_day_and_model())
    assert list(slots) == [("1970-01-02", "m:one"), ("1970-01-03", "m:two")]
    one, two = add_up(slots, "model").values()
    assert (one.usage.input, one.usage.cached, one.dollars, one.unpriced) == (
        200,
        120,
        Decimal(2),
        0,
    )
    assert (two.answers, two.unpriced, two.dollars) == (2, 1, Decimal(5) / 10**9)
    assert add_up(slots, "day")["1970-01-03"].answers == 2
    assert numbers.spending.problem == ""


def test_a_summary_of_a_long_context_is_paid_for_like_an_answer() -> None:
    with SqliteJournal(":memory:") as journal:
        made = ContextCompacted("summary", text="short", model="m:small", usage=Usage(700, 70))
        write(journal, "s1", [*answered("a", 1), made, ContextCompacted()])
        slots, _ = JournalStatistics(journal).query(
            lambda numbers: numbers.spending.totals_by_day_and_model()
        )
    assert {slot.model: (one.answers, one.usage.input) for slot, one in slots.items()} == {
        "m:one": (1, 100),
        "m:small": (1, 700),
    }


def test_a_price_list_with_a_mistake_hides_no_tokens() -> None:
    def broken(model: str) -> None:
        raise ConfigError("prices.yaml: no")

    with SqliteJournal(":memory:") as journal:
        write(journal, "s1", answered("a", 1))
        numbers = JournalStatistics(journal, price_of=broken)
        slots, _ = numbers.query(lambda numbers: numbers.spending.totals_by_day_and_model())
    assert [one.usage.input for one in slots.values()] == [100]
    assert numbers.spending.problem == "prices.yaml: no"


def test_a_second_look_reads_only_what_is_new(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        write(journal, "s1", answered("a", 5))
        numbers = JournalStatistics(journal)
        _, first = numbers.query(lambda _: None)
        journal.append("s1", "r1", answered("b", 6), identity=Identity("local", "ada", "s1", "r1"))
        use, second = numbers.query(lambda numbers: numbers.tools.tool("look"))
        _, third = numbers.query(lambda _: None)
        numbers.close()
    assert (first.read, second.read, third.read) == (5, 8, 8) and use.calls == 2


def test_a_look_stops_when_its_time_is_over_and_the_next_one_goes_on() -> None:
    clock = iter(range(1_000_000))
    with SqliteJournal(":memory:") as journal:
        write(journal, "long", [event for n in range(100) for event in answered(f"c{n}", n)])
        numbers = JournalStatistics(journal, now=lambda: next(clock))
        looks: list[ReadingProgress] = []
        while not looks or looks[-1].left:
            looks.append(numbers.query(lambda _: None, seconds=2)[1])
        assert numbers.tools.tool("look").calls == 100
    assert len(looks) > 2 and [one.read + one.left for one in looks] == [302] * len(looks)


def test_sessions_beyond_the_bounds_are_counted_as_older_and_not_read() -> None:
    with SqliteJournal(":memory:") as journal:
        for number in range(5):
            write(journal, f"s{number}", answered("a", 1), at=DAY + number)
        few, events = JournalStatistics(journal, sessions=2), JournalStatistics(journal, events=6)
        assert few.query(lambda n: n.tools.tool("look").calls) == (
            2,
            ReadingProgress(read=10, older=1),
        )
        calls, reading = events.query(lambda n: n.tools.tool("look").calls)
    assert calls == 2 and reading == ReadingProgress(read=10, older=3)


def test_a_damaged_session_is_named_and_hides_no_other(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        write(journal, "good", answered("a", 1))
        write(journal, "bad", answered("b", 1))
        assert journal._db is not None
        journal._db.execute(
            "UPDATE records SET body = 'no json' WHERE kind = 'call.answered' AND body LIKE "
            "'%\"b\"%'"
        )
        numbers = JournalStatistics(journal)
        calls, reading = numbers.query(lambda n: n.tools.tool("look").calls)
        numbers.close()
    assert calls == 1 and reading.left == 0 and not reading.is_complete
    assert len(reading.damaged) == 1 and "bad" in reading.damaged[0]


def test_a_journal_that_nobody_wrote_to_has_no_numbers_and_no_file(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        assert JournalStatistics(journal).query(lambda n: n.tools.tools()) == (
            {},
            ReadingProgress(),
        )
    assert list(tmp_path.iterdir()) == []


def test_names_that_a_model_makes_up_are_counted_together_beyond_a_bound() -> None:
    with SqliteJournal(":memory:") as journal:
        events = [
            event for n in range(MAX_NAMES + 3) for event in answered(f"c{n}", 1, tool=f"t{n}")
        ]
        write(journal, "s1", events)
        tools, _ = JournalStatistics(journal).query(lambda n: n.tools.tools(), seconds=60)
    assert len(tools) == MAX_NAMES + 1 and tools[OTHER_NAMES].calls == 3


WORDS = {
    "good": ("double", {"number": 2}),
    "fails": ("double", {"number": -2}),
    "wrong": ("double", {"number": "two"}),
    "unknown": ("nope", {}),
    "asks": ("note", {"text": "x"}),
}


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from(sorted(WORDS)), min_size=1, max_size=4), max_size=3),
    st.sampled_from(["once", "deny"]),
)
async def test_the_quick_reading_of_any_session_agrees_with_the_audit(
    rounds: list[list[str]], choice: str
) -> None:
    script = [*(asks(*(WORDS[word] for word in words)) for words in rounds), says("ok")]
    approver = RecordingApprover([choice])  # type: ignore[list-item]  one of the choices
    with SqliteJournal(":memory:") as journal:
        agent = Agent(
            Scripted(script),
            [double, note],
            storage=Storage(journal=journal),
            permissions=Permissions(approver=approver),
            limits=Limits(max_calls_per_turn=3),
        )
        session = agent.session()
        with contextlib.suppress(LimitReached):
            await session.run("go")
        agree(list(journal.records(session.id)))
        await session.close()


def agree(records: list[JournalRecord]) -> None:
    """Every call of the audit that is settled was met, and ended in the same way."""
    for session in dict.fromkeys(record.session for record in records):
        mine = [record for record in records if record.session == session]
        reader = CallReader()
        quick = {call.call_id: call for record in mine for call in reader.feed(record)}
        for call in audit.audit_calls(mine):
            one = quick.get(call.call_id)
            if one is None:
                assert call.outcome in ("open", "unknown")
            elif one.outcome == "not_run":
                assert (
                    call.outcome in ("limit", "cancelled", "open", "unknown")
                    and call.started is None
                )
            else:
                assert (one.outcome, one.tool, one.by) == (call.outcome, call.tool, call.by)


@given(st.lists(st.integers(0, 10_000), min_size=1), st.floats(0, 1))
def test_a_percentile_is_a_value_that_enough_values_do_not_exceed(
    values: list[int], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert all(
        sum(value <= less for value in values) < share * len(values)
        for less in values
        if less < found
    )


@given(st.lists(st.integers(0, 20)), st.integers(1, 10))
def test_the_newest_are_kept_in_whatever_order_they_come(times: list[int], most: int) -> None:
    kept = Newest[int](most)
    for time in times:
        kept.add(time, time)
    assert list(kept) == sorted(times, reverse=True)[:most]


def test_a_timeline_says_who_was_waited_for_and_how_long() -> None:
    asked = (
        ToolCall("c1", "look", "{}"),
        ToolCall("c2", "act", "{}"),
        ToolCall("c3", "gone", "{}"),
    )
    refused = ToolResult.error(asked[2], ErrorType.NOT_FOUND, "no such tool")
    happened: list[tuple[int, Event]] = [
        (0, RunStarted("go", "m:one")),
        (1000, ModelAnswered("", asked, stop="calls")),
        (1001, CallEvaluated("c1", "allow")),
        (1002, CallEvaluated("c3", "refuse", result=refused)),
        (1101, ToolAnswered(ToolResult("c1", "look", True, "x", duration_ms=100))),
        (1102, CallEvaluated("c2", "ask")),
        (5102, PersonAnswered("c2", "once", by="ada")),
        (5103, CallStarted("c2")),
    ]
    with SqliteJournal(":memory:") as journal:
        times, events = zip(*happened, strict=True)
        identity = Identity("local", "ada", "s1", "r1")
        journal.append("s1", "r1", events, identity=identity, times=[DAY + time for time in times])
        line = build_timeline(journal.records("s1"))
    spans = [
        (span.kind, span.label, span.start - DAY, span.end - DAY, span.outcome)
        for span in line.spans
    ]
    assert spans == [
        ("model", "model", 0, 1000, "success"),
        ("tool", "look", 1001, 1101, "success"),
        ("tool", "gone", 1002, 1002, "not_found"),
        ("person", "act", 1102, 5102, "once"),
        ("tool", "act", 5103, 5103, "open"),
    ]
    assert (line.run, line.stop, [span.is_failed for span in line.spans]) == (
        "r1", "open", [False, False, True, False, False],
    )  # fmt: skip


def test_a_timeline_is_of_one_run_and_has_a_longest_length() -> None:
    with SqliteJournal(":memory:") as journal:
        many = [event for n in range(MAX_SPANS) for event in answered(f"c{n}", 1)]
        journal.append(
            "s1", "r1", [RunStarted("one"), *many], identity=Identity("local", "ada", "s1", "r1")
        )
        journal.append(
            "s1",
            "r2",
            [RunStarted("two"), RunFinished("done")],
            identity=Identity("local", "ada", "s1", "r2"),
        )
        first, last = (
            build_timeline(journal.records("s1"), run="r1"),
            build_timeline(journal.records("s1")),
        )
    assert (len(first.spans), first.more) == (MAX_SPANS, MAX_SPANS) and (last.run, last.spans) == (
        "r2",
        [],
    )


async def test_what_a_fork_has_copied_counts_once(tmp_path: Path) -> None:
    script = [asks(("double", {"number": 2})), says("4"), says("more")]
    with SqliteJournal(tmp_path / "j.db") as journal:
        agent = Agent(Scripted(script), [double], storage=Storage(journal=journal))
        session = agent.session()
        await session.run("Double 2.")
        numbers = JournalStatistics(journal)

        def count(read: JournalStatistics) -> tuple[int, int]:
            totals = read.spending.totals_by_day_and_model().values()
            return sum(one.answers for one in totals), sum(
                one.calls for one in read.tools.tools().values()
            )

        before, _ = numbers.query(count)
        forked = agent.resume(session.fork(1))
        assert numbers.query(count)[0] == before == (2, 1)
        await forked.run("And now?")
        assert numbers.query(count)[0] == (3, 1)
