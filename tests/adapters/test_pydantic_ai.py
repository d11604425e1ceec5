"""Tools for Pydantic AI, driven by its own test models, and its tools as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed here")

from adapter_place import (
    FORBIDDEN,
    READ,
    SLOW,
    THE_RUN,
    WHAT_THE_JOURNAL_SAYS,
    WRITE,
    Place,
    outcomes,
)
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from ferrule import Agent as FerruleAgent
from ferrule import Permissions, Storage
from ferrule.adapters.pydantic_ai import guard, open_tools
from ferrule.testing import RecordingApprover


def scripted(*steps: list[tuple[str, Any]], seen: list[AgentInfo] | None = None) -> FunctionModel:
    """A model that makes these calls, a step at a time, and then says `done`."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        if turn >= len(steps):
            return ModelResponse(parts=[TextPart("done")])
        parts = [
            ToolCallPart(name, arguments, tool_call_id=f"call-{turn}-{number}")
            for number, (name, arguments) in enumerate(steps[turn])
        ]
        return ModelResponse(parts=parts)

    return FunctionModel(answer)


def returns(messages: list[ModelMessage]) -> dict[str, ToolReturnPart]:
    return {
        part.tool_call_id: part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }


def helper(model: Any, tools: Any) -> Agent[None, str | DeferredToolRequests]:
    return Agent(model, toolsets=tools, output_type=[str, DeferredToolRequests])


async def test_a_run_reads_writes_with_approval_is_refused_and_times_out(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        agent = helper(scripted(*[[call] for call in THE_RUN]), guarded.tools)
        asked = await agent.run("go")
        assert isinstance(asked.output, DeferredToolRequests) and place.written() is None
        (waiting,) = asked.output.approvals
        about = asked.output.metadata[waiting.tool_call_id]
        assert about["tool"] == "write_file" and about["arguments"]["path"] == "done.txt"
        result = await agent.run(
            message_history=asked.all_messages(),
            deferred_tool_results=asked.output.build_results(approve_all=True),
        )
    assert result.output == "done" and place.written() == "all of it"
    said = returns(result.all_messages())
    assert "buy bolts" in str(said["call-0-0"].content)
    assert [said[f"call-{turn}-0"].outcome for turn in range(4)] == [
        "success",
        "success",
        "failed",
        "failed",
    ]
    calls = place.calls("s")
    assert outcomes(calls) == WHAT_THE_JOURNAL_SAYS
    assert calls[2].by == "pydantic-ai call-1-0"
    assert place.approved_by("s") == ["pydantic-ai"]


async def test_the_stream_of_a_run_has_the_events_of_its_calls(place: Place) -> None:
    async with guard(place.agent()) as guarded:
        agent = helper(TestModel(call_tools=["draw"]), guarded.tools)
        async with agent.run_stream_events("go") as stream:
            events = [event async for event in stream]
    (called,) = [event for event in events if isinstance(event, FunctionToolCallEvent)]
    (answered,) = [event for event in events if isinstance(event, FunctionToolResultEvent)]
    assert called.part.tool_name == "draw" and answered.part.tool_name == "draw"
    content = answered.part.content
    assert isinstance(content, list) and isinstance(content[1], BinaryContent)
    assert content[1].media_type == "image/png" and content[1].data.startswith(b"\x89PNG")


async def test_their_test_model_calls_every_tool_with_what_its_schema_says(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        names = sorted(guarded.session.catalog.api_names().values())
        model = TestModel()
        result = await helper(model, guarded.tools).run("go")
        assert model.last_model_request_parameters is not None
        offered = model.last_model_request_parameters.function_tools
    assert [one.name for one in offered] == names
    asked = {one.tool_name for one in result.output.approvals}  # type: ignore[union-attr]
    assert "write_file" in asked and "read_file" not in asked
    assert {call.tool for call in place.calls("s")} == set(names)


async def test_an_approval_counts_for_the_arguments_that_were_asked_about(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        agent = helper(scripted([WRITE]), guarded.tools)
        asked = await agent.run("go")
        other = ToolApproved(override_args={"path": "other.txt", "content": "changed"})
        again = await agent.run(
            message_history=asked.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"call-0-0": other}),
        )
        assert isinstance(again.output, DeferredToolRequests) and place.written("other.txt") is None
        assert again.output.metadata["call-0-0"]["arguments"]["path"] == "other.txt"
    assert outcomes(place.calls("s")) == [("write_file", "permission_denied")] * 2


async def test_an_approval_that_nobody_was_asked_for_is_asked_for(place: Place) -> None:
    model = scripted([WRITE])
    async with guard(place.agent(), session="one") as guarded:
        asked = await helper(model, guarded.tools).run("go")
    async with guard(place.agent(), session="two") as guarded:
        again = await helper(model, guarded.tools).run(
            message_history=asked.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"call-0-0": True}),
        )
        assert isinstance(again.output, DeferredToolRequests)
    assert place.written() is None


async def test_another_process_that_opens_the_session_takes_the_answer(place: Place) -> None:
    model = scripted([WRITE])
    async with guard(place.agent(), session="s") as guarded:
        asked = await helper(model, guarded.tools).run("go")
    async with guard(place.agent(), session="s") as guarded:
        result = await helper(model, guarded.tools).run(
            message_history=asked.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"call-0-0": True}),
        )
    assert result.output == "done" and place.written() == "all of it"
    assert [call.outcome for call in place.calls("s")] == ["permission_denied", "success"]


async def test_a_denial_of_their_person_leaves_the_call_not_run(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        agent = helper(scripted([WRITE, READ]), guarded.tools)
        asked = await agent.run("go")
        result = await agent.run(
            message_history=asked.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"call-0-0": ToolDenied("no")}),
        )
    assert result.output == "done" and place.written() is None
    said = returns(result.all_messages())
    assert said["call-0-0"].content == "no" and "buy bolts" in str(said["call-0-1"].content)
    assert sorted(outcomes(place.calls("s"))) == [
        ("read_file", "success"),
        ("write_file", "permission_denied"),
    ]


async def test_the_agents_own_approver_is_asked_if_it_has_one(place: Place) -> None:
    approver = RecordingApprover(["once"])
    async with guard(place.agent(approver=approver), session="s") as guarded:
        result = await helper(scripted([WRITE]), guarded.tools).run("go")
    assert result.output == "done" and place.written() == "all of it"
    assert outcomes(place.calls("s")) == [("write_file", "success")]


async def test_arguments_that_do_not_fit_are_a_retry(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        result = await helper(scripted([("read_file", {"file": 1})], [READ]), guarded.tools).run(
            "go"
        )
    parts = [part for one in result.all_messages() for part in one.parts]
    tried = [
        part
        for part in parts
        if isinstance(part, RetryPromptPart)
        or (isinstance(part, ToolReturnPart) and part.outcome not in ("success",))
    ]
    assert tried and "path" in str(tried[0].content)
    assert outcomes(place.calls("s")) == [
        ("read_file", "validation_failed"),
        ("read_file", "success"),
    ]


async def test_calls_of_one_answer_that_conflict_keep_their_order(place: Place) -> None:
    steps = [
        ("write_file", {"path": "log.txt", "content": "one"}),
        ("read_file", {"path": "log.txt"}),
        FORBIDDEN,
        SLOW,
    ]
    agent = place.agent(allow=("Read(**)", "Edit(**)"))
    async with guard(agent, session="s") as guarded:
        result = await helper(scripted(steps), guarded.tools).run("go")
    assert "one" in str(returns(result.all_messages())["call-0-1"].content)


async def test_their_tools_and_toolsets_run_behind_the_gate(tmp_path: Path) -> None:
    toolset = FunctionToolset[str]()

    @toolset.tool
    async def greet(ctx: RunContext[str], name: str, loudly: bool = False) -> str:
        """Greet somebody."""
        if name == "nobody":
            raise ModelRetry("greet somebody")
        return f"{ctx.deps} {name}{'!' if loudly else ''}"

    def erase(path: str) -> str:
        return f"{path} is gone"

    journal = tmp_path / "journal.db"
    async with open_tools(
        toolset, PydanticTool(erase, requires_approval=True), deps="hello"
    ) as tools:
        agent = FerruleAgent(
            "scripted:none",
            tools,
            permissions=Permissions(approver=RecordingApprover(["deny"])),
            storage=Storage(journal=journal),
        )
        session = agent.session()
        greeted = await session.call("greet", name="Ada", loudly=True)
        plain = await session.call("greet", name="Bob")
        retried = await session.call("greet", name="nobody")
        refused = await session.call("greet", nickname="x")
        erased = await session.call("erase", path="x")
        await session.close()
    assert (greeted.data, plain.data) == ("hello Ada!", "hello Bob")
    assert str(retried.error_type) == "validation_failed" and "greet somebody" in retried.to_text()
    assert str(refused.error_type) == "validation_failed"
    assert str(erased.error_type) == "permission_denied"
    schema = tools[0].arguments.schema
    assert schema["properties"]["loudly"] == {"default": False, "type": "boolean"}
    assert str(tools[0].side_effect) == "undeclared"
