"""`ferrule a2a`: list A2A agents, show their cards, and approve or revoke them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ferrule.cli.rows import print_row
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.similar_names import suggest_names
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage.settings.settings import load_settings

from .confirmation import confirm
from .terminal import escape_invisible

with lazy_imports():
    from ferrule.connectors import approval_files
    from ferrule.connectors.a2a import configuration, peer_approvals, peers

if TYPE_CHECKING:
    from ferrule.connectors.a2a import A2aPeer
    from ferrule.connectors.a2a.cards import Card


@click.group(cls=CommandGroup)
def a2a() -> None:
    """List A2A agents, show their cards, approve and test them."""


_workspace = click.option(
    "-C",
    "--workspace",
    type=click.Path(file_okay=False),
    help="Folder to look in (default: this one).",
)


@a2a.command("list")
@_workspace
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_peers(workspace: str | None, as_json: bool) -> None:
    """List the agents: name, approval state, address. No agent is contacted."""
    approvals = peer_approvals.PeerApprovals()
    rows = [
        {"name": peer.name, "state": approvals.get(peer).state, "url": peer.url}
        for peer in _load_peers(workspace)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        print_row(f"{row['name']:{width}}  {row['state']:8}  ", row["url"])
    if not rows:
        click.echo(
            "no A2A agents configured\nhint: see `a2a_peers` in docs/tools-from-servers.md",
            err=True,
        )


@a2a.command()
@click.argument("name")
@_workspace
def show(name: str, workspace: str | None) -> None:
    """Show what was approved of an agent, and what changed since. No agent is contacted."""
    peer = _find_peer(workspace, name)
    approvals = peer_approvals.PeerApprovals()
    approval = approvals.get(peer)
    _print(f"{peer.name}: {approval.state}\n{approval_files.format_facts(peer.approval_facts())}")
    if approval.card is not None:
        _print(approval.card.to_text())
    if approval.pending is not None:
        _print(approvals.diff(peer, approval.pending))


@a2a.command()
@click.argument("name")
@_workspace
@click.option("--yes", is_flag=True, help="Approve without asking.")
def approve(name: str, workspace: str | None, yes: bool) -> int:
    """Fetch an agent's card, show it, and let models ask that agent.

    The card is compared with what was approved before. A later change of the card withholds what
    changed until it is approved too.
    """
    peer = _find_peer(workspace, name)
    approvals = peer_approvals.PeerApprovals()
    card = _fetch_card(peer)
    approval = approvals.get(peer)
    if approval.card is not None and approval.card.digest() == card.digest():
        approvals.set_pending(peer, None)
        click.echo(f"`{name}` is already approved, and nothing changed", err=True)
        return 0
    _print(approvals.diff(peer, card), err=True)
    code = confirm(f"let models ask `{name}`?", yes)
    if code != 0:
        return code
    approvals.approve(peer, card)
    click.echo(f"approved `{name}`: {len(card.skills)} skills", err=True)
    return 0


@a2a.command()
@click.argument("name")
@_workspace
def revoke(name: str, workspace: str | None) -> None:
    """Withdraw the approval of an agent."""
    was_approved = peer_approvals.PeerApprovals().revoke(_find_peer(workspace, name))
    outcome = "is no longer approved" if was_approved else "was not approved"
    click.echo(f"`{name}` {outcome}", err=True)


@a2a.command()
@click.argument("name")
@_workspace
def test(name: str, workspace: str | None) -> int:
    """Fetch an approved agent's card, and compare it with the approved one. No task is sent."""
    peer = _find_peer(workspace, name)
    approvals = peer_approvals.PeerApprovals()
    approval = approvals.get(peer)
    if approval.card is None:
        click.echo(
            f"`{name}` is not approved, so it was not contacted\n"
            f"hint: `ferrule a2a approve {name}`",
            err=True,
        )
        return 4
    card = _fetch_card(peer)
    signature = "signed by one of your keys" if peer.keys else "its signature was not checked"
    _print(f"{name}: {card.name} {card.version}; {len(card.skills)} skills; {signature}")
    for skill in card.skills:
        _print(f"  {skill.id}  {skill.description.splitlines()[0][:100]}")
    if not any(peer.allows_url(url) for url in card.addresses):
        addresses = ", ".join(card.addresses) or "the card names none"
        _print(f"! none of its addresses is allowed for this agent: {addresses}", err=True)
        return 1
    if card.digest() != approval.card.digest():
        approvals.set_pending(peer, card)
        click.echo(
            "the card differs from the one you approved\n"
            f"hint: `ferrule a2a approve {name}` shows the change",
            err=True,
        )
        return 1
    return 0


def _fetch_card(peer: A2aPeer) -> Card:
    """Fetch an agent's card. A failure is a ConfigError, since a person asked for it."""
    import asyncio

    try:
        card = asyncio.run(peers.fetch_peer_card(peer))
    except ToolFailed as error:
        raise ConfigError(error.message, code="a2a_peer") from error
    for problem in card.left_out:
        _print(f"! {problem}", err=True)
    return card


def _load_peers(workspace: str | None) -> tuple[A2aPeer, ...]:
    settings = load_settings(workspace=str(Path(workspace).absolute()) if workspace else None)
    loaded = configuration.load_peers(settings.values.get("a2a_peers"))
    for problem in (*settings.notices, *loaded.problems):
        _print(f"! {problem}", err=True)
    return loaded.peers


def _find_peer(workspace: str | None, name: str) -> A2aPeer:
    peers = _load_peers(workspace)
    for peer in peers:
        if peer.name == name:
            return peer
    suggestion = suggest_names(
        name, [peer.name for peer in peers], "`ferrule a2a list` lists them", count=2, cutoff=0.5
    )
    raise click.UsageError(f"there is no A2A agent `{name}`; {suggestion}")


def _print(text: str, *, err: bool = False) -> None:
    click.echo(escape_invisible(text), err=err)
