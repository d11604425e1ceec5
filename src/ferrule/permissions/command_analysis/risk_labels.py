"""Risk labels of commands: what a person should pay attention to (systems.md §2.1).

`labels_of` labels one simple command by its words; `simple_commands` adds labels for pipelines,
paths and redirects. A label informs the person who is asked; it does not refuse anything by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ferrule.core.lazy_patterns import compile_lazily

from .program_facts import INTERPRETERS, SHELLS, git_verb, program_name, word_set, writes_files

FETCHERS = word_set("curl wget fetch aria2c http https xh lynx")
RUN_INPUT = SHELLS | INTERPRETERS | word_set("source . eval sudo env xargs")

_SUDO = word_set("sudo doas su pkexec runuser")
_KILL = word_set("kill pkill killall xkill skill killall5")
_DESTRUCTIVE = word_set("""
    rm rmdir unlink shred dd mkfs wipefs fdisk parted truncate shutdown reboot halt poweroff
    blkdiscard""")
_SOCKETS = word_set(
    "nc ncat netcat socat telnet ssh scp sftp ftp tftp rclone aws gsutil s3cmd mail sendmail"
)
_INSTALLERS = {
    "pip pip3 uv pipx conda mamba gem": "install add tool upgrade reinstall",
    "brew apt apt-get dnf yum snap": "install add tool upgrade reinstall",
    "npm pnpm yarn bun": "install i add ci update",
    "apk poetry cargo go composer": "add install get require",
    "pacman": "-S -Sy -Syu -U",
    "dpkg rpm": "-i --install -U -ivh -Uvh",
}
_INSTALL = {name: word_set(verbs) for names, verbs in _INSTALLERS.items() for name in names.split()}
_UPLOAD = compile_lazily(
    r"-[A-Za-z]*[dFT]|--(data|form|upload|post|body|json)|-X(POST|PUT|PATCH)?$|--request|--method"
)


def labels_of(words: Sequence[str]) -> Iterator[str]:
    """Yield the labels of a simple command, whose first word is the program."""
    if not words:
        return
    program = program_name(words[0])
    arguments = words[1:]
    if program in _SUDO:
        yield "sudo"
    kills = program in _KILL and not names_only_jobs(words)
    if kills or (program == "fuser" and "-k" in arguments):
        yield "process_kill"
    if _destroys(program, arguments):
        yield "destructive"
    if writes_files(words):
        yield "write_intent"
    if _sends_data(program, arguments):
        yield "network_exfil"
    if _installs_packages(program, arguments):
        yield "package_install"
    if program == "git":
        yield from _git_labels(git_verb(words), arguments)


_PUBLISHING = {
    "git": "push send-email",
    "npm pnpm yarn bun cargo poetry uv flit hatch": "publish unpublish",
    "gem docker podman helm": "push",
    "twine": "upload",
    "gh glab": "pr issue release repo api workflow secret mr",
}
_PUBLISHED_BY = {
    name: word_set(verbs) for names, verbs in _PUBLISHING.items() for name in names.split()
}


def publishes(words: Sequence[str]) -> bool:
    """Return whether a simple command hands something on to others: `git push`, `npm publish`."""
    if not words:
        return False
    program = program_name(words[0])
    verbs = _PUBLISHED_BY.get(program, frozenset())
    if program == "git":
        return git_verb(words) in verbs
    return any(word in verbs for word in words[1:])


def names_only_jobs(words: Sequence[str]) -> bool:
    """Return whether `kill` ends nothing but the session's own commands: `kill %1`."""
    named = [word for word in words[1:] if not re.fullmatch(r"-\w+", word)]
    return bool(named) and all(re.fullmatch(r"%\d+", word) for word in named)


def _destroys(program: str, arguments: Sequence[str]) -> bool:
    if program in _DESTRUCTIVE or program.startswith("mkfs."):
        return True
    if program == "find":
        return "-delete" in arguments
    if program in ("chmod", "chown"):
        return any(re.match(r"-\w*R|--recursive", word) for word in arguments)
    return False


def _sends_data(program: str, arguments: Sequence[str]) -> bool:
    if program in _SOCKETS:
        return True
    if program in FETCHERS:
        return any(_UPLOAD.match(word) for word in arguments)
    return program == "rsync" and any(":" in word for word in arguments)


def _installs_packages(program: str, arguments: Sequence[str]) -> bool:
    if program.startswith("python") and list(arguments[:2]) == ["-m", "pip"]:
        program = "pip"
        arguments = arguments[2:]
    verbs = _INSTALL.get(program)
    if verbs is None:
        return False
    if program not in ("pacman", "dpkg", "rpm"):
        arguments = [word for word in arguments if not word.startswith("-")]
    return any(word in verbs for word in arguments[:2])


def _git_labels(verb: str, arguments: Sequence[str]) -> Iterator[str]:
    if verb == "push":
        if any(map(_forces_push, arguments)):
            yield "git_force_push"
        if any("://" in word or "@" in word for word in arguments):
            yield "network_exfil"
    if _git_destroys(verb, arguments):
        yield "destructive"


def _forces_push(word: str) -> bool:
    if word.startswith(("--force", "--mirror", "--delete", "+", ":")):
        return True
    return re.fullmatch(r"-\w*[fd]\w*", word) is not None


def _git_destroys(verb: str, arguments: Sequence[str]) -> bool:
    if verb in ("clean", "filter-branch", "restore", "prune"):
        return True
    if verb == "reset":
        return any("--hard".startswith(word) and len(word) > 3 for word in arguments)
    if verb == "checkout":
        return "--" in arguments or "-f" in arguments
    if verb == "branch":
        return any(re.fullmatch(r"-\w*[dD]\w*|--delete", word) for word in arguments)
    return False
