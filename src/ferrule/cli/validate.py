"""`ferrule validate`: everything that a folder brings, checked before anybody trusts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ferrule.extensions.checks.tool_file import Problem


@click.command()
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.option("--schema", is_flag=True, help="Only print the JSON Schema of what --json prints.")
def validate(folder: str, as_json: bool, strict: bool, schema: bool) -> int:
    """Check the settings, rules, tools, hooks and servers that FOLDER carries, all at once.

    Nothing is run and nothing takes effect; trust is not needed and not given. Exit code 1 if
    something is wrong.
    """
    import asyncio

    from .problem_report import SCHEMA, report
    from .terminal import as_json as encoded

    if schema:
        click.echo(encoded(SCHEMA, indent=2))
        return 0
    from ferrule.extensions.checks.workspace import check_workspace
    from ferrule.runtime.shipped_tools import brought_by_runs, shipped

    names = [*(tool.full_name for tool in shipped()), *brought_by_runs()]
    checked = asyncio.run(check_workspace(folder, shipped=names))
    checked.problems += _http(folder)
    checked.problems.sort(key=lambda one: (one.file, one.line, one.column))
    return report(checked.files, checked.problems, as_json=as_json, strict=strict)


def _http(folder: str) -> list[Problem]:
    """What is wrong with the manifests of HTTP tools, which `extend` does not know."""
    from ferrule.connectors.http import check_files
    from ferrule.core.errors import ConfigError
    from ferrule.extensions.checks.tool_file import problems_of
    from ferrule.storage.settings.settings import load_settings
    from ferrule.storage.trust import Trust

    seen = Trust().look(folder)
    if not any("/http/" in name for name in seen.files):
        return []
    try:
        hosts = load_settings(workspace=folder)["tools.http_hosts"]
    except ConfigError:
        hosts = ()  # Settings that cannot be read are reported as what they are.
    return [one for name, error in check_files(seen, hosts) for one in problems_of(error, name)]
