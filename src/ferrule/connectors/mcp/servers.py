"""MCP servers in a run: which may be used, which tools they offer, and what a person should know.

    servers = [McpServer("time", command=("mcp-server-time",))]
    async with connect(servers, workspace=folder) as connected:
        agent = Agent("ollama:llama3.2", [*my_tools, *connected.tools])

No server is started to find out which tools there are: they are known from what was approved
(`server_approvals.py`). A server from a file that nobody approved adds nothing but a notice. A
server that a program names in its own code (`origin="program"`) is its author's choice: its command
needs no approval, and what it offers is pinned when it is first seen. Later changes hold back the
tools that changed, as for all others. Tools that it announces while a session runs are pinned as
well, and are offered from the session's next turn on; those of other servers wait for an approval.

A tool of a server is called `server__tool`, so the names of two servers do not clash. A tool whose
name is taken is left out with a notice, and so is a server whose name another one has. A tool that
is called like one of the run's other tools is named in the summary, because a model may mistake one
for the other.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from ferrule.connectors.remote_tools import RemoteTools
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.tools.definition import Tool

from .definitions import Manifest
from .server_approvals import ServerApproval, ServerApprovals
from .server_client import ServerClient, ServerStatus
from .spec import McpServer
from .stdio import LaunchSettings
from .tools import full_name, is_selected, make_tools

MAX_SERVERS = 64
_SHOWN_NAMES = 3
_SHOWN_CHANGES = 8


class McpServers(RemoteTools[ServerClient]):
    """The MCP servers of a run. A server starts when one of its tools is called."""

    def __init__(
        self,
        servers: Iterable[McpServer],
        launch: LaunchSettings,
        approvals: ServerApprovals,
        taken_names: Iterable[str],
        *,
        optional: bool = False,
    ) -> None:
        self._ground = launch
        self._optional = optional
        self._approvals = approvals
        super().__init__(taken_names)
        self._unapproved: list[str] = []
        self._similar: list[str] = []
        self._finders: dict[str, Callable[[], Awaitable[tuple[Tool, ...]]]] = {}
        self._gained: dict[str, list[Tool]] = {}
        """The tools that servers have gained since the run began, by server."""
        for server in servers:
            self._add_server(server)
        if self._unapproved:
            self._notices.append(_unapproved_notice(self._unapproved))

    @property
    def summary(self) -> str:
        """One line about servers that can be used, for people; "" if there are none."""
        if not self._clients:
            return ""
        text = f"MCP: {', '.join(f'`{name}`' for name in self._clients)}, {len(self._tools)} tools"
        if not self._similar:
            return text
        shown = ", ".join(f"`{name}`" for name in self._similar[:_SHOWN_NAMES])
        more = len(self._similar) - _SHOWN_NAMES
        rest = f" and {more} more" if more > 0 else ""
        return f"{text}; named like other tools but for the server: {shown}{rest}"

    @property
    def instructions(self) -> dict[str, str]:
        """What approved servers say about how to use them, by server name, cleaned and cut.

        It is text from the servers; nothing here shows it to a model.
        """
        found = {
            name: client.manifest.instructions
            for name, client in self._clients.items()
            if client.manifest
        }
        return {name: text for name, text in found.items() if text}

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the status of each server, without asking it."""
        return tuple(client.status() for client in self._clients.values())

    async def open(self) -> Self:
        """Start the servers that a program names and that were never seen, and only these.

        Raises:
            ConfigError: One of them cannot be used, and they are not optional.
        """
        never_seen = self._never_seen
        self._never_seen = []
        failures = await asyncio.gather(*(self._look_first(client) for client in never_seen))
        problems = [failure for failure in failures if failure]
        if problems and not self._optional:
            raise ConfigError(
                "\n".join(problems),
                code="mcp_server",
                hint="`optional=True` continues without the servers that cannot be used",
            )
        self._notices += problems
        for client, failure in zip(never_seen, failures, strict=True):
            if not failure:
                self._offer_tools(client)
        return self

    def _add_server(self, server: McpServer) -> None:
        if server.name in self._clients:
            self._notices.append(
                f"server `{server.name}` {_origin_of(server)} is not used: another server has "
                "this name"
            )
            return
        if len(self._clients) == MAX_SERVERS:
            self._notices.append(
                f"server `{server.name}` is not used: there are more than {MAX_SERVERS}"
            )
            return
        approval = self._approvals.get(server)
        client = ServerClient(server, self._ground, self._approvals, approval.manifest)
        if server.origin == "program" and approval.state in ("unknown", "moved", "command"):
            # The program names its command; what it offers is pinned when it is first seen.
            client.manifest = None
            self._clients[server.name] = client
            self._never_seen.append(client)
        elif approval.manifest is None:
            self._note_unapproved(server, approval)
        else:
            self._clients[server.name] = client
            if approval.state == "changed":
                self._notices.append(_changed_notice(server, approval))
            self._offer_tools(client, approval)

    def _note_unapproved(self, server: McpServer, approval: ServerApproval) -> None:
        if approval.state == "unknown":
            self._unapproved.append(server.name)
        else:
            self._notices.append(_unfinished_notice(server, approval))

    async def _look_first(self, client: ServerClient) -> str:
        """List a server's tools for the first time. Return why it cannot be used, or ""."""
        try:
            client.manifest = await client.fetch_manifest()
        except ToolFailed as error:
            return error.message
        self._approvals.approve(client.server, client.manifest)
        self._notices += [
            f"server `{client.server.name}`: {sentence}" for sentence in client.manifest.left_out
        ]
        return ""

    def _offer_tools(self, client: ServerClient, approval: ServerApproval | None = None) -> None:
        manifest = approval.unchanged if approval is not None else client.manifest
        assert manifest is not None
        for name in client.server.policies.tools:
            if manifest.get_tool(name) is None:
                self._notices.append(
                    f"server `{client.server.name}`: `tool_policies` names `{name}`, which it "
                    "does not offer"
                )
        policies = client.server.policies
        if (policies.default.max_attempts or 1) > 1 and not client.server.hints:
            self._notices.append(
                f"server `{client.server.name}`: the attempts of `policy` hold for tools that are "
                "known to do no harm when called again; name others in `tool_policies`, or believe "
                "the server with `hints: true`"
            )
        self._add_tools(client, manifest)

    def _add_tools(self, client: ServerClient, manifest: Manifest) -> list[Tool]:
        """Add a server's tools, and return those that were added."""
        find_more = self._finders.setdefault(client.server.name, partial(self._find_more, client))
        added: list[Tool] = []
        for tool in make_tools(client, manifest):
            growing = replace(tool, find_more=find_more)
            if self._add(growing):
                added.append(growing)
                self._report_similar_names(client.server, growing)
        return added

    async def _find_more(self, client: ServerClient) -> tuple[Tool, ...]:
        """Return the tools that a server has gained since it was listed (`Tool.find_more`)."""
        gained = self._gained.setdefault(client.server.name, [])
        changed = await client.fetch_change()
        if changed is not None:
            gained += self._take_new_tools(client, changed)
        return tuple(gained)

    def _take_new_tools(self, client: ServerClient, changed: Manifest) -> list[Tool]:
        server = client.server
        known = client.manifest or Manifest()
        new = tuple(
            tool
            for tool in changed.tools
            if known.get_tool(tool.name) is None and is_selected(server, tool.name)
        )
        if not new:
            return []
        if server.origin != "program":
            names = ", ".join(f"`{tool.name}`" for tool in new[:_SHOWN_CHANGES])
            self._notices.append(
                f"server `{server.name}` offers tools that nobody approved: {names}; `ferrule mcp "
                f"approve {server.name}` shows them"
            )
            return []
        # They are pinned when they are first seen, as the others were.
        client.manifest = replace(known, tools=(*known.tools, *new))
        self._approvals.approve(server, client.manifest)
        return self._add_tools(client, Manifest(tools=new))

    def _report_similar_names(self, server: McpServer, tool: Tool) -> None:
        """Note a tool that a model may mistake for one of the run or of another server."""
        own = tool.full_name.removeprefix(f"{server.name}__")
        others = [name for name in self._clients if name != server.name]
        if own in self._taken or any(full_name(name, own) in self._tools for name in others):
            self._similar.append(tool.full_name)


def connect(
    servers: Iterable[McpServer],
    *,
    workspace: str | Path | None = None,
    launch: LaunchSettings | None = None,
    approvals: ServerApprovals | None = None,
    taken_names: Iterable[str] = (),
    optional: bool = False,
) -> McpServers:
    """Return the tools of MCP servers for a run; use it with `async with`, or `open` and `close`.

    Without either, only servers of a program that were never seen are missing. Opening raises
    ConfigError if one of these cannot be used.

    Args:
        servers: The servers.
        workspace: The workspace; the current folder by default.
        launch: How servers are started, if that takes more than the workspace.
        approvals: What a person approved.
        taken_names: Names of the run's other tools.
        optional: Go on without servers that cannot be used; `notices` says why.

    Raises:
        ConfigError: The file of an approval cannot be used.
    """
    root = Path(os.path.realpath(workspace or "."))
    # The library's log may contain what a server wrote, which must not reach a person's terminal.
    for name in ("mcp", "client"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    return McpServers(
        servers,
        launch or LaunchSettings(root),
        approvals or ServerApprovals(),
        taken_names,
        optional=optional,
    )


def _origin_of(server: McpServer) -> str:
    return f"of `{server.folder}`" if server.folder else "of yours"


def _unapproved_notice(names: list[str]) -> str:
    """Return one line for all servers that nobody approved."""
    if len(names) == 1:
        return (
            f"server `{names[0]}` is not used: nobody approved it; `ferrule mcp approve "
            f"{names[0]}` shows it"
        )
    listed = ", ".join(f"`{name}`" for name in names)
    return (
        f"{len(names)} MCP servers are not used, because nobody approved them: {listed}; "
        "`ferrule mcp approve` shows what they would get"
    )


def _unfinished_notice(server: McpServer, approval: ServerApproval) -> str:
    why = "its tools were not reviewed yet"
    if approval.state == "moved":
        why = "its command is not the one that you approved"
    return (
        f"server `{server.name}` {_origin_of(server)} is not used: {why}; `ferrule mcp approve "
        f"{server.name}` shows it"
    )


def _changed_notice(server: McpServer, approval: ServerApproval) -> str:
    assert approval.manifest is not None
    offered = {tool.name for tool in approval.unchanged.tools}
    held_back = [
        tool.name
        for tool in approval.manifest.tools
        if tool.name not in offered and is_selected(server, tool.name)
    ]
    names = ", ".join(f"`{name}`" for name in held_back[:_SHOWN_CHANGES]) or "none of its tools"
    return (
        f"server `{server.name}` changed since you approved it; held back: {names}; `ferrule mcp "
        f"approve {server.name}` shows the change"
    )
