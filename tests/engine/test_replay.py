"""Recordings: replayed by the machine, run again with other models and tools, judged by other
rules, carried in bundles.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, Host, Limits, Permissions, Storage, tool
from ferrule.core import events
from ferrule.core.errors import ConfigError, FerruleError, JournalError, ProviderError, RunCancelled
from ferrule.core.events import JournalRecord
from ferrule.core.identity import Identity
from ferrule.engine.replay.recording import Recording, canonical_json
from ferrule.engine.replay.replay import replay
from ferrule.engine.replay.rerun import rerun
from ferrule.engine.replay.what_if import what_if
from ferrule.engine.session import Session
from ferrule.models.scripted import Scripted, calls, fails, says
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.permissions.rules import RuleSet
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.audit.past_calls import read_past_calls
from ferrule.storage.export.bundles import import_bundle, open_bundle, read_recording, write_bundle
from ferrule.storage.journal.sqlite import SqliteJournal

ran: list[object] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    ran.append((a, b))
    return a + b


def fail(why: str) -> str:
    """Fail."""
    ran.append(why)
    raise ValueError(why)


async def endless() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


TOOLS = (add, fail, endless)
ALLOW = ("add", "fail", "endless")


async def worked(
    script: Scripted, work: Callable[[Session], Awaitable[object]], limits: Limits | None = None
) -> list[JournalRecord]:
    """The records of a session in which this was done, whatever it raised."""
    journal = SqliteJournal(":memory:")
    agent = Agent(
        script,
        TOOLS,
        permissions=Permissions(allow=ALLOW),
        storage=Storage(journal=journal, user="me"),
        limits=limits,
        host=Host(interruptible=True),
    )
    session = agent.session()
    with contextlib.suppress(FerruleError, asyncio.CancelledError):
        await work(session)
    await session.close()
    return list(journal.records(session.id))


async def two_runs() -> list[JournalRecord]:
    script = Scripted(
        [
            calls(("add", {"a": 1, "b": 2}), ("fail", {"why": "so"}), ("nope", {})),
            says("three"),
            calls(("add", {"b": 2, "a": 3})),
            says("five"),
        ]
    )

    async def work(session: Session) -> None:
        await session.run("1 + 2?")
        session.driver.add_context("by the way")
        await session.call("add", a=7, b=7)
        await session.run("and 3?")

    return await worked(script, work)


async def cancelled(session: Session) -> None:
    started = asyncio.Event()
    session.observe(lambda item: started.set() if isinstance(item, events.CallEvaluated) else None)
    task = asyncio.create_task(session.run("wait"))
    await asyncio.wait_for(started.wait(), 10)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises((RunCancelled, asyncio.CancelledError)):
        await task


async def record_session(session: Session) -> None:
    session.tell("a word on the way")
    await session.run("go")
    session.tell("data", source="clock")
    await session.run("again")


CASES = {
    "rounds over the limit": (
        lambda: Scripted([calls(("add", {"a": n, "b": n})) for n in range(3)]),
        lambda session: session.run("go"),
        Limits(max_turns=3),
    ),
    "a last answer at the limit": (
        lambda: Scripted([calls(("add", {"a": 1, "b": 1})), says("enough")]),
        lambda session: session.run("go"),
        Limits(max_turns=1, on_limit="answer"),
    ),
    "a model that fails": (
        lambda: Scripted([fails(ProviderError("no server", code="unreachable"))]),
        lambda session: session.run("go"),
        None,
    ),
    "a run that was cancelled": (lambda: Scripted([calls(("endless", {}))]), cancelled, None),
    "words on the way": (
        lambda: Scripted([calls(("add", {"a": 1, "b": 1})), says("two"), says("still two")]),
        record_session,
        None,
    ),
    "the same call without end": (
        lambda: Scripted(
            [*(calls(("add", {"a": 1, "b": 1})) for _ in range(6)), says("I give up")]
        ),
        lambda session: session.run("go"),
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_whatever_a_session_went_through_its_replay_is_the_same(case: str) -> None:
    script, work, limits = CASES[case]
    records = await worked(script(), work, limits)
    replayed = replay(records)
    assert replayed.differences == ()
    assert (replayed.events, replayed.unproven) == (len(records), 0)
    finished = {r.run: r.event.history for r in records if isinstance(r.event, events.RunFinished)}
    assert replayed.histories == finished
    assert all(len(digest) == 64 for digest in finished.values())


async def test_a_replay_runs_no_tool_and_asks_no_model() -> None:
    records = await two_runs()
    ran.clear()
    replayed = replay(records)
    assert replayed.same
    assert replayed.runs == 2
    assert ran == []


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_recording_that_did_not_happen_so_is_named_at_the_event(data: st.DataObject) -> None:
    records = _RECORDED[0] if _RECORDED else asyncio.run(two_runs())
    _RECORDED[:] = [records]
    at = data.draw(st.integers(1, len(records) - 1), label="event")
    change = data.draw(st.sampled_from(["drop", "twice", "swap"]), label="change")
    if change == "drop":
        changed = [*records[:at], *records[at + 1 :]]
    elif change == "twice":
        changed = [*records[: at + 1], *records[at:]]
    else:
        other = data.draw(st.integers(1, len(records) - 1), label="with")
        changed = list(records)
        changed[at], changed[other] = changed[other], changed[at]
    numbered = [record._replace(seq=number) for number, record in enumerate(changed, 1)]
    replayed = replay(numbered)
    harmless = [r.event for r in numbered] == [r.event for r in records[: len(numbered)]]
    if harmless:
        assert replayed.same
    elif not replayed.same:
        assert 1 <= replayed.differences[0].seq <= len(numbered)
        assert replayed.differences[0].what
    else:
        # What was moved comes from outside unasked (a call of a person, context): the history then
        # differs at the run's end, or the run's end is what is missing.
        finished = [r for r in numbered if isinstance(r.event, events.RunFinished)]
        assert len(finished) < 2 or _outside(records, numbered)


_RECORDED: list[list[JournalRecord]] = []


def _outside(records: list[JournalRecord], numbered: list[JournalRecord]) -> bool:
    """Whether what the model was shown is the same in both: only the place of what it never saw
    differs.
    """

    def shown(of: list[JournalRecord]) -> list[str]:
        return [r.event.history for r in of if isinstance(r.event, events.RunFinished)]

    return shown(records) == shown(numbered)


async def test_a_history_that_was_changed_is_found_by_its_digest() -> None:
    records = await two_runs()

    def forged(record: JournalRecord) -> JournalRecord:
        event = record.event
        if not isinstance(event, events.ToolAnswered) or event.result.data != 3:
            return record
        return record._replace(event=replace(event, result=replace(event.result, data=4)))

    changed = [forged(record) for record in records]
    assert changed != records
    difference = replay(changed).differences[0]
    assert "history" in difference.what
    assert isinstance(records[difference.seq - 1].event, events.RunFinished)


async def test_another_model_gets_the_recorded_results_and_no_handler_runs() -> None:
    recording = Recording.of(await two_runs())
    ran.clear()
    model = Scripted(
        [
            calls(("add", {"b": 2, "a": 1})),
            says("3"),
            calls(("add", {"a": 9, "b": 9}), ("fail", {"why": "so"})),
            says("?"),
        ]
    )
    again = await rerun(
        recording, Agent(Scripted([]), TOOLS, storage=Storage(journal=":memory:")), model=model
    )
    assert ran == []
    first, second = again.runs
    assert first.calls[0].same
    assert (first.text, first.recorded_text) == ("3", "three")
    assert second.calls[0].result is not None and second.calls[0].result.error_type == "not_found"
    assert second.calls[1].result is not None and "so" in str(second.calls[1].result.error_message)
    assert again.unmatched == (("add", '{"a":9,"b":9}'),)
    assert not again.same


async def test_recorded_answers_meet_the_tools_as_they_are() -> None:
    recording = Recording.of(await two_runs())
    ran.clear()
    again = await rerun(
        recording,
        Agent(
            Scripted([]),
            TOOLS,
            permissions=Permissions(allow=ALLOW),
            storage=Storage(journal=":memory:"),
        ),
        tools="live",
    )
    assert again.same
    assert ran == [(1, 2), "so", (3, 2)]

    def broken(a: int, b: int) -> int:
        """Add two numbers."""
        return a - b

    broken.__name__ = "add"
    agent = Agent(
        Scripted([]),
        [broken, fail],
        permissions=Permissions(allow=ALLOW),
        storage=Storage(journal=":memory:"),
    )
    again = await rerun(recording, agent, tools="live")
    assert [call.same for run in again.runs for call in run.calls] == [False, True, False, False]
    assert again.missing == ("endless",)


async def test_live_tools_stay_behind_the_agents_own_gate() -> None:
    recording = Recording.of(await two_runs())
    ran.clear()
    again = await rerun(
        recording,
        Agent(
            Scripted([]),
            TOOLS,
            permissions=Permissions(deny=("add",)),
            storage=Storage(journal=":memory:"),
        ),
        tools="live",
    )
    assert (1, 2) not in ran
    assert again.runs[0].calls[0].result is not None
    assert again.runs[0].calls[0].result.error_type in ("permission_denied", "not_found")


async def test_a_rerun_that_could_not_differ_is_refused() -> None:
    recording = Recording.of(await two_runs())
    with pytest.raises(ConfigError, match="nothing new"):
        await rerun(recording, Agent(Scripted([]), TOOLS, storage=Storage(journal=":memory:")))


def test_arguments_are_the_same_if_they_are_the_same_json() -> None:
    assert canonical_json('{"b": 1, "a": [1, 2]}') == canonical_json({"a": [1, 2], "b": 1})
    assert canonical_json("{broken") == "{broken"
    # Arguments as they are carried out: nothing, null, and an object that is text twice.
    assert canonical_json("") == canonical_json("null") == canonical_json("{}")
    assert canonical_json('"{\\"a\\": 1}"') == canonical_json({"a": 1})
    assert canonical_json('{"a": 1}') != canonical_json('{"a": 1.5}')


async def test_other_rules_say_which_past_calls_they_would_have_stopped() -> None:
    journal = SqliteJournal(":memory:")
    records = await two_runs()
    owner = Identity("local", "me", records[0].session, "r")
    journal.append(records[0].session, "r", [record.event for record in records], identity=owner)
    catalog = Agent(Scripted([]), TOOLS, storage=Storage(journal=":memory:")).catalog
    strict = PermissionGate(RuleSet.parse(deny=["add"], ask=["fail"]))
    ran.clear()
    judged = list(what_if(read_past_calls(journal), lambda workspace: strict, catalog))
    assert ran == []
    said = {(one.call.tool, one.verdict, one.ran) for one in judged}
    assert {("add", "deny", True), ("fail", "ask", True)} <= said
    assert all(
        one.rule == "add" for one in judged if one.verdict == "deny" and one.call.tool == "add"
    )
    gone = list(
        what_if(
            read_past_calls(journal),
            lambda workspace: strict,
            Agent(Scripted([]), [fail], storage=Storage(journal=":memory:")).catalog,
        )
    )
    assert {one.verdict for one in gone if one.call.tool == "add"} == {"deny"}
    assert not any(one.known for one in gone if one.call.tool == "add")


async def test_a_denied_call_of_a_tool_that_is_gone_is_judged_by_what_it_would_have_done() -> None:
    @tool(side_effect="external", risk="high")
    def send(text: str) -> str:
        """Send a text."""
        return text

    journal = SqliteJournal(":memory:")
    agent = Agent(
        Scripted([calls(("send", {"text": "x"})), says("Denied.")]),
        [send],
        permissions=Permissions(deny=["send"]),
        storage=Storage(journal=journal),
    )
    await agent.run("Send it.")
    without = Agent(Scripted([]), storage=Storage(journal=":memory:")).catalog
    gate = PermissionGate(RuleSet.parse(), mode="plan")
    [judged] = what_if(read_past_calls(journal), lambda workspace: gate, without)
    assert (judged.known, judged.ran, judged.verdict) == (False, False, "deny")


async def test_a_bundle_holds_sessions_with_their_artifacts_and_shows_every_change(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal(":memory:")
    records = await two_runs()
    session = records[0].session
    for record in records:
        owner = Identity(record.tenant, record.user, session, record.run)
        journal.append(session, record.run, [record.event], identity=owner, times=[record.time])
    store = FileArtifactStore(tmp_path / "artifacts")
    kept = store.put(
        Scope(records[0].tenant, records[0].user, session),
        [b"large " * 10_000],
        mime="text/plain",
        tool="add",
    )
    store.put(Scope("other", "one", "s"), [b"not yours"])
    file = tmp_path / "one.ferrule"
    write_bundle(file, journal, [session[:8], session], store)
    with pytest.raises(FileExistsError):
        write_bundle(file, journal, [session], store)

    (again,) = read_recording(file)
    assert [(r.event, r.hash, r.time) for r in again] == [
        (r.event, r.hash, r.time) for r in journal.records(session)
    ]
    with open_bundle(file) as bundle:
        assert [one.sha256 for one in bundle.artifacts] == [kept.sha256]

    elsewhere, its_store = SqliteJournal(":memory:"), FileArtifactStore(tmp_path / "elsewhere")
    assert import_bundle(file, elsewhere, its_store) == [session]
    elsewhere.verify(session)
    assert replay(elsewhere.records(session)).same
    scope = Scope(records[0].tenant, records[0].user, session)
    assert its_store.read(scope, kept.reference, 0, 6) == b"large "

    for name, change in (
        ("journal.jsonl", lambda data: data.replace(b"three", b"seven")),
        ("journal.jsonl", lambda data: data[: data.rstrip().rindex(b"\n") + 1]),
        (f"artifacts/{kept.sha256}", lambda data: data[:-1] + b"!"),
        (f"artifacts/{kept.sha256}", lambda data: data + b"!"),
        ("manifest.json", lambda data: data.replace(b'"bundle"', b'"bundles"')),
    ):
        changed = tmp_path / "changed.ferrule"
        with zipfile.ZipFile(file) as source, zipfile.ZipFile(changed, "w") as target:
            for info in source.infolist():
                data = source.read(info)
                target.writestr(info.filename, change(data) if info.filename == name else data)
        fresh = SqliteJournal(":memory:")
        with pytest.raises(JournalError):
            import_bundle(changed, fresh, FileArtifactStore(tmp_path / "fresh"))
        assert fresh.sessions() == []
    (tmp_path / "no.ferrule").write_bytes(b"no zip")
    with pytest.raises(JournalError, match="not a Ferrule bundle"):
        list(read_recording(tmp_path / "no.ferrule"))


MADE = [events.SessionOpened(system="x" * 200), events.RunStarted("hi"), events.RunFinished("done")]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A bundle of the session `s1`, with an artifact."""
    folder = tmp_path_factory.mktemp("bundled")
    journal, store = SqliteJournal(":memory:"), FileArtifactStore(folder / "artifacts")
    owner = Identity("local", "me", "s1", "r1")
    journal.append("s1", "r1", MADE, identity=owner)
    store.put(Scope.from_identity(owner), [b"large " * 100])
    write_bundle(folder / "one.ferrule", journal, ["s1"], store)
    return (folder / "one.ferrule").read_bytes()


@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 99),
)
def test_a_bundle_with_any_byte_changed_is_whole_or_refused_and_never_a_defect(
    changes: list[tuple[int, int]],
    cut: int,
    bundled: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    changed = bytearray(bundled)
    for at, value in changes:
        changed[at % len(changed)] = value
    file = folder / "changed.ferrule"
    file.write_bytes(changed if cut < 80 else changed[: len(changed) * cut // 100])
    fresh = SqliteJournal(":memory:")
    try:
        import_bundle(file, fresh, FileArtifactStore(folder / "fresh"))
    except JournalError:
        assert fresh.sessions() == []
    else:
        assert [r.event for r in fresh.records("s1")] == MADE


@pytest.mark.parametrize(
    "artifact",
    [
        {"session": "nobody", "sha256": "0" * 64, "size": 0, "mime": "", "tool": ""},
        {"session": "s1", "sha256": "0" * 64, "size": "0", "mime": "", "tool": ""},
        {"session": "s1", "sha256": None, "size": 0, "mime": "", "tool": ""},
        {"session": "s1", "sha256": "0" * 64, "size": True, "mime": "", "tool": ""},
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_before_anything_is_written(
    artifact: dict[str, object], tmp_path: Path
) -> None:
    journal = SqliteJournal(":memory:")
    made = [events.SessionOpened()]
    journal.append("s1", "r1", made, identity=Identity("local", "me", "s1", "r1"))
    file, changed = tmp_path / "one.ferrule", tmp_path / "changed.ferrule"
    write_bundle(file, journal, ["s1"])
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(changed, "w") as target:
        manifest = json.loads(source.read("manifest.json")) | {"artifacts": [artifact]}
        target.writestr("journal.jsonl", source.read("journal.jsonl"))
        target.writestr("manifest.json", json.dumps(manifest))
        target.writestr(f"artifacts/{artifact['sha256']}", b"")
    fresh = SqliteJournal(":memory:")
    with pytest.raises(JournalError) as refused:
        import_bundle(changed, fresh, FileArtifactStore(tmp_path / "fresh"))
    assert refused.value.code == "bundle_corrupt"
    assert fresh.sessions() == []


async def test_a_session_that_is_still_open_is_bundled_and_replayed_as_far_as_it_is(
    tmp_path: Path,
) -> None:
    records = await two_runs()
    session = records[0].session
    for end in range(1, len(records)):
        assert replay(records[:end]).same
    journal = SqliteJournal(tmp_path / "journal.db")
    for record in records[:5]:
        owner = Identity(record.tenant, record.user, session, record.run)
        journal.append(session, record.run, [record.event], identity=owner)
    # Its writer goes on while somebody else reads.
    with SqliteJournal(tmp_path / "journal.db") as other:
        assert write_bundle(tmp_path / "open.ferrule", other, [session])[0].events == 5
    (again,) = read_recording(tmp_path / "open.ferrule")
    assert replay(again).same
    journal.close()


async def test_bundles_are_tests_for_pytest(tmp_path: Path) -> None:
    journal = SqliteJournal(":memory:")
    records = await two_runs()
    session = records[0].session
    owner = Identity("local", "me", session, "r")
    journal.append(session, "r", [record.event for record in records], identity=owner)
    write_bundle(tmp_path / "good.ferrule", journal, [session])
    broken = SqliteJournal(":memory:")
    broken.append(
        "0" * 32,
        "r",
        [r.event for r in records if not isinstance(r.event, events.ToolAnswered)],
        identity=Identity("local", "me", "0" * 32, "r"),
    )
    write_bundle(tmp_path / "bad.ferrule", broken, ["0" * 32])
    (tmp_path / "test_tools.py").write_text(
        "from ferrule import Agent, Permissions, Storage\n"
        "def add(a: int, b: int) -> int:\n    '''Add two numbers.'''\n    return a + b + OFF\n"
        "def fail(why: str) -> str:\n    '''Fail.'''\n    raise ValueError(why)\n"
        "async def endless() -> str:\n    '''Never end.'''\n    return ''\n"
        "TOOLS = [add, fail, endless]\n"
        "def agent(): return Agent('scripted:none', TOOLS, permissions=Permissions(allow=['add', 'fail']), "
        "storage=Storage(journal=':memory:'))\n"
        "OFF = 0\n"
        "def test_same(rerun_bundle):\n    assert rerun_bundle('good.ferrule', agent())[0].same\n"
        "def test_other(rerun_bundle):\n    global OFF\n    OFF = 1\n    "
        "rerun_bundle('good.ferrule', agent())\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
            "-p",
            "ferrule.testing.pytest_plugin",
            ".",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert f"session {'0' * 32}: event" in done.stdout
