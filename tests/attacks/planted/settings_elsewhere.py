"""Settings of the person that lie in the workspace: by links of the home, by variables, or included.

People keep them in a repository and open that. The workspace is a repository of the person's, as in
`later`. A row is its name, what the person has set up, a variable of theirs, the script of a
command, and what it did to the code as it was before the row was written. `<E>` is what must not
run; it leaves a mark. Afterwards the person works (`WORK`).
"""

from __future__ import annotations

from . import CONTROL, FAILED, Before

_NAME = "printf '[core]\\n\\thooksPath = h\\n'"
_HOOK = "mkdir -p h && echo '#!/bin/sh\n<E>' > h/pre-commit && chmod +x h/pre-commit"
_BOTH = f"{_NAME} >> {{0}}; {_HOOK}"
_LINE = "echo <E> >> {0}"

WORK = """
export GIT_CONFIG_NOSYSTEM=1
git commit --allow-empty -m two; bash -ic true; bash -c true
"""
CLEAR = "rm -rf <H>/.gitconfig <H>/.bashrc <H>/.config/git <H>/cfg <H>/gitconfig <H>/.local/bin"

PLANTED: tuple[tuple[str, str, str, str, Before], ...] = (
    # Hooks that the settings name, whose folder is not there yet.
    ("hooks-plain", "git config core.hooksPath h", "", _HOOK, CONTROL),
    ("hooks-after-a-byte-order-mark", f"printf '\\357\\273\\277' > c; {_NAME} >> c; cat .git/config >> c; mv c .git/config", "", _HOOK, FAILED),
    ("hooks-after-two-headings", "echo '[a][core] hooksPath = h' >> .git/config", "", _HOOK, FAILED),
    ("hooks-included", f"{_NAME} > shared; git config include.path ../shared", "", _HOOK, CONTROL),
    ("hooks-of-a-linked-setting", f"{_NAME} > <H>/gitconfig; ln -s gitconfig <H>/.gitconfig", "", _HOOK, FAILED),
    ("hooks-of-another-folder", f"mkdir -p <H>/cfg/git; {_NAME} > <H>/cfg/git/config", "XDG_CONFIG_HOME=<H>/cfg", _HOOK, FAILED),
    ("hooks-of-a-named-file", f"{_NAME} > <H>/gitconfig", "GIT_CONFIG_GLOBAL=<H>/gitconfig", _HOOK, FAILED),
    # Settings in the workspace.
    ("settings-included", ": > shared; git config include.path ../shared", "", _BOTH.format("shared"), CONTROL),
    ("settings-linked", ": > gitconfig; ln -s <W>/gitconfig <H>/.gitconfig", "", _BOTH.format("gitconfig"), FAILED),
    ("settings-linked-and-absent", "ln -s <W>/gitconfig <H>/.gitconfig", "", _BOTH.format("gitconfig"), FAILED),
    ("settings-moved-over", ": > gitconfig; ln -s <W>/gitconfig <H>/.gitconfig", "", f"{_BOTH.format('c')}; mv -f c gitconfig", FAILED),
    ("settings-of-a-linked-folder", "mkdir g; ln -s <W>/g <H>/.config/git", "", _BOTH.format("g/config"), FAILED),
    ("settings-by-variable", "mkdir cfg", "XDG_CONFIG_HOME=<W>/cfg", f"mkdir cfg/git; {_BOTH.format('cfg/git/config')}", FAILED),
    ("settings-by-variable-there", "mkdir -p cfg/git; : > cfg/git/config", "XDG_CONFIG_HOME=<W>/cfg", _BOTH.format("cfg/git/config"), FAILED),
    ("settings-named", ": > g", "GIT_CONFIG_GLOBAL=<W>/g", _BOTH.format("g"), FAILED),
    ("shell-linked", ": > bashrc; ln -s <W>/bashrc <H>/.bashrc", "", _LINE.format("bashrc"), FAILED),
    ("shell-named", ": > start", "BASH_ENV=<W>/start", _LINE.format("start"), FAILED),
)  # fmt: skip
