"""`ferrule serve console`: the web console on an address of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ferrule.core.extras import require
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.served_folder import require_folder
from ferrule.runtime.shared_options import common_options, server_options

with lazy_imports():
    from ferrule.runtime import assemble
    from ferrule.runtime.http import http_security, server, sign_in

    from . import app as console_app
    from . import setup, uploads, users


@click.command()
@common_options
@server_options(
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
    require("starlette", "uvicorn", "h11", "jinja2", "python_multipart", extra="console")

    require_folder(options)
    people, made = users.load_users(token_file, assemble.current_user())
    # Before anything is built, so that an address that is taken or not allowed is an error only.
    server.public_address(host, port, url)
    listening = server.listen(host, port)
    try:
        port = server.bound_port(listening)
        address = server.public_address(host, port, url)
        made_of = setup.build_console(options, _print_notice)
        try:
            door = _guard(console_app.make_app(made_of), people, host, port, url)
            _print_address(address, made)
            return await server.serve(
                door, host, port, listening=listening, on_stopping=made_of.bus.close
            )
        finally:
            await setup.close_console(made_of)
    finally:
        listening.close()


def _guard(
    app: http_security.Application,
    people: Mapping[str, http_security.Principal],
    host: str,
    port: int,
    url: str,
) -> http_security.HttpGuard:
    secure = server.public_address(host, port, url).startswith("https://")
    signing = sign_in.BrowserSignIn(
        server.accepted_origins(host, port, url),
        page=console_app.render_login_page,
        secure=secure,
        people=people,
    )
    return http_security.HttpGuard(
        app,
        token=people,
        hosts=server.accepted_hosts(host, port, url),
        open_paths=["/static/"],
        max_body=uploads.find_body_limit,
        browsers=signing,
    )


def _print_address(address: str, token: str) -> None:
    if token:
        click.echo(f"open {address}/login?token={token}")
        click.echo("this token is shown once; it is valid until the server stops", err=True)
    else:
        click.echo(f"open {address}/login")


def _print_notice(text: str) -> None:
    click.echo(f"! {text}", err=True)
