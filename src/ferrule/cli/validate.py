"""`ferrule validate`: check the configuration of a folder before anybody trusts it."""

from __future__ import annotations

import click

from ferrule.core.errors import ConfigError
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage import paths
from ferrule.storage.settings.settings import USER_FILE_NAME, load_settings
from ferrule.storage.trust import TrustStore

from .terminal import encode_json as encode_json
from .validation_report import SCHEMA, print_report

with lazy_imports():
    from ferrule.connectors.a2a import configuration as a2a_configuration
    from ferrule.connectors.http import loading
    from ferrule.connectors.mcp import configuration as mcp_configuration
    from ferrule.extensions.checks import tool_file, workspace
    from ferrule.runtime import tool_profiles


@click.command()
@click.option(
    "-C",
    "--workspace",
    "folder",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    help="Folder to check (default: this one).",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.option("--schema", is_flag=True, help="Only print the JSON Schema of what --json prints.")
def validate(folder: str, as_json: bool, strict: bool, schema: bool) -> int:
    """Check all settings, rules, tools, hooks and servers of a folder.

    Nothing is run and nothing takes effect; the folder need not be trusted. Exit code 1 if
    something is wrong.
    """
    import asyncio

    if schema:
        click.echo(encode_json(SCHEMA, indent=2))
        return 0

    checked = asyncio.run(
        workspace.check_workspace(folder, shipped=tool_profiles.list_known_names())
    )
    checked.problems += _check_http_manifests(folder)
    checked.problems += _check_mcp_servers(folder)
    checked.problems += _check_own_servers(folder)
    checked.problems.sort(key=lambda one: (one.file, one.line, one.column))
    return print_report(checked.files, checked.problems, as_json=as_json, strict=strict)


def _check_mcp_servers(folder: str) -> list[tool_file.Problem]:
    """Check the servers of `.mcp.json`, which `extensions` does not know."""
    loaded = mcp_configuration.load_servers(TrustStore().read(folder), as_trusted=True)
    return [
        tool_file.make_problem(
            mcp_configuration.REPOSITORY_FILE,
            problem.removeprefix(f"{mcp_configuration.REPOSITORY_FILE}: ").replace(
                "; hint: ", "; "
            ),
        )
        for problem in loaded.problems
    ]


def _check_own_servers(folder: str) -> list[tool_file.Problem]:
    """Check the servers and agents in the person's own settings and `mcp.json`.

    What would end a run is an error; an entry that would be left out, a warning.
    """
    try:
        settings = load_settings(workspace=folder)
    except ConfigError:
        return []  # check_workspace reports settings that cannot be read.
    servers = mcp_configuration.load_servers(
        None, paths.config(), settings.values.get("mcp_servers")
    )
    peers = a2a_configuration.load_peers(settings.values.get("a2a_peers"))
    own_file = str(paths.config() / USER_FILE_NAME)
    problems: list[tool_file.Problem] = []
    for problem in (*servers.problems, *peers.problems):
        file, _, message = problem.partition(": ")
        ends_run = problem in (*servers.policy_errors, *peers.policy_errors)
        if file in ("mcp_servers", "a2a_peers"):
            file, message = own_file, problem
        level = "error" if ends_run else "warning"
        problems.append(
            tool_file.make_problem(file, message.replace("; hint: ", "; "), level=level)
        )
    return problems


def _check_http_manifests(folder: str) -> list[tool_file.Problem]:
    """Check the manifests of HTTP tools, which `extensions` does not know."""
    snapshot = TrustStore().read(folder)
    if not any("/http/" in name for name in snapshot.files):
        return []
    try:
        hosts = load_settings(workspace=folder)["tools.http_hosts"]
    except ConfigError:
        hosts = ()  # check_workspace reports settings that cannot be read.
    problems: list[tool_file.Problem] = []
    for name, error in loading.check_repository_manifests(snapshot, hosts):
        problems += tool_file.convert_error(error, name)
    return problems
