"""Variables that a call, or a line of shell, sets for a command: harmless, doubtful or refused.

    loads_code("LD_PRELOAD")             refused: the loader or the shell runs what it names
    controls_programs("PYTHONPATH")      a person looks at it each time, whatever rules allow
    is_harmless("CI")                    ignored by rules
    any other name                       part of the command: `Bash(npm test)` does not cover
                                         `X=1 npm test`
    explain_meaning("RANDOM")            why a person looks at a line that sets it, in any way

Only names are judged, because a value does not say which program reads it. Not protected: a program
that is controlled by a variable with an unknown name, except that a rule for the plain command does
not cover it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from ferrule.core.lazy_patterns import compile_lazily

from .child_environment import filter_environment
from .command_analysis.program_facts import word_set

_HARMLESS = word_set("""
    CI NO_COLOR FORCE_COLOR CLICOLOR COLUMNS LINES TZ LANG LANGUAGE PYTHONDONTWRITEBYTECODE
    PYTHONUNBUFFERED PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 NODE_ENV RUST_BACKTRACE RUST_LOG
    CARGO_TERM_COLOR GOOS GOARCH CGO_ENABLED LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY
    LC_NUMERIC LC_TIME""")

_OF_BASH = word_set("""
    BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND
    BASH_COMPAT BASH_ENV BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS
    BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD
    CDPATH CHILD_MAX COMPREPLY COMP_CWORD COMP_KEY COMP_LINE COMP_POINT COMP_TYPE COMP_WORDBREAKS
    COMP_WORDS DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FCEDIT FIGNORE FUNCNAME
    FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HISTCONTROL HISTFILE HISTFILESIZE HISTIGNORE
    HISTSIZE HISTTIMEFORMAT HOME HOSTFILE HOSTNAME HOSTTYPE IGNOREEOF INPUTRC INSIDE_EMACS LINENO
    MACHTYPE MAIL MAILCHECK MAILPATH OLDPWD OPTERR OPTIND OSTYPE PIPESTATUS POSIXLY_CORRECT PPID
    PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 PWD RANDOM READLINE_ARGUMENT READLINE_LINE
    READLINE_MARK READLINE_POINT SECONDS SHELLOPTS SHLVL SRANDOM TIMEFORMAT TMOUT UID
    auto_resume histchars""")
"""Variables that bash runs, expands, evaluates as arithmetic when they are set (`RANDOM`,
`SRANDOM`, `SECONDS`, `HISTCMD`, `OPTIND`), or goes by itself.

Sources: "Shell Variables" of the manuals of bash 5.2 and 5.3, and `compgen -v` of a bash with an
empty environment. Left out: those that bash only writes (_, REPLY, MAPFILE, COPROC, OPTARG);
`TERM` and the others by which output only looks different (`COLUMNS`, `LANG`, ...); and those that
an assignment before a command may set where a rule spells it out (`PATH`, `IFS`, `SHELL`, TMPDIR).
"""

_LOWER_CASE = compile_lazily(r"(npm|yarn|pnpm|bun|pip|uv)_\w+|\w+_proxy|auto_resume|histchars")
"""Names in lower case that mean something to programs. Other ones are ordinary names in a shell."""

_TAKES_ORDERS = compile_lazily(
    # Prefixes of tools that read such variables.
    r"(GIT|PYTHON|PERL\d*|RUBY|GEM|BUNDLE|NODE|NPM|YARN|PNPM|BUN|DENO|PIP|UV|POETRY|CONDA|VIRTUAL"
    r"|CARGO|RUST|GO|CGO|JAVA|_JAVA|JDK|MAVEN|GRADLE|ANT|MAKE|GNUMAKE|CMAKE|NINJA|CC|CXX|CPP|LD"
    r"|DYLD|LIBRARY|GCC|CLANG|LESS|MAN|BASH|ZSH|SSH|SUDO|DOCKER|KUBE|AWS|TERM(INFO|CAP)|XDG|SSL"
    r"|CURL|REQUESTS|LUA|PHP|TCL|R_|RSTUDIO|OPENSSL|PYTEST|TOX|COVERAGE|MYPY)_?.*"
    # Names of programs, of places to load from, of options.
    r"|\w*_(COMMAND|PAGER|EDITOR|SHELL|WRAPPER|RC|RCFILE|PATH|HOME|OPTIONS|OPTS|FLAGS|ARGS|PRELOAD"
    r"|PLUGINS?|HOOKS?|PROXY)"
    r"|PATH|HOME|SHELL|ENV|IFS|CDPATH|FPATH|MANPATH|CLASSPATH|PAGER|EDITOR|VISUAL|BROWSER|FCEDIT"
    r"|PS[0-4]|PROMPT\w*|PWD|OLDPWD|USER|LOGNAME|TMPDIR|TEMP|TMP|AR|AS|NM|AWK|SED"
    r"|RIPGREP_CONFIG_PATH|TAR_OPTIONS|GREP_OPTIONS|HISTFILE",
    re.IGNORECASE,
)


def is_harmless(name: str) -> bool:
    """Return whether a variable only changes how output looks, and the like."""
    return name in _HARMLESS


def loads_code(name: str) -> bool:
    """Return whether a variable makes a loader, shell or interpreter run something else first."""
    return name not in filter_environment({name: ""}, add=(name,)).values


def controls_programs(name: str) -> bool:
    """Return whether a variable could make an allowed program do what was not allowed."""
    return not is_harmless(name) and (name in _OF_BASH or _TAKES_ORDERS.fullmatch(name) is not None)


def explain_meaning(name: str, *, is_spelled_out: bool = False) -> str:
    """Return why a person has to look at a line of shell that sets a variable; empty if none has.

    With `is_spelled_out` it is an assignment that rules see as part of the command: then only what
    bash itself makes of the variable counts.
    """
    if name in _OF_BASH or name.startswith("BASH_FUNC_"):
        return f"`{name}` is what the shell itself runs, expands or goes by"
    means_nothing = not (name.isupper() or _LOWER_CASE.fullmatch(name))
    if is_spelled_out or means_nothing or not _is_name(name):
        return ""
    if loads_code(name) or controls_programs(name):
        return f"the variable `{name}` is set, which can make a program run or load something else"
    return ""


def format_assignments(variables: Iterable[str]) -> tuple[str, ...]:
    """Return variables (`NAME=value`) as a shell would write them before a command.

    They are sorted, and harmless ones are left out.
    """
    pairs = [variable.partition("=") for variable in sorted(variables)]
    return tuple(
        f"{name}={shlex.quote(value)}" for name, _, value in pairs if not is_harmless(name)
    )


def find_refusals(variables: Iterable[str]) -> Iterator[str]:
    """Yield why some of these variables may not be set at all."""
    for name in _names(variables):
        if _is_name(name) and loads_code(name):
            yield f"the variable `{name}` makes programs load something else; leave it out"


def find_doubts(variables: Iterable[str]) -> Iterator[str]:
    """Yield why a person has to look at some of these variables."""
    for name in _names(variables):
        if not _is_name(name) or controls_programs(name):
            yield (
                f"the variable `{name[:100]}` is set, which can make a program run or load "
                "something else"
            )


def _names(variables: Iterable[str]) -> Iterator[str]:
    return (variable.partition("=")[0] for variable in variables)


def _is_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
