"""Programs that start another one: `uv run`, `npx`, `python -m`.

What they start is judged by its own arguments, as if it stood there alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ferrule.core.lazy_patterns import compile_lazily

from .option_parsing import OptionTable, parse_arguments, table_of
from .program_facts import program_name, word_set
from .subcommands import canonical_subcommand

_STARTERS: dict[str, str] = {
    "uv": "run|tool run",
    **dict.fromkeys(("poetry", "pdm", "pipenv", "hatch", "rye", "pixi", "pipx", "coverage"), "run"),
    **dict.fromkeys(("conda", "mamba", "micromamba", "doppler", "op", "dotenvx", "devbox"), "run"),
    **dict.fromkeys(("uvx", "npx", "bunx", "pnpx", "busybox", "toybox", "corepack"), ""),
    **dict.fromkeys(("nyc", "c8", "cross-env", "xvfb-run", "strace", "ltrace", "valgrind"), ""),
    **dict.fromkeys(("rlwrap", "unbuffer", "caffeinate"), ""),
    "npm": "exec",
    "pnpm": "exec|dlx|",
    "yarn": "exec|dlx|run|",
    "bun": "x|run",
    "bundle": "exec",
    "dotenv": "run|",
    **dict.fromkeys(("direnv", "mise", "asdf"), "exec"),
}
"""Programs that start another one, behind these subcommands; an empty one is none at all."""

VERBS_BEFORE_PROGRAMS = frozenset(
    f"{program} {verb}" for program, verbs in _STARTERS.items() for verb in verbs.split("|") if verb
)
"""Verbs whose first operand is a program, to which all that follows belongs."""

_PYTHON = compile_lazily(r"(?:python|pypy)[0-9.]*t?")
_TAKES_MODULE = frozenset({"uv", "coverage"})
_MODULE_OPTION = frozenset({"-m", "--module"})
_WRITTEN_OTHERWISE = {"_pytest": "pytest", "sphinx": "sphinx-build"}


def find_started(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the command lines that a command line could start in its place.

    Where it is uncertain which word is the program, since an option may take it as value, each that
    could be is one.
    """
    program = program_name(words[0]) if words else ""
    if _PYTHON.fullmatch(program):
        table = table_of("python") or OptionTable("", "")
        yield from _find_module(words[1:], table)
        return
    for verb in _STARTERS[program].split("|") if program in _STARTERS else ():
        rest = _behind_verb(program, words[1:], tuple(verb.split()))
        if rest is None:
            continue
        table = table_of(f"{program} {verb}".strip()) or OptionTable("", "")
        if program in _TAKES_MODULE:
            yield from _find_module(rest, table)
        yield from _find_program(rest, table)


def _behind_verb(program: str, words: Sequence[str], verb: tuple[str, ...]) -> Sequence[str] | None:
    """Return the words behind a subcommand; None if it is not there."""
    if not verb:
        return words
    for place, word in enumerate(words):
        found = (canonical_subcommand(program, word), *words[place + 1 : place + len(verb)])
        if found == verb:
            return words[place + len(verb) :]
        # An operand behind an option may be its value.
        if not word.startswith("-") and not (place and words[place - 1].startswith("-")):
            return None
    return None


def _find_module(words: Sequence[str], table: OptionTable) -> Iterator[tuple[str, ...]]:
    """Yield what `-m MODULE` runs. As a flag (`uv run -m x`), the operand is the module."""
    for argument in parse_arguments(words, table, mixed=False):
        named = {name for option in argument.options or () for name in option.names}
        if argument.options is None:
            return
        if "-c" in named and argument.value is not None:
            return
        if named.isdisjoint(_MODULE_OPTION):
            continue
        at = argument.value_index
        if argument.value is None:
            yield from _find_program(words[argument.index + 1 :], table, is_module=True)
        else:
            yield (_module_program(argument.value), *words[at + 1 :])
        return


def _find_program(
    words: Sequence[str], table: OptionTable, *, is_module: bool = False
) -> Iterator[tuple[str, ...]]:
    for argument in parse_arguments(words, table, mixed=False):
        value = argument.value or ""
        is_variable = re.match(r"\w+=(?!=)", value)  # `cross-env NAME=value`
        if argument.options is not None or value.startswith("-") or is_variable:
            continue
        name = _module_program(value) if is_module else _package_program(value)
        yield (name, *words[argument.index + 1 :])
        if argument.sure:
            return


def _module_program(module: str) -> str:
    """Return the program that a module is, by its name: `pip._internal` is pip."""
    whole = module.removesuffix(".__main__")
    if whole in STANDARD_MODULES:
        return whole
    first = whole.split(".")[0]
    return _WRITTEN_OTHERWISE.get(first, first.replace("_", "-"))


def _package_program(word: str) -> str:
    """Return the program that a package is, of `eslint@9`, `@biomejs/biome` or `black==24`."""
    name = program_name(word)
    return re.split(r"(?<=.)[@=<>~!\[]", name)[0].rsplit(":", 1)[-1]


STANDARD_MODULES = word_set("""
    ast asyncio calendar code compileall cProfile doctest ensurepip gzip http.server idlelib
    json.tool pdb profile pydoc sqlite3 tarfile timeit trace unittest venv zipfile""")
"""Modules of Python that are programs, by their whole name."""
