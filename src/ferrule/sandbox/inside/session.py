"""What holds for every command of a server: read once, when the server starts."""

from __future__ import annotations

import marshal
import os
import socket

from . import view_template as template
from .kernel import control_groups as groups
from .kernel import seccomp
from .mediator import mediator
from .mediator.name_rules import Rules
from .protocol import contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kernel.control_groups import Group
    from .kernel.landlock import Granted
    from .kernel.mounts import Step


class Session:
    """`user`: make a user namespace. `view`: a folder that the view is built over. `steps`: what it
    is made of; `own_steps`: what each command adds.

    `limits` as of `namespaces.limit`. `groups`: control groups to be in
    (`sandbox.inside.kernel.control_groups.Group`). `names`: `(reserved, secret, protected)` beyond
    the usual lists. `roots`: folders in which names are guarded, the workspace first. `wall`: what
    Landlock grants (`landlock.Granted`), nothing if it is not to be used. `filtered`: system calls
    are. `late`: a command's steps change what the wall stands on.
    `locked`: commands are in another user namespace than the one that the mounts over names were
    made in; where they cannot be, no command may reach another one by a socket's name, since a
    folder that it was handed would outlive what lies over its names.
    `way`: `namespaces`, or who else holds commands (`bubblewrap`, `landlock`). `held`: what steps
    call the folder of what is laid over names, and where that is, for who lays nothing;
    `own_folders` are what commands may write besides the roots there, the last in place of
    /dev/shm.
    """

    _fields = (
        "filtered",
        "groups",
        "held",
        "late",
        "limits",
        "locked",
        "names",
        "own_folders",
        "own_steps",
        "roots",
        "steps",
        "user",
        "view",
        "wall",
        "way",
    )
    record: int
    """A descriptor of this as a record, for a process that is started and not forked."""
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
        late: bool = False,
        locked: bool = True,
        way: str = "namespaces",
        held: tuple[str, str] = ("", ""),
        own_folders: tuple[str, ...] = (),
    ) -> None:
        self.own_folders = own_folders
        self.way = way
        self.held = held
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
        self.late = late
        self.locked = locked

    def encode(self) -> bytes:
        """As the bytes of a record."""
        return marshal.dumps({name: getattr(self, name) for name in self._fields})

    @classmethod
    def read(cls, descriptor: int) -> Session:
        """From the record behind a descriptor, which stays open."""
        return cls(**marshal.loads(contents(descriptor)))

    def name_rules(self) -> None:
        """The rules of names, ready to be asked."""
        self.rules = Rules(self.roots, *self.names)

    def prepare(self) -> None:
        """What is the same for all commands and costs time: done before anything is forked."""
        self.name_rules()
        # Shared by the mediators of all commands: a folder is not moved while another command adds
        # to it.
        self.lock = os.memfd_create("ferrule", os.MFD_CLOEXEC)
        try:
            groups.enter(self.groups)
            if self.way != "namespaces":
                self.record = os.memfd_create("ferrule", os.MFD_CLOEXEC)
                os.write(self.record, self.encode())
                return
            if self.filtered:
                seccomp.prepare(False, True, by_name=self.locked)
                mediator.creating_calls()
            self.template = template.make(self.user, self.view, self.steps)
        except OSError as error:
            # Every command is told, in place of being run.
            self.problem = str(error)

    def confine(self, listener: socket.socket) -> None:
        """Filter the calls of this process, and send pid 1 the filter's descriptor, or word that
        there is none.
        """
        descriptor = seccomp.install(False, True, by_name=self.locked) if self.filtered else None
        if descriptor is None:
            listener.send(b"-")
            return
        socket.send_fds(listener, [b"+"], [descriptor])
        os.close(descriptor)
