"""What is known about programs: which run other programs, which flags do more than their name says, which labels fit.

Tables and small functions over argument words, no parsing. A *hazard* is a word that lets an otherwise
harmless program write, delete or run something: `find -exec`, `git -c`, `sort -o`. A rule with a wildcard
covers a command with a hazard only if the rule itself spells that word.

Sources: the bypass classes of conventions §2.2 and the manual pages of the programs named. The tables
cannot be complete: any program may have such a flag. They are a refusal before anything starts; the
boundary for what does start is the kernel's sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ferrule.core.expressions import expression

from .programs import judge, listed

STRIPPED = listed("timeout time nice nohup stdbuf command builtin xargs")
"""Wrappers that an allow rule looks through (conventions §3.3)."""

SHELLS = listed("sh bash dash zsh ksh ash fish mksh rbash csh tcsh")

RUNNERS = listed("""
    sudo doas su pkexec runuser env exec watch setsid ionice flock chrt taskset unshare nsenter chroot npx bunx pnpx uvx
    pipx docker podman kubectl ssh strace ltrace gdb script parallel busybox toybox xvfb-run entr systemd-run firejail
    bwrap proot fakeroot faketime caffeinate doppler dotenv direnv nix-shell find fd setarch prlimit cpulimit
    start-stop-daemon rlwrap unbuffer expect tmux screen at batch crontab coproc eval trap
    timeout time nice nohup stdbuf command builtin xargs""")
"""Programs that start what follows in their arguments. Only those of `STRIPPED` are looked through to allow."""

INTERPRETERS = listed("""
    python python2 python3 pypy pypy3 node nodejs deno bun perl ruby php lua luajit tclsh wish osascript pwsh powershell
    awk gawk mawk nawk Rscript julia scala groovy jshell ghci erl elixir guile sbcl emacs vim vi nvim ex ed sqlite3 psql
    mysql make gmake m4 bc dc""")
"""Programs whose arguments or input can be a program."""

ENVIRONMENT = listed("""
    export typeset declare readonly local alias unalias source . eval trap set exec shopt enable unset hash ulimit umask
    bind mapfile readarray read let""")
"""Built-ins that change what later commands mean."""

UNGRANTABLE = SHELLS | RUNNERS | INTERPRETERS | ENVIRONMENT
"""A wildcard for these would allow anything: it is never offered to a person."""

TWO_WORDS = listed("""
    git npm yarn pnpm cargo go pip pip3 uv poetry hatch docker podman kubectl helm gh glab apt apt-get brew dnf terraform
    systemctl dotnet gradle mvn bundle rails composer conda rustup make just task ruff""")
"""Programs whose first argument says what they do: grants are offered for two words."""

TALKERS = listed("echo printf true false : pwd")
"""Programs for which no argument names a file and no flag does harm."""

LISTERS = TALKERS | listed("ls stat file du wc basename dirname test [ [[")
"""Programs that show names, sizes and counts, never what a file holds."""

PLAIN = LISTERS | listed("cat head tail grep egrep fgrep cut tr nl cmp sha256sum md5sum")
"""Programs for which a file name that looks like a flag does no harm."""

SCRIPT_FIRST = listed("sed awk gawk mawk nawk grep egrep fgrep rg jq ag ack")
"""Programs whose first plain argument is a pattern or script, not a file."""

WRITERS = listed("""
    tee cp mv rm rmdir mkdir touch ln install rsync dd truncate shred chmod chown chgrp patch unzip tar split csplit mktemp
    mkfifo mknod unlink rename gzip gunzip bzip2 xz zstd""")

_GIT_READ = listed("""
    annotate blame cat-file check-attr check-ignore cherry count-objects describe diff diff-files diff-index diff-tree
    for-each-ref fsck grep help log ls-files ls-tree merge-base name-rev range-diff rev-list rev-parse shortlog show
    show-branch show-ref status var version whatchanged""")
_GIT_WRITE = listed("""
    add am apply archive branch bundle checkout cherry-pick clean clone commit fetch format-patch gc init ls-remote merge
    mv notes prune pull push rebase reflog remote reset restore revert rm sparse-checkout stash switch symbolic-ref tag
    update-index worktree write-tree""")
_GIT_VALUE = listed("-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix")
_GIT_HARMLESS = listed("--no-pager --version --help --no-optional-locks --literal-pathspecs -P")

_EXACT = {"test": listed("-v -R"), "[": listed("-v -R"), "printf": listed("-v")}


def hazards(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a known argument list that make its program do more than usual, as they stand."""
    if not words:
        return ()
    program, rest = base(words[0]), words[1:]
    if program == "git":
        return _git_hazards(rest)
    found = [rest[judged.index] for judged in judge(program, rest) if judged.hazard]
    found += [word for word in rest if word in _EXACT.get(program, ())]
    special = _SPECIAL.get(program)
    if special is not None:
        found += special(rest)
    return tuple(dict.fromkeys(found))


def _sed_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (script for script in _sed_scripts(rest) if not _sed_plain(script))


def _tar_hazards(rest: Sequence[str]) -> Iterator[str]:
    if rest and not rest[0].startswith("-") and re.search(r"[xIFPC]", rest[0]):
        yield rest[0]  # the old way, without a dash: `tar xf x`
    # `host:archive` is fetched by a remote shell.
    yield from (word for word in rest if re.match(r"(-\w*|--[a-z\-]+=)?[^/=\s-][^/=\s]*:", word))


def _awk_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (
        word for word in rest if _AWK_EFFECT.search(word) or _AWK_OUTPUT.search(word.replace("||", ""))
    )


def _less_hazards(rest: Sequence[str]) -> Iterator[str]:
    yield from (word for word in rest if word.startswith("+"))  # `+!x` is a command of less: it runs x


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


_MAKE_PROGRAMS = expression(
    r"SHELL|MAKE\w*|\w*FLAGS|CC|CXX|CPP|LD|AR|AS|[A-Z]*_?(SHELL|CMD|COMMAND|PROG|PROGRAM|PYTHON|PATH)"
)
"""Variables of make that name a program or the options of one."""

_SPECIAL: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
    "sed": _sed_hazards,
    "tar": _tar_hazards,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk_hazards),
    "less": _less_hazards,
    **dict.fromkeys(("make", "gmake"), _make_hazards),
    "curl": _curl_hazards,
    **dict.fromkeys(("pnpm", "yarn"), _pnpm_hazards),
}


_SED_IN_PLACE = expression(r"-[A-Za-z]*i|--i")
_SED_BRACKET = r"\[\^?\]?(?:\[:\w+:\]|[^\]\\\[\n])*\]"
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/(?:\\[^\n]|{_SED_BRACKET}|[^\\/\[\n])*/[IM]*)"
_SED_CHANGE = "|".join(
    rf"s{d}(?:\\[^\n]|{_SED_BRACKET}|[^\\\[\n{d}])*{d}(?:\\[^\n]|[^\\\n{d}])*{d}[gpiImM0-9]*"
    for d in (r"\/", r"\|", r"\,", r"\#", r"\:", r"\@", r"\!", r"\%", r"\+")
)
_SED_COMMAND = expression(
    rf"[\s;]*(?:{_SED_ADDRESS}(?:,[ \t]*(?:{_SED_ADDRESS}|[+~]\d+))?)?(?:[ \t]*!)?[ \t]*"
    rf"(?:[{{}}]|(?:[dDgGhHnNpPxzq=]|q\d+|l\d*|[bt][ \t]*\w*|:[ \t]*\w+|{_SED_CHANGE}"
    r"|[aic][ \t\w][^\n\\]*)(?=[ \t]*(?:[;\n}]|\Z))|[ \t]*\Z)"
)
"""One command of a script that neither writes, reads another file nor runs anything."""
_AWK_EFFECT = expression(r"system|getline|@")
_AWK_OUTPUT = expression(r"print.*[|>]", re.DOTALL)
"""Only `print` and `printf` write: before them `>` compares and `|` stands in a pattern."""


def _sed_scripts(rest: Sequence[str]) -> list[str]:
    judged = judge("sed", rest)
    values = [j.value for j in judged if not j.operand and j.role == "text" and j.value]
    # The other option with a text is `--line-length`.
    explicit = [value for value in values if not value.isdigit()]
    return explicit or [j.value or "" for j in judged if j.operand][:1]


def _sed_plain(script: str) -> bool:
    """True if all of a script is known to do no more than to print; what is not sure is not plain."""
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
        if rest[index] not in _GIT_HARMLESS:
            found.append(rest[index])
        index += 2 if rest[index] in _GIT_VALUE else 1
    if index >= len(rest):
        return tuple(found)
    verb = rest[index]
    if verb not in _GIT_READ | _GIT_WRITE:
        # An unknown verb is an alias of the repository's own configuration or a program `git-<verb>`;
        # config, bisect, submodule, hook and the like run what they are told.
        found.append(verb)
    after = rest[index + 1 :]
    found += [after[judged.index] for judged in judge("git", after, verb) if judged.hazard]
    # `ext::sh -c ...` is a transport that runs a command; `+ref` and `:ref` force and delete.
    found += [word for word in after if "::" in word and verb not in _GIT_READ]
    found += [word for word in after if verb == "push" and word.startswith(("+", ":"))]
    return tuple(dict.fromkeys(found))


def git_verb(words: Sequence[str]) -> str:
    """The verb of a git command line, with git's own options left out; empty if there is none."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in _GIT_VALUE else 1]
    return rest[0] if rest else ""


def without_options(words: Sequence[str]) -> tuple[str, ...]:
    """A command line without the options before its first plain argument: `git -C x push` is a `git push`."""
    rest = list(words[1:])
    values = _GIT_VALUE if words and base(words[0]) == "git" else frozenset[str]()
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in values else 1]
    return (*words[:1], *rest)


def base(program: str) -> str:
    """The name of a program without its folder."""
    return program.rsplit("/", 1)[-1]


def writes(words: Sequence[str]) -> bool:
    """True if this command line is known to change files that it names."""
    if not words:
        return False
    program = base(words[0])
    if program == "git":
        return git_verb(words) not in _GIT_READ
    if program == "sed":
        return any(_SED_IN_PLACE.match(word) for word in words[1:])
    return program in WRITERS
