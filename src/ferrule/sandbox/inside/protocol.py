"""The protocol between `launcher.py` and the fork server.

To the server, over its socket: one byte for each command, and with it (SCM_RIGHTS) descriptors in
this order: the record of the launch, the command's control socket, the folder to
start in, and its standard input, output and error. The record is a file in memory that holds a
marshalled dictionary: marshal is part of the interpreter, and both ends are the same one.

Over the control socket come lines: `taken` (a supervisor has it), `started PID` (as seen from
outside), `failed ERRNO` (the program cannot be executed), `broken WORDS` (the sandbox cannot be set
up), `exited STATUS` (as of `os.waitstatus_to_exitcode`), `left NAME (PID)`, `alive NAME (PID)`,
`refused NAME`, `denied PATH`, `made IDENTITY`, `ports` (with listening sockets), `done`, which may
come before `started`: different processes report the beginning and the end. The byte `k` the other
way, or the socket's end, means: end everything.
"""

from __future__ import annotations

import array as array  # sending descriptors needs it, and in a view it may not be visible
import marshal
import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kernel.landlock import PathRule

LAUNCH_BYTE = b"+"
END = b"k"
MAX_DESCRIPTORS = 32
"""Descriptors that one message may carry."""
_NUMBER = struct.Struct("=i")


class Launch:
    """One command, as the server reads it.

    See `sandbox.command.Command` for the first four fields. The others are for sandboxes with a
    view:

    * `steps` (see `kernel.mounts`) finish the view.
    * `folder` is where to start, as the view has it; `inode` its device and number (None: not
      compared).
    * `own_files` are identities of files that commands of the session created and that others may
      not see, `name_quota` is how many more of these they may create.
    * `proxy_environment` are further environment variables, in which `proxy_ports.PORT` stands for
      the port of the proxy.
    * `wrapper` are the arguments that build the view and start an interpreter in it (of bubblewrap
      or of a container's engine), `program_folder` is where the interpreter finds this package.

    `landlock` is for a command without a sandbox: what Landlock grants it, and whether it may use
    TCP. None: everything.
    """

    __slots__ = (
        "argv",
        "environment",
        "folder",
        "grace",
        "inode",
        "landlock",
        "name_quota",
        "own_files",
        "program",
        "program_folder",
        "proxy_environment",
        "steps",
        "wrapper",
    )

    def __init__(  # noqa: PLR0913  one argument for each field of a record
        self,
        argv: list[str],
        program: str,
        environment: dict[str, str],
        grace: float,
        steps: list[tuple[str, str, str]] | None = None,
        folder: str = "/",
        inode: tuple[int, int] | None = None,
        own_files: list[str] | None = None,
        proxy_environment: dict[str, str] | None = None,
        wrapper: list[str] | None = None,
        program_folder: str = "",
        landlock: tuple[tuple[PathRule, ...], bool] | None = None,
        name_quota: int = 0,
    ) -> None:
        # Plain text: a record takes no subclass of it, such as a `TrustedPath`.
        self.argv = [str(word) for word in argv]
        self.program = str(program)
        self.environment = environment
        self.grace = grace
        self.steps = [(kind, str(place), str(source)) for kind, place, source in steps or ()]
        self.folder = folder
        self.inode = inode
        self.own_files = own_files or []
        self.proxy_environment = proxy_environment or {}
        self.wrapper = wrapper or []
        self.program_folder = program_folder
        self.landlock = landlock
        self.name_quota = name_quota

    def as_values(self) -> dict[str, object]:
        """Return the fields that a process in a container needs, which has its own Python."""
        outside = ("landlock", "program_folder", "wrapper")
        return {name: getattr(self, name) for name in self.__slots__ if name not in outside}

    def encode(self) -> bytes:
        """Encode the launch as a record."""
        return marshal.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def read(cls, descriptor: int) -> Launch:
        """Read a launch from the record behind a descriptor, which stays open."""
        return cls(**marshal.loads(read_all(descriptor)))


def read_all(descriptor: int) -> bytes:
    """Return the content of a file whatever its descriptor's position, which others share."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def receive_launch(server: socket.socket) -> list[int] | None:
    """Return the descriptors of the next command; None at the end."""
    data, descriptors = receive_descriptors(server, 1, MAX_DESCRIPTORS)
    return descriptors if data else None


def receive_descriptors(channel: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and the descriptors that came with them, at most `most`.

    They are closed when a program is executed. `socket.recv_fds` of the standard library takes
    flags and passes none on, so that its descriptors are inherited.
    """
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, parts, _, _ = channel.recvmsg(size, socket.CMSG_SPACE(most * _NUMBER.size), flags)
    descriptors: list[int] = []
    for level, kind, content in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            complete = len(content) - len(content) % _NUMBER.size
            descriptors += [number for (number,) in _NUMBER.iter_unpack(content[:complete])]
    if not flags:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
    return data, descriptors


class Report:
    """The lines that a supervisor reports."""

    def __init__(self, control: int) -> None:
        self.control = control

    def send(self, line: str) -> None:
        """Report one line, in one write. Newlines in names are made visible."""
        data = line.replace("\n", "\\n").encode("utf-8", "surrogateescape")
        try:
            os.write(self.control, data + b"\n")
        except OSError:
            return  # nobody listens any more: what is left to do is to end everything
