r"""Trust: a repository's own configuration loosens nothing until a person trusts it as it is.

What only restricts (`settings.restrictions`) holds without trust. Where trust was lost, because
something changed, the restrictions and guards of the version that was trusted last hold, too: its
files are kept outside the workspace (`ConfigurationSnapshot.kept`).

Covered is everything in `.ferrule/` and `.harness/`, the files `harness.md`, `ferrule.yaml`,
`ferrule.yml` and `.mcp.json` at the root of the workspace, every Python file in it that its
settings name (`tools.python`), and every program that its hooks name (`sh tools/guard.sh`). Not
covered are `AGENTS.md` and other instructions, which are text for the model and give no power. The
digest is

    SHA-256 over, per entry sorted by name:   name \0 kind \0 length in decimal \0 bytes

with names relative to the workspace in UTF-8 (`/` between parts) and kind `file` or `link` (its
bytes are the target). Symbolic links are never followed; other things (devices, pipes) are refused.
Trust is for one folder and one digest: after a file was changed, added or removed the person is
asked again. What was trusted is what `look` read, so nothing can change between the check and the
use: use `ConfigurationSnapshot.files`, and do not read the files again.

Trust is stored in `<state>/trust.json` (mode 0600), with texts for the comparison beside it. A
trust file that is damaged, newer, or writable by others is an error, and nothing is trusted.
"""

from __future__ import annotations

import base64
import difflib
import errno
import hashlib
import json
import os
import posixpath
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.command_analysis.named_scripts import find_scripts

from . import paths
from .private_files import PrivateFile
from .settings.values import read_tree
from .settings.yaml_tree import Node, parse_front_matter, parse_yaml

PROJECT_FILE = ".ferrule/ferrule.yaml"
"""The settings of a repository."""
COVERED_NAMES = (".ferrule", ".harness", ".mcp.json", "harness.md", "ferrule.yaml", "ferrule.yml")
"""What Ferrule reads as configuration is in one of these or in a Python file that they name.

Hooks in `CLAUDE_SETTINGS` come on top of that, with the scripts in `.claude/hooks`.
"""
CLAUDE_SETTINGS = (".claude/settings.json", ".claude/settings.local.json")
"""Settings of Claude Code. They are configuration here only where they have hooks."""
_CLAUDE_HOOKS = ".claude/hooks"
MAX_FILES = 2_000
MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 16
MAX_SHOWN_TEXT = 64 * 1024
"""Characters of a file up to which a difference is shown."""

TrustState = Literal["absent", "untrusted", "changed", "trusted"]
_LINK = "link to "


@frozen
class ConfigurationSnapshot:
    """A repository's configuration, read once. `files` contains its regular files by name.

    `kept` are the files as they were trusted last; empty unless the state is `changed`.
    """

    workspace: str
    state: TrustState
    digest: str
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    links: dict[str, str] = field(default_factory=dict[str, str])
    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def named_files(self) -> tuple[str, ...]:
        """The files in ordinary places that trust covers because the configuration names them."""
        python = [find_python_files(one.get(PROJECT_FILE, b"")) for one in (self.files, self.kept)]
        programs = [
            name
            for files in (self.files, self.kept)
            for name in find_hook_programs(files)
            if name in files
        ]
        return tuple(dict.fromkeys(chain(*python, programs)))


@frozen
class ConfigurationChange:
    """A file that differs from what was trusted.

    `diff` is a unified diff, empty if it is no text or a long one.
    """

    name: str
    what: Literal["added", "removed", "changed"]
    diff: str


class TrustStore:
    """What a person trusts.

    Safe to use from several processes. Nothing is written before the first `trust`.
    """

    def __init__(self, file: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        remedy = "move it away and trust the folders again"
        place = file or paths.state() / "trust.json"
        self._file = PrivateFile(place, "trust_file", remedy, follow_links=True)
        self._now = now

    def read(self, workspace: str | Path) -> ConfigurationSnapshot:
        """Read the configuration and say whether it is trusted.

        Raises:
            ConfigError: It cannot be read, or has too many files, bytes or levels.
        """
        root = os.path.realpath(workspace)
        files, links = _scan(root)
        known = self._load().get(root)
        if known is None:
            state: TrustState = "untrusted" if files or links else "absent"
            digest = _digest(files, links) if files or links else ""
            return ConfigurationSnapshot(root, state, digest, files, links)
        digest = _digest(files, links)
        if known["digest"] == digest:
            return ConfigurationSnapshot(root, "trusted", digest, files, links)
        # Also if all of it is gone: what restricted a run must not end with that.
        kept = self._kept_files(root, known.get("files", {}))
        return ConfigurationSnapshot(root, "changed", digest, files, links, kept)

    def state(self, workspace: str | Path) -> TrustState:
        """Return the state: `absent` (no configuration), `untrusted`, `changed` or `trusted`."""
        return self.read(workspace).state

    def trust(self, workspace: str | Path, *, digest: str = "") -> ConfigurationSnapshot:
        """Trust the configuration as it is.

        With a `digest`, only if it is still what the person was shown.

        Raises:
            ConfigError: There is no configuration, or it changed since it was shown.
        """
        seen = self.read(workspace)
        if not seen.files and not seen.links:
            if seen.state == "changed":
                self.revoke(workspace)  # there is nothing left to trust
                return self.read(workspace)
            raise ConfigError(
                f"`{seen.workspace}` has no configuration of its own", code="trust_absent"
            )
        if digest and digest != seen.digest:
            raise ConfigError(
                f"the configuration in `{seen.workspace}` changed while you were looking at it",
                code="trust_changed",
                hint="look at it again",
            )
        with self._file.lock():
            known = self._load()
            known[seen.workspace] = {
                "digest": seen.digest,
                "at": int(self._now() * 1000),
                "files": _hashes(seen),
            }
            paths.write_private(self._texts(seen.workspace), json.dumps(_encode(seen.files)))
            self._store(known)
        return ConfigurationSnapshot(seen.workspace, "trusted", seen.digest, seen.files, seen.links)

    def revoke(self, workspace: str | Path) -> bool:
        """Revoke trust. Return whether the folder was trusted."""
        root = os.path.realpath(workspace)
        if root not in self._load():
            return False
        with self._file.lock():
            known = self._load()
            found = known.pop(root, None) is not None
            self._store(known)
            self._texts(root).unlink(missing_ok=True)
        return found

    def trusted_folders(self) -> dict[str, int]:
        """Return the folders that were trusted, and since when (ms since 1970)."""
        return {root: int(entry.get("at", 0)) for root, entry in self._load().items()}

    def diff(self, workspace: str | Path) -> list[ConfigurationChange]:
        """Return what differs from what was trusted; without trust, all of the configuration.

        Invisible characters are spelled out.
        """
        seen = self.read(workspace)
        known = self._load().get(seen.workspace, {})
        before = cast(dict[str, str], known.get("files", {}))
        after = _hashes(seen)
        names = sorted(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        )
        return [_change(name, before, after, seen) for name in names]

    # ---- the file

    def _load(self) -> dict[str, dict[str, Any]]:
        content = self._file.read()
        if content is None:
            return {}
        try:
            known = cast(dict[str, dict[str, Any]], content["workspaces"])
            if not all(isinstance(entry["digest"], str) for entry in known.values()):
                raise TypeError
        except (KeyError, TypeError, AttributeError) as error:
            raise self._file.report_damage() from error
        return known

    def _store(self, known: dict[str, dict[str, Any]]) -> None:
        self._file.write({"workspaces": known})

    def _texts(self, root: str) -> Path:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        return self._file.path.with_name(self._file.path.name + ".d") / f"{name}.json"

    def _kept_files(self, root: str, hashes: Mapping[str, str]) -> dict[str, bytes]:
        """Return the files as they were trusted, checked by their hashes."""
        expected = {name: one for name, one in hashes.items() if not one.startswith(_LINK)}
        file = self._texts(root)
        try:
            kept = _decode_all(cast(dict[str, str], parse_json(file.read_text(encoding="utf-8"))))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise self._unusable_copy(file, root) from error
        if {name: hashlib.sha256(data).hexdigest() for name, data in kept.items()} != expected:
            raise self._unusable_copy(file, root)
        return kept

    def _unusable_copy(self, file: Path, root: str) -> ConfigError:
        return ConfigError(
            f"`{file}`, the configuration of `{root}` as you trusted it, cannot be read",
            code="trust_file",
            hint=(
                "what it restricts would be lost: `ferrule trust --revoke`, then `ferrule trust`, "
                "to look at it anew"
            ),
        )


# ---- reading a repository


_NEXT_STEPS = {
    errno.ENOENT: "check the path, or make the folder",
    errno.ENOTDIR: "name a folder",
    errno.ELOOP: "its links lead round in a circle: name the folder itself",
    errno.EACCES: "you may not read it, or a folder above it: change its rights, or take another",
}


def _scan(root: str) -> tuple[dict[str, bytes], dict[str, str]]:
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    try:
        base = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"cannot read the folder `{root}`: {error.strerror}",
            hint=_NEXT_STEPS.get(error.errno or 0, ""),
        ) from error
    try:
        for name in COVERED_NAMES:
            _read(base, name, name, files, links, 0)
        _read_claude_hooks(base, files, links)
        for name in find_python_files(files.get(PROJECT_FILE, b"")):
            if name not in files:
                _read_below(base, name, files, links)
        for name in find_hook_programs(files):
            if name not in files:
                _read_below(base, name, files, links, only_files=True)
    except OSError as error:
        raise ConfigError(
            f"cannot read the configuration in `{root}`: {error.strerror}", code="trust_read"
        ) from error
    finally:
        os.close(base)
    return files, links


@lru_cache(maxsize=8)
def find_python_files(settings: bytes) -> tuple[str, ...]:
    """Return the workspace's Python files that these settings name.

    Returns none if the settings cannot be read: then they have no effect either.
    """
    if b"python" not in settings:
        return ()
    try:
        entry = read_tree(parse_yaml(settings, PROJECT_FILE)).get("tools.python")
    except ConfigError:
        return ()
    names = entry.value if entry is not None else ()
    return tuple(dict.fromkeys(name for name in names if is_python_file(name)))


def find_hook_programs(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the programs and scripts of the workspace that the hooks in some files start.

    As far as the text of their commands says: `sh tools/guard.sh`, `./guard`. What such a program
    starts in turn is not found.
    """
    found: dict[str, None] = {}
    for name, data in files.items():
        if b"command" in data and name.endswith((".json", ".yaml", ".yml", ".md")):
            try:
                commands = tuple(_find_commands(_read_front(name, data)))
            except ConfigError:
                continue  # whoever loads it says so, and loads nothing of it
            for command in commands:
                found |= dict.fromkeys(find_named_programs(command))
    return tuple(found)


def _read_front(name: str, data: bytes) -> Node:
    if name.endswith(".md"):
        _, _, rest = data.partition(b"---\n")
        return parse_front_matter(rest.partition(b"\n---")[0], name)
    return parse_yaml(data, name)


def _find_commands(node: Node) -> Iterator[str]:
    """Yield the commands of hooks: what is below `hooks`, or all of a hook's own file."""
    for name, (_, value) in (node.pairs or {}).items():
        if name == "command" and isinstance(value.value, str):
            yield value.value
        elif name == "command" and value.items is not None:
            yield shlex.join(str(item.value) for item in value.items)
        elif name not in _OTHER_PROGRAMS:
            yield from _find_commands(value)
    for item in node.items or ():
        yield from _find_commands(item)


_OTHER_PROGRAMS = ("mcpServers", "mcp_servers", "tools", "statusLine")
"""Members of files whose `command` is no hook's."""
_HERE = compile_lazily(r"\"?\$\{?(?:CLAUDE_PROJECT_DIR|FERRULE_PROJECT_DIR)\}?\"?")


@lru_cache(maxsize=64)
def find_named_programs(command: str) -> tuple[str, ...]:
    """Return the programs and scripts of the workspace that a command line names by a path."""
    from ferrule.permissions.command_analysis.analysis import analyse_command

    analysis = analyse_command(_HERE.sub(".", command))
    found: dict[str, None] = {}
    for part in analysis.parts:
        # The others are what an interpreter hands to its script.
        likely = (name for name in find_scripts(part, analysis.parts) if "/" in name or "." in name)
        name = posixpath.normpath(next(likely, ""))
        if _is_plain_name(name):
            found[name] = None
    return tuple(found)


def _is_plain_name(name: str) -> bool:
    return not {"", ".", "..", "~"} & set(name.split("/")) and "\0" not in name


def is_python_file(name: str) -> bool:
    """Return whether an entry of `tools.python` plainly names a file below the folder."""
    return name.endswith(".py") and _is_plain_name(name)


def _read_claude_hooks(base: int, files: dict[str, bytes], links: dict[str, str]) -> None:
    """Read the settings of Claude Code that have hooks, and the scripts beside them."""
    found: dict[str, bytes] = {}
    found_links: dict[str, str] = {}
    for name in CLAUDE_SETTINGS:
        _read_below(base, name, found, found_links)
    with_hooks = {name: data for name, data in found.items() if b'"hooks"' in data}
    if with_hooks:
        files.update(with_hooks)
        links.update(found_links)
        _read_below(base, _CLAUDE_HOOKS, files, links)


def _read_below(
    base: int,
    path: str,
    files: dict[str, bytes],
    links: dict[str, str],
    *,
    only_files: bool = False,
) -> None:
    """Read a file in folders of the workspace, each opened below the one before.

    A link on the way is recorded and not followed. With `only_files` a folder is left out.
    """
    *folders, name = path.split("/")
    opened: list[int] = []
    try:
        for count, folder in enumerate(folders, 1):
            status = os.stat(folder, dir_fd=base, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                links["/".join(folders[:count])] = os.readlink(folder, dir_fd=base)
                return
            base = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=base
            )
            opened.append(base)
        if only_files and stat.S_ISDIR(os.stat(name, dir_fd=base, follow_symlinks=False).st_mode):
            return
        _read(base, name, path, files, links, 0)
    except (FileNotFoundError, NotADirectoryError):
        # It is missing: whoever wants to load it says so. Once it exists, the digest changes.
        return
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _read(
    base: int, name: str, path: str, files: dict[str, bytes], links: dict[str, str], depth: int
) -> None:
    """Read one entry, opened below its folder's descriptor and never through a link."""
    try:
        status = os.stat(name, dir_fd=base, follow_symlinks=False)
    except FileNotFoundError:
        return
    if depth > MAX_DEPTH or len(files) + len(links) >= MAX_FILES:
        raise ConfigError(
            f"`{path}`: more than {MAX_FILES} files or {MAX_DEPTH} levels", code="trust_bounds"
        )
    if stat.S_ISLNK(status.st_mode):
        links[path] = os.readlink(name, dir_fd=base)
        return
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"`{path}` is neither a file nor a folder", code="trust_bounds")
    # O_NONBLOCK: a pipe put in place after the check must not make us wait.
    descriptor = os.open(
        name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=base
    )
    try:
        if stat.S_ISDIR(status.st_mode):
            for child in sorted(os.listdir(descriptor)):  # noqa: PTH208 - a descriptor, not a path
                _read(descriptor, child, f"{path}/{child}", files, links, depth + 1)
        else:
            files[path] = _read_bytes(descriptor, path, sum(map(len, files.values())))
    finally:
        os.close(descriptor)


def _read_bytes(descriptor: int, path: str, before: int) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ConfigError(f"`{path}` is neither a file nor a folder", code="trust_bounds")
    parts: list[bytes] = []
    size = before
    while part := os.read(descriptor, 1 << 20):
        size += len(part)
        if size > MAX_BYTES:
            raise ConfigError(
                f"`{path}`: more than {MAX_BYTES} bytes of configuration", code="trust_bounds"
            )
        parts.append(part)
    return b"".join(parts)


def _digest(files: dict[str, bytes], links: dict[str, str]) -> str:
    digest = hashlib.sha256()
    entries = [(os.fsencode(name), b"file", data) for name, data in files.items()]
    entries += [(os.fsencode(name), b"link", os.fsencode(target)) for name, target in links.items()]
    for name, kind, data in sorted(entries):
        digest.update(b"%b\0%b\0%d\0" % (name, kind, len(data)) + data)
    return digest.hexdigest()


def _hashes(seen: ConfigurationSnapshot) -> dict[str, str]:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in seen.files.items()}
    return hashes | {name: f"{_LINK}{target}" for name, target in seen.links.items()}


def _encode(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode("ascii") for name, data in files.items()}


def _decode_all(kept: Mapping[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(text, validate=True) for name, text in kept.items()}


def _decode(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _change(
    name: str,
    before: dict[str, str],
    after: dict[str, str],
    seen: ConfigurationSnapshot,
) -> ConfigurationChange:
    what: Literal["added", "removed", "changed"] = "changed"
    old = _decode(seen.kept[name]) if name in seen.kept else None
    new: str | None = ""
    if name not in before:
        what = "added"
        old = ""
    elif name not in after:
        what = "removed"
    if name in seen.links:
        new = f"link to {seen.links[name]}\n"
    elif name in seen.files:
        new = _decode(seen.files[name])
    if old is None or new is None or max(len(old), len(new)) > MAX_SHOWN_TEXT:
        return ConfigurationChange(escape_for_approval(name), what, "")
    lines = difflib.unified_diff(
        _exact_lines(old),
        _exact_lines(new),
        f"trusted/{escape_for_approval(name)}",
        escape_for_approval(name),
        lineterm="",
    )
    return ConfigurationChange(escape_for_approval(name), what, "\n".join(lines))


def _exact_lines(text: str) -> list[str]:
    return escape_for_approval(text.replace("\r\n", "\n")).splitlines()
