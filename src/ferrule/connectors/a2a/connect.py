"""Peers in a run: which may be used, what they bring, and what a person should know about them.

    async with connect([A2aPeer("weather", url="https://weather.example.com")]) as peers:
        agent = Agent("ollama:llama3.2", [*my_tools, *peers.tools])

Nothing is asked to find out which tools there are: they are known from the card that was approved
(`approvals.py`). A peer of a person's settings that nobody approved brings nothing but a notice.
One that a program names in its own code (`origin="program"`) is its author's choice: its card is
pinned when it is first seen. Later changes hold back what changed, as for all others.

Tools are called `peer__skill`. What has a name that is taken already is left out and reported, and
so is a peer whose name another one has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Self

from ferrule.connectors.offers import Offered
from ferrule.core.errors import ToolFailed

from .approvals import Approval, Approvals
from .cards import Card, Skill
from .peer import Live
from .spec import A2aPeer
from .tools import chosen, make_tools

MAX_PEERS = 64
_SHOWN = 8


class Peers(Offered[Live]):
    """The peers of a run. `tools` and `notices` say what there is; a peer is asked when a tool of
    it is called.
    """

    def __init__(
        self, peers: Iterable[A2aPeer], approvals: Approvals, taken: Iterable[str]
    ) -> None:
        self._approvals = approvals
        super().__init__(taken)
        for peer in peers:
            self._take(peer)

    async def open(self) -> Self:
        """Look at the cards of a program's peers that were never seen: these, and only these, are
        asked.
        """
        waiting, self._unseen = self._unseen, []
        seen = await asyncio.gather(*(self._first(live) for live in waiting))
        for live, skills in zip(waiting, seen, strict=True):
            self._offer(live, skills)
        return self

    # ---- what there is

    def _take(self, peer: A2aPeer) -> None:
        if peer.name in self._live:
            self._notices.append(f"peer `{peer.name}` is not used twice: another one has its name")
            return
        if len(self._live) == MAX_PEERS:
            self._notices.append(f"peer `{peer.name}` is not used: there are more than {MAX_PEERS}")
            return
        approval = self._approvals.look(peer)
        live = Live(peer, self._approvals, approval.card)
        if approval.card is not None:
            self._live[peer.name] = live
            if approval.state == "changed":
                self._notices.append(_changed(peer, approval))
            self._offer(live, approval.offered)
        elif peer.origin == "program":
            self._live[peer.name] = live
            self._unseen.append(live)
        else:
            self._notices.append(_unapproved(peer, approval))

    async def _first(self, live: Live) -> tuple[Skill, ...]:
        try:
            live.card = await live.look()
        except ToolFailed as error:
            self._notices.append(error.message)
            return ()
        self._approvals.approve(live.peer, live.card)
        if not live.card.skills:
            self._notices.append(
                f"peer `{live.peer.name}` says that it can do nothing: its card names no skill"
            )
        self._notices += [f"peer `{live.peer.name}`: {said}" for said in live.card.left_out]
        return live.card.skills

    def _offer(self, live: Live, skills: tuple[Skill, ...]) -> None:
        for skill in live.peer.policies.tools:
            if live.card is not None and live.card.get(skill) is None:
                self._notices.append(
                    f"peer `{live.peer.name}`: `tool_policies` names `{skill}`, and there is none"
                )
        for tool in make_tools(live, skills):
            self._add(tool)


def connect(
    peers: Iterable[A2aPeer], *, approvals: Approvals | None = None, taken: Iterable[str] = ()
) -> Peers:
    """Peers for a run: `async with`, or `open` and `close`; without either, only those of a program
    that were never seen are missing.

    `taken` are names of the run's other tools. Raises ConfigError where the file of an approval
    cannot be used.
    """
    _quiet()
    return Peers(peers, approvals or Approvals(), taken)


async def card_of(peer: A2aPeer) -> Card:
    """What a peer's card says now, whether it is approved or not. Raises ToolFailed."""
    _quiet()
    live = Live(peer, Approvals(), None)
    try:
        return await live.look()
    finally:
        await live.close()


def _quiet() -> None:
    """What the protocol library logs may hold what a peer said: it is not for the terminal of a
    person.
    """
    logging.getLogger("a2a").addHandler(logging.NullHandler())


def _unapproved(peer: A2aPeer, approval: Approval) -> str:
    why = (
        "it is not written down as you approved it"
        if approval.state == "moved"
        else "nobody approved it"
    )
    return f"peer `{peer.name}` does nothing: {why}; `ferrule a2a approve {peer.name}` shows it"


def _changed(peer: A2aPeer, approval: Approval) -> str:
    offered = {one.id for one in approval.offered}
    approved = approval.card.skills if approval.card else ()
    held = [one.id for one in approved if one.id not in offered and chosen(peer, one.id)]
    names = ", ".join(f"`{name[:60]}`" for name in held[:_SHOWN]) or "none of its skills"
    return (
        f"peer `{peer.name}` changed since you approved it; held back: {names}; `ferrule a2a "
        f"approve {peer.name}` shows the change"
    )
