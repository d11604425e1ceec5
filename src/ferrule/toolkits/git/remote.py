"""Reaching a remote: which addresses, over which network, with whose credentials.

A model names the remote; the address comes from the repository's configuration, which commands
cannot write, and is given to the one git that needs it. git runs in the sandbox like any command,
so two kinds of addresses can be reached:

    https     through the sandbox's proxy, which opens the host for this git alone
    file      a repository inside the workspace

All else is refused: `ssh:` (commands see no keys, and no proxy leads there), `ext::` and other
helpers, `http:` and `git:` (nobody vouches for what arrives), paths outside of the workspace. Of
credentials there are only those in the address, and with these no hook runs. Refs are written only
below `refs/remotes/NAME/`, whatever the configuration says.

Who vouches for a host: the system's authorities, and the file that the person's own git settings
name (`http.sslCAInfo`), which is opened for this git with the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import Origin, TrustedPath, UntrustedPath, trust_path
from ferrule.permissions.repositories import (
    Repository,
    find_repository,
    parse_git_config,
    read_text,
)
from ferrule.sandbox.network.allowed_hosts import AllowedHosts
from ferrule.sandbox.openings import Opening
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands.session_commands import SessionCommands
from ferrule.toolkits.subfolder import open_subfolder
from ferrule.tools.context import Context

from .attempt import GitResult
from .run import GitRunner, make_git_error
from .settings import Remote, find_remotes, make_printable, read_settings

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]"
_WEB = re.compile(
    rf"https://(?:(?P<user>[^/@\s]*)@)?(?P<host>{_HOST})(?::(?P<port>\d{{1,5}}))?/[^\s\\]*",
    re.IGNORECASE,
)
_SSH = re.compile(
    rf"(?:(?:git\+)?ssh://(?:[^/@\s]*@)?(?:{_HOST})(?::\d{{1,5}})?/|(?:[^/@\s:]*@)?(?:{_HOST}):(?!//)).*",
    re.IGNORECASE,
)
_NO_CREDENTIALS = re.compile(
    r"could not read (?:Username|Password)|Authentication failed|terminal prompts disabled"
    r"|HTTP 40[13]|returned error: 40[13]"
)
_HELPER = (
    '!f() { test "$1" = get && echo "username=$FERRULE_GIT_USER" '
    '&& echo "password=$FERRULE_GIT_PASSWORD"; }; f'
)
"""Gives git the credentials of an address, which then appear in no argument and no trace."""


@frozen
class Address:
    """An address that may be followed.

    `protocol` is `https` or `file`. `url` has no credentials; a `file` has no host.
    """

    protocol: str
    url: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""

    @property
    def authority(self) -> str:
        """The host with its port."""
        return f"{self.host}:{self.port}"


def read_address(remote: Remote) -> Address:
    """Read the address of a remote. Pure.

    Raises:
        ToolFailed: `permission_denied` for an address that is not followed.
    """
    url = remote.url
    name = make_printable(remote.name)
    if url.isprintable():
        web = _WEB.fullmatch(url)
        if web:
            return _read_web(url, web["host"], int(web["port"] or 443))
        if _is_path(url):
            return Address("file", url.removeprefix("file://"))
        if _SSH.fullmatch(url) and "::" not in url:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"the remote `{name}` was not reached: its address {remote.shown_url[:200]!r} is "
                "for SSH, and git runs where commands run, without the person's keys; ask the "
                "person to do it, or to give the remote an `https://` address",
            )
    raise ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"the remote `{name}` was not reached: its address {remote.shown_url[:200]!r} is neither "
        "`https://` nor a folder of the workspace; ask the person to do it",
    )


def _read_web(url: str, host: str, port: int) -> Address:
    split = urlsplit(url)
    bare = split._replace(netloc=split.netloc.rpartition("@")[2]).geturl()
    user = unquote(split.username or "")
    return Address("https", bare, host, port, user, unquote(split.password or ""))


def _is_path(url: str) -> bool:
    if url.lower().startswith("file://"):
        return True
    return "://" not in url and ":" not in url and not url.startswith(("-", "~")) and url != ""


def find_remote(repository: Repository, name: str) -> Remote:
    """Return the remote of this name in the configuration of a repository.

    Raises:
        ToolFailed: There is none; the message names those that exist.
    """
    found = find_remotes(read_settings(repository))
    for remote in found:
        if remote.name == name:
            return remote
    known = ", ".join(f"`{make_printable(remote.name)}`" for remote in found) or "none"
    raise ToolFailed(ErrorType.NOT_FOUND, f"there is no remote `{name}`; there are: {known}")


def describe_remote(name: str, context: Context) -> str:
    """Describe the remote of the workspace's repository for a person who is asked about it."""
    repository = find_repository(context.resource(Workspace).root).repository
    found = [] if repository is None else find_remotes(read_settings(repository))
    url = next((remote.shown_url for remote in found if remote.name == name), "")
    shown = f"the remote {make_printable(name)}"
    return f"{shown} ({url})" if url else shown


async def run_with_remote(
    git: GitRunner, remote: Remote, arguments: Sequence[str], *, what: str, hooks: bool = False
) -> GitResult:
    """Run a git that reaches this remote, and nothing else.

    Args:
        git: Git in the repository.
        remote: The remote.
        arguments: The subcommand and its arguments.
        what: What did not happen if it fails, as the beginning of the message.
        hooks: Whether hooks of the repository run. They do not if the address has credentials.

    Raises:
        ToolFailed: The remote cannot be reached, or git fails.
    """
    address = read_address(remote)
    settings = {f"remote.{remote.name}.url": address.url}
    variables = {"GIT_ALLOW_PROTOCOL": address.protocol, "GIT_CONFIG_GLOBAL": os.devnull}
    if address.protocol == "file":
        settings[f"remote.{remote.name}.url"] = _find_inside(git.workspace, address.url, remote)
    if address.user or address.password:
        hooks = False
        settings["credential.helper"] = _HELPER
        variables["FERRULE_GIT_USER"] = address.user
        variables["FERRULE_GIT_PASSWORD"] = address.password
    authorities = _find_authorities(git, address)
    if authorities is not None:
        settings["http.sslCAInfo"] = str(authorities)
    async with _open_network(git, address, remote.name, authorities):
        ran = await git.run(*arguments, hooks=hooks, settings=settings, variables=variables)
    if not ran.code:
        return ran
    complaint = ran.complaint.replace(remote.url, remote.shown_url)
    what = f"{what} `{make_printable(remote.name)}` ({remote.shown_url})"
    if _NO_CREDENTIALS.search(complaint):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"{what}: the remote asks for credentials, and git runs where commands run, without "
            "the person's keys and password helpers; ask the person to do it, or to give the "
            f"remote an address with a token: {complaint[:1000]}",
        )
    reason = f"{complaint or ran.text.strip()}; if it cannot be reached from here, ask the person"
    raise make_git_error(what, GitResult(ran.argv, ran.code, ran.output, reason))


def _find_authorities(git: GitRunner, address: Address) -> TrustedPath | None:
    """Return the file with authorities that the person's git settings name for an address.

    Raises:
        ToolFailed: Commands can write it, so it vouches for nobody.
    """
    if address.protocol != "https" or git.sandbox is None:
        return None
    home = os.path.expanduser("~")  # noqa: PTH111  text, as git expands it
    named = os.environ.get("GIT_SSL_CAINFO", "")
    for file in (f"{home}/.config/git/config", f"{home}/.gitconfig"):
        for key, value in parse_git_config(read_text(file)):
            place = key.removeprefix("http.").removesuffix(".sslcainfo")
            is_for_address = key == "http.sslcainfo" or (
                key.startswith("http.https://") and address.url.startswith(place)
            )
            if key.endswith(".sslcainfo") and is_for_address:
                named = named or value
    if not named:
        return None
    path = f"{home}/{named[2:]}" if named.startswith("~/") else named
    try:
        return trust_path(
            path,
            Origin.PERSON,
            git.sandbox.policy.command_writable,
            reason="`http.sslCAInfo` of the person's git settings",
        )
    except UntrustedPath as error:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"no remote was reached: the authorities that git's `http.sslCAInfo` names: {error}",
        ) from error


@asynccontextmanager
async def _open_network(
    git: GitRunner, address: Address, name: str, authorities: TrustedPath | None
) -> AsyncGenerator[None]:
    """Open the host of an address, and a file of authorities, for the git that is run meanwhile."""
    sandbox = git.sandbox
    if address.protocol == "file" or sandbox is None:
        yield
        return
    openings: list[Opening] = []
    if authorities is not None and not sandbox.sees(str(authorities)):
        openings.append(Opening("read", str(authorities)))
    if not _is_open(sandbox, address):
        openings.append(Opening("network", address.authority))
    if not openings:
        yield
        return
    if isinstance(git.context.resources.get(Sandbox), Sandbox):
        targets = " and ".join(opening.target for opening in openings)
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"the remote `{name}` was not reached: the sandbox of this run does not open "
            f"{targets}; ask the person to add it to the run's `network` or `readable`, or to "
            "do it themselves",
        )
    session = SessionCommands.from_context(git.context).sandbox
    await git.close()  # what commands may do changes only while nothing runs
    async with session.open_once(openings) as opened:
        assert opened is sandbox
        yield


def _is_open(sandbox: Sandbox, address: Address) -> bool:
    hosts = sandbox.policy.network
    return bool(hosts) and not AllowedHosts.parse(hosts).refusal(address.host, address.port)


def _find_inside(workspace: Workspace, path: str, remote: Remote) -> str:
    """Return the real path of a repository of the workspace."""
    try:
        return str(open_subfolder(workspace, path).root)
    except ToolFailed as failure:
        raise ToolFailed(
            failure.error_type,
            f"the remote `{make_printable(remote.name)}` was not reached: "
            f"{make_printable(path)[:200]!r} is not a folder of the workspace "
            "that tools may read; ask the person to do it",
        ) from None
