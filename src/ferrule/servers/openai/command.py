"""`ferrule serve openai`: an agent, and models, for clients of the chat completions API."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.http.work_limits import OF_ONE_PERSON
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options, server_options, yes_to_option

with lazy_imports():
    from ferrule.servers import agent_server

    from . import server as openai_server

if TYPE_CHECKING:
    from ferrule.runtime.assemble import Assembly
    from ferrule.runtime.http.endpoint import HttpEndpoint

PORT = 8330


@click.command("openai")
@common_options
@yes_to_option
@click.option(
    "--offer", "offers", multiple=True, metavar="PROVIDER:MODEL",
    help="Another model for the agent, if a client asks for it. Repeatable.",
)  # fmt: skip
@click.option(
    "--direct", "direct", multiple=True, metavar="PROVIDER:MODEL",
    help="A model for clients without the agent: no rule, hook or budget applies. Repeatable.",
)  # fmt: skip
@server_options(PORT)
@click.option(
    "--at-once",
    type=click.IntRange(1, 256),
    default=OF_ONE_PERSON,
    show_default=True,
    help="Requests of one person worked on at the same time.",
)
def openai(**options: Any) -> int:
    """Serve chat completions: `POST /v1/chat/completions`, `GET /v1/models`.

    The model `ferrule` is an agent that works in this folder with its own tools, as `ferrule run`
    does; no one can be asked, so calls that need approval are denied. A model of `--direct` answers
    by its own name (`local:smollm2`) and calls the tools that the client brings.
    """
    return asyncio.run(agent_server.serve_agent(options, partial(_make_server, options)))


def _make_server(
    options: dict[str, Any], assembly: Assembly, address: agent_server.Address
) -> tuple[HttpEndpoint, str]:
    server = openai_server.OpenAiServer(
        assembly,
        offers=(*assembly.settings["serve.models"], *options["offers"]),
        direct=(*assembly.settings["serve.direct_models"], *options["direct"]),
        yes_to=tuple(options["yes_to"]),
        at_once=options["at_once"],
        **address,
    )
    # Now and not with the first request: an unknown model is an error at the start.
    for name in server.models.ids:
        server.models.client(server.models.choose(name).model)
    return server, f"serving {', '.join(server.models.ids)} at {server.url}/v1"
