"""Settings of git read as data: the remotes of a repository, and the person's name and address.

A configuration file is parsed by git itself from its standard input, with includes off, so nothing
in it takes effect and no other file is opened. What is taken out of it is checked here; addresses
are shown without the credentials that they may contain.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.value_class import frozen

from .run import GitRunner

_MAX_BYTES = 1024 * 1024


@frozen
class Remote:
    """A remote by name, with its configured address."""

    name: str
    url: str

    @property
    def shown_url(self) -> str:
        """The address without credentials."""
        return redact_url(self.url)


def redact_url(url: str) -> str:
    """Remove what may be secret from an address.

    That is the user and password of a web address, and everything after `?` or `#`.
    """
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^/@]*)@)?(.*)", url, re.DOTALL)
    if not match:
        return make_printable(url)
    scheme, user, rest = match.groups()
    address = re.split("[?#]", rest, maxsplit=1)[0]
    if user is None:
        return make_printable(f"{scheme}://{address}")
    is_plain_ssh_user = scheme.lower() in ("ssh", "git+ssh") and ":" not in user
    shown_user = user if is_plain_ssh_user else "***"
    return make_printable(f"{scheme}://{shown_user}@{address}")


def make_printable(text: str) -> str:
    """Make characters visible that could hide or move what a person reads."""
    return escape_for_approval(text, keep="")


async def parse_settings(git: GitRunner, text: bytes) -> list[tuple[str, str]]:
    """Return (key, value) pairs of a configuration, in order. Includes are not followed.

    Keys are spelled as git does: `remote.origin.url`.
    """
    if not text:
        return []
    ran = await git.run("config", "--file", "-", "--no-includes", "--null", "--list", stdin=text)
    if ran.code:
        raise ToolFailed(
            ErrorType.PARSE_ERROR,
            "the configuration of the repository cannot be read; ask the person to look at it",
        )
    pairs = (entry.partition("\n") for entry in ran.text.split("\0") if entry)
    return [(key, value) for key, _, value in pairs]


def find_remotes(pairs: list[tuple[str, str]]) -> list[Remote]:
    """Return the remotes of a configuration, sorted by name.

    The first address of a remote is the one that is fetched from.
    """
    found: dict[str, Remote] = {}
    for key, value in pairs:
        match = re.fullmatch(r"remote\.(.+)\.url", key, re.DOTALL)
        if match and value:
            found.setdefault(match[1], Remote(match[1], value))
    return sorted(found.values(), key=lambda remote: remote.name)


def find_upstreams(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return branch -> `remote/branch` that it follows."""
    found: dict[str, dict[str, str]] = {}
    for key, value in pairs:
        match = re.fullmatch(r"branch\.(.+)\.(remote|merge)", key, re.DOTALL)
        if match:
            found.setdefault(match[1], {})[match[2]] = value
    return {
        branch: f"{parts['remote']}/{parts['merge'].removeprefix('refs/heads/')}"
        for branch, parts in found.items()
        if len(parts) == 2
    }


async def find_person(git: GitRunner, home: str, config_home: str = "") -> tuple[str, str] | None:
    """Return name and address of the person, from their git settings; None if one is missing."""
    found: dict[str, str] = {}
    # The later file wins, as in git-config(1), "FILES".
    folder = Path(config_home or Path(home) / ".config")
    for path in (folder / "git/config", Path(home) / ".gitconfig"):
        if not path.is_absolute():
            continue  # Relative to the current folder, where a repository could have put it.
        for key, value in await parse_settings(git, _read_bytes(path)):
            if key in ("user.name", "user.email"):
                found[key] = value
    name = _clean(found.get("user.name", ""))
    address = _clean(found.get("user.email", ""))
    return (name, address) if name and address else None


def _read_bytes(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""  # The person has no such file.
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MAX_BYTES)


def _clean(text: str) -> str:
    """Remove what git removes from a name anyway, and what could end a line of a configuration."""
    return re.sub(r"[\x00-\x1f\x7f<>\"\\]", "", text).strip()[:200]
