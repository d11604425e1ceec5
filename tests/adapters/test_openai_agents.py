"""Tools for the OpenAI Agents SDK, driven by its own scripted model."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed here")

from adapter_place import READ, THE_RUN, WHAT_THE_JOURNAL_SAYS, WRITE, Place, outcomes
from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
)
from agents.items import ToolCallItem, ToolCallOutputItem
from agents.stream_events import RunItemStreamEvent
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic import BaseModel

from ferrule.adapters.openai_agents import GuardedAgentTools, guard
from ferrule.hooks import Action, CompletionPost, OutputPost, TurnStart, block, hook, modify
from ferrule.testing import RecordingApprover

QUIET = RunConfig(tracing_disabled=True)


def scripted(*steps: list[tuple[str, Any]]) -> ScriptedModel:
    """A model that makes these calls, a step at a time, and then says `done`."""
    made = [
        [
            function_call(name, dict(arguments), call_id=f"call-{turn}-{number}")
            for number, (name, arguments) in enumerate(calls)
        ]
        for turn, calls in enumerate(steps)
    ]
    return ScriptedModel([*made, [assistant_message("done")]])


def outputs(result: Any) -> dict[str, Any]:
    return {
        one.raw_item["call_id"]: one.output
        for one in result.new_items
        if isinstance(one, ToolCallOutputItem)
    }


async def test_a_run_reads_writes_with_approval_is_refused_and_times_out(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        model = scripted(*[[call] for call in THE_RUN])
        helper = Agent("helper", model=model, tools=guarded.tools)
        asked = await Runner.run(helper, "go", run_config=QUIET)
        (waiting,) = asked.interruptions
        assert waiting.name == "write_file" and json.loads(waiting.arguments) == WRITE[1]
        assert place.written() is None
        state = asked.to_state()
        state.approve(waiting)
        result = await Runner.run(helper, state, run_config=QUIET)
    assert result.final_output == "done" and place.written() == "all of it"
    said = outputs(result)
    assert "buy bolts" in said["call-0-0"]
    assert '"error_type":"permission_denied"' in said["call-2-0"]
    assert '"error_type":"timeout"' in said["call-3-0"]
    calls = place.calls("s")
    assert outcomes(calls) == WHAT_THE_JOURNAL_SAYS
    assert calls[2].by == "openai-agents call-1-0"
    assert place.approved_by("s") == ["openai-agents"]


async def test_the_stream_of_a_run_has_its_calls_and_their_outputs(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        helper = Agent("helper", model=scripted([("draw", {})]), tools=guarded.tools)
        streamed = Runner.run_streamed(helper, "go", run_config=QUIET)
        items = [
            event.item
            async for event in streamed.stream_events()
            if isinstance(event, RunItemStreamEvent)
        ]
    assert [type(one) for one in items][:2] == [ToolCallItem, ToolCallOutputItem]
    output = items[1].raw_item["output"]  # type: ignore[index,union-attr]
    assert [part["type"] for part in output] == ["input_text", "input_image"]
    assert output[1]["image_url"].startswith("data:image/png;base64,")
    assert streamed.final_output == "done"


async def test_another_process_that_opens_the_session_takes_the_answer(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        helper = Agent("helper", model=scripted([WRITE, READ]), tools=guarded.tools)
        asked = await Runner.run(helper, "go", run_config=QUIET)
        kept = asked.to_state().to_json()
    async with guard(place.agent(), session="s") as guarded:
        after = ScriptedModel([[assistant_message("done")]])
        helper = Agent("helper", model=after, tools=guarded.tools)
        state: Any = await RunState.from_json(helper, kept)
        state.approve(state.get_interruptions()[0])
        result = await Runner.run(helper, state, run_config=QUIET)
    assert result.final_output == "done" and place.written() == "all of it"
    reads = [call for call in place.calls("s") if call.tool == "read_file"]
    assert len(reads) == 1


async def test_an_approval_for_always_approves_no_other_arguments(place: Place) -> None:
    other = ("write_file", {"path": "other.txt", "content": "more"})
    async with guard(place.agent(), session="s") as guarded:
        helper = Agent("helper", model=scripted([WRITE], [other]), tools=guarded.tools)
        asked = await Runner.run(helper, "go", run_config=QUIET)
        state = asked.to_state()
        state.approve(asked.interruptions[0], always_approve=True)
        result = await Runner.run(helper, state, run_config=QUIET)
    assert place.written() == "all of it" and place.written("other.txt") is None
    assert not result.interruptions and "was not run" in outputs(result)["call-1-0"]


async def test_a_rejection_leaves_the_call_not_run(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        helper = Agent("helper", model=scripted([WRITE]), tools=guarded.tools)
        asked = await Runner.run(helper, "go", run_config=QUIET)
        state = asked.to_state()
        state.reject(asked.interruptions[0])
        result = await Runner.run(helper, state, run_config=QUIET)
    assert result.final_output == "done" and place.written() is None
    assert outcomes(place.calls("s")) == [("write_file", "permission_denied")]


async def test_the_agents_own_approver_is_asked_if_it_has_one(place: Place) -> None:
    approver = RecordingApprover(["once"])
    async with guard(place.agent(approver=approver), session="s") as guarded:
        helper = Agent("helper", model=scripted([WRITE]), tools=guarded.tools)
        result = await Runner.run(helper, "go", run_config=QUIET)
    assert result.final_output == "done" and len(approver.requests) == 1
    assert outcomes(place.calls("s")) == [("write_file", "success")]


async def test_arguments_that_are_no_json_or_do_not_fit_are_told_to_the_model(place: Place) -> None:
    calls = [
        function_call("read_file", '{"path": ', call_id="cut"),
        function_call("read_file", {"nothing": "x"}, call_id="unknown"),
    ]
    async with guard(place.agent(), session="s") as guarded:
        model = ScriptedModel([calls, [assistant_message("done")]])
        helper = Agent("helper", model=model, tools=guarded.tools)
        asked = await Runner.run(helper, "go", run_config=QUIET)
        state = asked.to_state()
        for one in asked.interruptions:
            # The SDK itself wants an approval for arguments that it cannot read.
            state.approve(one)
        result = await Runner.run(helper, state, run_config=QUIET)
    said = outputs(result)
    assert "parse_error" in said["cut"] and "validation_failed" in said["unknown"]
    assert len(place.calls("s")) == 2


# ---- guardrails


@hook("turn.start")
def no_secrets(message: TurnStart) -> Action | None:
    return block("nobody asks for that") if "password" in message.text else None


@hook("completion.post")
def no_promises(answer: CompletionPost) -> Action | None:
    return block("that is a promise") if "I promise" in answer.text else None


@hook("output")
def no_debts(answer: OutputPost) -> Action | None:
    return block("debts are not answered") if answer.value["balance"] < 0 else None


def guarded_helper(guarded: GuardedAgentTools, says: str, **options: Any) -> Agent[Any]:
    model = ScriptedModel([[assistant_message(says)]])
    return Agent(
        "helper",
        model=model,
        tools=guarded.tools,
        input_guardrails=[*guarded.input_guardrails],
        output_guardrails=[*guarded.output_guardrails],
        **options,
    )


@pytest.mark.parametrize(
    "given",
    [
        "the password, please",
        [{"role": "user", "content": [{"type": "input_text", "text": "the password, please"}]}],
    ],
)
async def test_a_message_that_a_hook_refuses_trips_before_the_model_is_asked(
    place: Place, given: Any
) -> None:
    async with guard(place.agent(hooks=[no_secrets]), session="s") as guarded:
        helper = guarded_helper(guarded, "done")
        with pytest.raises(InputGuardrailTripwireTriggered) as tripped:
            await Runner.run(helper, given, run_config=QUIET)
        said = str(tripped.value.guardrail_result.output.output_info)
        assert "no_secrets" in said and "nobody asks for that" in said
        assert isinstance(helper.model, ScriptedModel) and not helper.model.calls
        passed = await Runner.run(helper, "the time, please", run_config=QUIET)
    assert passed.final_output == "done"


async def test_an_answer_that_a_hook_refuses_trips(place: Place) -> None:
    async with guard(place.agent(hooks=[no_promises]), session="s") as guarded:
        with pytest.raises(OutputGuardrailTripwireTriggered) as tripped:
            await Runner.run(guarded_helper(guarded, "I promise it"), "go", run_config=QUIET)
        assert "that is a promise" in str(tripped.value.guardrail_result.output.output_info)
        passed = await Runner.run(guarded_helper(guarded, "It is so"), "go", run_config=QUIET)
    assert passed.final_output == "It is so"


class Account(BaseModel):
    balance: int


async def test_a_typed_answer_that_a_hook_refuses_trips(place: Place) -> None:
    async with guard(place.agent(hooks=[no_debts]), session="s") as guarded:
        for balance, is_refused in ((-1, True), (1, False)):
            said = json.dumps({"balance": balance})
            helper = guarded_helper(guarded, said, output_type=Account)
            if is_refused:
                with pytest.raises(OutputGuardrailTripwireTriggered):
                    await Runner.run(helper, "go", run_config=QUIET)
            else:
                result = await Runner.run(helper, "go", run_config=QUIET)
                assert result.final_output == Account(balance=1)


async def test_a_change_that_cannot_be_made_and_a_hook_that_fails_trip_too(place: Place) -> None:
    @hook("turn.start")
    def rewrite(message: TurnStart) -> Action:
        return modify({"text": "something else"})

    @hook("turn.start")
    def fail(message: TurnStart) -> Action:
        raise ValueError("no")

    for number, broken in enumerate((rewrite, fail)):
        async with guard(place.agent(hooks=[broken]), session=f"s{number}") as guarded:
            with pytest.raises(InputGuardrailTripwireTriggered):
                await Runner.run(guarded_helper(guarded, "done"), "go", run_config=QUIET)


async def test_without_hooks_nothing_trips(place: Place) -> None:
    async with guard(place.agent(), session="s") as guarded:
        result = await Runner.run(guarded_helper(guarded, "done"), "go", run_config=QUIET)
    assert result.final_output == "done"
