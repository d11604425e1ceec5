"""What this machine has that a view is made of, looked at once for a session.

Also writes what the session's own home is given: a `~/.gitconfig` with the person's name and
address. A commit of a command is theirs, as one of theirs would be. A repository that says
otherwise wins, as with git anywhere.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.permissions.provenance import (
    NOTHING_WRITABLE,
    CommandWritable,
    Origin,
    TrustedPath,
    find_first_link,
    trust_path,
)

from . import certificates, git_config, package_indexes
from .environments import find_environments
from .layout import PROC_FOLDERS, PROC_SECRETS, SYSTEM, MachineFolders, SessionPaths
from .openings import Openings
from .toolchains import ReadOnlyBind, find_inside, find_shipped_programs, find_toolchains

_MAX_ENTRIES = 20_000
"""Entries of /etc that are looked at: beyond, folders are covered whole."""

_CLOSED_NAMES = (
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "ssl/private",
    "pki/tls/private",
    "krb5.keytab",
    "wireguard",
    "openvpn",
    "letsencrypt",
    "NetworkManager/system-connections",
    "docker",
    "kubernetes",
    "rancher",
    "ppp",
)
"""Below /etc: covered whoever may read them."""


def inspect_machine(
    environment: Mapping[str, str], home: str, places: SessionPaths, openings: Openings
) -> MachineFolders:
    """Look at this machine, and write the session's own git configuration.

    Args:
        environment: That of the commands: it says which toolchains and environments they use.
        home: The person's home folder.
        places: The folders of the session.
        openings: The workspace, and what a person opened besides.
    """
    writable = openings.writable
    write_git_identity(environment, home, places, writable)
    write_package_indexes(home, places, writable)
    path = environment.get("PATH", "")
    prefixes = (sys.prefix, sys.base_prefix)
    environments = find_environments(environment, home, openings.root, writable)
    binds = find_toolchains(Path(home), writable, path, prefixes, environments)
    binds = (*_drop_visible_links(binds, openings), *find_shipped_programs(home, writable))
    closed = dict(_closed_paths(Path("/etc")))
    for bind in binds:
        closed.update((hidden, os.path.isdir(hidden)) for hidden in bind.hidden)  # noqa: PTH112  text, as all of them
    return MachineFolders(
        session=places,
        home=home,
        openings=openings,
        system=tuple(find_system_folders(writable)),
        system_links=dict(_list_system_links()),
        closed=closed,
        proc=dict(find_closed_proc("/proc")),
        devices=frozenset(os.listdir("/dev")),  # noqa: PTH208  names, not paths
        toolchains=binds,
        read_only=find_inside(Path(home), writable, path, prefixes),
        processors=_find_processors(writable),
    )


def find_closed_proc(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the names directly in /proc that commands do not see, and whether each is a folder.

    That is what `PROC_SECRETS` and `PROC_FOLDERS` name, and each file that not everybody may read:
    to root the kernel shows its own tables without asking for a capability.

    Args:
        folder: Where /proc is.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in PROC_FOLDERS:
                yield entry.name, True
            elif entry.is_file(follow_symlinks=False) and _is_closed_proc(entry):
                yield entry.name, False


def _is_closed_proc(entry: os.DirEntry[str]) -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    return entry.name in PROC_SECRETS or not mode & stat.S_IROTH


def _drop_visible_links(
    binds: tuple[ReadOnlyBind, ...], openings: Openings
) -> Iterator[ReadOnlyBind]:
    """Yield the binds, without those for links that commands see as they are.

    Nothing can be mounted on a link, and none is needed: what it leads to is shown by itself.
    """
    shown = [
        *(f"/{name}" for name in (*SYSTEM, "dev", "proc", "sys", "run")),
        openings.root,
        *(folder.path for folder in openings.folders),
        *(bind.path for bind in binds if not bind.is_alias),
    ]
    for bind in binds:
        link = find_first_link(bind.shown_at) if bind.is_alias else None
        if link is None or not any(Path(link).is_relative_to(place) for place in shown):
            yield bind


def write_git_identity(
    environment: Mapping[str, str],
    home: str,
    places: SessionPaths,
    writable: CommandWritable = NOTHING_WRITABLE,
) -> None:
    """Write who the person is into the session's home.

    A file that a command made there by now stays. What commands can write does not say who the
    person is.
    """
    config_home = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    files = (Path(config_home, "git/config"), Path(home, ".gitconfig"))
    text = git_config.extract_identity(
        *(_read_text(path) for path in files if _is_own(path, writable))
    )
    if text:
        _write_new(f"{places.home}/.gitconfig", text)


def write_package_indexes(
    home: str, places: SessionPaths, writable: CommandWritable = NOTHING_WRITABLE
) -> None:
    """Write where the person's package managers look into the session's home.

    A file that a command made there by now stays.
    """

    def read(path: Path) -> str:
        return _read_text(path) if _is_own(path, writable) else ""

    for name, text in package_indexes.list_settings(home, read):
        path = Path(places.home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_new(str(path), text)


def _write_new(path: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError), os.fdopen(os.open(path, flags, 0o600), "w") as file:
        file.write(text)


def _is_own(path: Path, writable: CommandWritable) -> bool:
    """Whether a file is the person's. A relative path would mean our working folder."""
    return path.is_absolute() and not writable.contains(str(path))


def _read_text(path: Path) -> str:
    """Return the text of a person's own file, empty if there is none."""
    try:
        file = open_for_reading(path, follow_links=True)
    except OSError:
        return ""
    with file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(git_config.LIMIT).decode("utf-8", "replace") if regular else ""


def find_system_folders(writable: CommandWritable) -> Iterator[TrustedPath]:
    """Yield the folders of the root that commands see, without those that they can write.

    Args:
        writable: What commands can write; a workspace in a system folder is shown as such.
    """
    for name in sorted(SYSTEM):
        path = Path("/", name)
        if path.is_dir() and not path.is_symlink() and not writable.contains(str(path)):
            yield trust_path(path, Origin.MACHINE, writable, reason="a folder of the system")


def _list_system_links() -> Iterator[tuple[str, str]]:
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            yield name, str(path.readlink())


def _find_processors(writable: CommandWritable) -> TrustedPath | None:
    path = "/sys/devices/system/cpu"
    if writable.contains(path) or not Path(path).is_dir():
        return None
    return trust_path(path, Origin.MACHINE, writable, reason="how many processors there are")


def _closed_paths(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield what of /etc is to be covered, and whether it is a folder.

    Besides the table that is what not everybody may read (we may be root, and commands have our
    user id), and what has a secret's name unless it is a public certificate.
    """
    entries_left = _MAX_ENTRIES
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            entries = list(os.scandir(current))
        except OSError:
            continue  # commands cannot look into it either
        for entry in entries:
            entries_left -= 1
            status = entry.stat(follow_symlinks=False)
            is_folder = stat.S_ISDIR(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                continue  # what it leads to has a name of its own
            if _is_closed_paths(folder, entry, status) or (is_folder and entries_left < 0):
                yield entry.path, is_folder
            elif is_folder:
                waiting.append(Path(entry.path))


def _is_closed_paths(folder: Path, entry: os.DirEntry[str], status: os.stat_result) -> bool:
    name = os.path.relpath(entry.path, folder)
    if name in _CLOSED_NAMES or not status.st_mode & (stat.S_IROTH | stat.S_IXOTH):
        return True
    if DEFAULT_NAMES.check(entry.name, write=False) is None:
        return False
    return not (stat.S_ISREG(status.st_mode) and _is_public(entry.path))


def _is_public(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  one of thousands
            return certificates.is_only_public(file.read(certificates.LIMIT + 1))
    except OSError:
        return False
