"""The plugin `a2a`: the skills of the A2A agents that the settings name."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Tool
from ferrule.tools.reliability import POLICY_ERROR

from .configuration import load_peers
from .peers import A2aPeers, connect


@frozen
class A2a:
    """The skills of other agents as tools. A program that names its peers uses `connect_a2a`.

    Attributes:
        peers: Entries by name, as `a2a_peers` has them.
    """

    name: ClassVar[str] = "a2a"
    peers: Any = None

    def setup(self, setup: Setup) -> Parts:
        """Read the entries. No agent is asked. Raises ConfigError for a wrong tool policy."""
        loaded = load_peers(self.peers)
        if loaded.policy_errors:
            raise ConfigError("\n".join(loaded.policy_errors), code=POLICY_ERROR)
        connected: list[A2aPeers] = []

        def make_tools(tools: Catalog) -> tuple[Tool, ...]:
            names = [tool.full_name for tool in tools]
            peers = connect(loaded.peers, taken_names=names)
            connected.append(peers)
            for text in (*peers.notices, *loaded.problems):
                setup.notice(text)
            return peers.tools

        @asynccontextmanager
        async def live() -> AsyncGenerator[None]:
            yield
            for peers in connected:
                await peers.close()

        return Parts(lifetime=live, catalog=CatalogChanges(add=make_tools))
