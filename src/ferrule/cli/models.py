"""`ferrule models`: list the models that can be used here, probe one, pull one to this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ferrule.cli.rows import print_row
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage.settings.settings import load_settings

from .download_progress import show_progress
from .terminal import escape_invisible

with lazy_imports():
    from ferrule.models import registry
    from ferrule.models.tool_modes import live_probe, selection
    from ferrule.runtime import chosen_providers, model_clients, model_discovery

if TYPE_CHECKING:
    from ferrule.models.client import Capabilities
    from ferrule.storage.settings.settings import Settings


@click.group(cls=CommandGroup)
def models() -> None:
    """List, probe and pull models.

    \b
    Examples:
      ferrule models list
      ferrule models pull smollm2
      ferrule models probe ollama:llama3.2
    """  # noqa: D301  click reads the mark


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_models(as_json: bool) -> None:
    """List all providers with their configuration, and the models that can be used."""
    import asyncio

    settings = load_settings()
    rows = asyncio.run(model_discovery.discover_models(settings))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    click.echo(_describe_model_in_use(settings), err=True)
    width = max(len(row.model) for row in rows)
    for row in sorted(rows, key=lambda row: not row.ready):
        mark = "✓" if row.ready else "·"
        words = "; ".join(text for text in (row.address, row.detail, row.remark) if text)
        print_row(f"{mark} {row.model:{width}} ", words)


def _describe_model_in_use(settings: Settings) -> str:
    if not settings.model:
        return "no model is set; `ferrule setup` chooses one"
    return escape_invisible(f"in use: {settings.model}, from {settings.origin('model')}")


@models.command()
@click.argument("model", default="")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def probe(model: str, as_json: bool) -> None:
    """Show what MODEL supports (yes, no, unknown), the source, and the tool mode it would use.

    Without MODEL, this is the model that the settings name. If its server does not say whether the
    model calls tools, a small test request is sent.
    """
    import asyncio

    model = model or load_settings().model
    if not model:
        raise click.UsageError("no model is set; name one, or choose one with `ferrule setup`")
    capabilities, tool_mode = asyncio.run(_probe_model(model))
    if as_json:
        # `way` is the name of the tool mode in this format.
        why = selection.explain_tool_mode(capabilities)
        content = {"model": model, "tool_mode": tool_mode, "why": why, **asdict(capabilities)}
        click.echo(json.dumps(content, indent=2))
        return
    answers = {True: "yes", False: "no", None: "unknown"}
    for name in ("tools", "structured", "thinking"):
        click.echo(f"{name:12} {answers[getattr(capabilities, name)]}")
    click.echo(f"{'context':12} {capabilities.context or 'unknown'}")
    click.echo(f"{'source':12} {capabilities.source}")
    click.echo(f"{'tool mode':12} {tool_mode}")
    click.echo(f"{'why':12} {selection.explain_tool_mode(capabilities)}")


async def _probe_model(model: str) -> tuple[Capabilities, str]:
    client = model_clients.create_client(load_settings(), model)
    capabilities = await live_probe.probe_capabilities(client)
    if not model.startswith("scripted:"):
        # Closing a script that was never run would complain about its unused steps.
        await client.close()
    return capabilities, selection.choose_tool_mode(capabilities)


@models.command()
@click.argument("source", default="", metavar="[NAME|URL|PATH]")
@click.option("--name", default="", help="Name in `local:NAME`; default: that of the file.")
@click.option(
    "--hash", "sha256", default="", metavar="HEX", help="SHA-256 that the file must have."
)
def pull(source: str, name: str, sha256: str) -> None:
    """Get a model for `local:NAME`, once: checked by hash, resumed where it stopped.

    NAME is a model that `ferrule models list` shows (default: smollm2, 92 MB). The file of a URL
    is downloaded, the one at a PATH stays where it is; both are recorded with their hash, and
    refused later if their bytes were changed.
    """
    rows = chosen_providers.choose_providers(load_settings())
    row = next((one for one in rows.values() if one.fetch_model), None)
    if row is None:
        raise registry.build_provider_error("local")
    fetch: registry.FetchModel = registry.import_object(row.fetch_model)
    fetch(
        source or row.example.partition(":")[2],
        name=name,
        sha256=sha256,
        tell=lambda text: click.echo(text, err=True),
        show_progress=show_progress,
    )
