"""Answers the calls of a command that come to its mediator, and reports what they created.

Whoever waits for the command has this in its loop (`process_tree`).
"""

from __future__ import annotations

import os
import socket

from ..protocol import receive_descriptors
from .mediator import Mediator, drop_file_capabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .. import process_tree
    from ..protocol import Launch, Report
    from ..session import SandboxRecord
    from .requests import CallRequest
    from .withheld_files import WithheldFiles

MAX_REPORTED = 100
"""Refused names, and denied paths, that are reported at most.

A command that tries a million times made its point.
"""


class MediatorRunner:
    """Answers a command's calls. `here` brings the listener, or its end if the command gets none.

    `fixed_folders` are folders that must stay where they are.
    """

    def __init__(
        self,
        session: SandboxRecord,
        launch: Launch,
        here: socket.socket,
        report: Report,
        fixed_folders: frozenset[str],
        *,
        more: Mapping[str, Callable[[CallRequest], int | None]] | None = None,
        covers: WithheldFiles | None = None,
    ) -> None:
        self.report = report
        self.reported_count = 0
        self.denied_count = 0
        self.mediator: Mediator | None = None
        # Confining the command needed more rights on files than it may have. Done while the
        # command gets ready.
        drop_file_capabilities()
        with here:
            _, received = receive_descriptors(here, 1, 1)
        if received:
            session.rules.own_files = frozenset(launch.own_files)
            session.rules.name_quota = launch.name_quota
            session.rules.fix_folders(fixed_folders)
            self.mediator = Mediator(
                received[0], session.rules, session.lock, more_calls=more, withheld=covers
            )

    def register(self, attention: process_tree.EventLoop) -> None:
        if self.mediator is not None:
            attention.readers[self.mediator.fileno()] = self.handle_one

    def release_names(self) -> None:
        """Give back what the command took of the number of names. Called when it is over."""
        if self.mediator is not None:
            self.mediator.release_names()

    def opener_pids(self) -> set[int]:
        return self.mediator.opener_pids if self.mediator is not None else set()

    def handle_one(self) -> None:
        assert self.mediator is not None
        self.mediator.handle_one()
        while self.mediator.created_files:
            made = self.mediator.created_files.pop()
            self.report.send(f"made {made.identity}")
        for name in self.mediator.refused_names[self.reported_count : MAX_REPORTED]:
            self.report.send(f"refused {name}")
        self.reported_count = len(self.mediator.refused_names)
        if len(self.mediator.denied_paths) > self.denied_count:
            for path in list(self.mediator.denied_paths)[self.denied_count : MAX_REPORTED]:
                self.report.send(f"denied {os.fsdecode(path)}")
            self.denied_count = len(self.mediator.denied_paths)
