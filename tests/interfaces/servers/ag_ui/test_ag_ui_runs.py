"""Runs over AG-UI: what is streamed, asked and approved, and what runs in the client."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ag_ui_pages import kinds, results_of, text_of
from pydantic import BaseModel

from ferrule import Agent, Permissions, Scripted, Storage, tool
from ferrule.core.calls import ToolCall
from ferrule.core.errors import ProviderError
from ferrule.core.events import Usage
from ferrule.core.identity import Identity
from ferrule.core.messages import Message, ToolMessage, UserMessage
from ferrule.models.scripted import calls, fails, says
from ferrule.permissions.approvals import ApprovalRequest
from ferrule.permissions.grant_proposals import GrantOffer
from ferrule.servers.ag_ui.inputs import InterruptAnswer
from ferrule.servers.ag_ui.interrupts import read_answer

sent: list[str] = []
PICK = {
    "name": "pick_colour",
    "description": "Let the person pick a colour on the page.",
    "parameters": {
        "type": "object",
        "properties": {"hint": {"type": "string"}},
        "required": ["hint"],
    },
}


@tool(side_effect="write")
def send_mail(to: str) -> str:
    """Send a mail.

    Args:
        to: The address.
    """
    sent.append(to)
    return f"sent to {to}"


@tool(side_effect="read")
def count_stock(item: str) -> int:
    """Count an item.

    Args:
        item: The item.
    """
    return len(item)


@tool(side_effect="execute", risk="critical")
def open_valve() -> str:
    """Open the valve."""
    sent.append("valve")
    return "open"


def make_agent(*steps: Any, **more: Any) -> Agent[Any, Any]:
    sent.clear()
    return Agent(Scripted(steps), [send_mail, count_stock, open_valve], **more)


async def test_a_run_streams_its_reasoning_its_calls_with_their_results_and_its_text(
    serving: Callable[..., Any],
) -> None:
    agent = make_agent(
        calls(("count_stock", {"item": "bolt"}, "c1"), text="Let me look."),
        says("There are four.", reasoning="Four letters."),
    )
    async with serving(agent) as client_of:
        events = await client_of("ada").say("How many bolts?")
    assert kinds(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert results_of(events) == {"c1": "4"}
    assert text_of(events) == "Let me look.There are four."
    assert events[0]["protocolVersion"] == "1.0"
    assert events[-1]["outcome"] == {"type": "success"}
    start = next(one for one in events if one["type"] == "TOOL_CALL_START")
    assert start["parentMessageId"] == events[1]["messageId"]


async def test_the_end_of_a_run_says_what_its_answers_used_together(
    serving: Callable[..., Any],
) -> None:
    agent = make_agent(
        calls(("count_stock", {"item": "bolt"}), usage=Usage(input=100, output=10, cached=40)),
        says("Four.", usage=Usage(input=200, output=20, reasoning=5)),
        fails(ProviderError("gone", code="unreachable", retryable=False)),
    )
    async with serving(agent) as client_of:
        ada = client_of("ada")
        (used,) = (await ada.say("How many bolts?"))[-1]["usage"]
        ended = (await ada.say("And nuts?"))[-1]
    counted = {name: count for name, count in used.items() if name != "model"}
    assert counted == {
        "inputTokens": 300,
        "outputTokens": 30,
        "cachedInputTokens": 40,
        "cacheWriteInputTokens": 0,
        "reasoningTokens": 5,
    }
    assert ended["type"] == "RUN_ERROR" and "usage" not in ended, "it is of this run alone"


async def test_a_second_message_goes_on_in_the_session_of_its_thread(
    serving: Callable[..., Any],
) -> None:
    def recall(history: Sequence[Message]) -> Any:
        said = [one.text for one in history if isinstance(one, UserMessage)]
        return says(" | ".join(said))

    agent = Agent(Scripted([recall, recall, recall]))
    async with serving(agent) as client_of:
        ada = client_of("ada")
        await ada.say("one")
        assert text_of(await ada.say("two")) == "one | two"
        assert text_of(await client_of("ada", "t2").say("three")) == "three"


async def test_a_call_that_needs_approval_interrupts_and_runs_once_it_is_approved(
    serving: Callable[..., Any],
) -> None:
    agent = make_agent(calls(("send_mail", {"to": "ines"}, "c1")), says("Done."))
    async with serving(agent) as client_of:
        ada = client_of("ada")
        events = await ada.say("Write to Ines.")
        (asked,) = events[-1]["outcome"]["interrupts"]
        assert asked["toolCallId"] == "c1" and "send_mail" in asked["message"]
        assert "ines" in asked["metadata"]["ferrule"]["shown"]
        assert asked["id"].endswith(asked["metadata"]["ferrule"]["digest"])
        assert sent == []
        events = await ada.answer(events, approved=True)
    assert results_of(events) == {"c1": "sent to ines"} and text_of(events) == "Done."
    assert sent == ["ines"]


@pytest.mark.parametrize(
    "payload",
    [
        {"approved": False, "note": "not her"},
        {"approved": "true"},
        {"approved": 1},
        {},
        {"approved": True, "grant": "Bash(*)"},
    ],
)
async def test_whatever_is_not_a_yes_denies_the_call(
    serving: Callable[..., Any], payload: dict[str, Any]
) -> None:
    agent = make_agent(calls(("send_mail", {"to": "ines"}, "c1")), says("As you wish."))
    async with serving(agent) as client_of:
        ada = client_of("ada")
        events = await ada.answer(await ada.say("Write to Ines."), **payload)
    assert "permission_denied" in results_of(events)["c1"] and sent == []
    assert text_of(events) == "As you wish."


@pytest.mark.parametrize(
    ("is_resolved", "payload", "refuser"),
    [
        (True, {"approved": False}, "person"),
        (False, None, "person"),
        (True, {"approved": "true"}, "error"),
        (True, {}, "error"),
        (True, "yes", "error"),
        (True, {"approved": True, "grant": "Bash(*)"}, "gate"),
    ],
)
def test_only_a_plain_no_is_recorded_as_a_persons(
    is_resolved: bool, payload: object, refuser: str
) -> None:
    request = ApprovalRequest(
        ToolCall("c1", "send_mail", "{}"),
        send_mail,
        "high",
        "it writes",
        (),
        "",
        (GrantOffer("once", ""),),
        "digest",
        Identity("t", "ada", "s", "r"),
    )
    answer = read_answer(request, InterruptAnswer("c1:digest", is_resolved, payload), "ada")
    assert (answer.choice, answer.refuser) == ("deny", refuser)
    assert ("by the person" in answer.note or "the person closed" in answer.note) == (
        refuser == "person"
    )


async def test_a_question_that_is_closed_denies_the_call(serving: Callable[..., Any]) -> None:
    agent = make_agent(calls(("send_mail", {"to": "ines"}, "c1")), says("As you wish."))
    async with serving(agent) as client_of:
        ada = client_of("ada")
        (asked,) = (await ada.say("Write to Ines."))[-1]["outcome"]["interrupts"]
        events = await ada.run(resume=[{"interruptId": asked["id"], "status": "cancelled"}])
    assert "permission_denied" in results_of(events)["c1"] and sent == []


async def test_an_answer_counts_for_the_arguments_that_were_shown_and_no_others(
    serving: Callable[..., Any],
) -> None:
    agent = make_agent(calls(("send_mail", {"to": "ines"}, "c1")), says("Done."))
    async with serving(agent) as client_of:
        ada = client_of("ada")
        events = await ada.say("Write to Ines.")
        (asked,) = events[-1]["outcome"]["interrupts"]
        other = asked["id"][:-1] + ("0" if asked["id"][-1] != "0" else "1")
        yes = {"status": "resolved", "payload": {"approved": True}}
        refused = await ada.post(resume=[{"interruptId": other, **yes}])
        assert refused.status_code == 409 and sent == []
        assert refused.json()["error"]["code"] == "interrupt_gone"
        await ada.answer(events, approved=True)
        assert sent == ["ines"]
        again = await ada.post(resume=[{"interruptId": asked["id"], **yes}])
        assert again.status_code == 409 and sent == ["ines"]


async def test_a_rule_that_was_offered_holds_for_the_session(serving: Callable[..., Any]) -> None:
    agent = make_agent(
        calls(("send_mail", {"to": "ines"}, "c1")),
        calls(("send_mail", {"to": "bo"}, "c2")),
        says("Done."),
    )
    async with serving(agent) as client_of:
        ada = client_of("ada")
        events = await ada.say("Write to both.")
        (asked,) = events[-1]["outcome"]["interrupts"]
        grants = asked["responseSchema"]["properties"]["grant"]["enum"]
        events = await ada.answer(events, approved=True, grant=grants[-1])
    assert sent == ["ines", "bo"] and text_of(events) == "Done."


@pytest.mark.parametrize(("user", "done"), [("ada", []), ("root", ["valve"])])
async def test_only_an_operator_is_asked_about_a_call_of_critical_risk(
    serving: Callable[..., Any], user: str, done: list[str]
) -> None:
    agent = make_agent(calls(("open_valve", {}, "c1")), says("Done."))
    async with serving(agent) as client_of:
        person = client_of(user)
        events = await person.say("Open it.")
        if events[-1]["outcome"]["type"] == "interrupt":
            events = await person.answer(events, approved=True)
    assert sent == done and text_of(events) == "Done."


async def test_a_page_that_was_loaded_again_is_told_of_the_question_again(
    serving: Callable[..., Any],
) -> None:
    agent = make_agent(calls(("send_mail", {"to": "ines"}, "c1")), says("Done."))
    async with serving(agent) as client_of:
        first = await client_of("ada").say("Write to Ines.")
        later = client_of("ada")
        again = await later.run()
        assert again[-1]["outcome"] == first[-1]["outcome"]
        await later.answer(again, approved=True)
    assert sent == ["ines"]


async def test_a_question_outlives_a_process_that_was_killed(
    serving: Callable[..., Any], tmp_path: Path
) -> None:
    before, after = tmp_path / "before.db", tmp_path / "after.db"
    asks = calls(("send_mail", {"to": "ines"}, "c1"))
    async with serving(make_agent(asks, storage=Storage(journal=str(before)))) as client_of:
        ada = client_of("ada")
        events = await ada.say("Write to Ines.")
        with closing(sqlite3.connect(before)) as here, closing(sqlite3.connect(after)) as there:
            # What a killed process leaves behind.
            here.backup(there)
    agent = make_agent(says("Done."), storage=Storage(journal=str(after)))
    async with serving(agent) as client_of:
        later = client_of("ada", messages=ada.messages)
        events = await later.answer(events, approved=True)
    assert sent == ["ines"] and text_of(events) == "Done."


async def test_a_tool_of_the_client_runs_there_and_the_run_goes_on_with_its_result(
    serving: Callable[..., Any],
) -> None:
    def use(history: Sequence[Message]) -> Any:
        return says(
            f"You picked {[one for one in history if isinstance(one, ToolMessage)][-1].text}."
        )

    agent = make_agent(calls(("pick_colour", {"hint": "warm"}, "c1")), use)
    async with serving(agent) as client_of:
        ada = client_of("ada", tools=[PICK])
        events = await ada.say("Paint it.")
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
        assert kinds(events)[-4:-1] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
        assert json.loads(events[-3]["delta"]) == {"hint": "warm"}
        ada.messages.append({"id": "r1", "role": "tool", "toolCallId": "c1", "content": "red"})
        events = await ada.run()
    assert text_of(events) == "You picked red."
    assert results_of(events) == {}


async def test_two_calls_of_the_client_are_told_of_together(serving: Callable[..., Any]) -> None:
    agent = make_agent(
        calls(("pick_colour", {"hint": "a"}, "c1"), ("pick_colour", {"hint": "b"}, "c2")),
        says("Done."),
    )
    async with serving(agent) as client_of:
        ada = client_of("ada", tools=[PICK])
        events = await ada.say("Paint it.")
        told: list[str] = []
        while events[-1]["outcome"].get("pendingToolCallIds"):
            for call in events[-1]["outcome"]["pendingToolCallIds"]:
                told.append(call)
                ada.messages.append(
                    {"id": f"r-{call}", "role": "tool", "toolCallId": call, "content": "red"}
                )
            events = await ada.run()
    assert sorted(told) == ["c1", "c2"] and text_of(events) == "Done."


async def test_the_client_is_not_told_of_a_call_that_the_gate_refuses(
    serving: Callable[..., Any],
) -> None:
    permissions = Permissions(deny=["pick_colour"])
    agent = Agent(
        Scripted([calls(("pick_colour", {"hint": "warm"}, "c1")), says("I may not.")]),
        permissions=permissions,
    )
    async with serving(agent) as client_of:
        events = await client_of("ada", tools=[PICK]).say("Paint it.")
    assert "c1" in results_of(events) and text_of(events) == "I may not."
    assert "pendingToolCallIds" not in events[-1]["outcome"]


async def test_the_client_is_told_of_a_call_of_its_own_once_the_person_has_allowed_it(
    serving: Callable[..., Any],
) -> None:
    agent = Agent(
        Scripted([calls(("pick_colour", {"hint": "warm"}, "c1"))]),
        permissions=Permissions(ask=["pick_colour"]),
    )
    async with serving(agent) as client_of:
        ada = client_of("ada", tools=[PICK])
        asked = await ada.say("Paint it.")
        assert asked[-1]["outcome"]["type"] == "interrupt"
        assert "TOOL_CALL_START" not in kinds(asked)
        events = await ada.answer(asked, approved=True)
    assert events[-1]["outcome"]["pendingToolCallIds"] == ["c1"]
    assert kinds(events)[-4:-1] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


async def test_another_message_fails_the_call_that_the_client_did_not_run(
    serving: Callable[..., Any],
) -> None:
    def use(history: Sequence[Message]) -> Any:
        last = [one.text for one in history if isinstance(one, UserMessage | ToolMessage)]
        return says(" / ".join(last[-2:]))

    agent = make_agent(calls(("pick_colour", {"hint": "warm"}, "c1")), use, says("third"))
    async with serving(agent) as client_of:
        ada = client_of("ada", tools=[PICK])
        await ada.say("Paint it.")
        events = await ada.say("Never mind.")
        later = await ada.say("Third.")
    assert "went on without" in text_of(events) and "Never mind." in text_of(events)
    assert "cancelled" in results_of(events)["c1"]
    assert text_of(later) == "third" and not results_of(later)
    assert [one["role"] for one in ada.messages].count("tool") == 1


async def test_a_tool_of_the_client_cannot_take_the_place_of_one_of_the_agents(
    serving: Callable[..., Any],
) -> None:
    async with serving(make_agent()) as client_of:
        ada = client_of("ada", tools=[{**PICK, "name": "send_mail"}])
        refused = await ada.post(messages=[{"id": "m", "role": "user", "content": "Hello."}])
    assert refused.status_code == 400 and "send_mail" in refused.json()["error"]["message"]


async def test_a_client_without_the_conversation_is_given_it(serving: Callable[..., Any]) -> None:
    agent = make_agent(calls(("count_stock", {"item": "bolt"}, "c1")), says("Four."))
    async with serving(agent) as client_of:
        await client_of("ada").say("How many?")
        later = client_of("ada")
        events = await later.run()
    assert kinds(events) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert [one["role"] for one in later.messages] == ["user", "assistant", "tool", "assistant"]
    assert later.messages[0]["content"] == "How many?" and later.messages[-1]["content"] == "Four."


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (ProviderError("the key sk-123 was refused", code="unauthorized"), "unauthorized"),
        (LookupError("sk-123"), "defect"),
    ],
    ids=["provider", "program"],
)
async def test_a_run_that_fails_says_so_and_its_message_can_be_sent_again(
    serving: Callable[..., Any], broken: Exception, code: str
) -> None:
    agent = make_agent(fails(broken), says("Hello."))
    async with serving(agent) as client_of:
        ada = client_of("ada")
        events = await ada.say("Hi.")
        assert events[-1]["type"] == "RUN_ERROR" and events[-1]["code"] == code
        assert "sk-123" not in events[-1]["message"]
        assert text_of(await ada.run()) == "Hello."


class Answer(BaseModel):
    """A number and what it counts."""

    number: int


async def test_a_run_that_ends_with_a_value_gives_it(serving: Callable[..., Any]) -> None:
    agent = Agent(Scripted([says('{"number": 4}')]), output_type=Answer, output_mode="prompt")
    async with serving(agent) as client_of:
        events = await client_of("ada").say("How many?")
    assert events[-1]["result"] == {"number": 4}


async def test_two_people_never_see_each_others_threads(serving: Callable[..., Any]) -> None:
    agent = make_agent(calls(("send_mail", {"to": "ines"}, "c1")), says("Hello Bo."), says("Done."))
    async with serving(agent) as client_of:
        ada, bo = client_of("ada"), client_of("bo")
        events = await ada.say("Write to Ines.")
        (asked,) = events[-1]["outcome"]["interrupts"]
        assert (await bo.run())[1] == {"type": "MESSAGES_SNAPSHOT", "messages": []}
        yes = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
        stolen = await bo.post(resume=[yes])
        assert stolen.status_code == 409 and sent == []
        assert text_of(await bo.say("Hello.")) == "Hello Bo."
        assert text_of(await ada.answer(events, approved=True)) == "Done."
    assert sent == ["ines"]
    owners = {(one.user, one.question) for one in agent.journal.sessions()}
    assert owners == {("ada", "Write to Ines."), ("bo", "Hello.")}


async def test_nobody_gets_anything_without_the_sign_in(serving: Callable[..., Any]) -> None:
    async with serving(make_agent()) as client_of:
        refused = await client_of("").post(
            messages=[{"id": "m", "role": "user", "content": "Hello."}]
        )
    assert refused.status_code == 401


async def test_a_client_that_leaves_its_stream_cancels_the_run() -> None:
    from ferrule.servers.ag_ui.server import AgUiServer

    begun, cancelled = asyncio.Event(), asyncio.Event()

    @tool(side_effect="read")
    async def wait_long() -> str:
        """Wait."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    agent = Agent(Scripted([calls(("wait_long", {}, "c1"))]), [wait_long])
    server = AgUiServer(agent, token="the-token-of-whoever-sits-here")
    body = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "m", "role": "user", "content": "Go."}],
    }
    inputs = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if inputs:
            return inputs.pop()
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        return None

    headers = [
        (b"host", b"127.0.0.1:8322"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer the-token-of-whoever-sits-here"),
    ]
    scope = {"type": "http", "method": "POST", "path": "/run", "headers": headers}
    async with asyncio.timeout(20):
        await server.app(scope, receive, send)
        await cancelled.wait()
    await server.close()
    (session,) = agent.journal.sessions()
    assert session.state == "cancelled"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"threadId": "a b"}, "threadId"),
        ({"runId": None}, "runId"),
        ({"messages": {}}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages[0].id"),
        ({"resume": [{"interruptId": "x", "status": "yes"}]}, "resume[0].status"),
        ({"tools": [{"name": "x"}]}, "tools[0].description"),
        (
            {
                "messages": [
                    {
                        "id": "m",
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "url", "value": "http://x"}}
                        ],
                    }
                ]
            },
            "addresses are not fetched",
        ),
    ],
)
async def test_input_that_cannot_be_read_is_refused_by_the_name_of_its_field(
    serving: Callable[..., Any], body: dict[str, Any], named: str
) -> None:
    whole = {"threadId": "t", "runId": "r", "messages": [], **body}
    async with serving(make_agent()) as client_of:
        http = client_of("ada").http
        refused = await http.post("/agent/run", json=whole, headers={"x-user": "ada"})
    assert refused.status_code == 400 and named in refused.json()["error"]["message"]
