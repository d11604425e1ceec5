"""Hostile repositories and surroundings, as data: each tries to make an operation of git run a
program.

`{evil}` is a program that creates MARKER, `{marker}` is MARKER itself, `{outside}` a folder outside
of the workspace.

    id         names the row
    config     text added to .git/config
    files      further files, by path from the root (executable if they begin with `#!`)
    env        variables of the process that uses Ferrule
    refused    operations that may be refused: all others have to work as if nothing were there
    alive      True: plain git doing the same does create MARKER, which a test confirms
"""

from __future__ import annotations

from typing import Any

_HOOKS = (
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "post-checkout",
    "pre-rebase",
    "post-rewrite",
    "post-merge",
    "reference-transaction",
    "post-index-change",
    "pre-auto-gc",
    "pre-merge-commit",
    "applypatch-msg",
    "pre-applypatch",
)
_EVIL = "#!/bin/sh\n: > {marker}\n"
_ALL = ("git_add", "git_commit", "git_switch", "git_rebase", "git_fetch", "git_pull_ff_only")
_ATTRIBUTES = {
    ".gitattributes": "*.txt filter=x merge=x diff=x\n",
    ".git/info/attributes": "*.txt merge=x diff=x\n",
}


def row(
    id: str, *, alive: bool = False, refused: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    return {"id": id, "alive": alive, "refused": refused, **more}


HOSTILE = [
    row("hooks", files={f".git/hooks/{name}": _EVIL for name in _HOOKS}, alive=True),
    row(
        "hooks-path",
        config="[core]\n\thooksPath = {outside}/hooks\n",
        files={f"{{outside}}/hooks/{name}": _EVIL for name in _HOOKS},
        alive=True,
    ),
    row(
        "hooks-path-in-tree",
        config="[core]\n\thooksPath = hooks\n",
        files={f"hooks/{name}": _EVIL for name in _HOOKS},
        alive=True,
    ),
    row(
        "filter-clean",
        config='[filter "x"]\n\tclean = {evil}\n\tsmudge = {evil}\n',
        files=_ATTRIBUTES,
        refused=_ALL,
        alive=True,
    ),
    row(
        "filter-process",
        config='[filter "x"]\n\tprocess = {evil}\n',
        files=_ATTRIBUTES,
        refused=_ALL,
        alive=True,
    ),
    row(
        "filter-required",
        config='[filter "x"]\n\tclean = {evil}\n\trequired = true\n',
        files=_ATTRIBUTES,
        refused=_ALL,
        alive=True,
    ),
    row(
        "merge-driver",
        config='[merge "x"]\n\tdriver = {evil} %A\n',
        files={".git/info/attributes": "*.txt merge=x\n"},
    ),
    row(
        "merge-default-driver", config='[merge]\n\tdefault = x\n[merge "x"]\n\tdriver = {evil} %A\n'
    ),
    row("diff-external", config="[diff]\n\texternal = {evil}\n", alive=True),
    row(
        "diff-driver",
        config='[diff "x"]\n\tcommand = {evil}\n\ttextconv = {evil}\n',
        files={".git/info/attributes": "*.txt diff=x\n"},
        alive=True,
    ),
    row("fsmonitor", config="[core]\n\tfsmonitor = {evil}\n", alive=True),
    row(
        "fsmonitor-hook",
        config="[core]\n\tfsmonitor = .git/hooks/watch\n",
        files={".git/hooks/watch": _EVIL},
        alive=True,
    ),
    row(
        "pager",
        config=(
            "[core]\n\tpager = {evil}\n[pager]\n\tlog = {evil}\n\tdiff = {evil}\n\tshow = "
            "{evil}\n\tstatus = {evil}\n"
        ),
    ),
    row(
        "aliases",
        config="[alias]\n"
        + "".join(
            f"\t{name} = !{{evil}}\n"
            for name in ("status", "log", "add", "commit", "switch", "rebase", "fetch", "merge")
        ),
    ),
    row(
        "editor",
        config=(
            "[core]\n\teditor = {evil}\n[sequence]\n\teditor = {evil}\n[commit]\n\tverbose = "
            "true\n\ttemplate = a.txt\n"
        ),
    ),
    row(
        "gpg",
        config="[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {evil}\n[user]\n\tsigningKey = x\n",
        alive=True,
    ),
    row(
        "gpg-ssh",
        config=(
            '[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tprogram = '
            "{evil}\n\tdefaultKeyCommand = {evil}\n[user]\n\tsigningKey = x\n"
        ),
        alive=True,
    ),
    row(
        "gpg-x509",
        config=(
            '[commit]\n\tgpgSign = true\n[gpg]\n\tformat = x509\n[gpg "x509"]\n\tprogram = {evil}\n'
        ),
        alive=True,
    ),
    row(
        "verify-signatures",
        config=(
            "[merge]\n\tverifySignatures = true\n[gpg]\n\tprogram = "
            "{evil}\n[log]\n\tshowSignature = "
            "true\n"
        ),
    ),
    row(
        "ssh-command",
        config=(
            '[core]\n\tsshCommand = {evil}\n[remote "origin"]\n\turl = ssh://localhost.invalid/x\n'
        ),
        refused=("git_fetch", "git_pull_ff_only"),
        alive=True,
    ),
    row(
        "git-proxy",
        config='[core]\n\tgitProxy = {evil}\n[remote "origin"]\n\turl = git://localhost.invalid/x\n',
        refused=("git_fetch", "git_pull_ff_only"),
        alive=True,
    ),
    row(
        "credential-helper",
        config=(
            "[credential]\n\thelper = !{evil}\n\thelper = {evil}\n[core]\n\taskPass = "
            '{evil}\n[remote "origin"]\n\turl = https://127.0.0.1:1/x\n'
        ),
        refused=("git_fetch", "git_pull_ff_only"),
    ),
    row("upload-pack", config='[remote "origin"]\n\tuploadpack = {evil}\n', alive=True),
    row(
        "remote-vcs",
        config='[remote "origin"]\n\tvcs = ext\n\turl = {evil}\n[protocol "ext"]\n\tallow = always\n',
        refused=("git_fetch", "git_pull_ff_only"),
        alive=True,
    ),
    row(
        "ext-url",
        config='[remote "origin"]\n\turl = "ext::{evil} %S"\n[protocol "ext"]\n\tallow = always\n',
        refused=("git_fetch", "git_pull_ff_only"),
        alive=True,
    ),
    row(
        "instead-of",
        config=(
            '[url "ext::{evil} "]\n\tinsteadOf = remotes/\n\tinsteadOf = file://\n[protocol '
            '"ext"]\n\tallow = always\n[protocol]\n\tallow = always\n'
        ),
        alive=True,
    ),
    row(
        "include",
        config="[include]\n\tpath = more\n",
        files={
            ".git/more": "[core]\n\tfsmonitor = {evil}\n\teditor = {evil}\n[diff]\n\texternal = {evil}\n"
        },
        alive=True,
    ),
    row(
        "include-outside",
        config="[include]\n\tpath = {outside}/more\n",
        files={"{outside}/more": "[core]\n\thooksPath = {outside}\n\tfsmonitor = {evil}\n"},
        alive=True,
    ),
    row(
        "include-if",
        config='[includeIf "gitdir:**"]\n\tpath = more\n[includeIf "onbranch:**"]\n\tpath = more\n',
        files={".git/more": "[core]\n\tfsmonitor = {evil}\n"},
        alive=True,
    ),
    row(
        "worktree-config",
        config="[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n",
        files={".git/config.worktree": "[core]\n\tfsmonitor = {evil}\n"},
        alive=True,
    ),
    row(
        "submodule-ext",
        config=(
            '[submodule]\n\trecurse = true\n[submodule "m"]\n\turl = "ext::{evil} %S"\n\tactive '
            "= true\n\tupdate = !{evil}\n[fetch]\n\trecurseSubmodules = true\n[protocol "
            '"ext"]\n\tallow = always\n'
        ),
        files={
            ".gitmodules": '[submodule "m"]\n\tpath = m\n\turl = ext::{evil} %S\n\tupdate = !{evil}\n'
        },
    ),
    row(
        "rebase-settings",
        config=(
            "[rebase]\n\tautoSquash = true\n\tautoStash = true\n\tinstructionFormat = "
            "%G?\n\tbackend "
            "= apply\n[sequence]\n\teditor = {evil}\n"
        ),
    ),
    row("trailers", config='[trailer "x"]\n\tcommand = {evil}\n\tcmd = {evil}\n'),
    row(
        "browser-and-tools",
        config=(
            '[web]\n\tbrowser = {evil}\n[merge]\n\ttool = {evil}\n[mergetool "x"]\n\tcmd = '
            "{evil}\n[difftool]\n\tprompt = false\n"
        ),
    ),
    row(
        "gc-and-maintenance",
        config=(
            "[gc]\n\tauto = 1\n\tautoDetach = false\n\trecentObjectsHook = "
            "{evil}\n[maintenance]\n\tauto = true\n"
        ),
    ),
    row("alternate-refs", config="[core]\n\talternateRefsCommand = {evil}\n"),
    row(
        "template",
        config=(
            "[init]\n\ttemplateDir = {outside}\n[core]\n\tattributesFile = "
            "{outside}/attributes\n\texcludesFile = {outside}/x\n"
        ),
        files={"{outside}/attributes": "*.txt filter=x\n"},
    ),
    row("odd-config", config='[core]\n\tfsmonitor = "{evil}" ; x\n[cOrE]\n\tPager={evil}\n'),
    row(
        "broken-config",
        config="[ core ]\n\tfsmonitor = {evil}\n[",
        refused=(
            "git_branch_list",
            "git_remote_list",
            "git_discover",
            "git_fetch",
            "git_pull_ff_only",
        ),
    ),
    row(
        "promisor",
        config=(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[remote "
            '"origin"]\n\tpromisor = true\n\tuploadpack = {evil}\n'
        ),
    ),
    row(
        "remote-hooks",
        files={
            "remotes/origin.git/hooks/post-checkout": _EVIL,
            "remotes/origin.git/config": (
                "[core]\n\tbare = true\n\tfsmonitor = {evil}\n\talternateRefsCommand = "
                "{evil}\n[uploadpack]\n\tpackObjectsHook = {evil}\n[include]\n\tpath = "
                "{outside}/x\n"
            ),
        },
    ),
    row(
        "env-config",
        env={
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.fsmonitor",
            "GIT_CONFIG_VALUE_0": "{evil}",
        },
        alive=True,
    ),
    row(
        "env-config-parameters",
        env={"GIT_CONFIG_PARAMETERS": "'core.fsmonitor'='{evil}'"},
        alive=True,
    ),
    row(
        "env-editors",
        env={
            "GIT_EDITOR": "{evil}",
            "GIT_SEQUENCE_EDITOR": "{evil}",
            "EDITOR": "{evil}",
            "VISUAL": "{evil}",
            "GIT_PAGER": "{evil}",
            "PAGER": "{evil}",
        },
    ),
    row("env-diff", env={"GIT_EXTERNAL_DIFF": "{evil}"}, alive=True),
    row(
        "env-ssh",
        config='[remote "origin"]\n\turl = ssh://localhost.invalid/x\n',
        env={
            "GIT_SSH_COMMAND": "{evil}",
            "GIT_SSH": "{evil}",
            "GIT_PROXY_COMMAND": "{evil}",
            "GIT_ASKPASS": "{evil}",
            "SSH_ASKPASS": "{evil}",
        },
        refused=("git_fetch", "git_pull_ff_only"),
        alive=True,
    ),
    row(
        "env-exec-path",
        env={"GIT_EXEC_PATH": "{outside}"},
        files={
            "{outside}/git-fetch": _EVIL,
            "{outside}/git-upload-pack": _EVIL,
            "{outside}/git-commit": _EVIL,
        },
    ),
    row(
        "env-elsewhere",
        env={
            "GIT_DIR": "{outside}/.git",
            "GIT_INDEX_FILE": "{marker}",
            "GIT_OBJECT_DIRECTORY": "{outside}",
            "GIT_WORK_TREE": "{outside}",
            "GIT_TRACE": "{marker}",
            "GIT_TRACE2": "{marker}",
        },
    ),
    row(
        "env-author",
        env={
            "GIT_AUTHOR_NAME": "Evil",
            "GIT_COMMITTER_NAME": "Evil",
            "GIT_AUTHOR_EMAIL": "e@e",
            "GIT_COMMITTER_EMAIL": "e@e",
        },
    ),
    row(
        "planted-git",
        env={"PATH": "{root}:{path}"},
        files={"git": _EVIL, "ssh": _EVIL, "sh": _EVIL},
        alive=True,
    ),
]

ADDRESSES = [
    "ext::{evil} %S",
    "ext::sh -c {evil}",
    "fd::17",
    "{evil}::x",
    "::x",
    "ssh://-oProxyCommand={evil}/x",
    "-oProxyCommand={evil}:x",
    "--upload-pack={evil}",
    "ssh://x@-oProxyCommand={evil}/x",
    "ssh://host:-1/x",
    "http://127.0.0.1:1/x",
    "git://127.0.0.1:1/x",
    "ftp://127.0.0.1:1/x",
    "file:///etc",
    "file://{outside}",
    "{outside}",
    "../outside",
    "/etc",
    "~/x",
    "~root/x",
    "file://~/x",
    "remotes/../../outside",
    "https://127.0.0.1:1/\n[core]\nfsmonitor={evil}",
    "link-to-outside",
    "host:-oX",
    "host:path with blank",
    "rsync://x/y",
    "https:///x",
    "https://exa mple/x",
    "ssh://[::1%25eth0]/x",
    "remotes/.ssh",
    "nothing-here",
    "a.txt",
]
"""Addresses that are never followed, whatever the protocol settings say."""
