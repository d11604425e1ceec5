"""Answers the calls of a command that come to its mediator, and says what came of them.

Whoever waits for the command has this in its loop (`tree.Attention`).
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
"""Refused names that are reported: a command that tries a million times has made its point."""


class Answering:
    """`here` brings the listener, or its end if the command gets none. `above` are folders that
    stay where they are.
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
        # Whoever holds the command could do more with files than it may. Done while the command
        # gets ready.
        lower_rights()
        with here:
            _, found = receive_descriptors(here, 1, 1)
        if found:
            session.rules.own = frozenset(launch.own)
            session.rules.room = launch.room
            session.rules.anchor(above)
            self.mediator = Mediator(
                found[0], session.rules, session.lock, more=more, covers=covers
            )

    def join(self, attention: process_tree.Attention) -> None:
        if self.mediator is not None:
            attention.answers[self.mediator.fileno()] = self.answer

    def leave_room(self) -> None:
        """The command is over."""
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
