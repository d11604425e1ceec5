"""`ferrule models`: which models can be used here, what one can do, and getting the embedded
one.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ferrule.models.client import Capabilities


@click.group()
def models() -> None:
    """List, probe and pull models."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_models(as_json: bool) -> None:
    """Providers that can be reached from here, and their models."""
    import asyncio
    from dataclasses import asdict

    from ferrule.runtime.model_discovery import discovered

    from .terminal import visible

    rows = asyncio.run(discovered())
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        click.echo(visible(f"{'✓' if row.ready else '·'} {row.model:24} {row.detail}".rstrip()))


@models.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def probe(model: str, as_json: bool) -> None:
    """What MODEL can do (yes, no, unknown), who said so, and how tools would be called.

    Where its server does not say whether it calls tools, it is asked to call one: a small request.
    """
    import asyncio
    from dataclasses import asdict

    found, way = asyncio.run(_asked(model))
    if as_json:
        click.echo(json.dumps({"model": model, "way": way, **asdict(found)}, indent=2))
        return
    said = {True: "yes", False: "no", None: "unknown"}
    for name in ("tools", "structured", "thinking"):
        click.echo(f"{name:12} {said[getattr(found, name)]}")
    click.echo(f"{'context':12} {found.context or 'unknown'}")
    click.echo(f"{'source':12} {found.source}")
    click.echo(f"{'way':12} {way}")


async def _asked(model: str) -> tuple[Capabilities, str]:
    from ferrule.models.tool_modes.live_probe import probed
    from ferrule.models.tool_modes.selection import choose
    from ferrule.runtime.assemble import wire_of
    from ferrule.storage.settings.settings import load_settings

    wire = wire_of(load_settings(), model)
    found = await probed(wire)
    if not model.startswith("scripted:"):
        # A script that nobody asked would complain about its unused steps.
        await wire.close()
    return found, choose(found)


@models.command()
@click.argument("name", default="smollm2")
def pull(name: str) -> None:
    """Get the embedded model (92 MB, once); checked by hash, resumed where it stopped."""
    from ferrule.core.errors import ProviderError
    from ferrule.models.local.pull import installed, known, pull

    model = known(name)
    try:
        click.echo(f"{name} is here: {installed(model)}", err=True)
        return
    except ProviderError as missing:
        if missing.code != "model_missing":
            click.echo(f"{missing.detail}; getting it again", err=True)
    with click.progressbar(length=100, label=f"pulling {name}", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.update(max(0, int(done * 100 / total) - bar.pos) if total else 0)

        where = pull(model, progress)
    click.echo(f"{name} is here: {where}", err=True)
