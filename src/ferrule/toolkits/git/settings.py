"""Settings of a repository read as data: its remotes, and what branches follow.

git is not asked: a configuration that it reads takes effect. What is taken out of it is checked
here; addresses are shown without the credentials that they may contain.
"""

from __future__ import annotations

import re

from ferrule.core.invisible_characters import escape_for_approval
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.repositories import Repository, parse_git_config, read_text


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


def read_settings(repository: Repository) -> list[tuple[str, str]]:
    """Return (key, value) pairs of a repository's configuration, in order, without includes."""
    return parse_git_config(read_text(f"{repository.common_dir}/config"))


def names_programs(repository: Repository) -> bool:
    """Return whether settings of a repository name a program that git starts for some files.

    Filters, drivers and text conversions, and further files of settings, in which there may be
    some.
    """
    own = parse_git_config(read_text(f"{repository.git_dir}/config.worktree"))
    return any(_PROGRAM.fullmatch(key) for key, _ in (*read_settings(repository), *own))


_PROGRAM = compile_lazily(
    r"(filter\..*\.(clean|smudge|process)|diff\..*\.(textconv|command)|diff\.external"
    r"|merge\..*\.driver|include(if\..*)?\.path)",
    re.DOTALL,
)


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
