"""A person's home with a workspace for planted files, and what is printed if one is believed."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import pytest

from ferrule.permissions.child_environment import filter_environment
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

BACKENDS = ("namespaces", "bubblewrap", "landlock")
READ_ALL = (
    "find -L . {home} -type f -not -path '/proc/*' 2>/dev/null | head -5000 "
    "| while IFS= read -r name; do head -c 400 \"$name\" 2>/dev/null | tr -d '\\0'; done"
)
"""Prints the beginning of every file that can be reached by a name, links followed."""


class PlantedWorld:
    """`home` holds secrets everywhere; `root` is the workspace in it, at first with `data`."""

    def __init__(self, base: Path) -> None:
        self.canary = f"cnry{token_hex(6)}"
        self.home = base / "home"
        self.root = self.home / "work/project"
        self.root.mkdir(parents=True)
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
        self.write(self.root / "data/a", "here\n")
        self.write(self.root / "nested/other/a", "here\n")
        self.write(self.home / "shared/inner/a", "here\n")

    def write(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def script(self, text: str) -> str:
        return text.replace("<H>", str(self.home))

    def plant(self, script: str) -> None:
        """Do what a repository does by being there."""
        subprocess.run(["sh", "-c", self.script(script)], cwd=self.root, check=False, timeout=60)

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

    def run(self, backend: str, *sessions: tuple[str, ...]) -> str:
        """What the last command of the last session prints. A session is its commands."""
        return asyncio.run(self._run(backend, sessions))

    async def _run(self, backend: str, sessions: tuple[tuple[str, ...], ...]) -> str:
        printed = ""
        for commands in sessions:
            sandbox = open_sandbox(self.policy(), backend)
            try:
                for command in commands:
                    printed = await self._say(sandbox, command)
            finally:
                await sandbox.close()
        return printed

    async def _say(self, sandbox: Sandbox, script: str) -> str:
        kept = Capture(1 << 20, 1 << 20)
        directory = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        environment = filter_environment(os.environ, overrides={"PWD": str(self.root)}).values
        argv = ("sh", "-c", self.script(script))
        try:
            await sandbox.run(Command(argv, "/bin/sh", directory, environment, kept, timeout=60))
        finally:
            os.close(directory)
        return kept.text()


def open_sandbox(policy: SandboxPolicy, backend: str) -> Sandbox:
    """A sandbox of a backend; skipped where the machine does not have it."""
    policy = replace(policy, require=frozenset())
    found = next((one for one in available_backends(policy, probe()) if one.name == backend), None)
    if found is None:
        pytest.skip(f"this machine cannot start `{backend}`: {dict(probe().why)}")
    return Sandbox(policy, backend=found)


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
