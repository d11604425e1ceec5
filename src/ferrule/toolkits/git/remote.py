"""Fetching from a remote: which addresses are reached, and how.

The address comes from the repository's real configuration, read as data; a model only names the
remote. Three kinds are followed:

    https     by git's own helper; no credential helper and no password prompt, only what the
              address contains
    ssh       by the `ssh` of the PATH, without anybody's ssh settings, in batch mode
    file      a repository inside the workspace; what runs on its side sees a shadow of it too
              (`readable_repository`)

All else is refused: `ext::` and other helpers, `http:` and `git:` (nobody vouches for what
arrives), paths outside of the workspace. If the run has a sandbox, its list of hosts applies here
as well. Refs are written only below `refs/remotes/NAME/`, whatever the configuration says.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.network.allowed_hosts import AllowedHosts
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands.start import find_command_writable
from ferrule.toolkits.process import find_installed
from ferrule.toolkits.subfolder import open_subfolder
from ferrule.tools.context import Context

from .file_access import extend_for_reading, extend_for_ssh, extend_for_web
from .readable_repository import open_bare_shadow
from .run import GitRunner
from .settings import Remote, find_remotes, make_printable, parse_settings
from .writable_repository import Workbench, format_section

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]"
_WEB = re.compile(
    rf"https://(?:[^/@\s]*@)?(?P<host>{_HOST})(?::(?P<port>\d{{1,5}}))?/(?P<path>[^\s\\]*)",
    re.IGNORECASE,
)
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SSH = re.compile(
    rf"ssh://(?:(?P<user>{_USER})@)?(?P<host>{_HOST})(?::(?P<port>\d{{1,5}}))?/(?P<path>[^\s\\]*)",
    re.IGNORECASE,
)
_SHORT_SSH = re.compile(
    rf"(?:(?P<user>{_USER})@)?(?P<host>{_HOST}):(?P<path>[A-Za-z0-9_./~][^\s\\:]*)"
)
_PROXIES = (
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


@frozen
class Address:
    """An address that may be followed.

    `protocol` is `https`, `ssh` or `file`; a `file` has no host.
    """

    protocol: str
    url: str
    host: str = ""
    port: int = 0


def read_address(remote: Remote) -> Address:
    """Read the address of a remote. Pure.

    Raises:
        ToolFailed: `permission_denied` for an address that is not followed.
    """
    address = _read_url(remote.url) if remote.url and remote.url.isprintable() else None
    if address is not None:
        return address
    raise ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"the remote `{make_printable(remote.name)}` was not reached: its address "
        f"{remote.shown_url[:200]!r} is none of `https://`, "
        "`ssh://` and a folder of the workspace; ask the person to fetch from it",
    )


def _read_url(url: str) -> Address | None:
    web = _WEB.fullmatch(url)
    if web:
        return Address("https", url, web["host"], int(web["port"] or 443))
    ssh = _SSH.fullmatch(url)
    if ssh:
        return Address("ssh", url, ssh["host"], int(ssh["port"] or 22))
    if "::" in url:
        return None
    if url.lower().startswith("file://"):
        return Address("file", url[len("file://") :])
    if "://" in url:
        return None
    short = _SHORT_SSH.fullmatch(url)
    if short and not url.startswith(("/", "./", "../")):
        return Address("ssh", url, short["host"], 22)
    if ":" not in url and not url.startswith(("-", "~")):
        return Address("file", url)
    return None


async def find_remote(git: GitRunner, workbench: Workbench, name: str) -> Remote:
    """Return the remote of this name in the real configuration.

    Raises:
        ToolFailed: There is none; the message names those that exist.
    """
    found = find_remotes(await parse_settings(git, workbench.read_config()))
    for remote in found:
        if remote.name == name:
            return remote
    known = ", ".join(f"`{make_printable(remote.name)}`" for remote in found) or "none"
    raise ToolFailed(ErrorType.NOT_FOUND, f"there is no remote `{name}`; there are: {known}")


def check_network(context: Context, address: Address, name: str) -> None:
    """Raise ToolFailed if the sandbox of this run does not open the host of an address."""
    if address.protocol == "file":
        return
    sandbox = context.resources.get(Sandbox)
    policy = sandbox.policy if isinstance(sandbox, Sandbox) else None
    if policy is None:
        return
    refusal = "it opens no network"
    if policy.network:
        refusal = AllowedHosts.parse(policy.network).refusal(address.host, address.port)
    if refusal:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"the remote `{name}` was not reached: the sandbox of this run does not open "
            f"{address.host}:{address.port} ({refusal}); "
            "ask the person to add the host to the run's `network`, or to fetch themselves",
        )


@contextmanager
def allow_fetching(
    git: GitRunner, workbench: Workbench, context: Context, remote: Remote
) -> Generator[None]:
    """Let git fetch from this remote, and from nothing else, inside a `with` block."""
    address = read_address(remote)
    check_network(context, address, remote.name)
    with ExitStack() as stack:
        url = address.url
        environment = dict(git.environment)
        if address.protocol == "file":
            workspace = context.resource(Workspace)
            folder = stack.enter_context(_shadow_inside(workspace, address.url, remote))
            url = f"file://{folder}"
            wall = extend_for_reading(git.wall, folder)
        elif address.protocol == "ssh":
            program = find_installed(
                ["ssh"], find_command_writable(context), "`apt install openssh-client`"
            )
            environment.update(_ssh_environment(program))
            wall = extend_for_ssh(git.wall, program)
        else:
            environment.update({key: os.environ[key] for key in _PROXIES if key in os.environ})
            wall = extend_for_web(git.wall, environment)
        environment["GIT_ALLOW_PROTOCOL"] = address.protocol
        workbench.configure(format_section(f'remote "{remote.name}"', {"url": url}))
        outer_environment = git.environment
        outer_wall = git.wall
        git.environment = environment
        git.wall = wall
        try:
            yield
        finally:
            git.environment = outer_environment
            git.wall = outer_wall


@contextmanager
def _shadow_inside(workspace: Workspace, path: str, remote: Remote) -> Generator[Path]:
    """Yield a shadow of a repository of the workspace."""
    try:
        inner = open_subfolder(workspace, path)
    except ToolFailed as failure:
        raise ToolFailed(
            failure.error_type,
            f"the remote `{make_printable(remote.name)}` was not reached: "
            f"{make_printable(path)[:200]!r} is not a folder of the workspace "
            "that tools may read; ask the person to fetch from it",
        ) from None
    with open_bare_shadow(inner) as folder:
        yield folder


def _ssh_environment(program: str) -> dict[str, str]:
    """Return the environment of a git that uses SSH."""
    command = [program, "-F", "none"]
    for option in _SSH_OPTIONS:
        command += ["-o", option]
    given = {name: os.environ[name] for name in ("HOME", "SSH_AUTH_SOCK") if name in os.environ}
    return {**given, "GIT_SSH_COMMAND": shlex.join(command), "GIT_SSH_VARIANT": "ssh"}


_SSH_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ProxyCommand=none",
    "PermitLocalCommand=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
)
