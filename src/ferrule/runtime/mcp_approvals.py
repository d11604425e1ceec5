"""Approving MCP servers from a page: what a person saw is what they approve, in the two steps of
`ferrule mcp approve`.

    first its command (or address): only then is it started;
    then what it says of its tools: only then do models see them.

Between the steps, and between a look and a yes, anything may change. So a yes names the digest of
what was on the page, and counts for nothing else (`ApprovalStale`). What a server said when it was
looked at is held here, for as long as this lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.storage.settings.settings import Settings

from .mcp_servers import listed, load

if TYPE_CHECKING:
    from ferrule.connectors.mcp import McpServer
    from ferrule.connectors.mcp.approvals import Approval
    from ferrule.connectors.mcp.definitions import Manifest


class ApprovalStale(FerruleError):
    """What was approved is not what is there now. Look again."""

    code = "approval_stale"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"`{name}` is not what you were shown any more, and nothing was approved",
            code=type(self).code,
            hint="look at it again",
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """A server and how it stands. `covered` is what an approval of its command covers, as text.

    `seen` is what it said of its tools when it was last looked at, None if nobody did since they
    were approved; `diff` is what approving would change, as a unified diff, "" where there is
    nothing to approve.
    """

    server: McpServer
    approval: Approval
    covered: str
    seen: Manifest | None
    diff: str

    @property
    def starts(self) -> bool:
        """Whether its command is approved, so that it may be looked at."""
        return self.approval.state not in ("unknown", "moved")


class ServerApprovals:
    """The servers of some settings. Every method reads files again: they are the person's to change
    meanwhile.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: dict[str, Manifest] = {}

    def standings(self) -> tuple[list[Standing], tuple[str, ...]]:
        """All servers, and sentences about entries that cannot be used. Starts nothing. Raises
        ConfigError.
        """
        loaded = load(self._settings)
        return [self._standing(server) for server in loaded.servers], loaded.problems

    def standing(self, name: str) -> Standing:
        """One server. Raises ConfigError for a name that there is not."""
        found = next((one for one in self.standings()[0] if one.server.name == name), None)
        if found is None:
            raise ConfigError(f"there is no server `{name[:100]}`")
        return found

    def _standing(self, server: McpServer) -> Standing:
        from ferrule.connectors.mcp import Approvals
        from ferrule.connectors.mcp.approvals import covered_text

        book = Approvals()
        approval = book.look(server)
        seen = self._seen.get(server.digest()) or approval.pending
        if (
            seen is not None
            and approval.manifest is not None
            and seen.digest() == approval.manifest.digest()
        ):
            seen = None
        return Standing(server, approval, covered_text(server), seen, book.diff(server, seen))

    def approve_command(self, name: str, digest: str) -> None:
        """Let a server be started that was shown with this digest (`McpServer.digest`). Raises
        ApprovalStale, ConfigError.
        """
        from ferrule.connectors.mcp import Approvals

        standing = self.standing(name)
        if standing.server.digest() != digest:
            raise ApprovalStale(name)
        if not standing.starts:
            Approvals().approve(standing.server)

    async def look(self, name: str) -> Standing:
        """Start an approved server, and hear what it offers. Raises ConfigError, also for what it
        did not say.
        """
        standing = self.standing(name)
        if not standing.starts:
            raise ConfigError(f"`{name}` was not started: its command is not approved")
        manifest = await listed(self._settings, standing.server)
        self._keep(standing, manifest)
        return self.standing(name)

    def _keep(self, standing: Standing, manifest: Manifest) -> None:
        from ferrule.connectors.mcp import Approvals

        approved = standing.approval.manifest
        same = approved is not None and approved.digest() == manifest.digest()
        self._seen[standing.server.digest()] = manifest
        if approved is not None:
            # Runs hold back what changed, from now on.
            Approvals().pend(standing.server, None if same else manifest)

    def approve_tools(self, name: str, digest: str) -> None:
        """Let models use what was shown with this digest (`Manifest.digest`). Raises ApprovalStale,
        ConfigError.
        """
        from ferrule.connectors.mcp import Approvals

        standing = self.standing(name)
        if not standing.starts or standing.seen is None or standing.seen.digest() != digest:
            raise ApprovalStale(name)
        Approvals().approve(standing.server, standing.seen)

    def withdraw(self, name: str) -> None:
        """Approve it no more: neither its command nor its tools. Raises ConfigError."""
        from ferrule.connectors.mcp import Approvals

        standing = self.standing(name)
        self._seen.pop(standing.server.digest(), None)
        Approvals().revoke(standing.server)
