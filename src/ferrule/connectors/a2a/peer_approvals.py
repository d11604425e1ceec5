"""A person's approvals of A2A peers: of how each is reached, and of its card, by hash.

    unknown   the peer was not approved                   nothing is offered
    moved     it is not configured as it was approved     nothing is offered
    changed   its card differs from the approved one      changed skills are not offered; if the
                                                          head changed, none is
    approved  peer and card are approved                  all of its skills are offered

The card is read before it is approved (a person reviews it), and nothing else is asked of the peer
before that. When the card later differs, the new one is kept beside the approved one
(`set_pending`) until a person has reviewed the difference. Approvals are kept in `<state>/a2a`, one
file for each peer, readable by its owner alone; a file that others can write is an error, not an
approval.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ferrule.connectors.approval_files import ApprovalFile, format_facts
from ferrule.connectors.text_cleaning import diff_texts
from ferrule.core.value_class import frozen
from ferrule.storage import paths

from .cards import Card, Skill, card_from_json
from .spec import A2aPeer

ApprovalState = Literal["unknown", "moved", "changed", "approved"]


@frozen
class PeerApproval:
    """The approval state of a peer.

    `card` is what was approved, `pending` what the peer says now if that differs.
    """

    state: ApprovalState
    card: Card | None = None
    pending: Card | None = None
    approved_configuration: str = ""
    """The approved configuration as text, to compare with the current one."""

    @property
    def unchanged(self) -> tuple[Skill, ...]:
        """The approved skills that have not changed since, as far as is known."""
        if self.card is None:
            return ()
        if self.pending is None:
            return self.card.skills
        if self.pending.head_hash != self.card.head_hash:
            return ()
        current = {skill.hash for skill in self.pending.skills}
        return tuple(skill for skill in self.card.skills if skill.hash in current)


class PeerApprovals:
    """A person's stored approvals of A2A peers.

    Nothing is written before the first one. Every method raises ConfigError for a file that cannot
    be used.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def get(self, peer: A2aPeer) -> PeerApproval:
        """Return the approval state of a peer as it is configured now."""
        file = self._file(peer)
        stored = file.load()
        if stored is None:
            return PeerApproval("unknown")
        covered = str(stored.get("covered", ""))
        if stored["digest"] != peer.digest():
            return PeerApproval("moved", approved_configuration=covered)
        try:
            card = card_from_json(stored["offer"])
            pending = card_from_json(stored["pending"]) if stored.get("pending") else None
        except (KeyError, TypeError, ValueError) as error:
            raise file.report_damage() from error
        return PeerApproval("approved" if pending is None else "changed", card, pending, covered)

    def approve(self, peer: A2aPeer, card: Card) -> None:
        """Approve a peer as it is configured now, and its card."""
        facts = peer.approval_facts()
        self._file(peer).approve(peer.name, peer.digest(), facts, card.to_json())

    def set_pending(self, peer: A2aPeer, card: Card | None) -> None:
        """Store what an approved peer says now, or None if it says what was approved."""
        offer = None if card is None else card.to_json()
        self._file(peer).set_pending(peer.digest(), offer)

    def revoke(self, peer: A2aPeer) -> bool:
        """Withdraw an approval. Return whether there was one."""
        return self._file(peer).revoke()

    def diff(self, peer: A2aPeer, card: Card) -> str:
        """Return what differs from what was approved, as unified diffs; everything if nothing was.

        Invisible characters are spelled out.
        """
        approval = self.get(peer)
        parts = [
            diff_texts(
                "peer", approval.approved_configuration, format_facts(peer.approval_facts())
            ),
            diff_texts("card", approval.card.to_text() if approval.card else "", card.to_text()),
        ]
        return "\n".join(part for part in parts if part)

    def _file(self, peer: A2aPeer) -> ApprovalFile:
        path = (self._folder or paths.state() / "a2a") / f"{peer.name}.json"
        return ApprovalFile(path, "a2a_approval")
