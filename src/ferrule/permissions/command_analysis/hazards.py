"""Hazards: words that make a program do more than its name says, like write, run or delete.

Most are options, by the tables of `option_meanings`. Here are those that need a closer look:
scripts of sed and awk, verbs of git, variables of make and of the shell. A rule with a wildcard
covers a command with such a word only if the rule spells the word out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.command_variables import explain_meaning

from .option_meanings import judge_arguments
from .program_facts import (
    DECLARATIONS,
    GIT_HARMLESS,
    GIT_READ,
    GIT_VALUE,
    GIT_WRITE,
    program_name,
    word_set,
)

_EXACT = {"test": word_set("-v -R"), "[": word_set("-v -R")}


def find_hazards(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of an argument list that make its program do more than usual."""
    if not words:
        return ()
    program, rest = program_name(words[0]), words[1:]
    if program == "git":
        return _git_hazards(rest)
    found = [rest[judged.index] for judged in judge_arguments(program, rest) if judged.hazard]
    found += [word for word in rest if word in _EXACT.get(program, ())]
    special = _SPECIAL.get(program)
    if special is not None:
        found += special(rest)
    return tuple(dict.fromkeys(found))


def _printf_hazards(rest: Sequence[str]) -> Iterator[str]:
    # `printf -v NAME` and `printf -vNAME` set a variable instead of printing.
    index = 0
    while index < len(rest) and rest[index].startswith("-v"):
        yield rest[index]
        index += 2 if rest[index] == "-v" else 1


def _declaration_hazards(rest: Sequence[str]) -> Iterator[str]:
    for word in rest:
        name, is_assigned, _ = word.partition("=")
        if is_assigned and explain_meaning(name.removesuffix("+").partition("[")[0]):
            yield word


def _jq_hazards(rest: Sequence[str]) -> Iterator[str]:
    # `import "x" as $y` reads another file.
    yield from (word for word in rest if re.search(r"(?:^|[\s;])(?:import|include)\b", word))


def _sed_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (script for script in _sed_scripts(rest) if not _sed_plain(script))


def _tar_hazards(rest: Sequence[str]) -> Iterator[str]:
    if rest and not rest[0].startswith("-") and re.search(r"[xIFPC]", rest[0]):
        yield rest[0]  # options without a dash: `tar xf x`
    # `host:archive` is fetched by a remote shell.
    yield from (word for word in rest if re.match(r"(-\w*|--[a-z\-]+=)?[^/=\s-][^/=\s]*:", word))


def _awk_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (
        word
        for word in rest
        if _AWK_EFFECT.search(word) or _AWK_OUTPUT.search(word.replace("||", ""))
    )


def _date_hazards(rest: Sequence[str]) -> Iterator[str]:
    # Anything but a format is a time that the clock is set to.
    for judged in judge_arguments("date", rest):
        if judged.operand and not rest[judged.index].startswith("+"):
            yield rest[judged.index]


def _less_hazards(rest: Sequence[str]) -> Iterator[str]:
    # `+!x` is a command of less that runs x.
    yield from (word for word in rest if word.startswith("+"))


def _make_hazards(rest: Sequence[str]) -> Iterator[str]:
    for word in rest:
        name, equals, value = word.partition("=")
        plain = re.fullmatch(r"[\w.,+\-]*", value) and re.fullmatch(r"\w+", name)
        if equals and not word.startswith("-") and (not plain or _MAKE_PROGRAMS.fullmatch(name)):
            yield word


def _curl_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (word for word in rest if "%output" in word)  # `-w '%output{file}'` writes


def _pnpm_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (word for word in rest if word.startswith("--config."))


_MAKE_PROGRAMS = compile_lazily(
    r"SHELL|MAKE\w*|\w*FLAGS|CC|CXX|CPP|LD|AR|AS"
    r"|[A-Z]*_?(SHELL|CMD|COMMAND|PROG|PROGRAM|PYTHON|PATH)"
)
"""Variables of make that name a program or the options of one."""

_SPECIAL: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
    "printf": _printf_hazards,
    **dict.fromkeys(DECLARATIONS, _declaration_hazards),
    "sed": _sed_hazards,
    "tar": _tar_hazards,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk_hazards),
    "jq": _jq_hazards,
    "date": _date_hazards,
    "less": _less_hazards,
    **dict.fromkeys(("make", "gmake"), _make_hazards),
    "curl": _curl_hazards,
    **dict.fromkeys(("pnpm", "yarn"), _pnpm_hazards),
}


_SED_BRACKET = r"\[\^?\]?(?:\[:\w+:\]|[^\]\\\[\n])*\]"
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/(?:\\[^\n]|{_SED_BRACKET}|[^\\/\[\n])*/[IM]*)"
_SED_CHANGE = "|".join(
    rf"s{d}(?:\\[^\n]|{_SED_BRACKET}|[^\\\[\n{d}])*{d}(?:\\[^\n]|[^\\\n{d}])*{d}[gpiImM0-9]*"
    for d in (r"\/", r"\|", r"\,", r"\#", r"\:", r"\@", r"\!", r"\%", r"\+")
)
_SED_COMMAND = compile_lazily(
    rf"[\s;]*(?:{_SED_ADDRESS}(?:,[ \t]*(?:{_SED_ADDRESS}|[+~]\d+))?)?(?:[ \t]*!)?[ \t]*"
    rf"(?:[{{}}]|(?:[dDgGhHnNpPxzq=]|q\d+|l\d*|[bt][ \t]*\w*|:[ \t]*\w+|{_SED_CHANGE}"
    r"|[aic][ \t\w][^\n\\]*)(?=[ \t]*(?:[;\n}]|\Z))|[ \t]*\Z)"
)
"""A command of a script that writes nothing, reads no other file and runs nothing."""
_AWK_EFFECT = compile_lazily(r"system|getline|@")
_AWK_OUTPUT = compile_lazily(r"print.*[|>]", re.DOTALL)
"""Only `print` and `printf` write: elsewhere `>` compares and `|` is part of a pattern."""


def _sed_scripts(rest: Sequence[str]) -> list[str]:
    judged = judge_arguments("sed", rest)
    values = [j.value for j in judged if not j.operand and j.role == "text" and j.value]
    # The only other option with a text is `--line-length`.
    explicit = [value for value in values if not value.isdigit()]
    return explicit or [j.value or "" for j in judged if j.operand][:1]


def _sed_plain(script: str) -> bool:
    """Return whether a script certainly does no more than print."""
    if re.search(r"[\s;]{16}", script):
        return False  # the expression would backtrack over a run of blanks
    at = 0
    while at < len(script):
        command = _SED_COMMAND.match(script, at)
        if command is None or command.end() == at:
            return False
        at = command.end()
    return True


def _git_hazards(rest: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    index = 0
    while index < len(rest) and rest[index].startswith("-"):
        if rest[index] not in GIT_HARMLESS:
            found.append(rest[index])
        index += 2 if rest[index] in GIT_VALUE else 1
    if index >= len(rest):
        return tuple(found)
    verb = rest[index]
    if verb not in GIT_READ | GIT_WRITE:
        # An unknown verb is an alias of the repository's own configuration or a program
        # `git-<verb>`; config, bisect, submodule, hook and the like run what they are told.
        found.append(verb)
    after = rest[index + 1 :]
    found += [
        after[judged.index] for judged in judge_arguments("git", after, verb) if judged.hazard
    ]
    # `ext::sh -c ...` is a transport that runs a command; `+ref` and `:ref` force and delete.
    found += [word for word in after if "::" in word and verb not in GIT_READ]
    found += [word for word in after if verb == "push" and word.startswith(("+", ":"))]
    return tuple(dict.fromkeys(found))
