"""What a person approved of a peer: how it is reached, and what its card says, each by hash.

    unknown    nobody approved it                              nothing is offered
    moved      it is not written down as it was approved       nothing is offered
    changed    its card is another one now                     what changed is not offered; a changed head holds back all
    approved   both

The card is read before it is approved (that is what a person looks at), and asks for nothing but
that. When it later differs, the new one is kept beside the approved one (`pend`) until a person
looked at the difference. Kept in `<state>/a2a`, one file for each peer, readable by its owner
alone; a file that others can write is an error, not an approval.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ferrule.connectors.cleaning import difference
from ferrule.core.errors import ConfigError
from ferrule.storage import paths

from .cards import Card, Skill, from_json
from .spec import A2aPeer

State = Literal["unknown", "moved", "changed", "approved"]
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Approval:
    """How a peer stands. `card` is what was approved, `pending` what it says now if that
    differs.
    """

    state: State
    card: Card | None = None
    pending: Card | None = None
    covered: str = ""
    """What was approved of how it is reached, as text; for the difference."""

    @property
    def offered(self) -> tuple[Skill, ...]:
        """The approved skills that did not change since, as far as is known."""
        if self.card is None or self.pending is None:
            return () if self.card is None else self.card.skills
        if self.pending.head_hash != self.card.head_hash:
            return ()
        now = {one.hash for one in self.pending.skills}
        return tuple(one for one in self.card.skills if one.hash in now)


class Approvals:
    """A person's approvals. Nothing is written before the first one. Raises ConfigError for files
    that cannot be used.
    """

    def __init__(self, folder: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now

    def look(self, peer: A2aPeer) -> Approval:
        """How a peer, as it is written down now, stands."""
        kept = self._load(peer)
        if kept is None:
            return Approval("unknown")
        covered = str(kept.get("covered", ""))
        if kept["peer"] != peer.digest():
            return Approval("moved", covered=covered)
        try:
            card = from_json(kept["card"])
            pending = from_json(kept["pending"]) if kept.get("pending") else None
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(peer, "it is damaged", "remove it, and approve again") from error
        return Approval("approved" if pending is None else "changed", card, pending, covered)

    def approve(self, peer: A2aPeer, card: Card) -> None:
        """Approve a peer as it is written down, and what its card says."""
        kept = {
            "version": _VERSION,
            "name": peer.name,
            "peer": peer.digest(),
            "covered": covered_text(peer),
            "card": card.as_json(),
            "pending": None,
            "at": int(self._now() * 1000),
        }
        self._store(peer, kept)

    def pend(self, peer: A2aPeer, card: Card | None) -> None:
        """Remember what an approved peer says now, or with None that it says what was approved."""
        kept = self._load(peer)
        wanted = None if card is None else card.as_json()
        if kept is not None and kept["peer"] == peer.digest() and kept.get("pending") != wanted:
            self._store(peer, {**kept, "pending": wanted})

    def revoke(self, peer: A2aPeer) -> bool:
        """Approve it no more; whether it was approved."""
        file = self._file(peer)
        found = file.exists()
        file.unlink(missing_ok=True)
        return found

    def diff(self, peer: A2aPeer, card: Card) -> str:
        """What differs from what was approved, as unified diffs; all there is where nothing was.
        What cannot be seen is spelled out.
        """
        seen = self.look(peer)
        parts = [
            difference("peer", seen.covered, covered_text(peer)),
            difference("card", seen.card.text() if seen.card else "", card.text()),
        ]
        return "\n".join(part for part in parts if part)

    # ---- files

    def _file(self, peer: A2aPeer) -> Path:
        return (self._folder or paths.state() / "a2a") / f"{peer.name}.json"

    def _load(self, peer: A2aPeer) -> dict[str, Any] | None:
        try:
            descriptor = os.open(self._file(peer), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(peer, f"{error.strerror}", "look at what is there") from error
        with os.fdopen(descriptor, encoding="utf-8") as file:
            about = os.fstat(descriptor)
            if about.st_uid != os.getuid() or about.st_mode & 0o022:
                raise self._unusable(
                    peer, "others can write it", "check who changed it, then `chmod 600` it"
                )
            try:
                kept: Any = json.load(file)
                if kept["version"] > _VERSION:
                    raise self._unusable(
                        peer, "it was written by a newer version", "use that version"
                    )
                _ = kept["peer"]
                return cast("dict[str, Any]", kept)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise self._unusable(
                    peer, "it is damaged", "remove it, and approve again"
                ) from error

    def _store(self, peer: A2aPeer, kept: dict[str, Any]) -> None:
        paths.write_private(self._file(peer), json.dumps(kept, indent=1, sort_keys=True) + "\n")

    def _unusable(self, peer: A2aPeer, why: str, hint: str) -> ConfigError:
        return ConfigError(
            f"`{self._file(peer)}` cannot be used: {why}", code="a2a_approval", hint=hint
        )


def covered_text(peer: A2aPeer) -> str:
    """What is approved of how a peer is reached, one fact a line."""
    return json.dumps(peer.covered(), indent=1, sort_keys=True) + "\n"
