"""Check any `ferrule.storage.journal.protocols.Journal` against its contract.

    class TestMyJournal(JournalConformance):
        def open_journal(self) -> Journal:
            return MyJournal(...)          # a new, empty one each time; the suite closes it

A journal that several processes can share also overrides `reopen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ferrule.core.calls import ErrorType, ToolCall, ToolResult, encode_json
from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.events import (
    CallStarted,
    Event,
    ModelAnswered,
    Noticed,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Unknown,
    Usage,
)
from ferrule.core.extras import name_missing_extra
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP
from ferrule.storage.export.jsonl import export_jsonl, import_jsonl
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal

with name_missing_extra():
    import pytest

ME = Identity("local", "me", "s1", "r1")
STORY: tuple[Event, ...] = (
    SessionOpened("scripted:one", "/work", tools=("read_file",)),
    RunStarted("What is in\n a.txt?"),
    ModelAnswered("", (ToolCall("c1", "read_file", '{"path":"a.txt"}'),), usage=Usage(10, 3)),
    CallStarted("c1", "d1"),
    ToolAnswered(
        ToolResult("c1", "read_file", True, "ÄÖ\u2028\x00 \U0001f600 end", size=20, notes=("n",))
    ),
    ModelAnswered("It says ÄÖ."),
    RunFinished("done", "It says ÄÖ.", usage=Usage(10, 3)),
)
"""The events of one run as the engine records it."""


class JournalConformance:
    """Tests of a journal: subclass as `Test…` and implement `open_journal`."""

    def open_journal(self) -> Journal:
        """Return a new, empty journal."""
        raise NotImplementedError

    def open_second_journal(self) -> Journal:
        """Return another journal, to import what was exported from the first."""
        return SqliteJournal(":memory:")

    def reopen(self, journal: Journal) -> Journal | None:
        """Open the same journal as another process would; None if it cannot be shared."""
        return None

    @pytest.fixture
    def journal(self) -> Iterator[Journal]:
        journal = self.open_journal()
        yield journal
        journal.close()

    def test_events_come_back_as_they_went_in(self, journal: Journal) -> None:
        written = journal.append("s1", "r1", STORY, identity=ME)
        assert [record.event for record in journal.records("s1")] == list(STORY)
        assert list(journal.records("s1")) == written
        assert [record.seq for record in written] == list(range(1, len(STORY) + 1))

    def test_one_append_or_many_give_the_same_events(self, journal: Journal) -> None:
        for event in STORY:
            journal.append("s1", "r1", [event], identity=ME)
        assert [record.event for record in journal.records("s1")] == list(STORY)
        journal.verify("s1")

    def test_reading_starts_after_the_number_given(self, journal: Journal) -> None:
        journal.append("s1", "r1", STORY, identity=ME)
        assert [record.seq for record in journal.records("s1", after=5)] == [6, 7]
        assert list(journal.records("s1", after=7)) == []

    def test_reading_goes_on_while_others_append(self, journal: Journal) -> None:
        events = [Noticed("n", str(number)) for number in range(300)]
        journal.append("s1", "r1", events, identity=ME)
        reading = journal.records("s1")
        first = next(reading)
        journal.append("s1", "r1", [Noticed("n", "300")], identity=ME)
        assert [first.seq, *(record.seq for record in reading)] == list(range(1, 302))

    def test_every_hash_depends_on_the_one_before(self, journal: Journal) -> None:
        same = [Noticed("n", "same"), Noticed("n", "same")]
        one, two = journal.append("s1", "r1", same, identity=ME)
        assert one.hash != two.hash and len(one.hash) == 64
        assert journal.head("s1") == (2, two.hash)

    def test_an_event_of_an_unknown_kind_is_kept(self, journal: Journal) -> None:
        odd = Unknown("future.kind", {"x": [1, {"y": None}]})
        journal.append("s1", "r1", [odd], identity=ME)
        assert [record.event for record in journal.records("s1")] == [odd]
        journal.verify("s1")

    def test_text_that_is_no_valid_unicode_survives(self, journal: Journal) -> None:
        odd = Noticed("n", "half a pair: \ud83d")
        journal.append("s1", "r1", [odd], identity=ME)
        assert [record.event for record in journal.records("s1")] == [odd]
        journal.verify("s1")

    @pytest.mark.parametrize("data", ["ä" * 70_000, {"lines": ["x" * 100] * 900}])
    def test_a_result_beyond_the_cap_is_cut_and_says_so(
        self, journal: Journal, data: object
    ) -> None:
        whole = len((data if isinstance(data, str) else encode_json(data)).encode())
        (record,) = journal.append(
            "s1", "r1", [ToolAnswered(ToolResult("c1", "t", True, data))], identity=ME
        )
        assert isinstance(record.event, ToolAnswered)
        result = record.event.result
        assert (
            isinstance(result.data, str)
            and OUTPUT_CAP - 4 < len(result.data.encode()) <= OUTPUT_CAP
        )
        assert result.partial and result.size == whole and result.notes
        assert list(journal.records("s1")) == [record]

    def test_a_long_error_message_is_cut_too(self, journal: Journal) -> None:
        failed = ToolResult("c1", "t", False, None, ErrorType.IO_ERROR, "e" * 100_000)
        (record,) = journal.append("s1", "r1", [ToolAnswered(failed)], identity=ME)
        assert isinstance(record.event, ToolAnswered)
        assert (
            len(record.event.result.error_message or "") == OUTPUT_CAP
            and record.event.result.data is None
        )

    def test_an_append_that_fails_records_nothing(self, journal: Journal) -> None:
        journal.append("s1", "r1", STORY[:2], identity=ME)
        broken = ToolAnswered(ToolResult("c1", "t", True, object()))
        with pytest.raises(JournalError):
            journal.append("s1", "r1", [Noticed("n", "lost with it"), broken], identity=ME)
        with pytest.raises(JournalError):
            journal.append("s2", "r1", [broken], identity=ME)
        journal.append("s1", "r1", STORY[2:3], identity=ME)
        assert [record.event for record in journal.records("s1")] == list(STORY[:3])
        journal.verify("s1")
        with pytest.raises(SessionNotFound):
            journal.verify("s2")

    @pytest.mark.parametrize("name", ["", "two\nlines", "nul\0"])
    def test_a_name_that_would_blur_a_row_is_refused(self, journal: Journal, name: str) -> None:
        with pytest.raises(JournalError, match="name"):
            journal.append(name, "r1", STORY, identity=ME)
        with pytest.raises(JournalError, match="kind"):
            journal.append("s1", "r1", [Unknown(name)], identity=ME)

    def test_an_unknown_session_is_not_found(self, journal: Journal) -> None:
        questions: tuple[Callable[[str], object], ...] = (
            journal.verify,
            journal.head,
            journal.find,
            lambda name: next(journal.records(name)),
        )
        for ask in questions:
            with pytest.raises(SessionNotFound, match="nowhere"):
                ask("nowhere")

    def test_another_user_cannot_tell_a_session_from_none(self, journal: Journal) -> None:
        journal.append("s1", "r1", STORY, identity=ME)
        for other in (
            Identity("local", "you", "s1", "r1"),
            Identity("elsewhere", "me", "s1", "r1"),
        ):
            with pytest.raises(SessionNotFound) as refused:
                journal.append("s1", "r1", STORY, identity=other)
            with pytest.raises(SessionNotFound) as hidden:
                journal.find("s1", tenant=other.tenant, user=other.user)
            assert journal.sessions(tenant=other.tenant, user=other.user) == []
            assert refused.value.detail == hidden.value.detail == "no session `s1`"
        journal.append("s1", "r1", STORY[:1], identity=ME)

    def test_the_list_of_sessions_is_read_from_the_events(self, journal: Journal) -> None:
        journal.append("s1", "r1", STORY, identity=ME)
        journal.append("s2", "r1", STORY[:2], identity=ME)
        journal.append("s3", "r1", [SessionOpened("m", "/w")], identity=ME)
        journal.append("s1", "r2", [RunStarted("again"), RunFinished("limit")], identity=ME)
        listed = {info.session: info for info in journal.sessions()}
        first, second, third = listed["s1"], listed["s2"], listed["s3"]
        assert (first.model, first.workspace, first.question) == (
            "scripted:one",
            "/work",
            "What is in a.txt?",
        )
        assert (first.runs, first.events, first.state) == (2, len(STORY) + 2, "limit")
        assert (second.runs, second.state, third.runs, third.state) == (1, "open", 0, "unused")
        assert first.opened <= first.last and len(journal.sessions(limit=2)) == 2

    def test_a_session_is_found_by_the_start_of_its_name(self, journal: Journal) -> None:
        for name in ("apple", "apricot", "app"):
            journal.append(name, "r1", STORY[:1], identity=ME)
        assert journal.find("apr").session == "apricot"
        assert journal.find("app").session == "app"
        for unclear in ("a", "", "b%"):
            with pytest.raises(SessionNotFound):
                journal.find(unclear)

    def test_events_from_elsewhere_keep_their_times(self, journal: Journal) -> None:
        times = [5, 3, 2_000_000_000_000]
        journal.append("s1", "r1", STORY[:3], identity=ME, times=times)
        assert [record.time for record in journal.records("s1")] == times
        assert journal.find("s1").last == times[-1]
        with pytest.raises(ValueError, match="one time per event"):
            journal.append("s1", "r1", STORY[:3], identity=ME, times=[1])
        assert journal.head("s1")[0] == 3

    def test_nothing_appended_is_nothing_recorded(self, journal: Journal) -> None:
        assert journal.append("s1", "r1", [], identity=ME) == []
        assert journal.sessions() == []
        with pytest.raises(SessionNotFound):
            journal.head("s1")
        journal.append("s1", "r1", STORY[:1], identity=ME)
        assert journal.append("s1", "r2", [], identity=ME) == []
        assert journal.head("s1")[0] == 1

    def test_a_session_that_was_taken_and_never_written_does_not_exist(
        self, journal: Journal
    ) -> None:
        journal.lease("s1")
        journal.lease("s1")
        assert journal.sessions() == []
        with pytest.raises(SessionNotFound):
            journal.find("s1")
        journal.release("s1")
        journal.release("s1")
        journal.append("s1", "r1", STORY, identity=ME)
        assert journal.find("s1").events == len(STORY)

    def test_the_session_used_last_stands_first(self, journal: Journal) -> None:
        for number, name in enumerate(("one", "two", "three", "two")):
            journal.append(name, "r1", STORY[:1], identity=ME, times=[1000 + number])
        assert [info.session for info in journal.sessions()] == ["two", "three", "one"]
        assert [info.session for info in journal.sessions(limit=1)] == ["two"]

    def test_many_events_at_once_are_many_events(self, journal: Journal) -> None:
        many = [Noticed("n", "x" * (number % 700)) for number in range(1500)]
        journal.append("s1", "r1", many, identity=ME)
        assert [record.event for record in journal.records("s1", after=3)] == many[3:]
        journal.verify("s1")

    def test_threads_that_share_a_session_leave_no_gap(self, journal: Journal) -> None:
        def work(number: int) -> list[int]:
            events = [Noticed("n", str(number)), Noticed("n", "again")]
            return [record.seq for record in journal.append("s1", "r1", events, identity=ME)]

        with ThreadPoolExecutor(4) as pool:
            written = sorted(seq for seqs in pool.map(work, range(40)) for seq in seqs)
        assert written == list(range(1, 81))
        journal.verify("s1")

    def test_runs_and_people_of_one_session_are_told_apart(self, journal: Journal) -> None:
        journal.append("s1", "r1", STORY[:1], identity=ME)
        journal.append("s1", "r2", STORY[1:2], identity=ME.for_run("r2"))
        journal.append("s1", "r1", STORY[2:3], identity=ME)
        told = [(record.run, record.tenant, record.user) for record in journal.records("s1")]
        assert told == [("r1", "local", "me"), ("r2", "local", "me"), ("r1", "local", "me")]

    def test_an_export_comes_back_with_its_hashes(self, journal: Journal) -> None:
        journal.append("s1", "r1", STORY, identity=ME)
        journal.append("s1", "r2", [*STORY[1:], Noticed("n", "half \ud83d")], identity=ME)
        journal.release("s1")
        lines = list(export_jsonl(journal.records("s1")))
        moved = [line.replace('"session":"s1"', '"session":"s2"') for line in lines]
        with pytest.raises(JournalError, match="was changed"):
            import_jsonl(journal, moved)
        other = self.open_second_journal()
        assert import_jsonl(other, lines) == ["s1"]
        assert other.head("s1") == journal.head("s1")
        other.verify("s1")
        other.close()

    def test_a_stranger_cannot_hold_up_the_owner_of_a_session(self, journal: Journal) -> None:
        other = self.reopen(journal)
        if other is None:
            pytest.skip("this journal cannot be shared")
        journal.append("s1", "r1", STORY[:1], identity=ME)
        journal.release("s1")
        with pytest.raises(SessionNotFound):
            other.append("s1", "r1", STORY, identity=Identity("local", "you", "s1", "r1"))
        journal.append("s1", "r1", STORY[1:], identity=ME)
        other.close()

    def test_nothing_works_after_close(self, journal: Journal) -> None:
        journal.append("s1", "r1", STORY, identity=ME)
        journal.close()
        journal.close()
        for act in (
            lambda: journal.append("s1", "r1", STORY, identity=ME),
            lambda: journal.verify("s1"),
        ):
            with pytest.raises(JournalError):
                act()

    def test_two_writers_of_one_session_exclude_each_other(self, journal: Journal) -> None:
        other = self.reopen(journal)
        if other is None:
            pytest.skip("this journal cannot be shared")
        journal.append("s1", "r1", STORY[:1], identity=ME)
        with pytest.raises(JournalError) as refused:
            other.append("s1", "r1", STORY, identity=ME)
        assert refused.value.code == "journal_leased"
        other.append("s2", "r1", STORY, identity=ME)
        journal.release("s1")
        other.append("s1", "r1", STORY[1:], identity=ME)
        assert [record.event for record in journal.records("s1")] == list(STORY)
        with pytest.raises(JournalError):
            journal.lease("s1")
        other.close()
        journal.append("s1", "r2", STORY[1:2], identity=ME)
        journal.verify("s1")
        journal.verify("s2")
