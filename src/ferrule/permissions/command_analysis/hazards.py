"""Hazards: words that make a program do more than its name says, like write, run or delete.

Most are options, by the tables of `option_meanings`. Here are those that need a closer look:
scripts of sed and awk, verbs of git, variables of make and of the shell, programs that take their
commands from standard input. A rule with a wildcard covers a command with such a word only if the
rule spells the word out; an empty one stands for what no rule can spell out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.command_variables import explain_meaning

from .judged_arguments import JudgedArgument, judge_arguments
from .option_meanings import plain_name
from .program_facts import (
    DECLARATIONS,
    GIT_HARMLESS,
    GIT_READ,
    GIT_VALUE,
    GIT_WRITE,
    program_name,
    word_set,
)
from .started_programs import find_started

_RESPONSE_FILE = compile_lazily("@")
_COMPILER = compile_lazily(
    r"@|-wrapper|--?specs|-fplugin|-B|-iplugindir|-fuse-ld|-dump|-fdump|-save-temps|-aux-info"
    r"|-M[FD]|-MMD|-Wl,|-Wa,|-Wp,|-X|-T|-fprofile|-load|--config|--?gcc-toolchain|--ld-path"
    r"|-resource-dir|-working-directory|--?serialize-diag|-ftime-trace|-foptimization-record"
)
_MAVEN = compile_lazily(
    r"-f|-s|-gs|-t|-l|--file|--settings|--global-settings|--toolchains|--log-file|\S+:\S+"
    r"|-D(jvm|argLine|exec\.|maven\.(ext|repo|multi)|debugForked)"
)
_GRADLE = compile_lazily(
    r"-I|-b|-c|-p|-g|--init-script|--build-file|--settings-file|--project-dir|--include-build"
    r"|--gradle-user-home|--project-cache-dir|--write-|-D(org\.gradle|java)"
)
_WORDS = {
    **dict.fromkeys(
        word_set("pytest py.test mypy nm objdump size strings ar ld tsc"), _RESPONSE_FILE
    ),
    **dict.fromkeys(word_set("cc gcc g++ c++ clang clang++"), _COMPILER),
    "rustc": compile_lazily(r"@|-C|--codegen|-Z|--emit|--sysroot|-L|-l|--extern"),
    "javac": compile_lazily(r"@|-+processor|-J|-Xplugin|-proc|-agent"),
    **dict.fromkeys(("mvn", "mvnw"), _MAVEN),
    **dict.fromkeys(("gradle", "gradlew"), _GRADLE),
    "cargo": compile_lazily(r"--logfile"),  # of test programs, behind `--`
    "ffmpeg": compile_lazily(
        r"-y|-report|-vstats|-dump|-passlogfile|-filter_|-/|-init_hw|-progress"
    ),
    **dict.fromkeys(
        ("convert", "magick", "mogrify"),
        compile_lazily(r"@|-write|-script|-define|\w+:", re.IGNORECASE),
    ),
}
"""Beginnings of words that do more, of programs with too many options to list, or with options in
files (`@file`).
"""

_OUTPUTS = {
    **dict.fromkeys(word_set("cc gcc g++ c++ clang clang++"), word_set("-o --output")),
    "rustc": word_set("-o --out-dir"),
    "javac": word_set("-d -s -h"),
}
"""Options of such programs whose value is what they are there to write."""


def find_outputs(program: str, rest: Sequence[str]) -> set[int]:
    """Return the positions of the words that name what a compiler writes."""
    options = _OUTPUTS.get(plain_name(program), frozenset())
    found = {index + 1 for index, word in enumerate(rest) if word in options}
    attached = tuple(option if len(option) == 2 else f"{option}=" for option in options)
    return found.union(index for index, word in enumerate(rest) if word.startswith(attached))


_EXACT = {"test": word_set("-v -R"), "[": word_set("-v -R")}


_MAX_STARTED = 32
"""The most command lines that one could start; of more, nothing is allowed."""


def find_hazards(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of an argument list that make its program do more than usual.

    Those of the programs that it starts count, too: `uv run pytest --pdb`.
    """
    found: list[str] = []
    pending = [tuple(words)]
    judged = set[tuple[str, ...]]()
    while pending:
        command = pending.pop()
        if command in judged or not command:
            continue
        if len(judged) == _MAX_STARTED:
            return (*found, "")
        judged.add(command)
        found += _hazards_of(command)
        pending += find_started(command)
    return tuple(dict.fromkeys(found))


def _hazards_of(words: Sequence[str]) -> Sequence[str]:
    program, rest = plain_name(program_name(words[0])), words[1:]
    if program == "git":
        return _git_hazards(rest)
    found = [rest[judged.index] for judged in judge_arguments(program, rest) if judged.hazard]
    found += [word for word in rest if word in _EXACT.get(program, ())]
    pattern = _WORDS.get(program)
    found += [word for word in rest if pattern is not None and pattern.match(word)]
    special = _SPECIAL.get(program)
    if special is not None:
        found += special(rest)
    return found


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
        runs = _MAKE_PROGRAMS.fullmatch(name) and not _is_compiler(name, value)
        if equals and not word.startswith("-") and (not plain or runs):
            yield word


def _is_compiler(variable: str, value: str) -> bool:
    """Return whether a variable names a usual program of its kind, as `CC=clang-17`."""
    return variable in _COMPILER_VARIABLES and _COMPILERS.fullmatch(value) is not None


def _curl_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (word for word in rest if "%output" in word)  # `-w '%output{file}'` writes


def _pnpm_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (word for word in rest if word.startswith("--config."))


_COMPILER_VARIABLES = word_set("CC CXX CPP LD AR AS")
_COMPILERS = compile_lazily(
    r"((x86_64|i686|aarch64|arm|armv7l|riscv64)(-linux|-w64)?(-gnu|-musl|-gnueabihf|-mingw32)-)?"
    r"(gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cpp|ld|lld|gold|mold|as|ar|gcc-ar|llvm-ar)(-\d+(\.\d+)*)?"
)
_MAKE_PROGRAMS = compile_lazily(
    r"SHELL|MAKE\w*|\w*FLAGS|CC|CXX|CPP|LD|AR|AS"
    r"|[A-Z]*_?(SHELL|CMD|COMMAND|PROG|PROGRAM|PYTHON|PATH)"
)
"""Variables of make that name a program or the options of one."""


def _reads_commands(_: Sequence[str]) -> Iterator[str]:
    yield ""  # whatever its arguments are, it takes commands from standard input


def _gdb_hazards(rest: Sequence[str]) -> Iterator[str]:
    # Everything behind `--args` belongs to the program that is debugged.
    own = rest[: rest.index("--args")] if "--args" in rest else rest
    if not any(word.lstrip("-") in ("batch", "batch-silent") for word in own):
        yield ""


def _sqlite_hazards(rest: Sequence[str]) -> Iterator[str]:
    # `.shell`, `.output` and the like are commands at the start of a line.
    operands = _operands("sqlite3", rest)
    yield from (word for word in rest if _SQLITE_EFFECT.search(word))
    if len(operands) < 2:
        yield ""  # the statements come from standard input


def _client_hazards(program: str, gives: Sequence[str]) -> Callable[..., Iterator[str]]:
    """Return the check of a database client: without one of the options, it reads its input."""

    def find(rest: Sequence[str]) -> Iterator[str]:
        judged = judge_arguments(program, rest)
        yield from (
            rest[piece.index] for piece in judged if _CLIENT_EFFECT.search(piece.value or "")
        )
        if not any(piece.names.intersection(gives) for piece in judged):
            yield ""

    return find


def _dc_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (word for word in rest if re.search(r"!(?![<>=])", word))
    if not any(word.startswith(("-e", "--e")) for word in rest):
        yield ""


def _operands(program: str, rest: Sequence[str]) -> list[JudgedArgument]:
    return [judged for judged in judge_arguments(program, rest) if judged.operand]


_SQLITE_EFFECT = compile_lazily(
    r"(?:^|\n)\s*\.(?!(?:tables|schema|fullschema|indexes|databases|headers?|mode|dump|width|show|help)\b)"
    r"|load_extension|writefile|readfile|edit\s*\(|fts3_tokenizer|attach|\binto\s*['\"(]"
    r"|writable_schema",
    re.IGNORECASE,
)
"""What SQL of sqlite3 does beside its database: run, load, read and write files."""
_CLIENT_EFFECT = compile_lazily(
    r"\\[^\s]|\bprogram\b|\binto\s+(out|dump)file\b|^\s*(system|source|tee|pager|edit)\b|\blo_(im|ex)port\b",
    re.IGNORECASE,
)
"""What statements of database clients do beside their database: `\\! command`, `\\o file`."""

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
    **dict.fromkeys(
        word_set("ed red ex vi view vim vimdiff nvim emacs pdb code asyncio idlelib ipdb socat"),
        _reads_commands,
    ),
    **dict.fromkeys(word_set("ghci irb pry jshell iex psysh bpython ptpython"), _reads_commands),
    "gdb": _gdb_hazards,
    "lldb": _reads_commands,
    "sqlite3": _sqlite_hazards,
    "psql": _client_hazards("psql", ("--command", "--list", "--version", "--help")),
    **dict.fromkeys(
        ("mysql", "mariadb"), _client_hazards("mysql", ("--execute", "--version", "--help"))
    ),
    "dc": _dc_hazards,
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
    given = [piece.value or "" for piece in judged if "--expression" in piece.names]
    first = [piece.value or "" for piece in judged if piece.operand][:1]
    # What follows an unknown option may be its value: then every word could be the script.
    unsure = [piece.value or "" for piece in judged if not piece.sure]
    return [*(given or first), *unsure]


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
