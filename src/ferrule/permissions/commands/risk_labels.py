"""Risk labels of commands: a name for what a person should mind (systems.md §2.1).

`labels_of` judges one command line with its known words; pipelines, paths and redirects add theirs
in `command.py`. A label informs the person who is asked; which labels refuse by themselves is
decided in `gate.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .program_facts import INTERPRETERS, SHELLS, base, git_verb, listed, writes

LABELS = listed("""
    destructive write_intent outside_workspace curl_pipe_shell credential_file_read network_exfil sudo package_install
    git_force_push process_kill""")

FETCHERS = listed("curl wget fetch aria2c http https xh lynx")
RUN_INPUT = SHELLS | INTERPRETERS | listed("source . eval sudo env xargs")

_SUDO = listed("sudo doas su pkexec runuser")
_KILL = listed("kill pkill killall xkill skill killall5")
_DESTRUCTIVE = listed("""
    rm rmdir unlink shred dd mkfs wipefs fdisk parted truncate shutdown reboot halt poweroff blkdiscard""")
_SOCKETS = listed(
    "nc ncat netcat socat telnet ssh scp sftp ftp tftp rclone aws gsutil s3cmd mail sendmail"
)
_INSTALLERS = {
    "pip pip3 uv pipx conda mamba gem brew apt apt-get dnf yum snap": "install add tool upgrade reinstall",
    "npm pnpm yarn bun": "install i add ci update",
    "apk poetry cargo go composer": "add install get require",
    "pacman": "-S -Sy -Syu -U",
    "dpkg rpm": "-i --install -U -ivh -Uvh",
}
_INSTALL = {name: listed(verbs) for names, verbs in _INSTALLERS.items() for name in names.split()}
_UPLOAD = re.compile(
    r"-[A-Za-z]*[dFT]|--(data|form|upload|post|body|json)|-X(POST|PUT|PATCH)?$|--request|--method"
)


def labels_of(words: Sequence[str]) -> Iterator[str]:
    """Labels of one command line, argument 0 first."""
    if not words:
        return
    program, rest = base(words[0]), words[1:]
    if program in _SUDO:
        yield "sudo"
    if program in _KILL or (program == "fuser" and "-k" in rest):
        yield "process_kill"
    if program in _DESTRUCTIVE or program.startswith("mkfs."):
        yield "destructive"
    if writes(words):
        yield "write_intent"
    if program in _SOCKETS or (program in FETCHERS and any(_UPLOAD.match(word) for word in rest)):
        yield "network_exfil"
    if program == "rsync" and any(":" in word for word in rest):
        yield "network_exfil"
    if _installs(program, rest):
        yield "package_install"
    if program == "git":
        yield from _git(words, rest)
    if program == "find" and "-delete" in rest:
        yield "destructive"
    if program in ("chmod", "chown") and any(re.match(r"-\w*R|--recursive", word) for word in rest):
        yield "destructive"


def _installs(program: str, rest: Sequence[str]) -> bool:
    if program.startswith("python") and list(rest[:2]) == ["-m", "pip"]:
        program, rest = "pip", rest[2:]
    verbs = _INSTALL.get(program)
    plain = (
        [word for word in rest if not word.startswith("-")]
        if program not in ("pacman", "dpkg", "rpm")
        else rest
    )
    return verbs is not None and any(word in verbs for word in plain[:2])


def _git(words: Sequence[str], rest: Sequence[str]) -> Iterator[str]:
    verb = git_verb(words)
    forced = any(
        word.startswith(("--force", "--mirror", "--delete", "+", ":"))
        or re.fullmatch(r"-\w*[fd]\w*", word)
        for word in rest
    )
    if verb == "push":
        if forced:
            yield "git_force_push"
        if any("://" in word or "@" in word for word in rest):
            yield "network_exfil"
    if verb == "reset" and any("--hard".startswith(word) and len(word) > 3 for word in rest):
        yield "destructive"
    if verb in ("clean", "filter-branch", "restore", "prune") or (
        verb == "checkout" and ("--" in rest or "-f" in rest)
    ):
        yield "destructive"
    if verb == "branch" and any(re.fullmatch(r"-\w*[dD]\w*|--delete", word) for word in rest):
        yield "destructive"
