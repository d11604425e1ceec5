"""Calls that take more than one round: questions to a person, and tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from conftest_mcp import Place

from ferrule.connectors.mcp import Form, FormFiller, multi_round_requests
from ferrule.core.calls import ErrorType, ToolResult
from ferrule.permissions.approvals import (
    AllowlistApprover,
    ApprovalAnswer,
    ApprovalRequest,
    DenyingApprover,
)
from ferrule.tools.reliability import Policies, Reliability

BOTH = pytest.mark.parametrize("era", ["old", "new"])


class Person:
    """Says yes to calls, and what it was made for to questions of servers, which it remembers."""

    def __init__(self, choice: Any) -> None:
        self.choice = choice
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        if request.tool.name != "answer_mcp_server":
            return ApprovalAnswer("once")
        self.asked.append(request)
        return ApprovalAnswer(self.choice)


@BOTH
@pytest.mark.parametrize("choice", ["once", "deny"])
async def test_a_question_of_a_server_is_put_to_the_person_of_the_run(
    place: Place, era: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_round_requests, "_RETRY_SECONDS", 3600)  # An answer does not wait.
    person = Person(choice)
    session = place.session(await place.servers(place.plain(era, "good")), approver=person)
    place.behave("asks")
    result = await session.call("plain__echo", text="x")
    assert result.success
    answer = (
        {"action": "accept", "content": {"sure": True}}
        if choice == "once"
        else {"action": "decline"}
    )
    assert result.data["answer"].items() >= answer.items()
    assert result.data["state"] == ("s1" if era == "new" else None)
    assert (
        "server `plain` asks: Are you sure?" in person.asked[0].reason
        and person.asked[0].risk == "critical"
    )


@BOTH
async def test_the_time_that_a_person_takes_to_answer_is_not_the_calls(
    place: Place, era: str
) -> None:
    class SlowPerson(Person):
        async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
            if request.tool.name == "answer_mcp_server":
                await asyncio.sleep(1.2)
            return await super().ask(request)

    spec = place.plain(era, policies=Policies(Reliability(timeout=1.0)))
    session = place.session(await place.servers(spec), approver=SlowPerson("once"))
    place.behave("asks")
    result = await session.call("plain__echo", text="x")
    assert result.success, result.error_message
    assert result.data["answer"]["action"] == "accept"


@BOTH
async def test_without_a_person_a_question_is_declined(place: Place, era: str) -> None:
    servers = await place.servers(place.plain(era))
    session = place.session(servers, approver=AllowlistApprover(["plain__*"], DenyingApprover()))
    place.behave("asks")
    result = await session.call("plain__echo", text="x")
    assert result.data["answer"]["action"] == "decline"


@BOTH
async def test_a_question_for_a_secret_reaches_nobody(place: Place, era: str) -> None:
    person = Person("once")
    filled: list[Form] = []

    async def fill(form: Form) -> Mapping[str, Any]:
        filled.append(form)
        return {"password": "hunter2"}

    session = place.session(
        await place.servers(place.plain(era)), approver=person, resources=[FormFiller(fill)]
    )
    place.behave("asks-secret")
    result = await session.call("plain__echo", text="x")
    assert result.data["answer"]["action"] == "decline"
    assert (person.asked, filled) == ([], [])


@BOTH
async def test_values_are_asked_for_where_something_can_take_them(place: Place, era: str) -> None:
    async def fill(form: Form) -> Mapping[str, Any]:
        assert (form.server, form.message, form.required) == ("plain", "Are you sure?", ("city",))
        return {"city": "Ghent"}

    servers = await place.servers(place.plain(era))
    session = place.session(servers, resources=[FormFiller(fill)])
    place.behave("asks-values")
    assert (await session.call("plain__echo", text="x")).data["answer"]["content"] == {
        "city": "Ghent"
    }
    without = place.session(servers)
    assert (await without.call("plain__echo", text="x")).data["answer"]["action"] == "cancel"


async def test_a_server_that_wants_another_round_forever_gets_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_round_requests, "_RETRY_SECONDS", 0.01)
    session = place.session(await place.servers(place.plain("new")))
    place.behave("asks-forever")
    result = await session.call("plain__echo", text="x")
    assert result.error_type is ErrorType.TOOL_ERROR and "more than 10 times" in (
        result.error_message or ""
    )


async def test_a_server_that_asks_nothing_is_not_sent_the_request_again_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_round_requests, "_RETRY_SECONDS", 3600)
    spec = place.plain("new", policies=Policies(Reliability(timeout=0.5)))
    session = place.session(await place.servers(spec))
    place.behave("asks-forever")
    assert (await session.call("plain__echo", text="x")).error_type is ErrorType.TIMEOUT
    assert len(place.sent("tools/call")) <= 1


async def test_a_task_is_followed_to_its_end(place: Place) -> None:
    session = place.session(await place.servers(place.plain("new")))
    place.behave("task")
    assert (await session.call("plain__echo", text="x")).data == "task done"
    assert len(place.sent("tasks/get")) == 3


async def test_cancelling_a_call_cancels_its_task_at_the_server(place: Place) -> None:
    session = place.session(await place.servers(place.plain("new")))
    place.behave("task")
    (place.root / "hold").write_text("")
    call = asyncio.create_task(session.call("plain__echo", text="x"))
    await place.until(lambda: bool(place.sent("tasks/get")))
    call.cancel()
    await asyncio.wait([call])
    await place.until(lambda: bool(place.sent("tasks/cancel")))
    assert json.dumps(place.sent("tasks/cancel")[0]["params"]["taskId"]) == '"t1"'


async def test_on_another_event_loop_a_server_is_started_anew(place: Place) -> None:
    servers = await place.servers(place.plain("old"))
    session = place.session(servers)
    assert (await session.call("plain__echo", text="one")).success
    started = len(place.sent("initialize"))

    async def call_elsewhere() -> ToolResult:
        async with asyncio.timeout(20):
            return await place.session(servers).call("plain__echo", text="two")

    assert (await asyncio.to_thread(asyncio.run, call_elsewhere())).success
    assert len(place.sent("initialize")) == started + 1
