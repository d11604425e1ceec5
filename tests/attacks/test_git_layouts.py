"""Where people work with git: it works there, and what would give commands more does not."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confined import Confined
from planted.git_layouts import (
    ATTACKS,
    LAYOUTS,
    OPERATIONS,
    PLANTED,
    PREPARE,
    SECRET,
    STEPS_ATTACK,
    Attack,
    Layout,
    Operation,
    PlantedWorkspace,
)

from ferrule.permissions.repositories import find_repository
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import available_backends
from ferrule.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
BACKENDS = ("namespaces", "bubblewrap", "landlock")


def shell(folder: Path, script: str, **variables: str) -> None:
    subprocess.run(
        ["bash", "-c", PREPARE + script],
        cwd=folder,
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
    )


@dataclass
class Place:
    """A layout on disk, with a sandbox for each backend, made when it is first asked for."""

    layout: Layout
    base: Path
    sandboxes: dict[str, Confined] = field(default_factory=dict[str, Confined])

    @property
    def root(self) -> Path:
        return self.base / self.layout.workspace

    def run(self, backend: str, script: str) -> str:
        if backend not in self.sandboxes:
            self.sandboxes[backend] = open_sandbox(self.root, backend)
        common, own = self.base / self.layout.common, self.base / self.layout.git_dir
        name = "a.txt" if self.layout.name == "subfolder" else "sub/a.txt"
        texts = f"COMMON={common} GIT={own} OTHER={self.base / 'other'} FILE={name}"
        _, printed = self.sandboxes[backend].run(f"export {texts}; {script}", timeout=120)
        return printed.decode(errors="replace")


def open_sandbox(root: Path, backend: str) -> Confined:
    policy = SandboxPolicy(root, require=frozenset())
    found = next((one for one in available_backends(policy, probe()) if one.name == backend), None)
    if found is None:
        pytest.skip(f"this machine cannot start `{backend}`: {dict(probe().why)}")
    return Confined(policy, found)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # Not below /tmp: that is a folder of its own inside a sandbox.
    made = Path(tempfile.mkdtemp(prefix="ferrule-git-", dir=Path.home())).resolve()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.name)
def place(request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    layout: Layout = request.param
    # A worker comes back to a layout if it takes over tests of another one.
    base = Path(tempfile.mkdtemp(prefix=f"{layout.name}-", dir=folder))
    shell(base, f"{layout.script}; make other")
    made = Place(layout, base)
    yield made
    for sandbox in made.sandboxes.values():
        sandbox.close()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_git_works_where_people_work(place: Place, operation: Operation) -> None:
    printed = place.run("namespaces", operation.script)
    assert operation.expected in printed and "fatal" not in printed
    assert SECRET not in place.run("namespaces", "cat $COMMON/config; git remote -v")


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_commit_works_on_every_backend(place: Place, backend: str) -> None:
    script = f"echo x > on-{backend}; git add on-{backend}; git commit -q -m {backend}; git log"
    assert f"    {backend}" in place.run(backend, script)


OBEYED = (
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "info/attributes",
    "info/exclude",
    "info/grafts",
    "info/sparse-checkout",
    "objects/info/alternates",
    "rebase-merge/strategy",
)


def digest(place: Place) -> dict[str, str]:
    """What git obeys in a repository and its work tree: all that no attack may change."""
    common, own = place.base / place.layout.common, place.base / place.layout.git_dir
    found: dict[str, str] = {}
    for top in {common, own}:
        for name in OBEYED:
            found[str(top / name)] = _describe(top / name)
        found |= {str(path): _describe(path) for path in (top / "hooks").rglob("*")}
    if own != common:
        found["gitdir"] = _describe(own / "gitdir")
    for name in ("worktrees/*/gitdir", "worktrees/*/commondir", "modules/**/config"):
        found |= {str(path): _describe(path) for path in common.glob(name)}
    found[".git"] = _describe(place.root / ".git")
    found["links"] = str([str(path) for path in common.rglob("*") if path.is_symlink()])
    bare = place.root / "b"
    found["bare"] = str({"HEAD", "objects", "refs", "config"} <= {p.name for p in bare.glob("*")})
    return found


def _describe(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if path.is_file():
        return f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return "folder" if path.is_dir() else "absent"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_no_command_changes_what_git_obeys(place: Place, attack: Attack, backend: str) -> None:
    before = digest(place)
    place.run(backend, attack.script)
    assert digest(place) == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rebase_of_commands_leaves_no_step_that_runs_something(
    place: Place, backend: str
) -> None:
    place.run(backend, STEPS_ATTACK.script)
    steps = place.base / place.layout.git_dir / "rebase-merge/git-rebase-todo"
    assert not steps.exists() or "exec" not in steps.read_text()
    place.run(backend, "rm -rf $GIT/rebase-merge")
    assert not steps.exists()


def test_commands_see_nothing_of_the_repository_but_what_git_needs(place: Place) -> None:
    outside = place.run("namespaces", "cat $OTHER/sub/a.txt $COMMON/../far/sub/a.txt")
    assert "one" not in outside.replace("No such file", "")
    if place.layout.name == "subfolder":
        assert "UNTRACKED" not in place.run("namespaces", "ls -R ..; cat ../beside/*")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_git_file_opens_no_repository_of_the_person(
    folder: Path, planted: PlantedWorkspace, backend: str
) -> None:
    base = Path(tempfile.mkdtemp(dir=folder))
    root = base / "work"
    root.mkdir()
    shell(
        base,
        "make lib; make other; modules other ../lib lib; "
        "git -C other worktree add -q -b side ../side; git clone -q --bare lib bare.git; "
        f'cd work; OTHER="{base}/other"; BARE="{base}/bare.git"; {planted.script}',
    )
    found = find_repository(root).repository
    assert found is None or Path(found.common_dir).is_relative_to(root)
    sandbox = open_sandbox(root, backend)
    try:
        _, printed = sandbox.run(
            f"cat '{base}/other/.git/config' '{base}/other/.git/HEAD' '{base}/other/sub/a.txt' "
            f"'{base}/bare.git/HEAD'; git log; git show HEAD:sub/a.txt; git cat-file --batch-all-objects"
            f" --batch; echo x > '{base}/other/.git/refs/heads/evil'"
        )
    finally:
        sandbox.close()
    text = printed.decode(errors="replace")
    assert SECRET not in text and "refs/heads/main" not in text and "Author: p" not in text
    assert not (base / "other/.git/refs/heads/evil").exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_work_trees_stay_as_they_are(folder: Path, backend: str) -> None:
    layout = next(one for one in LAYOUTS if one.name == "worktree_beside")
    base = Path(tempfile.mkdtemp(dir=folder))
    shell(base, f"{layout.script}; git -C main worktree add -q ../third; make other")
    place = Place(layout, base)
    own = base / "main/.git"
    before = [(own / name).read_bytes() for name in ("HEAD", "index", "worktrees/third/HEAD")]
    try:
        place.run(
            backend,
            "git worktree prune --expire now; touch $COMMON/worktrees/third/locked; "
            "echo ref: refs/heads/side > $COMMON/HEAD; rm -rf $COMMON/worktrees/third; "
            "echo > $COMMON/index; echo > $COMMON/worktrees/third/HEAD",
        )
    finally:
        place.sandboxes[backend].close()
    names = ("HEAD", "index", "worktrees/third/HEAD")
    assert [(own / name).read_bytes() for name in names] == before
    assert not (own / "worktrees/third/locked").exists()
