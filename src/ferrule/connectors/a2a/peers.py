"""A2A peers in a run: which may be used, which tools they offer, and what a person should know.

    async with connect([A2aPeer("weather", url="https://weather.example.com")]) as peers:
        agent = Agent("ollama:llama3.2", [*my_tools, *peers.tools])

No peer is asked to find out which tools there are: they are known from the card that was approved
(`peer_approvals.py`). A peer of a person's settings that nobody approved adds nothing but a notice.
One that a program names in its own code (`origin="program"`) is its author's choice: its card is
pinned when it is first seen. Later changes hold back what changed, as for all others.

Tools are called `peer__skill`. A tool whose name is taken is left out with a notice, and so is a
peer whose name another one has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Self

from ferrule.connectors.remote_tools import RemoteTools
from ferrule.core.errors import ToolFailed

from .cards import Card, Skill
from .peer_approvals import PeerApproval, PeerApprovals
from .peer_client import PeerClient
from .spec import A2aPeer
from .tools import is_selected, make_tools

MAX_PEERS = 64
_MAX_NAMED = 8


class A2aPeers(RemoteTools[PeerClient]):
    """The A2A peers of a run. A peer is asked when one of its tools is called."""

    def __init__(
        self, peers: Iterable[A2aPeer], approvals: PeerApprovals, taken_names: Iterable[str]
    ) -> None:
        self._approvals = approvals
        super().__init__(taken_names)
        for peer in peers:
            self._add_peer(peer)

    async def open(self) -> Self:
        """Read the cards of peers that a program names and that were never seen, and only these."""
        never_seen = self._never_seen
        self._never_seen = []
        found = await asyncio.gather(*(self._look_first(client) for client in never_seen))
        for client, skills in zip(never_seen, found, strict=True):
            self._offer_tools(client, skills)
        return self

    def _add_peer(self, peer: A2aPeer) -> None:
        if peer.name in self._clients:
            self._notices.append(
                f"peer `{peer.name}` is not used twice: another peer has this name"
            )
            return
        if len(self._clients) == MAX_PEERS:
            self._notices.append(f"peer `{peer.name}` is not used: there are more than {MAX_PEERS}")
            return
        approval = self._approvals.get(peer)
        client = PeerClient(peer, self._approvals, approval.card)
        if approval.card is not None:
            self._clients[peer.name] = client
            if approval.state == "changed":
                self._notices.append(_changed_notice(peer, approval))
            self._offer_tools(client, approval.unchanged)
        elif peer.origin == "program":
            self._clients[peer.name] = client
            self._never_seen.append(client)
        else:
            self._notices.append(_unapproved_notice(peer, approval))

    async def _look_first(self, client: PeerClient) -> tuple[Skill, ...]:
        try:
            client.card = await client.fetch_card()
        except ToolFailed as error:
            self._notices.append(error.message)
            return ()
        self._approvals.approve(client.peer, client.card)
        if not client.card.skills:
            self._notices.append(
                f"peer `{client.peer.name}` offers nothing: its card names no skill"
            )
        self._notices += [
            f"peer `{client.peer.name}`: {sentence}" for sentence in client.card.left_out
        ]
        return client.card.skills

    def _offer_tools(self, client: PeerClient, skills: tuple[Skill, ...]) -> None:
        for skill in client.peer.policies.tools:
            if client.card is not None and client.card.get_skill(skill) is None:
                self._notices.append(
                    f"peer `{client.peer.name}`: `tool_policies` names `{skill}`, which it does "
                    "not offer"
                )
        for tool in make_tools(client, skills):
            self._add(tool)


def connect(
    peers: Iterable[A2aPeer],
    *,
    approvals: PeerApprovals | None = None,
    taken_names: Iterable[str] = (),
) -> A2aPeers:
    """Return the tools of A2A peers for a run; use it with `async with`, or `open` and `close`.

    Without either, only peers of a program that were never seen are missing.

    Args:
        peers: The peers.
        approvals: What a person approved.
        taken_names: Names of the run's other tools.

    Raises:
        ConfigError: The file of an approval cannot be used.
    """
    _silence_log()
    return A2aPeers(peers, approvals or PeerApprovals(), taken_names)


async def fetch_peer_card(peer: A2aPeer) -> Card:
    """Return a peer's current card, whether it is approved or not. Raises ToolFailed."""
    _silence_log()
    client = PeerClient(peer, PeerApprovals(), None)
    try:
        return await client.fetch_card()
    finally:
        await client.close()


def _silence_log() -> None:
    """Keep the protocol library's log, which may contain a peer's words, off the terminal."""
    logging.getLogger("a2a").addHandler(logging.NullHandler())


def _unapproved_notice(peer: A2aPeer, approval: PeerApproval) -> str:
    why = "nobody approved it"
    if approval.state == "moved":
        why = "it is not configured as you approved it"
    return f"peer `{peer.name}` is not used: {why}; `ferrule a2a approve {peer.name}` shows it"


def _changed_notice(peer: A2aPeer, approval: PeerApproval) -> str:
    offered = {skill.id for skill in approval.unchanged}
    approved = approval.card.skills if approval.card else ()
    held_back = [
        skill.id for skill in approved if skill.id not in offered and is_selected(peer, skill.id)
    ]
    names = ", ".join(f"`{name[:60]}`" for name in held_back[:_MAX_NAMED]) or "none of its skills"
    return (
        f"peer `{peer.name}` changed since you approved it; held back: {names}; `ferrule a2a "
        f"approve {peer.name}` shows the change"
    )
