"""Attacks through `git_command`, as data.

Each row prepares a repository and calls one subcommand; afterwards the file MARKER must not exist.
In all texts `{evil}` is a program that creates MARKER, `{marker}` is MARKER itself, `{outside}` a
folder outside of the workspace.

    id          names the row
    subcommand  and `args`: the call
    config      text added to .git/config
    files       further files, by path from the root (executable if they begin with `#!`)
    env         variables of the process that uses Ferrule
    prepare     names of steps in tests/toolkits/test_git.py
    alive       True: plain git with the same arguments does create MARKER, which a test confirms
"""

from __future__ import annotations

from typing import Any

_TEXTCONV = '[diff "x"]\n\ttextconv = {evil}\n'
_COMMAND = '[diff "x"]\n\tcommand = {evil}\n'
_ATTRIBUTES = {".gitattributes": "* diff=x\n"}
_CLEAN = '[filter "x"]\n\tclean = {evil}\n'
_FSMONITOR = "[core]\n\tfsmonitor = {evil}\n"
_PROMISOR = (
    "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n"
    '[remote "origin"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n'
)


def row(id: str, subcommand: str, *args: str, alive: bool = False, **more: Any) -> dict[str, Any]:
    return {"id": id, "subcommand": subcommand, "args": list(args), "alive": alive, **more}


CONFIGURED = [
    row("fsmonitor-status", "status", config=_FSMONITOR, alive=True),
    row("fsmonitor-diff", "diff", config=_FSMONITOR, alive=True),
    row(
        "fsmonitor-included",
        "status",
        config="[include]\n\tpath = more\n",
        files={".git/more": _FSMONITOR},
        alive=True,
    ),
    row(
        "fsmonitor-included-if",
        "status",
        config='[includeIf "gitdir:**"]\n\tpath = more\n',
        files={".git/more": _FSMONITOR},
        alive=True,
    ),
    row(
        "fsmonitor-included-outside",
        "status",
        config="[include]\n\tpath = {outside}/config\n",
        files={"{outside}/config": _FSMONITOR},
        alive=True,
    ),
    row(
        "fsmonitor-worktree-config",
        "status",
        config="[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n",
        files={".git/config.worktree": _FSMONITOR},
        alive=True,
    ),
    row(
        "fsmonitor-odd-spelling",
        "status",
        config="[ cOrE ]  # x\n\tFSMonitor={evil}\n",
        alive=False,
    ),
    row("fsmonitor-one-line", "status", config="[core] fsmonitor = {evil}\n", alive=True),
    row("fsmonitor-quoted", "status", config='[core]\n\tfsmonitor = "{evil}" ; x\n', alive=True),
    row(
        "fsmonitor-kept-value-continued",
        "status",
        config="[core]\n\tautocrlf = input\\\n\n\tfsmonitor = {evil}\n",
        alive=False,
    ),
    row("pager", "log", config="[core]\n\tpager = {evil}\n"),
    row("pager-of-command", "log", config="[pager]\n\tlog = {evil}\n\tdiff = {evil}\n"),
    row("alias", "status", config="[alias]\n\tstatus = !{evil}\n\tdiff = !{evil}\n"),
    row("external-diff", "diff", config="[diff]\n\texternal = {evil}\n", alive=True),
    row(
        "external-diff-one-commit",
        "diff",
        "HEAD~1",
        config="[diff]\n\texternal = {evil}\n",
        alive=True,
    ),
    row("diff-driver", "diff", config=_COMMAND, files=_ATTRIBUTES, alive=True),
    row(
        "diff-driver-info-attributes",
        "diff",
        config=_COMMAND,
        files={".git/info/attributes": "* diff=x\n"},
        alive=True,
    ),
    row(
        "diff-driver-global-attributes",
        "diff",
        config=_COMMAND + "[core]\n\tattributesFile = {outside}/attributes\n",
        files={"{outside}/attributes": "* diff=x\n"},
        alive=True,
    ),
    row("textconv-diff", "diff", config=_TEXTCONV, files=_ATTRIBUTES, alive=True),
    row("textconv-log", "log", "-p", config=_TEXTCONV, files=_ATTRIBUTES, alive=True),
    row("textconv-show", "show", config=_TEXTCONV, files=_ATTRIBUTES, alive=True),
    row("textconv-show-blob", "show", "HEAD:a.txt", config=_TEXTCONV, files=_ATTRIBUTES),
    row("textconv-blame", "blame", "a.txt", config=_TEXTCONV, files=_ATTRIBUTES, alive=True),
    row("textconv-search", "log", "-G", "two", config=_TEXTCONV, files=_ATTRIBUTES, alive=True),
    row(
        "filter-clean-status",
        "status",
        config=_CLEAN,
        files={".gitattributes": "* filter=x\n"},
        alive=True,
    ),
    row(
        "filter-clean-diff",
        "diff",
        config=_CLEAN,
        files={".gitattributes": "* filter=x\n"},
        alive=True,
    ),
    row(
        "filter-process",
        "diff",
        config='[filter "x"]\n\tprocess = {evil}\n',
        files={".gitattributes": "* filter=x\n"},
        alive=True,
    ),
    row(
        "filter-required",
        "status",
        config=_CLEAN + "\trequired = true\n",
        files={".gitattributes": "* filter=x\n"},
        alive=True,
    ),
    row(
        "filter-blame",
        "blame",
        "a.txt",
        config=_CLEAN,
        files={".gitattributes": "* filter=x\n"},
        alive=True,
    ),
    row(
        "hooks-path",
        "status",
        config="[core]\n\thooksPath = {outside}/hooks\n",
        files={"{outside}/hooks/post-index-change": "#!/bin/sh\n: > {marker}\n"},
        prepare=["touch"],
        alive=True,
    ),
    row(
        "hook-of-repository",
        "status",
        files={".git/hooks/post-index-change": "#!/bin/sh\n: > {marker}\n"},
        prepare=["touch"],
        alive=True,
    ),
    row(
        "hook-of-repository-diff",
        "diff",
        files={".git/hooks/post-index-change": "#!/bin/sh\n: > {marker}\n"},
        prepare=["touch"],
    ),
    row(
        "signature-setting",
        "log",
        config="[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {evil}\n",
        prepare=["signed"],
        alive=True,
    ),
    row(
        "signature-setting-show",
        "show",
        config="[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {evil}\n",
        prepare=["signed"],
        alive=True,
    ),
    row(
        "signature-format-setting",
        "log",
        "--pretty=mine",
        config="[pretty]\n\tmine = %G?\n[gpg]\n\tprogram = {evil}\n",
        prepare=["signed"],
        alive=True,
    ),
    row("submodule-status", "status", prepare=["submodule"], alive=True),
    row("submodule-diff", "diff", prepare=["submodule"], alive=True),
    row(
        "submodule-diff-setting",
        "diff",
        config="[diff]\n\tsubmodule = diff\n\tignoreSubmodules = none\n",
        prepare=["submodule"],
        alive=True,
    ),
    row(
        "submodule-summary",
        "status",
        config="[status]\n\tsubmoduleSummary = true\n",
        prepare=["submodule"],
        alive=True,
    ),
    row(
        "promisor-ext",
        "show",
        "HEAD:lost.txt",
        config=_PROMISOR + '\turl = "ext::{evil} %S"\n[protocol "ext"]\n\tallow = always\n',
        prepare=["lose"],
        alive=True,
    ),
    row(
        "promisor-ssh",
        "log",
        "-p",
        config=_PROMISOR + "\turl = ssh://localhost/x\n[core]\n\tsshCommand = {evil}\n",
        prepare=["lose"],
        alive=True,
    ),
    row(
        "promisor-upload-pack",
        "diff",
        "HEAD~1",
        "HEAD",
        config=_PROMISOR + "\turl = {outside}\n\tuploadpack = {evil}\n",
        prepare=["lose"],
        alive=True,
    ),
    row(
        "trailer",
        "log",
        "--format=%(trailers)",
        config='[trailer "x"]\n\tcommand = {evil}\n\tcmd = {evil}\n',
    ),
    row("editor", "show", config="[core]\n\teditor = {evil}\n[sequence]\n\teditor = {evil}\n"),
    row("env-external-diff", "diff", env={"GIT_EXTERNAL_DIFF": "{evil}"}, alive=True),
    row(
        "env-config-count",
        "diff",
        env={
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "diff.external",
            "GIT_CONFIG_VALUE_0": "{evil}",
        },
        alive=True,
    ),
    row(
        "env-config-parameters",
        "diff",
        env={"GIT_CONFIG_PARAMETERS": "'diff.external'='{evil}'"},
        alive=True,
    ),
    row(
        "env-exec-path",
        "status",
        env={"GIT_EXEC_PATH": "{outside}"},
        files={"{outside}/git-status": "#!/bin/sh\n: > {marker}\n"},
    ),
    row("env-pager", "log", env={"GIT_PAGER": "{evil}", "PAGER": "{evil}"}),
    row("env-trace", "status", env={"GIT_TRACE": "{marker}"}, alive=True),
    row("env-trace2", "status", env={"GIT_TRACE2_EVENT": "{marker}"}, alive=True),
    row(
        "home-config",
        "diff",
        env={"HOME": "{outside}"},
        files={"{outside}/.gitconfig": "[diff]\n\texternal = {evil}\n"},
        alive=True,
    ),
    row(
        "xdg-config",
        "diff",
        env={"HOME": "{outside}", "XDG_CONFIG_HOME": "{outside}"},
        files={"{outside}/git/config": "[diff]\n\texternal = {evil}\n"},
        alive=True,
    ),
    row(
        "planted-git",
        "status",
        env={"PATH": "{root}:{path}"},
        files={"git": "#!/bin/sh\n: > {marker}\n"},
        alive=True,
    ),
]

ARGUMENTS = [
    row("set-config", "status", "-c", "core.fsmonitor={evil}"),
    row("set-config-joined", "diff", "-cdiff.external={evil}"),
    row("config-env", "status", "--config-env=core.fsmonitor=X"),
    row("other-folder", "status", "-C", "{outside}"),
    row("git-dir", "status", "--git-dir={outside}"),
    row("work-tree", "status", "--work-tree=/"),
    row("exec-path", "log", "--exec-path={outside}"),
    row("output-diff", "diff", "--output={marker}", alive=True),
    row("output-log", "log", "-p", "--output={marker}", alive=True),
    row("output-show", "show", "--output", "{marker}", alive=True),
    row("output-abbreviated", "diff", "--outp={marker}"),
    row(
        "ext-diff-log",
        "log",
        "-p",
        "--ext-diff",
        config="[diff]\n\texternal = {evil}\n",
        alive=True,
    ),
    row("ext-diff-show", "show", "--ext-diff", config="[diff]\n\texternal = {evil}\n", alive=True),
    row("ext-diff-abbreviated", "show", "--ext-d", config="[diff]\n\texternal = {evil}\n"),
    row(
        "textconv-asked",
        "show",
        "--textconv",
        "HEAD:a.txt",
        config=_TEXTCONV,
        files=_ATTRIBUTES,
        alive=True,
    ),
    row(
        "textconv-asked-blame",
        "blame",
        "--textconv",
        "a.txt",
        config=_TEXTCONV,
        files=_ATTRIBUTES,
        alive=True,
    ),
    row(
        "signature-asked",
        "log",
        "--show-signature",
        config="[gpg]\n\tprogram = {evil}\n",
        prepare=["signed"],
        alive=True,
    ),
    row(
        "signature-format",
        "log",
        "--format=%G?",
        config="[gpg]\n\tprogram = {evil}\n",
        prepare=["signed"],
        alive=True,
    ),
    row(
        "signature-format-padded",
        "log",
        "--format=%+GS",
        config="[gpg]\n\tprogram = {evil}\n",
        prepare=["signed"],
        alive=True,
    ),
    row(
        "signature-format-show",
        "show",
        "--pretty=format:%h%GG",
        config="[gpg]\n\tprogram = {evil}\n",
        prepare=["signed"],
        alive=True,
    ),
    row("order-file", "diff", "-O", "{outside}/order"),
    row("order-file-joined", "diff", "-O{outside}/order"),
    row("upload-pack", "log", "--upload-pack={evil}"),
    row("open-in-pager", "log", "--open-files-in-pager={evil}"),
    row("paginate", "status", "--paginate"),
    row(
        "submodules-asked", "status", "--ignore-submodules=none", prepare=["submodule"], alive=True
    ),
    row("submodules-diff-asked", "diff", "--submodule=diff", prepare=["submodule"], alive=True),
    row("no-index", "diff", "--no-index", "/etc/passwd", "/etc/hosts"),
    row("verbose-status", "status", "-v"),
    row("reads-list", "log", "--stdin"),
    row("path-list", "status", "--pathspec-from-file={outside}/x"),
    row("contents", "blame", "--contents", "/etc/passwd", "a.txt"),
    row("ignore-file", "blame", "--ignore-revs-file=/etc/passwd", "a.txt"),
    row("revs-file", "blame", "-S", "/etc/passwd", "a.txt"),
    row("mailmap-file", "log", "--mailmap-file=/etc/passwd"),
    row("end-of-options", "log", "--end-of-options", "--output={marker}"),
    row("line-log", "log", "-L1,1:.env"),
    row("follow", "log", "--follow", "-p", "--", "a.txt"),
    row("clustered", "log", "-po{marker}"),
    row("line-end-in-name", "show", "HEAD\n--output={marker}"),
    row("nul-in-name", "show", "HEAD\0x"),
    row("empty-name", "show", ""),
]
