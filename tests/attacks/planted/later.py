"""What a command leaves for the person's own git, which runs later, outside of any sandbox.

The workspace is a repository of the person's, with a filter that no file uses. Its hooks lie in
`.githooks` if its configuration says so, else in `.git/hooks`. A row is its name, where hooks lie,
the script of a command, and what it did to the code before. `<E>` is what must not run: it leaves a
mark, which is `<M>`, a file of the person's that git must not write either. Afterwards the person
works with git (`WORK`).
"""

from __future__ import annotations

from typing import Literal

from . import CONTROL, FAILED, Before

Hooks = Literal["", ".githooks"]
_NAMES = "pre-commit post-commit prepare-commit-msg commit-msg post-checkout post-index-change"
_FILL = "for h in " + _NAMES + "; do echo '#!/bin/sh\n<E>' > {0}/$h; chmod +x {0}/$h; done"

PREPARE = """
export GIT_CONFIG_NOSYSTEM=1
git init -q -b main . && git config user.name p && git config user.email p@p.example
git config filter.x.clean <E> && git config extensions.worktreeConfig true
git add -A && git commit -q -m one && rm -rf .git/hooks && mkdir -p .git/hooks
"""
WORK = """
export GIT_CONFIG_NOSYSTEM=1 GIT_EDITOR=true
git status; echo more >> data/a; git add -A; git commit -m two
git switch -c side; git switch main; git rebase --continue
git -C sub status; git -C sub log
"""

PLANTED: tuple[tuple[str, Hooks, str, Before], ...] = (
    ("hooks", "", _FILL.format(".git/hooks"), CONTROL),
    ("hooks-path-in-tree", ".githooks", "mkdir -p .githooks; " + _FILL.format(".githooks"), FAILED),
    ("hooks-moved-in", "", f"mkdir h; {_FILL.format('h')}; rm -rf .git/hooks; mv h .git/hooks", CONTROL),
    ("hooks-link", "", f"mkdir h; {_FILL.format('h')}; rm -rf .git/hooks; ln -s ../h .git/hooks", CONTROL),
    ("hooks-path-moved-in", ".githooks", f"mkdir h; {_FILL.format('h')}; rm -rf .githooks; mv h .githooks", FAILED),
    ("hooks-path-link", ".githooks", f"mkdir h; {_FILL.format('h')}; rm -rf .githooks; ln -s h .githooks", FAILED),
    ("hooks-path-other-case", ".githooks", f"mkdir .GitHooks; {_FILL.format('.GitHooks')}; mv .GitHooks .githooks", FAILED),
    ("hook-hard-link", "", f"mkdir h; {_FILL.format('h')}; ln h/* .git/hooks/", CONTROL),
    ("hooks-configured", "", f"mkdir h; {_FILL.format('h')}; git config core.hooksPath h", CONTROL),
    ("configuration-appended", "", "printf '[core]\\n\\tfsmonitor = <E>\\n' >> .git/config", CONTROL),
    ("configuration-moved-in", "", "cp .git/config c; printf '[core]\\n\\tfsmonitor = <E>\\n' >> c; mv c .git/config", CONTROL),
    ("configuration-of-worktree", "", "printf '[core]\\n\\tfsmonitor = <E>\\n' > .git/config.worktree", CONTROL),
    ("repository-moved", "", "mv .git old; cp -r old .git; printf '[core]\\n\\tfsmonitor = <E>\\n' >> .git/config", CONTROL),
    ("repository-pointer", "", "mv .git old; echo gitdir: old > .git; printf '[core]\\n\\tfsmonitor = <E>\\n' >> old/config", CONTROL),
    ("repository-above-a-folder", "", "mkdir -p sub/.git/objects sub/.git/refs; echo 'ref: refs/heads/main' > sub/.git/HEAD; printf '[core]\\n\\tfsmonitor = <E>\\n' > sub/.git/config", CONTROL),
    ("repository-without-name", "", "mkdir -p sub/objects sub/refs; echo 'ref: refs/heads/main' > sub/HEAD; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = %s\\n\\tfsmonitor = <E>\\n' $PWD/sub > sub/config", FAILED),
    ("attributes", "", "echo '* filter=x' > .git/info/attributes", FAILED),
    ("common-folder", "", "cp -r .git c; printf '[core]\\n\\tfsmonitor = <E>\\n' >> c/config; echo $PWD/c > .git/commondir", CONTROL),
    # Links that git would write through, with a text that the command chose.
    ("message-link", "", "rm -f .git/COMMIT_EDITMSG; ln -s <M> .git/COMMIT_EDITMSG", FAILED),
    ("message-link-relative", "", "rm -f .git/COMMIT_EDITMSG; ln -s ../../../mark .git/COMMIT_EDITMSG", FAILED),
    ("message-link-moved-in", "", "ln -s <M> l; mv -f l .git/COMMIT_EDITMSG", FAILED),
    ("message-link-hard", "", "ln -s <M> l; rm -f .git/COMMIT_EDITMSG; ln -P l .git/COMMIT_EDITMSG", FAILED),
    ("reflog-link", "", "rm .git/logs/HEAD; ln -s <M> .git/logs/HEAD", FAILED),
    ("reflog-link-in-a-folder", "", "mkdir l; ln -s <M> l/HEAD; mv .git/logs .git/old; mv l .git/logs", FAILED),
    ("reflog-link-in-a-repository", "", "mkdir -p l/logs; ln -s <M> l/logs/HEAD; mv .git/logs .git/old; mv l/logs .git", FAILED),
    ("reflog-folder-link", "", "mkdir l; ln -s <M> l/HEAD; mv .git/logs .git/old; ln -s ../l .git/logs", FAILED),
    (
        "rebase-step",
        "",
        "echo r > data/r; git add -A; git commit -qm r; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' "
        "git rebase -i HEAD~1; echo 'exec <E>' >> .git/rebase-merge/git-rebase-todo",
        CONTROL,
    ),
)  # fmt: skip
