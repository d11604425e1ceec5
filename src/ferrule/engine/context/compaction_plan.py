"""Where a history is cut: which results are elided and which messages are summarized. Pure.

Both are decided by sizes and places alone, the oldest first, so the same history is always cut at
the same places. A cut never separates a call from its result; the last messages stay as they are.

Sizes are estimates in tokens: bytes of UTF-8 divided by `BYTES_PER_TOKEN`. English and code have
about three to four and a half bytes per token, Chinese and Japanese about three. A provider's count
is better and is preferred wherever it is known (`engine.context.window`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ferrule.core.compaction import can_leave_out
from ferrule.core.media import estimate_media_tokens
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.core.value_class import frozen

BYTES_PER_TOKEN = 3.5
"""Bytes of text per token."""
MESSAGE_OVERHEAD = 4
"""Tokens that a message takes besides its text."""
STUB_TOKENS = 110
"""Maximum number of tokens of a stub."""
MIN_ELIDED_TOKENS = 2 * STUB_TOKENS
"""Results of fewer tokens are not elided: it would save next to nothing."""


def estimate_text_tokens(text: str) -> int:
    """Return roughly how many tokens a text takes."""
    return int(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN) + 1


def estimate_tokens(message: Message) -> int:
    """Return roughly how many tokens a message takes.

    Reasoning is not counted: most providers drop it.
    """
    total = estimate_text_tokens(message.text) + MESSAGE_OVERHEAD
    if isinstance(message, AssistantMessage):
        total += sum(
            estimate_text_tokens(call.arguments)
            + estimate_text_tokens(call.tool)
            + MESSAGE_OVERHEAD
            for call in message.calls
        )
    elif message.media:
        total += estimate_media_tokens(message.media)
    return total


@frozen
class Plan:
    """What is left out.

    Attributes:
        results: Indexes of the results that are elided.
        cut: Number of messages from the beginning that become a summary; 0 for none.
        light: Whether the request for the summary has stubs for these results too, since it would
            not fit otherwise.
    """

    results: tuple[int, ...] = ()
    cut: int = 0
    light: bool = False


@frozen
class MeasuredHistory:
    """A history to compact.

    Attributes:
        messages: The messages.
        weights: Their sizes in tokens.
        free: Indexes of the messages that may be left out.
        is_stub: Tells of an index whether the result is a stub already.
    """

    messages: Sequence[Message]
    weights: Sequence[int]
    free: range
    is_stub: Callable[[int], bool]


@frozen
class CompactionGoal:
    """What a compaction should save, and what it may do for that.

    Attributes:
        tokens: Tokens to save.
        added_tokens: Tokens of a summary and the person's messages that stay beside it.
        max_request_tokens: Tokens of messages that the request for the summary may have.
        allows_summary: Whether a summary may be made.
        is_by_person: Whether a person asked for it; otherwise a summary must save more than eliding
            alone.
    """

    tokens: int
    added_tokens: int
    max_request_tokens: float
    allows_summary: bool
    is_by_person: bool


def plan_compaction(history: MeasuredHistory, goal: CompactionGoal) -> Plan:
    """Plan how to reach a goal.

    Results are elided first; if that is not enough, and a summary is allowed, the oldest messages
    are summarized.
    """
    weights = history.weights
    results = tuple(plan_elisions(history, goal.tokens))
    gains = {index: weights[index] - STUB_TOKENS for index in results}
    elided = sum(gains.values())
    if not goal.allows_summary or elided >= goal.tokens:
        return Plan(results)
    least = 0 if goal.is_by_person else elided
    slim = [
        min(size, STUB_TOKENS) if index in gains else size for index, size in enumerate(weights)
    ]
    whole = find_cut(history, gains, goal, request_weights=weights, least=least)
    light = find_cut(history, gains, goal, request_weights=slim, least=least)
    return Plan(results, max(whole, light), light > whole)


def plan_elisions(history: MeasuredHistory, tokens: int) -> Iterator[int]:
    """Yield the indexes of results to elide, oldest first, until so many tokens are saved."""
    for index in history.free:
        if tokens <= 0:
            return
        weight = history.weights[index]
        is_result = isinstance(history.messages[index], ToolMessage)
        if is_result and weight >= MIN_ELIDED_TOKENS and not history.is_stub(index):
            yield index
            tokens -= weight - STUB_TOKENS


def find_kept_start(history: Sequence[Message], keep: int) -> int:
    """Return the index of the first message that stays as it is.

    The last `keep` messages stay, and what belongs to the same turn.
    """
    index = max(0, len(history) - max(1, keep))
    while index > 0 and not can_leave_out(history, index):
        index -= 1
    return index


def find_cut(
    history: MeasuredHistory,
    gains: Mapping[int, int],
    goal: CompactionGoal,
    *,
    request_weights: Sequence[int],
    least: int,
) -> int:
    """Return how many messages from the beginning a summary should cover.

    The fewest that reach the goal, else as many as possible; 0 if no cut saves more than `least`.

    Args:
        history: The history.
        gains: What eliding each result saves.
        goal: What is to be saved.
        request_weights: The sizes of the messages in the request for the summary.
        least: What a cut must save at least.
    """
    best = 0
    saved = sum(gains.values()) - goal.added_tokens
    request_tokens = 0
    for index in range(history.free.stop):
        saved += history.weights[index] - gains.get(index, 0)
        request_tokens += request_weights[index]
        if request_tokens > goal.max_request_tokens:
            break
        is_free = index >= history.free.start
        if is_free and saved > least and can_leave_out(history.messages, index + 1):
            best = index + 1
            if saved >= goal.tokens:
                break
    return best


def collect_messages(whole: Sequence[Message], through: int, bound: int) -> list[int]:
    """Return the numbers of the person's messages among the first `through` that are kept verbatim.

    The first, which states the task, then the newest; together at most `bound` tokens.
    """
    said = [
        number
        for number, message in enumerate(whole[:through], 1)
        if isinstance(message, UserMessage)
    ]
    kept: list[int] = []
    for number in (*said[:1], *reversed(said[1:])):
        size = estimate_tokens(whole[number - 1])
        if size <= bound:
            kept.append(number)
            bound -= size
    return sorted(kept)


def render_history(history: Sequence[Message], head: int, first: int) -> Iterator[str]:
    """Render messages as text that can be read in parts.

    Messages behind the `head` (which replaces earlier ones) are numbered from `first`.
    """
    for index, message in enumerate(history):
        at = f"## {first + index - head}" if index >= head else "## earlier:"
        match message:
            case UserMessage():
                yield f"{at} user\n{message.text}\n\n"
            case ToolMessage():
                yield f"{at} result of {message.tool} ({message.call_id})\n{message.text}\n\n"
            case AssistantMessage():
                calls = "".join(
                    f"\ncall {call.tool} ({call.id}) {call.arguments}" for call in message.calls
                )
                yield f"{at} assistant\n{message.text}{calls}\n\n"
