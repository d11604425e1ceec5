"""A protected name is judged by where it really lies, whatever folder was opened: asked of the kernel.

The rows are in `planted.opened_parts`. Each is tried on every backend, and seen from the session of
the command and from the next one. `make lab NAME=attacks` tries all; otherwise each row is tried on
one backend in turn.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from planted import opened_parts
from planted_world import BACKENDS, PlantedWorld, list_files, open_session, planted_world

EVERY = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
SESSIONS = ("same", "next")


@pytest.fixture(scope="module")
def shared_world() -> Iterator[PlantedWorld]:
    with planted_world() as made:
        shutil.copytree(made.home / "code", made.home.parent / "as-it-was", symlinks=True)
        yield made


@pytest.fixture
def world(shared_world: PlantedWorld) -> PlantedWorld:
    """The world with its repositories as they were at first, and secrets of the person's."""
    code = shared_world.home / "code"
    shutil.rmtree(code)
    shutil.copytree(shared_world.home.parent / "as-it-was", code, symlinks=True)
    shared_world.reset()
    for name in opened_parts.SECRETS:
        shared_world.write(shared_world.home / name, shared_world.canary)
    for name in opened_parts.OBEYED:
        shutil.rmtree((shared_world.home / name).parent, ignore_errors=True)
    (shared_world.home / ".claude/agents").mkdir(parents=True)
    for name in opened_parts.OBEYED:
        shared_world.write(shared_world.home / name, "mine")
    return shared_world


def read_obeyed(world: PlantedWorld) -> list[object]:
    """What git, editors and others obey in the folders that are opened."""
    found: list[object] = []
    for repository in ("code/other/.git", "code/bare.git"):
        top = world.home / repository
        names = ("config", "config.worktree", "info/attributes")
        found += [(top / name).read_text() if (top / name).exists() else "" for name in names]
        found += [(top / "hooks").is_symlink(), list_files(top / "hooks")]
    for name in opened_parts.OBEYED:
        found += [(world.home / name).read_text(), list_files((world.home / name).parent)]
    return found


def gets_through(world: PlantedWorld, opened: str, script: str, backend: str, session: str) -> bool:
    """Whether a row changes what may not change, or prints what nobody reads."""
    before = read_obeyed(world)
    folder = world.script(opened)
    policy = replace(world.policy(), writable=(str(world.home / "shared"), folder))
    printed = ""
    for text in [script] if session == "same" else [script, script]:
        begun = open_session(policy, backend)
        try:
            printed += world.say(begun, f"{text.replace('<O>', folder)}; echo over")
        finally:
            begun.close()
    assert "over" in printed, printed
    return world.canary in printed or read_obeyed(world) != before


KINDS = [(backend, session) for session in SESSIONS for backend in BACKENDS]


@pytest.mark.parametrize(
    ("opened", "script", "backend", "session"),
    [
        pytest.param(opened, script, *kind, id="-".join((name, *kind)))
        for number, (name, opened, script) in enumerate(opened_parts.PLANTED)
        for kind in (KINDS if EVERY else [KINDS[number % len(KINDS)]])
    ],
)
def test_a_folder_that_was_opened_gives_no_more_than_its_real_names_allow(
    opened: str, script: str, backend: str, session: str, world: PlantedWorld
) -> None:
    assert not gets_through(world, opened, script, backend, session)


@pytest.mark.parametrize(
    ("opened", "script"),
    [pytest.param(opened, script, id=name) for name, opened, script in opened_parts.PLANTED],
)
def test_without_a_sandbox_each_of_them_gets_through(
    opened: str, script: str, world: PlantedWorld
) -> None:
    """The control."""
    before = read_obeyed(world)
    ended = subprocess.run(
        ["sh", "-c", world.script(script.replace("<O>", opened))],
        cwd=world.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert world.canary in ended.stdout or read_obeyed(world) != before


@pytest.mark.parametrize("opened", ["<H>/.ssh", "<H>/.aws", "<H>/code/other/.git/hooks"])
def test_a_folder_that_is_hidden_whole_fails_no_command(opened: str, world: PlantedWorld) -> None:
    """It was so: a record of a path with an origin could not be sent to the fork server."""
    policy = replace(world.policy(), readable=(world.script(opened),))
    begun = open_session(policy, "namespaces")
    try:
        assert world.say(begun, "echo works") == "works\n"
    finally:
        begun.close()
