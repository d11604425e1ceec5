"""The namespaces rung, outside: the session's folder, what every command is started with, what it
reports.

What is made inside, and in which order, is in `sandbox/inside/pid1.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.denied_names import RuledNames
from ferrule.sandbox.command import Command, Ended
from ferrule.sandbox.inside.kernel import control_groups
from ferrule.sandbox.inside.kernel.proxy_ports import PORT
from ferrule.sandbox.inside.mediator.name_rules import MOST_ROOM
from ferrule.sandbox.inside.protocol import Launch
from ferrule.sandbox.inside.session import Session
from ferrule.sandbox.launcher import Launcher
from ferrule.sandbox.network.allowed_hosts import Hosts
from ferrule.sandbox.network.listener import Listening
from ferrule.sandbox.network.proxy import Contact, Proxy
from ferrule.sandbox.network.proxy_environment import proxy_environment
from ferrule.sandbox.policy import Applied, Policy
from ferrule.sandbox.preview import preview
from ferrule.sandbox.running_command import Execution
from ferrule.sandbox.view.layout import Places, Surroundings, finishing, layout, limits, own, wall
from ferrule.sandbox.view.linked_files import Inode
from ferrule.sandbox.view.machine_folders import look
from ferrule.sandbox.view.masks import Kind, Mask, Masks
from ferrule.sandbox.view.opened_folders import OpenedFolders
from ferrule.sandbox.view.session_folder import SessionFolder, remove

from .cgroup import Group, find
from .probes import probe

_AT_ONCE = 0.002
"""Seconds. A look at the workspace that took less the last time is not worth a thread."""
_NOBODY = Identity("local", "local", "local", "local")


class Confinement:
    """What the commands of one session have in common. `close` or `remove` takes its folder
    away.
    """

    def __init__(
        self, policy: Policy, contact: Callable[[Contact], None], identity: Identity | None
    ) -> None:
        # By their real paths: a link in the workspace that leads to one of them then does so in the
        # view too.
        readable, writable = (
            tuple(map(os.path.realpath, paths)) for paths in (policy.readable, policy.writable)
        )
        self.policy = policy = replace(policy, readable=readable, writable=writable)
        self.identity = identity or _NOBODY
        self.hosts = Hosts.parse(policy.network)
        self._contact = contact
        self._session = SessionFolder()
        # For a session that nobody closes: it ends with the interpreter, or when it is dropped.
        self._finalizer = weakref.finalize(self, self._session.remove)
        self._home = os.path.realpath(Path.home())
        self._scanner = OpenedFolders(policy, home=self._home)
        self._scanning = asyncio.Lock()
        self._scan_seconds = 1.0
        self._own: set[str] = set()
        self._root: Inode | None = None
        self._proxy: Proxy | None = None
        self._groups: tuple[Group, ...] = ()

    def places(self) -> Places:
        """The session's folder, made when it is first needed."""
        return self._session.make()

    def record(self) -> bytes:
        """For the fork server: looked at anew whenever one is started."""
        places = self.places()
        found = look(os.environ, self._home, places)
        found_groups = find(self.policy.bounds, Path(places.base).name)
        self._groups = found_groups.made
        names = self.policy.names
        created = names.created if isinstance(names, RuledNames) else ()
        session = Session(
            user=probe().user_namespaces,
            view=places.view,
            steps=list(layout(self.policy, found)),
            own_steps=list(own(found)),
            limits=limits(self.policy, found_groups.bounds),
            groups=list(found_groups.made),
            names=((*names.reserved, *created), names.secret, names.protected),
            roots=(str(self.policy.root), *self.policy.writable),
            wall=wall(self.policy, found) if probe().landlock_abi else (),
            late=self.policy.preview,
            locked=probe().user_namespaces,
        )
        self.shape_session(session, found)
        return session.encode()

    def shape_session(self, session: Session, found: Surroundings) -> None:
        """For a rung that holds commands in another way: what it says differently for all of
        them.
        """

    def shape_launch(self, launch: Launch) -> None:
        """The same for one command."""

    def scratch(self) -> tuple[Path, str]:
        """A folder that commands can write, as we see it and as they do."""
        return Path(self.places().tmp), "/tmp"

    async def begin(self, launcher: Launcher, command: Command, applied: Applied) -> Execution:
        """Start a command in a view of its own. Raises ToolFailed."""
        places = self.places()
        await self._look_for_another_root(launcher)
        masks = await self.masks()
        command = replace(command, environment=self._environment(command.environment))
        started = _Started(self, command.identity or self.identity, places)
        folder, inode = folder_of(command.directory)
        launch = Launch(
            list(command.argv),
            command.program,
            dict(command.environment),
            command.grace,
            steps=finishing(
                masks.items, write_covers(masks.items, places), self.policy.root, started.preview
            ),
            folder=folder,
            inode=None if self.policy.preview else inode,
            own=list(self._own),
            room=max(0, MOST_ROOM - len(masks.items) - len(masks.own_met)),
            proxied=proxy_environment(PORT, loopback_outside=self.hosts.this_machine)
            if self.hosts
            else {},
        )
        self.shape_launch(launch)
        execution = Execution(command, applied, started.told, started.finish)
        try:
            await execution.begin(launcher, launch)
        except BaseException:
            await started.let_go()
            raise
        return execution

    async def masks(self) -> Masks:
        """What is to be laid over names in the workspace as it is now."""
        async with self._scanning:
            began, own_before = time.perf_counter(), frozenset(self._own)
            if self._scan_seconds < _AT_ONCE:
                masks = self._scanner.scan(own_before)
            else:
                masks = await asyncio.to_thread(self._scanner.scan, own_before)
            self._scan_seconds = time.perf_counter() - began
            # A file that is gone leaves its number to others, which are not the session's own.
            self._own -= own_before - masks.own_met
            return masks

    async def _look_for_another_root(self, launcher: Launcher) -> None:
        """Views are made of the folder that the workspace was. If it was replaced, they are made
        anew.
        """
        status = self.policy.root.stat()
        root = (status.st_dev, status.st_ino)
        if self._root not in (None, root):
            await launcher.close()
        self._root = root

    def made(self, identity: str) -> None:
        """A command of the session created this file, which others may not see: it is theirs."""
        self._own.add(identity)

    def serve(self, listener: socket.socket, identity: Identity) -> Listening:
        """Answer what a command asks of the proxy, on this socket."""
        if self._proxy is None:
            self._proxy = Proxy(self.hosts, self._contact)
        return self._proxy.serve_listener(listener, identity)

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Folders of the view in place of those outside."""
        values = {name: value for name, value in given.items() if name not in ("TEMP", "TMP")}
        return values | {"HOME": self._home, "TMPDIR": "/tmp"}

    async def close(self) -> None:
        if self._proxy is not None:
            await self._proxy.close()
        await asyncio.to_thread(self.remove)

    def remove(self) -> None:
        """Take the session's folder away, with all that commands left in it."""
        for folder, _, _ in self._groups:
            control_groups.remove(folder)  # the server did so, unless it was killed
        self._session.remove()


class _Started:
    """What one command needs beside its view: its way to the network, the folder that a preview
    writes to.
    """

    def __init__(self, confinement: Confinement, identity: Identity, places: Places) -> None:
        self.confinement = confinement
        self.identity = identity
        self.listening: list[Listening] = []
        self.preview = ""
        if confinement.policy.preview:
            self._folder = Path(tempfile.mkdtemp(dir=f"{places.held}/previews"))
            self.preview = self._folder.name
            self._folder.chmod(0o755)
            (self._folder / "work").mkdir()
            (self._folder / "upper").mkdir()
            shutil.copystat(confinement.policy.root, self._folder / "upper")

    def told(self, word: str, rest: str, descriptors: list[int]) -> bool:
        """A line of the supervisor or of pid 1."""
        if word == "made":
            self.confinement.made(rest)
            return True
        if word == "ports" and descriptors:
            for descriptor in descriptors:
                listener = socket.socket(fileno=descriptor)
                self.listening.append(self.confinement.serve(listener, self.identity))
            return True
        return False

    async def finish(self, ended: Ended) -> Ended:
        """The command is gone: what it would have changed is read, and everything put away."""
        try:
            if not self.preview:
                return ended
            policy = self.confinement.policy
            seen = await asyncio.to_thread(
                preview, self._folder / "upper", policy.root, policy.names
            )
            return replace(ended, changes=seen.changes, changes_cut=seen.cut)
        except OSError as error:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                f"what the command would have changed could not be read: {error.strerror}",
            ) from error
        finally:
            await self.let_go()

    async def let_go(self) -> None:
        for listening in self.listening:
            await listening.close()
        if self.preview:
            await asyncio.to_thread(remove, str(self._folder))


def write_covers(masks: tuple[Mask, ...], places: Places) -> dict[str, str]:
    """Files to lay over masked ones; their names in `held/covers`, by the path of what they cover.

    A file that nobody may open gets one with its size and its time: with `git_config`'s way of
    comparing, git takes it for unchanged and does not open it. Else a tracked `.env.example` would
    be in the way of every commit.
    """
    names: dict[str, str] = {}
    for mask in masks:
        if mask.kind is Kind.TEXT:
            content = mask.text.encode("utf-8", "surrogateescape")
            names[mask.path] = name = hashlib.sha256(content).hexdigest()[:32]
            _write_cover(Path(places.held, "covers", name), content, 0o444)
        elif mask.kind is Kind.UNREADABLE and (status := _regular(mask.path)) is not None:
            size, time = status.st_size, int(status.st_mtime)
            names[mask.path] = name = f"{size}-{time}-{status.st_mode & 0o111:o}"
            _write_cover(Path(places.held, "covers", name), b"", status.st_mode & 0o111, size, time)
    return names


def _regular(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None  # gone: laying something over it says so
    return status if stat.S_ISREG(status.st_mode) else None


def _write_cover(path: Path, content: bytes, mode: int, size: int = -1, time: int = -1) -> None:
    if path.exists():
        return
    path.write_bytes(content)
    if size >= 0:
        os.truncate(path, size)  # sparse: it takes no room
        os.utime(path, (time, time))
    path.chmod(mode)


def folder_of(directory: int) -> tuple[str, tuple[int, int]]:
    """Where a descriptor's folder is, and which one it is."""
    status = os.fstat(directory)
    return os.readlink(f"/proc/self/fd/{directory}"), (status.st_dev, status.st_ino)  # noqa: PTH115  a link of the kernel's
