"""Settings of git read as data: remotes of a repository, and who the person says they are.

A configuration file is parsed by git itself from its standard input, with includes off, so nothing
in it takes effect and no other file is opened. What is taken out of it is checked here; addresses
are shown without the credentials that may stand in them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.invisible_characters import exact

from .run import Runner

_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote by name. `url` as it is configured, `shown` without credentials."""

    name: str
    url: str

    @property
    def shown(self) -> str:
        return redacted(self.url)


def redacted(url: str) -> str:
    """An address without what may be secret: user and password of a web address, and what follows
    `?` or `#`.
    """
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^/@]*)@)?(.*)", url, re.DOTALL)
    if not match:
        return printable(url)
    scheme, user, rest = match.groups()
    keeps = user is not None and scheme.lower() in ("ssh", "git+ssh") and ":" not in user
    who = "" if user is None else f"{user}@" if keeps else "***@"
    return printable(f"{scheme}://{who}{re.split('[?#]', rest, maxsplit=1)[0]}")


def printable(text: str) -> str:
    """Without characters that could hide or move what a person reads."""
    return exact(text, keep="")


async def settings(git: Runner, text: bytes) -> list[tuple[str, str]]:
    """(key, value) of a configuration, in order. Keys as git spells them: `remote.origin.url`.
    Includes are not followed.
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


def remotes(pairs: list[tuple[str, str]]) -> list[Remote]:
    """The remotes of a configuration, by name. The first address of a remote is the one that is
    fetched from.
    """
    found: dict[str, Remote] = {}
    for key, value in pairs:
        match = re.fullmatch(r"remote\.(.+)\.url", key, re.DOTALL)
        if match and value:
            found.setdefault(match[1], Remote(match[1], value))
    return sorted(found.values(), key=lambda remote: remote.name)


def upstreams(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Branch -> `remote/branch` that it follows."""
    found: dict[str, dict[str, str]] = {}
    for key, value in pairs:
        match = re.fullmatch(r"branch\.(.+)\.(remote|merge)", key, re.DOTALL)
        if match:
            found.setdefault(match[1], {})[match[2]] = value
    return {
        branch: f"{one['remote']}/{one['merge'].removeprefix('refs/heads/')}"
        for branch, one in found.items()
        if len(one) == 2
    }


async def person(git: Runner, home: str, config_home: str = "") -> tuple[str, str] | None:
    """Name and address of the person, from their own git settings; None if these do not say
    both.
    """
    found: dict[str, str] = {}
    # The later file wins, as in git-config(1), "FILES".
    for path in (
        Path(config_home or Path(home) / ".config") / "git/config",
        Path(home) / ".gitconfig",
    ):
        if not path.is_absolute():
            continue  # relative to where we happen to be: a repository could have put it there
        for key, value in await settings(git, _bytes(path)):
            if key in ("user.name", "user.email"):
                found[key] = value
    name, address = (_clean(found.get(key, "")) for key in ("user.name", "user.email"))
    return (name, address) if name and address else None


def _bytes(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""  # the person has no such file
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_LIMIT)


def _clean(text: str) -> str:
    """What git takes out of a name or address anyway, and everything that could end a line of a
    configuration.
    """
    return re.sub(r"[\x00-\x1f\x7f<>\"\\]", "", text).strip()[:200]
