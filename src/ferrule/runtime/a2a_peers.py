"""The A2A peers of the command line: what the person's settings name, put together for a run or a
command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ferrule.core.errors import ConfigError
from ferrule.storage.settings.settings import Settings
from ferrule.tools.reliability import POLICY

if TYPE_CHECKING:
    from ferrule.connectors.a2a import Peers
    from ferrule.connectors.a2a.settings import Loaded


def peers_of(settings: Settings, taken: Iterable[str]) -> Peers | None:
    """The peers of a run, none of them asked; None, and nothing loaded for it, where nobody names
    any. Close it with the agent.

    `taken` are the names of the other tools. Raises ConfigError for a policy that cannot be read.
    """
    if not settings.values.get("a2a_peers"):
        return None
    from ferrule.connectors.a2a import connect

    loaded = load(settings)
    if loaded.policy_errors:
        raise ConfigError("\n".join(loaded.policy_errors), code=POLICY)
    peers = connect(loaded.peers, taken=taken)
    peers.note(*loaded.problems)
    return peers


def load(settings: Settings) -> Loaded:
    """What the settings name."""
    from ferrule.connectors.a2a import load_peers

    return load_peers(settings.values.get("a2a_peers"))
