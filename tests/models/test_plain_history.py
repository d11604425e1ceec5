"""A history with tools as one without: sides take turns, and what was said once is not said
again.
"""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.tool_modes.plain_history import PlainHistory

MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, st.text(max_size=5)),
    st.builds(AssistantMessage, st.text(max_size=5)),
    st.builds(ToolMessage, st.just("c"), st.just("look"), st.text(max_size=5)),
)


def plain() -> PlainHistory:
    return PlainHistory(lambda text, calls: text + "".join(call.tool for call in calls))


def test_results_and_words_on_the_way_are_one_message() -> None:
    history = [
        UserMessage("context"),
        UserMessage("go"),
        AssistantMessage("", (ToolCall("c", "look"),)),
        ToolMessage("c", "look", "saw"),
        UserMessage("use tabs"),
    ]
    assert plain().convert(history) == [
        UserMessage("context\n\ngo"),
        AssistantMessage("look"),
        UserMessage(
            '<tool_results>\n<result tool="look">\nsaw\n</result>\n</tool_results>\n\nuse tabs'
        ),
    ]


@given(st.lists(MESSAGES, max_size=12))
def test_no_two_messages_of_the_persons_side_follow_each_other(history: list[Message]) -> None:
    sides = [type(message) for message in plain().convert(history)]
    assert (UserMessage, UserMessage) not in itertools.pairwise(sides)
    assert ToolMessage not in sides


@given(st.lists(st.lists(MESSAGES, max_size=4), max_size=4))
def test_a_history_given_bit_by_bit_after_each_answer_reads_as_one_given_at_once(
    rounds: list[list[Message]],
) -> None:
    whole: list[Message] = []
    growing = plain()
    for messages in rounds:
        whole += [*messages, AssistantMessage("said")]
        growing.convert(whole)
    assert growing.convert(whole) == plain().convert(whole)
