"""The audit of a call says who wanted it, who let it pass, what held it and what came of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted, Storage
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    ConsentAnswered,
    DirectCall,
    ModelAnswered,
    Recovered,
    RunFinished,
    RunStarted,
    ToolAnswered,
)
from ferrule.core.identity import Identity
from ferrule.models.scripted import says
from ferrule.permissions.approvals import digest_arguments
from ferrule.plugins import Parts
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.audit.audit import AuditedCall, audit_calls, sha256_hex
from ferrule.storage.audit.explanation import explain
from ferrule.storage.audit.past_calls import read_past_calls
from ferrule.storage.export.jsonl import read_jsonl
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.toolkits.commands import CommandPolicy, command_tools

CORPUS = Path(__file__).parents[2] / "corpus"
ME = Identity("local", "ann", "s1", "r1")


def audited(journal: SqliteJournal, session: str) -> dict[str, AuditedCall]:
    return {call.tool: call for call in audit_calls(journal.records(session))}


def test_a_call_that_a_person_allowed_names_them_what_they_said_and_the_arguments(
    recorded: Any,
) -> None:
    with SqliteJournal(":memory:") as journal:
        session = recorded(journal, [["note"]], choices=("session",), tenant="acme")
        (call,) = audit_calls(journal.records(session))
        times = {record.seq: record.time for record in journal.records(session)}
    arguments = {"text": "milk \x1b[2J ä 😀"}
    assert (call.tenant, call.user, call.session, call.by, call.model) == (
        "acme", "ann", session, "model", "scripted:test",
    )  # fmt: skip
    assert json.loads(call.arguments) == arguments and call.arguments_sha256 == sha256_hex(
        call.arguments
    )
    (gate,), (answer,) = call.decisions, call.answers
    assert (gate.verdict, gate.layer, gate.mode, gate.effect, gate.risk) == (
        "ask", "builtin", "default", "write", "high",
    )  # fmt: skip
    assert gate.digest == answer.digest == digest_arguments("note", arguments) and answer.bound
    assert (answer.scope, answer.by, answer.note, answer.grant) == (
        "session",
        "ann",
        "as agreed",
        "note",
    )
    assert (call.outcome, call.settled_by) == ("success", "person")
    assert call.result_sha256 == sha256_hex("noted milk \x1b[2J ä 😀") and call.size > 0
    assert call.started is not None and call.finished is not None
    assert call.requested == times[call.event] <= answer.time <= call.started <= call.finished
    assert call.finished == times[call.last_event]


@pytest.mark.parametrize(
    ("options", "verdict", "rule", "by", "outcome"),
    [
        ({"allow": ["note"]}, "allow", "note", "rule", "success"),
        ({"deny": ["note"]}, "refuse", "note", "rule", "permission_denied"),
        ({"mode": "bypassPermissions"}, "allow", "", "gate", "success"),
        ({"mode": "plan"}, "refuse", "", "mode", "permission_denied"),
    ],
)
def test_a_rule_or_a_mode_that_decided_is_named_with_where_it_stands(
    recorded: Any, options: dict[str, Any], verdict: str, rule: str, by: str, outcome: str
) -> None:
    with SqliteJournal(":memory:") as journal:
        call = audited(journal, recorded(journal, [["note"]], **options))["note"]
    gate = call.decisions[-1]
    assert (gate.verdict, gate.rule, gate.mode) == (verdict, rule, options.get("mode", "default"))
    assert gate.layer == ("user" if rule else "builtin")
    assert (gate.effect, gate.risk) == ("write", "high")  # also of a call that is denied
    assert (call.settled_by, call.outcome) == (by, outcome)
    noted = sha256_hex("noted milk \x1b[2J ä 😀")
    assert call.result_sha256 == (noted if outcome == "success" else "")
    said = "\n".join(explain(call))
    assert ("by the rule `note`" if rule else f"by the {by}") in said
    assert ("the person's own settings" if rule else "the gate's own order") in said


@pytest.mark.parametrize(
    ("verdict", "reads", "writes", "touched"),
    [
        ("allow", (), (), ""),
        ("allow", ("a.txt",), (), "; reads `a.txt`"),
        ("ask", (), ("a.txt", "b.txt"), "; writes `a.txt`, `b.txt`"),
        ("allow", ("",), ("b.txt",), "; reads everything; writes `b.txt`"),
        ("refuse", ("a.txt",), ("b.txt",), ""),
    ],
)
def test_what_a_decision_lets_a_call_touch_is_said_and_nothing_of_what_was_refused(
    recorded: Any, verdict: str, reads: tuple[str, ...], writes: tuple[str, ...], touched: str
) -> None:
    with SqliteJournal(":memory:") as journal:
        call = audited(journal, recorded(journal, [["note"]], allow=["note"]))["note"]
    gate = replace(call.decisions[-1], verdict=verdict, reads=reads, writes=writes)
    said = explain(replace(call, decisions=(gate,)))
    assert f"             mode default, side effect write, risk high{touched}" in said


def test_calls_that_no_tool_answered_are_audited_too(recorded: Any) -> None:
    with SqliteJournal(":memory:") as journal:
        session = recorded(
            journal, [["note", "unknown", "wrong", "fail"]], choices=("deny", "once")
        )
        found = list(audit_calls(journal.records(session)))
    outcomes = {
        call.tool: (call.outcome, call.settled_by, call.started is not None) for call in found
    }
    assert outcomes == {
        "nope": ("not_found", "gate", False),
        "add": ("validation_failed", "gate", False),
        "note": ("permission_denied", "person", False),
        "fail": ("io_error", "person", True),
    }
    assert next(call for call in found if call.tool == "note").message.endswith("as agreed")


def test_calls_over_the_limit_of_a_round_were_never_judged(recorded: Any) -> None:
    from ferrule import Limits

    with SqliteJournal(":memory:") as journal:
        session = recorded(journal, [["add", "add"]], limits=Limits(max_calls_per_turn=1))
        found = list(audit_calls(journal.records(session)))
    assert sorted((call.outcome, call.settled_by) for call in found) == [
        ("limit", "limit"),
        ("success", "gate"),
    ]
    over = next(call for call in found if call.outcome == "limit")
    assert "refused by a limit of the run" in explain(over)[0]


def test_what_a_hook_changed_or_blocked_is_recorded_with_its_name_and_what_ran(
    recorded: Any, meddler: Any
) -> None:
    with SqliteJournal(":memory:") as journal:
        session = recorded(
            journal, [["note", "fail", "add"]], hooks=[meddler], allow=["note", "fail"]
        )
        found = audited(journal, session)
        seqs = {type(record.event): record.seq for record in journal.records(session)}
    (changed,) = found["note"].hooks
    assert (changed.hook, changed.verdict, json.loads(changed.arguments)) == (
        "meddler",
        "change",
        {"text": "tea"},
    )
    assert (
        changed.digest
        == digest_arguments("note", {"text": "tea"})
        != found["note"].decisions[0].digest
    )
    assert found["note"].result_sha256 == sha256_hex("noted tea")
    (blocked,) = found["fail"].hooks
    assert (blocked.verdict, blocked.reason) == ("block", "no bread today")
    assert (found["fail"].settled_by, found["fail"].outcome) == ("hook", "permission_denied")
    assert found["add"].hooks == () and changed.event < seqs[ToolAnswered]
    assert "refused by the hook `meddler`" in explain(found["fail"])[0]


def test_a_change_is_in_the_journal_before_the_changed_call_runs(
    recorded: Any, meddler: Any
) -> None:
    with SqliteJournal(":memory:") as journal:
        seen: list[list[str]] = []

        class Looker:
            async def before(self, tool: Any, values: Any, context: Any) -> None:
                return None

            async def after(self, tool: Any, result: Any, context: Any) -> None:
                records = journal.records(context.identity.session)
                seen.append([record.event.kind for record in records])

        recorded(journal, [["note"]], hooks=[meddler, Looker()], allow=["note"])
    assert seen[0][-2:] == ["call.started", "call.hooked"]


async def test_what_held_a_program_is_recorded_for_each_call(tmp_path: Path) -> None:
    with SqliteJournal(":memory:") as journal:
        policy = CommandPolicy(confine=SandboxPolicy(tmp_path, require=frozenset()))
        agent = Agent(
            Scripted([says("x")]),
            command_tools(),
            workspace=tmp_path,
            permissions=Permissions(allow=["Bash"]),
            storage=Storage(journal=journal),
            plugins=[Parts(resources=[policy])],
        )
        session = agent.session()
        for _ in range(2):
            await session.call("run_command", command=["true"], mode="argv")
        await session.close()
        found = list(audit_calls(journal.records(session.id)))
        kinds = [record.event.kind for record in journal.records(session.id)]
    assert [len(call.confined) for call in found] == [1, 1]
    held = found[0].confined[0]
    assert held.sandbox and held.program.endswith("/true")
    assert (
        set(held.enforced).isdisjoint(held.not_enforced)
        and len(held.enforced + held.not_enforced) > 5
    )
    is_confined = held.sandbox != "none"
    assert any(line.startswith(f"write {tmp_path} (person: ") for line in held.shown) is is_confined
    assert found[1].confined[0].shown == ()
    assert kinds.index("call.started") < kinds.index("call.confined") < kinds.index("call.answered")
    assert f"`{held.sandbox}`" in "\n".join(explain(found[0])) or held.sandbox == "none"


def project(*events: Any) -> list[AuditedCall]:
    with SqliteJournal(":memory:") as journal:
        journal.append("s1", "r1", events, identity=ME)
        return list(audit_calls(journal.records("s1")))


ASKED = (
    RunStarted("go"),
    ModelAnswered(calls=(ToolCall("c1", "note", '{"text":"a"}'),), stop="calls"),
)
ALLOWED = CallEvaluated("c1", "allow", "allowed", "note", "d1")


def test_a_call_that_had_started_when_the_process_died_is_called_unknown() -> None:
    (call,) = project(*ASKED, ALLOWED, CallStarted("c1", "d1"))
    assert (call.outcome, call.finished) == ("unknown", None)
    (call,) = project(*ASKED, ALLOWED)
    assert (call.outcome, call.started) == ("open", None)
    (call,) = project(
        *ASKED, ALLOWED, CallStarted("c1", "d1"), Recovered("it died"), RunFinished("cancelled")
    )
    assert call.outcome == "unknown" and "outcome unknown" in call.message
    assert "it started" in explain(call)[-1]


def test_calls_without_an_id_or_with_one_that_was_taken_get_the_machines_names() -> None:
    answer = ModelAnswered(
        calls=(ToolCall("", "add"), ToolCall("c1", "add"), ToolCall("c1", "add", '{"a":1}')),
        stop="calls",
    )
    evaluated = [
        CallEvaluated(name, "refuse", result=ToolResult(name, "add", False))
        for name in ("call_1_0", "c1", "c1_2")
    ]
    assert [call.call_id for call in project(RunStarted("go"), answer, *evaluated)] == [
        "call_1_0",
        "c1",
        "c1_2",
    ]


def test_a_direct_call_says_who_made_it() -> None:
    direct = DirectCall(ToolCall("d1", "note", "{}"), by="call c7")
    (call,) = project(
        direct, CallEvaluated("d1", "refuse", "no", result=ToolResult("d1", "note", False))
    )
    assert (call.by, call.run) == ("call c7", "r1") and "by call c7" in explain(call)[1]


def test_what_a_person_answered_about_a_sandbox_stands_with_the_calls_that_were_running() -> None:
    waiting = ToolCall("c2", "note", "{}")
    asked = ModelAnswered(calls=(*ASKED[1].calls, waiting), stop="calls")
    consent = ConsentAnswered(
        "sandbox-gap", "unconfined", "without: network", "session", "d9", by="ann"
    )
    evaluated = (
        ALLOWED,
        CallEvaluated("c2", "ask", "high risk", digest="d2"),
        CallStarted("c1", "d1"),
    )
    first, second = project(ASKED[0], asked, *evaluated, consent)
    (answer,) = first.answers
    assert (answer.scope, answer.by, answer.question, answer.bound) == (
        "session",
        "ann",
        "without: network",
        False,
    )
    assert second.answers == () and first.settled_by == "rule"
    assert "to what the tool asked: without: network" in "\n".join(explain(first))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("v*/*.jsonl")), ids=lambda path: path.stem)
def test_journals_of_every_earlier_format_can_be_audited(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        found = list(audit_calls(read_jsonl(file)))
    assert found and all(call.outcome != "open" for call in found)
    for call in found:
        json.dumps(call.as_record())
        assert explain(call)


def test_past_calls_come_with_values_verdict_and_answer_over_all_sessions(
    recorded: Any, meddler: Any
) -> None:
    with SqliteJournal(":memory:") as journal:
        first = recorded(journal, [["note"]], choices=("deny",))
        second = recorded(journal, [["note", "add"]], hooks=[meddler], allow=["note"])
        past = {(one.audit.session, one.tool): one for one in read_past_calls(journal)}
        assert (past[first, "note"].verdict, past[first, "note"].choice) == ("ask", "deny")
        assert (
            past[second, "note"].arguments == {"text": "tea"} and past[second, "note"].choice == ""
        )
        assert past[second, "add"].arguments == {"a": 2, "b": 3}
        only = list(read_past_calls(journal, sessions=[first[:12]], tools=frozenset({"note"})))
        assert [one.audit.session for one in only] == [first]
        assert list(read_past_calls(journal, since=1 << 60)) == []
        assert list(read_past_calls(journal, user="somebody else")) == []


def test_arguments_that_are_no_object_have_no_values() -> None:
    with SqliteJournal(":memory:") as journal:
        journal.append(
            "s1",
            "r1",
            [DirectCall(ToolCall("d1", "note", "[1")), DirectCall(ToolCall("d2", "note", ""))],
            identity=ME,
        )
        assert [one.arguments for one in read_past_calls(journal)] == [None, {}]
