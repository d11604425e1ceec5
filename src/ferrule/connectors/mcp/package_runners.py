"""What programs that fetch and run a package need: `npx -y …`, `uvx …` and their like.

They download into a cache and need their registry. A server that is started by one gets a cache of
its own, which outlives it, so that only its first start downloads, and may reach the registry; both
are shown where it is approved. `docker run` starts a container, which confines the server in place
of the sandbox.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.core.web_addresses import split_web_address
from ferrule.permissions.provenance import CommandWritable, ProgramNotFound, find_program
from ferrule.storage import paths

FIRST_START_SECONDS = 180.0
"""How long a start may take that may have to download."""

NPM_HOSTS = ("registry.npmjs.org",)
PYPI_HOSTS = ("pypi.org", "files.pythonhosted.org")
"""The usual registries, which the sandbox can only open by their names."""
_NPM = ("npx", "npm", "pnpm", "pnpx", "bunx", "bun", "yarn")
_PYPI = ("uvx", "uv", "pipx", "rye", "hatch")
_CONTAINERS = ("docker", "podman", "nerdctl")
_NPM_SETTINGS = {
    "npm_config_prefer_offline": "true",
    "npm_config_update_notifier": "false",
    "npm_config_fund": "false",
    "npm_config_audit": "false",
}
_REGISTRY_LINE = re.compile(r"^(?:@[\w.-]+:)?registry\s*=\s*(\S+)", re.M)
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE")
"""Variables that name the certificates by which a registry is believed."""
_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL")


@frozen
class RunnerNeeds:
    """What a server's command needs besides what its entry says.

    Attributes:
        hosts: Hosts that it may reach to download.
        variables: Variables that put its cache and its settings in place.
        cache: The folder of its own cache, "" if it needs none.
        options: Options before its own arguments, which keep it from running a program of the
            folder where it starts.
        is_container: Whether it runs in a container and not in the sandbox.
    """

    hosts: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    cache: str = ""
    options: tuple[str, ...] = ()
    is_container: bool = False


def find_runner_needs(name: str, command: tuple[str, ...]) -> RunnerNeeds:
    """Return what a server's command needs.

    Args:
        name: The server's name.
        command: Its words.
    """
    # A path may be a file of a repository, which only has the name of such a program.
    program = command[0] if command else ""
    if program in _CONTAINERS:
        return RunnerNeeds(is_container=True)
    if program not in _NPM and program not in _PYPI:
        return RunnerNeeds()
    digest = hashlib.sha256("\0".join(command).encode("utf-8", "replace")).hexdigest()[:12]
    cache = str(paths.cache() / "mcp" / f"{name}-{digest}")
    authorities = {one: os.environ[one] for one in _AUTHORITIES if os.environ.get(one)}
    if program in _NPM:
        registries = _npm_registries()
        variables = {
            **authorities,
            **_NPM_SETTINGS,
            "npm_config_cache": f"{cache}/npm",
            "BUN_INSTALL_CACHE_DIR": f"{cache}/bun",
        }
        if registries:
            variables["npm_config_registry"] = registries[0]
        if machine := _find_machine_npmrc():
            variables["npm_config_globalconfig"] = machine
        # Else npx runs what it finds in `node_modules` of the folder where it starts.
        options = (f"--prefix={cache}",) if program == "npx" else ()
        return RunnerNeeds(_hosts_of(registries) or NPM_HOSTS, variables, cache, options)
    variables = {
        **authorities,
        "UV_CACHE_DIR": f"{cache}/uv",
        "UV_TOOL_DIR": f"{cache}/tools",
        "UV_NO_PROGRESS": "1",
        # Else settings in the folder where it starts say where packages come from.
        "UV_NO_CONFIG": "1",
        "PIPX_HOME": f"{cache}/pipx",
        "PIP_CACHE_DIR": f"{cache}/pip",
    }
    indexes = [os.environ[one] for one in _INDEX_VARIABLES if os.environ.get(one)]
    variables |= {one: os.environ[one] for one in _INDEX_VARIABLES if os.environ.get(one)}
    return RunnerNeeds((*_hosts_of(indexes), *PYPI_HOSTS), variables, cache)


def _find_machine_npmrc() -> str:
    """Return the settings of npm for the whole machine; with `--prefix` it looks for others.

    They name a company's registry, proxy and certificates. Without them it is an empty text.
    """
    writable = CommandWritable.from_current_folder()
    try:
        node = find_program("node", os.environ.get("PATH", os.defpath), writable)
    except ProgramNotFound:
        return ""
    settings = Path(node.real).parent.parent / "etc/npmrc"
    return "" if writable.contains(str(settings)) or not settings.is_file() else str(settings)


def _npm_registries() -> list[str]:
    """Return the registries that the person's npm uses, if they are not the usual one."""
    named = _npm_setting("registry")
    found = [named] if named else []
    try:
        text = (Path.home() / ".npmrc").read_text("utf-8", "replace")
    except OSError:
        text = ""
    # Only these lines: the file may also hold tokens.
    found += [match for match in _REGISTRY_LINE.findall(text) if match.startswith("http")]
    return found


def _npm_setting(name: str) -> str:
    """Return what a variable of npm says; npm takes them in any case."""
    wanted = f"npm_config_{name}"
    return next((value for key, value in os.environ.items() if key.lower() == wanted), "")


def _hosts_of(urls: list[str]) -> tuple[str, ...]:
    found = [parts.hostname for url in urls if (parts := split_web_address(url)) is not None]
    return tuple(dict.fromkeys(host for host in found if host))
