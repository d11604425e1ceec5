"""`ferrule mcp`: list, add, import and approve MCP servers, and sign in to them."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ferrule.cli.rows import print_row
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.similar_names import suggest_names
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage import paths
from ferrule.storage.settings.settings import load_settings
from ferrule.storage.settings.yaml_tree import parse_json

from .confirmation import confirm, show_pages
from .terminal import escape_invisible

with lazy_imports():
    from ferrule.connectors.mcp import (
        approval_text,
        configuration,
        configured_servers,
        oauth,
        other_programs,
        server_approvals,
        server_client,
        spec,
    )
    from ferrule.permissions import loaded_code, provenance
    from ferrule.runtime import sandbox_policy
    from ferrule.sandbox import trusted_process

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from ferrule.connectors.mcp.definitions import Manifest
    from ferrule.storage.settings.settings import Settings

T = TypeVar("T")
_SHOWN_TOOLS = 8
_SHOWN_CHARACTERS = 200
_NOT_STARTABLE = ("unknown", "moved")
"""Approval states of a server whose command must not be started."""
_STATE_WORDS: dict[str, str] = {
    "unknown": "not approved",
    "moved": "command changed",
    "command": "tools not listed yet",
    "changed": "tools changed",
    "approved": "approved",
}
"""What people read for an approval state."""


@click.group(cls=CommandGroup)
def mcp() -> None:
    """List MCP servers, show what they offer, approve them, sign in to them.

    \b
    Examples:
      ferrule mcp list
      ferrule mcp show github
      ferrule mcp approve github
    """  # noqa: D301  click reads the mark


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
    """List the servers: name, origin, approval state, address or command. Nothing is started."""
    loaded = configured_servers.load_configured_servers(_load_settings(workspace))
    approvals = server_approvals.ServerApprovals()
    rows = [_make_row(server, approvals.get(server).state) for server in loaded.servers]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        state = _STATE_WORDS[row["state"]]
        print_row(f"{row['name']:{width}}  {row['origin']:10}  {state:12}  ", row["reached"])
    _warn((*loaded.problems, *loaded.remarks))
    if not rows:
        click.echo(
            "no MCP servers configured\nhint: `ferrule mcp add`, or see docs/tools-from-servers.md",
            err=True,
        )


def _make_row(server: spec.McpServer, state: str) -> dict[str, Any]:
    reached = server.url or " ".join(server.command)
    return {"name": server.name, "origin": server.origin, "state": state, "reached": reached}


@mcp.command()
@click.argument("name")
@_workspace
@click.option("--json", "as_json", is_flag=True, help="Machine-readable: all definitions.")
def show(name: str, workspace: str | None, as_json: bool) -> None:
    """Show what was approved of a server, and what changed since. Nothing is started."""
    server = _find_server(_load_settings(workspace), name)
    approvals = server_approvals.ServerApprovals()
    approval = approvals.get(server)
    if as_json:
        approved = approval.manifest.to_json() if approval.manifest else None
        pending = approval.pending.to_json() if approval.pending else None
        facts = server.approval_facts()
        row = {"state": approval.state, "server": facts, "approved": approved, "pending": pending}
        click.echo(json.dumps(row, indent=2))
        return
    lines = [
        f"{server.name}: {approval.state}",
        *approval_text.describe_facts(server.approval_facts()),
    ]
    if approval.manifest is not None:
        lines += ["", *approval_text.describe_manifest(approval.manifest)]
    _print("\n".join(lines))
    if approval.pending is not None:
        _print(approvals.diff(server, approval.pending))


@mcp.command()
@click.argument("name", required=False)
@_workspace
@click.option("--yes", is_flag=True, help="Approve without asking.")
def approve(name: str | None, workspace: str | None, yes: bool) -> int:
    """Show what a server gets, start it, show its tools, and let models use them.

    Without NAME all servers that wait for approval are shown in one table and approved at once. The
    tools are compared with those approved before. A later change withholds the changed tools until
    they are approved too.
    """
    settings = _load_settings(workspace)
    if name is None:
        return _approve_all(settings, yes)
    return _approve_one(settings, _find_server(settings, name), yes)


def _approve_one(settings: Settings, server: spec.McpServer, yes: bool) -> int:
    approvals = server_approvals.ServerApprovals()
    name = server.name
    state = approvals.get(server).state
    if state in _NOT_STARTABLE:
        facts = approval_text.describe_facts(server.approval_facts())
        text = "\n".join([f"{name} would be started:", *facts])
        if state == "moved":
            changed = approvals.diff(server) or "only a value that is not shown"
            text += f"\n\nchanged since it was approved:\n{changed}"
        if not show_pages(text, yes):
            return 4
        code = confirm(f"start `{name}` to see what it offers?", yes)
        if code != 0:
            return code
        approvals.approve(server)
    manifest = _run(_list_tools(settings, server))
    approval = approvals.get(server)
    if approval.manifest is not None and approval.manifest.digest() == manifest.digest():
        approvals.set_pending(server, None)
        click.echo(f"`{name}` is already approved, and nothing changed", err=True)
        return 0
    heading = f"what `{name}` says about its tools, which models would read:"
    if approval.manifest is not None:
        heading = f"what changed since the tools of `{name}` were approved:"
    if not show_pages(f"{heading}\n{approvals.diff(server, manifest)}", yes):
        return 4
    code = confirm(f"let models use these tools of `{name}`?", yes)
    if code != 0:
        return code
    approvals.approve(server, manifest)
    click.echo(f"approved `{name}`: {len(manifest.tools)} tools", err=True)
    return 0


def _approve_all(settings: Settings, yes: bool) -> int:
    """Approve all servers that wait for it: one table, one question. Return the exit code."""
    loaded = configured_servers.load_configured_servers(settings)
    _warn((*loaded.problems, *loaded.remarks))
    approvals = server_approvals.ServerApprovals()
    waiting = [one for one in loaded.servers if approvals.get(one).manifest is None]
    if not waiting:
        click.echo("no MCP server waits for approval", err=True)
        return 0
    if not show_pages(_format_table(waiting), yes):
        return 4
    code = confirm(
        "start them, and let models use the tools that they offer?",
        yes,
        "no model gets them; `ferrule mcp approve` asks again",
    )
    if code != 0:
        return code
    failed = 0
    for server in waiting:
        approvals.approve(server)
        try:
            manifest = _run(_list_tools(settings, server))
        except ConfigError as error:
            _print(f"✗ {error.detail}", err=True)
            failed += 1
            continue
        approvals.approve(server, manifest)
        names = ", ".join(tool.name for tool in manifest.tools[:_SHOWN_TOOLS])
        more = ", …" if len(manifest.tools) > _SHOWN_TOOLS else ""
        _print(f"✓ {server.name}: {len(manifest.tools)} tools: {names}{more}", err=True)
    return 1 if failed else 0


def _format_table(servers: list[spec.McpServer]) -> str:
    """Return what each server would get, as a block of lines for each."""
    lines: list[str] = []
    for server in servers:
        lines.append(f"{server.name}:")
        facts = approval_text.describe_facts(server.approval_facts())
        lines += (f"    {fact}" for fact in facts)
    return "\n".join(lines)


@mcp.command("import")
@click.argument("sources", nargs=-1, metavar="[PROGRAM|FILE]...")
@_workspace
@click.option("--network", multiple=True, help="A host that they may reach. Repeatable.")
@click.option("--readable", multiple=True, help="A folder that they may read. Repeatable.")
@click.option("--writable", multiple=True, help="A folder that they may write. Repeatable.")
@click.option("--yes", is_flag=True, help="Approve without asking.")
def import_servers(
    sources: tuple[str, ...],
    workspace: str | None,
    network: tuple[str, ...],
    readable: tuple[str, ...],
    writable: tuple[str, ...],
    yes: bool,
) -> int:
    """Import the servers of other programs into your own `mcp.json`, and approve them.

    PROGRAM is claude-code, claude-desktop, cursor, vscode, windsurf or codex; FILE is a file of any
    of them. Without either, all their usual files are read.
    """
    settings = _load_settings(workspace)
    taken = {server.name for server in configured_servers.load_configured_servers(settings).servers}
    opened = {"network": network, "readable": readable, "writable": writable}
    added: dict[str, Any] = {}
    is_any_known = False
    for place, name, entry in _read_sources(sources, settings.workspace):
        if name in taken or name in added:
            click.echo(f"· {name}: you have a server of that name already", err=True)
            is_any_known = True
            continue
        try:
            if (
                not isinstance(entry, dict)
                or configuration.read_server(name, entry, f"`{name}`") is None
            ):
                click.echo(f"· {name}: switched off in {place}", err=True)
                continue
        except ConfigError as error:
            _print(f"✗ {error.detail}", err=True)
            continue
        added[name] = {**entry, **{key: list(value) for key, value in opened.items() if value}}
        _print(f"+ {name}, from {place}", err=True)
    if added:
        write_entries(added)
    elif not is_any_known:
        click.echo(f"nothing to import; looked into {_describe_sources(sources)}", err=True)
        return 0
    # Also those of an earlier import that were left without an answer.
    return _approve_all(settings, yes)


def _read_sources(sources: tuple[str, ...], folder: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield the file, the name and the entry of each server that other programs have."""
    files = [source for source in sources if source not in other_programs.PROGRAMS]
    for file in files:
        if not Path(file).is_file():
            raise click.UsageError(
                f"`{file}` is neither a file nor one of {', '.join(other_programs.PROGRAMS)}"
            )
        for name, entry in other_programs.read_foreign_file(Path(file), folder).items():
            yield file, name, entry
    programs = tuple(source for source in sources if source in other_programs.PROGRAMS)
    if files and not programs:
        return
    found, problems = other_programs.find_foreign_servers(folder, programs)
    _warn(tuple(problems))
    for one in found:
        for name, entry in one.entries.items():
            yield str(one.file), name, entry


def _describe_sources(sources: tuple[str, ...]) -> str:
    files = [source for source in sources if source not in other_programs.PROGRAMS]
    programs = tuple(source for source in sources if source in other_programs.PROGRAMS)
    if programs or not files:
        files += other_programs.list_file_names(programs)
    return ", ".join(files)


def write_entries(entries: dict[str, Any]) -> Path:
    """Add entries to the person's own file. Return its path."""
    file = paths.config() / configuration.PERSONAL_FILE
    content = _read_own_file(file)
    content.setdefault("mcpServers", {}).update(entries)
    paths.write_private(file, json.dumps(content, indent=2) + "\n")
    return file


def _read_own_file(file: Path) -> dict[str, Any]:
    """Return what the person's own file holds. Raises ConfigError if that is no JSON object."""
    if not file.exists():
        return {}
    content = parse_json(file.read_bytes(), str(file))
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: found no object", hint='write `{"mcpServers": {}}`')
    return cast("dict[str, Any]", content)


@mcp.command()
@click.argument("name")
@_workspace
def revoke(name: str, workspace: str | None) -> None:
    """Withdraw the approval of a server."""
    was_approved = server_approvals.ServerApprovals().revoke(
        _find_server(_load_settings(workspace), name)
    )
    outcome = "is no longer approved" if was_approved else "was not approved"
    click.echo(f"`{name}` {outcome}", err=True)


@mcp.command()
@click.argument("name")
@_workspace
def remove(name: str, workspace: str | None) -> None:
    """Remove a server from your own `mcp.json`, and withdraw its approval."""
    file = paths.config() / configuration.PERSONAL_FILE
    content = _read_own_file(file)
    if name not in content.get("mcpServers", {}):
        server = _find_server(_load_settings(workspace), name)
        of_repository = server.origin == "repository"
        place = "the repository" if of_repository else "`mcp_servers` of your settings"
        raise ConfigError(
            f"`{name}` is not in `{file}` but in {place}",
            hint=f"remove it there, or `ferrule mcp revoke {name}`",
        )
    with suppress(FerruleError, click.UsageError):  # an entry that cannot be read is removed, too
        server_approvals.ServerApprovals().revoke(_find_server(_load_settings(workspace), name))
    del content["mcpServers"][name]
    paths.write_private(file, json.dumps(content, indent=2) + "\n")
    click.echo(f"removed `{name}` from {file}", err=True)


@mcp.command()
@click.argument("name")
@_workspace
def test(name: str, workspace: str | None) -> int:
    """Start an approved server; show its protocol version and its tools. No tool is called."""
    settings = _load_settings(workspace)
    server = _find_server(settings, name)
    if server_approvals.ServerApprovals().get(server).state in _NOT_STARTABLE:
        click.echo(
            f"`{name}` is not approved, so it was not started\nhint: `ferrule mcp approve {name}`",
            err=True,
        )
        return 4
    manifest = _run(_list_tools(settings, server))
    _print(f"{name}: speaks {manifest.era}; {len(manifest.tools)} tools")
    for tool in manifest.tools:
        _print(f"  {tool.name}  {tool.description.splitlines()[0][:100]}")
    return 0


@mcp.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", default="", help="The server's address, if it is reached over HTTP.")
@click.option(
    "--env",
    multiple=True,
    help="NAME=value for its environment; the value may be `${VARIABLE}`. Repeatable.",
)
@click.option(
    "--header",
    multiple=True,
    help="Name=value for its requests; the value may be `${VARIABLE}`. Repeatable.",
)
@click.option("--network", multiple=True, help="A host that the server may reach. Repeatable.")
@click.option("--readable", multiple=True, help="A folder that the server may read. Repeatable.")
@click.option("--writable", multiple=True, help="A folder that the server may write. Repeatable.")
def add(
    name: str,
    command: tuple[str, ...],
    url: str,
    env: tuple[str, ...],
    header: tuple[str, ...],
    network: tuple[str, ...],
    readable: tuple[str, ...],
    writable: tuple[str, ...],
) -> None:
    """Add a server to your own `mcp.json`.

    `ferrule mcp add git -- mcp-server-git --repository .`
    """
    if bool(command) == bool(url):
        raise click.UsageError(
            f"name what starts `{name}`, or where it is: `ferrule mcp add {name} -- COMMAND ...` "
            f"or `ferrule mcp add {name} --url URL`"
        )
    entry = _make_entry(command, url, env, header)
    opened = {"network": network, "readable": readable, "writable": writable}
    entry |= {key: list(value) for key, value in opened.items() if value}
    configuration.read_server(name, entry, f"`{name}`")
    file = paths.config() / configuration.PERSONAL_FILE
    if name in _read_own_file(file).get("mcpServers", {}):
        raise ConfigError(
            f"`{file}` has a server `{name}` already",
            hint=f"`ferrule mcp remove {name}` removes it; or edit the file",
        )
    write_entries({name: entry})
    click.echo(
        f"added `{name}` to {file}\nhint: `ferrule mcp approve {name}` lets models use it",
        err=True,
    )


def _make_entry(
    command: tuple[str, ...], url: str, env: tuple[str, ...], header: tuple[str, ...]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"command": command[0] if command else ""}
    if url:
        entry = {"type": "http", "url": url}
    if len(command) > 1:
        entry["args"] = list(command[1:])
    if env:
        entry["env"] = dict(map(_parse_pair, env))
    if header:
        entry["headers"] = dict(map(_parse_pair, header))
    return entry


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"cannot read `{text}`; write NAME=value")
    return name, value


@mcp.command()
@click.argument("name")
@_workspace
@click.option("--out", is_flag=True, help="Sign out instead: delete this server's tokens.")
def login(name: str, workspace: str | None, out: bool) -> int:
    """Sign in to a server that needs it, in your browser."""
    server = _find_server(_load_settings(workspace), name)
    filled = spec.fill_variables(server)
    if server.oauth is None:
        click.echo(
            f"`{name}` is not set up for signing in\n"
            'hint: write `"oauth": true` into its entry in `mcp.json`',
            err=True,
        )
        return 2
    if out:
        was_signed_in = oauth.FileTokenStorage(server, filled.url).forget()
        outcome = "signed out of" if was_signed_in else "was not signed in to"
        click.echo(f"{outcome} `{name}`", err=True)
        return 0
    _run(_sign_in(server, filled))
    click.echo(f"signed in to `{name}`", err=True)
    return 0


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # here and not at the top: `--help` must not load an event loop

    return asyncio.run(work)


def _find_opener(writable: provenance.CommandWritable) -> provenance.TrustedProgram | None:
    """Return the program that opens an address in the person's browser, if there is one."""
    name = "open" if sys.platform == "darwin" else "xdg-open"
    try:
        return provenance.find_program(name, os.environ.get("PATH", os.defpath), writable)
    except provenance.ProgramNotFound:
        return None


def _open_browser(url: str) -> None:
    writable = provenance.CommandWritable.from_current_folder()
    opener = _find_opener(writable)
    if opener is None:
        return  # the address was printed
    environment = loaded_code.trust_environment(os.environ, writable)
    process = trusted_process.start_program(opener, [url], environment=environment, is_session=True)
    # A browser of the terminal runs as long as the person wants; nobody else would wait for it.
    threading.Thread(target=process.wait, name="ferrule-browser", daemon=True).start()


async def _sign_in(server: spec.McpServer, filled: Any) -> None:
    async def browse(url: str) -> None:
        _print(f"open this address to sign in:\n{url}", err=True)
        _open_browser(url)

    await oauth.sign_in(
        server, filled, browse, lambda auth: server_client.probe_server(server, filled, auth)
    )


async def _list_tools(settings: Settings, server: spec.McpServer) -> Manifest:
    if server.command:
        click.echo(f"starting `{server.name}` …", err=True)

    def show(name: str, line: str) -> None:
        _print(f"  │ {name}: {line[:_SHOWN_CHARACTERS]}", err=True)

    confine = sandbox_policy.make_sandbox_policy(settings, names=settings.names)
    manifest = await configured_servers.list_server_tools(settings, confine, server, show)
    _warn(manifest.left_out)
    return manifest


def _load_settings(workspace: str | None) -> Settings:
    settings = load_settings(workspace=str(Path(workspace).absolute()) if workspace else None)
    _warn(settings.notices)
    return settings


def _find_server(settings: Settings, name: str) -> spec.McpServer:
    servers = configured_servers.load_configured_servers(settings).servers
    for server in servers:
        if server.name == name:
            return server
    names = [server.name for server in servers]
    suggestion = suggest_names(name, names, "`ferrule mcp list` lists them", count=2, cutoff=0.5)
    raise click.UsageError(f"there is no MCP server `{name}`; {suggestion}")


def _print(text: str, *, err: bool = False) -> None:
    click.echo(escape_invisible(text), err=err)


def _warn(problems: tuple[str, ...]) -> None:
    for problem in problems:
        _print(f"! {problem}", err=True)
