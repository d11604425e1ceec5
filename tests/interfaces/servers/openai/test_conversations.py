"""Sessions between requests: found by what was said, kept open within a bound, resumed from the
journal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ferrule.core.messages import UserMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.engine.session import Session
from ferrule.models.client import ModelOptions
from ferrule.models.scripted import Scripted, says
from ferrule.servers.openai.conversations import Conversation, Conversations, render_history

MAX_HISTORY = 200_000


class ConversationWorld:
    """Conversations over a real agent, and which sessions were left."""

    def __init__(self, folder: Path, **bounds: int) -> None:
        self.agent = Agent(
            Scripted([says(f"answer {n}") for n in range(20)]),
            storage=Storage(journal=folder / "journal.db"),
        )
        self.left: list[str] = []
        self.conversations = Conversations(**bounds)

    async def leave(self, session: Session) -> None:
        self.left.append(session.id)
        await session.close()

    async def one(self, text: str) -> Conversation:
        session = self.agent.session()
        await session.run(text)
        return Conversation(self.agent, session.id, session, ModelOptions(), leave=self.leave)


async def test_one_session_too_many_is_closed_and_goes_on_from_the_journal_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    kept = ConversationWorld(tmp_path, max_open=1)
    first, second = await kept.one("a"), await kept.one("b")
    kept.conversations.put("a", first)
    kept.conversations.put("b", second)
    taken = await kept.conversations.take("a")
    assert kept.left == [first.id] and second.session is not None
    assert taken is first and taken.session is None
    session = taken.open_session()
    assert session.id == first.id
    assert [one.text for one in session.driver.machine.history if isinstance(one, UserMessage)] == [
        "a"
    ]
    result = await session.run("more")
    assert result.session == first.id
    kept.conversations.put("a2", taken)
    await kept.conversations.close()
    assert kept.left == [first.id, second.id, first.id]


async def test_what_was_taken_is_not_found_again_and_what_is_too_much_is_forgotten(
    tmp_path: Path,
) -> None:
    kept = ConversationWorld(tmp_path, max_known=2)
    made = [await kept.one(name) for name in "abc"]
    for name, one in zip("abc", made, strict=True):
        kept.conversations.put(name, one)
    assert await kept.conversations.take("a") is None and kept.left == [made[0].id]
    assert (
        await kept.conversations.take("b") is made[1] and await kept.conversations.take("b") is None
    )
    again = await kept.one("c, once more")
    kept.conversations.put("c", again)
    await kept.conversations.close()
    assert kept.left == [made[0].id, made[2].id, again.id]
    await made[1].close()


def test_what_a_new_session_is_told_is_cut_to_its_end() -> None:
    text = render_history([UserMessage("x" * MAX_HISTORY), UserMessage("the end")])
    assert (
        len(text) < MAX_HISTORY + 500
        and text.endswith("User: the end")
        and "the beginning is left out" in text
    )


async def test_a_session_that_cannot_be_resumed_is_told_anew(place: Any, turns: Any) -> None:
    await place.serve(says("one"), says("two"))
    client = await place.client()
    first = await client.chat.completions.create(model="ferrule", messages=turns("a"))
    conversations = place.server._agents._conversations  # pyright: ignore[reportPrivateUsage]
    (point,) = conversations._known  # pyright: ignore[reportPrivateUsage]
    conversation = await conversations.take(point)
    await conversation.close()
    conversation.id = "gone"
    conversations.put(point, conversation)
    second = await client.chat.completions.create(model="ferrule", messages=turns("a", "one", "b"))
    assert second.choices[0].message.content == "two"
    assert second.ferrule["session"] != first.ferrule["session"]
