"""Tables of programs: which run other programs, which only read, which write files.

Sources: the bypass classes of conventions §2.2 and the manual pages of the programs. The tables
cannot be complete. They refuse commands before anything starts; the kernel's sandbox is the
boundary for what does start.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.core.lazy_patterns import compile_lazily


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


STRIPPED = word_set("timeout time nice nohup stdbuf command builtin xargs")
"""Wrappers that allow rules look through (conventions §3.3)."""

SHELLS = word_set("sh bash dash zsh ksh ash fish mksh rbash csh tcsh")

RUNNERS = word_set("""
    sudo doas su pkexec runuser env exec watch setsid ionice flock chrt taskset unshare nsenter
    chroot npx bunx pnpx uvx
    pipx docker podman kubectl ssh strace ltrace gdb script parallel busybox toybox xvfb-run entr
    systemd-run firejail
    bwrap proot fakeroot fakechroot faketime caffeinate doppler dotenv direnv nix-shell find fd
    setarch linux32 linux64 i386 x86_64 uname26 prlimit cpulimit setpriv capsh runcon aa-exec sg
    choom numactl cgexec tini tini-static dumb-init catatonit setuidgid softlimit chpst eatmydata
    nocache torsocks torify proxychains proxychains4 valgrind perf hyperfine watchexec nodemon
    cross-env dotenvx systemd-cat systemd-inhibit dbus-run-session mpirun srun
    start-stop-daemon rlwrap unbuffer expect tmux screen at batch crontab coproc eval trap
    timeout time nice nohup stdbuf command builtin xargs""")
"""Programs that run the program in their arguments. Allow rules look through `STRIPPED` only."""

_RUNNING_VERBS = {
    "git": word_set("foreach bisect for-each-repo filter-branch"),
    "npm": word_set("exec x"),
    **dict.fromkeys(("pnpm", "yarn"), word_set("exec dlx")),
    **dict.fromkeys(("bundle", "rbenv", "pyenv", "nodenv", "asdf", "aws-vault"), word_set("exec")),
    **dict.fromkeys(("uv", "pixi", "mise"), word_set("run tool exec x")),
    **dict.fromkeys(("poetry", "pdm", "pipenv", "hatch", "rye", "rustup", "op"), word_set("run")),
    **dict.fromkeys(
        ("conda", "mamba", "micromamba", "devbox", "nix"), word_set("run develop shell")
    ),
}
"""Verbs with which a program runs the program in its arguments."""


def runs_arguments(words: Sequence[str]) -> bool:
    """Return whether a command line runs the program in its arguments: `nice rm`, `uv run rm`."""
    if not words:
        return False
    program = program_name(words[0])
    verbs = _RUNNING_VERBS.get(program, frozenset[str]())
    return program in RUNNERS or not verbs.isdisjoint(words[1:])


INTERPRETERS = word_set("""
    python python2 python3 pypy pypy3 node nodejs deno bun perl ruby php lua luajit tclsh wish
    osascript pwsh powershell
    awk gawk mawk nawk Rscript julia scala groovy jshell ghci erl elixir guile sbcl emacs vim vi
    nvim ex ed sqlite3 psql
    mysql make gmake m4 bc dc""")
"""Programs whose arguments or input can be code."""

ENVIRONMENT = word_set("""
    export typeset declare readonly local alias unalias source . eval trap set exec shopt enable
    unset hash ulimit umask
    bind mapfile readarray read let""")
"""Built-ins that change what later commands mean."""

DECLARATIONS = word_set("declare typeset export readonly local")
"""Built-ins whose words are assignments."""

NEVER_GRANTED = SHELLS | RUNNERS | INTERPRETERS | ENVIRONMENT
"""Programs for which a wildcard would allow anything: it is never offered as a grant."""

TWO_WORDS = word_set("""
    git npm yarn pnpm cargo go pip pip3 uv poetry hatch docker podman kubectl helm gh glab apt
    apt-get brew dnf terraform
    systemctl dotnet gradle mvn bundle rails composer conda rustup make just task ruff""")
"""Programs whose first argument is a verb: grants are offered for two words."""

PRINTERS = word_set("echo printf true false : pwd")
"""Programs of which no argument names a file and no option does harm."""

LISTERS = PRINTERS | word_set("ls stat file du wc basename dirname test [ [[")
"""Programs that show names, sizes and counts, never the content of a file."""

PLAIN = LISTERS | word_set("cat head tail grep egrep fgrep cut tr nl cmp sha256sum md5sum")
"""Programs for which a file name that looks like an option does no harm."""

SCRIPT_FIRST = word_set("sed awk gawk mawk nawk grep egrep fgrep rg jq ag ack")
"""Programs whose first plain argument is a pattern or script, not a file."""

WRITERS = word_set("""
    tee cp mv rm rmdir mkdir touch ln install rsync dd truncate shred chmod chown chgrp patch unzip
    tar split csplit mktemp
    mkfifo mknod unlink rename gzip gunzip bzip2 xz zstd""")

GIT_READ = word_set("""
    annotate blame cat-file check-attr check-ignore cherry count-objects describe diff diff-files
    diff-index diff-tree
    for-each-ref fsck grep help log ls-files ls-tree merge-base name-rev range-diff rev-list
    rev-parse shortlog show
    show-branch show-ref status var version whatchanged""")
_GIT_LISTS = {
    "branch": compile_lazily(r"(-a|-r|-v|-vv|-avv?|--all|--remotes|--list|--show-current|\s)*"),
    "reflog": compile_lazily(r"(show)?"),
    "stash": compile_lazily(r"list|show( -p)?( stash@\{\d+\})?"),
    "tag": compile_lazily(r"((-l|--list)( [\w.*/-]+)?)?"),
    "worktree": compile_lazily(r"list( --porcelain)?"),
}
"""Verbs that list with these arguments; with others they change something."""
GIT_WRITE = word_set("""
    add am apply archive branch bundle checkout cherry-pick clean clone commit fetch format-patch
    gc init ls-remote merge
    mv notes prune pull push rebase reflog remote reset restore revert rm sparse-checkout stash
    switch symbolic-ref tag
    update-index worktree write-tree""")
GIT_VALUE = word_set("""
    -C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix --shallow-file
    --attr-source""")
"""Options of git itself that take a word: git's help, and `handle_options` of its source, which
also knows what its help leaves out."""
GIT_HARMLESS = word_set("--no-pager --version --help --no-optional-locks --literal-pathspecs -P")

_SED_IN_PLACE = compile_lazily(r"-[A-Za-z]*i|--i")


def git_verb(words: Sequence[str]) -> str:
    """Return the verb of a git command line, behind git's own options; empty if there is none."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in GIT_VALUE else 1]
    return rest[0] if rest else ""


def git_reads(words: Sequence[str]) -> bool:
    """Return whether a git command line only reads, as far as its verb and arguments say."""
    verb = git_verb(words)
    lists = _GIT_LISTS.get(verb)
    if lists is None:
        return verb in GIT_READ
    return lists.fullmatch(" ".join(words[words.index(verb) + 1 :])) is not None


def drop_options(words: Sequence[str]) -> tuple[str, ...]:
    """Drop the options before the first plain argument: `git -C x push` is `git push`."""
    rest = list(words[1:])
    values = GIT_VALUE if words and program_name(words[0]) == "git" else frozenset[str]()
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in values else 1]
    return (*words[:1], *rest)


NAMES_PROGRAMS = word_set("""
    man info tldr whatis apropos whereis hash pidof pgrep pkill killall brew apt apt-get apt-cache
    dnf yum pacman snap apk cd pushd . source alias unalias export unset set read local declare
    readonly return exit shift cowsay figlet notify-send logger python python2 python3 node ruby
    perl php lua deno bun Rscript julia sh bash dash zsh""")
"""Programs that no other table knows and that run nothing of what they are given."""


def program_name(program: str) -> str:
    """Return the name of a program without its folder."""
    return program.rsplit("/", 1)[-1]


def writes_files(words: Sequence[str]) -> bool:
    """Return whether a command line is known to change files that it names."""
    if not words:
        return False
    program = program_name(words[0])
    if program == "git":
        return not git_reads(words)
    if program == "sed":
        return any(_SED_IN_PLACE.match(word) for word in words[1:])
    return program in WRITERS
