"""`ferrule models`: which models can be used here, what one can do, and getting the embedded one."""

from __future__ import annotations

import json
import sys

import click


@click.group()
def models() -> None:
    """List, probe and pull models."""


@models.command("list")
def list_models() -> None:
    """Providers that can be reached from here, and their models."""
    import asyncio

    from .discover import discovered

    for line in asyncio.run(discovered()):
        click.echo(line)


@models.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def probe(model: str, as_json: bool) -> None:
    """What MODEL can do (yes, no, unknown), who said so, and how tools would be called."""
    import asyncio
    from dataclasses import asdict

    from ferrule.models.registry import resolve
    from ferrule.models.ways.ladder import choose

    async def ask() -> tuple[dict[str, object], str]:
        wire = resolve(model)
        try:
            found = await wire.capabilities()
            return asdict(found), choose(found)
        finally:
            await wire.close()

    found, way = asyncio.run(ask())
    if as_json:
        click.echo(json.dumps({"model": model, "way": way, **found}, indent=2))
        return
    said = {True: "yes", False: "no", None: "unknown"}
    for name in ("tools", "structured", "thinking"):
        click.echo(f"{name:12} {said[found[name]]}")  # type: ignore[index]
    click.echo(f"{'context':12} {found['context'] or 'unknown'}")
    click.echo(f"{'source':12} {found['source']}")
    click.echo(f"{'way':12} {way}")


@models.command()
@click.argument("name", default="smollm2")
def pull(name: str) -> None:
    """Get the embedded model (92 MB, once); checked by hash, resumed where it stopped."""
    from ferrule.models.pull import path, pull

    if path(name).exists():
        click.echo(f"{name} is here: {path(name)}", err=True)
        return
    with click.progressbar(length=100, label=f"pulling {name}", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.update(max(0, int(done * 100 / total) - bar.pos) if total else 0)

        where = pull(name, progress)
    click.echo(f"{name} is here: {where}", err=True)
