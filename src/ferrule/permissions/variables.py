"""Variables that a call sets for a command: which say nothing, which make programs run or load
something else.

    loads_code("LD_PRELOAD")     refused, whoever asks: the loader and the shell run what it names
    takes_orders("PYTHONPATH")   a person looks at it each time, whatever rules allow
    harmless("CI")               as if it were not set, for rules
    all others                   as if written before the command: `Bash(npm test)` does not cover `X=1 npm test`

By name, as the value says nothing about who reads it. Not protected: a program that takes its
orders from a variable with a name that says nothing; for those, that a rule for the bare command
does not cover it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from .child_environment import child_environment
from .commands.program_facts import listed

_HARMLESS = listed("""
    CI NO_COLOR FORCE_COLOR CLICOLOR COLUMNS LINES TZ LANG LANGUAGE PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
    PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 NODE_ENV RUST_BACKTRACE RUST_LOG CARGO_TERM_COLOR GOOS GOARCH CGO_ENABLED
    LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME""")

_TAKES_ORDERS = re.compile(
    # What tools read their own orders from, by their prefix; then names of programs, of places to
    # load from, of options.
    r"(GIT|PYTHON|PERL\d*|RUBY|GEM|BUNDLE|NODE|NPM|YARN|PNPM|BUN|DENO|PIP|UV|POETRY|CONDA|VIRTUAL|CARGO|RUST|GO|CGO|JAVA"
    r"|_JAVA|JDK|MAVEN|GRADLE|ANT|MAKE|GNUMAKE|CMAKE|NINJA|CC|CXX|CPP|LD|DYLD|LIBRARY|GCC|CLANG|LESS|MAN|BASH|ZSH"
    r"|SSH|SUDO|DOCKER|KUBE|AWS|TERM(INFO|CAP)|XDG|SSL|CURL|REQUESTS|LUA|PHP|TCL|R|OPENSSL|PYTEST|TOX|COVERAGE|MYPY)_?.*"
    r"|\w*_(COMMAND|PAGER|EDITOR|SHELL|WRAPPER|RC|RCFILE|PATH|HOME|OPTIONS|OPTS|FLAGS|ARGS|PRELOAD|PLUGINS?|HOOKS?|PROXY)"
    r"|PATH|HOME|SHELL|ENV|IFS|CDPATH|FPATH|MANPATH|CLASSPATH|PAGER|EDITOR|VISUAL|BROWSER|FCEDIT|PS[0-4]|PROMPT\w*"
    r"|PWD|OLDPWD|USER|LOGNAME|TMPDIR|TEMP|TMP|AR|AS|NM|AWK|SED|RIPGREP_CONFIG_PATH|TAR_OPTIONS|GREP_OPTIONS|HISTFILE",
    re.IGNORECASE,
)


def harmless(name: str) -> bool:
    """True if a variable of this name changes how output looks, and the like."""
    return name in _HARMLESS


def loads_code(name: str) -> bool:
    """True if a variable of this name makes the loader, a shell or an interpreter run something
    before the program.
    """
    return name not in child_environment({name: ""}, add=(name,)).values


def takes_orders(name: str) -> bool:
    """True if a variable of this name could make an allowed program do what it was not allowed
    for.
    """
    return not harmless(name) and _TAKES_ORDERS.fullmatch(name) is not None


def beside(variables: Iterable[str]) -> tuple[str, ...]:
    """Variables (`NAME=value`) as they would be written before a command, without the harmless
    ones, sorted.
    """
    pairs = (variable.partition("=") for variable in sorted(variables))
    return tuple(f"{name}={shlex.quote(value)}" for name, _, value in pairs if not harmless(name))


def refusals(variables: Iterable[str]) -> Iterator[str]:
    """Why some of these may not be set at all, in words."""
    for name in _names(variables):
        if _is_name(name) and loads_code(name):
            yield f"the variable `{name}` makes programs load something else; leave it out"


def doubts(variables: Iterable[str]) -> Iterator[str]:
    """Why a person has to look at some of these, in words."""
    for name in _names(variables):
        if not _is_name(name) or takes_orders(name):
            yield (
                f"the variable `{name[:100]}` is set, which can make a program run or load "
                "something else"
            )


def _names(variables: Iterable[str]) -> Iterator[str]:
    return (variable.partition("=")[0] for variable in variables)


def _is_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
