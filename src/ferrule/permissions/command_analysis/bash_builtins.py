"""Built-ins of bash that run text, evaluate names, or change what later words mean.

    find_callbacks(words)    texts that it runs as commands: `eval`, `trap`, `mapfile -C`
    find_doubts(words)       why a person has to look: `printf -v 'a[$(x)]'`, `alias ls=rm`
    find_shell_texts(words)  what `sh -c` runs

A name with a subscript is evaluated as arithmetic, which runs substitutions: `read 'a[$(rm x)]'`
runs `rm`. So names given to built-ins have to be plain and known. Sources: the manual of bash 5.2
and, for every case, bash itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.command_variables import explain_meaning

from .program_facts import DECLARATIONS, program_name, word_set
from .shell_words import UNKNOWN_MARKS, Word

_PLAIN_NAME = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]*(?:\[\d+\])?")
_DECLARED = compile_lazily(r"[A-Za-z_][A-Za-z0-9_]*(?:\[\d+\])?(?:\+?=(?!\().*)?", re.DOTALL)
_NUMBERS = compile_lazily(r"[\s\d()+\-*/%<>=!&|^~?:,]*")

_WITH_VALUE = {
    "read": "adinNptu",
    "mapfile": "dnOsucC",
    "readarray": "dnOsucC",
    "wait": "p",
    "printf": "v",
    "trap": "",
}
"""Options of built-ins that take a word."""


def find_callbacks(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the texts that a built-in, or git, runs as commands."""
    program, rest = words[0].text, list(words[1:])
    if program_name(program) == "git":
        yield from _find_git_texts(rest)
    if program == "eval":
        rest = rest[1:] if rest and rest[0].text == "--" else rest
        yield Word(" ".join(word.text for word in rest), "", any(word.splits for word in rest))
    elif program == "trap":
        while rest and rest[0].text in ("--", "-l", "-p", "-lp", "-pl"):
            rest = rest[1:]
        yield from rest[:1]
    elif program in ("mapfile", "readarray"):
        options, _ = _options(program, rest)
        yield from (value for letter, value in options if letter == "C")


def _find_git_texts(rest: Sequence[Word]) -> Iterator[Word]:
    """Yield what git gives to a shell: `submodule foreach TEXT`, `bisect run`, `rebase --exec`."""
    rebases = any(word.text == "rebase" for word in rest)
    for index, (before, word) in enumerate(pairwise(rest), 2):
        if (before.text, word.text) in (("submodule", "foreach"), ("bisect", "run")):
            after = list(rest[index:])
            while after and after[0].text.startswith("-"):
                after.pop(0)
            yield Word(" ".join(each.text for each in after), "", any(w.splits for w in after))
        elif rebases and before.text in ("-x", "--exec"):
            yield word
    for word in rest:
        attached = re.match(r"-x|--exec=", word.text)
        if rebases and attached:
            yield Word(word.text[attached.end() :], word.raw, word.splits)


def find_doubts(words: Sequence[Word]) -> Iterator[str]:
    """Yield why a person has to look at a built-in with these words."""
    program, rest = words[0].text, words[1:]
    if program in ("read", "mapfile", "readarray", "printf", "wait"):
        yield from _names_of(program, rest)
    elif program == "unset":
        yield from _plain(program, [word for word in rest if not word.text.startswith("-")])
    elif program == "getopts":
        yield from _judge_getopts(rest)
    elif program in ("test", "["):
        yield from _judge_test(program, rest)
    elif program in DECLARATIONS:
        yield from _judge_declaration(program, rest)
    elif program == "let" and not all(
        word.is_known and _NUMBERS.fullmatch(word.text) for word in rest
    ):
        yield "`let` evaluates what a variable holds"
    elif program == "env" and any(re.match(r"-[A-Za-z0]*S|--s", word.text) for word in rest):
        yield "`env -S` takes a text apart"
    elif program == "env" and any(word.text.startswith("BASH_FUNC_") for word in rest):
        yield "`env` hands a function on"
    else:
        yield from _find_meaning_changes(program, rest)


_REPLACES = compile_lazily(r"-[A-Za-z0-9]*[Ii]|--rep")
"""Options of `xargs` that put what it reads anywhere into its command."""
FILLS_COMMAND = "`xargs` puts what it reads into a command"
"""What `find_doubts` says of `xargs -I`."""
_TAKES_VALUE = compile_lazily(r"-[A-Za-z0-9]*[aEdLnPs]|--[a-z\-]+")
"""Options of `xargs` whose value may be the next word."""


def _own_options(texts: Sequence[str]) -> Iterator[str]:
    """Yield the options of `xargs` itself, before the program that it starts.

    A word that may be either, a value or the program, is taken for a value: rather an option of the
    program too many than one of `xargs` too few.
    """
    may_be_value = False
    for text in texts:
        if text.startswith("-") and text != "-":
            yield text
            may_be_value = _TAKES_VALUE.fullmatch(text) is not None
        elif may_be_value:
            may_be_value = False
        else:
            return


def _find_meaning_changes(program: str, rest: Sequence[Word]) -> Iterator[str]:
    texts = [word.text for word in rest]
    unknown = any(not word.is_known for word in rest)
    letters = "".join(text[1:] for text in texts if text.startswith(("-", "+")))
    if program == "alias" and (unknown or any("=" in text for text in texts)):
        yield "`alias` gives a word another meaning"
    elif program == "hash" and (unknown or "p" in letters):
        yield "`hash -p` gives a name another program"
    elif program == "bind" and rest:
        yield "`bind` binds keys to commands"
    elif program in ("complete", "compgen") and (unknown or set(letters) & set("CFWGXV")):
        yield f"`{program}` runs or expands what it is given"
    elif program == "fc":
        yield "`fc` runs what was typed before"
    elif program == "set" and (unknown or "k" in letters or "keyword" in texts):
        yield "`set -k` takes assignments out of arguments"
    elif program == "shopt" and (
        unknown or set(texts) & {"expand_aliases", "extglob", "extquote", "interactive_comments"}
    ):
        yield "`shopt` changes how the lines behind it are read"
    elif program == "enable" and (unknown or "f" in letters):
        yield "`enable -f` loads a library"
    elif program == "xargs" and any(map(_REPLACES.match, _own_options(texts))):
        yield FILLS_COMMAND


def _names_of(program: str, rest: Sequence[Word]) -> Iterator[str]:
    options, operands = _options(program, rest)
    if program in ("mapfile", "readarray") and any(letter == "C" for letter, _ in options):
        yield f"`{program} -C` hands lines to a command"
    letters = {"read": "a", "wait": "p", "printf": "v"}.get(program, "")
    names = [value for letter, value in options if letter == _UNKNOWN_LETTER or letter in letters]
    if program in ("read", "mapfile", "readarray"):
        names += operands
    # A format alone sets nothing: `printf "$x"`. One that becomes `-vNAME` does so with another.
    if program == "printf" and operands and operands[0].may_be_flag:
        names += operands[:1] if operands[0].splits or len(operands) > 1 else []
    yield from _plain(program, names)


def _judge_getopts(rest: Sequence[Word]) -> Iterator[str]:
    operands = rest[1:] if rest and rest[0].text == "--" else rest
    shifting = [word for word in operands[:1] if word.splits]
    yield from _plain("getopts", [*shifting, *operands[1:2]])


def _plain(program: str, names: Sequence[Word]) -> Iterator[str]:
    for name in names:
        if not name.is_known or not _PLAIN_NAME.fullmatch(name.text):
            yield f"`{program}` evaluates the name that it is given"
        elif why := explain_meaning(name.text.partition("[")[0]):
            yield why


def _judge_test(program: str, rest: Sequence[Word]) -> Iterator[str]:
    names = [name for word, name in pairwise(rest) if word.text in ("-v", "-R")]
    plain = all(name.is_known and _PLAIN_NAME.fullmatch(name.text) for name in names)
    if not plain or any(word.splits for word in rest):
        yield f"`{program}` may evaluate the name that it is given"
    if (
        2 <= len(rest) <= 3
        and not rest[0].is_known
        and len([word for word in rest if word.text != "]"]) == 2
    ):
        yield f"`{program}` may evaluate the name that it is given"


def _judge_declaration(program: str, rest: Sequence[Word]) -> Iterator[str]:
    letters = "".join(word.text[1:] for word in rest if word.text.startswith(("-", "+")))
    if program in ("declare", "typeset", "local") and set(letters) & set("in"):
        yield f"`{program}` evaluates the values of a variable from now on"
    for word in rest:
        name = word.text.partition("=")[0].removesuffix("+")
        if word.text.startswith(("-", "+")) and word.is_known:
            continue
        if not _DECLARED.fullmatch(word.text) or word.splits or "\0" in name:
            yield f"`{program}` evaluates the name that it is given"
        elif why := explain_meaning(name.partition("[")[0], is_spelled_out=True):
            yield why


_UNKNOWN_LETTER = "?"


def _options(program: str, rest: Sequence[Word]) -> tuple[list[tuple[str, Word]], list[Word]]:
    """Return the options with a value, and the operands.

    A word that is unknown counts as an operand, or as the value of an unknown letter.
    """
    found: list[tuple[str, Word]] = []
    pending = list(rest)
    while pending and pending[0].text.startswith("-") and len(pending[0].text) > 1:
        word = pending.pop(0)
        if word.text == "--":
            break
        for index, letter in enumerate(word.text[1:], 1):
            if letter in UNKNOWN_MARKS:
                found.append((_UNKNOWN_LETTER, word))
                break
            if letter not in _WITH_VALUE[program]:
                continue
            if word.text[index + 1 :]:
                found.append((letter, Word(word.text[index + 1 :], word.raw, word.splits)))
            elif pending:
                found.append((letter, pending.pop(0)))
            break
    return found, pending


_BASH_LONG_OPTIONS = word_set(
    "debug debugger dump-po-strings dump-strings help init-file login noediting noprofile norc "
    "posix pretty-print protected rcfile restricted verbose version wordexp"
)
"""Source: `long_args` of bash 5.2's shell.c."""


def find_shell_texts(words: Sequence[Word], *, also_files: bool = False) -> list[Word]:
    """Return the text that a shell runs (`-c`); with `also_files`, or the file that it runs."""
    program = program_name(words[0].text)
    pending = list(words[1:])
    command = False
    # Bash takes its long options with one dash as well, as long as they come first.
    with_one_dash = program in ("bash", "rbash", "sh")
    while pending and pending[0].text[:1] in ("-", "+") and pending[0].text:
        word = pending.pop(0)
        if word.text in ("-", "--"):
            break
        name = word.text.lstrip("-")
        is_long = word.text.startswith("--") or (with_one_dash and name in _BASH_LONG_OPTIONS)
        with_one_dash = with_one_dash and is_long
        if is_long:
            if name in ("rcfile", "init-file"):
                pending = pending[1:]
            command = command or name == "command"  # as fish has it
        else:
            letters = word.text[1:]
            command = command or "c" in letters
            if program in ("bash", "rbash", "sh", "dash", "ash", "ksh", "mksh", "zsh"):
                pending = pending[letters.count("o") + letters.count("O") :]
    if command or also_files:
        return pending[:1]
    return []
