"""The files of a workspace as they are kept, and how another folder is given them.

What is there is one state a path, in the form of `rewind.states`, with two more: `link:<sha256>`
for a link, by the hash of where it points, and `repository:<sha256>` for a folder called `.git`, by
what its references name. Contents are in the artifact store, for the session's owner.

Another folder is given the files only if nothing in it would be lost: each of its files must be one
that the session had there at some time. That is looked at, and every content that is needed is
looked for, before the first file is written.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.engine.rewind.states import NOTHING, describe_content, parse_content
from ferrule.engine.rewind.workspace_scan import (
    Stamp,
    WorkspaceScan,
    WorkspaceTooLarge,
    make_stamp,
)
from ferrule.permissions.filesystem.kept_folder import KeptFolder
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage.artifacts.store import ArtifactMissing, ArtifactStore, Scope

from .repositories import (
    WorkspaceCannotTravel,
    describe_references,
    find_repository_folder,
    is_config,
    is_left_out,
    is_object,
    is_reference,
    select_settings,
)

TOOL = "workspace that travels"
"""The tool that the store names as the source of such an artifact."""
MAX_NAMED = 3
"""How many paths an error names."""
SETTLED_NS = 50_000_000
"""A file that was changed less long ago is read again: its times may not show the next change."""
_LINK, _UNREADABLE = "link:", "unreadable"


class WorkspaceConflict(FerruleError):
    """A folder has other files than those that a session would bring."""

    code = "workspace_conflict"


class WorkspaceIncomplete(FerruleError):
    """Files of a session are not kept any more."""

    code = "workspace_incomplete"


class KeptFiles:
    """The files of one session in one folder. Its methods block.

    Args:
        workspace: The folder, with what tools may read of it.
        store: Where contents are kept.
        scope: The session's owner.
        max_bytes: Bytes that all files may have together.
    """

    def __init__(
        self, workspace: Workspace, store: ArtifactStore, scope: Scope, max_bytes: int
    ) -> None:
        self._workspace = workspace
        self._store = store
        self._scope = scope
        self._max_bytes = max_bytes
        self._scan = WorkspaceScan(workspace, repositories=True)
        self._stamps: dict[str, Stamp] = {}
        self._known: dict[str, set[str]] = {}
        self.states: dict[str, str] = {}
        """The state of each path, as it was kept last."""

    def remember(self, paths: Iterable[str], states: Iterable[str]) -> None:
        """Take note of paths that were kept."""
        for path, state in zip(paths, states, strict=True):
            self._known.setdefault(path, set()).add(state)
            if state == NOTHING:
                self.states.pop(path, None)
            else:
                self.states[path] = state

    def keep(self) -> dict[str, str]:
        """Keep what has changed in the folder since, and return the states of those paths.

        Raises:
            WorkspaceTooLarge, WorkspaceCannotTravel: The files cannot be kept.
            FerruleError, OSError: The store cannot be written.
        """
        return self._collect(is_kept=True)

    def bring(self, *, is_own: bool, begin: Callable[[], None]) -> list[str]:
        """Give the folder the files as they were kept last.

        Args:
            is_own: Whether this session was the last to use the folder, and did not end well there:
                then what it left of a call that was interrupted is kept aside and replaced.
            begin: Called before the first file is written.

        Returns:
            The paths of what was kept aside.

        Raises:
            WorkspaceConflict, WorkspaceIncomplete: Nothing was changed.
            OSError: The files cannot be written. It may be tried again.
        """
        changed = self._collect(is_kept=is_own)
        there = {**self.states, **changed}
        wanted = {
            path: state
            for path, state in self.states.items()
            if there.get(path, NOTHING) != state and not _is_own_config(path, there)
        }
        strange = [path for path in sorted(there) if self._is_strange(path, there[path])]
        hidden = [path for path in sorted(wanted) if self._is_hidden(path, there)]
        if (strange or hidden) and not is_own:
            raise WorkspaceConflict(
                f"`{self._workspace.root}` has files that are not of this session: "
                f"{_list_some(strange or hidden)}; nothing was changed",
                hint="empty the folder, or give this machine another one for the session",
            )
        self._find_contents(wanted)
        begin()
        folder = KeptFolder(self._workspace.root)
        try:
            self._write(folder, wanted, there)
        finally:
            folder.close()
        self._stamps.clear()
        return strange

    def _is_strange(self, path: str, state: str) -> bool:
        """Whether this session never had this there, so that to replace it would lose it."""
        if state in (NOTHING, "dir") or state in self._known.get(path, ()):
            return False
        repository = find_repository_folder(path)
        # A repository is judged as a whole: by its references.
        return not repository or repository == path

    def _is_hidden(self, path: str, there: Mapping[str, str]) -> bool:
        """Whether a path is taken by a file that is not kept, such as one that is ignored here."""
        place = self._workspace.root / path
        is_taken = there.get(path, NOTHING) == NOTHING and os.path.lexists(place)
        return is_taken and (place.is_symlink() or not place.is_dir())

    # ---- reading

    def _collect(self, *, is_kept: bool) -> dict[str, str]:
        """Return the states of paths that are not as they were kept; keep their contents."""
        folder = KeptFolder(self._workspace.root)
        try:
            found = self._read_all(folder, is_kept=is_kept)
        except WorkspaceTooLarge as error:
            raise WorkspaceTooLarge(
                f"the files of `{self._workspace.root}` cannot go along: {error.detail}",
                hint=(
                    "name folders that can be made again in `.gitignore`, or raise "
                    "`plugins.travelling_files.max_bytes`"
                ),
            ) from error
        finally:
            folder.close()
        changed = {path: state for path, state in found.items() if state != self.states.get(path)}
        changed.update(dict.fromkeys(self.states.keys() - found.keys(), NOTHING))
        return changed

    def _read_all(self, folder: KeptFolder, *, is_kept: bool) -> dict[str, str]:
        """Return the state of every path, and keep the contents that are new."""
        found: dict[str, str] = {}
        references: dict[str, dict[str, bytes]] = {}
        left = self._max_bytes
        for name, status in self._list():
            is_file = stat.S_ISREG(status.st_mode)
            left -= status.st_size if is_file else 0
            if left < 0:
                raise WorkspaceTooLarge(f"it has more than {self._max_bytes >> 20} MiB")
            state = self._read_state(folder, name, status, is_kept=is_kept)
            if state == _UNREADABLE:
                continue
            found[name] = state
            repository = find_repository_folder(name)
            if repository == name and stat.S_ISDIR(status.st_mode):
                references[name] = {}
            elif is_file and is_reference(name):
                inside = name.removeprefix(f"{repository}/")
                references[repository][inside] = folder.read(name)
        for name, files in references.items():
            found[name] = describe_references(files)
        return found

    def _list(self) -> Iterable[tuple[str, os.stat_result]]:
        for name, status in self._scan.list_names():
            if find_repository_folder(name) and is_left_out(name):
                continue
            if not _is_text(name):
                raise WorkspaceCannotTravel(
                    f"the name {os.fsencode(name)!r} is not UTF-8: its file cannot go along",
                    hint="rename it",
                )
            yield name, status

    def _read_state(
        self, folder: KeptFolder, name: str, status: os.stat_result, *, is_kept: bool
    ) -> str:
        """Return the state of a path, and keep its content if that is new."""
        stamp = make_stamp(status)
        if self._stamps.get(name) == stamp and name in self.states:
            return self.states[name]
        state = self._read(folder, name, status, is_kept=is_kept)
        if time.time_ns() - status.st_ctime_ns > SETTLED_NS:
            self._stamps[name] = stamp
        else:
            self._stamps.pop(name, None)
        return state

    def _read(self, folder: KeptFolder, name: str, status: os.stat_result, *, is_kept: bool) -> str:
        is_in_repository = find_repository_folder(name) not in ("", name)
        if not is_in_repository and self._workspace.names.check(name, write=False) is not None:
            return _UNREADABLE
        if stat.S_ISDIR(status.st_mode):
            return "dir"
        try:
            if stat.S_ISLNK(status.st_mode):
                target = folder.read_link(name)
                self._keep(target, is_kept=is_kept)
                return f"{_LINK}{hashlib.sha256(target).hexdigest()}"
            if not stat.S_ISREG(status.st_mode):
                return _UNREADABLE
            if is_config(name):
                data = select_settings(self._workspace.root / name)
            elif is_in_repository:
                data = folder.read(name)
            else:
                data = self._workspace.read(name, limit=self._max_bytes)
        except FileNotFoundError:
            return _UNREADABLE
        except (ToolFailed, OSError) as error:
            if isinstance(error, ToolFailed) and error.error_type is ErrorType.NOT_FOUND:
                return _UNREADABLE
            raise WorkspaceCannotTravel(
                f"the file `{name}` cannot go along: {error}",
                hint="make it readable, or leave it out: name its folder in `.gitignore`",
            ) from error
        self._keep(data, is_kept=is_kept)
        return describe_content(data, executable=bool(status.st_mode & 0o111))

    def _keep(self, data: bytes, *, is_kept: bool) -> None:
        if is_kept:
            self._store.put(self._scope, [data], mime="application/octet-stream", tool=TOOL)

    # ---- writing

    def _find_contents(self, wanted: Mapping[str, str]) -> None:
        """Raise WorkspaceIncomplete unless every content is kept."""
        missing = [path for path, state in wanted.items() if not self._is_kept(state)]
        if missing:
            raise WorkspaceIncomplete(
                f"files of this session are not kept here: {_list_some(sorted(missing))}; nothing "
                "was changed",
                hint=(
                    "give all workers one artifact store (`artifacts.store`), which keeps files "
                    "for longer than runs take (`artifacts.days`, `artifacts.max_bytes`)"
                ),
            )

    def _is_kept(self, state: str) -> bool:
        digest = _hash_of(state)
        try:
            return not digest or bool(self._store.find(self._scope, f"art-{digest}"))
        except ArtifactMissing:
            return False

    def _write(
        self, folder: KeptFolder, wanted: Mapping[str, str], there: Mapping[str, str]
    ) -> None:
        """Write files, delete what is not wanted, and the references of repositories last."""
        unwanted = [
            path
            for path, state in there.items()
            if state != NOTHING
            and path not in self.states
            and not is_object(path)
            and not is_config(path)
        ]
        for path in sorted(unwanted, reverse=True):
            self._delete(folder, path, there[path])
        for path in sorted(wanted, key=lambda path: (is_reference(path), path)):
            self._workspace.check_own_code(path, path)
            state = wanted[path]
            content = parse_content(state)
            if state == "dir" or state.startswith("repository:"):
                folder.make_folder(path)
            elif content is not None:
                folder.write(path, self._load(content[0]), executable=content[1])
            else:
                folder.make_link(path, self._load(_hash_of(state)))

    def _delete(self, folder: KeptFolder, path: str, state: str) -> None:
        self._workspace.check_own_code(path, path)
        try:
            folder.delete(path)
        except OSError:
            # A folder with something in it that does not travel stays.
            if state != "dir" and not state.startswith("repository:"):
                raise

    def _load(self, digest: str) -> bytes:
        artifact = self._store.find(self._scope, f"art-{digest}")
        return self._store.read(self._scope, artifact.reference, 0, artifact.size)


def _hash_of(state: str) -> str:
    """Return the hash of the content of a state, or "" if it has none."""
    if state.startswith(_LINK):
        return state.removeprefix(_LINK)
    content = parse_content(state)
    return content[0] if content else ""


def _is_own_config(path: str, there: Mapping[str, str]) -> bool:
    """Whether a path is the configuration of a repository that has one already."""
    return is_config(path) and there.get(path, NOTHING) != NOTHING


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _list_some(paths: list[str]) -> str:
    more = len(paths) - MAX_NAMED
    named = ", ".join(f"`{path}`" for path in paths[:MAX_NAMED])
    return f"{named} and {more} more" if more > 0 else named
