"""Answers the calls of a command that come to its mediator, and reports what they created.

Whoever waits for the command has this in its loop (`process_tree`).
"""

from __future__ import annotations

import socket

from ..protocol import receive_descriptors
from .mediator import Mediator, lower_rights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .. import process_tree
    from ..protocol import Launch, Report
    from ..session import Session
    from .requests import Request
    from .withheld_files import Covers

MOST_NAMED = 100
"""Refused names that are reported at most: a command that tries a million times made its point."""


class Answering:
    """Answers a command's calls. `here` brings the listener, or its end if the command gets none.

    `above` are folders that must stay where they are.
    """

    def __init__(
        self,
        session: Session,
        launch: Launch,
        here: socket.socket,
        report: Report,
        above: frozenset[str],
        *,
        more: Mapping[str, Callable[[Request], int | None]] | None = None,
        covers: Covers | None = None,
    ) -> None:
        self.report = report
        self.told = 0
        self.mediator: Mediator | None = None
        # Confining the command needed more rights on files than it may have. Done while the
        # command gets ready.
        lower_rights()
        with here:
            _, received = receive_descriptors(here, 1, 1)
        if received:
            session.rules.own = frozenset(launch.own_files)
            session.rules.room = launch.name_quota
            session.rules.anchor(above)
            self.mediator = Mediator(
                received[0], session.rules, session.lock, more=more, covers=covers
            )

    def join(self, attention: process_tree.Attention) -> None:
        if self.mediator is not None:
            attention.answers[self.mediator.fileno()] = self.answer

    def leave_room(self) -> None:
        """Give back what the command took of the number of names. Called when it is over."""
        if self.mediator is not None:
            self.mediator.leave_room()

    def openers(self) -> set[int]:
        return self.mediator.openers if self.mediator is not None else set()

    def answer(self) -> None:
        assert self.mediator is not None
        self.mediator.handle_one()
        while self.mediator.made:
            made = self.mediator.made.pop()
            self.report.say(f"made {made.identity}")
        for name in self.mediator.refused[self.told : MOST_NAMED]:
            self.report.say(f"refused {name}")
        self.told = len(self.mediator.refused)
