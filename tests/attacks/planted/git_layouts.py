"""Where people work with git, what they do there, and what must not be possible. Data alone."""

from __future__ import annotations

from dataclasses import dataclass

SECRET = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
"""A token in the configuration of each repository, which no command may read."""

PREPARE = f"""
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_ALLOW_PROTOCOL=file
export GIT_AUTHOR_NAME=p GIT_AUTHOR_EMAIL=p@example.org
export GIT_COMMITTER_NAME=p GIT_COMMITTER_EMAIL=p@example.org
settle() {{
    git -C "$1" config user.name p
    git -C "$1" config user.email p@example.org
    git -C "$1" config remote.far.url https://p:{SECRET}@example.org/r.git
}}
make() {{
    git init -q -b main "$1"
    settle "$1"
    mkdir -p "$1/sub" "$1/beside"
    echo one > "$1/sub/a.txt"
    echo sibling > "$1/beside/s.txt"
    git -C "$1" add -A
    git -C "$1" commit -q -m one
}}
modules() {{
    # A relative address is taken from the only remote, if there is one.
    git -C "$1" config --remove-section remote.far
    git -C "$1" -c protocol.file.allow=always submodule --quiet add "$2" "$3"
    git -C "$1" commit -q -m "add $3"
    settle "$1"
    settle "$1/$3"
    git -C "$1/$3" switch -q -C main
}}
"""


@dataclass(frozen=True)
class Layout:
    """A workspace and its repository, made by a script in an empty folder.

    `common` is the folder with objects, hooks and configuration, `own` the one with HEAD and the
    index. All are relative to the folder that the script runs in.
    """

    name: str
    script: str
    workspace: str
    common: str
    own: str = ""

    @property
    def git_dir(self) -> str:
        return self.own or self.common


LAYOUTS = (
    Layout("plain", "make main", "main", "main/.git"),
    Layout("subfolder", "make main", "main/sub", "main/.git"),
    Layout(
        "worktree_beside",
        "make main; git -C main worktree add -q -b side ../side",
        "side",
        "main/.git",
        "main/.git/worktrees/side",
    ),
    Layout(
        "worktree_inside",
        "make main; git -C main worktree add -q -b in .worktrees/in",
        "main/.worktrees/in",
        "main/.git",
        "main/.git/worktrees/in",
    ),
    Layout(
        "submodule",
        "make lib; make main; modules main ../lib libs/lib",
        "main/libs/lib",
        "main/.git/modules/libs/lib",
    ),
    Layout(
        "nested_submodule",
        "make leaf; make lib; make main; modules main ../lib lib; modules main/lib ../leaf leaf",
        "main/lib/leaf",
        "main/.git/modules/lib/modules/leaf",
    ),
    Layout(
        "worktree_of_submodule",
        "make lib; make main; modules main ../lib lib; "
        "git -C main/lib worktree add -q -b side ../../side",
        "side",
        "main/.git/modules/lib",
        "main/.git/modules/lib/worktrees/side",
    ),
    Layout(
        "bare_beside",
        "make main; git clone -q --bare main bare.git; settle bare.git; "
        "git -C bare.git worktree add -q -b side ../side",
        "side",
        "bare.git",
        "bare.git/worktrees/side",
    ),
    Layout(
        "bare_around",
        "make main; git clone -q --bare main bare; settle bare; "
        "git -C bare worktree add -q -b side side; git -C bare worktree add -q -b far far",
        "bare/side",
        "bare",
        "bare/worktrees/side",
    ),
    Layout(
        "separate_git_dir",
        "make main; git init -q --separate-git-dir=apart.git main; "
        'git -C main config core.worktree "$PWD/main"',
        "main",
        "apart.git",
    ),
)


@dataclass(frozen=True)
class Operation:
    """What an agent does with git. `expected` is in what it prints."""

    name: str
    script: str
    expected: str


OPERATIONS = (
    Operation("status", "git status", "nothing to commit, working tree clean"),
    Operation("diff", "echo more >> $FILE; git diff; git checkout -q $FILE", "+more"),
    Operation("log", "git log --format=%s", "one"),
    Operation("add", "echo n > new-1; git add -A; git status --short; git reset -q", "A  "),
    Operation(
        "commit", "echo n > new-2; git add -A; git commit -q -am two; git log --format=%s", "two"
    ),
    Operation(
        "stash",
        "echo more >> $FILE; git stash -q; git stash list; git stash pop -q; git diff; "
        "git checkout -q $FILE",
        "+more",
    ),
    Operation("branch", "git branch -q other-1; git branch --list other-1", "other-1"),
    Operation(
        "rebase",
        "B=$(git branch --show-current); git switch -q -c r1; echo r > new-3; git add -A; "
        "git commit -q -m r1; git switch -q $B; echo s > new-4; git add -A; git commit -q -m s1; "
        "git switch -q r1; git rebase -q $B; git log --format=%s; git switch -q $B",
        "r1\ns1",
    ),
)


@dataclass(frozen=True)
class Attack:
    """A shell text with `$COMMON`, `$GIT` and `$OTHER` (another repository of the person)."""

    name: str
    script: str


PLANT = "printf '#!/bin/sh\\ntouch /ran\\n'"

ATTACKS = (
    Attack("hook", f"{PLANT} > $COMMON/hooks/post-commit; chmod +x $COMMON/hooks/post-commit"),
    Attack("hook-of-worktree", f"mkdir $GIT/hooks; {PLANT} > $GIT/hooks/pre-commit"),
    Attack("hooks-moved", "mv $COMMON/hooks $COMMON/h; mkdir $COMMON/hooks"),
    Attack("hooks-renamed-over", f"mkdir h; {PLANT} > h/post-commit; mv h $COMMON/hooks"),
    Attack("hooks-linked", "rm -rf $COMMON/hooks; ln -s $PWD $COMMON/hooks"),
    Attack("config", "printf '[core]\\n\\tpager = id\\n' >> $COMMON/config"),
    Attack("config-by-git", "git config core.fsmonitor 'touch ran'"),
    Attack("config-include", "git config includeIf.gitdir:/.path $PWD/evil"),
    Attack("config-replaced", "echo > c; mv c $COMMON/config"),
    Attack("config-lock", "echo > $COMMON/config.lock; mv $COMMON/config.lock $COMMON/config"),
    Attack("config-worktree", "printf '[core]\\n\\tpager = id\\n' > $GIT/config.worktree"),
    Attack("attributes", "mkdir -p $COMMON/info; echo '* filter=x' > $COMMON/info/attributes"),
    Attack("attributes-renamed", "mkdir i; echo '* filter=x' > i/attributes; mv -T i $COMMON/info"),
    Attack("exclude", "echo '*' >> $COMMON/info/exclude"),
    Attack("sparse-checkout", "mkdir -p $GIT/info; echo / > $GIT/info/sparse-checkout"),
    Attack("alternates", "echo $OTHER/.git/objects > $COMMON/objects/info/alternates"),
    Attack("commondir", "echo $OTHER/.git > $GIT/commondir"),
    Attack("commondir-replaced", "echo $OTHER/.git > c; mv c $GIT/commondir"),
    Attack("gitdir", "echo $OTHER/.git > $GIT/gitdir"),
    Attack(
        "gitdir-of-a-new-one", "mkdir -p $COMMON/worktrees/x; echo x > $COMMON/worktrees/x/gitdir"
    ),
    Attack("module-config", "mkdir -p $COMMON/modules/x; echo > $COMMON/modules/x/config"),
    Attack("pointer", "rm -f .git; echo gitdir: $OTHER/.git > .git"),
    Attack("strategy", "mkdir -p $GIT/rebase-merge; echo /x > $GIT/rebase-merge/strategy"),
    Attack("message-link", "ln -sf $OTHER/x $GIT/COMMIT_EDITMSG; ln -sf $OTHER/x $GIT/FETCH_HEAD"),
    Attack(
        "reflog-link",
        "mkdir l; ln -s $OTHER/x l/HEAD; mv $GIT/logs $GIT/l; mv l $GIT/logs; rm -rf l",
    ),
    Attack("git-dir-moved", "mv $COMMON $COMMON.old; mkdir -p $COMMON/hooks"),
    Attack("git-dir-removed", "rm -rf $COMMON/hooks $COMMON/config $GIT/commondir $GIT/gitdir"),
    Attack("bare", "mkdir b; cd b; mkdir objects refs hooks; echo > config; echo ref: x > HEAD"),
)

STEPS_ATTACK = Attack(
    "steps",
    "mkdir -p $GIT/rebase-merge; echo 'exec touch ran' > $GIT/rebase-merge/git-rebase-todo",
)


@dataclass(frozen=True)
class PlantedWorkspace:
    """A workspace that came from a stranger, made by a script in it; `$OTHER` is the victim."""

    name: str
    script: str


PLANTED = (
    PlantedWorkspace("pointer", "echo gitdir: $OTHER/.git > .git"),
    PlantedWorkspace("relative-pointer", "echo gitdir: ../other/.git > .git"),
    PlantedWorkspace("worktree", "echo gitdir: $OTHER/.git/worktrees/side > .git"),
    PlantedWorkspace("module", "echo gitdir: $OTHER/.git/modules/lib > .git"),
    PlantedWorkspace("link", "ln -s $OTHER/.git .git"),
    PlantedWorkspace("link-to-a-worktree", "ln -s $OTHER/.git/worktrees/side .git"),
    PlantedWorkspace("commondir", "git init -q .; echo $OTHER/.git > .git/commondir"),
    PlantedWorkspace(
        "own-worktree",
        "git init -q .; mkdir -p fake/worktrees/x; mv .git g; cp g/HEAD fake/worktrees/x; "
        "echo $OTHER/.git > fake/worktrees/x/commondir; echo $PWD/.git > fake/worktrees/x/gitdir; "
        "echo gitdir: $PWD/fake/worktrees/x > .git",
    ),
    PlantedWorkspace(
        "linked-git-dir", "mkdir d; ln -s $OTHER/.git d/git; echo gitdir: $PWD/d/git > .git"
    ),
    PlantedWorkspace(
        "work-tree-of-another",
        "git init -q .; git config core.worktree $OTHER; git config core.bare false",
    ),
    PlantedWorkspace(
        "alternates", "git init -q .; echo $OTHER/.git/objects > .git/objects/info/alternates"
    ),
    PlantedWorkspace("include", "git init -q .; git config include.path $OTHER/.git/config"),
    PlantedWorkspace("two-lines", "printf 'gitdir: .\\ngitdir: %s/.git\\n' $OTHER > .git"),
    PlantedWorkspace("bare-pointer", "echo gitdir: $BARE > .git"),
)
