"""Approve MCP servers from a page, in the two steps of `ferrule mcp approve`.

    1. the server's command or address: only then is it started;
    2. its tools, as it describes them: only then do models see them.

Anything may change between the steps, and between showing a page and approving it. So an approval
names the digest of what the page showed and is refused for anything else (`ApprovalStale`). What a
server offered when it was last started is kept in memory by `ServerReview`.
"""

from __future__ import annotations

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.value_class import frozen
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.settings.settings import Settings

from .approval_text import describe_facts
from .configured_servers import list_server_tools, load_configured_servers
from .definitions import Manifest
from .server_approvals import ServerApproval, ServerApprovals
from .spec import McpServer


class ApprovalStale(FerruleError):
    """A server changed after it was shown, so it was not approved."""

    code = "approval_stale"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"`{name}` changed after it was shown to you, so nothing was approved",
            code=type(self).code,
            hint="reload the page and review it again",
        )


@frozen
class ServerStatus:
    """A server and its approval state.

    Attributes:
        server: The server.
        approval: What was approved of it, and its state.
        covered: What an approval of its command covers, as text.
        offered: The tools it offered when it was last started, None if it was not started since
            they were approved.
        diff: What approving would change, as a unified diff, or whole if nothing was approved; ""
            if there is nothing to approve.
    """

    server: McpServer
    approval: ServerApproval
    covered: str
    offered: Manifest | None
    diff: str

    @property
    def can_start(self) -> bool:
        """Whether its command is approved, so that it may be started."""
        return self.approval.state not in ("unknown", "moved")


class ServerReview:
    """Approvals of the MCP servers that the settings name.

    Every method reads the files again, since the person may change them at any time.
    """

    def __init__(self, settings: Settings, confine: SandboxPolicy) -> None:
        self._settings = settings
        self._confine = confine
        self._seen: dict[str, Manifest] = {}

    def list_servers(self) -> tuple[list[ServerStatus], tuple[str, ...]]:
        """Return all servers, and problems of entries that cannot be used. Starts nothing.

        Raises:
            ConfigError: A file cannot be read.
        """
        loaded = load_configured_servers(self._settings)
        return [self._find_standing(server) for server in loaded.servers], loaded.problems

    def find_server(self, name: str) -> ServerStatus:
        """Return one server.

        Raises:
            ConfigError: There is no server of that name.
        """
        found = next((one for one in self.list_servers()[0] if one.server.name == name), None)
        if found is None:
            raise ConfigError(f"there is no MCP server `{name[:100]}`")
        return found

    def _find_standing(self, server: McpServer) -> ServerStatus:
        approvals = ServerApprovals()
        approval = approvals.get(server)
        seen = self._seen.get(server.digest()) or approval.pending
        if (
            seen is not None
            and approval.manifest is not None
            and seen.digest() == approval.manifest.digest()
        ):
            seen = None
        return ServerStatus(
            server,
            approval,
            "\n".join(describe_facts(server.approval_facts())),
            seen,
            approvals.diff(server, seen),
        )

    def approve_command(self, name: str, digest: str) -> None:
        """Approve the command of a server, so that it may be started.

        Args:
            name: The server's name.
            digest: The digest of the entry that was shown (`McpServer.digest`).

        Raises:
            ApprovalStale: The entry changed since.
            ConfigError: There is no server of that name.
        """
        standing = self.find_server(name)
        if standing.server.digest() != digest:
            raise ApprovalStale(name)
        if not standing.can_start:
            ServerApprovals().approve(standing.server)

    async def inspect(self, name: str) -> ServerStatus:
        """Start an approved server and read which tools it offers.

        Raises:
            ConfigError: Its command is not approved, or it does not start or answer.
        """
        standing = self.find_server(name)
        if not standing.can_start:
            raise ConfigError(f"`{name}` was not started: its command is not approved")
        manifest = await list_server_tools(self._settings, self._confine, standing.server)
        self._record(standing, manifest)
        return self.find_server(name)

    def _record(self, standing: ServerStatus, manifest: Manifest) -> None:
        approved = standing.approval.manifest
        same = approved is not None and approved.digest() == manifest.digest()
        self._seen[standing.server.digest()] = manifest
        if approved is not None:
            # From now on runs withhold the tools that changed.
            ServerApprovals().set_pending(standing.server, None if same else manifest)

    def approve_tools(self, name: str, digest: str) -> None:
        """Approve the tools of a server, so that models may use them.

        Args:
            name: The server's name.
            digest: The digest of the tools that were shown (`Manifest.digest`).

        Raises:
            ApprovalStale: The tools or the entry changed since, or its command is not approved.
            ConfigError: There is no server of that name.
        """
        standing = self.find_server(name)
        if (
            not standing.can_start
            or standing.offered is None
            or standing.offered.digest() != digest
        ):
            raise ApprovalStale(name)
        ServerApprovals().approve(standing.server, standing.offered)

    def revoke(self, name: str) -> None:
        """Withdraw the approval of a server's command and tools.

        Raises:
            ConfigError: There is no server of that name.
        """
        standing = self.find_server(name)
        self._seen.pop(standing.server.digest(), None)
        ServerApprovals().revoke(standing.server)
