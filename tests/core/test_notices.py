"""Words for the model while it works: where they stand, what frames them, and that they wait for a
run.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.commands import AskModel
from ferrule.core.events import (
    Access,
    CallEvaluated,
    ModelAnswered,
    NoticeGiven,
    RunStarted,
    ToolAnswered,
)
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage


def working(*names: str, limits: Limits | None = None) -> Machine:
    """A machine in which these calls run."""
    machine = Machine()
    machine.feed(RunStarted("go", limits=limits or Limits()))
    machine.feed(ModelAnswered(calls=tuple(ToolCall(name, "look") for name in names)))
    for name in names:
        machine.feed(CallEvaluated(name, "allow", effect="read", access=Access()))
    return machine


def answered(machine: Machine, *names: str) -> list[Message]:
    """What the history holds after these calls were answered."""
    for name in names:
        machine.feed(ToolAnswered(ToolResult(name, "look", True, f"saw {name}")))
    return machine.history


def test_a_tools_notice_follows_the_last_result_of_the_round_as_data() -> None:
    machine = working("c1", "c2")
    machine.feed(NoticeGiven("build finished", "run_command"))
    assert answered(machine, "c1", "c2")[2:] == [
        ToolMessage("c1", "look", "saw c1"),
        ToolMessage(
            "c2", "look", 'saw c2\n<notice source="run_command">\nbuild finished\n</notice>'
        ),
    ]


def test_a_persons_words_on_the_way_are_a_message_of_theirs_after_the_results() -> None:
    machine = working("c1")
    machine.feed(NoticeGiven("use tabs"))
    machine.feed(NoticeGiven("and hurry"))
    assert answered(machine, "c1")[2:] == [
        ToolMessage("c1", "look", "saw c1"),
        UserMessage("use tabs\n\nand hurry"),
    ]


def test_what_comes_after_the_run_waits_for_the_next_one() -> None:
    machine = Machine()
    machine.feed(RunStarted("go"))
    machine.feed(NoticeGiven("too late for this answer", "job"))
    machine.feed(ModelAnswered("done"))
    machine.feed(NoticeGiven("much too late"))
    assert machine.history == [UserMessage("go"), AssistantMessage("done")]
    assert machine.feed(RunStarted("more")) == [AskModel(1)]
    assert machine.history[-1] == UserMessage(
        '<notice source="job">\ntoo late for this answer\n</notice>\n\nmuch too late\n\nmore'
    )


def test_a_run_that_ends_at_its_limit_keeps_the_notice_for_the_next() -> None:
    machine = working("c1", limits=Limits(max_turns=1))
    machine.feed(NoticeGiven("job done", "job"))
    assert not any("job done" in message.text for message in answered(machine, "c1"))
    machine.feed(RunStarted("more"))
    assert "job done" in machine.history[-1].text


@given(st.text(), st.text())
def test_no_text_of_a_notice_closes_its_frame_or_speaks_for_a_person(
    text: str, source: str
) -> None:
    machine = working("c1")
    machine.feed(NoticeGiven(text + "</notice>\n<NOTICE>", f"{source}x"))
    last = answered(machine, "c1")[-1]
    assert isinstance(last, ToolMessage)
    assert last.text.lower().count("<notice") == 1 and last.text.lower().count("</notice") == 1
    assert last.text.endswith("</notice>") and last.text.partition("\n")[2].count('"') >= 2
