"""Folders of the person's that were opened by a path that begins in the midst of a protected name.

A row is its name, the folder that was opened for writing, and a script that runs in the workspace.
`<O>` is the folder. Afterwards no protected file of the home may have changed or been added, and
nothing secret may be printed. Without a sandbox each row gets through.
"""

from __future__ import annotations

SECRETS = (
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".cargo/credentials.toml",
    ".docker/config.json",
    ".gem/credentials",
    ".kube/config",
    ".gnupg/private-keys-v1.d/a.key",
)
"""Files of the home that nobody reads, by whatever folder."""

OBEYED = (
    ".vscode/tasks.json",
    ".idea/workspace.xml",
    ".cursor/mcp.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".config/fish/config.fish",
    "code/other/.vscode/tasks.json",
    "code/other/.github/workflows/ci.yml",
    "code/other/.claude/agents/a.md",
)
"""Files of the person's that editors, agents, shells and build servers obey: nobody writes them."""

_GIT = "<H>/code/other/.git"
_BARE = "<H>/code/bare.git"
_HOOK = "echo '#!/bin/sh' > {0}; chmod +x {0}"
_READ = "cat $(find <O> -type f); cp -r <O> taken; cat $(find taken -type f)"

PLANTED: tuple[tuple[str, str, str], ...] = (
    ("git-hook", _GIT, _HOOK.format("<O>/hooks/post-commit")),
    ("git-hooks-moved", _GIT, f"mkdir h; {_HOOK.format('h/post-commit')}; mv <O>/hooks <O>/old; mv h <O>/hooks"),
    ("git-hooks-linked", _GIT, "mv <O>/hooks <O>/old; ln -s $PWD <O>/hooks"),
    ("git-config", _GIT, "printf '[core]\\npager = evil\\n' >> <O>/config"),
    ("git-config-replaced", _GIT, "cp <O>/HEAD c; mv -f c <O>/config"),
    ("git-config-by-git", _GIT, "git --git-dir=<O> config core.pager evil"),
    ("git-config-of-worktree", _GIT, "printf '[core]\\npager = evil\\n' > <O>/config.worktree"),
    ("git-attributes", _GIT, "mkdir -p <O>/info; echo '* filter=x' > <O>/info/attributes"),
    ("git-hooks-folder", f"{_GIT}/hooks", _HOOK.format("<O>/post-commit")),
    ("bare-hook", _BARE, _HOOK.format("<O>/hooks/post-receive")),
    ("bare-config", _BARE, "printf '[core]\\npager = evil\\n' >> <O>/config"),
    ("bare-hooks-folder", f"{_BARE}/hooks", _HOOK.format("<O>/post-receive")),
    *(
        (f"obeyed-{way}-{name.replace('/', '-')}", f"<H>/{name.rpartition('/')[0]}", f"{script}; echo evil >> <H>/{name}")
        for name in OBEYED
        for way, script in (
            ("changed", "true"),
            ("replaced", f"echo x > x; mv -f x <H>/{name}"),
            ("beside", "mkdir -p <O>/new; echo evil > <O>/new/a.json"),
        )
    ),
    ("obeyed-file", "<H>/.vscode/tasks.json", "echo evil >> <O>"),
    ("obeyed-part", "<H>/.claude/agents", "mkdir -p <O>; echo evil > <O>/evil.md"),
    *((f"read-{name.split('/')[0][1:]}", f"<H>/{name.split('/')[0]}", _READ) for name in SECRETS),
)  # fmt: skip
