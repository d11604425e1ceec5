"""Servers in a run: which may be used, what they bring, and what a person should know about them.

    async with connect([McpServer("time", command=("mcp-server-time",))], workspace=folder) as
    servers:
        agent = Agent("ollama:llama3.2", [*my_tools, *servers.tools])

Nothing is started to find out which tools there are: they are known from what was approved
(`approvals.py`). A server of a file that nobody approved brings nothing but a notice. A server that
a program names in its own code (`origin="program"`) is its author's choice: its command needs no
approval, and what it offers is pinned when it is first seen. Later changes hold back what changed,
as for all others.

Names: a tool of a server is `server__tool`, so two servers do not get in each other's way. What has
a name that is taken already is left out and reported, and so is a server whose name another one
has; a tool that is called like one of ours is reported too, because a model may mistake one for the
other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from ferrule.connectors.offers import Offered
from ferrule.core.errors import ToolFailed
from ferrule.tools.definition import Tool

from .approvals import Approval, Approvals
from .server import Live, Status
from .spec import McpServer
from .stdio import Ground
from .tools import chosen, full_name, make_tools

MAX_SERVERS = 64


class Servers(Offered[Live]):
    """The servers of a run. `tools` and `notices` say what there is; servers start when a tool of
    theirs is called.
    """

    def __init__(
        self,
        servers: Iterable[McpServer],
        ground: Ground,
        approvals: Approvals,
        taken: Iterable[str],
    ) -> None:
        self._ground = ground
        self._approvals = approvals
        super().__init__(taken)
        for server in servers:
            self._take(server)

    @property
    def instructions(self) -> dict[str, str]:
        """What approved servers say about how to use them, by name: a stranger's text, cleaned and
        cut. Nothing here shows it to a model.
        """
        found = {
            name: live.manifest.instructions for name, live in self._live.items() if live.manifest
        }
        return {name: said for name, said in found.items() if said}

    def status(self) -> tuple[Status, ...]:
        """How each server stands, without asking it."""
        return tuple(live.status() for live in self._live.values())

    async def open(self) -> Self:
        """Look at the servers of a program that were never seen: these, and only these, are
        started.
        """
        waiting, self._unseen = self._unseen, []
        for live, seen in zip(
            waiting, await asyncio.gather(*(self._first(live) for live in waiting)), strict=True
        ):
            if seen:
                self._offer(live)
        return self

    # ---- what there is

    def _take(self, server: McpServer) -> None:
        if server.name in self._live:
            self._notices.append(
                f"server `{server.name}` {_where(server)} is not used: another one has its name"
            )
            return
        if len(self._live) == MAX_SERVERS:
            self._notices.append(
                f"server `{server.name}` is not used: there are more than {MAX_SERVERS}"
            )
            return
        approval = self._approvals.look(server)
        live = Live(server, self._ground, self._approvals, approval.manifest)
        if server.origin == "program" and approval.state in ("unknown", "moved", "command"):
            # Its command stands in the program; what it offers is pinned once it was seen.
            live.manifest = None
            self._live[server.name] = live
            self._unseen.append(live)
        elif approval.manifest is None:
            self._notices.append(_unapproved(server, approval))
        else:
            self._live[server.name] = live
            if approval.state == "changed":
                self._notices.append(_changed(server, approval))
            self._offer(live, approval)

    async def _first(self, live: Live) -> bool:
        try:
            live.manifest = await live.list()
        except ToolFailed as error:
            self._notices.append(error.message)
            return False
        self._approvals.approve(live.server, live.manifest)
        self._notices += [f"server `{live.server.name}`: {said}" for said in live.manifest.left_out]
        return True

    def _offer(self, live: Live, approval: Approval | None = None) -> None:
        manifest = approval.offered if approval is not None else live.manifest
        assert manifest is not None
        for name in live.server.policies.tools:
            if manifest.get(name) is None:
                self._notices.append(
                    f"server `{live.server.name}`: `tool_policies` names `{name}`, and there "
                    "is none"
                )
        for tool in make_tools(live, manifest):
            if self._add(tool):
                self._compare(live.server, tool)

    def _compare(self, server: McpServer, tool: Tool) -> None:
        """Say where a tool is called like one of ours or of another server: a model may mistake one
        for the other.
        """
        own = tool.full_name.removeprefix(f"{server.name}__")
        if own in self._taken:
            self._notices.append(
                f"server `{server.name}` has a tool `{own}`, like one that is here already; "
                f"its own is `{tool.full_name}`"
            )
        for other in self._live:
            if other != server.name and full_name(other, own) in self._made:
                self._notices.append(
                    f"the servers `{other}` and `{server.name}` both have a tool `{own}`"
                )


def connect(
    servers: Iterable[McpServer],
    *,
    workspace: str | Path | None = None,
    ground: Ground | None = None,
    approvals: Approvals | None = None,
    taken: Iterable[str] = (),
) -> Servers:
    """Servers for a run: `async with`, or `open` and `close`; without either, only those of a
    program that were never seen are missing.

    `taken` are names of the run's other tools. `ground` says more than `workspace` about how
    servers are started. Raises ConfigError where the file of an approval cannot be used.
    """
    root = Path(workspace or ".").resolve()
    # What a handler's library logs may hold what a server wrote: it is not for the terminal of a
    # person.
    for name in ("mcp", "client"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    return Servers(servers, ground or Ground(root), approvals or Approvals(), taken)


def _where(server: McpServer) -> str:
    return f"of `{server.place}`" if server.place else "of yours"


def _unapproved(server: McpServer, approval: Approval) -> str:
    why = {
        "moved": "its command is not the one that you approved",
        "command": "nobody looked at its tools yet",
    }.get(approval.state, "nobody approved it")
    return (
        f"server `{server.name}` {_where(server)} does nothing: {why}; `ferrule mcp approve "
        f"{server.name}` shows it"
    )


def _changed(server: McpServer, approval: Approval) -> str:
    assert approval.manifest is not None
    offered = {one.name for one in approval.offered.tools}
    held = [
        one.name
        for one in approval.manifest.tools
        if one.name not in offered and chosen(server, one.name)
    ]
    names = ", ".join(f"`{name}`" for name in held[:8]) or "none of its tools"
    return (
        f"server `{server.name}` changed since you approved it; held back: {names}; `ferrule mcp "
        f"approve {server.name}` shows the change"
    )
