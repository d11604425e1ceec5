"""A person's home with a workspace for planted files, and what is printed if one is believed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import pytest
from confined import Confined

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy

BACKENDS = ("namespaces", "bubblewrap", "landlock")
READ_ALL = (
    "find -L . {home} -type f -not -path '/proc/*' 2>/dev/null | head -5000 "
    "| while IFS= read -r name; do head -c 400 \"$name\" 2>/dev/null | tr -d '\\0'; done"
)
"""Prints the beginning of every file that can be reached by a name, links followed."""
_REPOSITORIES = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
cd code/other && git init -q -b {0} . && git add -A
git -c user.name=p -c user.email=p@p.example commit -q -m {0}
git worktree add -q -b side ../side; echo {0} > .git/description; echo {0} > .git/hooks/notes
git clone -q --bare . ../bare.git; echo {0} > ../bare.git/description
"""


class PlantedWorld:
    """`home` holds secrets everywhere; `root` is the workspace in it.

    Sessions are made when they are asked for. `running` is one for each backend that lasts, and
    whose commands plant; `begin` makes another one.
    """

    def __init__(self, base: Path) -> None:
        self.canary = f"cnry{token_hex(6)}"
        self.home = base / "home"
        self.root = self.home / "work/project"
        self.root.mkdir(parents=True)
        self._running: dict[str, Confined] = {}
        for name in (
            ".config/gh/hosts.yml",
            ".config/app/bin/python3",
            ".config/app/lib/python3.11/os.py",
            ".claude/projects/t.jsonl",
            ".local/share/keyrings/login",
            ".local/state/ferrule/journal",
            ".mozilla/cookies",
            ".pyenv/secret",
            "Documents/taxes.txt",
            "code/other/main.py",
            "code/other/bin/tool",
            "code/other/lib/module.py",
            "bin-notes.txt",
        ):
            self.write(self.home / name, self.canary)
        for name in (".config/app/bin/python3", "code/other/bin/tool"):
            (self.home / name).chmod(0o755)
        self._shell(_REPOSITORIES.format(self.canary), self.home)
        self.reset()

    def write(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def reset(self) -> None:
        """Leave nothing of an earlier row: what commands can write is as it was at first."""
        (self.home / "shared").mkdir(exist_ok=True)
        for place in (*self.root.iterdir(), *(self.home / "shared").iterdir()):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink()
        self.write(self.root / "data/a", "here\n")
        self.write(self.root / "nested/other/a", "here\n")
        self.write(self.home / "shared/inner/a", "here\n")

    def script(self, text: str) -> str:
        return text.replace("<H>", str(self.home)).replace("<W>", str(self.root))

    def plant(self, script: str) -> None:
        """Do what a repository does by being there."""
        self._shell(self.script(script), self.root)

    def _shell(self, script: str, folder: Path) -> None:
        subprocess.run(
            ["sh", "-c", script], cwd=folder, check=False, timeout=60, capture_output=True
        )

    def policy(self) -> SandboxPolicy:
        return SandboxPolicy(
            self.root,
            readable=(
                str(self.root / "data"),
                str(self.root / "nested/other"),
                str(self.home / "shared/inner"),
            ),
            writable=(str(self.home / "shared"),),
            require=frozenset(),
        )

    def running(self, backend: str) -> Confined:
        """Return the session of a backend that lasts as long as this world."""
        if backend not in self._running:
            self._running[backend] = open_session(self.policy(), backend)
        return self._running[backend]

    @contextmanager
    def begin(self, backend: str) -> Generator[Confined]:
        """Begin another session."""
        made = open_session(self.policy(), backend)
        try:
            yield made
        finally:
            made.close()

    @contextmanager
    def planted(self, script: str, session: str, backend: str) -> Generator[Confined]:
        """Plant something; yields the session in which it may be believed.

        Args:
            script: What plants it.
            session: `first`, by a repository before the session; `same`, by a command of it;
                `next`, by a command of another session before.
            backend: The sandbox backend.
        """
        self.reset()
        if session == "first":
            self.plant(script)
        else:
            self.say(self.running(backend), script)
        if session == "same":
            yield self.running(backend)
        else:
            with self.begin(backend) as begun:
                yield begun

    def reaches(self, script: str) -> bool:
        """Return whether a command of the first session after planting prints what it may not."""
        with self.planted(script, "first", "namespaces") as begun:
            return self.canary in self.say(begun, READ_ALL.format(home=self.home))

    def say(self, session: Confined, script: str) -> str:
        """Return what a command prints."""
        _, printed = session.run(self.script(script), timeout=60)
        return printed.decode(errors="replace")

    def close(self) -> None:
        for session in self._running.values():
            session.close()


@contextmanager
def planted_world() -> Generator[PlantedWorld]:
    """Make a world, and its home the person's. Not below /tmp: a sandbox has one of its own."""
    base = Path(tempfile.mkdtemp(prefix="ferrule-planted-", dir=Path.home()))
    made = PlantedWorld(base)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(made.home))
            patch.setenv("VIRTUAL_ENV", str(made.root / "on-path"))
            patch.setenv("PATH", f"{made.root}/on-path/bin:/usr/local/bin:/usr/bin:/bin")
            yield made
            made.close()
    finally:
        shutil.rmtree(base)


def open_session(policy: SandboxPolicy, backend: str) -> Confined:
    """Open a session of a backend; skipped where the machine does not have it."""
    policy = replace(policy, require=frozenset())
    found = next((one for one in available_backends(policy, probe()) if one.name == backend), None)
    if found is None:
        pytest.skip(f"this machine cannot start `{backend}`: {dict(probe().why)}")
    return Confined(policy, found)


def list_files(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every name below a folder: inode, mode, time, and content or what the link leads to."""
    return dict(_list_files(folder))


def _list_files(folder: Path) -> Iterator[tuple[str, tuple[int, int, int, str]]]:
    for place in sorted((folder, *folder.rglob("*"))):
        status = place.lstat()
        if place.is_symlink():
            content = os.readlink(place)
        else:
            content = place.read_text() if place.is_file() else ""
        yield str(place), (status.st_ino, status.st_mode, status.st_mtime_ns, content)
