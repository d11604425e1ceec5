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

import json
import os
import time
from pathlib import Path
from typing import Any, Literal, cast

from ferrule.connectors.text_cleaning import diff_texts
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.storage import paths

from .cards import Card, Skill, card_from_json
from .spec import A2aPeer

ApprovalState = Literal["unknown", "moved", "changed", "approved"]
_VERSION = 1


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
        stored = self._load(peer)
        if stored is None:
            return PeerApproval("unknown")
        covered = str(stored.get("covered", ""))
        if stored["peer"] != peer.digest():
            return PeerApproval("moved", approved_configuration=covered)
        try:
            card = card_from_json(stored["card"])
            pending = card_from_json(stored["pending"]) if stored.get("pending") else None
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(peer, "it is damaged", "remove it and approve again") from error
        return PeerApproval("approved" if pending is None else "changed", card, pending, covered)

    def approve(self, peer: A2aPeer, card: Card) -> None:
        """Approve a peer as it is configured now, and its card."""
        entry = {
            "version": _VERSION,
            "name": peer.name,
            "peer": peer.digest(),
            "covered": configuration_text(peer),
            "card": card.to_json(),
            "pending": None,
            "at": int(time.time() * 1000),
        }
        self._store(peer, entry)

    def set_pending(self, peer: A2aPeer, card: Card | None) -> None:
        """Store what an approved peer says now, or None if it says what was approved."""
        stored = self._load(peer)
        wanted = None if card is None else card.to_json()
        if (
            stored is not None
            and stored["peer"] == peer.digest()
            and stored.get("pending") != wanted
        ):
            self._store(peer, {**stored, "pending": wanted})

    def revoke(self, peer: A2aPeer) -> bool:
        """Withdraw an approval. Return whether there was one."""
        file = self._file(peer)
        existed = file.exists()
        file.unlink(missing_ok=True)
        return existed

    def diff(self, peer: A2aPeer, card: Card) -> str:
        """Return what differs from what was approved, as unified diffs; everything if nothing was.

        Invisible characters are spelled out.
        """
        approval = self.get(peer)
        parts = [
            diff_texts("peer", approval.approved_configuration, configuration_text(peer)),
            diff_texts("card", approval.card.to_text() if approval.card else "", card.to_text()),
        ]
        return "\n".join(part for part in parts if part)

    # ---- files

    def _file(self, peer: A2aPeer) -> Path:
        return (self._folder or paths.state() / "a2a") / f"{peer.name}.json"

    def _load(self, peer: A2aPeer) -> dict[str, Any] | None:
        try:
            file = open_for_reading(self._file(peer))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(peer, f"{error.strerror}", "check this file") from error
        with file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise self._unusable(
                    peer, "others can write it", "check who changed it, then `chmod 600` it"
                )
            try:
                stored: Any = json.load(file)
                if stored["version"] > _VERSION:
                    raise self._unusable(
                        peer, "it was written by a newer version", "use that version"
                    )
                _ = stored["peer"]
                return cast("dict[str, Any]", stored)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise self._unusable(
                    peer, "it is damaged", "remove it and approve again"
                ) from error

    def _store(self, peer: A2aPeer, entry: dict[str, Any]) -> None:
        paths.write_private(self._file(peer), json.dumps(entry, indent=1, sort_keys=True) + "\n")

    def _unusable(self, peer: A2aPeer, why: str, hint: str) -> ConfigError:
        return ConfigError(
            f"`{self._file(peer)}` cannot be used: {why}", code="a2a_approval", hint=hint
        )


def configuration_text(peer: A2aPeer) -> str:
    """Return what is approved of a peer's configuration, one fact a line."""
    return json.dumps(peer.approval_facts(), indent=1, sort_keys=True) + "\n"
