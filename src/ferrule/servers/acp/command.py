"""`ferrule serve acp`: the agent that an editor starts and talks to over its standard streams."""

from __future__ import annotations

import sys
from typing import Any

import click

from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options, yes_to_option

with lazy_imports():
    from . import server, session_sources


@click.command()
@common_options
@yes_to_option
def acp(**options: Any) -> int:
    """Serve an agent to the editor that starts this command (Agent Client Protocol over stdio).

    Each session works in the folder that the editor names, with your own settings; a repository's
    settings take effect only if you trusted it. Approvals are asked for in the editor. Standard
    output belongs to the protocol.
    """
    import asyncio

    if options["workspace"]:
        raise click.UsageError(
            "--workspace cannot be used: the editor chooses the folder of each session"
        )
    if sys.stdin.isatty():
        click.echo("this command talks to an editor; docs/serve.md explains the setup", err=True)

    return asyncio.run(server.serve(session_sources.SettingsSource(options)))
