"""One model at work: a task in five steps, one kind of fault, and what it makes of what comes back.
No I/O, no clock.

The rules of the model, the same for every framework:

* It reads what is new since its last answer: messages of the roles `tool` and `user` behind the
  ones it has seen.
* A step is done when the words of the tool that does it (`orders.DONE`) are in what is new. Then it
  goes on to the next step, with numbers that it has read there; it knows none of them by itself.
  After the last step it says the confirmation and stops.
* If its step is not done, it was told what is wrong if a tool message came that is not empty, or
  words of the person's side that speak of an error or say that something is not so. Then it makes
  its mistake again as often as its kind says (`again`), and after that the call as it should be.
* If nothing came that says so (a bare "continue"), it makes the same mistake again.
* Asked exactly the same a second time, it gives exactly the same answer; an empty answer alone is
  not given twice.
* After four to six answers in a row that brought it nothing, by its seed, it gives up, says so and
  calls nothing more.
* In the kinds `over-again` and `order-again` it repeats the call that it got an answer to, until
  what comes back is not the same text as before; it takes anything else for a hint to go on.

How the framework words its errors does not matter, nor whether they come as the result of the call
or as a message: that would be a test of the words. What a real model would do with good and bad
words is not in here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from .habits import AGAIN, KINDS, NAMES, Answer, Call, Meant, proper
from .orders import DONE, SHIPPING, Order

GIVES_UP = "I could not do it."
_ERROR = re.compile(
    (
        r"error|invalid|unknown|unexpected|fail|missing|empty|wrong|must|\bno\b|\bnot\b|nothing|n't|cannot|fix|retry|try "
        r"again"
    ),
    re.IGNORECASE,
)


class Play:
    """A run of one model. `final` names a tool that the answer is to be given to, for a framework
    that wants it so.
    """

    def __init__(self, kind: str, seed: int, final: str = "") -> None:
        self.kind, self.habit, self.final = kind, KINDS[kind], final
        self._random = Random(f"{kind}/{seed}")
        self.order = Order.drawn(self._random)
        self.faulty = self._random.choice(self.habit.steps)
        self._patience = self._random.randint(4, 6)
        self._times = 1 + self.habit.again
        self.read: dict[str, str] = {}
        self._bad = self._told = 0
        self._seen = list[str]()
        self._last: Answer | None = None
        self._repeating = ""
        self._heard = ""
        self.rounds = 0
        self.said = ""
        self.gave_up = self.ended = False

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> Answer:
        """The next answer to the conversation as it now is."""
        self.rounds += 1
        spelled = [json.dumps(message, sort_keys=True) for message in messages]
        if (
            self._last is not None
            and spelled == self._seen
            and (self._last.text or self._last.calls)
        ):
            return self._last
        new = self._new(messages, spelled)
        self._seen = spelled
        self._last = self._next(new)
        return self._last

    def _new(
        self, messages: Sequence[Mapping[str, Any]], spelled: list[str]
    ) -> list[tuple[str, str]]:
        """Role and text of what is new.

        Where the past was written anew it is what follows the last answer; where there is none,
        what was added to the words that the first answer was given to.
        """
        start = len(self._seen)
        if spelled[:start] == self._seen:
            return _heard(messages[start:])
        answers = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
        if answers:
            return _heard(messages[answers[-1] + 1 :])
        before = _heard([json.loads(message) for message in self._seen])
        text, known = ("\n".join(text for _, text in heard) for heard in (_heard(messages), before))
        return [("user", text.removeprefix(known))]

    def _next(self, new: list[tuple[str, str]]) -> Answer:
        if self.ended and self._last is not None:
            return self._last
        first, progress, stuck = self._last is None, self._take(new), self._stuck(new)
        self._bad = 0 if first or (progress and not stuck) else self._bad + 1
        told = any(text and (role != "user" or _ERROR.search(text)) for role, text in new)
        if self._bad and told:
            self._told += 1
        if self._bad > self._patience:
            self.gave_up = self.ended = True
            return self._last_words(GIVES_UP)
        if stuck:
            return proper(self._meant([self._repeating]))
        left = [name for name in NAMES if name not in self.read]
        if left:
            return self._call(left)
        self.ended = True
        return self._last_words(f"It is ordered. The confirmation is {self.read['place_order']}.")

    def _take(self, new: list[tuple[str, str]]) -> bool:
        """Read what the tools said; whether a step was done by it."""
        before = len(self.read)
        for name in NAMES:
            for _, text in new:
                if name not in self.read and (found := re.search(DONE[name], text)):
                    self.read[name] = found.group(1) if found.re.groups else found.group()
        return len(self.read) > before

    def _call(self, left: list[str]) -> Answer:
        step = left[0]
        meant = self._meant(left[:2] if self.habit.pair and step == self.faulty else [step])
        if self.kind in AGAIN and step == self.faulty:
            self._repeating = step
        if self.habit.always:
            return self.habit.say(meant)
        if step != self.faulty or self._told >= self._times:
            return proper(meant)
        if self.kind == "empty":
            self._times = 0
        return self.habit.say(meant)

    def _stuck(self, new: list[tuple[str, str]]) -> bool:
        """Whether the call that was answered is made once more: what came back is what came back
        before, or the first of it.
        """
        heard = "\n".join(text for _, text in new)
        if (
            not self._repeating
            or not re.search(DONE[self._repeating], heard)
            or self._heard not in ("", heard)
        ):
            self._repeating = ""
            return False
        self._heard = heard
        return True

    def _meant(self, tools: list[str]) -> Meant:
        return Meant([(name, self._arguments(name)) for name in tools], self._random)

    def _arguments(self, tool: str) -> dict[str, Any]:
        """What a call of this tool needs, from the request and from what was read."""
        read = {name: int(value) for name, value in self.read.items() if value.isdigit()}
        match tool:
            case "find_item":
                return {"code": self.order.code}
            case "get_price":
                return {"item_id": read["find_item"]}
            case "add_up":
                return {"amounts": [read["get_price"], SHIPPING]}
            case "place_order":
                return {
                    "item_id": read["find_item"],
                    "total": read["add_up"],
                    "quantity": self.order.quantity,
                }
            case _:
                return {}

    def _last_words(self, text: str) -> Answer:
        self.said = text
        if not self.final:
            return Answer(text)
        return Answer(
            calls=(Call(f"call_{self.rounds}_final", self.final, json.dumps({"answer": text})),)
        )


def _heard(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Role and text of what is not the model's own."""
    return [
        (str(m["role"]), words(m.get("content")))
        for m in messages
        if m.get("role") in ("tool", "user")
    ]


def words(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
