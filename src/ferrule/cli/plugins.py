"""`ferrule plugins`: the plugins, what they bring and whether they are on here."""

from __future__ import annotations

from typing import Any

import click

from ferrule.cli.rows import print_row
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage.plugins.manifests import Manifest
from ferrule.storage.settings.settings import Settings, load_settings

from .terminal import encode_json, escape_invisible

with lazy_imports():
    from ferrule.runtime import chosen_plugins


@click.command()
@click.option(
    "-C",
    "--workspace",
    type=click.Path(file_okay=False),
    help="Folder whose settings apply (default: this one).",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def plugins(workspace: str | None, as_json: bool) -> int:
    """List plugins in the order in which they are set up, and where installed ones are from.

    Nothing of them is imported. One whose manifest is invalid is `bad`: no run goes on with it.
    """
    settings = load_settings(workspace=workspace)

    manifests = chosen_plugins.list_manifests(settings)
    rows = [_describe(manifest, settings) for manifest in manifests]
    for text in chosen_plugins.list_withheld(settings):
        click.echo(escape_invisible(text), err=True)
    for manifest in manifests:
        for problem in manifest.problems:
            click.echo(escape_invisible(f"{manifest.file}: {problem}"), err=True)
    if as_json:
        click.echo(encode_json(rows, indent=2))
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        state = "on" if row["on"] else "off"
        if row["on"] and row["problems"]:
            state = "bad"
        origin = "" if row["origin"] == "default" else f" [{row['origin']}]"
        source = f" ({row['distribution']} {row['version']})" if row["distribution"] else ""
        print_row(f"{row['name']:{width}}  {state:3}  ", f"{row['help']}{source}{origin}")
    return 0


def _describe(manifest: Manifest, settings: Settings) -> dict[str, Any]:
    prefix = f"plugins.{manifest.name}"
    fields = {
        name: settings.values.get(f"{prefix}.{name}", row.get("default"))
        for name, row in manifest.settings.items()
    }
    keys = [prefix, *(f"{prefix}.{name}" for name in fields)]
    origins = [str(settings.origin(key)) for key in keys]
    given = [origin for origin in origins if origin != "default"]
    return {
        "name": manifest.name,
        "on": chosen_plugins.is_on(manifest, settings),
        "origin": given[0] if given else "default",
        "help": manifest.help,
        "distribution": manifest.distribution,
        "version": manifest.version,
        "problems": list(manifest.problems),
        "fields": fields,
        "tools": list(manifest.tools),
    }
