"""Receipts tell what was asked, done, approved and spent, in digests."""

from __future__ import annotations

import json
from typing import Any

from ferrule import Agent, Scripted, Storage, tool
from ferrule.core.events import ProviderToolCall, Usage
from ferrule.models.scripted import Step, calls, says
from ferrule.storage.audit.audit import sha256_hex
from ferrule.storage.audit.receipts import build_receipts
from ferrule.storage.journal.sqlite import SqliteJournal


def test_a_run_has_one_receipt_with_its_calls_approvals_effects_and_the_journals_hash(
    recorded: Any,
) -> None:
    with SqliteJournal(":memory:") as journal:
        session = recorded(journal, [["add", "note"], ["fail"]], choices=("once", "deny"))
        (receipt,) = build_receipts(journal.records(session))
        seq, head = journal.head(session)
    assert (receipt["schema"], receipt["session"], receipt["stop"]) == (
        "ferrule.receipt.v1",
        session,
        "done",
    )
    assert receipt["journal"] == {"first_event": 2, "last_event": seq, "head": head}
    assert [made["calls"] for made in receipt["model_calls"]] == [
        ["call_1_0", "call_1_1"],
        ["call_2_0"],
        [],
    ]
    assert [(one["tool"], one["outcome"], one["settled_by"]) for one in receipt["tool_calls"]] == [
        ("add", "success", "gate"),
        ("note", "success", "person"),
        ("fail", "permission_denied", "person"),
    ]
    _, noted, refused = receipt["tool_calls"]
    assert noted["requested"] <= noted["started"] <= noted["finished"]
    assert refused["started"] is None, "it never ran"
    assert [
        (one["call_id"], one["scope"], one["by"], one["bound"]) for one in receipt["approvals"]
    ] == [
        ("call_1_1", "once", "ann", True),
        ("call_2_0", "deny", "ann", True),
    ]
    assert [
        (one["tool"], one["side_effect"], one["outcome"]) for one in receipt["side_effects"]
    ] == [("note", "write", "success")]
    assert (receipt["cost"]["model_calls"], receipt["cost"]["tool_calls"]) == (3, 3)
    assert receipt["question_sha256"] == sha256_hex("go") and receipt[
        "answer_sha256"
    ] == sha256_hex("done")


def test_a_receipt_holds_no_words_of_arguments_results_questions_or_answers(recorded: Any) -> None:
    with SqliteJournal(":memory:") as journal:
        session = recorded(journal, [["note", "fail", "unknown"]])
        text = json.dumps(list(build_receipts(journal.records(session))))
    for word in ("milk", "noted", "bread", "no room", "did you mean", "as agreed"):
        assert word not in text


async def test_the_same_journal_gives_the_same_receipts_and_a_session_hands_out_its_own() -> None:
    @tool(side_effect="none", risk="safe")
    def ping() -> str:
        """Answer."""
        return "pong"

    usage = Usage(10, 5, 3, 2, 1)
    steps = [calls(("ping", {})), Step("one", usage=usage), says("two")]
    with SqliteJournal(":memory:") as journal:
        session = Agent(Scripted(steps), [ping], storage=Storage(journal=journal)).session()
        assert session.history.receipts() == []
        await session.run("first")
        await session.run("second")
        await session.call("ping")
        made = session.history.receipts()
        await session.close()
        assert made == list(build_receipts(journal.records(session.id)))
    first, second = made
    assert [len(one["tool_calls"]) for one in made] == [1, 1]
    assert second["tool_calls"][0]["requested_by"] == "person"
    assert first["cost"] | {"seconds": 0} == {
        "model_calls": 2,
        "tool_calls": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "cached_tokens": 3,
        "written_tokens": 2,
        "reasoning_tokens": 1,
        "seconds": 0,
    }
    assert (
        first["receipt_id"] != second["receipt_id"]
        and first["journal"]["last_event"] < second["journal"]["first_event"]
    )


def test_what_a_provider_ran_itself_is_named_as_its_own_without_an_approval() -> None:
    from ferrule.core.events import ModelAnswered, RunFinished, RunStarted
    from ferrule.core.identity import Identity

    made = ProviderToolCall(
        "ws_1", "c9", "web_search_call", "search", "web_search", "completed", '{"q":"secret"}'
    )
    answer = ModelAnswered("found", provider_calls=(made,))
    with SqliteJournal(":memory:") as journal:
        me = Identity("local", "ann", "s1", "r1")
        journal.append(
            "s1", "r1", [RunStarted("go"), answer, RunFinished("done", "found")], identity=me
        )
        (receipt,) = build_receipts(journal.records("s1"))
    (hosted,) = receipt["model_calls"][0]["provider_calls"]
    assert hosted["executor"] == "provider_native" and hosted["metadata_sha256"] == sha256_hex(
        '{"q":"secret"}'
    )
    assert (
        "secret" not in json.dumps(receipt) and receipt["approvals"] == receipt["tool_calls"] == []
    )
