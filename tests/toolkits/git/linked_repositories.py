"""Two repositories of the same make, and every way to have one lead to the other.

The foreign one has `CANARY` in whatever git could print: contents, names, messages, packed
branches, tags, logs. Each of its files and folders is planted at the same place of the honest one:
`plants` lists the ways. What bears a name that a plant repeats is called without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CANARY = "canaryoftheotherrepository"

_CLEAN = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(root: Path, *arguments: str, check: bool = True) -> str:
    """Plain git, for preparing and for looking afterwards."""
    answer = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=root,
        env=_CLEAN,
        capture_output=True,
        text=True,
        errors="replace",
        check=check,
    )
    return answer.stdout.strip()


def make_foreign(root: Path) -> dict[str, str]:
    """A repository with everything in it, half of it packed. Returns ids: `loose`, `packed`,
    `blob`, `tree`.
    """
    root.mkdir()
    git(root, "init", "-q")
    ids: dict[str, str] = {}
    for name in ("packed", "loose"):
        (root / f"{CANARY}.txt").write_text(f"{CANARY} {name}\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"{CANARY} {name}")
        ids[name] = git(root, "rev-parse", "HEAD")
        git(root, "tag", "-a", f"{name}-tag", "-m", CANARY)
        if name == "packed":
            git(root, "branch", f"{CANARY}-branch")
            git(root, "pack-refs", "--all")
            git(root, "repack", "-adq", "--write-bitmap-index")
            git(root, "multi-pack-index", "write")
            git(root, "commit-graph", "write", "--reachable", "--split")
            git(
                root,
                "worktree",
                "add",
                "-q",
                str(root.parent / f"{root.name}-worktree"),
                "-b",
                "wt-branch",
            )
    ids["blob"] = git(root, "rev-parse", f"HEAD:{CANARY}.txt")
    ids["tree"] = git(root, "rev-parse", "HEAD^{tree}")
    git(root, "branch", "loose-branch")
    git(root, "update-ref", "refs/remotes/origin/x", "HEAD")
    git(root, "update-server-info")
    (root / ".git/FETCH_HEAD").write_text(f"{ids['loose']}\t\tbranch '{CANARY}' of {CANARY}\n")
    (root / ".git/ORIG_HEAD").write_text(f"{ids['loose']}\n")
    (root / ".git/shallow").write_text(f"{ids['packed']}\n")
    (root / ".git/description").write_text(f"{CANARY}\n")
    (root / ".git/info/grafts").write_text(f"{CANARY}\n")
    modules = root / ".git/modules/sub"
    shutil.copytree(root / ".git", modules, ignore=shutil.ignore_patterns("modules"))
    return ids


def make_honest(root: Path, ids: dict[str, str]) -> None:
    """A repository with files, branches and packs of its own, whose branch `crafted` names objects
    of the foreign one.
    """
    root.mkdir()
    git(root, "init", "-q")
    for number in (1, 2):
        (root / "a.txt").write_text(f"{number}\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"commit {number}")
        if number == 1:
            git(root, "repack", "-adq")
    git(root, "branch", "other")
    # What any command may write: a tree of ids whose objects are not there.
    git(root, "update-index", "--add", "--cacheinfo", f"100644,{ids['blob']},theirs.txt")
    tree = git(root, "write-tree", "--missing-ok")
    git(
        root,
        "update-ref",
        "refs/heads/crafted",
        git(root, "commit-tree", "-m", "crafted", "-p", "HEAD", tree),
    )
    git(root, "reset", "-q")
    for name in ("loose", "packed"):
        # Written as a file: git itself would not make a branch of an id that it does not have.
        (root / f".git/refs/heads/their-{name}").write_text(f"{ids[name]}\n")
    (root / "a.txt").write_text("changed\n")


@dataclass(frozen=True)
class Plant:
    """One way to have the honest repository lead to the foreign one. `put(honest, foreign)` are
    folders `.git`.
    """

    id: str
    put: Callable[[Path, Path], None]


def plants(foreign: Path) -> Iterator[Plant]:
    """Every file and folder of the foreign `.git`, alone and with all that lie beside it, by every
    kind of link.
    """
    # Of a submodule's repository, which is made the same way, no more than its own folder.
    entries = [path for path in sorted(foreign.rglob("*")) if "modules/sub/" not in str(path)]
    for path in entries:
        name = str(path.relative_to(foreign))
        for kind in ("absolute", "relative", "chained"):
            yield Plant(f"{kind}:{name}", _linking([name], kind))
    yield Plant("absolute:.git", _linking([""], "absolute"))
    folders = [foreign, foreign / "modules/sub", *(path for path in entries if path.is_dir())]
    for folder in folders:
        beside = [
            str(path.relative_to(foreign)) for path in sorted(folder.iterdir()) if path.is_file()
        ]
        if len(beside) > 1:
            at = str(folder.relative_to(foreign))
            yield Plant(f"all files in:{at}", _linking(beside, "absolute"))
    for part in ("objects", "refs", "logs", "objects/pack"):
        everything = [
            str(path.relative_to(foreign)) for path in (foreign / part).rglob("*") if path.is_file()
        ]
        yield Plant(f"all files below:{part}", _linking(everything, "relative"))
    for name, text in _POINTERS.items():
        yield Plant(f"pointer:{name}", _pointing(name, text))
    yield Plant("nested alternates", _nest_alternates)


_POINTERS = {
    "objects/info/alternates": "{foreign}/objects\n",
    "objects/info/alternates ": "../../../foreign/.git/objects\n",
    "objects/info/alternates  ": "# a comment\n\n{foreign}/objects/\n",
    "objects/info/alternates   ": '"{foreign}/objects"\n',
    "objects/info/alternates    ": '"{foreign}/objects"x/../../../objects/../objects\n',
    "objects/info/http-alternates": "{foreign}/objects\n",
    "commondir": "{foreign}\n",
    "commondir ": "../../foreign/.git\n",
    "HEAD": "ref: ../../foreign/.git/refs/heads/main\n",
    "HEAD ": "ref: refs/heads/../../../../foreign/.git/refs/heads/main\n",
    "refs/heads/main": "ref: refs/../../../foreign/.git/refs/heads/main\n",
    "worktrees/x/gitdir": "{foreign}/../.git\n",
    "worktrees/x/commondir": "{foreign}\n",
    "modules/sub/config": "[core]\n\tworktree = {foreign}/..\n",
    "config": (
        "[core]\n\tbare = false\n\tworktree = {foreign}/..\n[include]\n\tpath = {foreign}/config\n"
    ),
    "config.worktree": "[core]\n\tworktree = {foreign}/..\n",
    "gitdir": "{foreign}\n",
}
"""Files whose text leads elsewhere. Blanks at the end of a name only tell rows apart."""


def _linking(names: list[str], kind: str) -> Callable[[Path, Path], None]:
    def put(honest: Path, foreign: Path) -> None:
        for name in names:
            _link(honest / name, foreign / name, kind)

    return put


def _link(at: Path, target: Path, kind: str) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    if at.is_dir() and not at.is_symlink():
        shutil.rmtree(at)
    at.unlink(missing_ok=True)
    if kind == "absolute":
        at.symlink_to(target)
    elif kind == "relative":
        at.symlink_to(os.path.relpath(target, at.parent))
    else:
        # By a link in the work tree, which no check of `.git` looks at.
        between = next(above for above in at.parents if above.name == ".git").parent / "between"
        between.unlink(missing_ok=True)
        between.symlink_to(target)
        at.symlink_to(between)


def _pointing(name: str, text: str) -> Callable[[Path, Path], None]:
    def put(honest: Path, foreign: Path) -> None:
        path = honest / name.strip()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(foreign=foreign))

    return put


def _nest_alternates(honest: Path, foreign: Path) -> None:
    """A store in the workspace that names the foreign one."""
    inner = honest.parent / "inner/objects"
    (inner / "info").mkdir(parents=True)
    (inner / "info/alternates").write_text(f"{foreign}/objects\n")
    (honest / "objects/info/alternates").write_text("../../inner/objects\n")
