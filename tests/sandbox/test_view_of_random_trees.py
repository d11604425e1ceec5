"""The view is built whatever lies in the folders that it is made of, and shows what the rules say.

Random trees of folders, files, links and environments; some of the folders are opened, one is the
workspace, some are on the PATH. A probe inside reads every file by its real path. What it could
read must lie in what the person opened, or in a part of an installation that they named.

`FERRULE_TEST_TREES` is the number of trees for each backend.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from backend_sandboxes import BACKENDS
from shelled import says

from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.view.description import describe_view

TREES = int(os.environ.get("FERRULE_TEST_TREES", "6"))
NAMES = ("bin", "lib", "lib64", "venv", "data", "share", "a", "b")


class Tree:
    """A random tree. `folders` are all folders that a policy may name, links to them included."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base = base
        self.random = random.Random(seed)
        self.folders = [base]
        self.files: list[Path] = []
        for _ in range(self.random.randint(5, 30)):
            self._add(self.random.choice(self.folders) / self.random.choice(NAMES))
        self.root = base / "work"
        self.root.mkdir()
        (self.root / "venv").symlink_to(self.random.choice(self.folders))

    def _add(self, place: Path) -> None:
        place = Path(os.path.realpath(place.parent), place.name)
        if (
            not place.parent.is_dir()
            or os.path.lexists(place)
            or len(self.base.parents) + 8 < len(place.parents)
        ):
            return
        kind = self.random.randrange(6)
        if kind < 2:
            place.mkdir()
            self.folders.append(place)
        elif kind == 2:
            place.write_text(f"content of {place}\n")
            self.files.append(place)
        elif kind == 3:
            place.symlink_to(self.random.choice(self.folders))
            self.folders.append(place)
        elif kind == 4:
            place.symlink_to(os.path.relpath(self.random.choice(self.folders), place.parent))
        else:
            self._add_environment(place)

    def _add_environment(self, place: Path) -> None:
        (place / "bin").mkdir(parents=True)
        (place / "lib/python3.11").mkdir(parents=True)
        (place / "lib64").symlink_to("lib")
        home = self.random.choice(self.folders)
        (place / "pyvenv.cfg").write_text(f"home = {home}\n")
        for name in ("bin/python3", "lib/python3.11/os.py"):
            (place / name).write_text(f"content of {place / name}\n")
            (place / name).chmod(0o755)
            self.files.append(place / name)
        self.folders += [place, place / "bin", place / "lib64"]

    def choose(self, most: int) -> tuple[str, ...]:
        count = self.random.randint(0, most)
        return tuple(str(self.random.choice(self.folders)) for _ in range(count))


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="ferrule-trees-", dir=Path.home())))
    monkeypatch.setenv("HOME", str(made / "home"))
    (made / "home").mkdir()
    yield made
    shutil.rmtree(made)


async def read_inside(policy: SandboxPolicy, backend: str, files: list[Path]) -> str:
    found = next((one for one in available_backends(policy, probe()) if one.name == backend), None)
    if found is None:
        pytest.skip(f"this machine cannot start `{backend}`: {dict(probe().why)}")
    sandbox = Sandbox(policy, backend=found)
    names = " ".join(f"'{name}'" for name in files)
    environment = {"PATH": os.environ["PATH"]}
    try:
        script = f"cat {names} /dev/null 2>/dev/null; echo done"
        _, text = await says(sandbox, script, policy.root, environment=environment)
    finally:
        await sandbox.close()
    return text


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_view_is_built_and_shows_what_the_rules_say(
    backend: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(TREES):
        place = base / str(number)
        place.mkdir()
        tree = Tree(place, number)
        path = ":".join((*tree.choose(3), "/usr/bin", "/bin"))
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("VIRTUAL_ENV", str(tree.random.choice(tree.folders)))
        policy = replace(
            SandboxPolicy(tree.root, require=frozenset()),
            readable=tree.choose(3),
            writable=tree.choose(1),
        )
        text = asyncio.run(read_inside(policy, backend, tree.files))
        assert text.endswith("done\n"), (number, text)
        described = describe_view(policy)
        left_out = {one.path for one in described if one.access == "none"}
        shown = [Path(one.path) for one in described if one.access != "none"]
        seen = {name for name in tree.files if f"content of {name}\n" in text}
        allowed = {
            name for name in tree.files if any(name.is_relative_to(place) for place in shown)
        }
        assert seen <= allowed, (number, seen - allowed)
        opened = [
            os.path.realpath(one)
            for one in (*policy.readable, *policy.writable)
            if one not in left_out
        ]
        named = {
            name
            for name in tree.files
            if any(name.is_relative_to(place) for place in (*opened, tree.root))
        }
        assert named <= seen, (number, named - seen)
        programs = [
            os.path.realpath(one)
            for one in path.split(":")
            if not policy.command_writable.contains(one)
        ]
        installed = {
            name
            for name in allowed - named
            if not is_part(name) and not any(name.is_relative_to(one) for one in programs)
        }
        assert not installed, (number, installed)


def is_part(name: Path) -> bool:
    """Whether a file is in a part of an installation, or in a folder that holds programs."""
    return not {"bin", "lib", "share"}.isdisjoint(name.parts)
