"""`ferrule serve openai`: an agent, and models, for clients of the chat completions API."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from ferrule.runtime.shared_options import common_options, server_options, yes_to_option

PORT = 8330


@click.command("openai")
@common_options
@yes_to_option
@click.option(
    "--offer", "offers", multiple=True, metavar="PROVIDER:MODEL",
    help="Another model for clients, on its own or with the agent. Repeatable.",
)  # fmt: skip
@server_options(PORT)
@click.option(
    "--at-once",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="Requests worked on at the same time.",
)
def openai(**options: Any) -> int:
    """Serve chat completions: `POST /v1/chat/completions`, `GET /v1/models`.

    The model `ferrule` is an agent that works in this folder with its own tools, as `ferrule run`
    does; no one can be asked, so calls that need approval are denied. A model by its own name
    (`local:smollm2`) answers directly and calls the tools that the client brings.
    """
    return asyncio.run(_serve(options))


async def _serve(options: dict[str, Any]) -> int:
    from ferrule.runtime.assemble import assemble
    from ferrule.runtime.http.server import bound_port, listen, load_token

    from .server import OpenAiServer

    def say(text: str) -> None:
        click.echo(text, err=True)

    def notice(text: str) -> None:
        say(f"! {text}")

    token, made = load_token(options.pop("token_file"))
    with listen(options["host"], options["port"]) as listening:
        assembly = assemble(options, notice=notice)
        try:
            server = OpenAiServer(
                assembly,
                token=token,
                offers=(*assembly.settings["serve.models"], *options["offers"]),
                yes_to=tuple(options["yes_to"]),
                host=options["host"],
                port=bound_port(listening),
                url=options["url"],
                at_once=options["at_once"],
            )
            # Now and not with the first request: an unknown model is an error at the start.
            for name in server.models.ids:
                server.models.client(server.models.choose(name).model)
            if not options["quiet"]:
                say(f"serving {', '.join(server.models.ids)} at {server.url}/v1")
            if made:
                say(f"token: {token}")
            return await server.run(listening)
        finally:
            await assembly.close()
