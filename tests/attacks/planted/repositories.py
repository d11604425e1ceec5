"""Repositories that are planted to open one of the person's: `<H>/code/other` or `<H>/code/bare.git`.

Their references, logs and descriptions hold what may not be printed. A row is planted in the
workspace as those of `environments` are.
"""

from __future__ import annotations

from . import CONTROL, Row

_OTHER = "<H>/code/other/.git"
_OWN = "git init -q ."

PLANTED: tuple[Row, ...] = (
    ("git-pointer", f"echo gitdir: {_OTHER} > .git", CONTROL),
    ("git-relative-pointer", "echo gitdir: ../../code/other/.git > .git", CONTROL),
    ("git-pointer-to-a-worktree", f"echo gitdir: {_OTHER}/worktrees/side > .git", CONTROL),
    ("git-pointer-to-a-bare-one", "echo gitdir: <H>/code/bare.git > .git", CONTROL),
    ("git-pointer-of-two-lines", f"printf 'gitdir: .\\ngitdir: {_OTHER}\\n' > .git", CONTROL),
    ("git-pointer-through-a-link", f"mkdir d; ln -s {_OTHER} d/g; echo gitdir: $PWD/d/g > .git", CONTROL),
    ("git-link", f"ln -s {_OTHER} .git", CONTROL),
    ("git-link-to-a-worktree", f"ln -s {_OTHER}/worktrees/side .git", CONTROL),
    ("git-commondir", f"{_OWN}; echo {_OTHER} > .git/commondir", CONTROL),
    ("git-commondir-of-a-worktree", f"{_OWN}; mv .git g; mkdir -p f/worktrees/x; cp g/HEAD f/worktrees/x; echo {_OTHER} > f/worktrees/x/commondir; echo $PWD/.git > f/worktrees/x/gitdir; echo gitdir: $PWD/f/worktrees/x > .git", CONTROL),
    ("git-work-tree", f"{_OWN}; git config core.worktree <H>/code/other; git config core.bare false", CONTROL),
    ("git-alternates", f"{_OWN}; echo {_OTHER}/objects > .git/objects/info/alternates", CONTROL),
    ("git-include", f"{_OWN}; git config include.path {_OTHER}/config", CONTROL),
    ("git-hooks-path", f"{_OWN}; git config core.hooksPath {_OTHER}/hooks", CONTROL),
    ("git-attributes-file", f"{_OWN}; git config core.attributesFile {_OTHER}/description", CONTROL),
    ("git-objects-link", f"{_OWN}; rm -rf .git/objects; ln -s {_OTHER}/objects .git/objects", CONTROL),
    ("git-refs-link", f"{_OWN}; rm -rf .git/refs; ln -s {_OTHER}/refs .git/refs", CONTROL),
    ("git-modules-link", f"{_OWN}; ln -s {_OTHER} .git/modules", CONTROL),
)  # fmt: skip
