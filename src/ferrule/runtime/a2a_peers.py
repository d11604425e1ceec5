"""The A2A agents that the person's settings name, for a run or a command."""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.connectors.a2a import A2aPeers, connect, load_peers
from ferrule.connectors.a2a.configuration import LoadedPeers
from ferrule.core.errors import ConfigError
from ferrule.storage.settings.settings import Settings
from ferrule.tools.reliability import POLICY_ERROR


def connect_peers(settings: Settings, taken: Iterable[str]) -> A2aPeers:
    """Return the A2A agents of a run; close them with the agent. None of them is contacted.

    Args:
        settings: The settings in force.
        taken: The names of the other tools of the run.

    Raises:
        ConfigError: A tool policy cannot be read.
    """
    loaded = load_configured_peers(settings)
    if loaded.policy_errors:
        raise ConfigError("\n".join(loaded.policy_errors), code=POLICY_ERROR)
    peers = connect(loaded.peers, taken_names=taken)
    peers.add_notices(*loaded.problems)
    return peers


def load_configured_peers(settings: Settings) -> LoadedPeers:
    """Read the agents that the settings name."""
    return load_peers(settings.values.get("a2a_peers"))
