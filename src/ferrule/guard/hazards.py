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
from collections.abc import Sequence

from ferrule.core.expressions import expression


def listed(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


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
_GIT_LONG = tuple(
    sorted(
        listed("""
    --upload-pack --receive-pack --exec --ext-diff --textconv --output --open-files-in-pager --config --config-env
    --exec-path --git-dir --work-tree --namespace --template --no-index --remote --unsafe-paths --interactive --force
    --force-with-lease --mirror --delete --hard --prune --separate-git-dir --reference --super-prefix --no-verify
    --output-directory --prune-tags""")
    )
)
_GIT_SHORT = {
    "push": "fd", "grep": "O", "rebase": "ixs", "clone": "uc", "clean": "fdxX", "branch": "DdfM", "checkout": "f",
    "add": "pie", "tag": "df", "archive": "o", "format-patch": "o", "commit": "nF", "fetch": "u",
}  # fmt: skip
_GIT_VALUE = listed("-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix")
_GIT_HARMLESS = listed("--no-pager --version --help --no-optional-locks --literal-pathspecs -P")

_HAZARDS: dict[str, tuple[str, str, str]] = {
    # program: (exact words, long flags of which any abbreviation counts, letters that count inside `-abc`)
    "find": (
        "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from -follow -L",
        "",
        "",
    ),
    "fd": ("", "--exec --exec-batch", "xX"),
    "sort": ("", "--output --compress-program --temporary-directory --files0-from", "oT"),
    "sed": ("", "--in-place --file", "if"),
    "tar": (
        "",
        "--to-command --checkpoint-action --use-compress-program --rsh-command --info-script --new-volume-script"
        " --extract --absolute-names --directory --delete --overwrite",
        "xIFPC",
    ),
    "test": ("-v -R", "", ""),
    "printf": ("-v", "", ""),
    "rg": ("", "--pre --hostname-bin --search-zip --follow", "zL"),
    "ag": ("", "--pager", ""),
    "tree": ("", "--output", "oR"),
    "diff": ("", "--to-file --from-file", ""),
    "less": ("", "--log-file --lesskey-file --lesskey-src", "oOk"),
    "man": ("", "--pager --preprocessor --html", "PH"),
    "file": ("", "--compile --magic-file", "Cm"),
    "date": ("", "--set --file", "s"),
    "curl": (
        "",
        "--output --remote-name --config --upload-file --data --form --request --proxy --netrc --cert --key"
        " --unix-socket --json",
        "oOKTdFXxnE",
    ),
    "wget": (
        "",
        "--output-document --execute --post --input-file --use-askpass --config --directory-prefix --method --body",
        "OeiP",
    ),
    "rsync": ("", "--rsh --delete --rsync-path --daemon --config", "e"),
    "scp": ("", "", "SoF"),
    "zip": ("", "--unzip-command --test", "T"),
    "npm": ("", "--prefix --script-shell --node-options --globalconfig --userconfig", "Cg"),
    "pnpm": ("", "--dir --script-shell", "C"),
    "yarn": ("", "--cwd --use-yarnrc", ""),
    "pip": ("", "--index-url --extra-index-url --target --python --trusted-host", "it"),
    "cargo": ("", "--config --manifest-path", "CZ"),
    "go": (
        "-toolexec -exec -overlay -modfile -vettool -C generate",
        "--toolexec --exec --vettool --overlay",
        "",
    ),
    "pytest": ("", "--rootdir --confcutdir --override-ini", "pco"),
    "jq": ("", "--from-file --rawfile --slurpfile", "fL"),
    "yq": ("", "--inplace", "i"),
    "shuf": ("", "--output", "o"),
    "nc": ("", "--exec --sh-exec --lua-exec", "ec"),
    "ncat": ("", "--exec --sh-exec --lua-exec", "ec"),
    "gh": ("alias extension config auth api", "", ""),
    "docker": ("", "--volume --mount --privileged --host", "vH"),
}


def hazards(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a known argument list that make its program do more than usual, as they stand."""
    if not words:
        return ()
    program, rest = base(words[0]), words[1:]
    if program == "git":
        return _git_hazards(rest)
    found: list[str] = []
    if program == "sed":
        found += [word for word in _sed_scripts(rest) if not _SED_PLAIN.fullmatch(word)]
    if program == "tar" and rest and re.search(r"[xIFPC]", rest[0]):
        found.append(rest[0])  # the old way, without a dash: `tar xf x`
    if program in ("awk", "gawk", "mawk", "nawk"):
        found += [word for word in rest if _AWK_EFFECT.search(word)]
    table = _HAZARDS.get(program)
    if table is not None:
        exact, long, short = table[0].split(), tuple(table[1].split()), table[2]
        found += [w for w in rest if w in exact or _long(w, long) or (not exact and _short(w, short))]
    return tuple(found)


_SED_PLAIN = expression(
    r"(?:\d+|\$|/[^/]*/)?(?:,(?:\d+|\$|/[^/]*/))?(?:[pdq=]|s([/|,#])(?:(?!\1).)*\1(?:(?!\1).)*\1[gpiI\d]*)"
)
_AWK_EFFECT = expression(r"system|getline|[|>@]|^-f|^-i|^-l|^-E|--file|--include|--load|--exec|--source")


def _sed_scripts(rest: Sequence[str]) -> list[str]:
    explicit = [rest[i + 1] for i, word in enumerate(rest[:-1]) if word in ("-e", "--expression")]
    explicit += [word.partition("=")[2] for word in rest if word.startswith("--expression=")]
    explicit += [word[2:] for word in rest if word.startswith("-e") and len(word) > 2]
    return explicit or [word for word in rest if not word.startswith("-")][:1]


def _long(word: str, flags: tuple[str, ...]) -> bool:
    # Programs accept any unambiguous beginning: `--outp=x` is `--output=x`.
    name = word.partition("=")[0]
    return (
        len(name) > 3
        and name.startswith("--")
        and any(flag.startswith(name) or name == flag for flag in flags)
    )


def _short(word: str, letters: str) -> bool:
    return len(word) > 1 and word[0] == "-" != word[1] and any(letter in letters for letter in word[1:])


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
    return (*found, *(word for word in rest[index + 1 :] if _git_hazard(verb, word)))


def _git_hazard(verb: str, word: str) -> bool:
    if _long(word, _GIT_LONG) or _short(word, _GIT_SHORT.get(verb, "")):
        return True
    # `ext::sh -c ...` is a transport that runs a command; `+ref` and `:ref` force and delete.
    return ("::" in word and verb not in _GIT_READ) or (verb == "push" and word.startswith(("+", ":")))


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
        return any(_short(word, "i") or _long(word, ("--in-place",)) for word in words[1:])
    return program in WRITERS
