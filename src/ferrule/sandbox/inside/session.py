"""What holds for every command of a server: read once, when the server starts."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket

from . import view_template as template
from .kernel import cgroup_limits as groups
from .kernel import seccomp
from .mediator.name_rules import NameRules
from .protocol import read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kernel.cgroup_limits import Group
    from .kernel.landlock import PathRule
    from .kernel.mounts import Step


class SandboxRecord:
    """The record of a sandbox.

    * `user_namespace`: make a user namespace.
    * `view_folder`: a folder that the view is built over. `steps`: what it is made of;
      `command_steps`: what each command adds.
    * `limits` as of `namespaces.limit`. `groups`: control groups to be in
      (`kernel.cgroup_limits`).
    * `names`: `(reserved, secret, protected)` beyond the usual lists. `roots`: folders in which
      names are guarded, the workspace first; `judged_roots` are the paths that they are judged by.
      `fixed`: absolute names in them that nothing else may take, and that stay where they are with
      the folders above them. `configured_places`: places that settings of git name, which nobody
      may create. `steps_file`: the steps of a rebase in the workspace's repository.
    * `landlock_rules`: what Landlock grants, empty if it is not to be used. `filtered`: system
      calls are filtered.
    * `restrict_late`: a command's steps change what Landlock's rules rest on.
    * `locked`: commands are in another user namespace than the one that the masks were mounted in.
      Where they cannot be, no command may reach another one by a socket's name: a folder that it
      was handed would outlive the masks over its names.
    * `backend`: `namespaces`, `bubblewrap`, `landlock` or `container`.
    * `engine_environment`: the variables of the engine that starts containers, for the server
      outside of them; empty for all others.
    * `held_folder`: what steps call the folder of what is laid over names, and where it is, for a
      backend that mounts nothing; `writable_folders` are what commands may write there besides the
      roots, the last one in place of /dev/shm.
    """

    _fields = (
        "filtered",
        "fixed",
        "groups",
        "held_folder",
        "restrict_late",
        "limits",
        "locked",
        "names",
        "writable_folders",
        "command_steps",
        "configured_places",
        "engine_environment",
        "roots",
        "judged_roots",
        "steps",
        "steps_file",
        "user_namespace",
        "view_folder",
        "landlock_rules",
        "backend",
    )
    record: int
    """A descriptor of this as a record, for a process that is started and not forked."""
    rules: NameRules
    lock: int
    template: template.ViewTemplate
    problem = ""

    def __init__(  # noqa: PLR0913  one argument for each field of a record
        self,
        user_namespace: bool,
        view_folder: str,
        steps: list[Step],
        command_steps: list[Step],
        limits: dict[str, int | None],
        groups: list[Group],
        names: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
        roots: tuple[str, ...],
        landlock_rules: tuple[PathRule, ...] = (),
        filtered: bool = True,
        restrict_late: bool = False,
        locked: bool = True,
        backend: str = "namespaces",
        held_folder: tuple[str, str] = ("", ""),
        writable_folders: tuple[str, ...] = (),
        fixed: tuple[str, ...] = (),
        configured_places: tuple[str, ...] = (),
        steps_file: str = "",
        judged_roots: tuple[str, ...] = (),
        engine_environment: dict[str, str] | None = None,
    ) -> None:
        self.engine_environment = engine_environment or {}
        self.fixed = fixed
        self.writable_folders = writable_folders
        self.configured_places = configured_places
        self.steps_file = steps_file
        self.judged_roots = judged_roots
        self.backend = backend
        self.held_folder = held_folder
        self.user_namespace = user_namespace
        self.view_folder = view_folder
        self.steps = steps
        self.command_steps = command_steps
        self.limits = limits
        self.groups = groups
        self.names = names
        self.roots = roots
        self.landlock_rules = landlock_rules
        self.filtered = filtered
        self.restrict_late = restrict_late
        self.locked = locked

    def as_values(self) -> dict[str, object]:
        """Return the fields as they are given to a container's server."""
        return {name: getattr(self, name) for name in self._fields if name != "engine_environment"}

    def encode(self) -> bytes:
        """Encode the session as a record."""
        return marshal.dumps({name: getattr(self, name) for name in self._fields})

    @classmethod
    def read(cls, descriptor: int) -> SandboxRecord:
        """Read a session from the record behind a descriptor, which stays open."""
        return cls(**marshal.loads(read_all(descriptor)))

    def load_name_rules(self) -> None:
        """Load the rules about names."""
        self.rules = NameRules(
            self.roots,
            *self.names,
            configured_places=self.configured_places,
            steps_file=self.steps_file,
            judged_roots=self.judged_roots,
            fixed=self.fixed,
        )

    def prepare(self) -> None:
        """Do what is the same for all commands and costs time, before anything is forked."""
        self.load_name_rules()
        self.lock = _open_lock(self.roots[0])
        try:
            groups.enter(self.groups)
            if self.backend != "namespaces":
                self.record = os.memfd_create("ferrule", os.MFD_CLOEXEC)
                os.write(self.record, self.encode())
                return
            if self.filtered:
                # Not loaded to write a record: a Mac has none of the calls that this is made of.
                from .mediator import mediator

                seccomp.prepare_filter(False, True, by_name=self.locked)
                mediator.creating_calls()
            self.template = template.build_template(
                self.user_namespace, self.view_folder, self.steps
            )
        except OSError as error:
            # Every command gets this as its error, instead of being run.
            self.problem = str(error)

    def install_filter(self, listener: socket.socket) -> None:
        """Filter the calls of this process, and send pid 1 the filter's descriptor, if any."""
        descriptor = (
            seccomp.install_filter(False, True, by_name=self.locked) if self.filtered else None
        )
        if descriptor is None:
            listener.send(b"-")
            return
        socket.send_fds(listener, [b"+"], [descriptor])
        os.close(descriptor)


_LOCKS = "/dev/shm/ferrule-{}"


def _open_lock(root: str) -> int:
    """Return the file that the mediators of all commands in a workspace lock.

    No folder is moved, or made a repository, while another command adds to it, be it one of this
    session, of another or of another process. So the file has a name, in memory and out of the
    view of commands. Where there is no such place, it is this session's alone. What it counts
    begins anew: commands that ended at once have not given theirs back.
    """
    try:
        status = os.stat(root)  # noqa: PTH116  pathlib is not loaded here
        folder = _LOCKS.format(os.geteuid())
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # noqa: PTH102  pathlib is not loaded here
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(held)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise PermissionError(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            name = f"{status.st_dev}-{status.st_ino}"
            lock = os.open(name, flags, 0o600, dir_fd=held)
        finally:
            os.close(held)
    except OSError:
        return os.memfd_create("ferrule", os.MFD_CLOEXEC)
    os.ftruncate(lock, 0)
    return lock
