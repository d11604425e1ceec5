"""`ferrule a2a`: which agents there are, what they say they can do, and whether they may be
asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .confirmation import agreed

if TYPE_CHECKING:
    from ferrule.connectors.a2a import A2aPeer
    from ferrule.connectors.a2a.cards import Card


@click.group()
def a2a() -> None:
    """List agents that speak A2A, look at their cards, approve them."""


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
    """One line per agent: name, whether it is approved, where it is. Nothing is asked."""
    from ferrule.connectors.a2a import Approvals

    book = Approvals()
    peers = _peers(workspace)
    rows = [{"name": peer.name, "state": book.look(peer).state, "url": peer.url} for peer in peers]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        _say(f"{row['name']:{width}}  {row['state']:8}  {row['url']}")
    if not rows:
        click.echo(
            "there are no agents\nhint: docs/a2a.md says how `a2a_peers` names them", err=True
        )


@a2a.command()
@click.argument("name")
@_workspace
def show(name: str, workspace: str | None) -> None:
    """What was approved of an agent, and what changed since. Nothing is asked."""
    from ferrule.connectors.a2a import Approvals
    from ferrule.connectors.a2a.approvals import covered_text

    peer = _find(_peers(workspace), name)
    seen = Approvals().look(peer)
    _say(f"{peer.name}: {seen.state}\n{covered_text(peer)}")
    if seen.card is not None:
        _say(seen.card.text())
    if seen.pending is not None:
        _say(Approvals().diff(peer, seen.pending))


@a2a.command()
@click.argument("name")
@_workspace
@click.option("--yes", is_flag=True, help="Approve without asking.")
def approve(name: str, workspace: str | None, yes: bool) -> int:
    """Read an agent's card, look at it, and let models ask that agent.

    What was approved before is compared with what is there now. Any later change holds back what
    changed.
    """
    from ferrule.connectors.a2a import Approvals

    peer, book = _find(_peers(workspace), name), Approvals()
    card = _card(peer)
    seen = book.look(peer)
    if seen.card is not None and seen.card.digest() == card.digest():
        book.pend(peer, None)
        click.echo(f"`{name}` is approved, and nothing changed", err=True)
        return 0
    _say(book.diff(peer, card), err=True)
    if (code := agreed(f"let models ask `{name}`?", yes)) != 0:
        return code
    book.approve(peer, card)
    click.echo(f"approved `{name}`: {len(card.skills)} skills", err=True)
    return 0


@a2a.command()
@click.argument("name")
@_workspace
def revoke(name: str, workspace: str | None) -> None:
    """Approve an agent no more."""
    from ferrule.connectors.a2a import Approvals

    done = Approvals().revoke(_find(_peers(workspace), name))
    click.echo(f"`{name}` {'is no longer approved' if done else 'was not approved'}", err=True)


@a2a.command()
@click.argument("name")
@_workspace
def test(name: str, workspace: str | None) -> int:
    """Read an approved agent's card and say what it offers, and whether that is what was approved.
    It is given nothing to do.
    """
    from ferrule.connectors.a2a import Approvals

    peer = _find(_peers(workspace), name)
    seen = Approvals().look(peer)
    if seen.card is None:
        click.echo(
            f"`{name}` was not asked: it is not approved\nhint: `ferrule a2a approve {name}`",
            err=True,
        )
        return 4
    card = _card(peer)
    signed = "signed by one of your keys" if peer.keys else "its signature was not looked at"
    _say(f"{name}: {card.name} {card.version}; {len(card.skills)} skills; {signed}")
    for one in card.skills:
        _say(f"  {one.id}  {one.description.splitlines()[0][:100]}")
    if not any(peer.admits(url) for url in card.addresses):
        _say(
            f"! none of its addresses may be asked: {', '.join(card.addresses) or 'it has none'}",
            err=True,
        )
        return 1
    if card.digest() != seen.card.digest():
        Approvals().pend(peer, card)
        click.echo(
            f"it is not what you approved\nhint: `ferrule a2a approve {name}` shows the change",
            err=True,
        )
        return 1
    return 0


def _card(peer: A2aPeer) -> Card:
    """What an agent's card says now. Raises ToolFailed as ConfigError: it is for a person here."""
    import asyncio

    from ferrule.connectors.a2a.connect import card_of
    from ferrule.core.errors import ConfigError, ToolFailed

    try:
        card = asyncio.run(card_of(peer))
    except ToolFailed as error:
        raise ConfigError(error.message, code="a2a_peer") from error
    for one in card.left_out:
        _say(f"! {one}", err=True)
    return card


def _peers(workspace: str | None) -> tuple[A2aPeer, ...]:
    from ferrule.runtime.a2a_peers import load
    from ferrule.storage.settings.settings import load_settings

    settings = load_settings(workspace=str(Path(workspace).absolute()) if workspace else None)
    loaded = load(settings)
    for one in (*settings.notices, *loaded.problems):
        _say(f"! {one}", err=True)
    return loaded.peers


def _find(peers: tuple[A2aPeer, ...], name: str) -> A2aPeer:
    from difflib import get_close_matches

    found = next((peer for peer in peers if peer.name == name), None)
    if found is None:
        near = get_close_matches(name, [peer.name for peer in peers], 2, 0.5)
        meant = f"; did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else ""
        raise click.UsageError(f"there is no agent `{name}`{meant}")
    return found


def _say(text: str, *, err: bool = False) -> None:
    from .terminal import visible

    click.echo(visible(text), err=err)
