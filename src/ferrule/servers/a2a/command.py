"""`ferrule serve a2a`: an agent that works in this folder, for other agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.core.extras import require
from ferrule.extensions.skills.loading import LoadedSkills
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options, server_options

from .signed_card import public_keys

with lazy_imports():
    from ferrule.servers import agent_server

    from . import server as a2a_server

if TYPE_CHECKING:
    from ferrule.runtime.assemble import Assembly
    from ferrule.runtime.http.endpoint import HttpEndpoint


PORT = 8321


@click.command("a2a")
@common_options
@click.option("--name", default="Ferrule", show_default=True, help="Name of the agent on its card.")
@click.option(
    "--description", default="An agent that works in a folder with tools.", show_default=True,
    help="What the agent does, for readers of its card.",
)  # fmt: skip
@click.option(
    "--skill", "skills", multiple=True, metavar="'ID: TEXT'",
    help="A skill for the card, as in 'find: Finds books.' Repeatable.",
)  # fmt: skip
@click.option(
    "--list-skills",
    is_flag=True,
    help="List the skills and sub-agents of this folder and of your settings on the card.",
)
@server_options(PORT)
@click.option(
    "--sign-key", type=click.Path(dir_okay=False, path_type=Path),
    help="Ed25519 key (`ferrule audit key` makes one) to sign the card with.",
)  # fmt: skip
def a2a(**options: Any) -> int:
    """Serve an agent with A2A 1.0 and 0.3.

    JSON-RPC is at `/a2a`, the agent card at `/.well-known/agent-card.json`.

    A message is a run with this folder's tools. A call that needs approval makes the task wait for
    input: the sender is asked, and approves with a message that begins with `yes`; any other
    message denies the call.
    """
    require("a2a", extra="a2a-server")
    return asyncio.run(agent_server.serve_agent(options, partial(_make_server, options)))


def _make_server(
    options: dict[str, Any], assembly: Assembly, address: agent_server.Address
) -> tuple[HttpEndpoint, str]:
    found = _find_skills(assembly) if options["list_skills"] else ()
    server = a2a_server.A2aServer(
        assembly.agent,
        name=options["name"],
        description=options["description"],
        skills=parse_skills(options["skills"], found),
        sign_key=options["sign_key"],
        leave=partial(assembly.close_session, strict=False),
        **address,
    )
    if options["sign_key"] is not None:
        click.echo(f"keys: {encode_json(public_keys(options['sign_key']))}", err=True)
    return server, f"serving `{options['name']}` at {server.url}"


def parse_skills(words: Iterable[str], found: Iterable[a2a_server.Skill]) -> list[a2a_server.Skill]:
    """Return the skills of the card: those given as `ID: WORDS`, then those found under other ids.

    Raises:
        ConfigError: a skill is not written as `ID: WORDS`, or its id is taken.
    """
    skills: dict[str, a2a_server.Skill] = {}
    for one in words:
        id_, colon, description = (part.strip() for part in one.partition(":"))
        if not colon or not id_ or not description or id_ in skills:
            why = "its id is used twice" if id_ in skills else "expected `ID: TEXT`"
            raise ConfigError(
                f"--skill `{one}`: {why}", hint="write, for example, 'find: Finds books.'"
            )
        skills[id_] = a2a_server.Skill(
            id_, id_.replace("-", " ").replace("_", " ").capitalize(), description
        )
    for one in found:
        skills.setdefault(one.id, one)
    return list(skills.values())


def _find_skills(assembly: Assembly) -> Iterator[a2a_server.Skill]:
    """Yield the skills and sub-agents of the assembled agent, as the card lists them."""
    plugins = assembly.agent.plugins
    loaded = plugins.find_resource(LoadedSkills)
    for skill in () if loaded is None else loaded.skills:
        yield a2a_server.Skill(skill.name, skill.name, skill.description, ("skill",))
    for one in plugins.agents:
        yield a2a_server.Skill(one.name, one.name, one.description, ("agent",))
