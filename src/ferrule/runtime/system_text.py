"""The system text of a session: where its model works, and how.

    make_system_text(around, catalog)   # at most 700 tokens; the journal keeps it with the session

It is made when a session begins and stays as it is for the session's life, so that providers'
caches hold; news comes with messages. Nothing is executed for it: the branch is read from `.git`,
and programs are looked up. Every sentence has its reason in `docs/decisions.md`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from datetime import date
from pathlib import Path

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import PermissionMode
from ferrule.permissions.provenance import find_any_program

INTRODUCTION = (
    "You work in a folder on a person's computer. Paths are relative to that folder. "
    "Look before you change something, change only what was asked for, and say briefly what "
    "you did."
)
"""All of it for an embedded model, whose window is small and whose steps are led."""

_PROGRAMS = (
    "git",
    "python3",
    "uv",
    "pip",
    "node",
    "npm",
    "pnpm",
    "yarn",
    "bun",
    "deno",
    "go",
    "cargo",
    "java",
    "mvn",
    "gradle",
    "gcc",
    "clang",
    "make",
    "cmake",
    "ruby",
    "php",
    "dotnet",
    "docker",
    "rg",
    "jq",
)
_BRANCH = compile_lazily(r"ref: refs/heads/([\w./-]{1,60})\s*")
_COMMIT = compile_lazily(r"[0-9a-f]{40,64}\s*")
_GIT_DIR = compile_lazily(r"gitdir: ([^\0\n]{1,4000})\s*")
_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "BISECT_LOG": "a bisection",
}
_MOST_HEAD = 4096
_COMMANDS = frozenset({"run_command", "bash", "shell", "local_shell", "run_shell_command"})


@frozen
class Surroundings:
    """What the settings say of where a model works.

    Attributes:
        folder: The workspace.
        mode: The permission mode at the beginning.
        reads: Whether reading files asks nothing.
        attended: Whether somebody can be asked.
        confined: Whether commands are confined by a sandbox.
        hosts: Hosts that confined commands may reach.
    """

    folder: Path
    mode: PermissionMode = "default"
    reads: bool = False
    attended: bool = False
    confined: bool = True
    hosts: tuple[str, ...] = ()


def make_system_text(around: Surroundings, tools: Collection[str]) -> str:
    """Return the system text for a run with these tools, by name."""
    facts = " ".join(_describe_machine(around))
    if _COMMANDS.intersection(tools):
        facts = f"{facts}\n{_describe_commands(around)}"
    work = "\n".join(f"- {rule}" for rule in _list_rules(tools))
    return (
        f"You work in a folder on a person's computer: {around.folder}\nPaths are relative to it. "
        f"{facts}\n{_describe_permissions(around)}\n\nHow to work:\n{work}"
    )


def _describe_machine(around: Surroundings) -> Iterator[str]:
    system = os.uname()
    release = system.release.partition("-")[0]
    yield f"The system is {system.sysname} {release} ({system.machine}), the shell bash."
    yield f"It was {date.today().isoformat()} when this session began."
    yield describe_git(around.folder)
    search_path = os.environ.get("PATH", os.defpath)
    found = [name for name in _PROGRAMS if find_any_program(name, search_path)]
    if found:
        yield f"Programs that are here: {', '.join(found)}."
    if (around.folder / ".venv/bin/python").exists():
        yield "There is a virtual environment in `.venv`."


def describe_git(folder: Path) -> str:
    """Describe the branch of a folder, and what is unfinished. Runs nothing."""
    place = folder / ".git"
    if place.is_file():
        named = _GIT_DIR.fullmatch(_read(place))
        place = folder / named[1].strip() if named else place
    head = _read(place / "HEAD")
    branch = _BRANCH.fullmatch(head)
    if branch is None and not _COMMIT.fullmatch(head):
        return "It is not the top of a git repository."
    where = f"the git branch was `{branch[1]}`" if branch else f"git was at commit {head[:10]}"
    unfinished = next((what for name, what in _UNFINISHED.items() if (place / name).exists()), "")
    rest = f", and {unfinished} was unfinished" if unfinished else ""
    return f"At that time {where}{rest}."


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MOST_HEAD).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _describe_commands(around: Surroundings) -> str:
    if not around.confined:
        return "Commands run with all rights of that person."
    hosts = ", ".join(around.hosts[:10])
    reach = f"of the network only {hosts}" if hosts else "no network"
    return (
        "Commands run in a sandbox: they can change only this folder (`mktemp` makes temporary "
        f"files) and reach {reach}."
    )


_EDITS = "Changing files here is allowed; commands ask the person unless a rule allows them."
_MODES = {
    "acceptEdits": _EDITS,
    "auto": _EDITS,
    "sandboxed": (
        "Changing files here and commands in the sandbox are allowed; deleting, publishing and "
        "what the sandbox does not hold ask the person."
    ),
    "plan": "Only reading is allowed: make a plan, and change nothing.",
    "dontAsk": "What no rule allows is refused without a question.",
    "bypassPermissions": "Calls run without a question; a deny rule still holds.",
}


def _describe_permissions(around: Surroundings) -> str:
    if around.mode in _MODES:
        return _MODES[around.mode]
    if not around.attended:
        reads = "reading files is allowed, and " if around.reads else ""
        return f"Nobody can be asked: {reads}what no rule allows is refused."
    reading = "Reading files asks nothing; changing" if around.reads else "Reading and changing"
    return f"{reading} files and running commands asks the person, unless a rule allows it."


def _list_rules(tools: Collection[str]) -> Iterator[str]:
    yield "Look first: search for and read what the task touches before you change it."
    if "add_task" in tools:
        yield (
            "If the task has several steps, write them down with `add_task` and keep their state "
            "with `update_task`."
        )
    yield ("Change only what was asked for, in the style of what is there; leave no trial files.")
    if _COMMANDS.intersection(tools):
        yield (
            "Check what you did: run the tests that concern it, or the program. If they fail, read "
            "why and mend it."
        )
    yield "Go on until the task is done. Ask only what you cannot find out."
    yield (
        "A refusal names the reason and the next step. Do not try the same in another spelling; if "
        "there is no other way, say what is missing."
    )
    yield "At the end say in a few sentences what you did, what you checked and what you left out."
