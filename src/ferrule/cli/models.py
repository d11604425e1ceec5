"""`ferrule models`: list the models that can be used here, probe one, download the embedded one."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ferrule.core.errors import ProviderError
from ferrule.storage.settings.settings import load_settings

from .terminal import escape_invisible

if TYPE_CHECKING:
    from ferrule.models.client import Capabilities
    from ferrule.storage.settings.settings import Settings


@click.group()
def models() -> None:
    """List, probe and pull models."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_models(as_json: bool) -> None:
    """List every provider, what is configured of it, and the models that can be used."""
    import asyncio

    from ferrule.runtime.model_discovery import discover_models

    settings = load_settings()
    rows = asyncio.run(discover_models(settings))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    click.echo(_describe_model_in_use(settings), err=True)
    width = max(len(row.model) for row in rows)
    for row in sorted(rows, key=lambda row: not row.ready):
        mark = "✓" if row.ready else "·"
        words = "; ".join(text for text in (row.address, row.detail, row.remark) if text)
        click.echo(escape_invisible(f"{mark} {row.model:{width}} {words}".rstrip()))


def _describe_model_in_use(settings: Settings) -> str:
    if not settings.model:
        return "no model is set; `ferrule setup` chooses one"
    return escape_invisible(f"in use: {settings.model}, from {settings.origin('model')}")


@models.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def probe(model: str, as_json: bool) -> None:
    """Show what MODEL supports (yes, no, unknown), the source, and the tool mode it would use.

    If its server does not say whether the model calls tools, a small test request is sent.
    """
    import asyncio

    from ferrule.models.tool_modes.selection import explain_tool_mode

    capabilities, tool_mode = asyncio.run(_probe_model(model))
    if as_json:
        # `way` is the name of the tool mode in this format.
        why = explain_tool_mode(capabilities)
        content = {"model": model, "tool_mode": tool_mode, "why": why, **asdict(capabilities)}
        click.echo(json.dumps(content, indent=2))
        return
    answers = {True: "yes", False: "no", None: "unknown"}
    for name in ("tools", "structured", "thinking"):
        click.echo(f"{name:12} {answers[getattr(capabilities, name)]}")
    click.echo(f"{'context':12} {capabilities.context or 'unknown'}")
    click.echo(f"{'source':12} {capabilities.source}")
    click.echo(f"{'tool mode':12} {tool_mode}")
    click.echo(f"{'why':12} {explain_tool_mode(capabilities)}")


async def _probe_model(model: str) -> tuple[Capabilities, str]:
    from ferrule.models.tool_modes.live_probe import probe_capabilities
    from ferrule.models.tool_modes.selection import choose_tool_mode
    from ferrule.runtime.model_clients import create_client

    client = create_client(load_settings(), model)
    capabilities = await probe_capabilities(client)
    if not model.startswith("scripted:"):
        # Closing a script that was never run would complain about its unused steps.
        await client.close()
    return capabilities, choose_tool_mode(capabilities)


@models.command()
@click.argument("name", default="smollm2")
def pull(name: str) -> None:
    """Download the embedded model (92 MB, once); checked by hash, resumed where it stopped."""
    from ferrule.models.local.pull import find_model, installed_path, pull

    model = find_model(name)
    try:
        click.echo(f"{name} is installed: {installed_path(model)}", err=True)
        return
    except ProviderError as missing:
        if missing.code != "model_missing":
            click.echo(f"{missing.detail}; downloading it again", err=True)
    with click.progressbar(length=100, label=f"downloading {name}", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            percent = int(done * 100 / total) if total else bar.pos
            bar.update(max(0, percent - bar.pos))

        file = pull(model, progress)
    click.echo(f"{name} is installed: {file}", err=True)
