"""Where the sessions of a connection come from: settings, or the agent of a program.

`ferrule serve acp` assembles an agent for each session, from the settings of its folder.
`AcpServer` gives each session a copy of the program's agent, with its tools, rules, journal and
dependencies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from ferrule.core.errors import ConfigError
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.runtime.assemble import Assembly, assemble, current_user, open_journal, wrap_agent
from ferrule.storage.journal.protocols import Journal

_log = logging.getLogger("ferrule.servers.acp")

Notice = Callable[[str], None]


class SessionSource(Protocol):
    """Makes the agents of sessions, and names their journal and owner."""

    tenant: str
    user: str
    yes_to: tuple[str, ...]
    """Patterns of tools that need no approval."""
    has_one_model: bool
    """Whether the editor cannot choose another model."""

    def open(self, folder: str, servers: Mapping[str, Any], notice: Notice) -> Assembly:
        """Return the agent of a session in a folder, with the MCP servers of the editor.

        Raises:
            ConfigError: The folder or the settings cannot be used.
        """
        ...

    async def close(self, assembly: Assembly, session: Session[Any] | None) -> None:
        """Close the session and what `open` made for it. Errors are reported, not raised."""
        ...

    def journal(self) -> AbstractContextManager[Journal]:
        """Enter with the journal of the sessions."""
        ...


class SettingsSource:
    """Sessions of agents that are assembled from settings.

    Args:
        options: The options of the command line.
    """

    tenant = "local"
    has_one_model = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self.user = current_user()
        self.yes_to = tuple(options.get("yes_to") or ())

    def open(self, folder: str, servers: Mapping[str, Any], notice: Notice) -> Assembly:
        """Assemble the agent of this folder."""
        return assemble(
            {**self._options, "workspace": folder},
            notice=notice,
            plugin_fields={"mcp": {"editor": servers}},
        )

    async def close(self, assembly: Assembly, session: Session[Any] | None) -> None:
        """Close the session and its agent."""
        await assembly.close(session, strict=False)

    def journal(self) -> AbstractContextManager[Journal]:
        """Open the person's journal."""
        return open_journal()


class ProgramSource:
    """Sessions of a program's agent, which stays open for the program."""

    has_one_model = True

    def __init__(self, agent: Agent[Any, Any], yes_to: tuple[str, ...] = ()) -> None:
        self._agent = agent
        self.tenant = agent.tenant
        self.user = agent.user
        self.yes_to = yes_to

    def open(self, folder: str, servers: Mapping[str, Any], notice: Notice) -> Assembly:
        """Copy the agent: a session has a model, a mode and an approver of its own."""
        workspace = self._agent.workspace
        if workspace is not None and folder != str(workspace.root):
            raise ConfigError(
                f"this agent works in `{workspace.root}`, and `cwd` is another folder"
            )
        if servers:
            names = ", ".join(f"`{name}`" for name in servers)
            notice(f"the MCP servers of the editor are not used ({names})")
        return wrap_agent(self._agent.copy_for_user(self._agent.user), _log.warning)

    async def close(self, assembly: Assembly, session: Session[Any] | None) -> None:
        """Close the session."""
        if session is not None:
            await assembly.close_session(session, strict=False)

    @contextmanager
    def journal(self) -> Generator[Journal]:
        """Enter with the agent's journal, which stays open."""
        yield self._agent.journal
