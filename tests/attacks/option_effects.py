"""Spellings of options, and what real programs make of them: who writes a file, who runs a program.

`cases` makes argument lists from the tables of options: every option of a program as it is written
out, and the options that are judged to do more in every abbreviation, with every separator and in
bundles. `DRIVER` is run in a sandbox: it tries each in a folder of its own and tells which left or
changed a file, or ran the canary. It knows nothing of what Ferrule thinks of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from ferrule.permissions.command_analysis.option_meanings import program_of
from ferrule.permissions.command_analysis.option_parsing import Option, OptionTable, table_of

OPERANDS: dict[str, tuple[str, ...]] = {
    "sort": ("a",),
    "shuf": ("a",),
    "uniq": ("a",),
    "cut": ("-f1", "a"),
    "grep": ("x", "a"),
    "egrep": ("x", "a"),
    "sed": ("p", "a"),
    "head": ("a",),
    "tail": ("a",),
    "cat": ("a",),
    "nl": ("a",),
    "wc": ("a",),
    "comm": ("a", "b"),
    "cmp": ("a", "b"),
    "diff": ("a", "b"),
    "join": ("a", "b"),
    "paste": ("a", "b"),
    "tac": ("a",),
    "sha256sum": ("a",),
    "ls": (),
    "du": ("a",),
    "df": (),
    "stat": ("a",),
    "file": ("a",),
    "date": (),
    "seq": ("3",),
    "basename": ("a",),
    "tr": ("a", "b"),
    "column": ("a",),
    "tree": (),
    "rg": ("x", "."),
    "jq": (".", "a.json"),
    "tar": ("-cf", "/dev/null", "a"),
    "curl": ("file://{here}/a",),
    "less": ("a",),
    "xxd": ("a",),
    "find": (".",),
    "make": (),
    "awk": ("1", "a"),
    "mawk": ("1", "a"),
    "iconv": ("a",),
    "nm": ("a",),
    "objdump": ("a",),
    "python": ("-c", "1"),
    "sqlite3": (":memory:", "select 1"),
    "man": ("-l", "a"),
    "yq": (".", "a.json"),
    "git log": ("-1",),
    "git diff": ("HEAD",),
    "git show": (),
    "git ls-remote": ("./store",),
    "git archive": ("HEAD",),
    "git grep": ("x",),
    "git blame": ("a",),
    "git rev-list": ("HEAD",),
    "git shortlog": ("HEAD",),
    # Twice: an option that takes the first for its value is not what writes the patch.
    "git format-patch": ("--stdout", "--stdout", "-1"),
    "git diff-tree": ("HEAD",),
    "git ls-files": (),
    "git status": (),
    "git describe": ("--all",),
    "git rev-parse": ("HEAD",),
    "git cat-file": ("-p", "HEAD"),
    "git fetch": ("./store",),
    "git for-each-ref": (),
    "git branch": (),
    "git tag": (),
    "git reflog": (),
}
"""Programs that only read with these operands, and are quick."""

VALUES = ("./canary", "made", "exec=./canary")


class Case(NamedTuple):
    """One argument list; `option` is the one that it tries."""

    words: tuple[str, ...]
    option: str


def split(program: str) -> tuple[str, str]:
    """A program and its verb."""
    name, _, verb = program.partition(" ")
    return name, verb


def cases(program: str) -> Iterator[Case]:
    """All argument lists for one program."""
    name, verb = split(program)
    known = program_of(name, verb)
    table = table_of({"awk": "gawk"}.get(program, program))
    assert known is not None and table is not None, program
    single = known.style == "single"
    for option in dict.fromkeys(table.options.values()):
        judged = not (known.runs | known.writes).isdisjoint(option.names)
        for spelled in _spellings(option, table, single, every=judged):
            yield Case((*program.split(), *spelled, *OPERANDS[program]), option.names[0])
            if judged and not single:
                # Behind the operands too, where the program mixes them.
                yield Case((*program.split(), *OPERANDS[program], *spelled), option.names[0])


def _spellings(
    option: Option, table: OptionTable, single: bool, every: bool
) -> Iterator[tuple[str, ...]]:
    for name in option.names:
        if name.startswith("--") or single:
            shortest = 3 if every and not single else len(name)
            for length in range(shortest, len(name) + 1):
                yield from _valued(name[:length], option, "=")
        else:
            yield from _valued(name, option, "")
            if every:
                for flag in _flags(table)[:4]:
                    yield from _valued(f"-{flag}{name[1:]}", option, "")


_SED = (
    "s/",
    "/",
    "x",
    "[",
    "]",
    "[^/]",
    "\\",
    "/e",
    "/w made",
    "w made",
    "e ./canary",
    "p",
    "d",
    "{",
    "}",
    ";",
    "\n",
    " ",
    "a t",
    "1",
    "$",
    "|",
    "s|",
    "!",
    "/x/",
    "i\\\n",
    "[[:alpha:]]",
    "b",
    "q",
    ":a",
    "y/x/z/",
    "c\\",
    " #",
    "/I",
    "2,",
    "I,/x/",
    "\\/",
    "s,",
    ",",
    "*",
)
_AWK = (
    "print",
    'printf "x"',
    "{",
    "}",
    ' > "made"',
    ' | "./canary"',
    "/x/",
    "/a|b/",
    "$1 > 2",
    ";",
    "\n",
    "||",
    'system("./canary")',
    "getline",
    "BEGIN",
    "(",
    ")",
    '"x"',
    "1",
    " ",
    "if($1)",
    "#",
    "\\\n",
    "&&",
)


def scripts(seed: int, number: int) -> Iterator[Case]:
    """Scripts of sed and awk, put together at random from what matters in them."""
    dice = random.Random(seed)
    for _ in range(number):
        if dice.random() < 0.75:
            yield Case(("sed", "-n", "".join(dice.choices(_SED, k=dice.randint(1, 7))), "a"), "")
        else:
            yield Case(("awk", "".join(dice.choices(_AWK, k=dice.randint(2, 7))), "a"), "")


def _valued(spelled: str, option: Option, glue: str) -> Iterator[tuple[str, ...]]:
    if option.takes != "=":
        yield (spelled,)
    for value in VALUES if option.takes else ():
        yield (f"{spelled}{glue}{value}",)
        if option.takes == "=":
            yield (spelled, value)


def _flags(table: OptionTable) -> list[str]:
    """Letters that take no value."""
    short = [name for name in table.options if len(name) == 2 and name[1].isalpha()]
    return [name[1] for name in short if not table.options[name].takes]


DRIVER = r"""
import json, os, shutil, subprocess, sys

template, work, source, answer = sys.argv[1:5]
found = []

def look(folder):
    seen = {}
    for at, folders, files in os.walk(folder):
        if "store" in folders:
            folders.remove("store")
        for name in files:
            path = os.path.join(at, name)
            status = os.lstat(path)
            seen[os.path.relpath(path, folder)] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return seen

shutil.rmtree(work, ignore_errors=True)
here = None
for number, words in enumerate(json.load(open(source))):
    if here is None:
        here = os.path.join(work, str(number))
        shutil.copytree(template, here)
    before = look(here)
    try:
        subprocess.run(
            [word.replace("{here}", here) for word in words], cwd=here, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=3,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_EDITOR": "true",
                 "GIT_DIR": os.path.join(here, "store"), "GIT_WORK_TREE": here},
        )
    except (subprocess.TimeoutExpired, OSError, ValueError):
        pass
    after = look(here)
    if after != before:
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        found.append([number, "ran" if "ran" in changed else "wrote", changed[:3]])
        shutil.rmtree(here)
        here = None
json.dump(found, open(answer, "w"))
"""
