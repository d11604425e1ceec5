"""`ferrule mcp`: which servers there are, what they offer, and whether they may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .confirmation import agreed

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ferrule.connectors.mcp import McpServer
    from ferrule.connectors.mcp.definitions import Manifest
    from ferrule.storage.settings.settings import Settings

T = TypeVar("T")


@click.group()
def mcp() -> None:
    """List MCP servers, look at what they offer, approve them, sign in to them."""


_workspace = click.option(
    "-C",
    "--workspace",
    type=click.Path(file_okay=False),
    help="Folder to look in (default: this one).",
)


@mcp.command("list")
@_workspace
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_servers(workspace: str | None, as_json: bool) -> None:
    """One line per server: name, whose it is, whether it is approved, how it is reached. Nothing is
    started.
    """
    from ferrule.connectors.mcp import Approvals
    from ferrule.runtime.mcp_servers import load

    settings = _settings(workspace)
    loaded, book = load(settings), Approvals()
    rows = [_row(server, book.look(server).state) for server in loaded.servers]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        _say(f"{row['name']:{width}}  {row['origin']:10}  {row['state']:8}  {row['reached']}")
    _warn(loaded.problems, bool(rows))


def _row(server: McpServer, state: str) -> dict[str, Any]:
    reached = server.url or " ".join(server.command)
    return {"name": server.name, "origin": server.origin, "state": state, "reached": reached}


@mcp.command()
@click.argument("name")
@_workspace
def show(name: str, workspace: str | None) -> None:
    """What was approved of a server, and what changed since. Nothing is started."""
    from ferrule.connectors.mcp import Approvals
    from ferrule.connectors.mcp.approvals import covered_text

    server = _find(_settings(workspace), name)
    seen = Approvals().look(server)
    _say(f"{server.name}: {seen.state}\n{covered_text(server)}")
    if seen.manifest is not None:
        _say(seen.manifest.text())
    if seen.pending is not None:
        _say(Approvals().diff(server, seen.pending))


@mcp.command()
@click.argument("name")
@_workspace
@click.option("--yes", is_flag=True, help="Approve without asking.")
def approve(name: str, workspace: str | None, yes: bool) -> int:
    """Look at a server's command, start it, look at its tools, and let them be used.

    What was approved before is compared with what is there now. Any later change holds back what
    changed.
    """
    from ferrule.connectors.mcp import Approvals

    settings, book = _settings(workspace), Approvals()
    server = _find(settings, name)
    if book.look(server).state in ("unknown", "moved"):
        _say(book.diff(server), err=True)
        if (code := agreed(f"start `{name}` to see what it offers?", yes)) != 0:
            return code
        book.approve(server)
    manifest = _run(_listed(settings, server))
    seen = book.look(server)
    if seen.manifest is not None and seen.manifest.digest() == manifest.digest():
        book.pend(server, None)
        click.echo(f"`{name}` is approved, and nothing changed", err=True)
        return 0
    _say(book.diff(server, manifest), err=True)
    if (code := agreed(f"let models use these tools of `{name}`?", yes)) != 0:
        return code
    book.approve(server, manifest)
    click.echo(f"approved `{name}`: {len(manifest.tools)} tools", err=True)
    return 0


@mcp.command()
@click.argument("name")
@_workspace
def revoke(name: str, workspace: str | None) -> None:
    """Approve a server no more."""
    from ferrule.connectors.mcp import Approvals

    done = Approvals().revoke(_find(_settings(workspace), name))
    click.echo(f"`{name}` {'is no longer approved' if done else 'was not approved'}", err=True)


@mcp.command()
@click.argument("name")
@_workspace
def test(name: str, workspace: str | None) -> int:
    """Start an approved server and say what it speaks and offers. No tool is called."""
    from ferrule.connectors.mcp import Approvals

    settings = _settings(workspace)
    server = _find(settings, name)
    state = Approvals().look(server).state
    if state in ("unknown", "moved"):
        click.echo(
            f"`{name}` was not started: it is not approved\nhint: `ferrule mcp approve {name}`",
            err=True,
        )
        return 4
    manifest = _run(_listed(settings, server))
    _say(f"{name}: speaks {manifest.era}; {len(manifest.tools)} tools")
    for one in manifest.tools:
        _say(f"  {one.name}  {one.description.splitlines()[0][:100]}")
    return 0


@mcp.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", default="", help="The address of a server that is reached over HTTP.")
@click.option(
    "--env", multiple=True, help="NAME=value for its environment; the value may be `${VARIABLE}`."
)
@click.option(
    "--header", multiple=True, help="Name=value for its requests; the value may be `${VARIABLE}`."
)
@click.option("--network", multiple=True, help="A host that a started server may reach.")
@click.option("--readable", multiple=True, help="A folder that a started server may read.")
def add(
    name: str,
    command: tuple[str, ...],
    url: str,
    env: tuple[str, ...],
    header: tuple[str, ...],
    network: tuple[str, ...],
    readable: tuple[str, ...],
) -> None:
    """Write a server into your own `mcp.json`: `ferrule mcp add git -- mcp-server-git --repository
    .`
    """
    from ferrule.connectors.mcp.configuration import OWN_FILE, read_server
    from ferrule.core.errors import ConfigError
    from ferrule.storage import paths

    entry: dict[str, Any] = (
        {"type": "http", "url": url} if url else {"command": command[0] if command else ""}
    )
    if len(command) > 1:
        entry["args"] = list(command[1:])
    for key, pairs in (("env", env), ("headers", header)):
        if pairs:
            entry[key] = dict(_pair(pair) for pair in pairs)
    for key, names in (("network", network), ("readable", readable)):
        if names:
            entry[key] = list(names)
    read_server(name, entry, f"`{name}`")
    file = paths.config() / OWN_FILE
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if name in content.setdefault("mcpServers", {}):
        raise ConfigError(
            f"`{file}` has a server `{name}` already", hint="choose another name, or edit the file"
        )
    content["mcpServers"][name] = entry
    paths.write_private(file, json.dumps(content, indent=2) + "\n")
    click.echo(
        f"wrote `{name}` into {file}\nhint: `ferrule mcp approve {name}` lets models use it",
        err=True,
    )


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.UsageError(f"`{text}` is not NAME=value")
    return name, value


@mcp.command()
@click.argument("name")
@_workspace
@click.option("--out", is_flag=True, help="Forget the tokens of this server instead.")
def login(name: str, workspace: str | None, out: bool) -> int:
    """Sign in to a server that asks for it, in your browser."""
    from ferrule.connectors.mcp.oauth import FileTokens
    from ferrule.connectors.mcp.spec import fill

    server = _find(_settings(workspace), name)
    filled = fill(server)
    if server.oauth is None:
        click.echo(
            f'`{name}` does not sign in\nhint: write `"oauth": true` into its entry', err=True
        )
        return 2
    if out:
        done = FileTokens(server, filled.url).forget()
        click.echo(f"{'signed out of' if done else 'was not signed in to'} `{name}`", err=True)
        return 0
    _run(_sign_in(server, filled))
    click.echo(f"signed in to `{name}`", err=True)
    return 0


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Help must not load an event loop: it is loaded here."""
    import asyncio

    return asyncio.run(work)


async def _sign_in(server: McpServer, filled: Any) -> None:
    from ferrule.connectors.mcp.oauth import sign_in
    from ferrule.connectors.mcp.server import say_hello

    async def browse(url: str) -> None:
        _say(f"open this address to sign in:\n{url}", err=True)
        click.launch(url)

    await sign_in(server, filled, browse, lambda auth: say_hello(server, filled, auth))


async def _listed(settings: Settings, server: McpServer) -> Manifest:
    from ferrule.runtime.mcp_servers import listed

    manifest = await listed(settings, server)
    _warn(manifest.left_out, True)
    return manifest


def _settings(workspace: str | None) -> Settings:
    from ferrule.storage.settings.settings import load_settings

    settings = load_settings(workspace=str(Path(workspace).absolute()) if workspace else None)
    _warn(settings.notices, True)
    return settings


def _find(settings: Settings, name: str) -> McpServer:
    from difflib import get_close_matches

    from ferrule.runtime.mcp_servers import load

    loaded = load(settings)
    found = next((server for server in loaded.servers if server.name == name), None)
    if found is None:
        near = get_close_matches(name, [server.name for server in loaded.servers], 2, 0.5)
        meant = f"; did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else ""
        raise click.UsageError(f"there is no server `{name}`{meant}")
    return found


def _say(text: str, *, err: bool = False) -> None:
    from .terminal import visible

    click.echo(visible(text), err=err)


def _warn(problems: tuple[str, ...], some: bool) -> None:
    for one in problems:
        _say(f"! {one}", err=True)
    if not some:
        click.echo(
            "there are no servers\nhint: docs/mcp.md says where they are looked for", err=True
        )
