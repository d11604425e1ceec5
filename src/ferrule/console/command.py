"""`ferrule serve console`: the web console on an address of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.options import common, served

if TYPE_CHECKING:
    from ferrule.runtime.http.http_security import Application, Door, Who


@click.command()
@common
@served(
    8737,
    "File of tokens: a line with a token alone is the owner's, `user token [operator]` another's.",
)
def console(host: str, port: int, url: str, token_file: Path | None, **options: Any) -> int:
    """Watch runs, answer their questions, start and stop them, in a browser.

    It opens with a token, also on this machine. Without --token-file the token is $FERRULE_TOKEN,
    or one that is generated and shown once.
    """
    return asyncio.run(_serve(host, port, url, token_file, options))


async def _serve(
    host: str, port: int, url: str, token_file: Path | None, options: dict[str, Any]
) -> int:
    from ferrule.runtime.assemble import person
    from ferrule.runtime.http.server import address_of, listen, port_of, serve

    from .app import make_app
    from .setup import close, console_of
    from .users import people_of

    people, made = people_of(token_file, person())
    # Before anything is built, so that an address that is taken or not allowed is an error only.
    address_of(host, port, url)
    listening = listen(host, port)
    try:
        port = port_of(listening)
        address = address_of(host, port, url)
        made_of = console_of(options, _told)
        try:
            door = _door(make_app(made_of), people, host, port, url)
            _greet(address, made)
            return await serve(door, host, port, listening=listening, ending=made_of.bus.close)
        finally:
            await close(made_of)
    finally:
        listening.close()


def _door(app: Application, people: Mapping[str, Who], host: str, port: int, url: str) -> Door:
    from ferrule.runtime.http.http_security import Door
    from ferrule.runtime.http.server import address_of, hosts_of, origins_of
    from ferrule.runtime.http.sign_in import Browsers

    from .app import login_page

    secure = address_of(host, port, url).startswith("https://")
    signing = Browsers(origins_of(host, port, url), page=login_page, secure=secure, people=people)
    return Door(
        app, token=people, hosts=hosts_of(host, port, url), reads=["/static/"], browsers=signing
    )


def _greet(address: str, token: str) -> None:
    if token:
        click.echo(f"open {address}/login?token={token}")
        click.echo("this token is shown once; it is valid until the server stops", err=True)
    else:
        click.echo(f"open {address}/login")


def _told(text: str) -> None:
    click.echo(f"! {text}", err=True)
