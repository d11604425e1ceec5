"""What holds for every command of a server: read once, when the server starts."""

from __future__ import annotations

import marshal
import os
import socket

from . import filter, groups, template
from .naming import Rules
from .protocol import contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .groups import Group
    from .landlock import Granted
    from .mounts import Step


class Session:
    """`user`: make a user namespace. `view`: a folder that the view is built over. `steps`: what it is made of; `own_steps`: what each command adds.

    `limits` as of `namespaces.limit`. `groups`: control groups to be in (`groups.Group`). `names`: `(reserved, secret, protected)` beyond the usual lists. `roots`: folders in which names are
    guarded, the workspace first. `wall`: what Landlock grants (`landlock.Granted`), nothing if it is not to be used. `filtered`: system calls are.
    """

    _fields = ("filtered", "groups", "limits", "names", "own_steps", "roots", "steps", "user", "view", "wall")
    rules: Rules
    lock: int
    template: template.Template
    problem = ""

    def __init__(
        self,
        user: bool,
        view: str,
        steps: list[Step],
        own_steps: list[Step],
        limits: dict[str, int | None],
        groups: list[Group],
        names: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
        roots: tuple[str, ...],
        wall: tuple[Granted, ...] = (),
        filtered: bool = True,
    ) -> None:
        self.user = user
        self.view = view
        self.steps = steps
        self.own_steps = own_steps
        self.limits = limits
        self.groups = groups
        self.names = names
        self.roots = roots
        self.wall = wall
        self.filtered = filtered

    def encode(self) -> bytes:
        """As the bytes of a record."""
        return marshal.dumps({name: getattr(self, name) for name in self._fields})

    @classmethod
    def read(cls, descriptor: int) -> Session:
        """From the record behind a descriptor, which stays open."""
        return cls(**marshal.loads(contents(descriptor)))

    def prepare(self) -> None:
        """What is the same for all commands and costs time: done before anything is forked."""
        self.rules = Rules(self.roots, *self.names)
        # Shared by the mediators of all commands: a folder is not moved while another command adds to it.
        self.lock = os.memfd_create("ferrule", os.MFD_CLOEXEC)
        if self.filtered:
            filter.prepare(False, True)

        try:
            groups.enter(self.groups)
            self.template = template.make(self.user, self.view, self.steps)
        except OSError as error:
            # Every command is told, in place of being run.
            self.problem = str(error)

    def confine(self, listener: socket.socket) -> None:
        """Filter the calls of this process, and send the filter's descriptor to pid 1. No file can be made then."""
        if self.filtered:
            descriptor = filter.install(False, True)
            if descriptor is not None:
                socket.send_fds(listener, [b"+"], [descriptor])
                os.close(descriptor)
        listener.close()
