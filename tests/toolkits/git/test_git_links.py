"""Links that a command planted in `.git` never have git print another repository."""

from __future__ import annotations

import asyncio
import os
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_calls
import pytest

from ferrule.core.calls import ErrorType
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.inside.kernel import landlock
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.git import unconfined_reads
from ferrule.toolkits.git.git_command import TOOLS as GIT_COMMAND
from ferrule.toolkits.git.tools import git_tools

_TABLE = runpy.run_path(str(Path(__file__).parent / "linked_repositories.py"))
CANARY: str = _TABLE["CANARY"]
Plant: Any = _TABLE["Plant"]
plants: Any = _TABLE["plants"]
git: Any = _TABLE["git"]

ALL = os.environ.get("FERRULE_TEST_ATTACKS") == "all"
SHARE = 1 if ALL else 60
PARTS = 12 if ALL else 1
"""Tests that the plants are spread over, so that none of them takes many minutes."""
walled = pytest.mark.skipif(landlock.kernel_abi() < 1, reason="this kernel has no Landlock")


def nothing(honest: Path, foreign: Path) -> None:
    """Plant nothing."""


def unchecked(workspace: object, real: int) -> None:
    """Find no link."""


class Pair:
    """The honest repository is the workspace, anew for each plant; the foreign one lies beside
    it.
    """

    def __init__(self, folder: Path, world: Any) -> None:
        self._world = world
        self.folder = folder
        self.foreign = folder / "foreign"
        self.ids = _TABLE["make_foreign"](self.foreign)
        _TABLE["make_honest"](folder / "template", self.ids)
        self.root = folder / "work"

    def planted(self, plant: Any) -> Any:
        git_calls.close_sessions()  # Their workspace is made anew.
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.folder / "template", self.root)
        plant.put(self.root / ".git", self.foreign / ".git")
        world = self._world(self.root)
        world.tools = (*git_tools(enabled_tools=["all"]), *GIT_COMMAND)
        return world

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Operations that read, asked for what is foreign: those that show most, or all of them."""
        loose = self.ids["loose"]
        packed = self.ids["packed"]
        telling: list[tuple[str, dict[str, Any]]] = [
            _command("log", "--all", "-p"),
            _command("show", loose),
            _command("show", packed),
            _command("show", "crafted:theirs.txt"),
            ("git_branch_list", {"kind": "all"}),
        ]
        if not ALL:
            return telling
        more: list[tuple[str, dict[str, Any]]] = [
            _command("status"),
            _command("log", "--all", "--decorate", "--oneline"),
            _command("log", "-p", "crafted"),
            _command("diff", "crafted"),
            _command("blame", "crafted", "--", "theirs.txt"),
            ("git_status", {}),
            ("git_discover", {}),
            ("git_current_branch", {}),
            ("git_conflicts", {}),
            ("git_branch_list", {"kind": "all", "contains": loose}),
            ("git_log", {"rev": loose}),
            ("git_show", {"rev": "their-packed"}),
            ("git_merge_base", {"rev": "their-loose", "other": "HEAD"}),
        ]
        for id in (loose, packed):
            more += [
                _command("log", "-p", id),
                _command("show", f"{id}:{CANARY}.txt"),
                _command("diff", id),
            ]
        return [*telling, *more]

    def writes(self) -> list[tuple[str, dict[str, Any]]]:
        """Operations that write, beginning with what is foreign."""
        telling = [
            ("git_switch", {"branch": "new", "create": True, "start_point": self.ids["packed"]})
        ]
        if not ALL:
            return telling
        return [
            *telling,
            ("git_switch", {"branch": "their-loose"}),
            ("git_add", {"all": True}),
            ("git_commit", {"message": "x", "allow_empty": True}),
            ("git_rebase", {"upstream": "their-packed"}),
        ]


def _command(subcommand: str, *arguments: str) -> tuple[str, dict[str, Any]]:
    return "git_command", {"subcommand": subcommand, "args": list(arguments)}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, world_class: Any) -> Pair:
    return Pair(tmp_path_factory.mktemp("pair"), world_class)


def find_foreign(
    world: Any, calls: list[tuple[str, dict[str, Any]]], planted: str = ""
) -> list[str]:
    """The answers that hold something of the foreign repository that the call itself did not.

    `planted` is the path of the link: a refusal may name it.
    """
    found: list[str] = []
    for name, arguments in calls:
        result = world.ask(name, **arguments)
        said = f"{result.data} {result.error_message}"
        # A name that was asked for is said again in a refusal.
        if CANARY in planted:
            said = said.replace(planted, "")
        if CANARY in said.replace(f"{CANARY}.txt", ""):
            found.append(f"{name} {arguments}: {said[:300]}")
    return found


def sampled(pair: Pair) -> list[Any]:
    found = list(plants(pair.foreign / ".git"))
    assert len(found) > 250
    # What shows most is always tried, of the rest every so many.
    always = {
        "absolute:objects",
        "absolute:objects/pack",
        "all files below:objects",
        "nested alternates",
    }
    return [one for at, one in enumerate(found) if at % SHARE == 0 or one.id in always]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


in_parts = pytest.mark.parametrize("part", range(PARTS))


def try_part(pair: Pair, resources: dict[type, object], part: int) -> None:
    before = snapshot(pair.foreign)
    for plant in sampled(pair)[part::PARTS]:
        world = pair.planted(plant)
        world.resources = resources
        planted = plant.id.partition(":")[2]
        calls = [*pair.calls(), *pair.writes()]
        assert find_foreign(world, calls, planted) == [], plant.id
    assert snapshot(pair.foreign) == before


def test_plain_git_does_print_the_other_repository(pair: Pair) -> None:
    """The plants are real: without any of our means, plain git shows what the table looks for."""
    found = {plant.id: plant for plant in plants(pair.foreign / ".git")}
    commit = f"absolute:objects/{pair.ids['loose'][:2]}"
    for name in ("absolute:objects/pack", "all files below:objects", commit):
        world = pair.planted(found[name])
        wanted = pair.ids["packed" if name.endswith("pack") else "loose"]
        assert CANARY in world.git("cat-file", "-p", wanted), name


@in_parts
@pytest.mark.parametrize("resources", [{}, git_calls.UNCONFINED], ids=["confined", "unconfined"])
def test_no_link_in_the_repository_shows_another_one(
    pair: Pair, resources: dict[type, object], part: int
) -> None:
    try_part(pair, resources, part)


@walled
@in_parts
def test_what_is_planted_after_the_check_shows_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """As if each link had been planted between the check and git: the kernel alone has to hold."""
    monkeypatch.setattr(unconfined_reads, "_check_inside", unchecked)
    try_part(pair, git_calls.UNCONFINED, part)


@pytest.mark.parametrize("name", ["objects/pack", "one pack", "one object", "one branch", "fifo"])
def test_the_refusal_names_what_leads_outside(pair: Pair, name: str) -> None:
    world = pair.planted(Plant("nothing", nothing))
    real = world.root / ".git"
    path = {
        "objects/pack": real / "objects/pack",
        "one pack": next(real.glob("objects/pack/*.pack")),
        "one object": next(real.glob("objects/??/*")),
        "one branch": real / "refs/heads/other",
        "fifo": real / "objects/pack/pack-x.idx",
    }[name]
    if name == "fifo":
        os.mkfifo(path)
    else:
        path.rename(world.root / "aside")
        path.symlink_to(world.root / "aside")
    world.resources = git_calls.UNCONFINED
    error, said = world.refused("git_log")
    assert error is ErrorType.PERMISSION_DENIED
    assert f"`.git/{path.relative_to(real)}` is " in said


@pytest.mark.parametrize("backend", ["namespaces", "bubblewrap", "landlock"])
def test_a_command_cannot_make_hard_links_to_another_repository(pair: Pair, backend: str) -> None:
    """Hard links cannot be told from those of a local clone: what holds is that no command makes
    one, even of what it may read.
    """
    world = pair.planted(Plant("nothing", nothing))
    policy = SandboxPolicy(world.root, readable=(str(pair.foreign),))
    chosen = [one for one in available_backends(policy, probe()) if one.name == backend]
    if not chosen:
        pytest.skip(f"this machine has no `{backend}`")
    objects = [path for path in (pair.foreign / ".git/objects").rglob("*") if path.is_file()]
    script = "; ".join(
        f"cat '{path}' > /dev/null && echo seen; ln '{path}' .git/objects/info/; ln '{path}' x"
        for path in objects[:1]
    )
    output = Capture(10_000, 0)

    async def run() -> None:
        sandbox = Sandbox(policy, backend=chosen[0])
        directory = os.open(world.root, os.O_PATH)
        try:
            await sandbox.run(
                Command(
                    ("sh", "-c", script),
                    program="/bin/sh",
                    directory=directory,
                    environment={"PATH": os.defpath},
                    output=output,
                    timeout=60,
                )
            )
        finally:
            os.close(directory)
            await sandbox.close()

    asyncio.run(run())
    assert output.text().count("seen") == 1
    assert {path.stat().st_nlink for path in objects} == {1}


# ---- honest repositories


def _collected(root: Path) -> None:
    git(root, "gc", "-q")


def _indexed(root: Path) -> None:
    git(root, "repack", "-adq", "--write-bitmap-index")
    git(root, "multi-pack-index", "write", "--bitmap")
    git(root, "commit-graph", "write", "--reachable", "--split")


def _with_worktree(root: Path) -> None:
    git(root, "worktree", "add", "-q", "beside", "-b", "beside")


def _with_alternates(root: Path) -> None:
    git(root, "clone", "-q", "--bare", ".", "store.git")
    git(root, "repack", "-adq")
    for path in (root / ".git/objects/pack").iterdir():
        path.unlink()
    (root / ".git/objects/info/alternates").write_text("../../store.git/objects\n")


def _with_nested_alternates(root: Path) -> None:
    _with_alternates(root)
    git(root, "clone", "-q", "--bare", "--shared", "store.git", "middle.git")
    (root / ".git/objects/info/alternates").write_text(f"# ours\n{root}/middle.git/objects\n")


def _cloned_locally(root: Path) -> None:
    """Its objects are hard links to those of the repository that it was cloned from."""
    root.rename(root.parent / "source")
    git(root.parent, "clone", "-q", str(root.parent / "source"), str(root))
    assert any(
        path.stat().st_nlink > 1 for path in (root / ".git/objects").rglob("*") if path.is_file()
    )


def _split(root: Path) -> None:
    git(root, "update-index", "--split-index")


def _shallow(root: Path) -> None:
    root.rename(root.parent / "source")
    git(root.parent, "clone", "-q", "--depth=1", f"file://{root.parent / 'source'}", str(root))


def _with_submodule(root: Path) -> None:
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(root), "sub")
    git(root, "commit", "-q", "-m", "sub")


def _plain(root: Path) -> None:
    git(root, "pack-refs", "--all")


OFTEN = [_indexed, _with_worktree, _with_nested_alternates, _cloned_locally]
HONEST = [*OFTEN, _plain, _collected, _with_alternates, _split, _shallow, _with_submodule]


@pytest.mark.parametrize("prepare", HONEST if ALL else OFTEN)
def test_a_repository_that_lies_in_the_workspace_is_read_and_written(
    world: Any, prepare: Callable[[Path], None]
) -> None:
    prepare(world.root)
    world.tools = (*git_tools(enabled_tools=["all"]), *GIT_COMMAND)
    shown = world.ask("git_command", subcommand="log", args=["--all", "-p", "--format=%H"])
    assert shown.success, shown.error_message
    listed = [line for line in str(shown.data).splitlines() if len(line) == 40]
    assert listed == git(world.root, "log", "--all", "--format=%H").splitlines()
    assert [row["commit"] for row in world.do("git_log")["commits"]] == git(
        world.root, "log", "--format=%H"
    ).splitlines()
    world.write("new.txt", "new\n")
    world.do("git_add", paths=["new.txt"])
    world.do("git_commit", message="new file")
    assert git(world.root, "log", "-1", "--format=%s") == "new file"
    assert git(world.root, "show", "HEAD:new.txt") == "new"
    world.do("git_switch", branch="later", create=True)
    checked = subprocess.run(
        ["git", "fsck", "--strict"], cwd=world.root, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
