"""Tools for LangChain and LangGraph, driven by its fake chat model, and its tools as ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed here")

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
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send
from pydantic import Field

import ferrule
from ferrule import Agent, Permissions
from ferrule.adapters.langchain import convert_tools, guard
from media_samples import make_png

YES = {"decisions": [{"type": "approve"}]}
OTHER = ("write_file", {"path": "other.txt", "content": "more"})


class Scripted(GenericFakeChatModel):
    """LangChain's fake model, which also takes tools and keeps what it was given."""

    offered: list[Any] = Field(default_factory=list)

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Scripted:
        self.offered += [convert_to_openai_tool(one) for one in tools]
        return self


def scripted(*steps: list[tuple[str, Any]]) -> Scripted:
    """A model that makes these calls, a step at a time, and then says `done`."""
    messages = [
        AIMessage(
            "",
            tool_calls=[
                {"name": name, "args": dict(arguments), "id": f"call-{turn}-{number}"}
                for number, (name, arguments) in enumerate(calls)
            ],
        )
        for turn, calls in enumerate(steps)
    ]
    return Scripted(messages=iter([*messages, AIMessage("done")]))


def make_graph(model: Any, tools: Sequence[BaseTool], saver: Any, *, together: bool = False) -> Any:
    """A graph as `create_agent` builds it: each call is a task; or all calls are one (`together`)."""
    bound = model.bind_tools(tools)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def route(state: MessagesState) -> Any:
        calls = state["messages"][-1].tool_calls  # type: ignore[union-attr]
        if not calls:
            return END
        if together:
            return "tools"
        return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls]

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


CONFIG: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [HumanMessage("go")]}


def said(state: Any) -> dict[str, ToolMessage]:
    messages: list[BaseMessage] = state["messages"]
    return {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}


async def test_a_run_reads_writes_with_approval_is_refused_and_times_out(place: Place) -> None:
    model = scripted(*[[call] for call in THE_RUN])
    async with guard(place.agent(), session="s") as guarded:
        graph = make_graph(model, guarded.tools, InMemorySaver())
        asked = await graph.ainvoke(GO, CONFIG)
        (interrupt,) = asked["__interrupt__"]
        assert interrupt.value["action_requests"][0]["args"] == WRITE[1]
        assert interrupt.value["review_configs"][0]["action_name"] == "write_file"
        assert place.written() is None
        state = await graph.ainvoke(Command(resume=YES), CONFIG)
        names = list(guarded.session.catalog.api_names().values())
    assert state["messages"][-1].text == "done" and place.written() == "all of it"
    answers = said(state)
    assert "buy bolts" in answers["call-0-0"].text
    statuses = [answers[f"call-{turn}-0"].status for turn in range(4)]
    assert statuses == ["success", "success", "error", "error"]
    assert answers["call-0-0"].artifact["success"] is True
    assert [one["function"]["name"] for one in model.offered] == names
    calls = place.calls("s")
    assert outcomes(calls) == WHAT_THE_JOURNAL_SAYS
    assert calls[2].by.startswith("langchain call-1-0 tools:")
    assert place.approved_by("s") == ["langchain"]


async def test_the_stream_of_a_run_has_its_calls_and_its_interrupt(place: Place) -> None:
    async with guard(place.agent()) as guarded:
        graph = make_graph(scripted([("draw", {}), WRITE]), guarded.tools, InMemorySaver())
        updates = [one async for one in graph.astream(GO, CONFIG, stream_mode="updates")]
    (drawn,) = [one["tools"]["messages"][0] for one in updates if "tools" in one]
    assert [block["type"] for block in drawn.content_blocks] == ["text", "image"]
    assert drawn.content_blocks[1]["mime_type"] == "image/png"
    assert any("__interrupt__" in one for one in updates)


async def test_edited_arguments_are_asked_about_again(place: Place) -> None:
    edit = {"type": "edit", "edited_action": {"name": OTHER[0], "args": OTHER[1]}}
    async with guard(place.agent(), session="s") as guarded:
        graph = make_graph(scripted([WRITE]), guarded.tools, InMemorySaver())
        await graph.ainvoke(GO, CONFIG)
        again = await graph.ainvoke(Command(resume={"decisions": [edit]}), CONFIG)
        asked = again["__interrupt__"][0].value["action_requests"][0]
        assert asked["args"] == OTHER[1] and place.written("other.txt") is None
        await graph.ainvoke(Command(resume=True), CONFIG)
    assert (place.written(), place.written("other.txt")) == (None, "more")


@pytest.mark.parametrize(
    "no", [False, "approve", {"decisions": [{"type": "reject"}]}, {"decisions": []}]
)
async def test_anything_but_a_yes_is_a_no(place: Place, no: Any) -> None:
    async with guard(place.agent(), session="s") as guarded:
        graph = make_graph(scripted([WRITE]), guarded.tools, InMemorySaver())
        await graph.ainvoke(GO, CONFIG)
        state = await graph.ainvoke(Command(resume=no), CONFIG)
    assert said(state)["call-0-0"].status == "error" and place.written() is None
    assert [call.outcome for call in place.calls("s")] == ["permission_denied"] * 2


async def test_another_process_that_opens_the_session_takes_the_answer(place: Place) -> None:
    saver, model = InMemorySaver(), scripted([WRITE])
    async with guard(place.agent(), session="s") as guarded:
        await make_graph(model, guarded.tools, saver).ainvoke(GO, CONFIG)
    async with guard(place.agent(), session="s") as guarded:
        graph = make_graph(model, guarded.tools, saver)
        await graph.ainvoke(Command(resume=YES), CONFIG)
    assert place.written() == "all of it"


async def test_an_answer_that_this_session_did_not_ask_for_is_asked_for(place: Place) -> None:
    saver, model = InMemorySaver(), scripted([WRITE])
    async with guard(place.agent(), session="one") as guarded:
        await make_graph(model, guarded.tools, saver).ainvoke(GO, CONFIG)
    async with guard(place.agent(), session="two") as guarded:
        graph = make_graph(model, guarded.tools, saver)
        again = await graph.ainvoke(Command(resume=YES), CONFIG)
        assert again["__interrupt__"] and place.written() is None


async def approve_all(graph: Any, state: Any) -> Any:
    """Answer every question by its digest. One may come twice: a call beside it can be given its
    answer first.
    """
    for _ in range(6):
        if "__interrupt__" not in state:
            return state
        digest = state["__interrupt__"][0].value["approval"]["digest"]
        state = await graph.ainvoke(Command(resume={**YES, "digest": digest}), CONFIG)
    raise AssertionError("it is asked again and again")


async def test_a_call_that_still_runs_when_its_node_runs_again_is_not_made_again(
    place: Place,
) -> None:
    gate = asyncio.Event()
    begun: list[str] = []

    @ferrule.tool(side_effect="read", idempotent=False)
    async def hold() -> str:
        """Wait until it is released."""
        begun.append("hold")
        await gate.wait()
        return "held"

    @ferrule.tool(side_effect="read")
    async def release() -> str:
        """Release it."""
        gate.set()
        return "released"

    agent = place.agent(hold, release, ask=("hold", "release"))
    async with guard(agent, session="s") as guarded, asyncio.timeout(20):
        model = scripted([("hold", {}), ("release", {})])
        graph = make_graph(model, guarded.tools, InMemorySaver(), together=True)
        state = await approve_all(graph, await graph.ainvoke(GO, CONFIG))
    assert [one.text for one in said(state).values()] == ["held", "released"]
    assert begun == ["hold"]


async def test_a_node_that_runs_again_does_not_make_its_finished_calls_again(place: Place) -> None:
    made: list[str] = []

    async def count(word: str) -> str:
        """Count."""
        made.append(word)
        return word

    async with guard(place.agent(count), session="s") as guarded:
        steps = [("count", {"word": "one"}), WRITE, OTHER]
        graph = make_graph(scripted(steps), guarded.tools, InMemorySaver(), together=True)
        state = await graph.ainvoke(GO, CONFIG)
        state = await approve_all(graph, state)
    assert made == ["one"]
    assert (place.written(), place.written("other.txt")) == ("all of it", "more")
    assert [one.status for one in said(state).values()] == ["success"] * 3


async def test_where_several_wait_in_one_task_an_answer_must_name_its_own(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        graph = make_graph(scripted([WRITE, OTHER]), guarded.tools, InMemorySaver(), together=True)
        await graph.ainvoke(GO, CONFIG)
        state = await graph.ainvoke(Command(resume=YES), CONFIG)
        assert "__interrupt__" in state
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            # What a node leaves behind when it is interrupted.
            await asyncio.wait(others, timeout=10)
    assert place.approved_by("s") == []
    assert (place.written(), place.written("other.txt")) == (None, None)


async def test_outside_a_graph_a_call_that_needs_an_approval_fails(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        tools = {one.name: one for one in guarded.tools}
        call = {"type": "tool_call", "id": "1", "name": "write_file", "args": WRITE[1]}
        answer = await tools["write_file"].ainvoke(call)
        assert answer.status == "error" and "outside a graph" in answer.text
        assert "buy bolts" in await tools["read_file"].ainvoke(READ[1])
        with pytest.raises(NotImplementedError, match="ainvoke"):
            tools["read_file"].invoke(READ[1])
    assert place.written() is None


async def test_refusals_and_timeouts_of_one_step_come_back_in_order(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        graph = make_graph(scripted([SLOW, FORBIDDEN, READ]), guarded.tools, None, together=True)
        state = await graph.ainvoke(GO)
    assert list(said(state)) == ["call-0-0", "call-0-1", "call-0-2"]
    assert {call.outcome for call in place.calls("s")} == {
        "timeout",
        "permission_denied",
        "success",
    }


async def test_their_tools_run_behind_the_gate(tmp_path: Path) -> None:
    @tool
    def add(first: int, second: int = 2) -> int:
        """Add two numbers."""
        if first < 0:
            raise ToolException("no negative numbers")
        return first + second

    async def draw() -> list[dict[str, Any]]:
        """Draw."""
        import base64

        encoded = base64.b64encode(make_png()).decode()
        return [
            {"type": "text", "text": "a square"},
            {"type": "image", "base64": encoded, "mime_type": "image/png"},
        ]

    drawing = StructuredTool.from_function(coroutine=draw)
    agent = Agent("scripted:none", convert_tools([add, drawing]), permissions=Permissions(deny=()))
    session = agent.session()
    added, refused, failed, drawn = await asyncio.gather(
        session.call("add", first=1),
        session.call("add", first="one"),
        session.call("add", first=-1),
        session.call("draw"),
    )
    await session.close()
    assert added.data == "3" and not added.notes
    assert str(refused.error_type) == "validation_failed"
    assert str(failed.error_type) == "tool_error" and "no negative numbers" in failed.to_text()
    assert drawn.media[0].mime == "image/png" and "a square" in drawn.data
    properties = agent.catalog.get("add").arguments.schema["properties"]  # type: ignore[union-attr]
    assert properties["second"]["default"] == 2


async def test_create_agent_of_langchain_takes_the_tools_as_they_are(place: Place) -> None:
    agents = pytest.importorskip(
        "langchain.agents", reason="`make lab NAME=adapters` has LangChain whole"
    )
    async with guard(place.agent(), session="s") as guarded:
        helper = agents.create_agent(
            scripted([READ, WRITE]), guarded.tools, checkpointer=InMemorySaver()
        )
        asked = await helper.ainvoke(GO, CONFIG)
        assert len(asked["__interrupt__"]) == 1
        state = await helper.ainvoke(Command(resume=YES), CONFIG)
    assert state["messages"][-1].text == "done" and place.written() == "all of it"
    assert len(place.calls("s")) == 3
