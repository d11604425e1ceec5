"""Where a cell runs: systems made from Debian's packages, Pythons, users and checkouts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = Path(__file__).with_name("launch.py")
USER = "ferrule-anywhere"
PLACE = "/srv/ferrule-anywhere"
"""Where checkouts are, in this system and in those that are made."""

_CARRIED = re.compile(r"(PIP|UV|SSL|npm)_\w+|\w+_(proxy|PROXY)|\w+_CA_(BUNDLE|CERTS)")
_PIP_FILES = ("/etc/xdg/pip", "/etc/pip.conf")
_PATHS_IN_TEXT = re.compile(r"(?:file://|=)'?(/[^\s']+)")


class NotHere(Exception):
    """Why a cell cannot be had on this machine."""


@dataclass
class Cell:
    """A line of `cells.yaml`."""

    name: str
    machine: str = "here"
    python: str = "system"
    user: str = "ordinary"
    path: str = "plain"
    tests: str = "few"
    conditions: list[str] = field(default_factory=list[str])
    fresh: bool = False


@dataclass
class Place:
    """What a cell runs with: a system, an interpreter, a user and the folder of a checkout."""

    root: str
    python: str
    version: str
    opened: str
    user: tuple[int, int] | None
    home: str
    folder: str

    def outside(self, path: str) -> Path:
        """Return the path of a file of this system as we see it."""
        return Path(f"{self.root}{path}")

    def command(self, command: list[str], conditions: list[str]) -> list[str]:
        """Return what runs a command there, under these conditions."""
        name = USER if self.user else "root"
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin" + ("" if self.user else ":/usr/sbin:/sbin"),
            "HOME": self.home,
            "USER": name,
            "LOGNAME": name,
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHON": self.python,
            **{key: value for key, value in os.environ.items() if _CARRIED.fullmatch(key)},
        }
        wanted: dict[str, Any] = {
            "root": self.root,
            "binds": carried_files() if self.root else [],
            "opened": self.opened,
            "user": self.user,
            "home": self.home,
            "folder": self.folder,
            "environment": environment,
            "conditions": conditions,
            "command": command,
        }
        return [sys.executable, str(LAUNCH), json.dumps(wanted)]


def find_place(cell: Cell, systems: Path, packages: str) -> Place:
    """Return where a cell runs, with a checkout of what is here now. NotHere if it cannot."""
    if os.geteuid() != 0:
        raise NotHere("needs root: users, mounts and other systems are made")
    root = "" if cell.machine == "here" else str(make_system(cell.machine, systems, packages))
    python, version, opened = _find_python(cell, root)
    if (root or opened or cell.conditions) and not may_mount():
        raise NotHere("mounts cannot be made here")
    user = None if cell.user == "root" else _find_user(root)
    words = [version if not root else "", cell.user, *(cell.conditions if cell.fresh else ())]
    key = "-".join(word for word in words if word)
    folder = {
        "plain": f"{PLACE}/{key}/ferrule",
        "blanks": f"{PLACE}/Größe und Maß/{key}/ferrule",
        "tmp": f"/tmp/ferrule-anywhere/{key}/ferrule",
    }[cell.path]
    home = f"{PLACE}/homes/{key}-{cell.path}"
    place = Place(root, python, version, opened, user, home, folder)
    _copy_checkout(place)
    return place


@cache
def may_mount() -> bool:
    """Return whether this process may mount in a namespace of its own."""
    return (
        subprocess.run(
            ["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    )


def make_system(release: str, systems: Path, packages: str) -> Path:
    """Return the folder of a Debian release, made from Debian's packages if it is not there."""
    folder = systems / release
    if (folder / "usr/bin/python3").exists():
        return folder
    program = shutil.which("mmdebstrap")
    if program is None:
        raise NotHere("install the package mmdebstrap, which makes it")
    # One that was begun and ended by somebody is not taken for a system.
    begun = systems / f"{release}.begun"
    shutil.rmtree(begun, ignore_errors=True)
    systems.mkdir(parents=True, exist_ok=True)
    words = [program, "--variant=minbase", f"--include={packages}", release, str(begun)]
    # A mirror may be a snapshot, whose lists count as old.
    words.insert(1, '--aptopt=Acquire::Check-Valid-Until "false"')
    # What it mounts is gone with it, however it ends: what is removed here is never another's.
    words = ["unshare", "--mount", *words]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        shutil.rmtree(begun, ignore_errors=True)
        said = made.stderr.strip() or f"it ended with {made.returncode}"
        raise NotHere(f"mmdebstrap: {said.splitlines()[-1]}")
    begun.rename(folder)
    return folder


@cache
def find_pythons() -> dict[tuple[int, ...], str]:
    """Return the Pythons of this system that Ferrule runs on, by version.

    They are looked for in `PATH`, where programs of pyenv may stand for another, and where pyenv
    and uv keep theirs.
    """
    folders = ["/usr/local/bin", "/usr/bin", *os.get_exec_path()]
    candidates = [Path(folder, f"python3.{minor}") for folder in folders for minor in range(11, 30)]
    candidates += [Path(folder, "python3") for folder in folders]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += pyenv.glob("versions/3.*/bin/python3")
    candidates += Path.home().glob(".local/share/uv/python/*/bin/python3")
    found: dict[tuple[int, ...], str] = {}
    for candidate in candidates:
        version, python = _ask_python([str(candidate)]) if candidate.exists() else ((), "")
        if version >= (3, 11):
            found.setdefault(version, python)
    return found


def _ask_python(command: list[str]) -> tuple[tuple[int, ...], str]:
    """Return the version of an interpreter and its path, outside of virtual environments.

    One that cannot make virtual environments, or does not start, has no version.
    """
    text = "import sys, venv, ensurepip; print(*sys.version_info[:3], sys._base_executable)"
    ran = subprocess.run([*command, "-c", text], capture_output=True, text=True, check=False)
    if ran.returncode:
        return (), ""
    *version, path = ran.stdout.split(maxsplit=3)
    return tuple(map(int, version)), path.strip()


def _find_python(cell: Cell, root: str) -> tuple[str, str, str]:
    """Return interpreter, version, and the folder that has to be opened to an ordinary user."""
    if root:
        version, _ = _ask_python(["chroot", root, "/usr/bin/python3"])
        return "/usr/bin/python3", ".".join(map(str, version)), ""
    found = find_pythons()
    if cell.python in ("oldest", "newest"):
        if not found:
            raise NotHere("no Python from 3.11 on is here")
        version = min(found) if cell.python == "oldest" else max(found)
    else:
        wanted = tuple(map(int, cell.python.split(".")))
        matching = [version for version in found if version[: len(wanted)] == wanted]
        if not matching:
            raise NotHere(f"no Python {cell.python} is here")
        version = max(matching)
    python = found[version]
    prefix = Path(os.path.realpath(python)).parents[1]
    is_open = all(part.stat().st_mode & 1 for part in (prefix, *prefix.parents))
    opened = "" if is_open or cell.user == "root" else str(prefix)
    return python, ".".join(map(str, version)), opened


def _find_user(root: str) -> tuple[int, int]:
    """Return the ids of the ordinary user, who is made if needed."""
    into = ["chroot", root] if root else []
    passwords = Path(f"{root}/etc/passwd")
    for _ in range(2):
        for line in passwords.read_text().splitlines():
            name, _, user, group, *_ = line.split(":")
            if name == USER:
                return int(user), int(group)
        subprocess.run([*into, "useradd", "--no-create-home", USER], check=True)
    raise NotHere(f"useradd made no user {USER}")


@cache
def carried_files() -> list[str]:
    """Return files that other systems need to reach the index of packages as this one does."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    text = subprocess.run(pip, capture_output=True, text=True, check=False).stdout
    named = [value for key, value in os.environ.items() if _CARRIED.fullmatch(key)]
    found = ["/etc/resolv.conf", "/etc/hosts", *_PIP_FILES, *_PATHS_IN_TEXT.findall(text), *named]
    places = (place.removesuffix("/simple") for place in found if place.startswith("/"))
    return sorted({place for place in places if os.path.exists(place)})


def _copy_checkout(place: Place) -> None:
    """Copy what git knows or would add here, as a repository of its own that its user owns."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    here = [
        name for name in listed if name and os.path.lexists(os.path.join(os.fsencode(ROOT), name))
    ]
    folder, home = place.outside(place.folder), place.outside(place.home)
    for part in (folder, home):
        part.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.name not in (".venv", ".git"):
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    packed = subprocess.run(
        ["tar", "c", "--null", "-T", "-"], cwd=ROOT, input=b"\0".join(here), capture_output=True, check=True
    )  # fmt: skip
    subprocess.run(["tar", "x", "--no-same-owner"], cwd=folder, input=packed.stdout, check=True)
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    owner = place.user or (0, 0)
    for part in (folder, home):
        subprocess.run(["chown", "-R", f"{owner[0]}:{owner[1]}", str(part)], check=True)


def describe_here() -> str:
    """Return the name of this system."""
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return sys.platform
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
    return named[1].split(" (")[0].replace("GNU/Linux ", "") if named else "Linux"
