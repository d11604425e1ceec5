"""Where a history is cut when it is compacted: which results are elided, which messages a summary
stands for. Pure functions.

Both are decided by sizes and places alone, the oldest first, so the same history is always cut at
the same places. A cut never tears a call from its result; the last messages stay as they are.

Sizes are estimates in tokens: bytes of UTF-8 by `BYTES`. English and code have about three to four
and a half bytes a token, Chinese and Japanese about three. What a provider counted is better and is
preferred wherever it is known (`engine.context.window`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ferrule.core.compaction import closed
from ferrule.core.frozen import frozen
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage

BYTES = 3.5
"""Of text a token."""
AROUND = 4
"""Tokens that a message takes besides its text."""
STUB = 110
"""Tokens of a stub at the most."""
WORTH = 2 * STUB
"""Results of fewer tokens are not elided: it would save next to nothing."""


def tokens_of(text: str) -> int:
    """About how many tokens a text takes."""
    return int(len(text.encode("utf-8", "replace")) / BYTES) + 1


def weight(message: Message) -> int:
    """About how many tokens a message takes. Reasoning is not counted: most providers drop it."""
    total = tokens_of(message.text) + AROUND
    if isinstance(message, AssistantMessage):
        total += sum(
            tokens_of(call.arguments) + tokens_of(call.tool) + AROUND for call in message.calls
        )
    return total


@frozen
class Plan:
    """What is left out: the results at the indexes `results` are elided, the first `cut` messages
    become a summary (0: none).

    `light`: the question for the summary has stubs for these results, too, since it would not fit
        otherwise.
    """

    results: tuple[int, ...] = ()
    cut: int = 0
    light: bool = False


def plan(
    history: Sequence[Message],
    weights: Sequence[int],
    free: range,
    over: int,
    *,
    around: int,
    most: float,
    summary: bool,
    wished: bool,
    stubbed: Callable[[int], bool],
) -> Plan:
    """How `over` tokens are saved among the messages in `free`: by eliding results, and with
    `summary` by one if that is not enough.

    A summary and the person's words that stay beside it take `around`; the question for it may have
    `most` tokens of messages. It must save more than eliding alone, unless a person `wished` for
    it.
    """
    results = tuple(elisions(history, weights, free, over, stubbed))
    gains = {index: weights[index] - STUB for index in results}
    elided = sum(gains.values())
    if not summary or elided >= over:
        return Plan(results)
    least = 0 if wished else elided
    slim = [min(size, STUB) if index in gains else size for index, size in enumerate(weights)]
    whole, light = (
        cut(history, weights, asked, free, gains, over=over, around=around, most=most, least=least)
        for asked in (weights, slim)
    )
    return Plan(results, max(whole, light), light > whole)


def elisions(
    history: Sequence[Message],
    weights: Sequence[int],
    free: range,
    over: int,
    stubbed: Callable[[int], bool],
) -> Iterator[int]:
    """Indexes of results to elide, oldest first, until `over` tokens are saved."""
    for index in free:
        if over <= 0:
            return
        if (
            isinstance(history[index], ToolMessage)
            and weights[index] >= WORTH
            and not stubbed(index)
        ):
            yield index
            over -= weights[index] - STUB


def kept_from(history: Sequence[Message], keep: int) -> int:
    """Index of the first of the last messages that stay as they are: `keep` of them, and what
    belongs to the same round.
    """
    index = max(0, len(history) - max(1, keep))
    while index > 0 and not closed(history, index):
        index -= 1
    return index


def cut(
    history: Sequence[Message],
    weights: Sequence[int],
    asked: Sequence[int],
    free: range,
    gains: Mapping[int, int],
    *,
    over: int,
    around: int,
    most: float,
    least: int,
) -> int:
    """How many messages from the beginning a summary stands for: the fewest that save `over`
    tokens, else as many as may go.

    Messages weigh `asked` in the question for it, which takes `most` at the most. `gains` is what
    eliding the results behind the cut saves. 0 where no cut saves more than `least`.
    """
    best, saved, question = 0, sum(gains.values()) - around, 0
    for index in range(free.stop):
        saved += weights[index] - gains.get(index, 0)
        question += asked[index]
        if question > most:
            break
        if index >= free.start and saved > least and closed(history, index + 1):
            best = index + 1
            if saved >= over:
                break
    return best


def words_kept(whole: Sequence[Message], through: int, bound: int) -> list[int]:
    """Numbers of the person's messages among the first `through` that are kept word by word, of at
    most `bound` tokens together.

    The first, which is what it is all about, then the newest.
    """
    said = [
        number
        for number, message in enumerate(whole[:through], 1)
        if isinstance(message, UserMessage)
    ]
    kept: list[int] = []
    for number in (*said[:1], *reversed(said[1:])):
        size = weight(whole[number - 1])
        if size <= bound:
            kept.append(number)
            bound -= size
    return sorted(kept)


def told(history: Sequence[Message], head: int, first: int) -> Iterator[str]:
    """Messages as a text to be read in parts. Those behind the `head` (what stands there for
    earlier ones) count from `first`.
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
