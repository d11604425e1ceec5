"""The namespaces backend, from outside: the session's folder, how commands start, their reports.

What is made inside, and in which order, is in `sandbox/inside/pid1.py`.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import secrets
import shutil
import socket
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.provenance import TrustedPath, UntrustedPath
from ferrule.permissions.repositories import (
    find_configured_places,
    find_judged_path,
    find_repository,
    trust_repository,
)
from ferrule.sandbox.command import Command, CommandResult, Refusal
from ferrule.sandbox.inside.kernel import cgroup_limits
from ferrule.sandbox.inside.kernel.proxy_ports import PORT
from ferrule.sandbox.inside.mediator.file_identity import identify_path
from ferrule.sandbox.inside.mediator.name_rules import MAX_HIDDEN_NAMES
from ferrule.sandbox.inside.protocol import Launch
from ferrule.sandbox.inside.session import SandboxRecord
from ferrule.sandbox.launcher import Launcher
from ferrule.sandbox.network.allowed_hosts import AllowedHosts, HostRules
from ferrule.sandbox.network.listener import ProxyListener
from ferrule.sandbox.network.proxy import ConnectionAttempt, Proxy, proxy_environment
from ferrule.sandbox.policy import AppliedProtections, SandboxPolicy
from ferrule.sandbox.preview import list_changes
from ferrule.sandbox.running_command import Execution
from ferrule.sandbox.temporary_folder import remove_folder
from ferrule.sandbox.view.description import list_shown
from ferrule.sandbox.view.git_hooks import list_hooks, read_hooks
from ferrule.sandbox.view.layout import (
    SYSTEM,
    MachineFolders,
    SessionPaths,
    Step,
    command_steps,
    final_steps,
    landlock_rules,
    process_limits,
    session_steps,
)
from ferrule.sandbox.view.linked_files import Inode
from ferrule.sandbox.view.machine_folders import inspect_machine
from ferrule.sandbox.view.masks import Mask, MaskKind, ScanResult
from ferrule.sandbox.view.mount_points import clear_mount_points
from ferrule.sandbox.view.opened_folders import OpenedFolderScanner
from ferrule.sandbox.view.openings import LeftOut, Openings, resolve_openings
from ferrule.sandbox.view.rebase_steps import STEPS_FILE, remove_programs
from ferrule.sandbox.view.session_folder import SessionFolder
from ferrule.sandbox.view.siblings import SiblingPlaceholders
from ferrule.sandbox.view.toolchains import add_shipped_programs

from .cgroup import Group, find_groups
from .probes import probe

_QUICK_SCAN = 0.002
"""Seconds. If the last scan of the workspace took less, the next one needs no thread."""
_MAX_REFUSED_HOSTS = 100
"""Hosts that were refused to one command and are remembered."""
_LOCAL_IDENTITY = Identity("local", "local", "local", "local")


class NamespaceBackend:
    """The namespaces backend: what the commands of one session share.

    `close` or `remove` removes the session's folder.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        contact: Callable[[ConnectionAttempt], None],
        identity: Identity | None,
        hosts: HostRules | None = None,
    ) -> None:
        self._given_hosts = hosts
        self._said_left_out: tuple[LeftOut, ...] = ()
        self._home = os.path.realpath(Path.home())
        self._session = SessionFolder()
        self._use(policy)
        self.identity = identity or _LOCAL_IDENTITY
        self._contact = contact
        # For a session that nobody closes: it ends with the interpreter, or when it is dropped.
        self._finalizer = weakref.finalize(self, self._session.remove)
        self._scan_lock = asyncio.Lock()
        self._created_files: set[str] = set()
        self._proxy: Proxy | None = None
        self._groups: tuple[Group, ...] = ()

    def _use(self, policy: SandboxPolicy) -> None:
        self.hosts = self._given_hosts or AllowedHosts.parse(policy.network)
        self._repository_place = self._find_repository(policy)
        opened = () if self._repository_place is None else (str(self._repository_place),)
        self._given = replace(policy, writable=(*policy.writable, *opened))
        self._writable = self._given.command_writable
        self._apply(self._resolve_openings())

    def _resolve_openings(self) -> Openings:
        """Return what the policy opens as the machine is now, and the workspace's repository."""
        openings = resolve_openings(self._given, self._writable)
        place = self._repository_place
        folders = (
            replace(one, path=place) if place is not None and one.path == place else one
            for one in openings.folders
        )
        return replace(openings, folders=tuple(folders))

    def _apply(self, openings: Openings) -> None:
        """Confine commands to what was found of the policy's folders."""
        self.openings = openings
        # Real paths: a link in the workspace that leads to one of them then works in the view too.
        self.policy = replace(
            self._given,
            readable=(*openings.select("read"), *openings.read_only),
            writable=openings.select("write"),
            scratch=openings.select("scratch"),
        )
        self._scanner = OpenedFolderScanner(
            self.policy,
            home=self._home,
            repository=self._repository,
            configured=self._configured_places,
        )
        self._siblings: SiblingPlaceholders | None = None
        self._scan_seconds = 1.0
        self._seen_places: tuple[str, ...] = ()
        self._read_only: tuple[str, ...] = ()
        self._opened = _identify_opened(openings)
        self._found: MachineFolders | None = None
        self._is_view_taken = False

    def _make_placeholders(self, found: MachineFolders) -> tuple[Step, ...]:
        """Return the step that shows tracked files around the workspace, if it is a subfolder."""
        self._siblings = None
        repository, root = self._repository, str(self.policy.root)
        if repository is None or repository.work_tree == root:
            return ()
        around = repository.work_tree
        steps = session_steps(self.policy, found)
        places = [place for _, place, _ in steps]
        seen = [place for action, place, source in steps if action != "link" and place == source]
        is_seen = any(is_below(around, place) for place in seen)
        if is_seen or any(is_below(f"/{name}", around) for name in (*SYSTEM, "tmp", "dev", "proc")):
            return ()
        self._siblings = SiblingPlaceholders(
            repository, root, Path(found.session.held, "beside"), self.policy.names
        )
        self._siblings.add_places(
            (os.path.relpath(place, around), not Path(place).is_file())
            for place in places
            if is_below(place, around)
        )
        return (("read", around, str(self._siblings.folder)),)

    @property
    def steps_file(self) -> str:
        """The list of steps of a rebase in the workspace's repository; empty if it has none."""
        return f"{self._repository.git_dir}/{STEPS_FILE}" if self._repository else ""

    def may_run_hooks(self) -> bool:
        """Return whether git may run hooks of the workspace's repository, and there are any."""
        repository = self._repository
        return self.policy.git_hooks and repository is not None and bool(list_hooks(repository))

    def check_steps(self) -> bool:
        """Leave no step that runs a program in a list that commands made. Return if there was."""
        path = self.steps_file
        if not path or identify_path(path) not in self._created_files:
            return False
        return remove_programs(path)

    def _find_repository(self, policy: SandboxPolicy) -> TrustedPath | None:
        """Return what has to be opened so that git works in the workspace, if anything has to."""
        root = str(policy.root)
        self._repository = find_repository(root, self._home).repository
        self._configured_places = find_configured_places(
            root, self._repository, self._home, policy.writable
        )
        if self._repository is None:
            return None
        try:
            return trust_repository(self._repository, root, policy.opened)
        except UntrustedPath:
            self._repository = None
            return None

    async def change_policy(self, policy: SandboxPolicy) -> None:
        """Use another policy. Nothing may run, and the fork server must be closed."""
        before = self.policy
        self._use(policy)
        for path in {*before.readable, *before.writable}:
            if path not in (*self.policy.readable, *self.policy.writable):
                self._remove_mount_point(path)
        if self._proxy is not None:
            await self._proxy.close()
        self._proxy = None

    def _remove_mount_point(self, path: str) -> None:
        """Remove the empty folders that a folder was mounted on in the session's own folders.

        Left there, a command that is refused the folder would write into the empty one.
        """
        places = self.ensure_session_paths()
        for seen, own in ((self._home, places.home), ("/tmp", places.tmp)):
            if Path(path).is_relative_to(seen):
                folder = Path(own, os.path.relpath(path, seen))
                with suppress(OSError):  # it is not empty, and so a command's own
                    while folder != Path(own):
                        folder.rmdir()
                        folder = folder.parent

    def sees(self, path: str) -> bool:
        """Return whether commands see this file of the machine; True where nobody knows."""
        return not self._seen_places or any(
            path == place or path.startswith(f"{place.rstrip('/')}/") for place in self._seen_places
        )

    def ensure_session_paths(self) -> SessionPaths:
        """Return the paths of the session's folder, which is made when it is first needed."""
        return self._session.make()

    def encode_session(self) -> bytes:
        """Return the record for the fork server, made anew whenever one is started."""
        places = self.ensure_session_paths()
        found = self._found or self._inspect()
        self._found = None  # the next server is made for the machine as it is then
        self._read_only = found.read_only
        steps = session_steps(self.policy, found, self._make_placeholders(found))
        self.clear_places(steps)
        self._seen_places = tuple(
            place
            for action, place, source in steps
            if action in ("read", "write") and not source.startswith(f"{places.base}/")
        )
        found_groups = find_groups(self.policy.limits, Path(places.base).name)
        self._groups = found_groups.groups
        names = self.policy.names
        session = SandboxRecord(
            user_namespace=probe().user_namespaces,
            view_folder=places.view,
            steps=list(steps),
            command_steps=list(command_steps(found)),
            limits=process_limits(self.policy, found_groups.limited),
            groups=list(found_groups.groups),
            names=((*names.reserved, *names.creation_patterns), names.secret, names.protected),
            roots=(str(self.policy.root), *map(str, self.policy.writable)),
            judged_roots=tuple(
                map(find_judged_path, (str(self.policy.root), *map(str, self.policy.writable)))
            ),
            configured_places=self._configured_places,
            steps_file=self.steps_file,
            landlock_rules=landlock_rules(self.policy, found) if probe().landlock_abi else (),
            restrict_late=self.policy.preview,
            fixed=(*self.openings.fixed, *found.read_only),
            locked=probe().user_namespaces,
        )
        self.adapt_session(session, found)
        return session.encode()

    def _inspect(self) -> MachineFolders:
        places = self.ensure_session_paths()
        return inspect_machine(os.environ, self._home, places, self.openings)

    def take_view(self) -> tuple[str, ...]:
        """Return what commands see from now on, a line each; nothing if it was returned before."""
        if self._is_view_taken:
            return ()
        self._is_view_taken = True
        self._found = self._inspect()
        return tuple(shown.line for shown in list_shown(self._found))

    def clear_places(self, steps: Iterable[Step]) -> None:
        """Move aside what commands left in the session's own folders where something is shown."""
        clear_mount_points(steps, self._home, self.ensure_session_paths())

    def adapt_session(self, session: SandboxRecord, found: MachineFolders) -> None:
        """Adapt the session's record. For backends that confine commands in another way."""

    def adapt_launch(self, launch: Launch) -> None:
        """Adapt the record of one command. For backends that confine commands in another way."""

    def scratch_folder(self) -> tuple[Path, str]:
        """Return a folder that commands can write, as we see it and as they do."""
        return Path(self.ensure_session_paths().tmp), "/tmp"

    async def start(
        self, launcher: Launcher, command: Command, applied: AppliedProtections
    ) -> Execution:
        """Start a command in a view of its own.

        Raises:
            ToolFailed: It cannot be started.
        """
        places = self.ensure_session_paths()
        await self._restart_if_replaced(launcher)
        launcher.start()  # what a launch is made of is known once the session's record is
        masks = await self.scan_masks()
        resources = _CommandResources(self, command.identity or self.identity, places)
        environment = self._environment(command.environment) | resources.trace_environment()
        command = replace(command, environment=environment)
        folder, inode = locate_folder(command.directory)
        launch = Launch(
            list(command.argv),
            command.program,
            dict(command.environment),
            command.grace,
            steps=final_steps(
                masks.masks, write_covers(masks.masks, places), self.policy.root, resources.preview
            ),
            folder=folder,
            inode=None if self.policy.preview else inode,
            own_files=list(self._created_files),
            name_quota=max(0, MAX_HIDDEN_NAMES - len(masks.masks) - len(masks.own_seen)),
            proxy_environment=self._proxy_environment(),
        )
        self.adapt_launch(launch)
        execution = Execution(command, applied, resources.take_report, resources.finish)
        try:
            await execution.start(launcher, launch)
        except BaseException:
            await resources.let_go()
            raise
        return execution

    def _proxy_environment(self) -> dict[str, str]:
        """Return the variables of the proxy, which also says no where no host is named.

        Otherwise a program only finds that a name does not resolve, and nobody knows which.
        """
        return proxy_environment(PORT, loopback_outside=self.hosts.includes_loopback)

    async def scan_masks(self) -> ScanResult:
        """Scan the workspace for what is to be masked now."""
        async with self._scan_lock:
            started_at = time.perf_counter()
            created_before = frozenset(self._created_files)
            if self._siblings is not None:
                await asyncio.to_thread(self._siblings.update)
            if self._scan_seconds < _QUICK_SCAN:
                masks = self._scan(created_before)
            else:
                masks = await asyncio.to_thread(self._scan, created_before)
            self._scan_seconds = time.perf_counter() - started_at
            # The inode of a removed file is used again for files that are not the session's own.
            self._created_files -= created_before - masks.own_seen
            return masks

    def take_left_out(self) -> tuple[Refusal, ...]:
        """Return what was opened and is not shown. It is said once, and again when it changes."""
        left_out = self.openings.left_out
        new = () if left_out == self._said_left_out else left_out
        self._said_left_out = left_out
        return tuple(Refusal(one.access, one.path, one.why, is_final=True) for one in new)

    def _scan(self, created: frozenset[str]) -> ScanResult:
        read_only = (*self.openings.writable.sealed, *self.openings.read_only, *self._read_only)
        return self._scanner.scan(created, read_only=read_only)

    async def _restart_if_replaced(self, launcher: Launcher) -> None:
        """Restart the server if a folder was replaced that its views show: they show the old one.

        Raises:
            ToolFailed: The workspace is not the folder that it was, and must not be shown.
        """
        try:
            openings = self._resolve_openings()
        except UntrustedPath as error:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"the command was not run: {error.detail}; {error.hint}",
                refused_by="sandbox",
            ) from error
        if (openings, _identify_opened(openings)) != (self.openings, self._opened):
            await launcher.close()
            self._apply(openings)

    def note_created(self, identity: str) -> None:
        """Note a file that the session's commands created, so that it stays visible to them."""
        self._created_files.add(identity)

    def serve_proxy(
        self,
        listener: socket.socket,
        identity: Identity,
        record: Callable[[ConnectionAttempt], None],
    ) -> ProxyListener:
        """Answer a command's requests to the proxy on this socket."""
        if self._proxy is None:
            self._proxy = Proxy(self.hosts, self._contact)
        return self._proxy.serve_listener(listener, identity, record)

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Replace variables that name folders outside by those of the view."""
        values = {name: value for name, value in given.items() if name not in ("TEMP", "TMP")}
        values = add_shipped_programs(values, self._home)
        return values | {"HOME": self._home, "TMPDIR": "/tmp"}

    async def close(self) -> None:
        """Close the proxy and remove the session's folder."""
        if self._proxy is not None:
            await self._proxy.close()
        await asyncio.to_thread(self.remove)

    def remove(self) -> None:
        """Remove the session's folder, with everything that commands left in it."""
        for folder, _, _ in self._groups:
            cgroup_limits.remove(folder)  # the server did so, unless it was killed
        self._session.remove()


def _identify_opened(openings: Openings) -> dict[str, Inode | None]:
    """Return what the opened folders are, by their paths: each is another one if it is replaced."""
    paths = (openings.root, *(folder.path for folder in openings.folders))
    return {str(path): _find_inode(path) for path in paths}


def _find_inode(path: str) -> Inode | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


class _CommandResources:
    """What one command needs besides its view: its network listeners and its preview's folder."""

    def __init__(
        self, confinement: NamespaceBackend, identity: Identity, places: SessionPaths
    ) -> None:
        self.confinement = confinement
        self.identity = identity
        self.listeners: list[ProxyListener] = []
        self.refused_hosts: dict[str, Refusal] = {}
        self.preview = ""
        self._trace: Path | None = None
        if confinement.policy.preview:
            self._folder = Path(tempfile.mkdtemp(dir=f"{places.held}/previews"))
            self.preview = self._folder.name
            self._folder.chmod(0o755)
            (self._folder / "work").mkdir()
            (self._folder / "upper").mkdir()
            shutil.copystat(confinement.policy.root, self._folder / "upper")

    def trace_environment(self) -> dict[str, str]:
        """Return the variable that has git trace which hooks it runs, if there are any."""
        if not self.confinement.may_run_hooks():
            return {}
        folder, seen = self.confinement.scratch_folder()
        self._trace = folder / f".git-trace-{secrets.token_hex(8)}"
        return {"GIT_TRACE2_EVENT": f"{seen}/{self._trace.name}"}

    def _read_hooks(self) -> tuple[str, ...]:
        if self._trace is None:
            return ()
        found = read_hooks(self._trace)
        self._trace.unlink(missing_ok=True)
        return found

    def take_report(self, word: str, rest: str, descriptors: list[int]) -> bool:
        """Take a report of the supervisor or of pid 1."""
        if word == "made":
            self.confinement.note_created(rest)
            return True
        if word == "ports" and descriptors:
            for descriptor in descriptors:
                listener = socket.socket(fileno=descriptor)
                self.listeners.append(
                    self.confinement.serve_proxy(listener, self.identity, self._note_refusal)
                )
            return True
        return False

    def _note_refusal(self, attempt: ConnectionAttempt) -> None:
        """Note a host that the command asked for and was refused."""
        if attempt.allowed or not attempt.port or len(self.refused_hosts) >= _MAX_REFUSED_HOSTS:
            return
        host = f"[{attempt.host}]" if ":" in attempt.host else attempt.host
        target = f"{host}:{attempt.port}"
        self.refused_hosts[target] = Refusal(
            "network", target, attempt.reason, is_final=not attempt.unnamed
        )

    async def finish(self, ended: CommandResult) -> CommandResult:
        """Read what a preview would have changed, and clean up. Called when the command is gone."""
        left_out = self.confinement.take_left_out()
        refusals = (*ended.refusals, *self.refused_hosts.values(), *left_out)
        ended = replace(ended, refusals=refusals)
        try:
            if await asyncio.to_thread(self.confinement.check_steps):
                steps = f"{self.confinement.steps_file} (a step that runs a program)"
                ended = replace(ended, refused_names=(*ended.refused_names, steps))
            ended = replace(ended, git_hooks=await asyncio.to_thread(self._read_hooks))
            if not self.preview:
                return ended
            policy = self.confinement.policy
            seen = await asyncio.to_thread(
                list_changes, self._folder / "upper", policy.root, policy.names
            )
            return replace(ended, changes=seen.changes, changes_truncated=seen.truncated)
        except OSError as error:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                f"what the command would have changed could not be read: {error.strerror}",
            ) from error
        finally:
            await self.let_go()

    async def let_go(self) -> None:
        for listeners in self.listeners:
            await listeners.close()
        if self.preview:
            await asyncio.to_thread(remove_folder, str(self._folder))


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies in it. Text alone."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def write_covers(masks: tuple[Mask, ...], places: SessionPaths) -> dict[str, str]:
    """Write the files that are laid over masked ones.

    Returns their names in `held/covers`, by the path of what they cover.

    A file that nobody may open gets one with its size and time: with the way of comparing that
    `git_config` sets, git takes the file for unchanged and does not open it. Otherwise a tracked
    `.env.example` would be in the way of every commit.
    """
    names: dict[str, str] = {}
    for mask in masks:
        if mask.kind is MaskKind.TEXT:
            content = mask.text.encode("utf-8", "surrogateescape")
            names[mask.path] = name = hashlib.sha256(content).hexdigest()[:32]
            _write_cover(Path(places.held, "covers", name), content, 0o444)
        elif mask.kind is MaskKind.UNREADABLE:
            status = _stat_regular_file(mask.path)
            if status is not None:
                names[mask.path] = _write_unreadable_cover(Path(places.held, "covers"), status)
    return names


def _write_unreadable_cover(folder: Path, status: os.stat_result) -> str:
    mode = status.st_mode & 0o111
    modified = int(status.st_mtime)
    name = f"{status.st_size}-{modified}-{mode:o}"
    _write_cover(folder / name, b"", mode, status.st_size, modified)
    return name


def _stat_regular_file(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None  # gone: laying something over it says so
    return status if stat.S_ISREG(status.st_mode) else None


def _write_cover(path: Path, content: bytes, mode: int, size: int = -1, modified: int = -1) -> None:
    if path.exists():
        return
    path.write_bytes(content)
    if size >= 0:
        os.truncate(path, size)  # sparse: it takes no room
        os.utime(path, (modified, modified))
    path.chmod(mode)


def locate_folder(directory: int) -> tuple[str, tuple[int, int]]:
    """Return the path of a descriptor's folder, and its device and inode."""
    status = os.fstat(directory)
    if sys.platform == "darwin":
        path = os.fsdecode(fcntl.fcntl(directory, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    else:
        path = os.readlink(f"/proc/self/fd/{directory}")  # noqa: PTH115  a link of the kernel's
    return path, (status.st_dev, status.st_ino)
